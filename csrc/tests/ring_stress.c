/* The ring of facts between two threads: every fact that was put comes out once, in order and
 * whole, and what found no room was counted.
 *
 *   ring_stress [SEED [FACTS]]
 *
 * Prints the seed; exit status 1 and a line to standard error on the first difference. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ring.h"

#define ROUNDS 5

static uint64_t random_state;
static uint64_t fact_count = 200000;
static uint64_t lost; /* as the producer saw it */
static _Bool has_ended;

static uint64_t draw(uint64_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % below;
}

static void fail(const char *what, uint64_t number) {
  fprintf(stderr, "ring_stress: %s (%llu)\n", what, (unsigned long long)number);
  exit(1);
}

static struct ps_fact fact_of(uint64_t number) {
  return (struct ps_fact){.time_ns = number,
                          .offset = ~number,
                          .session = number * 3,
                          .value = number << 7,
                          .queue = (uint32_t)number};
}

static void *produce(void *argument) {
  struct ps_ring *ring = argument;
  uint64_t number = 0, tried = 0;
  while (number < fact_count) {
    uint32_t together = 1 + (uint32_t)draw(4);
    tried += together;
    if (!ps_ring_has_room(ring, together)) {
      ps_ring_lose(ring, together);
      continue;
    }
    for (uint32_t i = 0; i < together; i++) {
      struct ps_fact fact = fact_of(number++);
      if (!ps_ring_put(ring, &fact)) fail("no room although there was", number);
    }
  }
  lost = tried - number;
  __atomic_store_n(&has_ended, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* As a reader in another process: it has the memory alone. */
static uint64_t consume(struct ps_ring_header *header) {
  const struct ps_fact *facts = (const void *)((uint8_t *)header + header->facts_offset);
  uint64_t tail = 0;
  for (;;) {
    bool is_last = __atomic_load_n(&has_ended, __ATOMIC_ACQUIRE);
    uint64_t head = __atomic_load_n(&header->head, __ATOMIC_ACQUIRE);
    if (head - tail > header->capacity) fail("more than fits", head - tail);
    for (; tail < head; tail++) {
      struct ps_fact expected = fact_of(tail);
      if (memcmp(&facts[tail % header->capacity], &expected, sizeof expected) != 0)
        fail("another fact", tail);
    }
    __atomic_store_n(&header->tail, tail, __ATOMIC_RELEASE);
    if (is_last) return tail;
  }
}

static void run_round(uint64_t capacity) {
  struct ps_ring *ring = ps_ring_new(capacity);
  if (ring == NULL) fail("no ring", capacity);
  size_t size = 4096 + (size_t)capacity * sizeof(struct ps_fact);
  struct ps_ring_header *header =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ps_ring_fd(ring), 0);
  if (header == MAP_FAILED) fail("no memory", size);
  pthread_t producer;
  has_ended = 0;
  if (pthread_create(&producer, NULL, produce, ring) != 0) fail("no thread", 0);
  uint64_t taken = consume(header);
  pthread_join(producer, NULL);
  if (taken < fact_count || taken > fact_count + 3) fail("facts taken", taken);
  if (header->lost != lost) fail("facts counted as lost", header->lost);
  munmap(header, size);
  ps_ring_free(ring);
}

int main(int argc, char **argv) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time.tv_nsec;
  if (argc > 2) fact_count = strtoull(argv[2], NULL, 0);
  printf("ring_stress: seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  random_state = seed * 2 + 1;
  for (int i = 0; i < ROUNDS; i++) run_round(UINT64_C(4) << draw(10));
  return 0;
}
