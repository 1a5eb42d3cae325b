/* Keeps: extents that a hint wants to stay for a time. While it lasts an extent is of class 5,
 * whatever class it is otherwise, and only reads and writes evict it: see victim in frame.c. */
#include "keep.h"

#include "order.h"

/* The extent counts for who keeps it, unless it does so already: see tenant.c. */
static void count_keep(struct ps_tier *tier, const struct extent *extent, uint16_t keeper,
                       bool is_kept) {
  uint32_t *count = &tier->tenants[keeper].stats.hint_frames;
  if (tier_is_hinted_for(extent, keeper)) return;
  assert(is_kept || *count > 0);
  *count += is_kept ? 1 : UINT32_MAX;
}

/* The extent's list of what may be evicted is about to be another. */
static void set_kept(struct ps_tier *tier, uint32_t index, bool is_kept) {
  struct extent *extent = &tier->extents[index];
  if (extent->place == PLACE_EVICTABLE) tier_unplace(tier, index);
  extent->kept = is_kept;
}

void tier_end_keep(struct ps_tier *tier, uint32_t index) {
  const struct extent *extent = &tier->extents[index];
  assert(extent->kept && extent->frame != NONE);
  tier_heap_remove(&tier->keeps, extent->frame);
  tier_set_owner(tier, extent->frame, 0);
  tier->kept[extent->frame].retained_ns = 0;
  set_kept(tier, index, false);
  count_keep(tier, extent, tier->frames[extent->frame].keeper, false);
}

static void set_time(struct ps_tier *tier, uint32_t frame, uint64_t until_ns) {
  tier_heap_remove(&tier->keeps, frame);
  tier_heap_add(&tier->keeps, frame, until_ns, 0);
}

void tier_disown(struct ps_tier *tier, uint32_t index) {
  uint32_t frame = tier->extents[index].frame;
  assert(tier->extents[index].kept && frame != NONE);
  uint64_t retained_ns = tier->kept[frame].retained_ns;
  if (tier->kept[frame].owner == NONE) return;
  if (retained_ns <= tier->now_ns) {
    tier_end_keep(tier, index);
    return;
  }
  tier_set_owner(tier, frame, 0);
  set_time(tier, frame, retained_ns);
}

void tier_move_keep(struct ps_tier *tier, uint32_t index, uint32_t frame) {
  uint32_t old = tier->extents[index].frame;
  assert(tier->extents[index].kept && old != NONE && old != frame);
  uint32_t owner = tier->kept[old].owner;
  uint64_t until_ns = tier_heap_entry(&tier->keeps, old)->key;
  tier_heap_remove(&tier->keeps, old);
  tier_heap_add(&tier->keeps, frame, until_ns, 0);
  tier->frames[frame].keeper = tier->frames[old].keeper;
  tier->kept[frame].retained_ns = tier->kept[old].retained_ns;
  tier->kept[old].retained_ns = 0;
  if (owner == NONE) return;
  tier->kept[frame].owner = owner;
  tier_list_append(&tier->owners[owner].frames, frame);
  tier_set_owner(tier, old, 0);
}

/* The next of those that are over, or whose time is; NONE. */
static uint32_t next_expired(const struct ps_tier *tier) {
  uint32_t frame = tier_next_over(tier);
  if (frame != NONE || tier->keeps.length == 0) return frame;
  const struct heap_entry *first = &tier->keeps.entries[0];
  return first->key <= tier->now_ns ? first->item : NONE;
}

/* Its time is over. What a hint brought in and nobody has read is wanted by nobody any more: it is
 * as old as can be. */
static void run_out(struct ps_tier *tier, uint32_t index) {
  struct extent *extent = &tier->extents[index];
  tier_end_keep(tier, index);
  tier_settle_hint(tier, index, false);
  if (!extent->prestaged || is_of_model(extent) || extent->place == PLACE_PROMISED) return;
  extent->last_use = tier_use_before(tier, UINT64_MAX);
}

void tier_expire_keeps(struct ps_tier *tier) {
  uint32_t frame = next_expired(tier);
  for (uint32_t i = 0; frame != NONE && i < EXPIRE_MOST; i++) {
    uint32_t index = tier->frames[frame].extent;
    if (tier_is_over(tier, frame)) {
      tier_disown(tier, index);
    } else {
      run_out(tier, index);
    }
    tier_settle(tier, index);
    frame = next_expired(tier);
  }
  tier->has_expired_keeps = frame != NONE;
}

/* A keep of the same tenant is prolonged, or ended. */
static bool change_keep(struct ps_tier *tier, uint32_t index, uint64_t cookie, uint64_t until_ns) {
  uint32_t frame = tier->extents[index].frame;
  struct keep *keep = &tier->kept[frame];
  if (until_ns <= tier->now_ns) {
    tier_end_keep(tier, index);
    tier_settle(tier, index);
    return false;
  }
  if (cookie == 0 && until_ns > keep->retained_ns) keep->retained_ns = until_ns;
  if (until_ns <= tier_heap_entry(&tier->keeps, frame)->key) return true;
  set_time(tier, frame, until_ns);
  tier_set_owner(tier, frame, cookie);
  return true;
}

bool tier_keep(struct ps_tier *tier, uint32_t index, uint16_t tenant, uint64_t cookie,
               uint64_t until_ns) {
  const struct extent *extent = &tier->extents[index];
  assert(extent->frame != NONE && tenant < tier->config.tenant_count);
  if (extent->kept && tier_is_over(tier, extent->frame)) {
    tier_disown(tier, index);
    tier_settle(tier, index);
  }
  bool is_own = extent->kept && tier->frames[extent->frame].keeper == tenant;
  if (is_own) return change_keep(tier, index, cookie, until_ns);
  if (until_ns <= tier->now_ns) return false;
  if (extent->kept) return tier->kept[extent->frame].retained_ns >= until_ns;
  bool is_counted = tier_is_hinted_for(extent, tenant);
  if (!is_counted && tier_is_at_hint_limit(tier, tenant)) return false;
  set_kept(tier, index, true);
  tier->frames[extent->frame].keeper = tenant;
  tier->kept[extent->frame].retained_ns = cookie == 0 ? until_ns : 0;
  tier_heap_add(&tier->keeps, extent->frame, until_ns, 0);
  tier_set_owner(tier, extent->frame, cookie);
  count_keep(tier, extent, tenant, true);
  tier_settle(tier, index);
  return true;
}

uint32_t ps_tier_keep(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                      uint32_t length, uint16_t tenant, uint64_t cookie, uint64_t until_ns) {
  struct span span;
  assert(tier != NULL && tenant < tier->config.tenant_count);
  tier_enter(tier, now_ns, NULL);
  if (tier_span(tier, volume, offset, length, &span) != 0) return 0;
  uint32_t index = tier_find(tier, volume, span.number);
  if (index == NONE) return 0;
  uint16_t units = tier->extents[index].valid & span.touched;
  if (units == 0 || !tier_keep(tier, index, tenant, cookie, until_ns)) return 0;
  return tier_bytes_within(&tier->volumes[volume], units, span.start, span.end);
}
