/* The media scheduler: which of a medium's waiting operations starts next. A pure core that takes
 * `now_ns`, makes no system calls and allocates nothing after ps_sched_new. The policy
 * is first come first served within a window.
 */
#ifndef PRESTAGE_SCHEDULER_H
#define PRESTAGE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
struct ps_sched_item {
  struct ps_sched_item *next; /* the scheduler's own */
  uint64_t arrived_ns;        /* the scheduler's own */
  uint64_t started_ns;        /* the scheduler's own */
  uint64_t offset;
  uint32_t length;
  uint32_t op; /* enum ps_media_op */
};

struct ps_sched;

struct ps_sched *ps_sched_new(uint32_t window);
void ps_sched_free(struct ps_sched *sched);
/* `item` is the caller's and stays until it was popped. A sync waits for nothing here: the tier
 * orders syncs after the writes they are for. */
void ps_sched_push(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item);
/* The next to start now, or NULL (nothing waits, or the window is full). */
struct ps_sched_item *ps_sched_pop(struct ps_sched *sched, uint64_t now_ns);
/* A popped item has ended. */
void ps_sched_done(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item);
uint32_t ps_sched_waiting(const struct ps_sched *sched);
uint32_t ps_sched_in_flight(const struct ps_sched *sched);
/* cffi: end */

#endif
