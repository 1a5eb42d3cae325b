/* The ring of facts between two threads: every fact that was put comes out once, in order and
 * whole, what found no room was counted, and a consumer that sleeps is woken for what it waits for.
 *
 *   ring_stress [SEED [FACTS]]
 *
 * Prints the seed; exit status 1 and a line to standard error on the first difference. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ring.h"

#define ROUNDS 5
#define PATIENCE_S 60

static uint64_t random_state;
static uint64_t fact_count = 200000;
static uint64_t lost; /* as the producer saw it */
static _Bool has_ended;
static sem_t wakes;

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
                          .queue = (uint32_t)number,
                          .kind = number % 8 == 0 ? PS_FACT_SET : PS_FACT_READ};
}

static bool is_of_hints(uint64_t number) { return fact_of(number).kind == PS_FACT_SET; }

/* When somebody who is waited for has come too late. */
static struct timespec too_late(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  time.tv_sec += PATIENCE_S;
  return time;
}

/* Nothing more comes until the consumer has taken the last fact of a hint: should it sleep, it must
 * have been woken. */
static void wait_for_consumer(const struct ps_ring_header *header, uint64_t last) {
  struct timespec end = too_late(), now;
  while (__atomic_load_n(&header->tail, __ATOMIC_ACQUIRE) <= last) {
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec > end.tv_sec) fail("a wake-up was lost", last);
    sched_yield();
  }
}

struct producer {
  struct ps_ring *ring;
  const struct ps_ring_header *header;
};

static void *produce(void *argument) {
  const struct producer *producer = argument;
  struct ps_ring *ring = producer->ring;
  uint64_t number = 0, tried = 0;
  while (number < fact_count) {
    uint32_t together = 1 + (uint32_t)draw(4);
    tried += together;
    if (!ps_ring_has_room(ring, together)) {
      ps_ring_lose(ring, together);
      if (ps_ring_must_wake(ring)) sem_post(&wakes);
      continue;
    }
    uint64_t last = UINT64_MAX;
    for (uint32_t i = 0; i < together; i++) {
      struct ps_fact fact = fact_of(number);
      if (is_of_hints(number)) last = number;
      number++;
      if (!ps_ring_put(ring, &fact)) fail("no room although there was", number);
    }
    if (ps_ring_must_wake(ring)) sem_post(&wakes);
    if (last != UINT64_MAX && draw(4) == 0) wait_for_consumer(producer->header, last);
  }
  lost = tried - number;
  __atomic_store_n(&has_ended, 1, __ATOMIC_RELEASE);
  sem_post(&wakes);
  return NULL;
}

/* The consumer's own, so that each of both threads draws what its seed says. */
static uint64_t turn;

/* Sleeps for all facts, or for those of hints. What is there already needs no sleep. */
static void sleep_for_facts(struct ps_ring_header *header, uint64_t tail) {
  bool is_for_all = turn++ % 2 == 0;
  uint64_t waits = is_for_all ? PS_RING_WAITS_ALL : PS_RING_WAITS_HINTS;
  struct timespec end = too_late();
  __atomic_store_n(&header->waits, waits, __ATOMIC_SEQ_CST);
  uint64_t head = __atomic_load_n(&header->head, __ATOMIC_SEQ_CST);
  for (; tail < head; tail++) {
    if (is_for_all || is_of_hints(tail)) return;
  }
  if (__atomic_load_n(&has_ended, __ATOMIC_ACQUIRE)) return;
  while (sem_timedwait(&wakes, &end) != 0) {
    if (errno != EINTR) fail("nobody woke the consumer", head);
  }
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
    sleep_for_facts(header, tail);
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
  if (sem_init(&wakes, 0, 0) != 0) fail("no semaphore", 0);
  struct producer argument = {.ring = ring, .header = header};
  if (pthread_create(&producer, NULL, produce, &argument) != 0) fail("no thread", 0);
  uint64_t taken = consume(header);
  pthread_join(producer, NULL);
  if (taken < fact_count || taken > fact_count + 3) fail("facts taken", taken);
  if (header->lost != lost) fail("facts counted as lost", header->lost);
  sem_destroy(&wakes);
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
