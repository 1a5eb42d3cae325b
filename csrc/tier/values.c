/* The value tables: ages, bins of them, and what extents of a class are worth in each. */
#include "order.h"

/* Half of a millisecond, which no bin is smaller than. */
#define HALF_NS 500000u

/* ---- ages ---- */

/* Bin 2k begins at 2^k ms, bin 2k + 1 at 1.5 * 2^k ms: in halves of a millisecond, k and the bit
 * below the highest one make the number of the bin. */
uint32_t tier_age_bin(uint64_t age_ns) {
  uint64_t halves = age_ns / HALF_NS;
  if (halves < 2) return 0;
  uint32_t k = 62u - (uint32_t)__builtin_clzll(halves);
  uint32_t bin = 2 * k + ((halves >> k) & 1);
  return bin < AGE_BINS ? bin : AGE_BINS - 1;
}

uint64_t tier_bin_end_ns(uint32_t bin) {
  assert(bin < AGE_BINS);
  if (bin == AGE_BINS - 1) return UINT64_MAX;
  return ((UINT64_C(2) + ((bin + 1) & 1)) << (bin + 1) / 2) * HALF_NS;
}

uint64_t tier_age_ns(const struct ps_tier *tier, const struct extent *extent) {
  uint64_t ticks = tier_ticks(tier->now_ns) - extent->last_use;
  return ticks << TICK_SHIFT | (tier->now_ns & ((UINT64_C(1) << TICK_SHIFT) - 1));
}

/* What was read once and is not to be kept is as old as can be. */
uint32_t tier_bin_of(const struct ps_tier *tier, const struct extent *extent) {
  if (extent->value_class == CLASS_ONCE) return AGE_BINS - 1;
  if (extent->last_use == tier_ticks(tier->now_ns)) return 0; /* a tick or less: most are */
  return tier_age_bin(tier_age_ns(tier, extent));
}

float tier_value(const struct ps_tier *tier, const struct extent *extent) {
  return tier->order->values[extent->value_class * (uint32_t)AGE_BINS + tier_bin_of(tier, extent)];
}

/* ---- tables ---- */

/* A cut stays for some tables more than need it: one that comes and goes would cost more. */
static void set_cuts(struct order *order) {
  for (uint32_t i = 0; i < CELLS; i++) {
    bool is_rise = i % AGE_BINS != 0 && order->values[i] > order->values[i - 1];
    if (is_rise) {
      order->cuts[i] = CUT_TABLES;
    } else if (order->cuts[i] > 0) {
      order->cuts[i]--;
    }
  }
}

/* Of numbers the bits that are in the same order as they, as unsigned integers. */
static uint32_t key_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits & UINT32_C(1) << 31 ? ~bits : bits | UINT32_C(1) << 31;
}

/* By radix, a byte after the other, which leaves what is equal in its order. */
static void sort_cells(struct order *order) {
  for (uint32_t i = 0; i < CELLS; i++) {
    order->keys[0][i] = (uint64_t)key_of(order->values[i]) << 32 | i;
  }
  for (uint32_t pass = 0; pass < 4; pass++) {
    const uint64_t *from = order->keys[pass & 1];
    uint64_t *to = order->keys[(pass & 1) ^ 1];
    uint32_t starts[257] = {0}, shift = 32 + 8 * pass;
    for (uint32_t i = 0; i < CELLS; i++) starts[(from[i] >> shift & 255) + 1]++;
    for (uint32_t i = 0; i < 256; i++) starts[i + 1] += starts[i];
    for (uint32_t i = 0; i < CELLS; i++) to[starts[from[i] >> shift & 255]++] = from[i];
  }
  for (uint32_t i = 0; i < CELLS; i++) order->cells[i] = (uint16_t)order->keys[0][i];
}

static void use_values(struct ps_tier *tier) {
  set_cuts(tier->order);
  sort_cells(tier->order);
  tier_order_renew(tier);
}

void ps_tier_set_values(struct ps_tier *tier, const float *values) {
  assert(tier != NULL && values != NULL);
  tier_order_age(tier); /* so that runs that join are in order */
  for (uint32_t i = 0; i < CELLS; i++) {
    /* Zero has a sign, too. */
    tier->order->values[i] = __builtin_isnan(values[i]) || values[i] == 0 ? 0 : values[i];
  }
  use_values(tier);
}

/* Least recently used: the older the bin, the less it is worth, whatever the class. */
void tier_values_init(struct ps_tier *tier) {
  for (uint32_t i = 0; i < CELLS; i++) {
    tier->order->values[i] = (float)(AGE_BINS - 1 - i % AGE_BINS);
  }
  use_values(tier);
}

/* ---- the model's classes ---- */

/* Ages are counted in ticks of 32 bits: what is older than three quarters of them was used then. */
uint32_t tier_use_before(const struct ps_tier *tier, uint64_t age_ns) {
  uint64_t ticks = age_ns >> TICK_SHIFT;
  uint32_t most = UINT32_C(3) << 30;
  return tier_ticks(tier->now_ns) - (ticks < most ? (uint32_t)ticks : most);
}

static void classify(struct ps_tier *tier, uint32_t index, uint32_t value_class, uint64_t age_ns) {
  struct extent *extent = &tier->extents[index];
  /* Promises are kept for a time from the last use; and the reader for whom it is comes soon. */
  bool is_promised = extent->place == PLACE_PROMISED;
  if (extent->place == PLACE_EVICTABLE) tier_unplace(tier, index);
  extent->value_class = value_class & (CLASS_COUNT - 1);
  if (!is_promised) extent->last_use = tier_use_before(tier, age_ns);
  tier_settle(tier, index);
}

uint32_t ps_tier_classify(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                          uint64_t length, uint32_t value_class, uint64_t age_ns) {
  assert(tier != NULL && value_class >= OWN_CLASSES && value_class < CLASS_COUNT);
  tier_enter(tier, now_ns, NULL);
  if (volume >= tier->config.volume_count || !tier->volumes[volume].is_present) return 0;
  uint64_t size = tier->volumes[volume].size;
  if (offset >= size || length == 0) return 0;
  uint64_t end = length < size - offset ? offset + length : size;
  uint64_t first = offset >> tier->slot_shift, last = (end - 1) >> tier->slot_shift;
  if (last - first >= CLASSIFY_MOST) last = first + CLASSIFY_MOST - 1;
  uint32_t count = 0;
  for (uint64_t number = first; number <= last; number++) {
    uint32_t index = tier_find(tier, volume, number);
    if (index == NONE || tier->extents[index].frame == NONE) continue;
    classify(tier, index, value_class, age_ns);
    count++;
  }
  return count;
}
