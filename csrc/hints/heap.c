/* Pending intents by the time at which they are to be looked at. */
#include "internal.h"

static uint64_t key(const struct ps_hints *hints, uint32_t place) {
  return hints_intent(hints, hints->heap[place])->wake_ns;
}

static void put(struct ps_hints *hints, uint32_t place, uint32_t index) {
  hints->heap[place] = index;
  hints_intent(hints, index)->heap_index = place;
}

static void swap(struct ps_hints *hints, uint32_t a, uint32_t b) {
  uint32_t index = hints->heap[a];
  put(hints, a, hints->heap[b]);
  put(hints, b, index);
}

static void settle(struct ps_hints *hints, uint32_t place) {
  assert(place >= 1 && place <= hints->heap_size);
  while (place > 1 && key(hints, place) < key(hints, place / 2)) {
    swap(hints, place, place / 2);
    place /= 2;
  }
  for (;;) {
    uint32_t child = place * 2;
    if (child > hints->heap_size) return;
    if (child < hints->heap_size && key(hints, child + 1) < key(hints, child)) child++;
    if (key(hints, place) <= key(hints, child)) return;
    swap(hints, place, child);
    place = child;
  }
}

void hints_wake_at(struct ps_hints *hints, uint32_t index, uint64_t wake_ns) {
  struct intent *intent = hints_intent(hints, index);
  intent->wake_ns = wake_ns;
  if (intent->heap_index == 0) {
    assert(hints->heap_size < hints->config.intents);
    put(hints, ++hints->heap_size, index);
  }
  settle(hints, intent->heap_index);
}

void hints_wake_never(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  uint32_t place = intent->heap_index;
  if (place == 0) return;
  assert(hints->heap[place] == index);
  intent->heap_index = 0;
  uint32_t last = hints->heap[hints->heap_size--];
  if (last == index) return;
  put(hints, place, last);
  settle(hints, place);
}
