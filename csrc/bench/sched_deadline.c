/* The policy under test: csrc/sched, driven as a target drives it. Admission drops a job whose
 * bytes are not all expected by its deadline. */
#include <assert.h>
#include <stdlib.h>

#include "sched_sim.h"

struct sim_job {
  struct ps_sched_job job;
  uint64_t offset;
  uint32_t arrival;
};

struct state {
  struct ps_sched *sched;
  struct sim_job *jobs; /* one per arrival, used or not */
};

static void *make(struct sim *sim) {
  struct state *state = calloc(1, sizeof *state);
  if (state == NULL) abort();
  state->sched = ps_sched_new(&(struct ps_sched_config){
      .window = DEPTH, .merge_bytes = MERGE_BYTES, .starvation_ns = STARVATION_NS});
  state->jobs = calloc(sim->arrivals->count, sizeof *state->jobs);
  if (state->sched == NULL || state->jobs == NULL) abort();
  return state;
}

static void destroy(void *policy) {
  struct state *state = policy;
  ps_sched_free(state->sched);
  free(state->jobs);
  free(state);
}

static void arrive_job(struct state *state, struct sim *sim, uint32_t number) {
  const struct arrival *arrival = &sim->arrivals->all[number];
  struct outcome *outcome = &sim->outcomes[number];
  struct ps_sched_forecast forecast;
  if (arrival->kind == JOB) {
    ps_sched_forecast(state->sched, sim->now_ns, arrival->bytes, arrival->deadline_ns, 1,
                      &forecast);
    outcome->forecast_ns = forecast.ready_ns;
    if (forecast.bytes_in_time < arrival->bytes && !sim->admits_all) return;
  }
  outcome->is_admitted = true;
  struct sim_job *job = &state->jobs[number];
  *job = (struct sim_job){
      .offset = arrival->offset,
      .arrival = number,
      .job = {.deadline_ns = arrival->deadline_ns,
              .bytes = arrival->bytes,
              .value = 1,
              .priority = 1,
              .sched_class = arrival->kind == JOB ? PS_SCHED_DATED : PS_SCHED_SPECULATIVE}};
  ps_sched_add_job(state->sched, sim->now_ns, &job->job);
}

static void arrive(void *policy, struct sim *sim, uint32_t number) {
  struct state *state = policy;
  const struct arrival *arrival = &sim->arrivals->all[number];
  if (arrival->kind == JOB || arrival->kind == GUESS) {
    arrive_job(state, sim, number);
    return;
  }
  sim->outcomes[number].is_admitted = true;
  struct op *op = sim_op(sim, number, arrival->offset, (uint32_t)arrival->bytes);
  ps_sched_push(state->sched, sim->now_ns, &op->item);
}

static void start_piece(struct state *state, struct sim *sim, struct sim_job *job) {
  uint64_t bytes = job->job.bytes < MERGE_BYTES ? job->job.bytes : MERGE_BYTES;
  uint64_t offset = job->offset;
  job->offset += bytes;
  if (job->job.bytes > bytes) {
    job->job.bytes -= bytes;
    ps_sched_update_job(state->sched, sim->now_ns, &job->job);
  } else {
    ps_sched_remove_job(state->sched, &job->job);
  }
  for (uint64_t made = 0; made < bytes; made += EXTENT_BYTES) {
    struct op *op = sim_op(sim, job->arrival, offset + made, EXTENT_BYTES);
    ps_sched_push(state->sched, sim->now_ns, &op->item);
  }
}

static struct op *next(void *policy, struct sim *sim) {
  struct state *state = policy;
  for (;;) {
    struct ps_sched_item *item = ps_sched_pop(state->sched, sim->now_ns);
    if (item != NULL) return (struct op *)((char *)item - offsetof(struct op, item));
    struct ps_sched_job *job = ps_sched_next_job(state->sched, sim->now_ns);
    if (job == NULL) return NULL;
    start_piece(state, sim, (struct sim_job *)((char *)job - offsetof(struct sim_job, job)));
  }
}

static void ended(void *policy, struct sim *sim, struct op *op) {
  struct state *state = policy;
  ps_sched_done(state->sched, sim->now_ns, &op->item);
}

static uint64_t next_time(void *policy, struct sim *sim) {
  struct state *state = policy;
  return ps_sched_next_time(state->sched, sim->now_ns);
}

const struct policy policy_deadline = {.name = "deadline",
                                       .make = make,
                                       .arrive = arrive,
                                       .next = next,
                                       .ended = ended,
                                       .next_time = next_time,
                                       .destroy = destroy};
