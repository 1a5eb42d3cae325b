/* What a record is about: a set, or the ranges that trail it. And RETAIN, which keeps that. */
#include "internal.h"

void hints_target_rewind(const struct ps_hints *hints, struct target *target) {
  assert(hints != NULL && target != NULL);
  if (target->set != NONE) {
    hints_cursor_start(hints_set(hints, target->set), &target->cursor);
  } else {
    target->cursor.left = target->count;
  }
}

bool hints_target_next(const struct ps_hints *hints, struct target *target, uint64_t *offset,
                       uint64_t *bytes) {
  assert(hints != NULL && target != NULL);
  struct cursor *cursor = &target->cursor;
  uint32_t shift = target->space.block_shift;
  if (cursor->left == 0) return false;
  if (target->set == NONE) {
    struct pax_range range;
    memcpy(&range, target->ranges + (target->count - cursor->left) * sizeof range, sizeof range);
    cursor->left--;
    *offset = range.slba << shift;
    *bytes = (uint64_t)range.nlb << shift;
    return true;
  }
  const struct range *range = hints_range(hints, cursor->at);
  *offset = range->offset;
  *bytes = (uint64_t)range->blocks << shift;
  hints_cursor_advance(hints, cursor, shift, *bytes);
  return true;
}

/* At its ranges one by one, and at their extents. */
static uint64_t looks_for(const struct ps_hints *hints, const struct target *target) {
  uint64_t ranges = target->count;
  uint64_t bytes = 0;
  if (target->set != NONE) {
    ranges = hints_set(hints, target->set)->range_count;
    bytes = hints_set(hints, target->set)->bytes;
  }
  for (uint32_t i = 0; target->set == NONE && i < ranges; i++) {
    struct pax_range range;
    memcpy(&range, target->ranges + i * sizeof range, sizeof range);
    bytes = hints_add(bytes, (uint64_t)range.nlb << target->space.block_shift);
  }
  uint64_t extents = hints_min(bytes, PS_HINTS_QUERY_BYTES) >> hints->slot_shift;
  return ranges + extents;
}

uint8_t hints_target_open(struct ps_hints *hints, uint64_t now_ns,
                          const struct ps_hints_scope *scope, uint64_t set_id, uint32_t nsid,
                          const uint8_t *ranges, uint32_t count, struct target *target) {
  assert(scope != NULL && target != NULL);
  *target = (struct target){.ranges = ranges, .count = count};
  uint8_t reason;
  if (set_id != 0) {
    target->set = hints_use_set(hints, now_ns, scope, set_id, &target->space, &reason);
    if (target->set == NONE) return reason;
  } else if (!hints_find_space(hints, scope, nsid, &target->space, ranges, count)) {
    return PAX_REASON_NAMESPACE;
  }
  if (!hints_look(hints, looks_for(hints, target))) return PAX_REASON_RATE;
  uint64_t offset;
  uint64_t bytes;
  hints_target_rewind(hints, target);
  while (hints_target_next(hints, target, &offset, &bytes)) {
    target->bytes = hints_add(target->bytes, bytes);
    uint64_t last = (offset + bytes - 1) >> hints->slot_shift;
    target->extents += last - (offset >> hints->slot_shift) + 1;
  }
  hints_target_rewind(hints, target);
  return PAX_REASON_NONE;
}

/* Extent by extent, for each is kept or not. */
static void keep_piece(struct ps_hints *hints, uint64_t now_ns, uint32_t volume, uint64_t offset,
                       uint64_t end, uint16_t tenant, uint64_t until_ns) {
  uint64_t slot = hints->config.slot_size;
  while (offset < end) {
    uint64_t next = hints_min(end, (offset & ~(slot - 1)) + slot);
    ps_tier_keep(hints->tier, now_ns, volume, offset, (uint32_t)(next - offset), tenant, 0,
                 until_ns);
    offset = next;
  }
}

/* Most of what is spoken of is not in the tier as a rule, which is seen for many extents at once.
 */
static void keep(struct ps_hints *hints, uint64_t now_ns, struct target *target, uint16_t tenant,
                 uint64_t until_ns) {
  uint32_t volume = target->space.volume;
  uint64_t piece = (uint64_t)hints->config.slot_size * KEEP_EXTENTS;
  uint64_t offset;
  uint64_t bytes;
  while (hints_target_next(hints, target, &offset, &bytes)) {
    uint64_t end = offset + bytes;
    while (offset < end) {
      uint64_t next = hints_min(end, (offset & ~(piece - 1)) + piece);
      uint64_t warm = 0;
      uint64_t coming = 0;
      ps_tier_residency(hints->tier, volume, offset, next - offset, &warm, &coming);
      if (warm > 0) keep_piece(hints, now_ns, volume, offset, next, tenant, until_ns);
      offset = next;
    }
  }
}

uint8_t hints_apply_retain(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *bytes) {
  assert(hints != NULL && scope != NULL && bytes != NULL);
  struct pax_retain record;
  struct target target;
  memcpy(&record, bytes, sizeof record);
  const uint8_t *ranges = bytes + sizeof record;
  uint8_t reason = hints_target_open(hints, now_ns, scope, record.set_id, record.nsid, ranges,
                                     record.range_count, &target);
  if (reason != PAX_REASON_NONE) return reason;
  if (target.bytes > PS_HINTS_QUERY_BYTES) return PAX_REASON_BUDGET;
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  if (!hints_take_extents(hints, tenant, now_ns, target.extents)) return PAX_REASON_RATE;
  keep(hints, now_ns, &target, scope->tenant, hints_expiry(hints, now_ns, record.duration_ms));
  struct ps_fact fact = {.time_ns = now_ns,
                         .offset = record.set_id,
                         .value = record.duration_ms,
                         .aux = record.range_count,
                         .volume = (uint16_t)target.space.volume,
                         .tenant = scope->tenant,
                         .kind = PS_FACT_RETAIN,
                         .queue = scope->queue};
  hints_facts(hints, &fact, ranges, record.range_count, target.space.block_shift);
  return PAX_REASON_NONE;
}
