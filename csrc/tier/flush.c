/* Flushes: first the writes of what is dirty now, then one sync that begins after them.
 *
 * Changes and flushes share one sequence. A flush of the whole volume waits until no change up to
 * its own number is unwritten; a flush of a range looks at its extents one after another. Then it
 * waits for a sync by number: several flushes share one, and a sync under way counts only when it
 * began after the last write that the flush is for.
 */
#include "internal.h"

/* The oldest change of the volume that is not written yet. */
static uint64_t oldest_unwritten(const struct ps_tier *tier, uint32_t number) {
  const struct volume *volume = &tier->volumes[number];
  uint64_t oldest = UINT64_MAX;
  uint32_t firsts[] = {volume->aged.first, volume->urgent.first, volume->failed.first};
  for (uint32_t i = 0; i < 3; i++) {
    if (firsts[i] != NONE) deadline_min(&oldest, tier->extents[firsts[i]].dirty_sequence);
  }
  for (uint32_t i = 0; i < WRITE_OPS; i++) {
    const struct op *op = &tier->ops[write_base(tier) + i];
    if (op->state == OP_FREE || op->volume != number) continue;
    if (tier->extents[op->extent].flushing != 0) deadline_min(&oldest, op->sequence);
  }
  return oldest;
}

/* The sync that covers writes whose newest stamp is `stamp`. */
static uint64_t covering_sync(const struct volume *volume, uint32_t stamp) {
  bool covered = volume->sync_under_way && stamp != (uint32_t)volume->sync_started;
  return covered ? volume->sync_started : volume->sync_started + 1;
}

static void await_sync(struct ps_tier *tier, uint32_t number, uint64_t sync,
                       struct ps_tier_waiter *waiter) {
  struct volume *volume = &tier->volumes[number];
  waiter->sequence = sync;
  waiter->state |= FLUSH_WRITTEN;
  if (volume->sync_wanted < sync) volume->sync_wanted = sync;
  tier_activate(tier, volume);
  tier_wait(tier, waiter, WAIT_SYNC, number);
}

/* The sync that covers what the caller wrote past the tier, 0: there is nothing. */
static uint64_t sync_of_direct(const struct volume *volume) {
  return volume->wrote_directly ? covering_sync(volume, volume->direct_stamp) : 0;
}

/* The sync that a flush of the whole volume needs once its writes have ended, 0: none. */
static uint64_t sync_of_whole(const struct ps_tier *tier, const struct volume *volume,
                              const struct ps_tier_waiter *waiter) {
  if ((waiter->state & FLUSH_SYNC) == 0) return 0;
  uint64_t sync = sync_of_direct(volume);
  if (volume->unsynced.length == 0) return sync;
  uint64_t covering = covering_sync(volume, tier->extents[volume->unsynced.last].sync_stamp);
  return covering > sync ? covering : sync;
}

void tier_advance_flushes(struct ps_tier *tier, uint32_t number) {
  struct volume *volume = &tier->volumes[number];
  if (volume->flushes.first == NULL) return;
  uint64_t oldest = oldest_unwritten(tier, number);
  struct ps_tier_waiter *waiter;
  while ((waiter = volume->flushes.first) != NULL && waiter->sequence < oldest) {
    uint64_t sync = sync_of_whole(tier, volume, waiter);
    if (sync == 0) {
      tier_wake(tier, waiter, TOLD_DONE);
    } else {
      tier_enter(tier, 0, waiter); /* out of the queue */
      await_sync(tier, number, sync, waiter);
    }
  }
}

void tier_wake_ranges(struct ps_tier *tier, uint32_t index, int32_t error) {
  struct ps_tier_waiter *waiter = tier->ranges[index % RANGE_BUCKETS].first;
  while (waiter != NULL) {
    struct ps_tier_waiter *next = waiter->next;
    if (waiter->volume == index) {
      if (error != 0) waiter->error = error;
      tier_wake(tier, waiter, error != 0 ? TOLD_ERROR : 0);
    }
    waiter = next;
  }
}

/* What failed before is tried again at once, for a flush is there to hear how it ends. */
static void retry_failed(struct ps_tier *tier, struct volume *volume) {
  while (volume->failed.first != NONE) {
    tier_list_dirty(tier, volume->failed.first, DIRTY_URGENT);
  }
}

static int flush_whole(struct ps_tier *tier, uint32_t number, bool is_first,
                       struct ps_tier_waiter *waiter) {
  struct volume *volume = &tier->volumes[number];
  if (is_first) retry_failed(tier, volume);
  if (oldest_unwritten(tier, number) > waiter->sequence) {
    uint64_t sync = sync_of_whole(tier, volume, waiter);
    if (sync == 0) return PS_TIER_DONE;
    await_sync(tier, number, sync, waiter);
    return PS_TIER_WAIT;
  }
  if (volume->wanted_sequence < waiter->sequence) volume->wanted_sequence = waiter->sequence;
  tier_wait(tier, waiter, WAIT_FLUSH, number);
  return PS_TIER_WAIT;
}

/* Makes what the flush waits for urgent; true when the extent has such units. */
static bool is_unwritten(struct ps_tier *tier, uint32_t index, uint16_t units, uint64_t sequence) {
  struct extent *extent = &tier->extents[index];
  bool is_dirty = (extent->dirty & units) != 0 && extent->dirty_sequence <= sequence;
  if (is_dirty && extent->in_dirty != DIRTY_URGENT) tier_list_dirty(tier, index, DIRTY_URGENT);
  if (is_dirty) return true;
  return (extent->flushing & units) != 0 && write_of(tier, extent)->sequence <= sequence;
}

static int flush_range(struct ps_tier *tier, uint32_t number, uint64_t offset, uint64_t end,
                       struct ps_tier_waiter *waiter) {
  const struct volume *volume = &tier->volumes[number];
  uint32_t slot = tier->config.slot_size;
  uint32_t waits_for = NONE;
  uint64_t sync = sync_of_direct(volume);
  for (uint64_t at = offset; at < end; at = (at & ~(uint64_t)(slot - 1)) + slot) {
    uint32_t index = tier_find(tier, number, at >> tier->slot_shift);
    if (index == NONE) continue;
    uint32_t from = (uint32_t)(at & (slot - 1));
    uint32_t to = end - at < slot - from ? from + (uint32_t)(end - at) : slot;
    uint16_t units = tier_units(volume, from, to);
    if (is_unwritten(tier, index, units, waiter->sequence)) waits_for = index;
    const struct extent *extent = &tier->extents[index];
    if ((extent->unsynced & units) == 0) continue;
    uint64_t covering = covering_sync(volume, extent->sync_stamp);
    if (sync < covering) sync = covering;
  }
  if (waits_for != NONE) {
    tier_wait(tier, waiter, WAIT_RANGE, waits_for);
    return PS_TIER_WAIT;
  }
  if ((waiter->state & FLUSH_SYNC) == 0 || sync == 0) return PS_TIER_DONE;
  await_sync(tier, number, sync, waiter);
  return PS_TIER_WAIT;
}

static int flush(struct ps_tier *tier, uint32_t number, uint64_t offset, uint64_t length,
                 struct ps_tier_waiter *waiter) {
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present) {
    return tier_fail(waiter, ENODEV);
  }
  const struct volume *volume = &tier->volumes[number];
  if (waiter->state & FLUSH_WRITTEN) {
    if (volume->sync_completed >= waiter->sequence) return PS_TIER_DONE;
    await_sync(tier, number, waiter->sequence, waiter);
    return PS_TIER_WAIT;
  }
  bool is_first = waiter->sequence == 0;
  if (is_first) waiter->sequence = ++tier->sequence;
  if (length == 0 || offset >= volume->size) return PS_TIER_DONE;
  uint64_t end = length < volume->size - offset ? offset + length : volume->size;
  uint64_t extents = ((end - 1) >> tier->slot_shift) - (offset >> tier->slot_shift) + 1;
  bool whole = (offset == 0 && end == volume->size) || extents > RANGE_EXTENTS;
  if (whole) return flush_whole(tier, number, is_first, waiter);
  return flush_range(tier, number, offset, end, waiter);
}

int ps_tier_flush(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                  uint64_t length, bool sync, struct ps_tier_waiter *waiter) {
  assert(waiter != NULL);
  tier_enter(tier, now_ns, waiter);
  if (sync) waiter->state |= FLUSH_SYNC;
  int result;
  if (tier_told_error(waiter)) {
    result = PS_TIER_ERROR;
  } else if (waiter->state & TOLD_DONE) {
    result = PS_TIER_DONE;
  } else {
    result = flush(tier, volume, offset, length, waiter);
  }
  if (result != PS_TIER_WAIT) waiter->sequence = 0;
  return tier_leave(tier, waiter, result);
}
