/* Making and freeing a tier: everything it will ever need is allocated here. */
#include <stdlib.h>

#include "keep.h"
#include "order.h"

static bool is_good(const struct ps_tier_config *config) {
  uint32_t slot = config->slot_size;
  if (slot < (16u << 10) || slot > (2u << 20) || (slot & (slot - 1)) != 0) return false;
  if (config->frame_count > (1u << 28) || config->extent_count > (1u << 30)) return false;
  if (config->extent_count < config->frame_count) return false;
  if (config->volume_count == 0 || config->volume_count > UINT16_MAX) return false;
  if (config->tenant_count == 0 || config->tenant_count > UINT16_MAX + 1u) return false;
  /* The inequality at the top of internal.h: without it commands could wait for one another. */
  if (config->dirty_limit == 0 || config->dirty_limit > config->frame_count) return false;
  if (config->frame_count - config->dirty_limit < RESERVE_FRAMES + 1) return false;
  return config->retry_ns > 0 && config->retry_ns < UINT64_MAX / (BACKOFF_MOST * 2);
}

static uint32_t bucket_count(uint32_t extents) {
  uint32_t count = 16;
  while (count < extents) count *= 2;
  return count;
}

static bool allocate(struct ps_tier *tier) {
  const struct ps_tier_config *config = &tier->config;
  uint32_t buckets = bucket_count(config->extent_count);
  tier->bucket_mask = buckets - 1;
  tier->fill_count = config->frame_count * FILLS_PER_FRAME;
  tier->op_count = tier->fill_count + WRITE_OPS + config->volume_count;
  tier->buckets = calloc(buckets, sizeof(*tier->buckets));
  tier->extents = calloc((size_t)config->extent_count + CELLS, sizeof(*tier->extents));
  tier->frames = calloc(config->frame_count, sizeof(*tier->frames));
  tier->ops = calloc(tier->op_count, sizeof(*tier->ops));
  tier->volumes = calloc(config->volume_count, sizeof(*tier->volumes));
  tier->tenants = calloc(config->tenant_count, sizeof(*tier->tenants));
  tier->keeps.entries = calloc(config->frame_count, sizeof(struct heap_entry));
  tier->dated_fills.entries = calloc(tier->fill_count, sizeof(struct heap_entry));
  if (tier->buckets == NULL || tier->extents == NULL || tier->frames == NULL) return false;
  if (tier->ops == NULL || tier->volumes == NULL || tier->tenants == NULL) return false;
  if (tier->keeps.entries == NULL || tier->dated_fills.entries == NULL) return false;
  if (!tier_owners_init(tier) || !tier_order_init(tier)) return false;
  memset(tier->buckets, 0xFF, buckets * sizeof(*tier->buckets));
  return true;
}

static void init_free_lists(struct ps_tier *tier) {
  const struct ps_tier_config *config = &tier->config;
  for (uint32_t i = 0; i < config->extent_count; i++) {
    tier->extents[i].hash_next = i + 1 < config->extent_count ? i + 1 : NONE;
  }
  for (uint32_t i = 0; i < config->frame_count; i++) {
    tier->frames[i] = (struct frame){.extent = NONE, .next_free = i + 1};
  }
  tier->frames[config->frame_count - 1].next_free = NONE;
  tier->frames_free = config->frame_count;
  tier->fill_free = NONE;
  tier->write_free = NONE;
  for (uint32_t i = write_base(tier) + WRITE_OPS; i > write_base(tier); i--) {
    tier->ops[i - 1].next = tier->write_free;
    tier->write_free = i - 1;
  }
}

static void init_lists(struct ps_tier *tier) {
  tier_list_init(&tier->kept_extents, &tier->extents[0].place_links, sizeof(struct extent));
  tier_list_init(&tier->promised, &tier->extents[0].place_links, sizeof(struct extent));
  tier_list_init(&tier->demand_fills, &tier->ops[0].links, sizeof(struct op));
  tier_list_init(&tier->speculative_fills, &tier->ops[0].links, sizeof(struct op));
  tier_list_init(&tier->promotions, &tier->ops[0].links, sizeof(struct op));
  tier_list_init(&tier->next_runs, &tier->ops[0].links, sizeof(struct op));
  tier_list_init(&tier->active, &tier->volumes[0].active_links, sizeof(struct volume));
  tier_heap_init(&tier->keeps, tier->keeps.entries, &tier->frames[0].keep_place,
                 sizeof(struct frame));
  tier_heap_init(&tier->dated_fills, tier->dated_fills.entries, &tier->ops[0].links.previous,
                 sizeof(struct op));
}

struct ps_tier *ps_tier_new(const struct ps_tier_config *config) {
  if (config == NULL || !is_good(config)) return NULL;
  struct ps_tier *tier = calloc(1, sizeof(*tier));
  if (tier == NULL) return NULL;
  tier->config = *config;
  if (!allocate(tier)) {
    ps_tier_free(tier);
    return NULL;
  }
  tier->slot_shift = (uint32_t)__builtin_ctz(config->slot_size);
  tier->budget = config->frame_count - config->dirty_limit - RESERVE_FRAMES;
  tier->credits = tier->budget;
  init_free_lists(tier);
  init_lists(tier);
  tier_values_init(tier);
  tier->model.hint_limit = config->frame_count - config->frame_count / MODEL_SPARE;
  for (uint32_t i = 0; i < config->tenant_count; i++) {
    tier->tenants[i].hint_limit = config->frame_count / HINT_SHARE;
  }
  return tier;
}

void ps_tier_free(struct ps_tier *tier) {
  if (tier == NULL) return;
  free(tier->buckets);
  free(tier->extents);
  free(tier->frames);
  free(tier->ops);
  free(tier->volumes);
  free(tier->tenants);
  free(tier->keeps.entries);
  tier_owners_free(tier);
  free(tier->order);
  free(tier->dated_fills.entries);
  free(tier);
}

uint32_t ps_tier_budget(const struct ps_tier *tier) {
  assert(tier != NULL);
  return tier->budget;
}

int32_t ps_tier_health(const struct ps_tier *tier, uint32_t volume) {
  assert(tier != NULL);
  if (volume >= tier->config.volume_count || !tier->volumes[volume].is_present) return 0;
  return tier->volumes[volume].error;
}

void ps_tier_get_stats(const struct ps_tier *tier, struct ps_tier_stats *stats) {
  assert(tier != NULL && stats != NULL);
  *stats = tier->stats;
  stats->frames_free = tier->frames_free;
  stats->frames_resident = tier->frames_resident;
  stats->frames_pinned = tier->config.frame_count - tier->frames_free - tier->frames_idle;
  stats->frames_dirty = tier->frames_dirty;
  stats->frames_unsynced = tier->frames_unclean - tier->frames_dirty;
  stats->frames_reserved = tier->budget - tier->credits;
}
