/* What must be true between any two calls. Each failure has a number. */
#include "internal.h"

enum invariant {
  GOOD = 0,
  BAD_COUNT,   /* of fetches that are pending, or of how they ended */
  BAD_BYTES,   /* that wait, or of one fetch */
  BAD_LOOKUP,  /* one is not found by its id */
  BAD_HEAP,    /* order, or places */
  BAD_JOB,     /* of a fetch that waits */
  BAD_LIST,    /* of a volume */
  BAD_VOLUMES, /* that are there, or are to be told of */
  BAD_FREE     /* fetches that are free */
};

static int check_fetch(const struct ps_orders *orders, uint32_t index) {
  const struct fetch *fetch = orders_fetch(orders, index);
  const struct order_volume *volume = &orders->volumes[fetch->volume];
  if (orders_find(orders, fetch->id) != index) return BAD_LOOKUP;
  if (volume->sched == NULL || fetch->end > volume->size) return BAD_VOLUMES;
  if (fetch->offset > fetch->at || fetch->at > fetch->end) return BAD_BYTES;
  if (fetch->coming_bytes > fetch->started_bytes) return BAD_BYTES;
  uint64_t slot = orders->config.slot_size;
  uint64_t looked = fetch->at > fetch->offset ? fetch->at - (fetch->offset & ~(slot - 1)) : 0;
  if (fetch->started_bytes > (looked + slot - 1) / slot * slot) return BAD_BYTES;
  if (fetch->heap_place != 0 && orders->heap[fetch->heap_place] != index) return BAD_HEAP;
  if (fetch->state == FETCH_QUEUED) {
    const struct ps_sched_job *job = &fetch->job;
    if (job->bytes != fetch->end - fetch->at || job->bytes == 0) return BAD_JOB;
    if (job->owner != PS_JOB_OF_ORDERS || job->sched_class != PS_SCHED_SPECULATIVE) return BAD_JOB;
    bool expires = fetch->expires_ns < UINT64_MAX;
    return (fetch->heap_place != 0) == expires ? GOOD : BAD_HEAP;
  }
  if (fetch->state != FETCH_SETTLING || fetch->heap_place == 0) return BAD_HEAP;
  return fetch->coming_bytes > 0 ? GOOD : BAD_BYTES;
}

static int check_volume(const struct ps_orders *orders, uint32_t number, uint32_t *count,
                        uint64_t *bytes) {
  const struct order_volume *volume = &orders->volumes[number];
  uint32_t previous = NONE;
  for (uint32_t index = volume->first; index != NONE;) {
    const struct fetch *fetch = orders_fetch(orders, index);
    if (fetch->volume != number || fetch->previous != previous) return BAD_LIST;
    int bad = check_fetch(orders, index);
    if (bad != GOOD) return bad;
    if (++*count > orders->config.fetches) return BAD_LIST;
    if (fetch->state == FETCH_QUEUED) *bytes += fetch->end - fetch->at;
    previous = index;
    index = fetch->next;
  }
  if (volume->last != previous) return BAD_LIST;
  bool is_present =
      volume->place < orders->present_count && orders->present[volume->place] == number;
  if ((volume->sched != NULL) != is_present) return BAD_VOLUMES;
  return GOOD;
}

static int check_heap(const struct ps_orders *orders) {
  for (uint32_t place = 1; place <= orders->heap_size; place++) {
    const struct fetch *fetch = orders_fetch(orders, orders->heap[place]);
    if (fetch->heap_place != place || fetch->state == FETCH_FREE) return BAD_HEAP;
    const struct fetch *above = orders_fetch(orders, orders->heap[place > 1 ? place / 2 : 1]);
    if (above->wake_ns > fetch->wake_ns) return BAD_HEAP;
  }
  return GOOD;
}

static int check_free(const struct ps_orders *orders) {
  uint32_t count = 0;
  for (uint32_t index = orders->free; index != NONE; index = orders_fetch(orders, index)->next) {
    if (orders_fetch(orders, index)->state != FETCH_FREE) return BAD_FREE;
    if (++count > orders->fresh) return BAD_FREE;
  }
  return count + orders->stats.pending == orders->fresh ? GOOD : BAD_FREE;
}

int ps_orders_check(const struct ps_orders *orders) {
  assert(orders != NULL);
  const struct ps_orders_stats *stats = &orders->stats;
  uint32_t count = 0;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < orders->config.volume_count; i++) {
    int bad = check_volume(orders, i, &count, &bytes);
    if (bad != GOOD) return bad;
  }
  if (count != stats->pending) return BAD_COUNT;
  uint64_t ended = stats->landed + stats->warm + stats->no_room + stats->failed + stats->withdrawn +
                   stats->expired;
  if (stats->fetches != ended + stats->pending) return BAD_COUNT;
  if (bytes != orders->waiting_bytes) return BAD_BYTES;
  int bad = check_heap(orders);
  if (bad == GOOD) bad = check_free(orders);
  return bad;
}
