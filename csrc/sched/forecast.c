/* Admission: what would become of a dated job that came now. */
#include <math.h>

#include "internal.h"

/* So long counts as seen, with nothing in it; on a slow medium as long as it takes to move so much,
 * so that one job there is not taken for the first of very many. */
#define OVERTAKING_START_NS 1e8
#define OVERTAKING_START_BYTES 8388608.0
#define ROUNDS 3 /* of the search for a time that covers what will come until then */

/* ---- what comes ---- */

/* Which bucket keeps jobs that have to go by their deadline `slack_ns` after they came. */
static uint32_t bucket_of(uint64_t slack_ns) {
  uint64_t us = slack_ns / 1000 | 1;
  uint32_t bucket = 2 * (63 - (uint32_t)__builtin_clzll(us));
  if (bucket > 0 && (us >> (bucket / 2 - 1) & 1) != 0) bucket++; /* the upper half of an octave */
  return bucket < PS_SCHED_OVERTAKERS ? bucket : PS_SCHED_OVERTAKERS - 1;
}

static void fade(struct overtaking *overtaking, uint64_t now_ns) {
  if (overtaking->from_ns == 0) overtaking->from_ns = now_ns;
  if (now_ns - overtaking->from_ns < OVERTAKING_STEP_NS) return;
  double keep = exp(-(double)(now_ns - overtaking->from_ns) / OVERTAKING_MEMORY_NS);
  for (uint32_t i = 0; i < PS_SCHED_OVERTAKERS; i++) {
    overtaking->bytes[i] *= keep;
    overtaking->slack[i] *= keep;
  }
  overtaking->seen_ns = overtaking->seen_ns * keep + (double)(now_ns - overtaking->from_ns);
  overtaking->from_ns = now_ns;
}

void overtaking_note(struct overtaking *overtaking, uint64_t now_ns, uint64_t slack_ns,
                     uint64_t bytes) {
  assert(overtaking != NULL);
  fade(overtaking, now_ns);
  uint32_t bucket = bucket_of(slack_ns);
  if (bucket < PS_SCHED_OVERTAKERS - overtaking->used)
    overtaking->used = PS_SCHED_OVERTAKERS - bucket;
  overtaking->bytes[bucket] += (double)bytes;
  overtaking->slack[bucket] += (double)bytes * (double)slack_ns;
}

/* Bytes of jobs that will come within `time_ns` and have to go within it as well. */
static double overtaking_bytes(const struct overtaking *overtaking, double start_ns,
                               double time_ns) {
  double sum = 0; /* of bytes, each times how long it would come: this is done for every intent */
  for (uint32_t i = PS_SCHED_OVERTAKERS - overtaking->used; i < PS_SCHED_OVERTAKERS; i++) {
    double bytes = overtaking->bytes[i];
    if (bytes <= 0) continue;
    double until = time_ns * bytes - overtaking->slack[i];
    if (until <= 0) break;
    sum += until;
  }
  return sum / (overtaking->seen_ns + start_ns);
}

/* ---- what becomes of a job ---- */

static double time_for(const struct ps_sched *sched, double bytes) {
  return bytes * 1e9 / meter_promised(&sched->meter);
}

/* How long it takes in the order of arrival: what comes later overtakes when its time comes. Where
 * that is most of what the medium does, the search ends early: a small error of what is expected to
 * come would make a large one of the time. */
static double time_in_turn(const struct ps_sched *sched, double bytes) {
  double time_ns = time_for(sched, bytes);
  double start_ns = fmax(OVERTAKING_START_NS, time_for(sched, OVERTAKING_START_BYTES));
  for (uint32_t i = 0; i < ROUNDS; i++)
    time_ns = time_for(sched, bytes + overtaking_bytes(&sched->overtaking, start_ns, time_ns));
  return time_ns;
}

void ps_sched_forecast(const struct ps_sched *sched, uint64_t now_ns, uint64_t size_bytes,
                       uint64_t deadline_ns, uint32_t priority,
                       struct ps_sched_forecast *forecast) {
  assert(sched != NULL && forecast != NULL && priority < PS_SCHED_PRIORITIES);
  now_ns = sched_time(sched, now_ns);
  double latency_ns = sched->meter.latency_ns;
  double deadline_in_ns = deadline_ns > now_ns ? (double)(deadline_ns - now_ns) : 0;
  double items = (double)tree_sum(&sched->dated);
  double all = items + (double)(tree_sum(&sched->jobs) + sched->late_bytes);
  double jobs_before = (double)tree_sum_until(&sched->jobs, deadline_ns);
  double others_ns = (double)(tree_slack_after(&sched->jobs, deadline_ns) - (int64_t)now_ns);
  /* It goes by deadline when its own slack is gone, or that of one that is due after it, which all
   * that are due before have to leave time for. */
  double slack_gone_ns = fmin(deadline_in_ns, time_for(sched, jobs_before) + others_ns);
  double by_deadline_ns = slack_gone_ns - (double)jobs_tight_ns(sched);
  double turn_ns = time_in_turn(sched, all + (double)size_bytes);
  double soonest_ns = time_for(sched, items + jobs_before + (double)size_bytes);
  double ready_ns = fmax(soonest_ns, fmin(turn_ns, by_deadline_ns)) + latency_ns;
  forecast->ready_ns = now_ns + (uint64_t)ready_ns;
  /* It must not make those late that are due after it, either. */
  double left_ns = deadline_in_ns - latency_ns - time_for(sched, items + jobs_before);
  double fit = fmax(fmin(left_ns, others_ns), 0) / time_for(sched, 1);
  forecast->bytes_in_time = fit < (double)size_bytes ? (uint64_t)fit : size_bytes;
}

void ps_sched_prefetch(const struct ps_sched *sched, const uint64_t *deadlines_ns, uint32_t count) {
  assert(sched != NULL && deadlines_ns != NULL && count <= PS_SCHED_PREFETCHED);
  tree_prefetch(&sched->jobs, deadlines_ns, count);
}
