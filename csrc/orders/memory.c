/* The shared memory. Each word of it is loaded once, into memory of our own, and looked at there:
 * between two looks the model may have changed it. */
#include <sys/mman.h>
#include <unistd.h>

#include "../sealed.h"
#include "internal.h"

enum { PAGE_BYTES = 4096 };

static_assert(sizeof(struct ps_order) == 64, "an order is a cache line");
static_assert(sizeof(struct ps_orders_header) == 192, "the header is three cache lines");
static_assert(offsetof(struct ps_orders_header, head) == 64, "head has a cache line of its own");
static_assert(offsetof(struct ps_orders_header, tail) == 128, "tail has a cache line of its own");

static void tell(uint64_t *place, uint64_t value) {
  __atomic_store_n(place, value, __ATOMIC_RELAXED);
}

static void tell_small(uint32_t *place, uint32_t value) {
  __atomic_store_n(place, value, __ATOMIC_RELAXED);
}

void orders_tell_header(struct ps_orders *orders) {
  assert(orders != NULL && orders->header != NULL);
  struct ps_orders_header *header = orders->header;
  size_t values_offset = (size_t)(orders->tables - (const uint8_t *)header);
  tell_small(&header->magic, PS_ORDERS_MAGIC);
  tell_small(&header->version, PS_ORDERS_VERSION);
  tell_small(&header->order_size, sizeof(struct ps_order));
  tell_small(&header->orders_offset, PAGE_BYTES);
  tell_small(&header->values_offset, (uint32_t)values_offset);
  tell_small(&header->table_bytes, sizeof orders->values);
  tell(&header->capacity, orders->config.capacity);
  tell_small(&header->frame_count, orders->frame_count);
  tell_small(&header->slot_size, orders->config.slot_size);
}

bool orders_memory_init(struct ps_orders *orders) {
  assert(orders != NULL && orders->header == NULL);
  size_t orders_bytes = (size_t)orders->config.capacity * sizeof(struct ps_order);
  size_t table_bytes = VALUES * sizeof(float);
  size_t values_offset = PAGE_BYTES + ((orders_bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1));
  if (values_offset > UINT32_MAX - 2 * table_bytes) return false;
  orders->memory_bytes = values_offset + 2 * table_bytes;
  orders->fd = sealed_memory("prestage-orders", orders->memory_bytes);
  if (orders->fd < 0) return false;
  uint8_t *memory =
      mmap(NULL, orders->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, orders->fd, 0);
  if (memory == MAP_FAILED) return false;
  orders->header = (struct ps_orders_header *)(void *)memory;
  orders->ring_orders = (struct ps_order *)(void *)(memory + PAGE_BYTES);
  orders->tables = memory + values_offset;
  orders_tell_header(orders);
  return true;
}

void orders_memory_free(struct ps_orders *orders) {
  assert(orders != NULL);
  if (orders->header != NULL) munmap(orders->header, orders->memory_bytes);
  if (orders->fd >= 0) close(orders->fd);
}

static void copy_words(void *to, const void *from, size_t size) {
  const uint64_t *words = from;
  assert(size % sizeof *words == 0);
  for (size_t i = 0; i < size / sizeof *words; i++) {
    uint64_t word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
    memcpy((uint8_t *)to + i * sizeof word, &word, sizeof word);
  }
}

void orders_copy(const struct ps_orders *orders, struct ps_order *order) {
  assert(orders != NULL && order != NULL);
  uint64_t tail = atomic_load_explicit(&orders->tail, memory_order_relaxed);
  copy_words(order, &orders->ring_orders[tail & (orders->config.capacity - 1)], sizeof *order);
}

void orders_copy_values(struct ps_orders *orders, uint32_t table) {
  assert(orders != NULL && table < 2);
  copy_words(orders->values, orders->tables + table * sizeof orders->values, sizeof orders->values);
}

void orders_pass(struct ps_orders *orders, uint64_t count) {
  assert(orders != NULL);
  uint64_t tail = atomic_load_explicit(&orders->tail, memory_order_relaxed) + count;
  atomic_store_explicit(&orders->tail, tail, memory_order_relaxed);
  /* The orders were copied before the model may write over them. */
  __atomic_store_n(&orders->header->tail, tail, __ATOMIC_RELEASE);
}

/* What media can move changes slowly, and there may be many. */
static void measure(struct ps_orders *orders, uint64_t now_ns) {
  if (orders->bandwidth_ns != 0 && now_ns - orders->bandwidth_ns < BANDWIDTH_NS) return;
  orders->bandwidth_ns = now_ns;
  orders->bandwidth = 0;
  for (uint32_t i = 0; i < orders->present_count; i++) {
    struct ps_sched_stats stats;
    ps_sched_get_stats(orders->volumes[orders->present[i]].sched, &stats);
    orders->bandwidth += stats.bandwidth;
  }
}

void orders_tell_gauges(struct ps_orders *orders, uint64_t now_ns) {
  assert(orders != NULL);
  struct ps_orders_header *header = orders->header;
  struct ps_tier_stats tier;
  ps_tier_get_stats(orders->tier, &tier);
  measure(orders, now_ns);
  tell(&header->refused, orders->stats.refused);
  tell(&header->now_ns, now_ns);
  tell(&header->bandwidth, orders->bandwidth);
  tell(&header->fetch_bytes, orders->waiting_bytes);
  tell_small(&header->fetches, orders->stats.pending);
  tell_small(&header->frames_free, tier.frames_free);
}
