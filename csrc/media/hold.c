/* A heap of requests by the time at which they are due. */
#include <stdlib.h>

#include "shim.h"

bool ps_hold_open(struct ps_hold *hold, uint32_t capacity) {
  assert(hold != NULL && capacity > 0);
  *hold = (struct ps_hold){.capacity = capacity};
  hold->heap = calloc(capacity, sizeof *hold->heap);
  return hold->heap != NULL;
}

void ps_hold_close(struct ps_hold *hold) {
  assert(hold != NULL);
  free(hold->heap);
  hold->heap = NULL;
}

static bool is_before(const struct ps_media_request *a, const struct ps_media_request *b) {
  if (a->due_ns != b->due_ns) return a->due_ns < b->due_ns;
  return a->state < b->state;
}

static void swap(struct ps_hold *hold, uint32_t a, uint32_t b) {
  struct ps_media_request *request = hold->heap[a];
  hold->heap[a] = hold->heap[b];
  hold->heap[b] = request;
}

bool ps_hold_push(struct ps_hold *hold, struct ps_media_request *request) {
  assert(hold != NULL && request != NULL);
  if (hold->count == hold->capacity) return false;
  request->state = hold->sequence++;
  uint32_t at = hold->count++;
  hold->heap[at] = request;
  while (at > 0 && is_before(hold->heap[at], hold->heap[(at - 1) / 2])) {
    swap(hold, at, (at - 1) / 2);
    at = (at - 1) / 2;
  }
  return true;
}

struct ps_media_request *ps_hold_pop(struct ps_hold *hold, uint64_t now_ns) {
  assert(hold != NULL);
  if (hold->count == 0 || hold->heap[0]->due_ns > now_ns) return NULL;
  struct ps_media_request *first = hold->heap[0];
  hold->heap[0] = hold->heap[--hold->count];
  for (uint32_t at = 0, next; 2 * at + 1 < hold->count; at = next) {
    next = 2 * at + 1;
    if (next + 1 < hold->count && is_before(hold->heap[next + 1], hold->heap[next])) next++;
    if (!is_before(hold->heap[next], hold->heap[at])) break;
    swap(hold, at, next);
  }
  return first;
}

uint64_t ps_hold_next_time(const struct ps_hold *hold) {
  assert(hold != NULL);
  return hold->count > 0 ? hold->heap[0]->due_ns : UINT64_MAX;
}
