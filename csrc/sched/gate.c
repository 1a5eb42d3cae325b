/* When work that nobody waits for may start. A demand read that comes waits for the transfers that
 * were started before it, so there are never more of those than keep the medium busy: the next one
 * starts when the last one is about to end. */
#include <math.h>

#include "internal.h"

#define LEAST_QUANTUM 16384
#define LEAD 0.4        /* mean deviations of the latency before the last transfer ends ... */
#define LEAST_LEAD 0.05 /* ... or so many latencies */
#define URGENT_LEAD 1.0 /* the same when a deadline is near: latencies */
#define QUANTUM 0.5     /* latencies that one operation may take to move */
#define IN_FLIGHT 3.0   /* latencies' worth of bytes under way at most */

uint32_t gate_quantum(const struct ps_sched *sched) {
  const struct meter *meter = &sched->meter;
  double bytes = meter->bandwidth * meter->latency_ns * QUANTUM / 1e9;
  double most = fmax(sched->config.merge_bytes, LEAST_QUANTUM);
  return (uint32_t)fmin(fmax(bytes, LEAST_QUANTUM), most);
}

/* One place in the window is kept for a demand read. */
static bool has_place(const struct ps_sched *sched) {
  return sched->paced_ops == 0 || sched->paced_ops + 1 < meter_window(&sched->meter);
}

static bool has_room(const struct ps_sched *sched) {
  const struct meter *meter = &sched->meter;
  double most = meter->bandwidth * meter->latency_ns * IN_FLIGHT / 1e9;
  return has_place(sched) && (double)sched->paced_bytes < most + 2.0 * gate_quantum(sched);
}

static uint64_t minus(uint64_t time_ns, double ns) {
  return (double)time_ns > ns ? time_ns - (uint64_t)ns : 0;
}

uint64_t gate_time(const struct ps_sched *sched, uint64_t now_ns, enum gate gate) {
  assert(sched != NULL);
  const struct meter *meter = &sched->meter;
  if (!has_room(sched)) return UINT64_MAX;
  if (gate == GATE_URGENT) return minus(meter->free_ns, URGENT_LEAD * meter->latency_ns);
  uint64_t rest_ns = sched->in_flight > 0 ? meter_rest_until(meter, now_ns, false) : 0;
  if (rest_ns > now_ns) return rest_ns;
  if (gate == GATE_IDLE) return meter->free_ns;
  double lead_ns = fmax(LEAD * meter->spread_ns, LEAST_LEAD * meter->latency_ns);
  return minus(meter->free_ns, lead_ns + meter->late_ns);
}

bool gate_is_open(const struct ps_sched *sched, uint64_t now_ns, enum gate gate) {
  return gate_time(sched, now_ns, gate) <= now_ns;
}

bool gate_ask(struct ps_sched *sched, uint64_t now_ns, enum gate gate) {
  uint64_t time_ns = gate_time(sched, now_ns, gate);
  if (!has_place(sched)) sched->meter.was_full = true;
  if (time_ns > now_ns) {
    sched->wanted_ns = time_ns < UINT64_MAX ? time_ns : 0;
    return false;
  }
  if (sched->wanted_ns != 0 && now_ns >= sched->wanted_ns)
    meter_late(&sched->meter, (double)(now_ns - sched->wanted_ns));
  sched->wanted_ns = 0;
  return true;
}
