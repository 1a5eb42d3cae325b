/* Mapped memory: pools of items numbered from 1 on, and hash tables of them. */
#include <sys/mman.h>

#include "internal.h"

/* Zeros that take memory only where they are written; NULL when there is no address space. Large
 * pages are asked for, because look-ups go all over a table; without them all is the same. */
void *hints_map(struct ps_hints *hints, uint64_t items, size_t size) {
  assert(hints != NULL && size > 0 && hints->map_count < MAPS);
  if (items == 0 || items > (UINT64_C(1) << 46) / size) return NULL;
  size_t bytes = (size_t)items * size;
  void *start =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return NULL;
  (void)madvise(start, bytes, MADV_HUGEPAGE);
  hints->maps[hints->map_count].start = start;
  hints->maps[hints->map_count++].size = bytes;
  return start;
}

bool hints_pool_init(struct ps_hints *hints, struct pool *pool, uint64_t count, size_t stride) {
  assert(pool != NULL && stride >= sizeof(uint32_t));
  if (count >= UINT32_MAX / CHUNK_RANGES) return false;
  pool->count = (uint32_t)count;
  pool->stride = stride;
  pool->items = hints_map(hints, count + 1, stride);
  return pool->items != NULL;
}

bool hints_table_init(struct ps_hints *hints, struct table *table, struct pool *pool, size_t link) {
  assert(table != NULL && pool != NULL && link + sizeof(uint32_t) <= pool->stride);
  uint32_t buckets = 16;
  while (buckets < pool->count && buckets < NODE_HEAD / 2) buckets *= 2;
  table->mask = buckets - 1;
  table->pool = pool;
  table->link = link;
  table->buckets = hints_map(hints, buckets, sizeof *table->buckets);
  hints->mapped_tables += buckets * sizeof *table->buckets;
  return table->buckets != NULL;
}

uint32_t hints_take(struct pool *pool) {
  assert(pool != NULL && pool->in_use <= pool->fresh);
  uint32_t index = pool->free;
  if (index != NONE) {
    memcpy(&pool->free, hints_item(pool, index), sizeof pool->free);
    memset(hints_item(pool, index), 0, sizeof pool->free);
  } else if (pool->fresh < pool->count) {
    index = ++pool->fresh;
  } else {
    return NONE;
  }
  pool->in_use++;
  return index;
}

/* What is not in use is zeros but for its link, so that a walk over the pool can tell. */
void hints_give(struct pool *pool, uint32_t index) {
  assert(pool != NULL && pool->in_use > 0);
  void *item = hints_item(pool, index);
  memset(item, 0, pool->stride);
  memcpy(item, &pool->free, sizeof pool->free);
  pool->free = index;
  pool->in_use--;
}

static uint32_t *link_of(const struct table *table, uint32_t index) {
  return (uint32_t *)(void *)((uint8_t *)hints_item(table->pool, index) + table->link);
}

void hints_table_add(struct table *table, uint64_t hash, uint32_t index) {
  assert(table != NULL && index != NONE);
  uint32_t *bucket = &table->buckets[hash & table->mask];
  *link_of(table, index) = *bucket;
  *bucket = index;
}

void hints_table_remove(struct table *table, uint64_t hash, uint32_t index) {
  assert(table != NULL && index != NONE);
  uint32_t *at = &table->buckets[hash & table->mask];
  while (*at != index) {
    assert(*at != NONE);
    at = link_of(table, *at);
  }
  *at = *link_of(table, index);
  *link_of(table, index) = NONE;
}
