/* Making and freeing the tables, what volumes and tenants have, and time. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "internal.h"

static bool is_good(const struct ps_hints_config *config) {
  uint32_t slot = config->slot_size;
  if (slot < (16u << 10) || slot > (2u << 20) || (slot & (slot - 1)) != 0) return false;
  if (config->tenant_count == 0 || config->tenant_count > UINT16_MAX + 1u) return false;
  if (config->volume_count == 0 || config->volume_count > UINT16_MAX) return false;
  if (config->subsystem_count > UINT16_MAX + 1u) return false;
  if (config->sets == 0 || config->set_ranges == 0 || config->signatures == 0) return false;
  if (config->sets > UINT32_MAX || config->set_ranges > UINT32_MAX) return false;
  if (config->intents == 0 || config->intents > (1u << 24)) return false;
  if (config->answer_pages == 0 || config->max_set_ranges == 0) return false;
  return config->max_ttl_ms > 0 && config->piece_bytes > 0 && config->part_items > 0;
}

static bool init_pools(struct ps_hints *hints) {
  const struct ps_hints_config *config = &hints->config;
  /* Sets that are dead, and ranges that came with intents, are held by one pending intent each. */
  uint64_t sets = config->sets + 2 * config->intents + 1; /* one is replaced before it is freed */
  uint64_t chunks = config->set_ranges / CHUNK_RANGES + config->sets + 1 +
                    config->intents * (INTENT_RANGES / CHUNK_RANGES + 2);
  uint64_t nodes = config->set_ranges * RANGE_NODES;
  /* As many that have ended are remembered as can be pending, and one is on its way. */
  uint64_t intents = 2 * config->intents + 1;
  return hints_pool_init(hints, &hints->sets, sets, sizeof(struct set)) &&
         hints_pool_init(hints, &hints->chunks, chunks, sizeof(struct chunk)) &&
         hints_pool_init(hints, &hints->nodes, nodes, sizeof(struct node)) &&
         hints_pool_init(hints, &hints->signatures, config->signatures, sizeof(struct signature)) &&
         hints_pool_init(hints, &hints->intents, intents, sizeof(struct intent)) &&
         hints_pool_init(hints, &hints->follows, FOLLOW_JOBS, sizeof(struct follow)) &&
         hints_pool_init(hints, &hints->pages, config->answer_pages, sizeof(struct page));
}

static bool init_regions(struct ps_hints *hints) {
  uint32_t buckets = 16;
  while (buckets < hints->config.set_ranges / 2 && buckets < NODE_HEAD / 2) buckets *= 2;
  hints->region_mask = buckets - 1;
  hints->regions = hints_map(hints, buckets, sizeof *hints->regions);
  hints->mapped_tables += buckets * sizeof *hints->regions;
  return hints->regions != NULL;
}

static bool init_tables(struct ps_hints *hints) {
  return hints_table_init(hints, &hints->sets_by_id, &hints->sets,
                          offsetof(struct set, hash_next)) &&
         hints_table_init(hints, &hints->signatures_by_slba, &hints->signatures,
                          offsetof(struct signature, hash_next)) &&
         hints_table_init(hints, &hints->intents_by_id, &hints->intents,
                          offsetof(struct intent, hash_next)) &&
         hints_table_init(hints, &hints->intents_by_session, &hints->intents,
                          offsetof(struct intent, session_links)) &&
         hints_table_init(hints, &hints->streams, &hints->follows,
                          offsetof(struct follow, hash_next)) &&
         init_regions(hints) &&
         hints_share_init(hints, &hints->ended_share, hints->intents.count) &&
         hints_share_init(hints, &hints->page_share, hints->pages.count);
}

static bool init_rest(struct ps_hints *hints) {
  const struct ps_hints_config *config = &hints->config;
  hints->heap = hints_map(hints, config->intents + 1, sizeof *hints->heap);
  hints->tenants = hints_map(hints, config->tenant_count, sizeof *hints->tenants);
  hints->volumes = hints_map(hints, config->volume_count, sizeof *hints->volumes);
  if (hints->heap == NULL || hints->tenants == NULL || hints->volumes == NULL) return false;
  hints->set_sweep = (struct sweep){.step_ns = UINT64_MAX, .earliest_ns = UINT64_MAX};
  hints->signature_sweep = hints->set_sweep;
  hints->bury_ns = UINT64_MAX;
  return getrandom(hints->keys, sizeof hints->keys, 0) == (ssize_t)sizeof hints->keys;
}

static void limit_tier(struct ps_hints *hints, uint16_t tenant) {
  const struct tenant *who = hints_tenant(hints, tenant);
  uint64_t frames = hints_budget(hints, who)->tier_bytes >> hints->slot_shift;
  ps_tier_set_tenant(hints->tier, tenant, (uint32_t)hints_min(frames, UINT32_MAX));
}

struct ps_hints *ps_hints_new(const struct ps_hints_config *config, struct ps_tier *tier,
                              struct ps_ring *ring, ps_hints_resolve resolve, void *context) {
  assert(tier != NULL && resolve != NULL);
  if (config == NULL || !is_good(config)) return NULL;
  struct ps_hints *hints = calloc(1, sizeof *hints);
  if (hints == NULL) return NULL;
  hints->config = *config;
  hints->tier = tier;
  hints->ring = ring;
  hints->resolve = resolve;
  hints->context = context;
  hints->slot_shift = (uint32_t)__builtin_ctz(config->slot_size);
  if (!init_pools(hints) || !init_tables(hints) || !init_rest(hints)) {
    ps_hints_free(hints);
    return NULL;
  }
  for (uint32_t i = 0; i < config->tenant_count; i++) limit_tier(hints, (uint16_t)i);
  return hints;
}

void ps_hints_free(struct ps_hints *hints) {
  if (hints == NULL) return;
  for (uint32_t i = 0; i < hints->map_count; i++) {
    munmap(hints->maps[i].start, hints->maps[i].size);
  }
  free(hints);
}

void ps_hints_set_budget(struct ps_hints *hints, uint16_t tenant,
                         const struct ps_hints_budget *budget) {
  assert(hints != NULL);
  struct tenant *who = hints_tenant(hints, tenant);
  assert(budget == NULL || !budget->is_shared ||
         (budget->records_per_s == 0 && budget->tier_bytes == 0));
  who->has_budget = budget != NULL;
  if (budget != NULL) who->budget = *budget;
  limit_tier(hints, tenant);
}

void ps_hints_set_capability(struct ps_hints *hints, const struct pax_capability *capability) {
  assert(hints != NULL && capability != NULL);
  hints->capability = *capability;
}

void ps_hints_set_benefit(struct ps_hints *hints, const struct pax_benefit *benefit) {
  assert(hints != NULL && benefit != NULL);
  hints->benefit = *benefit;
}

static void remove_volume(struct ps_hints *hints, uint64_t now_ns, uint32_t volume) {
  struct hint_volume *where = &hints->volumes[volume];
  hints_end_follows(hints, volume);
  hints_cancel_volume(hints, now_ns, volume, UINT32_MAX);
  where->sched = NULL;
  where->epoch++;
  hints_sweep_now(hints, now_ns);
  struct ps_fact fact = {.time_ns = now_ns, .volume = (uint16_t)volume, .kind = PS_FACT_UNMAPPED};
  hints_fact(hints, &fact);
}

void ps_hints_volume(struct ps_hints *hints, uint64_t now_ns, uint32_t volume,
                     struct ps_sched *sched) {
  assert(hints != NULL && volume < hints->config.volume_count);
  struct hint_volume *where = &hints->volumes[volume];
  if (where->sched == sched) return;
  if (where->sched != NULL) remove_volume(hints, now_ns, volume);
  where->sched = sched;
}

bool ps_hints_leave(struct ps_hints *hints, uint64_t now_ns, uint32_t volume, uint32_t most) {
  assert(hints != NULL && volume < hints->config.volume_count && most > 0);
  return hints_cancel_volume(hints, now_ns, volume, most);
}

void hints_announce_volume(struct ps_hints *hints, uint32_t volume) {
  assert(hints != NULL && volume < hints->config.volume_count);
  struct hint_volume *where = &hints->volumes[volume];
  if (where->is_queued) return;
  struct fifo *queue = &hints->volume_queue;
  where->is_queued = true;
  where->next = NONE;
  if (queue->last == NONE) {
    queue->first = volume + 1;
  } else {
    hints->volumes[queue->last - 1].next = volume + 1;
  }
  queue->last = volume + 1;
}

int32_t ps_hints_next_volume(struct ps_hints *hints) {
  assert(hints != NULL);
  struct fifo *queue = &hints->volume_queue;
  while (queue->first != NONE) {
    uint32_t volume = queue->first - 1;
    struct hint_volume *where = &hints->volumes[volume];
    queue->first = where->next;
    if (where->next == NONE) queue->last = NONE;
    where->is_queued = false;
    if (where->sched != NULL) return (int32_t)volume;
  }
  return -1;
}

void ps_hints_tick(struct ps_hints *hints, uint64_t now_ns) {
  assert(hints != NULL);
  uint64_t enough = hints->looked + TICK_EXTENTS;
  for (uint32_t i = 0; i < TICK_INTENTS && hints->looked < enough && hints->heap_size > 0; i++) {
    uint32_t index = hints->heap[1];
    if (hints_intent(hints, index)->wake_ns > now_ns) break;
    hints_wake_intent(hints, now_ns, index);
  }
  hints_sweep(hints, now_ns);
}

uint64_t ps_hints_next_time(const struct ps_hints *hints) {
  assert(hints != NULL);
  uint64_t next_ns = hints_min(hints->set_sweep.step_ns, hints->signature_sweep.step_ns);
  next_ns = hints_min(next_ns, hints->bury_ns);
  if (hints->heap_size == 0) return next_ns;
  return hints_min(next_ns, hints_intent(hints, hints->heap[1])->wake_ns);
}

void ps_hints_get_stats(const struct ps_hints *hints, struct ps_hints_stats *stats) {
  assert(hints != NULL && stats != NULL);
  const struct pool *pools[] = {&hints->sets,    &hints->chunks,  &hints->nodes, &hints->signatures,
                                &hints->intents, &hints->follows, &hints->pages};
  *stats = hints->stats;
  stats->sets = hints->live_sets;
  stats->set_ranges = hints->set_ranges;
  stats->signatures = hints->live_signatures;
  stats->intents = hints->pending;
  stats->answer_pages = hints->pages.in_use;
  stats->memory_bytes = sizeof *hints + hints->mapped_tables;
  for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++) {
    stats->memory_bytes += (uint64_t)pools[i]->fresh * pools[i]->stride;
  }
}
