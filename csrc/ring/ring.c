/* The ring of facts; see ring.h. What stands in the shared memory is told to the consumer and never
 * believed: the producer keeps its own count and sizes, for the consumer may write what it likes.
 */
#include "../ring.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../sealed.h"

enum { FACTS_OFFSET = 4096 };

static_assert(sizeof(struct ps_fact) == 64, "a fact is a cache line");
static_assert(offsetof(struct ps_ring_header, head) == 64, "head has a cache line of its own");
static_assert(offsetof(struct ps_ring_header, tail) == 128, "tail has a cache line of its own");
static_assert(sizeof(struct ps_ring_header) <= FACTS_OFFSET, "the header is before the facts");

struct ps_ring {
  int fd;
  struct ps_ring_header *header; /* shared */
  struct ps_fact *facts;         /* shared */
  uint64_t capacity;
  uint64_t head;
  uint64_t lost;
  /* Since the consumer was last looked after: */
  bool has_news;  /* facts were put in, or lost */
  bool has_hints; /* facts of hints were put in, or any lost: it should make room */
  size_t size;    /* of the memory, bytes */
};

/* What the consumer reads once. A consumer that still runs sees no other head than the one that
 * there is. */
static void begin(struct ps_ring *ring) {
  struct ps_ring_header *header = ring->header;
  assert(header != NULL);
  ring->facts = (struct ps_fact *)((uint8_t *)header + FACTS_OFFSET);
  header->magic = PS_RING_MAGIC;
  header->version = PS_RING_VERSION;
  header->fact_size = sizeof(struct ps_fact);
  header->facts_offset = FACTS_OFFSET;
  header->capacity = ring->capacity;
  __atomic_store_n(&header->waits, PS_RING_WAITS_NOT, __ATOMIC_RELAXED);
}

struct ps_ring *ps_ring_new(uint64_t capacity) {
  assert(capacity > 0 && (capacity & (capacity - 1)) == 0);
  if (capacity > (SIZE_MAX >> 1) / sizeof(struct ps_fact) - FACTS_OFFSET) return NULL;
  struct ps_ring *ring = calloc(1, sizeof *ring);
  if (ring == NULL) return NULL;
  ring->capacity = capacity;
  ring->size = FACTS_OFFSET + (size_t)capacity * sizeof(struct ps_fact);
  ring->fd = sealed_memory("prestage-facts", ring->size);
  if (ring->fd >= 0) {
    void *memory = mmap(NULL, ring->size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, 0);
    if (memory != MAP_FAILED) {
      ring->header = memory;
      begin(ring);
      return ring;
    }
    close(ring->fd);
  }
  free(ring);
  return NULL;
}

void ps_ring_free(struct ps_ring *ring) {
  if (ring == NULL) return;
  munmap(ring->header, ring->size);
  close(ring->fd);
  free(ring);
}

int ps_ring_fd(const struct ps_ring *ring) {
  assert(ring != NULL);
  return ring->fd;
}

/* None, should the consumer have written nonsense. */
static uint64_t room(const struct ps_ring *ring) {
  uint64_t used = ring->head - __atomic_load_n(&ring->header->tail, __ATOMIC_ACQUIRE);
  return used <= ring->capacity ? ring->capacity - used : 0;
}

void ps_ring_renew(struct ps_ring *ring) {
  assert(ring != NULL);
  struct ps_ring_header *header = ring->header;
  uint64_t tail = __atomic_load_n(&header->tail, __ATOMIC_ACQUIRE);
  if (tail > ring->head || ring->head - tail > ring->capacity) tail = ring->head;
  begin(ring);
  header->lost = ring->lost;
  __atomic_store_n(&header->tail, tail, __ATOMIC_RELEASE);
  __atomic_store_n(&header->head, ring->head, __ATOMIC_RELEASE);
}

bool ps_ring_has_room(struct ps_ring *ring, uint32_t count) {
  assert(ring != NULL);
  return room(ring) >= count;
}

void ps_ring_lose(struct ps_ring *ring, uint32_t count) {
  assert(ring != NULL);
  ring->lost += count;
  ring->has_news = true;
  ring->has_hints = true;
  __atomic_store_n(&ring->header->lost, ring->lost, __ATOMIC_RELAXED);
}

static bool is_of_hints(uint8_t kind) {
  return (kind >= PS_FACT_SET && kind <= PS_FACT_CANCEL) || kind == PS_FACT_UNMAPPED;
}

bool ps_ring_put(struct ps_ring *ring, const struct ps_fact *fact) {
  assert(ring != NULL && fact != NULL);
  if (room(ring) == 0) {
    ps_ring_lose(ring, 1);
    return false;
  }
  ring->facts[ring->head & (ring->capacity - 1)] = *fact;
  ring->head++;
  ring->has_news = true;
  ring->has_hints |= is_of_hints(fact->kind);
  /* The fact is there before the head that names it. */
  __atomic_store_n(&ring->header->head, ring->head, __ATOMIC_RELEASE);
  return true;
}

/* The consumer says that it waits and then looks at the head; the producer moves the head and then
 * looks who waits. Both in the one order that all sequentially consistent accesses have: so one of
 * them sees the other. The head is told once more for that, once for many facts. */
bool ps_ring_must_wake(struct ps_ring *ring) {
  assert(ring != NULL);
  if (!ring->has_news) return false;
  bool has_hints = ring->has_hints;
  ring->has_news = false;
  ring->has_hints = false;
  __atomic_exchange_n(&ring->header->head, ring->head, __ATOMIC_SEQ_CST);
  uint64_t waits = __atomic_load_n(&ring->header->waits, __ATOMIC_SEQ_CST);
  bool is_wanted = waits == PS_RING_WAITS_ALL || (waits == PS_RING_WAITS_HINTS && has_hints);
  if (is_wanted) __atomic_store_n(&ring->header->waits, PS_RING_WAITS_NOT, __ATOMIC_RELAXED);
  return is_wanted;
}
