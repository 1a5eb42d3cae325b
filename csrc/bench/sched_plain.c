/* What the scheduler is compared with: first come, first served; and two classes, demand reads
 * first and everything else in the order in which it came. Both keep a fixed number of operations
 * under way, and cut jobs into operations of MERGE_BYTES. */
#include <assert.h>
#include <stdlib.h>

#include "sched_sim.h"

struct queue {
  uint32_t *arrivals; /* numbers */
  uint32_t first, last;
};

struct state {
  struct queue queues[2];
  uint64_t taken; /* bytes of the first arrival that were started */
  bool has_classes;
};

static struct state *make(struct sim *sim, bool has_classes) {
  struct state *state = calloc(1, sizeof *state);
  if (state == NULL) abort();
  state->has_classes = has_classes;
  for (uint32_t i = 0; i < 2; i++) {
    state->queues[i].arrivals = calloc(sim->arrivals->count + 1, sizeof(uint32_t));
    if (state->queues[i].arrivals == NULL) abort();
  }
  return state;
}

static void *make_fifo(struct sim *sim) { return make(sim, false); }

static void *make_priority(struct sim *sim) { return make(sim, true); }

static void destroy(void *policy) {
  struct state *state = policy;
  for (uint32_t i = 0; i < 2; i++) free(state->queues[i].arrivals);
  free(state);
}

static void arrive(void *policy, struct sim *sim, uint32_t number) {
  struct state *state = policy;
  bool is_second = state->has_classes && sim->arrivals->all[number].kind != DEMAND;
  struct queue *queue = &state->queues[is_second];
  queue->arrivals[queue->last++] = number;
  sim->outcomes[number].is_admitted = true;
}

static struct op *next(void *policy, struct sim *sim) {
  struct state *state = policy;
  if (sim->in_flight >= sim->window) return NULL;
  bool is_second = state->queues[0].first == state->queues[0].last;
  struct queue *queue = &state->queues[is_second];
  if (queue->first == queue->last) return NULL;
  uint32_t number = queue->arrivals[queue->first];
  const struct arrival *arrival = &sim->arrivals->all[number];
  /* Only jobs take more than one operation, and they are in one queue. */
  uint64_t taken = arrival->bytes > MERGE_BYTES ? state->taken : 0;
  uint64_t rest = arrival->bytes - taken;
  uint32_t length = (uint32_t)(rest < MERGE_BYTES ? rest : MERGE_BYTES);
  if (arrival->bytes > MERGE_BYTES) state->taken = length == rest ? 0 : taken + length;
  if (length == rest) queue->first++;
  return sim_op(sim, number, arrival->offset + taken, length);
}

static void ended(void *policy, struct sim *sim, struct op *op) {
  (void)policy;
  (void)sim;
  (void)op;
}

static uint64_t next_time(void *policy, struct sim *sim) {
  (void)policy;
  (void)sim;
  return UINT64_MAX;
}

const struct policy policy_fifo = {.name = "fifo",
                                   .make = make_fifo,
                                   .arrive = arrive,
                                   .next = next,
                                   .ended = ended,
                                   .next_time = next_time,
                                   .destroy = destroy};

const struct policy policy_priority = {.name = "priority",
                                       .make = make_priority,
                                       .arrive = arrive,
                                       .next = next,
                                       .ended = ended,
                                       .next_time = next_time,
                                       .destroy = destroy};
