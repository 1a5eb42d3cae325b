/* RETAIN records: what is in the tier is kept, a part of it at a time. */
#include "internal.h"

struct part {
  uint64_t now_ns, until_ns;
  uint32_t volume;
  uint16_t tenant;
  uint64_t skip_bytes; /* behind this part */
  uint64_t done_bytes; /* up to its end */
  uint32_t items;      /* extents that were kept, and looks at many */
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
 */
static void keep_range(struct ps_hints *hints, struct part *part, uint64_t offset, uint64_t end) {
  uint64_t piece = (uint64_t)hints->config.slot_size * KEEP_EXTENTS;
  while (offset < end && !is_over(hints, part)) {
    uint64_t next = hints_min(end, (offset & ~(piece - 1)) + piece);
    uint64_t warm = 0;
    uint64_t coming = 0;
    ps_tier_residency(hints->tier, part->volume, offset, next - offset, &warm, &coming);
    if (warm > 0) keep_piece(hints, part, offset, next);
    part->items++;
    part->done_bytes += next - offset;
    offset = next;
  }
}

/* True when that was the last part. */
static bool keep_some(struct ps_hints *hints, struct target *target, struct part *part) {
  uint64_t offset;
  uint64_t bytes;
  while (hints_target_next(hints, target, &offset, &bytes)) {
    uint64_t skipped = hints_min(part->skip_bytes, bytes);
    part->skip_bytes -= skipped;
    keep_range(hints, part, offset + skipped, offset + bytes);
    if (is_over(hints, part)) break;
  }
  return part->done_bytes >= target->bytes;
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

/* Its ranges count among what the page looks at once, for the first part. A set that has become
 * another between two parts is kept as it is now. */
static uint8_t open_target(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const struct pax_retain *record,
                           const uint8_t *ranges, bool is_first, struct target *target) {
  uint64_t looks = hints->looks;
  if (!is_first) hints->looks = 0;
  uint8_t reason = hints_target_open(hints, now_ns, scope, record->set_id, record->nsid, ranges,
                                     record->range_count, target);
  if (!is_first) hints->looks = looks;
  if (reason != PAX_REASON_NONE) return reason;
  if (target->bytes > PS_HINTS_QUERY_BYTES) return PAX_REASON_BUDGET;
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  bool is_paid = !is_first || hints_take_extents(hints, tenant, now_ns, target->extents);
  return is_paid ? PAX_REASON_NONE : PAX_REASON_RATE;
}

uint8_t hints_apply_retain(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *bytes,
                           struct ps_hints_progress *progress) {
  assert(hints != NULL && scope != NULL && bytes != NULL && progress != NULL);
  struct pax_retain record;
  struct target target;
  memcpy(&record, bytes, sizeof record);
  uint64_t done_bytes = progress->goes_on ? progress->mark : 0;
  uint8_t reason = open_target(hints, now_ns, scope, &record, bytes + sizeof record,
                               !progress->goes_on, &target);
  progress->goes_on = false;
  if (reason != PAX_REASON_NONE) return reason;
  struct part part = {.now_ns = now_ns,
                      .until_ns = hints_expiry(hints, now_ns, record.duration_ms),
                      .volume = target.space.volume,
                      .tenant = scope->tenant,
                      .skip_bytes = done_bytes,
                      .done_bytes = done_bytes};
  progress->goes_on = !keep_some(hints, &target, &part);
  progress->mark = part.done_bytes;
  if (!progress->goes_on) tell(hints, now_ns, scope, &record, &target);
  return PAX_REASON_NONE;
}
