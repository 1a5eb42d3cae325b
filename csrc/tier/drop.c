/* Dropping ranges, and writes that the caller does itself: a deallocation goes to the medium
 * directly, past the tier. */
#include "internal.h"

/* Forgets what the extent has of the units, but for those that a write has under way; true when
 * there are such. A fill under way is cancelled: it reads what nobody will see. */
static bool drop_extent(struct ps_tier *tier, uint32_t index, uint16_t units) {
  struct extent *extent = &tier->extents[index];
  assert(extent->tracked);
  uint16_t busy = extent->flushing & units;
  tier_forget_units(tier, index, (uint16_t)(units & ~busy));
  return busy != 0;
}

/* Units of the extent in bytes [offset, end) of its volume. */
static uint16_t units_within(const struct ps_tier *tier, uint32_t index, uint64_t offset,
                             uint64_t end) {
  const struct extent *extent = &tier->extents[index];
  uint64_t base = extent->number << tier->slot_shift, slot = tier->config.slot_size;
  if (base >= end || base + slot <= offset) return 0;
  uint64_t from = offset > base ? offset - base : 0;
  uint64_t to = end - base < slot ? end - base : slot;
  return tier_units(&tier->volumes[extent->volume], (uint32_t)from, (uint32_t)to);
}

/* Drops the range; returns an extent with a write under way in it, or NONE. */
static uint32_t drop_range(struct ps_tier *tier, uint32_t volume, uint64_t offset, uint64_t end) {
  uint64_t first = offset >> tier->slot_shift, count = ((end - 1) >> tier->slot_shift) - first + 1;
  bool scan = count >= tier->config.extent_count;
  uint32_t busy = NONE;
  if (scan) count = tier->config.extent_count;
  for (uint64_t i = 0; i < count; i++) {
    uint32_t index = scan ? (uint32_t)i : tier_find(tier, volume, first + i);
    if (index == NONE) continue;
    const struct extent *extent = &tier->extents[index];
    if (!extent->tracked || extent->volume != volume) continue;
    uint16_t units = units_within(tier, index, offset, end);
    if (units != 0 && drop_extent(tier, index, units)) busy = index;
  }
  return busy;
}

int ps_tier_drop(struct ps_tier *tier, uint32_t number, uint64_t offset, uint64_t length,
                 struct ps_tier_waiter *waiter) {
  assert(tier != NULL && waiter != NULL && length > 0);
  tier_enter(tier, 0, waiter);
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present)
    return tier_leave(tier, waiter, tier_fail(waiter, ENODEV));
  const struct volume *volume = &tier->volumes[number];
  assert(offset % volume->unit_size == 0 && offset + length <= volume->size);
  assert((offset + length) % volume->unit_size == 0 || offset + length == volume->size);
  /* How the write ended does not matter: its units are dropped either way. */
  (void)tier_told_error(waiter);
  uint32_t busy = drop_range(tier, number, offset, offset + length);
  tier_advance_flushes(tier, number);
  if (busy == NONE) return tier_leave(tier, waiter, PS_TIER_DONE);
  tier_wait(tier, waiter, WAIT_RANGE, busy);
  return tier_leave(tier, waiter, PS_TIER_WAIT);
}

void ps_tier_wrote(struct ps_tier *tier, uint64_t now_ns, uint32_t number) {
  assert(tier != NULL && number < tier->config.volume_count);
  struct volume *volume = &tier->volumes[number];
  if (!volume->is_present) return;
  tier_enter(tier, now_ns, NULL);
  volume->wrote_directly = true;
  volume->direct_stamp = (uint32_t)volume->sync_started;
}
