/* The index: extents by volume and number, and keeping counters and lists true to their masks. */
#include "keep.h"
#include "order.h"

uint32_t tier_bucket_of(const struct ps_tier *tier, uint32_t volume, uint64_t number) {
  uint64_t hash = number * 0x9E3779B97F4A7C15u + (uint64_t)volume * 0xD6E8FEB86659FD93u;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93u;
  return (uint32_t)(hash >> 32) & tier->bucket_mask;
}

uint32_t tier_find(const struct ps_tier *tier, uint32_t volume, uint64_t number) {
  uint32_t index = tier->buckets[tier_bucket_of(tier, volume, number)];
  while (index != NONE) {
    const struct extent *extent = &tier->extents[index];
    assert(extent->tracked);
    if (extent->number == number && extent->volume == volume) return index;
    index = extent->hash_next;
  }
  return NONE;
}

static uint32_t track(struct ps_tier *tier, uint32_t volume, uint64_t number) {
  uint32_t index = tier->extent_free;
  assert(volume < tier->config.volume_count);
  assert(tier_find(tier, volume, number) == NONE);
  /* Every tracked extent has a frame, or media work that holds a frame of it: they cannot run out,
   * for extent_count >= frame_count. */
  assert(index != NONE);
  struct extent *extent = &tier->extents[index];
  tier->extent_free = extent->hash_next;
  tier->extents_tracked++;
  uint32_t *bucket = &tier->buckets[tier_bucket_of(tier, volume, number)];
  *extent = (struct extent){.number = number,
                            .dirty_links = {NONE, NONE},
                            .place_links = {NONE, NONE},
                            .hash_next = *bucket,
                            .frame = NONE,
                            .fills = NONE,
                            .last_use = tier_ticks(tier->now_ns),
                            .volume = (uint16_t)volume,
                            .tracked = 1,
                            .write = NO_WRITE};
  *bucket = index;
  return index;
}

static void untrack(struct ps_tier *tier, uint32_t index) {
  struct extent *extent = &tier->extents[index];
  assert(extent->frame == NONE && extent->fills == NONE && extent->write == NO_WRITE);
  assert(extent->in_dirty == DIRTY_NONE && extent->place == PLACE_NONE && extent->counted == 0);
  assert(!extent->kept && !extent->prestaged && extent->unread == 0);
  uint32_t *link = &tier->buckets[tier_bucket_of(tier, extent->volume, extent->number)];
  while (*link != index) link = &tier->extents[*link].hash_next;
  *link = extent->hash_next;
  extent->tracked = 0;
  extent->hash_next = tier->extent_free;
  tier->extent_free = index;
  tier->extents_tracked--;
  tier_wake_ranges(tier, index, 0);
}

/* The extent's frame is the index's no longer. */
static void leave_frame(struct ps_tier *tier, uint32_t frame) {
  if (tier->frames[frame].references == 1) tier->frames_idle--;
  tier->frames[frame].extent = NONE;
  tier->frames_resident--;
  tier_unhold(tier, frame);
}

void tier_set_frame(struct ps_tier *tier, uint32_t index, uint32_t frame) {
  struct extent *extent = &tier->extents[index];
  uint32_t old = extent->frame;
  assert(frame == NONE || tier->frames[frame].extent == NONE);
  /* The unsynced list is in order of stamps, and a frame changes none. */
  if (extent->place != PLACE_UNSYNCED) tier_unplace(tier, index);
  if (frame == NONE) {
    tier_set_prestaged(tier, index, false);
    if (extent->kept) tier_end_keep(tier, index);
    extent->is_owed = 0;
    if (old != NONE) tier_discharge(tier, extent->tenant);
  } else {
    if (extent->kept) tier_move_keep(tier, index, frame);
    if (old == NONE) tier_charge(tier, extent->tenant);
  }
  assert(old == NONE || tier->frames[old].extent == index);
  if (old != NONE) leave_frame(tier, old);
  extent->frame = frame;
  extent->exposed = 0;
  if (frame == NONE) return;
  assert(tier->frames[frame].references > 0); /* the caller's reference becomes the index's */
  tier->frames[frame].extent = index;
  tier->frames_resident++;
  if (tier->frames[frame].references == 1) tier->frames_idle++;
}

uint32_t tier_bring_in(struct ps_tier *tier, uint32_t index, const struct span *span,
                       uint16_t tenant, uint32_t value_class, uint32_t frame) {
  assert(tenant < tier->config.tenant_count && value_class < CLASS_COUNT && frame != NONE);
  if (index == NONE) index = track(tier, span->volume, span->number);
  struct extent *extent = &tier->extents[index];
  assert(extent->frame == NONE && !extent->prestaged && !extent->kept);
  extent->tenant = tenant;
  extent->hinted = 0;
  extent->value_class = (uint16_t)(value_class & (CLASS_COUNT - 1));
  tier_set_frame(tier, index, frame);
  return index;
}

/* ---- the volume's lists of changed extents ---- */

static struct list *dirty_list(struct volume *volume, uint32_t where) {
  switch (where) {
    case DIRTY_AGED:
      return &volume->aged;
    case DIRTY_URGENT:
      return &volume->urgent;
    default:
      assert(where == DIRTY_FAILED);
      return &volume->failed;
  }
}

void tier_activate(struct ps_tier *tier, struct volume *volume) {
  if (volume->is_active) return;
  volume->is_active = true;
  tier_list_append(&tier->active, (uint32_t)(volume - tier->volumes));
}

/* Lists the extent, which has dirty units, or moves it to another list. All lists are ordered by
 * the oldest change. For `aged` that is its end unless a write failed; elsewhere, mostly. */
void tier_list_dirty(struct ps_tier *tier, uint32_t index, enum dirty_list where) {
  struct extent *extent = &tier->extents[index];
  struct volume *volume = volume_of(tier, extent);
  assert(where != DIRTY_NONE);
  if (extent->in_dirty != DIRTY_NONE) tier_list_remove(dirty_list(volume, extent->in_dirty), index);
  struct list *list = dirty_list(volume, where);
  uint32_t before = list->last;
  bool is_oldest =
      list->first != NONE && tier->extents[list->first].dirty_sequence >= extent->dirty_sequence;
  if (is_oldest) before = NONE;
  while (before != NONE && tier->extents[before].dirty_sequence > extent->dirty_sequence) {
    before = tier_list_previous(list, before);
  }
  tier_list_insert_after(list, index, before);
  extent->in_dirty = where & 3;
  tier_activate(tier, volume);
}

/* ---- places ---- */

/* NULL: it is in the order of eviction instead. */
static struct list *place_list(struct ps_tier *tier, const struct extent *extent) {
  switch (extent->place) {
    case PLACE_UNSYNCED:
      return &volume_of(tier, extent)->unsynced;
    case PLACE_EVICTABLE:
      return extent->kept ? &tier->kept_extents : NULL;
    default:
      assert(extent->place == PLACE_PROMISED);
      return &tier->promised;
  }
}

void tier_unplace(struct ps_tier *tier, uint32_t index) {
  struct extent *extent = &tier->extents[index];
  if (extent->place == PLACE_NONE) return;
  struct list *list = place_list(tier, extent);
  if (list == NULL) {
    tier_order_remove(tier, index);
  } else {
    tier_list_remove(list, index);
  }
  extent->place = PLACE_NONE;
}

static enum place wanted_place(const struct ps_tier *tier, const struct extent *extent) {
  if (extent->unsynced != 0) return PLACE_UNSYNCED;
  if (extent->frame == NONE || tier->frames[extent->frame].references > 1) return PLACE_NONE;
  if (extent->dirty != 0 || extent->write != NO_WRITE || extent->fills != NONE) return PLACE_NONE;
  return extent->promised ? PLACE_PROMISED : PLACE_EVICTABLE;
}

/* Was used before anything in the list. */
static bool is_coldest(const struct ps_tier *tier, const struct list *list,
                       const struct extent *extent) {
  if (list->last == NONE) return false;
  const struct extent *last = &tier->extents[list->last];
  uint32_t now = tier_ticks(tier->now_ns);
  return now - extent->last_use > now - last->last_use;
}

static void place(struct ps_tier *tier, uint32_t index, enum place wanted) {
  struct extent *extent = &tier->extents[index];
  assert(extent->place == PLACE_NONE && wanted != PLACE_NONE);
  extent->place = wanted & 3;
  struct list *list = place_list(tier, extent);
  if (list == NULL) {
    tier_order_add(tier, index);
    return;
  }
  if (wanted == PLACE_UNSYNCED) {
    struct volume *volume = volume_of(tier, extent);
    if (list->length == 0) volume->unsynced_since_ns = tier->now_ns;
    tier_activate(tier, volume);
  }
  /* The hot end of what is kept is its front; everything else is in order of arrival. */
  if (wanted == PLACE_EVICTABLE && !is_coldest(tier, list, extent)) {
    tier_list_prepend(list, index);
  } else {
    tier_list_append(list, index);
  }
}

/* ---- settling ---- */

static void count(struct ps_tier *tier, struct extent *extent) {
  uint16_t unclean = unclean_units(extent);
  struct volume *volume = volume_of(tier, extent);
  bool is_dirty = (extent->dirty | extent->flushing) != 0;
  if (is_dirty && !extent->counted_dirty) tier->frames_dirty++;
  if (!is_dirty && extent->counted_dirty) tier->frames_dirty--;
  extent->counted_dirty = is_dirty;
  if (unclean == extent->counted) return;
  volume->unflushed_units += unit_count(unclean);
  assert(volume->unflushed_units >= unit_count(extent->counted));
  volume->unflushed_units -= unit_count(extent->counted);
  if (extent->counted == 0) {
    tier->frames_unclean++;
    volume->unclean_frames++;
  } else if (unclean == 0) {
    assert(tier->frames_unclean > 0 && volume->unclean_frames > 0);
    tier->frames_unclean--;
    volume->unclean_frames--;
  }
  extent->counted = unclean;
}

void tier_settle(struct ps_tier *tier, uint32_t index) {
  struct extent *extent = &tier->extents[index];
  assert(extent->tracked);
  assert((unclean_units(extent) & ~extent->valid) == 0 && (extent->fill & extent->valid) == 0);
  count(tier, extent);
  if (extent->dirty == 0 && extent->in_dirty != DIRTY_NONE) {
    tier_list_remove(dirty_list(volume_of(tier, extent), extent->in_dirty), index);
    extent->in_dirty = DIRTY_NONE;
  }
  assert((extent->dirty != 0) == (extent->in_dirty != DIRTY_NONE));
  if (extent->valid == 0 && extent->fills == NONE && extent->frame != NONE) {
    tier_set_frame(tier, index, NONE);
  }
  enum place wanted = wanted_place(tier, extent);
  if (wanted != (enum place)extent->place) {
    tier_unplace(tier, index);
    if (wanted != PLACE_NONE) place(tier, index, wanted);
  }
  if (extent->frame == NONE && extent->fills == NONE && extent->write == NO_WRITE) {
    untrack(tier, index);
  }
}

void tier_forget_units(struct ps_tier *tier, uint32_t index, uint16_t units) {
  struct extent *extent = &tier->extents[index];
  uint16_t keep = (uint16_t)~units;
  tier_cancel_fills(tier, index, units);
  if (extent->frame != NONE && tier->frames[extent->frame].references > 1)
    extent->exposed |= extent->valid & units;
  tier_waste(tier, index, units);
  extent->valid &= keep;
  extent->dirty &= keep;
  extent->flushing &= keep;
  extent->unsynced &= keep;
  tier_wake_ranges(tier, index, 0);
  if (extent->valid == 0 && extent->fill == 0 && extent->frame != NONE) {
    tier_set_frame(tier, index, NONE);
  }
  tier_settle(tier, index);
}
