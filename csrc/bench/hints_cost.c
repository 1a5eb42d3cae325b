/* What hints cost: CPU time for each record that is taken, and memory, when the tables are full.
 *
 *   hints_cost [SETS_OR_SIGNATURES [INTENTS [SEED]]]     (defaults: 1000000 65536 1)
 *
 * One tenant for each 8192 intents. Every record is new, at a random place, in full pages of 4 KiB
 * (with their checks and checksums); its facts go into a ring that is emptied in between, not
 * counted. Sets are ordered, of four ranges of 64 KiB. Then as many again replace those that are
 * there, which is what a full table meets. CPU time is that of the thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../engine.h"
#include "../hints.h"

enum {
  SLOT = 65536,
  BLOCK_SHIFT = 12,
  RANGE_BLOCKS = 16,
  SET_RANGES = 4,
  TENANT_INTENTS = 8192,
  LEAVE_INTENTS = 64, /* as csrc/reactor */
  RING_FACTS = 65536
};
#define VOLUME_BYTES (UINT64_C(1) << 44)

struct cost {
  struct ps_tier *tier;
  struct ps_sched *sched;
  struct ps_ring *ring;
  struct ps_ring_header *header;
  struct ps_hints *hints;
  uint64_t state;
  uint64_t now_ns;
  uint64_t spent_ns;
  uint64_t taken, dropped;
  uint64_t sets, intents;
  uint32_t tenants;
};

static uint64_t draw(struct cost *cost) {
  cost->state += 0x9E3779B97F4A7C15u;
  uint64_t z = cost->state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void expect(bool is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "hints_cost: %s\n", what);
  exit(1);
}

static bool resolve(void *context, uint32_t subsystem, uint32_t nsid,
                    struct ps_hints_namespace *result) {
  (void)context;
  *result = (struct ps_hints_namespace){
      .volume = 0, .block_shift = BLOCK_SHIFT, .blocks = VOLUME_BYTES >> BLOCK_SHIFT};
  return subsystem == 0 && nsid == 1;
}

static void open_below(struct cost *cost) {
  struct ps_tier_config tier = {.frame_count = 1024,
                                .slot_size = SLOT,
                                .extent_count = 1024,
                                .dirty_limit = 512,
                                .volume_count = 1,
                                .tenant_count = cost->tenants,
                                .unsynced_age_ns = 1000000000,
                                .writeback_age_ns = 1000000000,
                                .retry_ns = 1000000};
  struct ps_sched_config sched = {.window = 32, .merge_bytes = 262144, .starvation_ns = 50000000};
  cost->tier = ps_tier_new(&tier);
  cost->sched = ps_sched_new(&sched);
  cost->ring = ps_ring_new(RING_FACTS);
  expect(cost->tier != NULL && cost->sched != NULL && cost->ring != NULL, "no memory");
  expect(ps_tier_volume_add(cost->tier, 0, VOLUME_BYTES, 1 << BLOCK_SHIFT) == 0, "no volume");
  size_t size = 4096 + RING_FACTS * sizeof(struct ps_fact);
  cost->header = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ps_ring_fd(cost->ring), 0);
  expect(cost->header != MAP_FAILED, "no ring");
}

static void open_hints(struct cost *cost) {
  struct ps_hints_config config = {.tenant_count = cost->tenants,
                                   .volume_count = 1,
                                   .subsystem_count = 1,
                                   .sets = cost->sets,
                                   .set_ranges = cost->sets * SET_RANGES,
                                   .signatures = cost->sets,
                                   .intents = cost->intents,
                                   .answer_pages = 64,
                                   .max_set_ranges = 4096,
                                   .max_ttl_ms = 3600000,
                                   .slot_size = SLOT,
                                   .piece_bytes = 262144,
                                   .part_items = 32,
                                   .follow_bytes = 1 << 20,
                                   .grace_ns = 100000000};
  config.budget = (struct ps_hints_budget){.sets = cost->sets,
                                           .set_ranges = cost->sets * SET_RANGES,
                                           .signatures = cost->sets,
                                           .intents = TENANT_INTENTS,
                                           .intent_bytes = UINT64_MAX,
                                           .tier_bytes = UINT64_C(64) << 20,
                                           .records_per_s = UINT64_MAX};
  cost->hints = ps_hints_new(&config, cost->tier, cost->ring, resolve, NULL);
  expect(cost->hints != NULL, "no hints");
  ps_hints_volume(cost->hints, cost->now_ns, 0, cost->sched);
}

static struct pax_range some_range(struct cost *cost) {
  uint64_t slots = VOLUME_BYTES / SLOT;
  return (struct pax_range){.slba = draw(cost) % slots * RANGE_BLOCKS, .nlb = RANGE_BLOCKS};
}

static uint32_t add_set(struct cost *cost, uint64_t number, uint8_t *at) {
  struct pax_set record = {.type = PAX_TYPE_SET,
                           .size = sizeof record + SET_RANGES * sizeof(struct pax_range),
                           .set_id = number + 1,
                           .op = PAX_SET_OP_DEFINE,
                           .flags = PAX_SET_FLAG_ORDERED,
                           .range_count = SET_RANGES,
                           .nsid = 1};
  memcpy(at, &record, sizeof record);
  for (uint32_t i = 0; i < SET_RANGES; i++) {
    struct pax_range range = some_range(cost);
    memcpy(at + sizeof record + i * sizeof range, &range, sizeof range);
  }
  return record.size;
}

/* A place of its own for each number, in no order: an odd factor permutes a power of two. */
static uint32_t add_signature(struct cost *cost, uint64_t number, uint8_t *at) {
  uint64_t slots = VOLUME_BYTES / SLOT;
  struct pax_signature record = {.type = PAX_TYPE_SIGNATURE,
                                 .size = sizeof record,
                                 .slba = number * 0x9E3779B97F4A7C15u % slots * RANGE_BLOCKS,
                                 .nlb = RANGE_BLOCKS,
                                 .nsid = 1,
                                 .bits = 128};
  uint64_t vector[2] = {draw(cost), draw(cost)};
  memcpy(record.vector, vector, sizeof record.vector);
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_intent(struct cost *cost, uint64_t number, uint8_t *at) {
  struct pax_intent record = {.type = PAX_TYPE_INTENT,
                              .size = sizeof record + sizeof(struct pax_range),
                              .intent_id = number + 1,
                              .session = 1 + number / 16,
                              .deadline_us = 1000000 + (uint32_t)(draw(cost) % 1000000000),
                              .nsid = 1,
                              .range_count = 1,
                              .priority = (uint8_t)(number % PAX_PRIORITIES),
                              .flags = PAX_INTENT_FLAG_LATE_OK};
  struct pax_range range = some_range(cost);
  memcpy(at, &record, sizeof record);
  memcpy(at + sizeof record, &range, sizeof range);
  return record.size;
}

typedef uint32_t (*adder)(struct cost *cost, uint64_t number, uint8_t *at);

static uint64_t cpu_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void submit(struct cost *cost, uint32_t tenant, uint8_t *page, uint32_t size,
                   uint32_t records) {
  struct pax_batch header = {.magic = PAX_MAGIC_BATCH,
                             .major = PAX_MAJOR,
                             .header_size = sizeof header,
                             .size = size,
                             .record_count = (uint16_t)records};
  memcpy(page, &header, sizeof header);
  header.crc32c = ps_crc32c(page, size);
  memcpy(page, &header, sizeof header);
  struct ps_hints_scope scope = {.tenant = (uint16_t)tenant};
  struct ps_hints_result result;
  uint64_t start_ns = cpu_ns();
  ps_hints_submit(cost->hints, cost->now_ns, &scope, 0, page, size, &result);
  cost->spent_ns += cpu_ns() - start_ns;
  expect(result.fault == 0, "a batch is malformed");
  cost->taken += result.accepted;
  cost->dropped += result.dropped;
  cost->now_ns += 1000;
  cost->header->tail = cost->header->head;
}

static uint64_t resident_bytes(void) {
  char line[128];
  FILE *file = fopen("/proc/self/statm", "r");
  expect(file != NULL && fgets(line, sizeof line, file) != NULL, "no /proc/self/statm");
  fclose(file);
  const char *second = strchr(line, ' ');
  expect(second != NULL, "no second number in /proc/self/statm");
  return strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void measure(struct cost *cost, const char *what, adder add, uint64_t count,
                    uint64_t per_tenant) {
  uint8_t page[PAX_PAGE_BYTES];
  uint64_t before = resident_bytes();
  cost->spent_ns = 0;
  cost->taken = 0;
  cost->dropped = 0;
  for (uint64_t number = 0; number < count;) {
    uint32_t size = sizeof(struct pax_batch);
    uint32_t records = 0;
    uint32_t tenant = (uint32_t)(number / per_tenant);
    memset(page, 0, sizeof page);
    while (number < count && number / per_tenant == tenant && size + 128 <= sizeof page) {
      size += add(cost, number++, page + size);
      records++;
    }
    submit(cost, tenant, page, size, records);
  }
  printf("%-32s %8llu taken, %llu dropped: %6.0f ns of CPU a record, %7.1f MiB more resident\n",
         what, (unsigned long long)cost->taken, (unsigned long long)cost->dropped,
         (double)cost->spent_ns / (double)count, (double)(resident_bytes() - before) / (1 << 20));
}

static void report(const struct cost *cost, const char *what) {
  struct ps_hints_stats stats;
  ps_hints_get_stats(cost->hints, &stats);
  printf("%s: %llu sets of %llu ranges, %llu signatures, %llu intents in %.1f MiB (%llu bytes)\n",
         what, (unsigned long long)stats.sets, (unsigned long long)stats.set_ranges,
         (unsigned long long)stats.signatures, (unsigned long long)stats.intents,
         (double)stats.memory_bytes / (1 << 20), (unsigned long long)stats.memory_bytes);
}

/* The volume goes, as a target takes it away: a few intents each time that it holds its lock. */
static void remove_volume(struct cost *cost, const char *what) {
  uint64_t all_ns = 0;
  uint64_t most_ns = 0;
  for (bool is_left = true; is_left;) {
    uint64_t start_ns = cpu_ns();
    is_left = !ps_hints_leave(cost->hints, cost->now_ns, 0, LEAVE_INTENTS);
    if (!is_left) ps_hints_volume(cost->hints, cost->now_ns, 0, NULL);
    uint64_t spent_ns = cpu_ns() - start_ns;
    all_ns += spent_ns;
    if (spent_ns > most_ns) most_ns = spent_ns;
    cost->header->tail = cost->header->head;
  }
  printf("%s: the volume goes in %.0f us, of which %.0f us at most at once\n", what,
         (double)all_ns / 1000, (double)most_ns / 1000);
}

/* The tables with one kind of record in them, and nothing else. */
static void run(struct cost *cost, const char *what, adder add, uint64_t count,
                uint64_t per_tenant) {
  char again[64];
  open_below(cost);
  open_hints(cost);
  snprintf(again, sizeof again, "%s again", what);
  measure(cost, what, add, count, per_tenant);
  measure(cost, again, add, count, per_tenant);
  report(cost, what);
  remove_volume(cost, what);
  ps_hints_free(cost->hints);
  ps_sched_free(cost->sched);
  ps_tier_free(cost->tier);
  munmap(cost->header, 4096 + RING_FACTS * sizeof(struct ps_fact));
  ps_ring_free(cost->ring);
}

int main(int count, char **arguments) {
  static struct cost cost;
  cost.sets = count > 1 ? strtoull(arguments[1], NULL, 0) : 1000000;
  cost.intents = count > 2 ? strtoull(arguments[2], NULL, 0) : 65536;
  cost.state = count > 3 ? strtoull(arguments[3], NULL, 0) : 1;
  expect(cost.sets > 0 && cost.intents > 0, "usage: hints_cost [SETS [INTENTS [SEED]]]");
  cost.tenants = (uint32_t)((cost.intents + TENANT_INTENTS - 1) / TENANT_INTENTS);
  cost.now_ns = 1000000000;
  run(&cost, "signature", add_signature, cost.sets, cost.sets);
  run(&cost, "ordered set of 4 ranges", add_set, cost.sets, cost.sets);
  run(&cost, "intent", add_intent, cost.intents, TENANT_INTENTS);
  return 0;
}
