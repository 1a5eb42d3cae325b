/* What the files of the scheduler share. */
#ifndef PRESTAGE_SCHED_INTERNAL_H
#define PRESTAGE_SCHED_INTERNAL_H

#include <assert.h>
#include <stddef.h>

#include "../scheduler.h"

#define CONTAINER(POINTER, TYPE, MEMBER) ((TYPE *)((char *)(POINTER) - offsetof(TYPE, MEMBER)))

#define PS_SCHED_BUCKETS 1024 /* of the table that finds neighbours */
#define MS_NS 1000000ull
#define SECOND_NS 1000000000ull

enum progress {
  IDLE = 0,
  WAITING = 1,
  STARTED = 2, /* items */
  LATE = 3     /* dated jobs that cannot be in time any more */
};

/* ---- an ordered tree with sums (tree.c) ---- */

/* Ordered by (key, order). For trees of dated jobs, `ns_per_byte` is what service costs, and the
 * root's slack is the latest time at which serving all of them in order must begin. */
struct tree {
  struct ps_sched_node *root;
  double ns_per_byte;
  uint32_t ranks; /* state of the generator of ranks */
};

void tree_insert(struct tree *tree, struct ps_sched_node *node);
void tree_remove(struct tree *tree, struct ps_sched_node *node);
struct ps_sched_node *tree_first(const struct tree *tree);
struct ps_sched_node *tree_next(const struct ps_sched_node *node);
uint64_t tree_sum(const struct tree *tree);
/* Bytes with a key of at most `key`. */
uint64_t tree_sum_until(const struct tree *tree, uint64_t key);
/* The latest time at which serving all in order must begin; INT64_MAX: there are none. */
int64_t tree_slack(const struct tree *tree);
/* The same, of those with a larger key than `key`, with all others served before them. */
int64_t tree_slack_after(const struct tree *tree, uint64_t key);
void tree_set_cost(struct tree *tree, double ns_per_byte);
/* Asks the memory for the ways to so many keys, PS_SCHED_PREFETCHED at most, level by level. */
void tree_prefetch(const struct tree *tree, const uint64_t *keys, uint32_t count);

/* ---- what the medium is found to do (meter.c) ---- */

struct regression {
  double count; /* points */
  double mean_x, mean_y, var_x, var_y, cov_xy;
};

/* What the medium moves while operations queue in it: looked at in windows of some operations. */
struct throughput {
  uint64_t ended_ns; /* when something ended and left others under way; 0: it did not */
  uint64_t bytes, time_ns;
  double elapsed_ns, alone_ns; /* sums: of what reads took, and would have, alone */
  uint32_t count;              /* operations */
  double least, most;          /* bytes per second, of windows in a row that say the same */
  uint32_t windows;
  bool is_more; /* than the estimate: what these windows say; else they say less */
};

struct meter {
  double bandwidth;  /* bytes per second */
  double latency_ns; /* of a read, without waiting and transfer: the mean ... */
  double spread_ns;  /* ... and the mean deviation from it */
  uint64_t alone_ns; /* when something was last started alone */
  /* The medium's transfers, one after the other, as far as they can be foretold. */
  uint64_t free_ns; /* when the last one is expected to end */
  uint64_t started_bytes;
  uint64_t moved_bytes; /* of these: up to the last one that has ended */
  uint64_t stepped_ns;  /* when the bandwidth was last found far off */
  /* Since the last look at what reads say. */
  uint32_t samples;
  double excess_ns;                 /* sum of their times, without their own transfers */
  double drift_ns;                  /* sum of the corrections of free_ns */
  uint64_t looked_ns, looked_bytes; /* at that look */
  bool was_full;                    /* the window held something back */
  double time_ns;                   /* of a read, lately */
  /* Of the time of a read on the time its transfer was expected to take: the first ones. */
  struct regression first;
  /* Of the time of a read on its bytes: those that were alone. The count fades with time. */
  struct regression sizes;
  struct throughput throughput;
  double window;
  double most_window;
  double late_ns; /* how late the caller comes to start what waited for a time */
  /* The share of the bandwidth that dated jobs get while there are some. */
  double share;
  uint64_t share_ns, share_bytes, share_from_ns;
  bool is_pending;
  bool is_stated; /* the medium says its bandwidth itself */
};

void meter_init(struct meter *meter, const struct ps_sched_config *config);
/* An operation starts: notes in it when its last byte is expected. */
void meter_start(struct meter *meter, uint64_t now_ns, struct ps_sched_item *item, uint32_t bytes,
                 uint32_t in_flight);
/* ... and has ended. */
void meter_end(struct meter *meter, uint64_t now_ns, const struct ps_sched_item *item,
               uint32_t bytes, uint32_t left_in_flight);
/* When nothing was alone in the medium for long: until when nothing should start while something is
 * under way; else 0. Reads that somebody waits for are asked for that less often. */
uint64_t meter_rest_until(const struct meter *meter, uint64_t now_ns, bool is_demand);
/* Work that waited for a time was started so long after it. */
void meter_late(struct meter *meter, double late_ns);
double meter_transfer_ns(const struct meter *meter, uint64_t bytes);
uint32_t meter_window(const struct meter *meter);
/* Dated jobs are there; or not any more, and `rest_bytes` of them wait as items. */
void meter_pending(struct meter *meter, uint64_t now_ns, bool is_pending, uint64_t rest_bytes);
/* So much of a dated job was taken. */
void meter_job_bytes(struct meter *meter, uint64_t bytes);
/* Bytes per second that dated jobs get. */
double meter_left_over(const struct meter *meter);
/* The same, to be promised: less as long as little is known of the medium. */
double meter_promised(const struct meter *meter);

/* ---- what comes and must go before others (forecast.c) ---- */

#define PS_SCHED_OVERTAKERS 48
#define OVERTAKING_STEP_NS (20 * MS_NS)
#define OVERTAKING_MEMORY_NS 2e9

/* Dated bytes that came in the last seconds, by how long after they had to go by deadline. */
struct overtaking {
  double bytes[PS_SCHED_OVERTAKERS];
  double slack[PS_SCHED_OVERTAKERS]; /* sums of bytes times nanoseconds */
  double seen_ns;
  uint64_t from_ns;
  uint32_t used; /* buckets from the last down to the first that ever had something */
};

void overtaking_note(struct overtaking *overtaking, uint64_t now_ns, uint64_t slack_ns,
                     uint64_t bytes);

/* ---- lists, and neighbours (queue.c) ---- */

struct item_list {
  struct ps_sched_item *first, *last;
};

struct ps_sched {
  struct ps_sched_config config;
  struct meter meter;
  struct overtaking overtaking;
  struct item_list lists[PS_SCHED_CLASSES][PS_SCHED_PRIORITIES]; /* all classes but DATED */
  struct tree dated;                                             /* items by latest start */
  struct tree jobs;                                              /* dated ones, by deadline */
  struct tree guesses;                       /* speculative ones, most valuable first */
  struct ps_sched_job *first_job, *last_job; /* dated ones, in the order of arrival */
  uint64_t late_bytes;                       /* of jobs that are out of the tree: too late */
  uint64_t orders;                           /* counts arrivals */
  uint32_t in_flight;                        /* operations */
  uint32_t paced_ops;                        /* of these: all but demand reads */
  uint64_t paced_bytes;
  uint64_t read_ns;   /* when a read was last wanted */
  uint64_t wanted_ns; /* when paced work is to start that has to wait; 0: none has */
  bool was_offered;   /* next_job has given a job, and nothing came of it yet */
  uint64_t offered_ns;
  const struct ps_sched_job *given; /* by the last next_job, while it is there */
  uint32_t turns;                   /* counts pieces of jobs, so that late ones have their turn */
  struct ps_sched_stats stats;
  uint64_t now_ns; /* the latest that a caller said */
  struct ps_sched_item *buckets[PS_SCHED_BUCKETS];
};

/* Callers may look at the clock at different times: it goes on here, and never back. */
static inline uint64_t sched_tick(struct ps_sched *sched, uint64_t now_ns) {
  if (now_ns > sched->now_ns) sched->now_ns = now_ns;
  return sched->now_ns;
}

static inline uint64_t sched_time(const struct ps_sched *sched, uint64_t now_ns) {
  return now_ns > sched->now_ns ? now_ns : sched->now_ns;
}

/* Into, and out of, where the items of its class wait. */
void queue_add(struct ps_sched *sched, struct ps_sched_item *item);
void queue_remove(struct ps_sched *sched, struct ps_sched_item *item);
/* The first of an undated class: by priority, then by arrival. */
struct ps_sched_item *queue_first(const struct ps_sched *sched, uint32_t sched_class);
/* The one of an undated class that came first of all. */
struct ps_sched_item *queue_oldest(const struct ps_sched *sched, uint32_t sched_class);
struct ps_sched_item *queue_first_dated(const struct ps_sched *sched);
/* The item that begins where `item` ends and may go with it, or NULL. */
struct ps_sched_item *queue_neighbour(const struct ps_sched *sched,
                                      const struct ps_sched_item *item);

/* ---- when what may start (gate.c) ---- */

/* Bytes of one operation that does not hold up a demand read for long. */
uint32_t gate_quantum(const struct ps_sched *sched);
/* For what: pieces that are short of time, work that has slack, and what is left over. */
enum gate { GATE_URGENT, GATE_SLACK, GATE_IDLE };
/* When work that nobody waits for may start, should nothing else happen: when the medium has
 * (nearly) run out of transfers. UINT64_MAX: when something has ended. */
uint64_t gate_time(const struct ps_sched *sched, uint64_t now_ns, enum gate gate);
bool gate_is_open(const struct ps_sched *sched, uint64_t now_ns, enum gate gate);
/* Work is there for the gate: whether it may start now. */
bool gate_ask(struct ps_sched *sched, uint64_t now_ns, enum gate gate);

/* Until when not even demand starts, so that something is alone in the medium; 0: it may
 * (sched.c). */
uint64_t sched_rest_until(const struct ps_sched *sched, uint64_t now_ns);

/* ---- jobs (jobs.c) ---- */

/* The dated job to go on with. */
struct ps_sched_job *jobs_pick(struct ps_sched *sched, uint64_t now_ns);
/* With less slack than this, jobs go by deadline. */
uint64_t jobs_tight_ns(const struct ps_sched *sched);
/* Whether the slack of any is used up: they go by deadline. */
bool jobs_are_tight(const struct ps_sched *sched, uint64_t now_ns);
/* Whether dated jobs will be late unless they go before demand. */
bool jobs_are_critical(struct ps_sched *sched, uint64_t now_ns);
/* Whether next_job would give a job that goes before demand. */
bool jobs_must_go(struct ps_sched *sched, uint64_t now_ns);
/* Whether a dated item must start now. */
bool jobs_is_due(const struct ps_sched *sched, uint64_t now_ns, const struct ps_sched_item *item);
/* Keeps the account of whether dated jobs are there; `taken`: bytes of the last one that may not be
 * items yet. */
void jobs_note_pending(struct ps_sched *sched, uint64_t now_ns, uint64_t taken);

#endif
