/* Fetches: taken and given back, found by the model's id, and by the time at which they are to be
 * looked at. */
#include <stdlib.h>
#include <sys/random.h>

#include "internal.h"

bool orders_pool_init(struct ps_orders *orders) {
  assert(orders != NULL && orders->fetches == NULL);
  uint32_t buckets = 16;
  while (buckets < orders->config.fetches) buckets *= 2;
  orders->bucket_mask = buckets - 1;
  orders->fetches = calloc((size_t)orders->config.fetches + 1, sizeof *orders->fetches);
  orders->heap = calloc((size_t)orders->config.fetches + 1, sizeof *orders->heap);
  orders->buckets = calloc(buckets, sizeof *orders->buckets);
  if (orders->fetches == NULL || orders->heap == NULL || orders->buckets == NULL) return false;
  return getrandom(orders->keys, sizeof orders->keys, 0) == (ssize_t)sizeof orders->keys;
}

void orders_pool_free(struct ps_orders *orders) {
  assert(orders != NULL);
  free(orders->fetches);
  free(orders->heap);
  free(orders->buckets);
}

/* ---- by id ---- */

/* A multiplication of 64 by 64 bits, folded, twice. */
static uint32_t *bucket_of(const struct ps_orders *orders, uint64_t id) {
  const uint64_t *keys = orders->keys;
  unsigned __int128 product = (unsigned __int128)(id ^ keys[0]) * (keys[1] | 1);
  uint64_t folded = (uint64_t)product ^ (uint64_t)(product >> 64);
  product = (unsigned __int128)(folded ^ keys[2]) * UINT64_C(0x9E3779B97F4A7C15);
  uint64_t hash = (uint64_t)product ^ (uint64_t)(product >> 64);
  return &orders->buckets[hash & orders->bucket_mask];
}

uint32_t orders_find(const struct ps_orders *orders, uint64_t id) {
  assert(orders != NULL);
  uint32_t index = *bucket_of(orders, id);
  while (index != NONE && orders_fetch(orders, index)->id != id)
    index = orders_fetch(orders, index)->hash_next;
  return index;
}

uint32_t orders_new_fetch(struct ps_orders *orders, uint64_t id) {
  assert(orders != NULL && orders_find(orders, id) == NONE);
  uint32_t index = orders->free;
  if (index != NONE)
    orders->free = orders_fetch(orders, index)->next;
  else if (orders->fresh < orders->config.fetches)
    index = ++orders->fresh;
  else
    return NONE;
  struct fetch *fetch = orders_fetch(orders, index);
  uint32_t *bucket = bucket_of(orders, id);
  *fetch = (struct fetch){.generation = fetch->generation, .id = id, .hash_next = *bucket};
  *bucket = index;
  return index;
}

void orders_free_fetch(struct ps_orders *orders, uint32_t index) {
  struct fetch *fetch = orders_fetch(orders, index);
  assert(fetch->heap_place == 0);
  uint32_t *place = bucket_of(orders, fetch->id);
  while (*place != index) {
    assert(*place != NONE);
    place = &orders_fetch(orders, *place)->hash_next;
  }
  *place = fetch->hash_next;
  uint32_t generation = (fetch->generation + 1) & COOKIE_GENERATIONS;
  *fetch = (struct fetch){.generation = generation, .next = orders->free};
  orders->free = index;
}

/* ---- by time ---- */

static uint64_t key(const struct ps_orders *orders, uint32_t place) {
  return orders_fetch(orders, orders->heap[place])->wake_ns;
}

static void put(struct ps_orders *orders, uint32_t place, uint32_t index) {
  orders->heap[place] = index;
  orders_fetch(orders, index)->heap_place = place;
}

static void swap(struct ps_orders *orders, uint32_t a, uint32_t b) {
  uint32_t index = orders->heap[a];
  put(orders, a, orders->heap[b]);
  put(orders, b, index);
}

static void settle(struct ps_orders *orders, uint32_t place) {
  assert(place >= 1 && place <= orders->heap_size);
  while (place > 1 && key(orders, place) < key(orders, place / 2)) {
    swap(orders, place, place / 2);
    place /= 2;
  }
  for (;;) {
    uint32_t child = place * 2;
    if (child > orders->heap_size) return;
    if (child < orders->heap_size && key(orders, child + 1) < key(orders, child)) child++;
    if (key(orders, place) <= key(orders, child)) return;
    swap(orders, place, child);
    place = child;
  }
}

void orders_wake_at(struct ps_orders *orders, uint32_t index, uint64_t wake_ns) {
  struct fetch *fetch = orders_fetch(orders, index);
  fetch->wake_ns = wake_ns;
  if (fetch->heap_place == 0) {
    assert(orders->heap_size < orders->config.fetches);
    put(orders, ++orders->heap_size, index);
  }
  settle(orders, fetch->heap_place);
}

void orders_wake_never(struct ps_orders *orders, uint32_t index) {
  struct fetch *fetch = orders_fetch(orders, index);
  uint32_t place = fetch->heap_place;
  if (place == 0) return;
  assert(orders->heap[place] == index);
  fetch->heap_place = 0;
  uint32_t last = orders->heap[orders->heap_size--];
  if (last == index) return;
  put(orders, place, last);
  settle(orders, place);
}
