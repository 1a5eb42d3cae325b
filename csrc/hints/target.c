/* What a record is about: a set, or the ranges that trail it. */
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
