/* All invariants of the tier, for tests: slow, and independent of the code that keeps them. */
#include "keep.h"
#include "order.h"

static bool list_is_sound(const struct list *list) {
  uint32_t length = 0;
  uint32_t previous = NONE;
  for (uint32_t i = list->first; i != NONE; i = tier_list_next(list, i)) {
    if (tier_list_previous(list, i) != previous || ++length > list->length) return false;
    previous = i;
  }
  return list->last == previous && length == list->length;
}

static bool queue_is_sound(const struct queue *queue, uint32_t state) {
  uint32_t length = 0;
  const struct ps_tier_waiter *previous = NULL;
  for (const struct ps_tier_waiter *w = queue->first; w != NULL; w = w->next) {
    if (w->previous != previous || (w->state & WAIT_QUEUE) != state) return false;
    if (++length > queue->length) return false;
    previous = w;
  }
  return queue->last == previous && length == queue->length;
}

/* 1x: the index. */
static int check_index(const struct ps_tier *tier) {
  uint32_t reached = 0, free = 0, tracked = 0;
  for (uint32_t b = 0; b <= tier->bucket_mask; b++) {
    for (uint32_t i = tier->buckets[b]; i != NONE; i = tier->extents[i].hash_next) {
      if (++reached > tier->extents_tracked) return 10;
      if (!tier->extents[i].tracked) return 11;
      if (tier_find(tier, tier->extents[i].volume, tier->extents[i].number) != i) return 12;
    }
  }
  for (uint32_t i = tier->extent_free; i != NONE; i = tier->extents[i].hash_next) {
    if (++free > tier->config.extent_count || tier->extents[i].tracked) return 13;
  }
  for (uint32_t i = 0; i < tier->config.extent_count; i++) tracked += tier->extents[i].tracked;
  if (reached != tier->extents_tracked || tracked != reached) return 14;
  return free + tracked == tier->config.extent_count ? 0 : 15;
}

/* The union of the live units of the extent's fills; UINT32_MAX when they overlap. */
static uint32_t live_units(const struct ps_tier *tier, uint32_t index) {
  uint32_t live = 0, frame_units = 0;
  const struct extent *extent = &tier->extents[index];
  for (uint32_t i = extent->fills; i != NONE; i = tier->ops[i].next) {
    const struct op *op = &tier->ops[i];
    if (op->kind != PS_TIER_READ || op->state == OP_FREE || op->extent != index) return UINT32_MAX;
    if ((op->live & ~op->units) != 0 || (op->live & live) != 0) return UINT32_MAX;
    live |= op->live;
    if (op->frame != extent->frame) continue;
    if (op->units & frame_units) return UINT32_MAX; /* two reads into the same bytes */
    frame_units |= op->units;
  }
  return live;
}

/* 2x: masks. */
static int check_masks(const struct ps_tier *tier, uint32_t index) {
  const struct extent *extent = &tier->extents[index];
  const struct volume *volume = &tier->volumes[extent->volume];
  uint16_t has = tier_units(volume, 0, extent_bytes(tier, volume, extent->number));
  if (!volume->is_present) return 20;
  if (((extent->valid | extent->fill) & ~has) != 0) return 21;
  if ((unclean_units(extent) & ~extent->valid) != 0) return 22;
  if ((extent->fill & extent->valid) != 0) return 23;
  if (extent->fill != live_units(tier, index)) return 24;
  if (extent->counted != unclean_units(extent)) return 25;
  if (extent->frame == NONE && (extent->valid | extent->fill) != 0) return 26;
  if (extent->frame == NONE && extent->fills == NONE && extent->write == NO_WRITE) return 27;
  if (extent->frame != NONE && extent->valid == 0 && extent->fills == NONE) return 28;
  return (extent->unread & ~extent->valid) == 0 ? 0 : 29;
}

/* 3x: places and the write under way. */
static int check_state(const struct ps_tier *tier, uint32_t index) {
  const struct extent *extent = &tier->extents[index];
  bool busy = extent->dirty != 0 || extent->fills != NONE || extent->write != NO_WRITE;
  if ((extent->dirty != 0) != (extent->in_dirty != DIRTY_NONE)) return 30;
  if ((extent->unsynced != 0) != (extent->place == PLACE_UNSYNCED)) return 31;
  if (extent->frame != NONE && tier->frames[extent->frame].extent != index) return 32;
  if (extent->unsynced == 0) {
    bool can_go = extent->frame != NONE && !busy && tier->frames[extent->frame].references == 1;
    if (can_go != (extent->place != PLACE_NONE)) return 33;
    if (can_go && extent->promised != (extent->place == PLACE_PROMISED)) return 34;
  }
  if (extent->write == NO_WRITE) return extent->flushing == 0 ? 0 : 35;
  const struct op *op = &tier->ops[write_base(tier) + extent->write];
  if (op->kind != PS_TIER_WRITE || op->state == OP_FREE || op->extent != index) return 36;
  return op->volume == extent->volume ? 0 : 37;
}

/* 4x: frames. Counts the references that media work and the index hold. */
static int check_frames(const struct ps_tier *tier) {
  uint32_t free = 0, unused = 0, resident = 0, idle = 0;
  for (uint32_t i = tier->frame_free; i != NONE; i = tier->frames[i].next_free) {
    if (++free > tier->frames_free || tier->frames[i].references != 0) return 40;
  }
  for (uint32_t i = 0; i < tier->config.frame_count; i++) {
    const struct frame *frame = &tier->frames[i];
    unused += frame->references == 0;
    if (frame->extent == NONE) continue;
    const struct extent *extent = &tier->extents[frame->extent];
    if (frame->references == 0 || !extent->tracked || extent->frame != i) return 41;
    resident++;
    idle += frame->references == 1;
  }
  if (free != tier->frames_free || unused != free) return 42;
  return resident == tier->frames_resident && idle == tier->frames_idle ? 0 : 43;
}

/* 5x: operations hold their frames. */
static int check_ops(const struct ps_tier *tier) {
  uint32_t writes = 0;
  for (uint32_t i = 0; i < tier->op_count; i++) {
    const struct op *op = &tier->ops[i];
    if (op->state == OP_FREE) {
      if (op->waiters.first != NULL) return 50;
      continue;
    }
    if (!queue_is_sound(&op->waiters, WAIT_FILL)) return 51;
    writes += op->kind == PS_TIER_WRITE;
    if (op->kind == PS_TIER_SYNC) continue;
    if (!tier->extents[op->extent].tracked) return 52;
    if (op->kind == PS_TIER_WRITE && op->state == OP_PENDING) continue;
    const struct frame *frame = &tier->frames[op->frame];
    if (frame->references < (frame->extent == NONE ? 1u : 2u)) return 53;
  }
  return writes == tier->writes_in_use ? 0 : 54;
}

static bool is_ordered(const struct ps_tier *tier, const struct list *list, uint32_t in_dirty) {
  uint64_t sequence = 0;
  for (uint32_t i = list->first; i != NONE; i = tier_list_next(list, i)) {
    if (tier->extents[i].in_dirty != in_dirty) return false;
    if (tier->extents[i].dirty_sequence < sequence) return false;
    sequence = tier->extents[i].dirty_sequence;
  }
  return true;
}

static bool stamps_are_ordered(const struct ps_tier *tier, const struct list *list) {
  uint32_t first = list->first;
  if (first == NONE) return true;
  uint32_t stamp = tier->extents[first].sync_stamp;
  for (uint32_t i = first; i != NONE; i = tier_list_next(list, i)) {
    if ((int32_t)(tier->extents[i].sync_stamp - stamp) < 0) return false;
    stamp = tier->extents[i].sync_stamp;
  }
  return true;
}

/* 6x: volumes. */
static int check_volume(const struct ps_tier *tier, uint32_t number) {
  const struct volume *volume = &tier->volumes[number];
  uint32_t unclean = 0, dirty = 0, ops = 0;
  uint64_t units = 0;
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    const struct extent *extent = &tier->extents[i];
    if (!extent->tracked || extent->volume != number) continue;
    unclean += unclean_units(extent) != 0;
    dirty += extent->dirty != 0;
    units += unit_count(unclean_units(extent));
  }
  if (unclean != volume->unclean_frames || units != volume->unflushed_units) return 60;
  if (dirty != volume->aged.length + volume->urgent.length + volume->failed.length) return 61;
  if (!list_is_sound(&volume->aged) || !list_is_sound(&volume->urgent)) return 62;
  if (!list_is_sound(&volume->failed) || !list_is_sound(&volume->unsynced)) return 63;
  if (!is_ordered(tier, &volume->aged, DIRTY_AGED)) return 64;
  if (!is_ordered(tier, &volume->urgent, DIRTY_URGENT)) return 65;
  if (!is_ordered(tier, &volume->failed, DIRTY_FAILED)) return 66;
  if (!stamps_are_ordered(tier, &volume->unsynced)) return 67;
  if (!queue_is_sound(&volume->flushes, WAIT_FLUSH)) return 68;
  if (!queue_is_sound(&volume->syncs, WAIT_SYNC)) return 69;
  for (uint32_t i = 0; i < tier->op_count; i++) {
    ops += tier->ops[i].state != OP_FREE && tier->ops[i].volume == number;
  }
  return ops == volume->ops ? 0 : 70;
}

/* 8x: what the tier has as a whole. */
static int check_totals(const struct ps_tier *tier) {
  uint32_t unclean = 0, dirty = 0, placed = tier->promised.length, places = 0;
  const struct list *kept = &tier->kept_extents;
  if (!list_is_sound(kept)) return 80;
  for (uint32_t i = kept->first; i != NONE; i = tier_list_next(kept, i), placed++) {
    if (!tier->extents[i].kept || tier->extents[i].place != PLACE_EVICTABLE) return 79;
  }
  placed += tier_order_length(tier); /* of runs with a rank: so no other has any */
  if (!list_is_sound(&tier->promised) || !list_is_sound(&tier->active)) return 81;
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    const struct extent *extent = &tier->extents[i];
    if (!extent->tracked) continue;
    unclean += unclean_units(extent) != 0;
    dirty += (extent->dirty | extent->flushing) != 0;
    places += extent->place == PLACE_EVICTABLE || extent->place == PLACE_PROMISED;
  }
  if (unclean != tier->frames_unclean || dirty != tier->frames_dirty) return 82;
  if (unclean + tier->dirty_granted > tier->config.dirty_limit) return 89;
  if (places != placed || tier->credits > tier->budget) return 83;
  if (!queue_is_sound(&tier->frame_queue, WAIT_FRAME)) return 84;
  if (!queue_is_sound(&tier->dirty_queue, WAIT_DIRTY)) return 85;
  if (!queue_is_sound(&tier->credit_queue, WAIT_CREDIT)) return 86;
  if (!queue_is_sound(&tier->woken, WAIT_WOKEN)) return 87;
  for (uint32_t i = 0; i < RANGE_BUCKETS; i++) {
    if (!queue_is_sound(&tier->ranges[i], WAIT_RANGE)) return 88;
  }
  return 0;
}

/* 9x: pending fills are where their urgency says; of those that became more urgent after they were
 * handed out there is news. */
static int check_fills(const struct ps_tier *tier) {
  const struct list *lists[] = {&tier->demand_fills, NULL, &tier->speculative_fills};
  uint32_t pending[] = {0, 0, 0}, promoted = 0;
  if (!list_is_sound(lists[PS_TIER_DEMAND])) return 90;
  if (!list_is_sound(lists[PS_TIER_SPECULATIVE]) || !list_is_sound(&tier->promotions)) return 90;
  if (!tier_heap_is_sound(&tier->dated_fills)) return 91;
  for (uint32_t i = 0; i < tier->fill_count; i++) {
    const struct op *op = &tier->ops[i];
    if (op->state == OP_FREE) continue;
    if (op->urgency > PS_TIER_SPECULATIVE) return 92;
    if (op->urgency != PS_TIER_DATED && op->deadline_ns != UINT64_MAX) return 92;
    if (op->is_promoted && op->state != OP_ISSUED) return 93;
    pending[op->urgency] += op->state == OP_PENDING;
    promoted += op->is_promoted;
    bool is_dated = op->state == OP_PENDING && op->urgency == PS_TIER_DATED;
    if (is_dated && tier_heap_entry(&tier->dated_fills, i)->key != op->deadline_ns) return 94;
  }
  if (promoted != tier->promotions.length) return 93;
  if (pending[PS_TIER_DATED] != tier->dated_fills.length) return 95;
  for (uint32_t i = 0; i < 3; i++) {
    if (lists[i] != NULL && lists[i]->length != pending[i]) return 96;
  }
  return 0;
}

/* 13x: whose keeps are whose, and those that are to end. */
static int check_owners(const struct ps_tier *tier) {
  uint32_t owned = 0, frames = 0, over = 0;
  for (uint32_t i = 0; i < tier->config.frame_count; i++) {
    const struct keep *keep = &tier->kept[i];
    uint32_t index = tier->frames[i].extent;
    bool is_kept = index != NONE && tier->extents[index].kept;
    if (!is_kept && (keep->owner != NONE || keep->retained_ns != 0)) return 130;
    if (!is_kept) continue;
    uint64_t until_ns = tier_heap_entry(&tier->keeps, i)->key;
    if (keep->retained_ns > until_ns) return 131;
    if (keep->owner == NONE && keep->retained_ns != until_ns) return 132;
    owned += keep->owner != NONE;
  }
  for (uint32_t i = 0; i < tier->owners_used; i++) {
    const struct owner *owner = &tier->owners[i];
    if (owner->frames.length > 0 && tier->kept[owner->frames.first].owner != i) return 133;
    frames += owner->frames.length;
    over += owner->frames.length > 0 && owner->is_over;
  }
  if (owned != frames || over != tier->over.length) return 134;
  return over > 0 && !tier->has_expired_keeps ? 135 : 0;
}

/* 10x: keeps, none of which is over, unless there were too many of them for one call to end. */
static int check_keeps(const struct ps_tier *tier) {
  uint32_t kept = 0;
  if (!tier_heap_is_sound(&tier->keeps)) return 100;
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    const struct extent *extent = &tier->extents[i];
    if (!extent->tracked || !extent->kept) continue;
    if (extent->frame == NONE) return 101;
    if (tier_heap_entry(&tier->keeps, extent->frame)->item != extent->frame) return 102;
    if (tier->frames[extent->frame].keeper >= tier->config.tenant_count) return 103;
    kept++;
  }
  if (kept != tier->keeps.length) return 104;
  bool is_over = kept > 0 && tier->keeps.entries[0].key <= tier->now_ns;
  return is_over && !tier->has_expired_keeps ? 105 : 0;
}

/* 11x: what is counted for a tenant. */
static int check_tenant(const struct ps_tier *tier, uint32_t tenant) {
  uint32_t frames = 0, hint_frames = 0;
  uint64_t unread = 0;
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    const struct extent *extent = &tier->extents[i];
    if (!extent->tracked) continue;
    bool is_prestaged = tier_is_hinted_for(extent, (uint16_t)tenant);
    bool is_kept = extent->kept && tier->frames[extent->frame].keeper == tenant;
    bool is_own = extent->value_class != CLASS_HYDRATED && extent->value_class < OWN_CLASSES;
    if (extent->prestaged && is_own) return 110;
    if (extent->prestaged && extent->frame == NONE) return 111;
    if (extent->is_owed && (extent->frame == NONE || is_of_model(extent))) return 118;
    hint_frames += is_prestaged || is_kept;
    if (extent->tenant != tenant) continue;
    frames += extent->frame != NONE;
    if (!is_of_model(extent))
      unread += (uint64_t)unit_count(extent->unread) << tier->volumes[extent->volume].unit_shift;
  }
  const struct ps_tier_tenant *stats = &tier->tenants[tenant].stats;
  if (stats->frames != frames) return 112;
  if (stats->hint_frames != hint_frames) return 113;
  return stats->wasted_bytes + unread <= stats->hydrated_bytes ? 0 : 114;
}

/* 11x too: what the model answers for. */
static int check_model(const struct ps_tier *tier) {
  uint32_t frames = 0;
  uint64_t unread = 0;
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    const struct extent *extent = &tier->extents[i];
    if (!extent->tracked || !is_of_model(extent)) continue;
    frames += extent->prestaged;
    unread += (uint64_t)unit_count(extent->unread) << tier->volumes[extent->volume].unit_shift;
  }
  const struct ps_tier_tenant *stats = &tier->model.stats;
  if (stats->frames != 0) return 115;
  if (stats->hint_frames != frames) return 116;
  return stats->wasted_bytes + unread <= stats->hydrated_bytes ? 0 : 117;
}

/* 12x: of all tenants together, and the model. */
static int check_tenants(const struct ps_tier *tier) {
  struct ps_tier_tenant sum = tier->model.stats;
  uint32_t holders = 0;
  for (uint32_t i = 0; i < tier->config.tenant_count; i++) {
    const struct ps_tier_tenant *stats = &tier->tenants[i].stats;
    holders += stats->frames > 0;
    sum.frames += stats->frames;
    sum.timely_hits += stats->timely_hits;
    sum.late_hits += stats->late_hits;
    sum.hydrated_bytes += stats->hydrated_bytes;
    sum.wasted_bytes += stats->wasted_bytes;
  }
  if (holders != tier->holders || sum.frames != tier->frames_resident) return 120;
  if (sum.timely_hits != tier->stats.timely_hits) return 121;
  if (sum.late_hits != tier->stats.late_hits) return 122;
  if (sum.hydrated_bytes != tier->stats.hydrated_bytes) return 123;
  return sum.wasted_bytes == tier->stats.wasted_bytes ? 0 : 124;
}

int ps_tier_check(const struct ps_tier *tier) {
  assert(tier != NULL);
  int failed = check_index(tier);
  for (uint32_t i = 0; failed == 0 && i < tier->config.extent_count; i++) {
    if (!tier->extents[i].tracked) continue;
    failed = check_masks(tier, i);
    if (failed == 0) failed = check_state(tier, i);
  }
  if (failed == 0) failed = check_frames(tier);
  if (failed == 0) failed = check_ops(tier);
  for (uint32_t i = 0; failed == 0 && i < tier->config.volume_count; i++) {
    if (tier->volumes[i].is_present) failed = check_volume(tier, i);
  }
  if (failed == 0) failed = check_totals(tier);
  if (failed == 0) failed = tier_check_order(tier);
  if (failed == 0) failed = check_fills(tier);
  if (failed == 0) failed = check_keeps(tier);
  if (failed == 0) failed = check_owners(tier);
  for (uint32_t i = 0; failed == 0 && i < tier->config.tenant_count; i++) {
    failed = check_tenant(tier, i);
  }
  if (failed == 0) failed = check_model(tier);
  return failed != 0 ? failed : check_tenants(tier);
}
