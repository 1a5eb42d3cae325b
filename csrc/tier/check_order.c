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

uint32_t tier_run_length(const struct ps_tier *tier, uint32_t run) {
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

/* The run's coldest extent has the rank of a cell of the run, no younger than it was then, and has
 * another one when it is due. */
static int check_run(const struct ps_tier *tier, uint32_t number) {
  const struct order *order = tier->order;
  const struct run *run = &order->runs[number];
  uint32_t last = tier->extents[tier->config.extent_count + number].place_links.previous;
  bool is_empty = last >= tier->config.extent_count;
  if (is_empty) return run->is_shown ? 140 : 0;
  if (!run->is_shown || order->first_bins[number] != number % AGE_BINS) return 141;
  uint32_t base = number - number % AGE_BINS;
  if (order->first_bins[base + run->shown] != number % AGE_BINS) return 142;
  uint32_t rank = order->ranks[base + run->shown];
  if ((order->ready[rank / 64] >> rank % 64 & 1) == 0) return 143;
  uint32_t bin = tier_bin_of(tier, &tier->extents[last]);
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

/* 14x: the order of eviction. That no other run has an extent follows from how many there are. */
int tier_check_order(const struct ps_tier *tier) {
  const struct order *order = tier->order;
  uint32_t shown = 0, ready = 0;
  if (!tier_heap_is_sound(&order->due)) return 146;
  for (uint32_t i = 0; i < CELLS; i = tier_next_run(order, i)) {
    int failed = check_run(tier, i);
    if (failed != 0) return failed;
    shown += order->runs[i].is_shown;
  }
  for (uint32_t i = 0; i < CELLS / 64; i++) {
    ready += (uint32_t)__builtin_popcountll(order->ready[i]);
    if ((order->ready[i] != 0) != (order->ready_words >> i & 1)) return 149;
  }
  return shown == ready ? check_ranks(tier) : 149;
}
