/* The ranges of a set, in chunks; and places in them. */
#include "internal.h"

void hints_append(struct ps_hints *hints, uint32_t index, uint64_t offset, uint32_t blocks) {
  struct set *set = hints_set(hints, index);
  assert(blocks > 0 && (set->flags & SET_DEAD) == 0);
  uint32_t slot = set->range_count % CHUNK_RANGES;
  if (slot == 0) {
    uint32_t fresh = hints_take(&hints->chunks);
    assert(fresh != NONE); /* there is one for each four ranges, and one for each set */
    struct chunk *chunk = hints_item(&hints->chunks, fresh);
    chunk->owner = index;
    chunk->ordinal = set->range_count;
    if (set->first == NONE) {
      set->first = fresh;
    } else {
      struct chunk *last = hints_item(&hints->chunks, set->last);
      last->next = fresh;
    }
    set->last = fresh;
  }
  uint32_t at = set->last * CHUNK_RANGES + slot;
  *hints_range(hints, at) = (struct range){.offset = offset, .blocks = blocks};
  set->range_count++;
  set->bytes = hints_add(set->bytes, (uint64_t)blocks << set->block_shift);
  if ((set->flags & SET_ORDERED) != 0) hints_region_add(hints, set, at);
}

void hints_free_ranges(struct ps_hints *hints, struct set *set) {
  uint32_t index = set->first;
  while (index != NONE) {
    struct chunk *chunk = hints_item(&hints->chunks, index);
    uint32_t next = chunk->next;
    hints_give(&hints->chunks, index);
    index = next;
  }
  set->first = NONE;
  set->last = NONE;
}

void hints_cursor_start(const struct set *set, struct cursor *cursor) {
  assert(set != NULL && cursor != NULL);
  *cursor = (struct cursor){.at = set->first * CHUNK_RANGES, .left = set->range_count};
}

bool hints_cursor_span(const struct ps_hints *hints, const struct cursor *cursor, uint32_t shift,
                       struct span *span) {
  assert(cursor != NULL && span != NULL);
  if (cursor->left == 0) return false;
  const struct range *range = hints_range(hints, cursor->at);
  uint64_t slot = hints->config.slot_size;
  uint64_t end = range->offset + ((uint64_t)range->blocks << shift);
  span->offset = range->offset + cursor->done;
  assert(span->offset < end);
  uint64_t extent_end = (span->offset & ~(slot - 1)) + slot;
  span->length = (uint32_t)(hints_min(end, extent_end) - span->offset);
  return true;
}

static void next_range(const struct ps_hints *hints, struct cursor *cursor) {
  cursor->done = 0;
  cursor->left--;
  cursor->at++;
  if (cursor->at % CHUNK_RANGES == 0 && cursor->left > 0) {
    const struct chunk *chunk = hints_chunk(hints, cursor->at - 1);
    assert(chunk->next != NONE);
    cursor->at = chunk->next * CHUNK_RANGES;
  }
}

/* `bytes` do not reach beyond the range. */
void hints_cursor_advance(const struct ps_hints *hints, struct cursor *cursor, uint32_t shift,
                          uint64_t bytes) {
  assert(cursor != NULL && cursor->left > 0);
  uint64_t length = (uint64_t)hints_range(hints, cursor->at)->blocks << shift;
  cursor->done += bytes;
  assert(cursor->done <= length);
  if (cursor->done == length) next_range(hints, cursor);
}
