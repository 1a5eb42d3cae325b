/* First come, first served, with at most a window of operations under way. */
#include <assert.h>
#include <stdlib.h>

#include "../scheduler.h"

struct ps_sched {
  struct ps_sched_item *first, *last;
  uint32_t window;
  uint32_t waiting;
  uint32_t in_flight;
};

struct ps_sched *ps_sched_new(uint32_t window) {
  if (window == 0) return NULL;
  struct ps_sched *sched = calloc(1, sizeof(*sched));
  if (sched != NULL) sched->window = window;
  return sched;
}

void ps_sched_free(struct ps_sched *sched) { free(sched); }

void ps_sched_push(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item) {
  assert(sched != NULL && item != NULL);
  item->next = NULL;
  item->arrived_ns = now_ns;
  item->started_ns = 0;
  if (sched->last == NULL) {
    sched->first = item;
  } else {
    sched->last->next = item;
  }
  sched->last = item;
  sched->waiting++;
}

struct ps_sched_item *ps_sched_pop(struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL && sched->in_flight <= sched->window);
  struct ps_sched_item *item = sched->first;
  if (item == NULL || sched->in_flight == sched->window) return NULL;
  assert(sched->waiting > 0);
  sched->first = item->next;
  if (sched->first == NULL) sched->last = NULL;
  item->next = NULL;
  item->started_ns = now_ns;
  sched->waiting--;
  sched->in_flight++;
  return item;
}

void ps_sched_done(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item) {
  assert(sched != NULL && item != NULL && sched->in_flight > 0);
  assert(now_ns >= item->started_ns);
  sched->in_flight--;
}

uint32_t ps_sched_waiting(const struct ps_sched *sched) {
  assert(sched != NULL);
  return sched->waiting;
}

uint32_t ps_sched_in_flight(const struct ps_sched *sched) {
  assert(sched != NULL);
  return sched->in_flight;
}
