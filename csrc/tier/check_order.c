/* The invariants of the order of eviction, and of the heaps, for tests. */
#include "order.h"

bool tier_heap_is_sound(const struct heap *heap) {
  for (uint32_t i = 0; i < heap->length; i++) {
    const struct heap_entry *entry = &heap->entries[i], *parent = &heap->entries[(i - 1) / 2];
    if (tier_heap_entry(heap, entry->item) != entry) return false;
    if (i == 0 || parent->key < entry->key) continue;
    if (parent->key > entry->key || parent->rank > entry->rank) return false;
  }
  return true;
}

/* How many extents are in the run; UINT32_MAX when its list is broken. */
static uint32_t run_length(const struct ps_tier *tier, uint32_t run) {
  uint32_t anchor = tier->config.extent_count + run, length = 0, previous = anchor;
  for (uint32_t i = tier->extents[anchor].place_links.next; i != anchor;
       i = tier->extents[i].place_links.next) {
    const struct extent *extent = &tier->extents[i];
    if (i >= tier->config.extent_count || length == tier->config.extent_count) return UINT32_MAX;
    if (extent->place_links.previous != previous || extent->kept) return UINT32_MAX;
    if (extent->place != PLACE_EVICTABLE || extent->value_class != run / AGE_BINS)
      return UINT32_MAX;
    previous = i;
    length++;
  }
  return tier->extents[anchor].place_links.previous == previous ? length : UINT32_MAX;
}

/* The coldest extent of the run is in the cell of this rank, or was in it before it was due. */
static int check_run(const struct ps_tier *tier, uint32_t rank) {
  const struct order *order = tier->order;
  uint32_t cell = order->cells[rank], base = cell / AGE_BINS * AGE_BINS;
  uint32_t number = base + order->first_bins[cell];
  const struct run *run = &order->runs[number];
  if (!run->is_shown || base + run->shown != cell) return 141;
  if (order->first_bins[number] != number % AGE_BINS || run->shown > run->last_bin) return 142;
  if (run_length(tier, number) == 0) return 143;
  uint32_t bin = tier_bin_of(tier, &tier->extents[tier_order_coldest(tier, rank)]);
  if (bin > run->last_bin) bin = run->last_bin + 1u;
  if (run->shown > bin) return 144;
  bool is_due = run->is_due && tier_heap_entry(&order->due, number)->key <= tier->now_ns;
  return run->shown < bin && !is_due ? 145 : 0;
}

/* What changes with tables alone, of a 64th of the cells: another with each change. */
static int check_ranks(const struct ps_tier *tier) {
  const struct order *order = tier->order;
  uint32_t first = (uint32_t)(tier->sequence % CLASS_COUNT) * AGE_BINS;
  for (uint32_t i = first; i < first + AGE_BINS; i++) {
    if (order->ranks[order->cells[i]] != i) return 147;
    if (i > 0 && order->values[order->cells[i]] < order->values[order->cells[i - 1]]) return 147;
    bool goes_on = i > first && order->first_bins[i] == order->first_bins[i - 1];
    if (goes_on && order->values[i] > order->values[i - 1]) return 148;
  }
  return 0;
}

/* 14x: the order of eviction. */
int tier_check_order(const struct ps_tier *tier) {
  const struct order *order = tier->order;
  if (!tier_heap_is_sound(&order->due)) return 146;
  for (uint32_t i = 0; i < CELLS / 64; i++) {
    if ((order->ready[i] != 0) != (order->ready_words >> i & 1)) return 149;
  }
  for (uint32_t i = tier_order_next(tier, 0); i != NONE; i = tier_order_next(tier, i + 1)) {
    int failed = check_run(tier, i);
    if (failed != 0) return failed;
  }
  return check_ranks(tier);
}

uint32_t tier_order_length(const struct ps_tier *tier) {
  const struct order *order = tier->order;
  uint32_t length = 0;
  for (uint32_t i = tier_order_next(tier, 0); i != NONE; i = tier_order_next(tier, i + 1)) {
    uint32_t cell = order->cells[i];
    length += run_length(tier, cell / AGE_BINS * AGE_BINS + order->first_bins[cell]);
  }
  return length;
}
