/* A simulation of the media scheduler on a virtual clock: arrivals by seed, the flash model, and
 * several policies that are given the same arrivals. See docs/deadlines.md. */
#ifndef PRESTAGE_SCHED_SIM_H
#define PRESTAGE_SCHED_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "media/flash_model.h"
#include "scheduler.h"

#define US_NS 1000ull
#define MS_NS 1000000ull
#define SECOND_NS 1000000000ull
#define EXTENT_BYTES 65536u
#define MERGE_BYTES 262144u
#define DEPTH 64u /* operations that the medium takes at once */
#define STARVATION_NS (50 * MS_NS)

enum kind { DEMAND, WRITE, DATED_READ, JOB, GUESS, KINDS };

/* What comes: an operation, or a job that is cut into extents. */
struct arrival {
  uint64_t at_ns;
  uint64_t deadline_ns; /* UINT64_MAX: none */
  uint64_t bytes;
  uint64_t offset;
  enum kind kind;
};

/* A regime: which medium, and what arrives. Shares are of the medium's bandwidth. */
struct mix {
  const char *name;
  double bandwidth, read_median_us, read_p99_us;
  double demand_share, write_share, guess_share; /* dated work fills up to the load */
  double dated_read_share;                       /* of the dated work: single reads */
  uint32_t demand_least, demand_most;            /* bytes, powers of two */
  uint64_t job_least, job_most;                  /* bytes */
  uint64_t deadline_least_ns, deadline_most_ns;  /* from arrival */
  double burst;                                  /* 1: Poisson; more: demand in bursts */
};

struct arrivals {
  struct arrival *all; /* by time */
  uint32_t count;
};

/* What became of each arrival. */
struct outcome {
  uint64_t started_ns;  /* its first operation */
  uint64_t ended_ns;    /* its last; UINT64_MAX: not done */
  uint64_t forecast_ns; /* when it was to be ready; jobs, where the policy says */
  uint64_t left_bytes;
  bool is_admitted;
};

/* One operation under way, or waiting. */
struct op {
  struct ps_flash_item flash; /* first: the model gives its address back */
  struct ps_sched_item item;
  struct op *next;
  uint32_t arrival;
};

struct sim;

struct policy {
  const char *name;
  void *(*make)(struct sim *sim);
  void (*arrive)(void *policy, struct sim *sim, uint32_t arrival);
  struct op *(*next)(void *policy, struct sim *sim); /* what starts now, or NULL */
  void (*ended)(void *policy, struct sim *sim, struct op *op);
  uint64_t (*next_time)(void *policy, struct sim *sim);
  void (*destroy)(void *policy);
};

struct sim {
  const struct mix *mix;
  const struct policy *policy;
  void *state; /* the policy's */
  const struct arrivals *arrivals;
  struct outcome *outcomes;
  struct ps_flash *flash;
  struct op *free_ops;
  uint64_t now_ns;
  uint32_t in_flight;
  uint32_t window; /* of the plain policies */
  bool with_dated; /* jobs, dated reads and guesses are there */
  bool admits_all;
};

extern const struct policy policy_deadline, policy_fifo, policy_priority;

const struct mix *mix_named(const char *name);
void arrivals_make(struct arrivals *arrivals, const struct mix *mix, double load, uint64_t seed,
                   double seconds);

/* Runs until all is done; `sim` has everything but what is found out. */
void sim_run(struct sim *sim, uint64_t seed);
struct op *sim_op(struct sim *sim, uint32_t arrival, uint64_t offset, uint32_t length);
void sim_op_free(struct sim *sim, struct op *op);

/* Which dated arrivals the oracle gets done in time. */
void oracle_run(const struct arrivals *arrivals, double bandwidth, bool *met);

/* What of the run is printed, as JSON. */
void report(const struct sim *sim, const struct sim *alone, const bool *oracle, uint64_t from_ns);

double fraction(uint64_t *state);

#endif
