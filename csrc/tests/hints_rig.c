/* See hints_rig.h. */
#include "hints_rig.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

static char seed_text[80];
static size_t seed_size;

static void tell(int number) {
  if (write(2, seed_text, seed_size) < 0) _exit(3);
  signal(number, SIG_DFL);
  raise(number);
}

void rig_note_seed(const char *program, unsigned long seed) {
  int size = snprintf(seed_text, sizeof seed_text, "%s: failed at seed %lu\n", program, seed);
  seed_size = (size_t)size;
  signal(SIGABRT, tell);
}

uint32_t rig_random(struct rig *rig, uint32_t bound) {
  RIG_CHECK(bound > 0);
  rig->state += 0x9E3779B97F4A7C15u;
  uint64_t z = rig->state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ (z >> 31)) % bound);
}

bool rig_is_up(const struct rig *rig, uint32_t volume) {
  return rig->sizes[volume] != 0 && !rig->is_leaving[volume];
}

/* Namespace n + 1 of each subsystem is volume n. */
static bool resolve(void *context, uint32_t subsystem, uint32_t nsid,
                    struct ps_hints_namespace *result) {
  const struct rig *rig = context;
  if (subsystem >= RIG_SUBSYSTEMS || nsid == 0 || nsid > RIG_VOLUMES) return false;
  uint32_t volume = nsid - 1;
  if (!rig_is_up(rig, volume) || rig->is_unmapped[subsystem][volume]) return false;
  *result = (struct ps_hints_namespace){.volume = volume,
                                        .block_shift = (uint32_t)__builtin_ctz(RIG_BLOCK),
                                        .blocks = rig->sizes[volume] / RIG_BLOCK};
  return true;
}

static void add_volume(struct rig *rig, uint32_t volume) {
  struct ps_sched_config config = {.window = 4, .merge_bytes = 262144, .starvation_ns = 50000000};
  /* The last extent of some volumes is not whole. */
  rig->sizes[volume] = (UINT64_C(2) << 20) + (volume == 1 ? 5 * RIG_BLOCK : 0);
  rig->scheds[volume] = ps_sched_new(&config);
  RIG_CHECK(rig->scheds[volume] != NULL);
  RIG_CHECK(ps_tier_volume_add(rig->tier, volume, rig->sizes[volume], RIG_BLOCK) == 0);
  ps_hints_volume(rig->hints, rig->now_ns, volume, rig->scheds[volume]);
}

static void open_tier(struct rig *rig) {
  struct ps_tier_config config = {.frame_count = RIG_FRAMES,
                                  .slot_size = RIG_SLOT,
                                  .extent_count = RIG_FRAMES * 2,
                                  .dirty_limit = RIG_FRAMES / 2,
                                  .volume_count = RIG_VOLUMES,
                                  .tenant_count = RIG_TENANTS,
                                  .unsynced_age_ns = 50000000,
                                  .writeback_age_ns = 50000000,
                                  .retry_ns = 1000000};
  rig->tier = ps_tier_new(&config);
  RIG_CHECK(rig->tier != NULL);
}

void rig_open(struct rig *rig) {
  struct ps_hints_budget budget = {.sets = 12,
                                   .set_ranges = 60,
                                   .signatures = 10,
                                   .intents = 8,
                                   .intent_bytes = 2 << 20,
                                   .tier_bytes = 16 * RIG_SLOT,
                                   .records_per_s = 200000};
  struct ps_hints_config config = {.tenant_count = RIG_TENANTS,
                                   .volume_count = RIG_VOLUMES,
                                   .subsystem_count = RIG_SUBSYSTEMS,
                                   .sets = 24,
                                   .set_ranges = 120,
                                   .signatures = 20,
                                   .intents = 16,
                                   .answer_pages = 4,
                                   .max_set_ranges = 24,
                                   .max_ttl_ms = 2000,
                                   .slot_size = RIG_SLOT,
                                   .piece_bytes = 4 * RIG_SLOT,
                                   .part_items = 2,
                                   .follow_bytes = 4 * RIG_SLOT,
                                   .grace_ns = 10000000,
                                   .budget = budget};
  rig->now_ns = 1000000000;
  rig->free_op = NULL;
  rig->ops_used = 0;
  for (uint32_t i = 0; i < RIG_OPS; i++) {
    rig->ops[i] = (struct rig_op){.next_free = rig->free_op};
    rig->free_op = &rig->ops[i];
  }
  open_tier(rig);
  rig->ring = ps_ring_new(RIG_FACTS);
  rig->hints = ps_hints_new(&config, rig->tier, rig->ring, resolve, rig);
  RIG_CHECK(rig->ring != NULL && rig->hints != NULL);
  memset(rig->outcome_facts, 0, sizeof rig->outcome_facts);
  memset(rig->is_unmapped, 0, sizeof rig->is_unmapped);
  for (uint32_t i = 0; i < RIG_VOLUMES; i++) add_volume(rig, i);
}

void rig_close(struct rig *rig) {
  struct ps_hints_stats stats;
  ps_hints_get_stats(rig->hints, &stats);
  rig->follows += stats.follows;
  ps_hints_free(rig->hints);
  ps_ring_free(rig->ring);
  ps_tier_free(rig->tier);
  for (uint32_t i = 0; i < RIG_VOLUMES; i++) {
    if (rig->sizes[i] != 0) ps_sched_free(rig->scheds[i]);
  }
}

struct ps_hints_scope rig_scope(uint16_t tenant, uint16_t subsystem) {
  return (struct ps_hints_scope){.tenant = tenant, .subsystem = subsystem, .queue = 7};
}

static void push_actions(struct rig *rig) {
  struct ps_tier_action action;
  while (rig->free_op != NULL &&
         ps_tier_next_action(rig->tier, rig->now_ns, PS_TIER_SPECULATIVE, &action)) {
    static const uint8_t classes[] = {PS_SCHED_DEMAND, PS_SCHED_DATED, PS_SCHED_SPECULATIVE};
    struct rig_op *op = rig->free_op;
    rig->free_op = op->next_free;
    bool is_read = action.op == PS_TIER_READ;
    *op =
        (struct rig_op){.cookie = action.cookie,
                        .ticket = action.ticket,
                        .volume = action.volume,
                        .is_used = true,
                        .item = {.deadline_ns = action.deadline_ns,
                                 .offset = action.offset,
                                 .length = action.length,
                                 .op = action.op,
                                 .sched_class = is_read ? classes[action.urgency] : PS_SCHED_WRITE,
                                 .priority = action.priority,
                                 .is_mergeable = is_read}};
    rig->ops_used++;
    ps_sched_push(rig->scheds[action.volume], rig->now_ns, &op->item);
  }
}

static struct rig_op *op_of(struct ps_sched_item *item) {
  return (struct rig_op *)(void *)((uint8_t *)item - offsetof(struct rig_op, item));
}

static void start_volume(struct rig *rig, uint32_t volume) {
  struct ps_sched *sched = rig->scheds[volume];
  for (uint32_t i = 0; i < 64; i++) {
    struct ps_sched_item *item = ps_sched_pop(sched, rig->now_ns);
    if (item != NULL) {
      op_of(item)->done_ns = rig->now_ns + 20000 + rig->below(rig, 2000000);
      continue;
    }
    struct ps_sched_job *job = ps_sched_next_job(sched, rig->now_ns);
    if (job == NULL) return;
    ps_hints_start_job(rig->hints, rig->now_ns, job);
    push_actions(rig);
  }
}

static void end_op(struct rig *rig, struct rig_op *first) {
  struct ps_sched_item *item = &first->item;
  ps_sched_done(rig->scheds[first->volume], rig->now_ns, item);
  while (item != NULL) {
    struct rig_op *op = op_of(item);
    item = item->merged;
    int32_t error = op->item.op == PS_TIER_READ && rig_chance(rig, rig->error_percent) ? 5 : 0;
    ps_tier_complete(rig->tier, rig->now_ns, op->ticket, error);
    if (op->cookie != 0) {
      ps_hints_fill_ended(rig->hints, rig->now_ns, op->cookie, op->item.length, error);
    }
    *op = (struct rig_op){.next_free = rig->free_op};
    rig->free_op = op;
    rig->ops_used--;
  }
}

static void end_due(struct rig *rig) {
  for (uint32_t i = 0; i < RIG_OPS; i++) {
    struct rig_op *op = &rig->ops[i];
    if (op->is_used && op->done_ns != 0 && op->done_ns <= rig->now_ns) end_op(rig, op);
  }
}

static bool has_ops(const struct rig *rig, uint32_t volume) {
  for (uint32_t i = 0; i < RIG_OPS; i++) {
    if (rig->ops[i].is_used && rig->ops[i].volume == volume) return true;
  }
  return false;
}

/* What is promised of facts: a head has all of its ranges behind it. */
static void take_facts(struct rig *rig) {
  size_t size = 4096 + RIG_FACTS * sizeof(struct ps_fact);
  int fd = ps_ring_fd(rig->ring);
  struct ps_ring_header *header = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  RIG_CHECK(header != MAP_FAILED);
  const struct ps_fact *facts = (const void *)((uint8_t *)header + header->facts_offset);
  uint32_t expected = 0;
  uint32_t number = 0;
  uint64_t id = 0;
  for (; header->tail < header->head; header->tail++) {
    const struct ps_fact *fact = &facts[header->tail % header->capacity];
    RIG_CHECK((fact->kind == PS_FACT_RANGE) == (expected > 0));
    if (fact->kind == PS_FACT_RANGE) {
      RIG_CHECK(fact->aux == number++ && fact->id == id && fact->length > 0);
      expected--;
      continue;
    }
    bool has_ranges =
        fact->kind == PS_FACT_SET || fact->kind == PS_FACT_INTENT || fact->kind == PS_FACT_RETAIN;
    expected = has_ranges ? fact->aux : 0;
    number = 0;
    id = fact->id;
    if (fact->kind == PS_FACT_OUTCOME) rig->outcome_facts[fact->tenant]++;
  }
  RIG_CHECK(expected == 0);
  rig->lost_facts = header->lost;
  munmap(header, size);
}

/* Its intents end a few at a time; true when the hints know nothing of it any more. */
static bool leave(struct rig *rig, uint32_t volume) {
  if (!ps_hints_leave(rig->hints, rig->now_ns, volume, 1 + rig->below(rig, 3))) return false;
  ps_hints_volume(rig->hints, rig->now_ns, volume, NULL);
  return true;
}

void rig_pump(struct rig *rig) {
  if (ps_hints_next_time(rig->hints) <= rig->now_ns) ps_hints_tick(rig->hints, rig->now_ns);
  end_due(rig);
  push_actions(rig);
  struct ps_tier_promotion promotion;
  while (ps_tier_next_promotion(rig->tier, &promotion)) {
  }
  while (ps_tier_next_woken(rig->tier) != NULL) {
  }
  while (ps_hints_next_volume(rig->hints) >= 0) {
  }
  for (uint32_t i = 0; i < RIG_VOLUMES; i++) {
    if (rig->sizes[i] == 0) continue;
    start_volume(rig, i);
    if (!rig->is_leaving[i] || !leave(rig, i) || has_ops(rig, i)) continue;
    RIG_CHECK(ps_tier_volume_remove(rig->tier, i) == 0);
    ps_sched_free(rig->scheds[i]);
    rig->sizes[i] = 0;
    rig->is_leaving[i] = false;
  }
  take_facts(rig);
}

void rig_advance(struct rig *rig, uint64_t most_ns) {
  uint64_t next_ns = rig->now_ns + most_ns;
  uint64_t time_ns = ps_hints_next_time(rig->hints);
  if (time_ns < next_ns) next_ns = time_ns;
  for (uint32_t i = 0; i < RIG_VOLUMES; i++) {
    if (rig->sizes[i] == 0) continue;
    time_ns = ps_sched_next_time(rig->scheds[i], rig->now_ns);
    if (time_ns < next_ns) next_ns = time_ns;
  }
  for (uint32_t i = 0; i < RIG_OPS; i++) {
    const struct rig_op *op = &rig->ops[i];
    if (op->is_used && op->done_ns != 0 && op->done_ns < next_ns) next_ns = op->done_ns;
  }
  rig->now_ns = next_ns > rig->now_ns ? next_ns : rig->now_ns + 1;
  rig_pump(rig);
}

void rig_read(struct rig *rig, uint16_t tenant, uint32_t volume, uint64_t offset, uint32_t length) {
  struct ps_tier_access access = {.deadline_ns = UINT64_MAX, .tenant = tenant};
  uint32_t frame;
  int result = ps_tier_read(rig->tier, rig->now_ns, volume, offset, length, &access, NULL, &frame);
  if (result == PS_TIER_DONE) ps_tier_release(rig->tier, rig->now_ns, frame);
}

void rig_turn_volume(struct rig *rig, uint32_t volume) {
  if (rig->sizes[volume] == 0) {
    add_volume(rig, volume);
  } else if (!rig->is_leaving[volume]) {
    rig->is_leaving[volume] = true;
  }
}
