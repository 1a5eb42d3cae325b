/* Clearing ranges on the medium past the tier, which the caller does itself (holes).
 *
 * The range is fenced first: media writes of it that are under way end, and none begins. What the
 * tier has of it stays until the caller says how clearing went, so that a failure, or a caller that
 * goes away, loses nothing, and so that flushes wait: what was changed before is still unwritten
 * for them, until zeros have taken its place.
 */
#include "internal.h"

/* Units of the extent in the fence of its volume. */
static uint16_t fenced_units(const struct ps_tier *tier, const struct extent *extent) {
  const struct volume *volume = &tier->volumes[extent->volume];
  uint64_t base = extent->number << tier->slot_shift, slot = tier->config.slot_size;
  if (!tier_is_fenced(tier, extent)) return 0;
  uint64_t from = volume->fence_offset > base ? volume->fence_offset - base : 0;
  uint64_t to = volume->fence_end - base < slot ? volume->fence_end - base : slot;
  return tier_units(volume, (uint32_t)from, (uint32_t)to);
}

/* A write of these units is under way, or of bytes that they were before they were dropped. */
static bool is_written(struct ps_tier *tier, const struct extent *extent, uint16_t units) {
  if (extent->write == NO_WRITE) return false;
  const struct op *op = write_of(tier, extent);
  uint16_t issued = op->state == OP_ISSUED ? op->units : 0;
  return ((extent->flushing | issued) & units) != 0;
}

/* The caller could not clear the units, or not all: what no flush has covered is kept, to be
 * written again, for the medium may have zeros over it; what was durable is looked up there. */
static void give_back(struct ps_tier *tier, uint32_t index, uint16_t units) {
  struct extent *extent = &tier->extents[index];
  units = (uint16_t)(units & ~extent->flushing); /* then the range was never handed over */
  uint16_t again = extent->unsynced & units;
  extent->unsynced = (uint16_t)(extent->unsynced & ~again);
  tier_make_failed(tier, index, again, 0);
  tier_forget_units(tier, index, (uint16_t)(units & ~extent->dirty));
}

/* Goes through the extents of the fence. At its begin: returns the first of which a write is under
 * way, or NONE. At its end: forgets or gives back their units. */
static uint32_t each_fenced(struct ps_tier *tier, uint32_t number, bool is_end, bool is_cleared) {
  const struct volume *volume = &tier->volumes[number];
  uint64_t first = volume->fence_offset >> tier->slot_shift;
  uint64_t count = ((volume->fence_end - 1) >> tier->slot_shift) - first + 1;
  bool scan = count >= tier->config.extent_count;
  if (scan) count = tier->config.extent_count;
  for (uint64_t i = 0; i < count; i++) {
    uint32_t index = scan ? (uint32_t)i : tier_find(tier, number, first + i);
    if (index == NONE) continue;
    const struct extent *extent = &tier->extents[index];
    if (!extent->tracked || extent->volume != number) continue;
    uint16_t units = fenced_units(tier, extent);
    if (units == 0) continue;
    if (!is_end && is_written(tier, extent, units)) return index;
    if (is_end && is_cleared) tier_forget_units(tier, index, units);
    if (is_end && !is_cleared) give_back(tier, index, units);
  }
  return NONE;
}

int ps_tier_clear_begin(struct ps_tier *tier, uint64_t now_ns, uint32_t number, uint64_t offset,
                        uint64_t length, struct ps_tier_waiter *waiter) {
  assert(tier != NULL && waiter != NULL && length > 0);
  tier_enter(tier, now_ns, waiter);
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present)
    return tier_leave(tier, waiter, tier_fail(waiter, ENODEV));
  struct volume *volume = &tier->volumes[number];
  /* How a write ended that was waited for does not matter here. */
  (void)tier_told_error(waiter);
  if (volume->fence_end == 0) {
    uint64_t end = offset + length;
    bool is_whole = end == volume->size || end % volume->unit_size == 0;
    if (offset > volume->size || length > volume->size - offset)
      return tier_leave(tier, waiter, tier_fail(waiter, ERANGE));
    if (offset % volume->unit_size != 0 || !is_whole)
      return tier_leave(tier, waiter, tier_fail(waiter, EINVAL));
    volume->fence_offset = offset;
    volume->fence_end = end;
  }
  assert(volume->fence_offset == offset && volume->fence_end == offset + length);
  uint32_t busy = each_fenced(tier, number, false, false);
  if (busy == NONE) return tier_leave(tier, waiter, PS_TIER_DONE);
  tier_wait(tier, waiter, WAIT_RANGE, busy);
  return tier_leave(tier, waiter, PS_TIER_WAIT);
}

void ps_tier_clear_end(struct ps_tier *tier, uint64_t now_ns, uint32_t number, bool is_cleared) {
  assert(tier != NULL && number < tier->config.volume_count);
  struct volume *volume = &tier->volumes[number];
  tier_enter(tier, now_ns, NULL);
  if (!volume->is_present || volume->fence_end == 0) return;
  (void)each_fenced(tier, number, true, is_cleared);
  volume->fence_offset = 0;
  volume->fence_end = 0;
  volume->wrote_directly = true;
  volume->direct_stamp = (uint32_t)volume->sync_started;
  tier_activate(tier, volume);
  tier_advance_flushes(tier, number);
  tier_pump(tier);
}
