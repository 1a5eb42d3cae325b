/* What the model hears: a record with all of its ranges, or nothing of it. */
#include "internal.h"

void hints_fact(struct ps_hints *hints, const struct ps_fact *fact) {
  assert(hints != NULL && fact != NULL);
  if (hints->ring != NULL) ps_ring_put(hints->ring, fact);
}

void hints_facts(struct ps_hints *hints, const struct ps_fact *head, const uint8_t *ranges,
                 uint32_t count, uint32_t block_shift) {
  assert(hints != NULL && head != NULL);
  if (hints->ring == NULL) return;
  if (!ps_ring_has_room(hints->ring, count + 1)) {
    ps_ring_lose(hints->ring, count + 1);
    return;
  }
  ps_ring_put(hints->ring, head);
  struct ps_fact fact = {.time_ns = head->time_ns,
                         .id = head->id,
                         .volume = head->volume,
                         .tenant = head->tenant,
                         .kind = PS_FACT_RANGE,
                         .queue = head->queue};
  for (uint32_t i = 0; i < count; i++) {
    struct pax_range range;
    memcpy(&range, ranges + i * sizeof range, sizeof range);
    fact.aux = i;
    fact.offset = range.slba << block_shift;
    fact.length = (uint64_t)range.nlb << block_shift;
    ps_ring_put(hints->ring, &fact);
  }
}
