/* The media scheduler: what a medium does next, and whether an intent can be ready in time.
 *
 * A pure core that takes `now_ns`, makes no system calls and allocates nothing after ps_sched_new.
 * One per medium. One caller at a time.
 *
 * Two kinds of work:
 *  - an item is an operation that could start at once: somebody waits for it, or its frame is held;
 *  - a job is work that far deadlines and speculation keep back: bytes of an intent, or of a guess.
 *    It holds no frame. When the scheduler wants some of it done it says so (ps_sched_next_job);
 *    the caller makes items of a piece of it.
 *
 * The order: demand reads before anything else while dated work has slack. Writes, dated items by
 * latest start (deadline - estimated service) and dated jobs follow, one small piece whenever the
 * medium has no transfer to do; what would be late else goes before demand. Dated jobs are worked
 * on steadily, in the order of their arrival while all have slack, else by deadline; the ones that
 * cannot be in time any more have the last turn among them. Speculation only from what is left
 * over. An undated read or a write waits no longer than its bound. The window of operations under
 * way follows the medium's own latency.
 */
#ifndef PRESTAGE_SCHEDULER_H
#define PRESTAGE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define PS_SCHED_PRIORITIES 4

enum ps_sched_class {
  PS_SCHED_DEMAND = 0, /* reads without a deadline that somebody waits for */
  PS_SCHED_DATED = 1,  /* reads with a deadline, and pieces of intents that were started */
  PS_SCHED_WRITE = 2,  /* writes, syncs, discards, zeros */
  PS_SCHED_SPECULATIVE = 3,
  PS_SCHED_CLASSES = 4
};

struct ps_sched_config {
  uint32_t window;      /* operations under way at most: the medium's queue depth */
  uint32_t merge_bytes; /* neighbouring reads of one class go as one up to here (262144); 0: none */
  uint64_t starvation_ns; /* an undated read or a write that waited longer goes first */
  /* What the medium says of itself, taken for true until it shows otherwise; 0: it does not, and
   * until its bandwidth was found nothing is foretold by more than 500 MB/s. */
  uint64_t bandwidth;  /* bytes per second */
  uint64_t latency_ns; /* of a read, without waiting and transfer */
};

/* The scheduler's own: a place in one of its ordered trees. */
struct ps_sched_node {
  struct ps_sched_node *left, *right, *up;
  uint64_t key;    /* smaller is sooner */
  uint64_t order;  /* among equal keys */
  uint64_t weight; /* bytes */
  uint64_t sum;    /* bytes of it and all below */
  int64_t slack;   /* the smallest latest start of it and all below, were they served in order */
  uint32_t rank;   /* keeps the tree balanced */
};

struct ps_sched_item {
  struct ps_sched_item *next; /* the scheduler's own while it waits */
  struct ps_sched_item *previous;
  struct ps_sched_item *merged; /* after pop: the next neighbour that goes with it, or NULL */
  uint64_t arrived_ns;          /* set by push */
  uint64_t started_ns;          /* set by pop */
  uint64_t deadline_ns;         /* UINT64_MAX: none. DATED only */
  uint64_t offset;
  uint32_t length;
  uint32_t op;          /* enum ps_media_op */
  uint8_t sched_class;  /* enum ps_sched_class */
  uint8_t priority;     /* 0 urgent to 3 low; breaks ties */
  uint8_t is_mergeable; /* reads into frames */
  uint8_t state;        /* the scheduler's own */
  /* The scheduler's own. */
  struct ps_sched_node node;
  struct ps_sched_item *chain; /* others whose offsets have the same hash */
  uint64_t transfer_ns;        /* expected, when it was started, until its last byte is there */
  uint64_t transfer_end;       /* bytes started so far, its own included */
  bool is_alone;               /* the medium had nothing else to move when it was started */
};

struct ps_sched_job {
  uint64_t deadline_ns; /* UINT64_MAX: none (speculation) */
  uint64_t bytes;       /* not started yet */
  uint64_t arrived_ns;  /* set by add */
  float value;          /* speculation: expected benefit per byte; more goes first */
  uint8_t sched_class;  /* DATED or SPECULATIVE */
  uint8_t priority;
  uint8_t owner; /* the caller's own: whose job it is */
  uint8_t state; /* the scheduler's own */
  /* The scheduler's own. */
  struct ps_sched_node node;
  struct ps_sched_job *next, *previous; /* in the order of arrival */
};

/* What admission says. */
struct ps_sched_forecast {
  uint64_t ready_ns;      /* when all of it is expected to be ready */
  uint64_t bytes_in_time; /* how many of its first bytes are expected by the deadline */
};

struct ps_sched_stats {
  uint64_t started[4], ended[4];     /* operations, by class */
  uint64_t started_bytes[4];         /* by class */
  uint64_t waited_ns[4];             /* sums, from push to pop, by class */
  uint64_t merges;                   /* items that went with a neighbour */
  uint64_t starved;                  /* items that went first because they had waited too long */
  uint64_t dated_met, dated_late;    /* dated items that ended by, or after, their deadline */
  uint32_t waiting[4], in_flight[4]; /* now, by class */
  uint32_t jobs;                     /* now */
  uint32_t window;                   /* operations under way at most, now */
  uint64_t job_bytes;                /* now, of dated jobs, not started */
  uint64_t bandwidth;                /* estimate of what the medium can move, bytes per second */
  uint64_t service_ns;               /* estimate for one read of 64 KiB without waiting */
};

struct ps_sched;

/* NULL when there is no memory, or a window or bound of 0. */
struct ps_sched *ps_sched_new(const struct ps_sched_config *config);
void ps_sched_free(struct ps_sched *sched);
/* `item` is the caller's and stays until it was popped and ended. A sync waits for nothing here:
 * the tier orders syncs after the writes they are for. */
void ps_sched_push(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item);
/* A waiting item became urgent: it moves to `sched_class` with `deadline_ns`. */
void ps_sched_promote(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item,
                      uint32_t sched_class, uint64_t deadline_ns);
/* The next to start now, or NULL. Its neighbours (adjacent ascending ranges of one class and op)
 * hang on item->merged and start with it as one operation. */
struct ps_sched_item *ps_sched_pop(struct ps_sched *sched, uint64_t now_ns);
/* A popped item, with all that hangs on it, has ended. Walks the chain. */
void ps_sched_done(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item);

/* Jobs. `job` is the caller's and stays until it was removed. */
void ps_sched_add_job(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_job *job);
/* After the caller changed bytes or deadline_ns. */
void ps_sched_update_job(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_job *job);
void ps_sched_remove_job(struct ps_sched *sched, struct ps_sched_job *job);
/* The job of which a piece (up to merge_bytes) should be started now, or NULL. Ask when pop said
 * NULL, push the items made of it, ask pop again. The caller makes job->bytes smaller and calls
 * ps_sched_update_job, or removes the job. When it can do neither, it does nothing: the same job
 * comes again when something has ended, or a little later. */
struct ps_sched_job *ps_sched_next_job(struct ps_sched *sched, uint64_t now_ns);
/* When pop or next_job may have something although nothing ends; UINT64_MAX: never. */
uint64_t ps_sched_next_time(const struct ps_sched *sched, uint64_t now_ns);

/* Admission: what would become of a dated job of `size_bytes` that came now. `bytes_in_time` leaves
 * out what would make those late that were admitted with later deadlines. Changes nothing. */
void ps_sched_forecast(const struct ps_sched *sched, uint64_t now_ns, uint64_t size_bytes,
                       uint64_t deadline_ns, uint32_t priority, struct ps_sched_forecast *forecast);

uint32_t ps_sched_waiting(const struct ps_sched *sched);
uint32_t ps_sched_in_flight(const struct ps_sched *sched);
void ps_sched_get_stats(const struct ps_sched *sched, struct ps_sched_stats *stats);
/* cffi: end */

/* What forecasting and adding dated jobs with these deadlines will read is asked of the memory, for
 * all of them at the same time instead of one after the other. Changes nothing. */
#define PS_SCHED_PREFETCHED 64
void ps_sched_prefetch(const struct ps_sched *sched, const uint64_t *deadlines_ns, uint32_t count);

#endif
