/* Admission: what would become of a dated job that came now. */
#include "internal.h"

static uint64_t time_for(const struct ps_sched *sched, uint64_t bytes) {
  double ns = (double)bytes * 1e9 / meter_left_over(&sched->meter);
  return (uint64_t)(ns + sched->meter.latency_ns);
}

void ps_sched_forecast(const struct ps_sched *sched, uint64_t now_ns, uint64_t bytes,
                       uint64_t deadline_ns, uint32_t priority,
                       struct ps_sched_forecast *forecast) {
  assert(sched != NULL && forecast != NULL && priority < PS_SCHED_PRIORITIES);
  uint64_t waiting = tree_sum(&sched->dated);
  uint64_t before = waiting + tree_sum_until(&sched->jobs, deadline_ns);
  uint64_t all = waiting + tree_sum(&sched->jobs) + sched->late_bytes;
  uint64_t soonest = now_ns + time_for(sched, before + bytes); /* by deadline */
  uint64_t in_turn = now_ns + time_for(sched, all + bytes);    /* by arrival */
  uint64_t ready = in_turn < deadline_ns ? in_turn : deadline_ns;
  forecast->ready_ns = soonest > ready ? soonest : ready;
  uint64_t none = now_ns + time_for(sched, before);
  double left_ns = deadline_ns > none ? (double)(deadline_ns - none) : 0;
  double fit = left_ns * meter_left_over(&sched->meter) / 1e9;
  forecast->bytes_in_time = fit < (double)bytes ? (uint64_t)fit : bytes;
}
