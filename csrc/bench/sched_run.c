/* The event loop of the simulation. */
#include <assert.h>
#include <stdlib.h>

#include "media.h"
#include "sched_sim.h"

struct op *sim_op(struct sim *sim, uint32_t arrival, uint64_t offset, uint32_t length) {
  static const uint8_t classes[KINDS] = {PS_SCHED_DEMAND, PS_SCHED_WRITE, PS_SCHED_DATED,
                                         PS_SCHED_DATED, PS_SCHED_SPECULATIVE};
  assert(sim != NULL && arrival < sim->arrivals->count);
  struct op *op = sim->free_ops;
  if (op != NULL)
    sim->free_ops = op->next;
  else
    op = malloc(sizeof *op);
  if (op == NULL) abort();
  enum kind kind = sim->arrivals->all[arrival].kind;
  uint32_t code = kind == WRITE ? PS_MEDIA_WRITE : PS_MEDIA_PREFETCH;
  if (kind == DEMAND || kind == DATED_READ) code = PS_MEDIA_READ;
  *op = (struct op){.arrival = arrival,
                    .flash = {.op = code, .length = length},
                    .item = {.op = code,
                             .offset = offset,
                             .length = length,
                             .deadline_ns = sim->arrivals->all[arrival].deadline_ns,
                             .sched_class = classes[kind],
                             .is_mergeable = kind != WRITE}};
  return op;
}

void sim_op_free(struct sim *sim, struct op *op) {
  op->next = sim->free_ops;
  sim->free_ops = op;
}

static void note_start(struct sim *sim, const struct op *op) {
  struct outcome *outcome = &sim->outcomes[op->arrival];
  if (outcome->started_ns == UINT64_MAX) outcome->started_ns = sim->now_ns;
}

static void note_end(struct sim *sim, const struct op *op, uint64_t length) {
  struct outcome *outcome = &sim->outcomes[op->arrival];
  assert(outcome->left_bytes >= length);
  outcome->left_bytes -= length;
  if (outcome->left_bytes == 0) outcome->ended_ns = sim->now_ns;
}

static struct op *op_of(struct ps_sched_item *item) {
  return item == NULL ? NULL : (struct op *)((char *)item - offsetof(struct op, item));
}

static void start(struct sim *sim) {
  struct op *first = NULL;
  while ((first = sim->policy->next(sim->state, sim)) != NULL) {
    first->flash.length = 0;
    for (struct op *op = first; op != NULL; op = op_of(op->item.merged)) {
      first->flash.length += op->item.length;
      note_start(sim, op);
    }
    sim->in_flight++;
    ps_flash_submit(sim->flash, sim->now_ns, &first->flash);
  }
}

static void reap(struct sim *sim) {
  struct ps_flash_item *flash = NULL;
  while ((flash = ps_flash_reap(sim->flash, sim->now_ns)) != NULL) {
    struct op *op = (struct op *)flash;
    assert(sim->in_flight > 0);
    sim->in_flight--;
    sim->policy->ended(sim->state, sim, op);
    while (op != NULL) {
      struct op *next = op_of(op->item.merged);
      note_end(sim, op, op->item.length);
      sim_op_free(sim, op);
      op = next;
    }
  }
}

static bool is_there(const struct sim *sim, const struct arrival *arrival) {
  if (arrival->kind == GUESS && sim->policy != &policy_deadline) return false;
  return sim->with_dated || arrival->kind == DEMAND || arrival->kind == WRITE;
}

static void arrive(struct sim *sim, uint32_t *next) {
  const struct arrivals *arrivals = sim->arrivals;
  for (; *next < arrivals->count && arrivals->all[*next].at_ns <= sim->now_ns; (*next)++) {
    if (is_there(sim, &arrivals->all[*next])) sim->policy->arrive(sim->state, sim, *next);
  }
}

static uint64_t next_event(const struct sim *sim, uint32_t next) {
  uint64_t time = ps_flash_next_time(sim->flash);
  uint64_t policy = sim->policy->next_time(sim->state, (struct sim *)sim);
  if (policy < time) time = policy;
  if (next < sim->arrivals->count && sim->arrivals->all[next].at_ns < time)
    time = sim->arrivals->all[next].at_ns;
  return time;
}

void sim_run(struct sim *sim, uint64_t seed) {
  assert(sim != NULL && sim->policy != NULL && sim->arrivals != NULL);
  const struct mix *mix = sim->mix;
  struct ps_flash_config config = {.seed = seed,
                                   .read_median_us = mix->read_median_us,
                                   .read_p99_us = mix->read_p99_us,
                                   .write_median_us = mix->read_median_us / 2,
                                   .write_p99_us = mix->read_p99_us / 2,
                                   .bandwidth = mix->bandwidth,
                                   .scale = 1,
                                   .channels = DEPTH};
  sim->outcomes = calloc(sim->arrivals->count, sizeof *sim->outcomes);
  sim->flash = ps_flash_new(&config);
  if (sim->outcomes == NULL || sim->flash == NULL) abort();
  for (uint32_t i = 0; i < sim->arrivals->count; i++)
    sim->outcomes[i] = (struct outcome){.started_ns = UINT64_MAX,
                                        .ended_ns = UINT64_MAX,
                                        .forecast_ns = UINT64_MAX,
                                        .left_bytes = sim->arrivals->all[i].bytes};
  sim->state = sim->policy->make(sim);
  uint32_t next = 0, idle = 0;
  for (uint64_t time = 0; (time = next_event(sim, next)) != UINT64_MAX;) {
    idle = time > sim->now_ns ? 0 : idle + 1;
    assert(idle < 1000);
    if (time > sim->now_ns) sim->now_ns = time;
    reap(sim);
    arrive(sim, &next);
    start(sim);
  }
  sim->policy->destroy(sim->state);
  ps_flash_free(sim->flash);
  while (sim->free_ops != NULL) {
    struct op *op = sim->free_ops;
    sim->free_ops = op->next;
    free(op);
  }
}
