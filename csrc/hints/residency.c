/* How much of something is warm, and when the rest of it will be. */
#include "internal.h"

/* Pending intents, ranges of each, and ranges of the query that are compared at most: what a query
 * says of intended bytes is exact for a set that was intended, and close for ranges. */
enum { INTENTS_MOST = 8, RANGES_MOST = 32 };

static uint64_t overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  uint64_t start = a > b ? a : b;
  uint64_t end = hints_min(a + a_bytes, b + b_bytes);
  return end > start ? end - start : 0;
}

/* Bytes of the target that the intent has not started yet. */
static uint64_t intended(const struct ps_hints *hints, struct target *target,
                         const struct intent *intent) {
  uint64_t left = intent->admitted_bytes - hints_min(intent->walked_bytes, intent->admitted_bytes);
  if (target->set != NONE && target->set == intent->set) return left;
  struct cursor cursor = intent->walk;
  uint32_t shift = hints_set(hints, intent->set)->block_shift;
  uint64_t found = 0;
  for (uint32_t i = 0; i < RANGES_MOST && cursor.left > 0 && left > 0; i++) {
    const struct range *range = hints_range(hints, cursor.at);
    uint64_t start = range->offset + cursor.done;
    uint64_t bytes = ((uint64_t)range->blocks << shift) - cursor.done;
    hints_cursor_advance(hints, &cursor, shift, bytes);
    bytes = hints_min(bytes, left);
    left -= bytes;
    uint64_t offset;
    uint64_t length;
    hints_target_rewind(hints, target);
    for (uint32_t j = 0; j < RANGES_MOST; j++) {
      if (!hints_target_next(hints, target, &offset, &length)) break;
      found = hints_add(found, overlap(start, bytes, offset, length));
    }
  }
  return found;
}

/* What the tenant has intended of the target, and when the latest of it is expected. */
static uint64_t all_intended(const struct ps_hints *hints, uint16_t tenant, struct target *target,
                             uint64_t *ready_ns) {
  uint32_t index = hints_tenant(hints, tenant)->pending.last;
  uint64_t found = 0;
  for (uint32_t i = 0; i < INTENTS_MOST && index != NONE; i++) {
    const struct intent *intent = hints_intent(hints, index);
    index = intent->tenant_links.previous;
    if (intent->set == NONE || intent->volume != target->space.volume) continue;
    uint64_t bytes = intended(hints, target, intent);
    found = hints_add(found, bytes);
    uint64_t expected_ns = intent->arrived_ns + intent->predicted_us * UINT64_C(1000);
    if (bytes > 0 && expected_ns > *ready_ns) *ready_ns = expected_ns;
  }
  return found;
}

static uint32_t until_us(uint64_t now_ns, uint64_t ready_ns) {
  if (ready_ns <= now_ns) return 0;
  return (uint32_t)hints_min((ready_ns - now_ns) / 1000, PAX_READY_NEVER);
}

static void look(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant, struct target *target,
                 struct pax_residency_answer *answer) {
  uint64_t offset;
  uint64_t bytes;
  while (hints_target_next(hints, target, &offset, &bytes)) {
    uint64_t warm;
    uint64_t coming;
    ps_tier_residency(hints->tier, target->space.volume, offset, bytes, &warm, &coming);
    answer->total_bytes += bytes;
    answer->warm_bytes += warm;
    answer->coming_bytes += coming;
  }
  if (answer->warm_bytes >= answer->total_bytes) return;
  uint64_t ready_ns = now_ns;
  if (answer->coming_bytes > 0) {
    struct ps_sched_forecast forecast;
    const struct ps_sched *sched = hints->volumes[target->space.volume].sched;
    ps_sched_forecast(sched, now_ns, answer->coming_bytes, UINT64_MAX, 0, &forecast);
    ready_ns = forecast.ready_ns;
  }
  uint64_t more = all_intended(hints, tenant, target, &ready_ns);
  uint64_t rest = answer->total_bytes - answer->warm_bytes;
  answer->coming_bytes = hints_min(rest, hints_add(answer->coming_bytes, more));
  answer->ready_us = answer->coming_bytes > 0 ? until_us(now_ns, ready_ns) : PAX_READY_NEVER;
}

void hints_residency(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     const uint8_t *bytes, struct pax_residency_answer *answer) {
  assert(hints != NULL && scope != NULL && bytes != NULL && answer != NULL);
  struct pax_residency record;
  struct target target;
  memcpy(&record, bytes, sizeof record);
  *answer = (struct pax_residency_answer){
      .type = PAX_TYPE_RESIDENCY_ANSWER, .size = sizeof *answer, .tag = record.tag};
  answer->reason = hints_target_open(hints, now_ns, scope, record.set_id, record.nsid,
                                     bytes + sizeof record, record.range_count, &target);
  if (answer->reason != PAX_REASON_NONE) return;
  if (target.bytes > PS_HINTS_QUERY_BYTES) {
    answer->reason = PAX_REASON_BUDGET;
  } else if (!hints_take_extents(hints, hints_tenant(hints, scope->tenant), now_ns,
                                 target.extents)) {
    answer->reason = PAX_REASON_RATE;
  } else {
    look(hints, now_ns, scope->tenant, &target, answer);
  }
}
