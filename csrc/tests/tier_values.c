/* The model's value tables, and who is evicted: a naive look at all extents, which knows no lists.
 *
 * After each step the extents that may be evicted are noted. Those of them that are still there
 * after the next step, as they were, could have been evicted in it; so what was evicted in it (the
 * ring of facts says what) must not have been worth more than any of them. */
#include <sys/mman.h>

#include "ring.h"
#include "tier/order.h"
#include "tier_model.h"

enum { RING_FACTS = 256, MOST_EXTENTS = FRAMES + 10 };

static struct ps_ring *ring;
static struct ps_ring_header *header;
static float values[CELLS];

/* An extent that could be evicted after the last step. */
struct seen {
  uint64_t number;
  uint32_t volume, value_class, last_use, tenant;
  bool prestaged;
};
static struct seen seen[MOST_EXTENTS];
static uint32_t seen_count;
static uint64_t evictions; /* that the ring told of */

struct ps_ring *values_ring(void) {
  if (ring != NULL) return ring;
  ring = ps_ring_new(RING_FACTS);
  if (ring == NULL) model_fail("no ring", 0, 0);
  size_t size = 4096 + RING_FACTS * sizeof(struct ps_fact);
  header = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ps_ring_fd(ring), 0);
  if (header == MAP_FAILED) model_fail("no memory of the ring", size, 0);
  return ring;
}

/* ---- worth ---- */

static uint64_t age_of(uint64_t now_ns, uint32_t last_use) {
  uint64_t ticks = (uint32_t)(now_ns >> 20) - last_use;
  return (ticks << 20) + now_ns % (1 << 20);
}

static uint32_t bin_of(uint64_t age_ns) {
  uint32_t bin = 0;
  while (bin < 63) {
    uint64_t power_ns = (UINT64_C(1) << (bin + 1) / 2) * 1000000;
    if (age_ns < (bin % 2 == 0 ? power_ns + power_ns / 2 : power_ns)) break;
    bin++;
  }
  return bin;
}

static float worth(uint32_t value_class, uint64_t age_ns) {
  uint32_t bin = value_class == 1 ? 63 : bin_of(age_ns);
  float value = values[value_class * 64 + bin];
  return __builtin_isnan(value) ? 0 : value;
}

static float random_value(uint32_t kind, uint32_t value_class, uint32_t bin) {
  static const float odd[] = {0.0f, -0.0f, __builtin_nanf(""), -1.5f, __builtin_inff(), 3e38f};
  switch (kind) {
    case 0: /* least recently used */
      return (float)(63 - bin);
    case 1: /* few different ones */
      return (float)below(4);
    case 2: /* by class alone */
      return (float)(value_class * 7 % 5);
    case 3: /* wanted again after a time */
      return (float)((bin + value_class * 3) % 24);
    default:
      return chance(5) ? odd[below(6)] : (float)below(1u << 30) / 1e6f - 500;
  }
}

void change_values(void) {
  uint32_t kind = below(5);
  for (uint32_t i = 0; i < CELLS; i++) values[i] = random_value(kind, i / 64, i % 64);
  ps_tier_set_values(model.tier, values);
}

float some_worth(void) { return worth(below(12), (uint64_t)below(4000) * 1000000); }

void start_values(void) {
  seen_count = 0;
  evictions = 0;
  for (uint32_t i = 0; i < CELLS; i++) values[i] = random_value(0, i / 64, i % 64);
  if (chance(70)) change_values();
}

void classify(void) {
  struct command range = {.volume = below(model.volume_count)};
  if (!pick_range(&range)) return;
  uint32_t value_class = 8 + below(chance(80) ? 4 : 56), there = 0;
  uint64_t length = chance(20) ? UINT64_MAX : range.length;
  uint64_t age_ns = (uint64_t)below(chance(50) ? 50 : 5000) * 1000000;
  uint64_t last = model.sizes[range.volume] - 1;
  if (length - 1 < last - range.offset) last = range.offset + length - 1;
  for (uint64_t i = range.offset / SLOT; i <= last / SLOT; i++) {
    uint32_t index = tier_find(model.tier, range.volume, i);
    there += index != NONE && model.tier->extents[index].frame != NONE;
  }
  uint32_t count = ps_tier_classify(model.tier, model.now_ns, range.volume, range.offset, length,
                                    value_class, age_ns);
  if (count != there) model_fail("classified others than are there", count, there);
  for (uint64_t i = range.offset / SLOT; i <= last / SLOT; i++) {
    uint32_t index = tier_find(model.tier, range.volume, i);
    if (index == NONE || model.tier->extents[index].frame == NONE) continue;
    const struct extent *extent = &model.tier->extents[index];
    uint64_t now_age_ns = age_of(model.now_ns, extent->last_use);
    if (extent->value_class != value_class) model_fail("not the class", i, extent->value_class);
    uint64_t off_ns = now_age_ns > age_ns ? now_age_ns - age_ns : age_ns - now_age_ns;
    if (!extent->promised && off_ns >= 1 << 20) model_fail("not the age", now_age_ns, age_ns);
  }
}

/* ---- who is evicted ---- */

static bool is_as_seen(const struct seen *was, const struct extent *extent) {
  return extent->place == PLACE_EVICTABLE && !extent->kept &&
         extent->value_class == was->value_class && extent->last_use == was->last_use;
}

/* Whether what went was worth more than what could have gone instead: of those of the tenant alone
 * (not its unread ones) when a hint took it. */
static void check_victim(const struct ps_fact *fact, bool is_hint, uint16_t tenant) {
  float value = worth(fact->aux, fact->value);
  bool is_own = fact->tenant == tenant && (fact->flags & PS_FACT_UNREAD) == 0;
  if (is_hint && !is_own) return;
  for (uint32_t i = 0; i < seen_count; i++) {
    const struct seen *was = &seen[i];
    uint32_t index = tier_find(model.tier, was->volume, was->number);
    if (index == NONE || !is_as_seen(was, &model.tier->extents[index])) continue;
    if (is_hint && (was->tenant != tenant || was->prestaged)) continue;
    uint64_t age_ns = age_of(fact->time_ns, was->last_use);
    float other = worth(was->value_class, age_ns);
    if (other < value) model_fail("evicted what is worth more", fact->offset, was->number);
    if (!is_hint && other == value && age_ns > fact->value)
      model_fail("evicted what was used later", fact->offset, was->number);
  }
}

static void check_fact(const struct ps_fact *fact) {
  if (fact->kind != PS_FACT_EVICTED || fact->volume >= model.volume_count || fact->length == 0)
    model_fail("a fact that is none", fact->kind, fact->volume);
  for (uint32_t i = 0; i < seen_count; i++) {
    const struct seen *was = &seen[i];
    if (was->volume != fact->volume || was->number != fact->offset / SLOT) continue;
    bool is_same = was->value_class == fact->aux && was->tenant == fact->tenant &&
                   age_of(fact->time_ns, was->last_use) == fact->value &&
                   was->prestaged == ((fact->flags & PS_FACT_UNREAD) != 0);
    if (fact->aux != 5 && !is_same) model_fail("a fact of another", fact->offset, fact->aux);
  }
}

static void take_facts(const struct ps_tier_access *hint) {
  const struct ps_fact *facts = (const void *)((const uint8_t *)header + header->facts_offset);
  while (header->tail < header->head) {
    const struct ps_fact *fact = &facts[header->tail % RING_FACTS];
    evictions++;
    check_fact(fact);
    if (fact->aux != 5) check_victim(fact, hint != NULL, hint != NULL ? hint->tenant : 0);
    float value = worth(fact->aux, fact->value);
    bool is_speculative = hint != NULL && hint->urgency == PS_TIER_SPECULATIVE;
    bool is_dear = hint != NULL && (hint->value > 0 ? value >= hint->value : value > worth(0, 0));
    if (is_speculative && is_dear) model_fail("speculation did harm", fact->offset, fact->aux);
    header->tail++;
  }
}

void check_hint_evictions(const struct ps_tier_access *access) { take_facts(access); }

void check_evictions(void) {
  struct ps_tier_stats stats;
  take_facts(NULL);
  ps_tier_get_stats(model.tier, &stats);
  if (stats.evictions != evictions || header->lost != 0)
    model_fail("evictions that nobody was told of", stats.evictions, evictions);
  seen_count = 0;
  for (uint32_t i = 0; i < model.config.extent_count; i++) {
    const struct extent *extent = &model.tier->extents[i];
    if (!extent->tracked || extent->place != PLACE_EVICTABLE || extent->kept) continue;
    seen[seen_count++] = (struct seen){.number = extent->number,
                                       .volume = extent->volume,
                                       .value_class = extent->value_class,
                                       .last_use = extent->last_use,
                                       .tenant = extent->tenant,
                                       .prestaged = extent->prestaged};
  }
}
