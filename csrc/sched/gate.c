/* When work that nobody waits for may start. A demand read that comes waits for the transfers that
 * were started before it, so there are never more of those than keep the medium busy: the next one
 * starts when the last one is about to end. */
#include <math.h>

#include "internal.h"

#define LEAST_QUANTUM 16384
#define LEAD 0.25        /* latencies of transfers that may be under way when the next one starts */
#define URGENT_LEAD 1.0  /* the same when a deadline is near */
#define QUANTUM 0.5      /* latencies that one operation may take to move */
#define IN_FLIGHT 3.0    /* latencies' worth of bytes under way at most */

uint32_t gate_quantum(const struct ps_sched *sched) {
  const struct meter *meter = &sched->meter;
  double bytes = meter->bandwidth * meter->base_ns * QUANTUM / 1e9;
  double most = fmax(sched->config.merge_bytes, LEAST_QUANTUM);
  return (uint32_t)fmin(fmax(bytes, LEAST_QUANTUM), most);
}

static bool has_room(const struct ps_sched *sched) {
  const struct meter *meter = &sched->meter;
  double most = meter->bandwidth * meter->latency_ns * IN_FLIGHT / 1e9;
  uint32_t window = meter_window(meter);
  /* One place is kept for a demand read. */
  if (sched->paced_ops > 0 && sched->paced_ops + 1 >= window) return false;
  return (double)sched->paced_bytes < most + 2.0 * gate_quantum(sched);
}

static uint64_t lead_ns(const struct ps_sched *sched, bool is_urgent) {
  return (uint64_t)(sched->meter.base_ns * (is_urgent ? URGENT_LEAD : LEAD));
}

bool gate_is_open(const struct ps_sched *sched, uint64_t now_ns, bool is_urgent) {
  assert(sched != NULL);
  if (meter_backlog_ns(&sched->meter, now_ns) > lead_ns(sched, is_urgent)) return false;
  return has_room(sched);
}

bool gate_is_idle(const struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL);
  return meter_backlog_ns(&sched->meter, now_ns) == 0 && has_room(sched);
}

uint64_t gate_next_time(const struct ps_sched *sched, uint64_t now_ns, bool is_idle) {
  assert(sched != NULL);
  if (!has_room(sched)) return UINT64_MAX;
  uint64_t lead = is_idle ? 0 : lead_ns(sched, false);
  uint64_t time = sched->meter.free_ns > lead ? sched->meter.free_ns - lead : 0;
  return time > now_ns ? time : now_ns;
}
