/* Binary heaps of small numbers by time. Each element knows its place, so any can be taken out. */
#include "internal.h"

static uint32_t *place_of(const struct heap *heap, uint32_t item) {
  return (uint32_t *)(void *)(heap->places + (size_t)item * heap->stride);
}

void tier_heap_init(struct heap *heap, struct heap_entry *entries, void *places, size_t stride) {
  assert(entries != NULL && places != NULL && stride >= sizeof(uint32_t));
  *heap = (struct heap){.entries = entries, .places = places, .stride = stride};
}

static bool is_before(const struct heap_entry *one, const struct heap_entry *other) {
  return one->key != other->key ? one->key < other->key : one->rank < other->rank;
}

static void put(struct heap *heap, uint32_t place, struct heap_entry entry) {
  heap->entries[place] = entry;
  *place_of(heap, entry.item) = place;
}

/* Puts the entry where it belongs, given that `place` is free. */
static void sift(struct heap *heap, uint32_t place, struct heap_entry entry) {
  while (place > 0 && is_before(&entry, &heap->entries[(place - 1) / 2])) {
    put(heap, place, heap->entries[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  for (;;) {
    uint32_t child = 2 * place + 1;
    if (child >= heap->length) break;
    bool is_right =
        child + 1 < heap->length && is_before(&heap->entries[child + 1], &heap->entries[child]);
    if (is_right) child++;
    if (!is_before(&heap->entries[child], &entry)) break;
    put(heap, place, heap->entries[child]);
    place = child;
  }
  put(heap, place, entry);
}

void tier_heap_add(struct heap *heap, uint32_t item, uint64_t key, uint32_t rank) {
  sift(heap, heap->length++, (struct heap_entry){.key = key, .rank = rank, .item = item});
}

void tier_heap_remove(struct heap *heap, uint32_t item) {
  uint32_t place = *place_of(heap, item);
  assert(place < heap->length && heap->entries[place].item == item);
  struct heap_entry last = heap->entries[--heap->length];
  if (place < heap->length) sift(heap, place, last);
}

const struct heap_entry *tier_heap_entry(const struct heap *heap, uint32_t item) {
  uint32_t place = *place_of(heap, item);
  assert(place < heap->length && heap->entries[place].item == item);
  return &heap->entries[place];
}
