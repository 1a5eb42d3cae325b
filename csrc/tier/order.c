/* The order of eviction: which of the extents that may be evicted is worth least.
 *
 * Values change by age alone between two tables, and an age passes from bin to bin. Moving each
 * extent from a list to the next at each bin would cost more than reading it. But where the value
 * of a class does not rise from one bin to the next, the colder of two extents is worth no more
 * than the warmer one. So the bins of a class are cut only where its value rises. Between two cuts
 * is a run, one list by last use, and of a run only the coldest extent matters: it is ranked by the
 * cell (class and bin) that it is in, in a bitmap over the cells in order of their values. With
 * values that never rise (LRU) a class is one run.
 *
 * What becomes older changes something only when the coldest extent of a run comes to another bin,
 * or leaves the run: `due` says for each run when that may be. Each search for what to evict first
 * does what is due, AGE_MOST steps at most; only after very much has become older at once, or got
 * another table, is it done over several of them, and some extents count as younger until then.
 */
#include "order.h"

#include <stdlib.h>

static uint32_t anchor_of(const struct ps_tier *tier, uint32_t run) {
  return tier->config.extent_count + run;
}

static struct links *links_of(const struct ps_tier *tier, uint32_t index) {
  return &tier->extents[index].place_links;
}

static bool is_anchor(const struct ps_tier *tier, uint32_t index) {
  return index >= tier->config.extent_count;
}

/* The coldest extent of a run, or its anchor. */
static uint32_t last_of(const struct ps_tier *tier, uint32_t run) {
  return links_of(tier, anchor_of(tier, run))->previous;
}

static bool is_empty(const struct ps_tier *tier, uint32_t run) {
  return is_anchor(tier, last_of(tier, run));
}

bool tier_order_init(struct ps_tier *tier) {
  struct order *order = calloc(1, sizeof(*order));
  tier->order = order;
  if (order == NULL) return false;
  for (uint32_t i = 0; i < CELLS; i++) {
    uint32_t anchor = anchor_of(tier, i);
    *links_of(tier, anchor) = (struct links){anchor, anchor};
  }
  tier_heap_init(&order->due, order->due_entries, &order->runs[0].due_place, sizeof(struct run));
  return true;
}

/* ---- ranks ---- */

static void hide(struct order *order, uint32_t run) {
  if (!order->runs[run].is_shown) return;
  uint32_t rank = order->ranks[run / AGE_BINS * AGE_BINS + order->runs[run].shown];
  uint64_t *word = &order->ready[rank / 64];
  *word &= ~(UINT64_C(1) << rank % 64);
  if (*word == 0) order->ready_words &= ~(UINT64_C(1) << rank / 64);
  order->runs[run].is_shown = false;
}

/* It is due then, or sooner. */
static void set_due(struct order *order, uint32_t run, uint64_t due_ns) {
  struct run *due = &order->runs[run];
  if (due->is_due && tier_heap_entry(&order->due, run)->key <= due_ns) return;
  if (due->is_due) tier_heap_remove(&order->due, run);
  due->is_due = true;
  tier_heap_add(&order->due, run, due_ns, 0);
}

/* The coldest extent of the run is another one, or older. One that is too old for the run counts as
 * of its last bin until it is moved. */
static void show(struct ps_tier *tier, uint32_t number) {
  struct order *order = tier->order;
  struct run *run = &order->runs[number];
  hide(order, number);
  uint32_t last = last_of(tier, number);
  if (is_anchor(tier, last)) return;
  uint32_t bin = tier_bin_of(tier, &tier->extents[last]);
  bool is_late = bin > run->last_bin;
  run->shown = is_late ? run->last_bin : (uint8_t)bin;
  run->is_shown = true;
  uint32_t rank = order->ranks[number / AGE_BINS * AGE_BINS + run->shown];
  order->ready[rank / 64] |= UINT64_C(1) << rank % 64;
  order->ready_words |= UINT64_C(1) << rank / 64;
  uint64_t end_ns = tier_bin_end_ns(bin);
  if (is_late) {
    set_due(order, number, tier->now_ns);
  } else if (end_ns != UINT64_MAX) {
    set_due(order, number, tier->now_ns + (end_ns - tier_age_ns(tier, &tier->extents[last])));
  }
}

uint32_t tier_order_next(const struct ps_tier *tier, uint32_t rank) {
  const struct order *order = tier->order;
  if (rank >= CELLS) return NONE;
  uint64_t here = order->ready[rank / 64] >> rank % 64;
  if (here != 0) return rank + (uint32_t)__builtin_ctzll(here);
  uint64_t words = rank / 64 == 63 ? 0 : order->ready_words >> (rank / 64 + 1);
  if (words == 0) return NONE;
  uint32_t word = rank / 64 + 1 + (uint32_t)__builtin_ctzll(words);
  return word * 64 + (uint32_t)__builtin_ctzll(order->ready[word]);
}

static uint32_t run_of(const struct order *order, uint32_t cell) {
  return cell / AGE_BINS * AGE_BINS + order->first_bins[cell];
}

uint32_t tier_order_coldest(const struct ps_tier *tier, uint32_t rank) {
  const struct order *order = tier->order;
  uint32_t last = last_of(tier, run_of(order, order->cells[rank]));
  assert(!is_anchor(tier, last));
  return last;
}

uint32_t tier_order_warmer(const struct ps_tier *tier, uint32_t index) {
  uint32_t warmer = links_of(tier, index)->previous;
  return is_anchor(tier, warmer) ? NONE : warmer;
}

uint32_t tier_order_least(const struct ps_tier *tier) {
  const struct order *order = tier->order;
  uint32_t rank = tier_order_next(tier, 0), now = tier_ticks(tier->now_ns);
  if (rank == NONE) return NONE;
  float least = order->values[order->cells[rank]];
  uint32_t best = tier_order_coldest(tier, rank);
  while ((rank = tier_order_next(tier, rank + 1)) != NONE) {
    if (order->values[order->cells[rank]] > least) break;
    uint32_t other = tier_order_coldest(tier, rank);
    if (now - tier->extents[other].last_use > now - tier->extents[best].last_use) best = other;
  }
  return best;
}

/* ---- runs ---- */

static void insert_after(struct ps_tier *tier, uint32_t index, uint32_t before) {
  struct links *links = links_of(tier, index);
  links->previous = before;
  links->next = links_of(tier, before)->next;
  links_of(tier, links->next)->previous = index;
  links_of(tier, before)->next = index;
}

/* What the extent belongs behind in the run: what was used after it. Most were used last of all, or
 * nearly so; else it is looked for from the end that is nearer, a few steps far. */
static uint32_t place_in(const struct ps_tier *tier, uint32_t run, uint32_t index) {
  uint32_t anchor = anchor_of(tier, run), now = tier_ticks(tier->now_ns);
  uint32_t age = now - tier->extents[index].last_use;
  uint32_t first = links_of(tier, anchor)->next, last = links_of(tier, anchor)->previous;
  if (first == anchor || now - tier->extents[first].last_use >= age) return anchor;
  uint32_t least = now - tier->extents[first].last_use, most = now - tier->extents[last].last_use;
  if (age > most) return last;
  uint32_t at = age - least < most - age ? first : last;
  if (at == first) {
    for (uint32_t steps = 0; steps < SORT_MOST && at != anchor; steps++) {
      if (now - tier->extents[at].last_use >= age) break;
      at = links_of(tier, at)->next;
    }
    return links_of(tier, at)->previous;
  }
  for (uint32_t steps = 0; steps < SORT_MOST && at != anchor; steps++) {
    if (now - tier->extents[at].last_use < age) break;
    at = links_of(tier, at)->previous;
  }
  return at;
}

void tier_order_add(struct ps_tier *tier, uint32_t index) {
  const struct extent *extent = &tier->extents[index];
  uint32_t bin = tier_bin_of(tier, extent);
  uint32_t run = run_of(tier->order, extent->value_class * (uint32_t)AGE_BINS + bin);
  insert_after(tier, index, place_in(tier, run, index));
  if (last_of(tier, run) == index) show(tier, run);
}

void tier_order_remove(struct ps_tier *tier, uint32_t index) {
  struct links *links = links_of(tier, index);
  uint32_t next = links->next;
  links_of(tier, links->previous)->next = next;
  links_of(tier, next)->previous = links->previous;
  *links = (struct links){NONE, NONE};
  if (is_anchor(tier, next)) show(tier, next - tier->config.extent_count);
}

void tier_order_age(struct ps_tier *tier) {
  struct order *order = tier->order;
  uint32_t steps = AGE_MOST;
  while (steps > 0 && order->due.length > 0 && order->due_entries[0].key <= tier->now_ns) {
    uint32_t run = order->due_entries[0].item;
    tier_heap_remove(&order->due, run);
    order->runs[run].is_due = false;
    if (is_empty(tier, run)) continue; /* what was to become older went in time */
    while (!is_empty(tier, run) && --steps > 0) {
      uint32_t last = last_of(tier, run);
      if (tier_bin_of(tier, &tier->extents[last]) <= order->runs[run].last_bin) break;
      tier_order_remove(tier, last);
      tier_order_add(tier, last);
    }
    show(tier, run);
  }
}

/* ---- new tables ---- */

/* The older run goes on in the younger one. */
static void join(struct ps_tier *tier, uint32_t young, uint32_t old) {
  struct links *to = links_of(tier, anchor_of(tier, young));
  struct links *from = links_of(tier, anchor_of(tier, old));
  if (is_empty(tier, old)) return;
  links_of(tier, to->previous)->next = from->next;
  links_of(tier, from->next)->previous = to->previous;
  links_of(tier, from->previous)->next = anchor_of(tier, young);
  to->previous = from->previous;
  *from = (struct links){anchor_of(tier, old), anchor_of(tier, old)};
}

static void renew_runs(struct ps_tier *tier, uint32_t value_class) {
  struct order *order = tier->order;
  uint32_t first = value_class * AGE_BINS, run = first;
  for (uint32_t bin = 0; bin < AGE_BINS; bin++) {
    uint32_t cell = first + bin;
    if (bin == 0 || order->cuts[cell] > 0) {
      run = cell;
    } else {
      join(tier, run, cell);
    }
    order->first_bins[cell] = (uint8_t)(run - first);
    order->runs[run].last_bin = (uint8_t)bin;
  }
}

/* The run after this one, of the same class or the next. */
static uint32_t next_run(const struct order *order, uint32_t run) {
  return run / AGE_BINS * AGE_BINS + order->runs[run].last_bin + 1;
}

void tier_order_renew(struct ps_tier *tier) {
  struct order *order = tier->order;
  memset(order->ready, 0, sizeof(order->ready));
  order->ready_words = 0;
  for (uint32_t i = 0; i < CELLS; i++) order->runs[i].is_shown = false;
  for (uint32_t i = 0; i < CLASS_COUNT; i++) renew_runs(tier, i);
  for (uint32_t i = 0; i < CELLS; i++) order->ranks[order->cells[i]] = (uint16_t)i;
  for (uint32_t i = 0; i < CELLS; i = next_run(order, i)) show(tier, i);
}
