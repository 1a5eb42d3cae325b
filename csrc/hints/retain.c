/* RETAIN records: what is in the tier is kept, a part of it at a time. */
#include "internal.h"

struct part {
  uint64_t now_ns, until_ns;
  uint32_t volume;
  uint16_t tenant;
  uint64_t done;  /* bytes of the range that it is in */
  uint32_t items; /* extents that were kept, and looks at many */
};

static bool is_over(const struct ps_hints *hints, const struct part *part) {
  return part->items >= hints->config.part_items;
}

/* Extent by extent, for each is kept or not. */
static void keep_piece(struct ps_hints *hints, struct part *part, uint64_t offset, uint64_t end) {
  uint64_t slot = hints->config.slot_size;
  while (offset < end) {
    uint64_t next = hints_min(end, (offset & ~(slot - 1)) + slot);
    ps_tier_keep(hints->tier, part->now_ns, part->volume, offset, (uint32_t)(next - offset),
                 part->tenant, 0, part->until_ns);
    part->items++;
    offset = next;
  }
}

/* Most of what is spoken of is not in the tier as a rule, which is seen for many extents at once.
 * Returns how far it came. */
static uint64_t keep_range(struct ps_hints *hints, struct part *part, uint64_t offset,
                           uint64_t end) {
  uint64_t piece = (uint64_t)hints->config.slot_size * KEEP_EXTENTS;
  while (offset < end && !is_over(hints, part)) {
    uint64_t next = hints_min(end, (offset & ~(piece - 1)) + piece);
    uint64_t warm = 0;
    uint64_t coming = 0;
    ps_tier_residency(hints->tier, part->volume, offset, next - offset, &warm, &coming);
    if (warm > 0) keep_piece(hints, part, offset, next);
    part->items++;
    offset = next;
  }
  return offset;
}

/* True when that was the last part; else the cursor is where the next one begins. */
static bool keep_some(struct ps_hints *hints, struct target *target, struct part *part) {
  uint64_t offset;
  uint64_t bytes;
  while (!is_over(hints, part)) {
    struct cursor before = target->cursor;
    if (!hints_target_next(hints, target, &offset, &bytes)) return true;
    uint64_t until = keep_range(hints, part, offset + part->done, offset + bytes);
    bool is_whole = until == offset + bytes;
    part->done = is_whole ? 0 : until - offset;
    if (!is_whole) target->cursor = before;
  }
  return target->cursor.left == 0;
}

static void tell(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                 const struct pax_retain *record, const struct target *target) {
  struct ps_fact fact = {.time_ns = now_ns,
                         .offset = record->set_id,
                         .value = record->duration_ms,
                         .aux = record->range_count,
                         .volume = (uint16_t)target->space.volume,
                         .tenant = scope->tenant,
                         .kind = PS_FACT_RETAIN,
                         .queue = scope->queue};
  hints_facts(hints, &fact, target->ranges, record->range_count, target->space.block_shift);
}

static uint8_t begin(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     const struct pax_retain *record, const uint8_t *ranges,
                     struct target *target) {
  uint8_t reason = hints_target_open(hints, now_ns, scope, record->set_id, record->nsid, ranges,
                                     record->range_count, target);
  if (reason != PAX_REASON_NONE) return reason;
  if (target->bytes > PS_HINTS_QUERY_BYTES) return PAX_REASON_BUDGET;
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  bool is_paid = hints_take_extents(hints, tenant, now_ns, target->extents);
  return is_paid ? PAX_REASON_NONE : PAX_REASON_RATE;
}

static uint64_t mark_of(const struct ps_hints *hints, const struct target *target) {
  if (target->set == NONE) return 0;
  return (uint64_t)target->set << 32 | hints_set(hints, target->set)->stamp;
}

/* False: what it is about has gone, or become another. */
static bool go_on(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                  const struct pax_retain *record, const uint8_t *ranges,
                  const struct ps_hints_progress *progress, struct target *target) {
  uint8_t reason;
  *target = (struct target){.ranges = ranges, .count = record->range_count};
  if (record->set_id == 0) {
    if (!hints_find_space(hints, scope, record->nsid, &target->space, ranges, target->count))
      return false;
  } else {
    target->set = hints_use_set(hints, now_ns, scope, record->set_id, &target->space, &reason);
    if (target->set == NONE || mark_of(hints, target) != progress->mark) return false;
  }
  target->cursor.at = (uint32_t)(progress->place >> 32);
  target->cursor.left = (uint32_t)progress->place;
  return true;
}

uint8_t hints_apply_retain(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *bytes,
                           struct ps_hints_progress *progress) {
  assert(hints != NULL && scope != NULL && bytes != NULL && progress != NULL);
  struct pax_retain record;
  struct target target;
  memcpy(&record, bytes, sizeof record);
  const uint8_t *ranges = bytes + sizeof record;
  bool goes_on = progress->goes_on;
  progress->goes_on = false;
  if (goes_on) {
    if (!go_on(hints, now_ns, scope, &record, ranges, progress, &target)) return PAX_REASON_NONE;
  } else {
    uint8_t reason = begin(hints, now_ns, scope, &record, ranges, &target);
    if (reason != PAX_REASON_NONE) return reason;
    tell(hints, now_ns, scope, &record, &target);
  }
  struct part part = {.now_ns = now_ns,
                      .until_ns = hints_expiry(hints, now_ns, record.duration_ms),
                      .volume = target.space.volume,
                      .tenant = scope->tenant,
                      .done = goes_on ? progress->done : 0};
  progress->goes_on = !keep_some(hints, &target, &part);
  progress->mark = mark_of(hints, &target);
  progress->place = (uint64_t)target.cursor.at << 32 | target.cursor.left;
  progress->done = part.done;
  return PAX_REASON_NONE;
}
