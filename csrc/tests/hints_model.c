/* A model test of the hints: random batches of several tenants, reads, media that end in any order
 * and fail, volumes that go and come back, namespaces that are unmapped. After every step all
 * invariants hold; at the end of a run nothing is left, and outcomes add up to intents.
 *
 *   hints_model SEED RUNS
 */
#include "hints_rig.h"

enum { STEPS = 400 };

static struct rig rig;

/* In parts: all invariants hold, and anything may happen, between them. */
static void submit_in_parts(const struct ps_hints_scope *scope, uint32_t mailbox,
                            const uint8_t *bytes, uint32_t size, struct ps_hints_result *result) {
  struct ps_hints_progress progress = {.at = 0};
  uint64_t mark = 0;
  for (;;) {
    uint32_t before = progress.number;
    uint32_t records = 1 + rig.below(&rig, 4);
    if (ps_hints_submit_some(rig.hints, rig.now_ns, scope, mailbox, bytes, size, records,
                             &progress)) {
      break;
    }
    bool went_on = progress.number > before || progress.mark != mark || progress.goes_on;
    RIG_CHECK(went_on && progress.number <= before + records);
    mark = progress.mark;
    if (progress.goes_on) rig.parts++;
    RIG_CHECK(ps_hints_check_all(rig.hints) == 0);
    if (rig_chance(&rig, 30)) rig_advance(&rig, 100000);
  }
  *result = progress.result;
}

static void submit(const struct ps_hints_scope *scope) {
  uint8_t bytes[PAX_PAGE_BYTES];
  struct ps_hints_result result;
  struct ps_hints_result checked;
  uint32_t size = rig_batch(&rig, bytes);
  if (rig_chance(&rig, 5)) {
    bytes[rig.below(&rig, size)] ^= (uint8_t)(1 + rig.below(&rig, 255));
    if (rig_chance(&rig, 50)) rig_seal(bytes);
  }
  ps_hints_check(bytes, size, PAX_MAX_BATCH_BYTES, &checked);
  uint32_t mailbox = rig.below(&rig, RIG_MAILBOXES + 1);
  if (mailbox == RIG_MAILBOXES) mailbox = PAX_MAILBOXES;
  if (rig_chance(&rig, 50)) {
    ps_hints_submit(rig.hints, rig.now_ns, scope, mailbox, bytes, size, &result);
  } else {
    submit_in_parts(scope, mailbox, bytes, size, &result);
  }
  RIG_CHECK(result.fault == checked.fault && result.fault_offset == checked.fault_offset);
  if (result.fault != 0) return;
  struct pax_batch header;
  memcpy(&header, bytes, sizeof header);
  RIG_CHECK(result.accepted + result.dropped + result.unknown == header.record_count);
}

/* A read as the data path does it: touched, done, told. */
static void read_something(const struct ps_hints_scope *scope) {
  uint32_t volume = rig.below(&rig, RIG_VOLUMES);
  if (!rig_is_up(&rig, volume)) return;
  uint64_t slots = rig.sizes[volume] / RIG_SLOT;
  static const uint8_t flags[] = {0,
                                  0,
                                  0,
                                  PS_FACT_READAHEAD,
                                  PS_FACT_ONCE,
                                  PS_FACT_SEQUENTIAL,
                                  PS_FACT_DATED,
                                  PS_FACT_DATED | PS_FACT_HIT};
  struct ps_hints_read read = {.offset = rig.below(&rig, (uint32_t)slots) * (uint64_t)RIG_SLOT,
                               .length = RIG_BLOCK * (1 + rig.below(&rig, 32)),
                               .volume_bytes = rig.sizes[volume],
                               .session = rig.below(&rig, 3),
                               .volume = volume,
                               .deadline_us = rig.below(&rig, 1000),
                               .flags = flags[rig.below(&rig, sizeof flags)],
                               .priority = (uint8_t)rig.below(&rig, PAX_PRIORITIES)};
  uint64_t arrived_ns = rig.now_ns;
  ps_hints_touch(rig.hints, rig.now_ns, scope, &read);
  rig_read(&rig, scope->tenant, volume, read.offset, (uint32_t)read.length);
  if (rig_chance(&rig, 50)) rig_advance(&rig, 100000);
  ps_hints_read_seen(rig.hints, scope, &read, arrived_ns);
  ps_hints_read_ended(rig.hints, rig.now_ns, scope, &read, arrived_ns, rig_chance(&rig, 10));
}

static void say_dataset(const struct ps_hints_scope *scope) {
  struct {
    uint32_t attributes, nlb;
    uint64_t slba;
  } ranges[4];
  uint32_t count = 1 + rig.below(&rig, 4);
  for (uint32_t i = 0; i < count; i++) {
    ranges[i].attributes = 0;
    ranges[i].nlb = rig.below(&rig, 100);
    ranges[i].slba = rig.below(&rig, 5000);
  }
  uint32_t nsid = 1 + rig.below(&rig, RIG_VOLUMES);
  ps_hints_dataset(rig.hints, rig.now_ns, scope, nsid, (const uint8_t *)ranges, count);
}

static void change_something(const struct ps_hints_scope *scope) {
  struct ps_hints_budget budget = {.sets = rig.below(&rig, 20),
                                   .set_ranges = rig.below(&rig, 100),
                                   .signatures = rig.below(&rig, 20),
                                   .intents = rig.below(&rig, 12),
                                   .intent_bytes = UINT64_C(4) << 20,
                                   .tier_bytes = rig.below(&rig, RIG_FRAMES) * RIG_SLOT,
                                   .records_per_s = 1 + rig.below(&rig, 10000)};
  uint32_t volume = rig.below(&rig, RIG_VOLUMES);
  bool *is_unmapped = &rig.is_unmapped[scope->subsystem][volume];
  switch (rig.below(&rig, 4)) {
    case 0:
      rig_turn_volume(&rig, volume);
      return;
    case 1:
      *is_unmapped = !*is_unmapped;
      return;
    case 2:
      rig.error_percent = rig_chance(&rig, 70) ? 0 : rig.below(&rig, 30);
      return;
    default:
      /* A smaller budget takes nothing away, so that its limit may be below what is used. */
      ps_hints_set_budget(rig.hints, RIG_TENANTS - 1, rig_chance(&rig, 50) ? NULL : &budget);
  }
}

/* What is away comes back soon. */
static void restore_something(void) {
  uint32_t volume = rig.below(&rig, RIG_VOLUMES);
  uint32_t subsystem = rig.below(&rig, RIG_SUBSYSTEMS);
  if (rig_chance(&rig, 30)) rig.is_unmapped[subsystem][volume] = false;
  if (rig.sizes[volume] == 0 && rig_chance(&rig, 50)) rig_turn_volume(&rig, volume);
}

static void step(void) {
  uint16_t tenant = (uint16_t)rig.below(&rig, RIG_TENANTS);
  struct ps_hints_scope scope = rig_scope(tenant, rig_chance(&rig, 90) ? 0 : 1);
  uint32_t what = rig.below(&rig, 100);
  if (what < 30) {
    submit(&scope);
  } else if (what < 50) {
    read_something(&scope);
  } else if (what < 54) {
    say_dataset(&scope);
  } else if (what < 56) {
    change_something(&scope);
  } else if (what < 66 && tenant != RIG_TENANTS - 1) {
    rig_look(&rig, &scope);
  } else {
    rig_advance(&rig, 1 + rig.below(&rig, 5000000));
  }
  restore_something();
  rig_pump(&rig);
  int bad = ps_hints_check_all(rig.hints);
  if (bad != 0) fprintf(stderr, "invariant %d does not hold\n", bad);
  RIG_CHECK(bad == 0);
  RIG_CHECK(ps_tier_check(rig.tier) == 0);
}

static void cancel_everything(uint16_t tenant) {
  uint8_t bytes[sizeof(struct pax_batch) + sizeof(struct pax_cancel)];
  struct pax_batch header = {.magic = PAX_MAGIC_BATCH,
                             .major = PAX_MAJOR,
                             .header_size = sizeof header,
                             .size = sizeof bytes,
                             .record_count = 1};
  struct pax_cancel record = {
      .type = PAX_TYPE_CANCEL, .size = sizeof record, .what = PAX_CANCEL_WHAT_EVERYTHING};
  memcpy(bytes, &header, sizeof header);
  memcpy(bytes + sizeof header, &record, sizeof record);
  rig_seal(bytes);
  struct ps_hints_scope scope = rig_scope(tenant, 0);
  struct ps_hints_result result;
  ps_hints_set_budget(rig.hints, tenant, NULL);
  ps_hints_submit(rig.hints, rig.now_ns, &scope, PAX_MAILBOXES, bytes, sizeof bytes, &result);
  RIG_CHECK(result.accepted == 1);
}

/* What each tenant was told adds up, and the ring heard of every end. */
static void check_sums(uint16_t tenant) {
  struct ps_hints_scope scope = rig_scope(tenant, 0);
  uint8_t page[PAX_PAGE_BYTES];
  struct pax_status status;
  ps_hints_status(rig.hints, rig.now_ns, &scope, page);
  memcpy(&status, page, sizeof status);
  uint64_t arrived = 0;
  uint64_t ended = 0;
  for (uint32_t i = 0; i < PAX_PRIORITIES; i++) {
    const struct pax_counts *counts = &status.intent_counts[i];
    RIG_CHECK(counts->pending == 0);
    arrived += counts->arrived;
    ended += counts->met + counts->late + counts->dropped + counts->cancelled;
    rig.met += counts->met;
    rig.late += counts->late;
    rig.dropped += counts->dropped;
    rig.cancelled += counts->cancelled;
    RIG_CHECK(status.read_counts[i].pending == 0);
  }
  RIG_CHECK(arrived == ended);
  RIG_CHECK(status.intents.used == 0 && status.intent_bytes.used == 0);
  RIG_CHECK(status.sets.used == 0 && status.set_ranges.used == 0);
  RIG_CHECK(status.signatures.used == 0 && rig.lost_facts == 0);
  RIG_CHECK(status.event_count == rig.outcome_facts[tenant] && status.event_count == ended);
}

static void finish(void) {
  rig.now_ns += 5000000000;
  rig_pump(&rig);
  for (uint32_t i = 0; i < RIG_TENANTS; i++) cancel_everything((uint16_t)i);
  rig_pump(&rig);
  for (uint32_t i = 0; i < RIG_TENANTS; i++) check_sums((uint16_t)i);
  struct ps_hints_stats stats;
  for (uint32_t i = 0; i < 100; i++) rig_advance(&rig, 10000000);
  ps_hints_get_stats(rig.hints, &stats);
  RIG_CHECK(stats.sets == 0 && stats.set_ranges == 0 && stats.signatures == 0);
  RIG_CHECK(stats.intents == 0 && ps_hints_check_all(rig.hints) == 0);
  RIG_CHECK(ps_hints_next_time(rig.hints) == UINT64_MAX);
}

static void run(uint64_t seed) {
  rig.state = seed;
  rig.error_percent = 0;
  rig_open(&rig);
  for (uint32_t i = 0; i < STEPS; i++) step();
  finish();
  rig_close(&rig);
}

int main(int count, char **arguments) {
  char *end[2] = {NULL, NULL};
  unsigned long seed = count == 3 ? strtoul(arguments[1], &end[0], 0) : 0;
  unsigned long runs = count == 3 ? strtoul(arguments[2], &end[1], 0) : 0;
  if (count != 3 || *end[0] != '\0' || *end[1] != '\0' || runs == 0) {
    fprintf(stderr, "usage: %s SEED RUNS (two numbers)\n", arguments[0]);
    return 2;
  }
  rig.below = rig_random;
  for (unsigned long i = 0; i < runs; i++) {
    rig_note_seed("hints_model", seed + i);
    run(seed + i);
  }
  printf(
      "%lu runs from seed %lu: %llu met, %llu late, %llu dropped, %llu cancelled, %llu follows, "
      "%llu parts\n",
      runs, seed, (unsigned long long)rig.met, (unsigned long long)rig.late,
      (unsigned long long)rig.dropped, (unsigned long long)rig.cancelled,
      (unsigned long long)rig.follows, (unsigned long long)rig.parts);
  return 0;
}
