/* Frames: references, the free list, and eviction by the value tables. */
#include "../ring.h"
#include "keep.h"
#include "order.h"

static void free_frame(struct ps_tier *tier, uint32_t frame) {
  assert(tier->frames[frame].references == 0 && tier->frames[frame].extent == NONE);
  tier->frames[frame].next_free = tier->frame_free; /* last in, first out: likely still cached */
  tier->frame_free = frame;
  tier->frames_free++;
}

void tier_hold(struct ps_tier *tier, uint32_t frame) {
  assert(frame < tier->config.frame_count);
  struct frame *held = &tier->frames[frame];
  assert(held->references > 0 && held->references < UINT32_MAX);
  if (held->extent != NONE && held->references == 1) tier->frames_idle--;
  held->references++;
}

void tier_unhold(struct ps_tier *tier, uint32_t frame) {
  assert(frame < tier->config.frame_count);
  struct frame *held = &tier->frames[frame];
  assert(held->references > 0);
  held->references--;
  if (held->extent != NONE) {
    assert(held->references > 0);
    if (held->references == 1) tier->frames_idle++;
  } else if (held->references == 0) {
    free_frame(tier, frame);
  }
}

void ps_tier_reference(struct ps_tier *tier, uint32_t frame) {
  assert(tier != NULL && frame < tier->config.frame_count);
  uint32_t extent = tier->frames[frame].extent;
  tier_hold(tier, frame);
  if (extent != NONE) tier_settle(tier, extent);
}

void ps_tier_release(struct ps_tier *tier, uint64_t now_ns, uint32_t frame) {
  assert(tier != NULL && frame < tier->config.frame_count);
  tier_enter(tier, now_ns, NULL);
  uint32_t extent = tier->frames[frame].extent;
  tier_unhold(tier, frame);
  /* While others hold it nothing of the extent depends on how many they are. */
  if (extent != NONE && tier->frames[frame].references == 1) tier_settle(tier, extent);
  tier_pump(tier);
}

/* ---- eviction ---- */

void tier_expire_promises(struct ps_tier *tier) {
  uint32_t now = tier_ticks(tier->now_ns);
  uint32_t index;
  while ((index = tier->promised.first) != NONE) {
    struct extent *extent = &tier->extents[index];
    if (now - extent->last_use < PROMISE_TICKS) return;
    extent->promised = 0;
    tier_settle(tier, index);
  }
}

/* One of the coldest of those that a tenant keeps beyond its share; NONE: none of these is. */
static uint32_t kept_beyond_share(const struct ps_tier *tier) {
  const struct list *kept = &tier->kept_extents;
  uint32_t index = kept->last;
  for (uint32_t looks = 0; index != NONE && looks < HUNT_LENGTH; looks++) {
    uint16_t keeper = tier->frames[tier->extents[index].frame].keeper;
    if (tier->tenants[keeper].stats.hint_frames > tier_share(tier, keeper)) return index;
    index = tier_list_previous(kept, index);
  }
  return NONE;
}

/* What is kept goes last of all; but a keep holds as far as its tenant's share goes, and does not
 * cost another tenant anything of its own. */
static uint32_t victim(const struct ps_tier *tier) {
  uint32_t best = tier_order_least(tier);
  uint32_t coldest_kept = tier->kept_extents.last;
  if (coldest_kept == NONE) return best;
  if (best != NONE) {
    uint16_t tenant = tier->extents[best].tenant;
    if (tier->tenants[tenant].stats.frames > tier_share(tier, tenant)) return best;
  }
  uint32_t beyond = kept_beyond_share(tier);
  if (beyond != NONE) return beyond;
  return best != NONE ? best : coldest_kept;
}

uint32_t tier_take_free(struct ps_tier *tier) {
  uint32_t frame = tier->frame_free;
  if (frame == NONE) return NONE;
  assert(tier->frames_free > 0);
  tier->frame_free = tier->frames[frame].next_free;
  tier->frames_free--;
  tier->frames[frame].references = 1;
  return frame;
}

/* The model hears of it, before nothing is left to tell of. */
static void tell_evicted(struct ps_tier *tier, const struct extent *extent) {
  struct ps_fact fact = {
      .time_ns = tier->now_ns,
      .offset = extent->number << tier->slot_shift,
      .length = extent_bytes(tier, &tier->volumes[extent->volume], extent->number),
      .value = tier_age_ns(tier, extent),
      .aux = extent->kept ? (uint32_t)CLASS_KEPT : extent->value_class,
      .volume = extent->volume,
      .tenant = extent->tenant,
      .kind = PS_FACT_EVICTED,
      .flags = extent->prestaged ? PS_FACT_UNREAD : 0};
  (void)ps_ring_put(tier->config.ring, &fact);
}

uint32_t tier_evict(struct ps_tier *tier, uint32_t index) {
  assert(tier->extents[index].place == PLACE_EVICTABLE);
  assert(unclean_units(&tier->extents[index]) == 0);
  if (tier->config.ring != NULL) tell_evicted(tier, &tier->extents[index]);
  tier->stats.evictions++;
  tier_settle_hint(tier, index, false);
  tier_forget_units(tier, index, UINT16_MAX);
  return tier_take_free(tier);
}

uint32_t tier_take_frame(struct ps_tier *tier) {
  uint32_t frame = tier_take_free(tier);
  if (frame != NONE) return frame;
  tier_expire_promises(tier);
  tier_order_age(tier);
  uint32_t index = victim(tier);
  return index == NONE ? NONE : tier_evict(tier, index);
}

uint32_t tier_get_frame(struct ps_tier *tier, struct ps_tier_waiter *waiter) {
  if (waiter != NULL && (waiter->state & GRANT_FRAME)) {
    waiter->state &= ~(uint32_t)GRANT_FRAME;
    return waiter->volume;
  }
  if (tier->frame_queue.first == NULL) {
    uint32_t frame = tier_take_frame(tier);
    if (frame != NONE) return frame;
  }
  if (waiter != NULL) {
    tier->stats.frame_waits++;
    tier_wait(tier, waiter, WAIT_FRAME, 0);
  }
  return NONE;
}

int ps_tier_fresh(struct ps_tier *tier, uint64_t now_ns, struct ps_tier_waiter *waiter,
                  uint32_t *frame) {
  assert(waiter != NULL && frame != NULL);
  tier_enter(tier, now_ns, waiter);
  *frame = tier_get_frame(tier, waiter);
  return tier_leave(tier, waiter, *frame == NONE ? PS_TIER_WAIT : PS_TIER_DONE);
}

/* ---- payload ---- */

void tier_copy(struct ps_tier *tier, uint32_t to, uint32_t from, uint32_t start, uint32_t end) {
  size_t slot = tier->config.slot_size;
  assert(to != from && end <= slot);
  if (tier->config.frames == NULL || start >= end) return;
  memcpy(tier->config.frames + to * slot + start, tier->config.frames + from * slot + start,
         end - start);
}

void tier_clear_tail(struct ps_tier *tier, uint32_t volume, uint64_t number, uint32_t frame) {
  uint32_t unit = tier->volumes[volume].unit_size;
  uint32_t bytes = extent_bytes(tier, &tier->volumes[volume], number);
  tier_clear(tier, frame, bytes, (bytes + unit - 1) & ~(unit - 1));
}

void tier_clear(struct ps_tier *tier, uint32_t frame, uint32_t start, uint32_t end) {
  size_t slot = tier->config.slot_size;
  assert(end <= slot);
  if (tier->config.frames == NULL || start >= end) return;
  memset(tier->config.frames + frame * slot + start, 0, end - start);
}
