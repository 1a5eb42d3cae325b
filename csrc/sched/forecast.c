/* Admission: what would become of a dated job that came now. */
#include "internal.h"

#include <math.h>

#define ROUNDS 4 /* of the search for a time that covers what will come until then */

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
  overtaking->bytes[bucket] += (double)bytes;
  overtaking->slack[bucket] += (double)bytes * (double)slack_ns;
}

/* Bytes of jobs that will come within `time_ns` and have to go by then. */
static double overtaking_bytes(const struct overtaking *overtaking, double time_ns) {
  double bytes = 0;
  double seen_ns = overtaking->seen_ns + 1e8;
  for (uint32_t i = 0; i < PS_SCHED_OVERTAKERS; i++) {
    if (overtaking->bytes[i] <= 0) continue;
    double slack_ns = overtaking->slack[i] / overtaking->bytes[i];
    if (slack_ns >= time_ns) break;
    bytes += overtaking->bytes[i] / seen_ns * (time_ns - slack_ns);
  }
  return bytes;
}

/* ---- what becomes of a job ---- */

/* How long it takes until `bytes` of dated work, and what overtakes it, are ready. */
static uint64_t time_for(const struct ps_sched *sched, uint64_t now_ns, double bytes,
                         bool is_overtaken) {
  double rate = meter_left_over(&sched->meter) / 1e9;
  double time_ns = bytes / rate;
  for (uint32_t i = 0; i < ROUNDS && is_overtaken; i++)
    time_ns = (bytes + overtaking_bytes(&sched->overtaking, time_ns)) / rate;
  return (uint64_t)(time_ns + sched->meter.latency_ns);
}

void ps_sched_forecast(const struct ps_sched *sched, uint64_t now_ns, uint64_t bytes,
                       uint64_t deadline_ns, uint32_t priority,
                       struct ps_sched_forecast *forecast) {
  assert(sched != NULL && forecast != NULL && priority < PS_SCHED_PRIORITIES);
  uint64_t waiting = tree_sum(&sched->dated);
  uint64_t before = waiting + tree_sum_until(&sched->jobs, deadline_ns);
  uint64_t all = waiting + tree_sum(&sched->jobs) + sched->late_bytes;
  /* By deadline, and in turn. */
  uint64_t soonest = now_ns + time_for(sched, now_ns, (double)(before + bytes), false);
  uint64_t in_turn = now_ns + time_for(sched, now_ns, (double)(all + bytes), true);
  uint64_t by_deadline = deadline_ns > TIGHT_NS ? deadline_ns - TIGHT_NS : 0;
  uint64_t ready = in_turn < by_deadline ? in_turn : by_deadline;
  forecast->ready_ns = soonest > ready ? soonest : ready;
  uint64_t none = now_ns + time_for(sched, now_ns, (double)before, false);
  double left_ns = deadline_ns > none ? (double)(deadline_ns - none) : 0;
  double fit = left_ns * meter_left_over(&sched->meter) / 1e9;
  forecast->bytes_in_time = fit < (double)bytes ? (uint64_t)fit : bytes;
}
