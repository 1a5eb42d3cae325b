/* Making and freeing; volumes that come and go; counts. */
#include <stdlib.h>

#include "internal.h"

static bool is_good(const struct ps_orders_config *config) {
  uint64_t capacity = config->capacity;
  uint32_t slot = config->slot_size;
  if (capacity == 0 || (capacity & (capacity - 1)) != 0 || capacity > (1u << 24)) return false;
  if (config->fetches == 0 || config->fetches > (1u << 24)) return false;
  if (config->volume_count == 0 || config->volume_count > UINT16_MAX + 1u) return false;
  if (config->tenant_count == 0 || config->tenant_count > UINT16_MAX + 1u) return false;
  if (slot < (16u << 10) || slot > (2u << 20) || (slot & (slot - 1)) != 0) return false;
  return config->piece_bytes > 0;
}

struct ps_orders *ps_orders_new(const struct ps_orders_config *config, struct ps_tier *tier,
                                struct ps_ring *ring) {
  assert(config != NULL && tier != NULL);
  if (!is_good(config)) return NULL;
  struct ps_orders *orders = calloc(1, sizeof *orders);
  if (orders == NULL) return NULL;
  struct ps_tier_stats stats;
  ps_tier_get_stats(tier, &stats);
  orders->config = *config;
  orders->tier = tier;
  orders->ring = ring;
  orders->fd = -1;
  orders->frame_count = stats.frames_free; /* nothing is in it yet */
  orders->volumes = calloc(config->volume_count, sizeof *orders->volumes);
  orders->present = calloc(config->volume_count, sizeof *orders->present);
  if (orders->volumes != NULL && orders->present != NULL && orders_pool_init(orders) &&
      orders_memory_init(orders))
    return orders;
  ps_orders_free(orders);
  return NULL;
}

void ps_orders_free(struct ps_orders *orders) {
  if (orders == NULL) return;
  orders_memory_free(orders);
  orders_pool_free(orders);
  free(orders->volumes);
  free(orders->present);
  free(orders);
}

int ps_orders_fd(const struct ps_orders *orders) {
  assert(orders != NULL);
  return orders->fd;
}

/* ---- volumes ---- */

/* Those of its fetches that reach beyond its size have failed. */
static void cut(struct ps_orders *orders, uint64_t now_ns, const struct order_volume *volume) {
  uint32_t index = volume->first;
  while (index != NONE) {
    const struct fetch *fetch = orders_fetch(orders, index);
    uint32_t next = fetch->next;
    if (fetch->end > volume->size) orders_end_fetch(orders, now_ns, index, PS_ORDER_FAILED);
    index = next;
  }
}

void ps_orders_volume(struct ps_orders *orders, uint64_t now_ns, uint32_t number,
                      struct ps_sched *sched, uint64_t size_bytes) {
  assert(orders != NULL && number < orders->config.volume_count);
  struct order_volume *volume = &orders->volumes[number];
  bool is_other = volume->sched != sched;
  bool shrinks = size_bytes < volume->size;
  volume->size = sched != NULL && !is_other ? size_bytes : 0;
  if (volume->sched != NULL && (is_other || shrinks)) cut(orders, now_ns, volume);
  if (!is_other) return;
  if (volume->sched != NULL) {
    uint16_t last = orders->present[--orders->present_count];
    orders->present[volume->place] = last;
    orders->volumes[last].place = volume->place;
  }
  volume->sched = sched;
  if (sched == NULL) return;
  volume->size = size_bytes;
  volume->place = orders->present_count;
  orders->present[orders->present_count++] = (uint16_t)number;
  orders->bandwidth_ns = 0;
}

void orders_announce_volume(struct ps_orders *orders, uint32_t number) {
  assert(orders != NULL && number < orders->config.volume_count);
  struct order_volume *volume = &orders->volumes[number];
  if (volume->is_queued) return;
  volume->is_queued = true;
  volume->next_queued = 0;
  if (orders->last_queued == 0)
    orders->first_queued = number + 1;
  else
    orders->volumes[orders->last_queued - 1].next_queued = number + 1;
  orders->last_queued = number + 1;
}

int32_t ps_orders_next_volume(struct ps_orders *orders) {
  assert(orders != NULL);
  while (orders->first_queued != 0) {
    uint32_t number = orders->first_queued - 1;
    struct order_volume *volume = &orders->volumes[number];
    orders->first_queued = volume->next_queued;
    if (orders->first_queued == 0) orders->last_queued = 0;
    volume->is_queued = false;
    if (volume->sched != NULL) return (int32_t)number;
  }
  return -1;
}

void ps_orders_get_stats(const struct ps_orders *orders, struct ps_orders_stats *stats) {
  assert(orders != NULL && stats != NULL);
  *stats = orders->stats;
}
