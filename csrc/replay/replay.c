/* Making and unmaking a replay, and what it says of itself. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

enum {
  VOLUME = 0,
  NSID = 1,
  SUBSYSTEM = 0,
  DIRTY_PERCENT = 30, /* the target's default; nothing stays dirty here, but it bounds what
                         commands may hold at once */
  LEAST_FRAMES = 8,
  CHECK_HINTS = 1000, /* what is added to the number of the invariant that fails */
  CHECK_ORDERS = 2000,
  CHECK_OPS = 3000
};

#define NEVER_NS (UINT64_MAX / 4)

static bool refuse(char *error, size_t error_size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, error_size, format, arguments);
  va_end(arguments);
  return false;
}

static bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

static bool check_sizes(const struct ps_replay_config *config, char *error, size_t size) {
  if (config->frame_count < LEAST_FRAMES)
    return refuse(error, size, "frame_count is %u, expected %d or more", config->frame_count,
                  LEAST_FRAMES);
  if (!is_power_of_two(config->slot_size) || config->slot_size < 16384 ||
      config->slot_size > 2097152)
    return refuse(error, size, "slot_size is %u, expected a power of two, 16384 to 2097152",
                  config->slot_size);
  if (!is_power_of_two(config->block_size) || config->block_size < 512 ||
      config->block_size > config->slot_size)
    return refuse(error, size, "block_size is %u, expected a power of two, 512 to slot_size",
                  config->block_size);
  if (config->volume_bytes == 0 || config->volume_bytes % config->block_size != 0)
    return refuse(error, size, "volume_bytes is %llu, expected whole blocks of %u, 1 or more",
                  (unsigned long long)config->volume_bytes, config->block_size);
  return true;
}

static bool check_config(const struct ps_replay_config *config, char *error, size_t size) {
  if (!check_sizes(config, error, size)) return false;
  if (config->tenant_count < 1 || config->tenant_count > 65536)
    return refuse(error, size, "tenant_count is %u, expected 1 to 65536", config->tenant_count);
  if (config->starvation_ns == 0)
    return refuse(error, size, "starvation_ns is 0, expected 1 or more");
  if (config->ring_capacity != 0 && !is_power_of_two(config->ring_capacity))
    return refuse(error, size, "ring_capacity is %llu, expected a power of two, or 0",
                  (unsigned long long)config->ring_capacity);
  if (config->orders_capacity != 0 && !is_power_of_two(config->orders_capacity))
    return refuse(error, size, "orders_capacity is %llu, expected a power of two, or 0",
                  (unsigned long long)config->orders_capacity);
  if (config->orders_capacity != 0 && config->fetches == 0)
    return refuse(error, size, "fetches is 0, expected 1 or more");
  return true;
}

/* As ps_hints_resolve. */
static bool resolve(void *context, uint32_t subsystem, uint32_t nsid,
                    struct ps_hints_namespace *result) {
  const struct ps_replay *replay = context;
  assert(replay != NULL && result != NULL);
  if (subsystem != SUBSYSTEM || nsid != NSID) return false;
  uint32_t block_size = replay->config.block_size;
  *result = (struct ps_hints_namespace){.volume = VOLUME,
                                        .block_shift = (uint32_t)__builtin_ctz(block_size),
                                        .blocks = replay->config.volume_bytes / block_size};
  return true;
}

static bool make_tier(struct ps_replay *replay, char *error, size_t size) {
  const struct ps_replay_config *config = &replay->config;
  struct ps_tier_config tier = {
      .frame_count = config->frame_count,
      .slot_size = config->slot_size,
      .extent_count = config->frame_count + config->frame_count / 2 + 64,
      .dirty_limit = (uint32_t)((uint64_t)config->frame_count * DIRTY_PERCENT / 100),
      .volume_count = 1,
      .tenant_count = config->tenant_count,
      .unsynced_age_ns = NEVER_NS,
      .writeback_age_ns = NEVER_NS,
      .retry_ns = 1000000000, /* no medium fails here */
      .ring = replay->ring};
  replay->tier = ps_tier_new(&tier);
  if (replay->tier == NULL)
    return refuse(error, size, "a tier of %u slots cannot work", config->frame_count);
  int result = ps_tier_volume_add(replay->tier, VOLUME, config->volume_bytes, config->block_size);
  return result == 0 || refuse(error, size, "a volume of %llu bytes cannot be had: error %d",
                               (unsigned long long)config->volume_bytes, -result);
}

static bool make_medium(struct ps_replay *replay, char *error, size_t size) {
  const struct ps_replay_config *config = &replay->config;
  replay->flash = ps_flash_new(&config->flash);
  if (replay->flash == NULL)
    return refuse(error, size, "flash: no memory, or a number is out of range");
  struct ps_sched_config sched = {.window = config->flash.channels,
                                  .merge_bytes = config->merge_bytes,
                                  .starvation_ns = config->starvation_ns,
                                  .bandwidth = ps_flash_bandwidth(&config->flash),
                                  .latency_ns = ps_flash_read_ns(&config->flash)};
  replay->sched = ps_sched_new(&sched);
  return replay->sched != NULL || refuse(error, size, "no memory for a scheduler");
}

static bool make_hints(struct ps_replay *replay, char *error, size_t size) {
  struct ps_hints_config hints = replay->config.hints;
  hints.tenant_count = replay->config.tenant_count;
  hints.volume_count = 1;
  hints.subsystem_count = 1;
  hints.slot_size = replay->config.slot_size;
  replay->hints = ps_hints_new(&hints, replay->tier, replay->ring, resolve, replay);
  if (replay->hints == NULL)
    return refuse(error, size, "hints: no memory, or a limit is out of range");
  ps_hints_volume(replay->hints, replay->now_ns, VOLUME, replay->sched);
  return true;
}

static bool make_orders(struct ps_replay *replay, char *error, size_t size) {
  const struct ps_replay_config *config = &replay->config;
  if (config->orders_capacity == 0) return true;
  struct ps_orders_config orders = {.capacity = config->orders_capacity,
                                    .fetches = config->fetches,
                                    .volume_count = 1,
                                    .tenant_count = config->tenant_count,
                                    .slot_size = config->slot_size,
                                    .piece_bytes = config->hints.piece_bytes};
  replay->orders = ps_orders_new(&orders, replay->tier, replay->ring);
  if (replay->orders == NULL)
    return refuse(error, size, "no memory for %llu orders",
                  (unsigned long long)config->orders_capacity);
  ps_orders_volume(replay->orders, replay->now_ns, VOLUME, replay->sched, config->volume_bytes);
  return true;
}

static bool make_ring(struct ps_replay *replay, char *error, size_t size) {
  uint64_t capacity = replay->config.ring_capacity;
  if (capacity == 0) return true;
  replay->ring = ps_ring_new(capacity);
  return replay->ring != NULL ||
         refuse(error, size, "no memory for a ring of %llu facts", (unsigned long long)capacity);
}

struct ps_replay *ps_replay_new(const struct ps_replay_config *config, char *error,
                                size_t error_size) {
  assert(config != NULL && error != NULL);
  if (!check_config(config, error, error_size)) return NULL;
  struct ps_replay *replay = calloc(1, sizeof *replay);
  if (replay == NULL) {
    refuse(error, error_size, "no memory");
    return NULL;
  }
  replay->config = *config;
  replay->now_ns = 1;
  replay->look_ns = replay->timer_ns = replay->flash_ns = UINT64_MAX;
  bool is_good = replay_op_init(replay) || refuse(error, error_size, "no memory");
  is_good = is_good && make_ring(replay, error, error_size) &&
            make_tier(replay, error, error_size) && make_medium(replay, error, error_size) &&
            make_hints(replay, error, error_size) && make_orders(replay, error, error_size);
  if (is_good) return replay;
  ps_replay_free(replay);
  return NULL;
}

void ps_replay_free(struct ps_replay *replay) {
  if (replay == NULL) return;
  if (replay->orders != NULL) ps_orders_free(replay->orders);
  if (replay->hints != NULL) ps_hints_free(replay->hints);
  if (replay->sched != NULL) ps_sched_free(replay->sched);
  if (replay->flash != NULL) ps_flash_free(replay->flash);
  if (replay->tier != NULL) ps_tier_free(replay->tier);
  if (replay->ring != NULL) ps_ring_free(replay->ring);
  replay_free_commands(replay);
  free(replay->ops);
  free(replay);
}

/* ---- what it says ---- */

uint64_t ps_replay_pending(const struct ps_replay *replay) {
  assert(replay != NULL);
  return replay->pending;
}

int ps_replay_ring_fd(const struct ps_replay *replay) {
  assert(replay != NULL);
  return replay->ring == NULL ? -1 : ps_ring_fd(replay->ring);
}

int ps_replay_orders_fd(const struct ps_replay *replay) {
  assert(replay != NULL);
  return replay->orders == NULL ? -1 : ps_orders_fd(replay->orders);
}

void ps_replay_set_budget(struct ps_replay *replay, uint16_t tenant,
                          const struct ps_hints_budget *budget) {
  assert(replay != NULL && tenant < replay->config.tenant_count);
  ps_hints_set_budget(replay->hints, tenant, budget);
}

void ps_replay_get_stats(const struct ps_replay *replay, struct ps_replay_stats *stats) {
  assert(replay != NULL && stats != NULL);
  const struct ps_flash_config *flash = &replay->config.flash;
  *stats = replay->stats;
  stats->now_ns = replay->now_ns;
  double bytes = (double)(stats->demand_bytes + stats->fetch_bytes);
  stats->busy_ns = (uint64_t)(bytes * 1e9 / flash->bandwidth * flash->scale);
}

void ps_replay_tier_stats(const struct ps_replay *replay, struct ps_tier_stats *stats) {
  assert(replay != NULL);
  ps_tier_get_stats(replay->tier, stats);
}

void ps_replay_tenant_stats(const struct ps_replay *replay, uint16_t tenant,
                            struct ps_tier_tenant *stats) {
  assert(replay != NULL && tenant < replay->config.tenant_count);
  ps_tier_get_tenant(replay->tier, tenant, stats);
}

void ps_replay_orders_stats(const struct ps_replay *replay, struct ps_orders_stats *stats) {
  assert(replay != NULL && stats != NULL);
  *stats = (struct ps_orders_stats){.pending = 0};
  if (replay->orders != NULL) ps_orders_get_stats(replay->orders, stats);
}

void ps_replay_hint_status(struct ps_replay *replay, uint16_t tenant, uint8_t *page) {
  assert(replay != NULL && tenant < replay->config.tenant_count && page != NULL);
  const struct ps_hints_scope scope = {.tenant = tenant, .subsystem = SUBSYSTEM};
  ps_hints_status(replay->hints, replay->now_ns, &scope, page);
}

/* Operations are free or known by their tickets. */
static bool ops_add_up(const struct ps_replay *replay) {
  uint32_t free_count = 0, known = 0;
  for (const struct media_op *op = replay->free_ops; op != NULL; op = op->next) free_count++;
  for (uint32_t i = 0; i < REPLAY_OPS; i++)
    for (const struct media_op *op = replay->by_ticket[i]; op != NULL; op = op->same_ticket)
      known++;
  return free_count == replay->free_op_count && free_count + known == REPLAY_OPS;
}

int ps_replay_check(const struct ps_replay *replay) {
  assert(replay != NULL);
  int failed = ps_tier_check(replay->tier);
  if (failed != 0) return failed;
  failed = ps_hints_check_all(replay->hints);
  if (failed != 0) return CHECK_HINTS + failed;
  failed = replay->orders == NULL ? 0 : ps_orders_check(replay->orders);
  if (failed != 0) return CHECK_ORDERS + failed;
  return ops_add_up(replay) ? 0 : CHECK_OPS;
}
