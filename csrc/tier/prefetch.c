/* What commands that have come together will touch is asked of the memory before the first of them
 * is carried out: of a large tier neither index nor extents nor frames are in any cache, and the
 * look-ups of all can wait together instead of one after the other. */
#include "../prefetch.h"

#include "internal.h"

enum {
  DATA_LINES = 4, /* their page is known then, and the processor goes on by itself */
  CACHED_TICKS = 2
};

static void ask_extent(const struct ps_tier *tier, uint32_t index) {
  if (index == NONE) return;
  const struct extent *extent = &tier->extents[index];
  ps_prefetch(extent);
  ps_prefetch((const uint8_t *)(extent + 1) - 1);
}

/* Whether the extent was used so lately that the caches are likely to have what belongs to it. */
static bool is_cached(const struct ps_tier *tier, const struct extent *extent) {
  return tier_ticks(tier->now_ns) - extent->last_use < CACHED_TICKS;
}

/* The frame, and where its bytes begin; false when that is not worth it. Reading takes the extent
 * out of its place, and so writes to its neighbours there. */
static bool ask_frame(const struct ps_tier *tier, uint32_t index, uint64_t offset) {
  if (index == NONE) return false;
  const struct extent *extent = &tier->extents[index];
  if (extent->frame == NONE || is_cached(tier, extent)) return false;
  ps_prefetch(&tier->frames[extent->frame]);
  const struct links links = extent->place_links;
  if (links.previous != NONE) ps_prefetch(&tier->extents[links.previous].place_links);
  if (links.next != NONE) ps_prefetch(&tier->extents[links.next].place_links);
  if (tier->config.frames == NULL) return true;
  const uint8_t *bytes = tier->config.frames + ((size_t)extent->frame << tier->slot_shift);
  bytes += offset & (tier->config.slot_size - 1);
  for (size_t i = 0; i < DATA_LINES; i++) ps_prefetch(bytes + i * PS_CACHE_LINE);
  return true;
}

/* Each pass needs what the one before has brought. */
uint32_t ps_tier_prefetch(const struct ps_tier *tier, const struct ps_tier_place *places,
                          uint32_t count) {
  assert(tier != NULL && (places != NULL || count == 0) && count <= PS_TIER_PREFETCHED);
  const uint32_t *buckets[PS_TIER_PREFETCHED];
  for (uint32_t i = 0; i < count; i++) {
    uint64_t number = places[i].offset >> tier->slot_shift;
    buckets[i] = &tier->buckets[tier_bucket_of(tier, places[i].volume, number)];
    ps_prefetch(buckets[i]);
  }
  for (uint32_t i = 0; i < count; i++) ask_extent(tier, *buckets[i]);
  uint32_t asked = 0;
  for (uint32_t i = 0; i < count; i++) asked += ask_frame(tier, *buckets[i], places[i].offset);
  return asked;
}
