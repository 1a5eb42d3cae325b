/* Writes into the tier: publishing fresh frames, and zeros. */
#include "internal.h"

/* While there are several volumes, one whose medium refuses writes must not fill the whole dirty
 * share and so stop the others: a quarter is kept from each. */
static uint32_t volume_limit(const struct ps_tier *tier) {
  uint32_t limit = tier->config.dirty_limit;
  return tier->volumes_present > 1 ? limit - limit / 4 : limit;
}

bool tier_has_room(const struct ps_tier *tier, const struct volume *volume) {
  if (tier->frames_unclean + tier->dirty_granted >= tier->config.dirty_limit) return false;
  return volume == NULL || volume->unclean_frames < volume_limit(tier);
}

/* DONE when the span's extent may become (or is) unclean. Newcomers do not overtake: while there is
 * room in the tier, those still queued are kept by their own volume's share only. */
static int need_room(struct ps_tier *tier, const struct span *span, uint32_t index,
                     struct ps_tier_waiter *waiter) {
  const struct volume *volume = &tier->volumes[span->volume];
  if (index != NONE && tier->extents[index].counted != 0) return PS_TIER_DONE;
  if (waiter->state & GRANT_DIRTY) return PS_TIER_DONE;
  if (tier_has_room(tier, volume)) return PS_TIER_DONE;
  if (volume->error != 0) return tier_fail(waiter, volume->error);
  tier->stats.dirty_waits++;
  tier_wait(tier, waiter, WAIT_DIRTY, span->volume);
  return PS_TIER_WAIT;
}

/* What comes before any write: a good range, valid partial units, room below the dirty limit. */
static int prepare(struct ps_tier *tier, struct span *span, uint32_t volume, uint64_t offset,
                   uint32_t length, uint16_t tenant, struct ps_tier_waiter *waiter) {
  if (tier_told_error(waiter)) return PS_TIER_ERROR;
  int32_t error = tier_span(tier, volume, offset, length, span);
  if (error != 0) return tier_fail(waiter, error);
  uint16_t partial = (uint16_t)(span->touched & ~tier_whole_units(tier, span));
  const struct ps_tier_access access = {
      .deadline_ns = UINT64_MAX, .tenant = tenant, .urgency = PS_TIER_DEMAND};
  if (partial != 0 && !tier_need(tier, span, partial, &access, waiter)) return PS_TIER_WAIT;
  return need_room(tier, span, tier_find(tier, volume, span->number), waiter);
}

/* The span's units now hold a change that the medium does not have. */
static void mark_changed(struct ps_tier *tier, uint32_t index, const struct span *span) {
  struct extent *extent = &tier->extents[index];
  assert(extent->frame != NONE);
  tier_cancel_fills(tier, index, span->touched);
  if (extent->place != PLACE_UNSYNCED) tier_unplace(tier, index);
  tier_waste(tier, index, span->touched);
  tier_set_prestaged(tier, index, false);
  extent->valid |= span->touched;
  extent->promised = 0;
  extent->value_class = CLASS_WRITTEN;
  extent->last_use = tier_ticks(tier->now_ns);
  tier->sequence++;
  if (extent->dirty == 0) {
    extent->dirty_sequence = tier->sequence;
    extent->dirty_since = tier_ticks(tier->now_ns);
    tier_list_dirty(tier, index, DIRTY_AGED);
  }
  extent->dirty |= span->touched;
  tier_settle(tier, index);
}

/* Copies into `frame` what the extent has outside [span->start, span->end). */
static void merge_around(struct ps_tier *tier, const struct extent *extent, uint32_t frame,
                         const struct span *span) {
  uint32_t unit = volume_of(tier, extent)->unit_size;
  uint16_t rest = extent->valid;
  while (rest != 0) {
    uint16_t run = lowest_run(rest);
    uint32_t start = first_unit(run) * unit;
    uint32_t end = start + unit_count(run) * unit;
    tier_copy(tier, frame, extent->frame, start, end < span->start ? end : span->start);
    tier_copy(tier, frame, extent->frame, start > span->end ? start : span->end, end);
    rest = (uint16_t)(rest & ~run);
  }
}

/* The new frame (one reference, the index's from now on) takes the place of the old one, if any. */
static uint32_t swap_in(struct ps_tier *tier, uint32_t index, const struct span *span,
                        uint16_t tenant, uint32_t frame) {
  if (index == NONE || tier->extents[index].frame == NONE)
    return tier_bring_in(tier, index, span, tenant, CLASS_WRITTEN, frame);
  merge_around(tier, &tier->extents[index], frame, span);
  tier_set_frame(tier, index, frame);
  return index;
}

/* True when nobody but the index sees the resident frame, and copying the change into it moves
 * fewer bytes than copying the rest out of it. */
static bool better_in_place(const struct ps_tier *tier, uint32_t index, const struct span *span) {
  if (index == NONE) return false;
  const struct extent *extent = &tier->extents[index];
  const struct volume *volume = &tier->volumes[span->volume];
  if (extent->frame == NONE) return false;
  if (tier->frames[extent->frame].references > 1) return false;
  uint16_t rest = (uint16_t)(extent->valid & ~tier_whole_units(tier, span));
  uint32_t kept = unit_count(rest) * volume->unit_size;
  return span->end - span->start < kept;
}

int ps_tier_publish(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                    uint32_t length, uint16_t tenant, uint32_t frame,
                    struct ps_tier_waiter *waiter) {
  struct span span;
  assert(waiter != NULL && frame < tier->config.frame_count);
  assert(tier->frames[frame].references == 1 && tier->frames[frame].extent == NONE);
  tier_enter(tier, now_ns, waiter);
  int result = prepare(tier, &span, volume, offset, length, tenant, waiter);
  if (result != PS_TIER_DONE) return tier_leave(tier, waiter, result);
  uint32_t index = tier_find(tier, volume, span.number);
  tier_clear_tail(tier, volume, span.number, frame);
  if (better_in_place(tier, index, &span)) {
    tier->stats.publish_copies++;
    tier_copy(tier, tier->extents[index].frame, frame, span.start, span.end);
    tier_clear_tail(tier, volume, span.number, tier->extents[index].frame);
    mark_changed(tier, index, &span);
    tier_unhold(tier, frame);
    return tier_leave(tier, waiter, PS_TIER_DONE);
  }
  if (index == NONE || tier->extents[index].frame == NONE) {
    tier->stats.publish_adopts++;
  } else {
    tier->stats.publish_swaps++;
  }
  index = swap_in(tier, index, &span, tenant, frame);
  mark_changed(tier, index, &span);
  return tier_leave(tier, waiter, PS_TIER_DONE);
}

/* Partial units are there, and an unclean frame more is allowed. */
static bool may_overwrite(const struct ps_tier *tier, uint32_t index, const struct span *span) {
  if (!better_in_place(tier, index, span)) return false;
  const struct extent *extent = &tier->extents[index];
  uint16_t partial = (uint16_t)(span->touched & ~tier_whole_units(tier, span));
  if ((partial & ~extent->valid) != 0) return false;
  return extent->counted != 0 || tier_has_room(tier, &tier->volumes[span->volume]);
}

bool ps_tier_overwrite(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                       uint32_t length, const uint8_t *bytes) {
  struct span span;
  assert(tier != NULL && bytes != NULL && tier->config.frames != NULL);
  tier_enter(tier, now_ns, NULL);
  if (tier_span(tier, volume, offset, length, &span) != 0) return false;
  uint32_t index = tier_find(tier, volume, span.number);
  if (!may_overwrite(tier, index, &span)) return false;
  uint32_t frame = tier->extents[index].frame;
  memcpy(tier->config.frames + (size_t)frame * tier->config.slot_size + span.start, bytes, length);
  tier_clear_tail(tier, volume, span.number, frame);
  tier->stats.publish_copies++;
  mark_changed(tier, index, &span);
  tier_pump(tier);
  return true;
}

int ps_tier_zero(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                 uint32_t length, uint16_t tenant, struct ps_tier_waiter *waiter) {
  struct span span;
  assert(waiter != NULL);
  tier_enter(tier, now_ns, waiter);
  int result = prepare(tier, &span, volume, offset, length, tenant, waiter);
  if (result != PS_TIER_DONE) return tier_leave(tier, waiter, result);
  uint32_t index = tier_find(tier, volume, span.number);
  bool alone = index != NONE && tier->extents[index].frame != NONE &&
               tier->frames[tier->extents[index].frame].references == 1;
  if (alone) {
    tier_clear(tier, tier->extents[index].frame, span.start, span.end);
    tier_clear_tail(tier, volume, span.number, tier->extents[index].frame);
  } else {
    uint32_t frame = tier_get_frame(tier, waiter);
    if (frame == NONE) return tier_leave(tier, waiter, PS_TIER_WAIT);
    index = tier_find(tier, volume, span.number); /* an eviction may have made the room */
    tier_clear(tier, frame, span.start, span.end);
    tier_clear_tail(tier, volume, span.number, frame);
    index = swap_in(tier, index, &span, tenant, frame);
  }
  mark_changed(tier, index, &span);
  return tier_leave(tier, waiter, PS_TIER_DONE);
}
