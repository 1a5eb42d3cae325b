/* Arrivals by seed: demand reads and writes, dated reads and jobs, guesses; all of them Poisson,
 * sizes and deadlines log-uniform. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sched_sim.h"

#define KIB 1024u
#define MIB (1024u * 1024u)
#define GUESS_BYTES MIB

/* The policy was made with all but the last two. */
static const struct mix mixes[] = {
    {"mixed", 2e9, 80, 200, 0.25, 0.05, 0.2, 0.05, 4 * KIB, 128 * KIB, 256 * KIB, 16 * MIB,
     5 * MS_NS, 2 * SECOND_NS, 1},
    /* Demand in bursts of three times its rate. */
    {"bursty", 2e9, 80, 200, 0.25, 0.05, 0.2, 0.05, 4 * KIB, 128 * KIB, 256 * KIB, 16 * MIB,
     5 * MS_NS, 2 * SECOND_NS, 3},
    /* No deadline is far. */
    {"short", 2e9, 80, 200, 0.25, 0.05, 0.2, 0.05, 4 * KIB, 128 * KIB, 256 * KIB, 4 * MIB,
     5 * MS_NS, 100 * MS_NS, 1},
    /* Half of the medium is demand. */
    {"demand", 2e9, 80, 200, 0.5, 0.05, 0.2, 0.05, 4 * KIB, 128 * KIB, 256 * KIB, 16 * MIB,
     5 * MS_NS, 2 * SECOND_NS, 1},
    /* A slow medium with a wide tail, and a fast one with a narrow one. */
    {"slow", 0.5e9, 150, 900, 0.25, 0.05, 0.2, 0.05, 4 * KIB, 64 * KIB, 64 * KIB, 4 * MIB,
     10 * MS_NS, 2 * SECOND_NS, 1},
    {"fast", 6e9, 70, 110, 0.25, 0.05, 0.2, 0.05, 4 * KIB, 128 * KIB, 256 * KIB, 32 * MIB,
     5 * MS_NS, 2 * SECOND_NS, 1},
    /* Small jobs and many dated reads, due soon. */
    {"small", 2e9, 80, 200, 0.25, 0.05, 0.2, 0.4, 4 * KIB, 128 * KIB, 64 * KIB, MIB, 2 * MS_NS,
     50 * MS_NS, 1},
    /* A disk behind a network. */
    {"remote", 1e9, 400, 800, 0.35, 0.1, 0.2, 0.05, 4 * KIB, 128 * KIB, 256 * KIB, 8 * MIB,
     20 * MS_NS, 5 * SECOND_NS, 1},
};

const struct mix *mix_named(const char *name) {
  assert(name != NULL);
  for (uint32_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++)
    if (strcmp(mixes[i].name, name) == 0) return &mixes[i];
  return NULL;
}

/* A number from 0 to 1, by splitmix64. */
double fraction(uint64_t *state) {
  uint64_t mixed = *state += 0x9e3779b97f4a7c15ull;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
  return (double)((mixed ^ mixed >> 31) >> 11) * 0x1p-53;
}

static double log_uniform(uint64_t *state, double least, double most) {
  return least * pow(most / least, fraction(state));
}

static double log_uniform_mean(double least, double most) {
  return most > least ? (most - least) / log(most / least) : least;
}

static uint32_t power_of_two(uint64_t *state, uint32_t least, uint32_t most) {
  uint32_t steps = 1;
  for (uint32_t size = least; size < most; size *= 2) steps++;
  return least << (uint32_t)(fraction(state) * steps);
}

static double power_of_two_mean(uint32_t least, uint32_t most) {
  double sum = 0, steps = 0;
  for (uint32_t size = least; size <= most; size *= 2, steps++) sum += size;
  return sum / steps;
}

static uint64_t extents(double bytes) {
  uint64_t count = (uint64_t)(bytes / EXTENT_BYTES + 0.5);
  return (count > 0 ? count : 1) * EXTENT_BYTES;
}

static struct arrival make_one(const struct mix *mix, enum kind kind, uint64_t *state) {
  struct arrival arrival = {.kind = kind, .deadline_ns = UINT64_MAX, .bytes = EXTENT_BYTES};
  arrival.offset = (uint64_t)(fraction(state) * (1 << 24)) * EXTENT_BYTES;
  if (kind == DEMAND) arrival.bytes = power_of_two(state, mix->demand_least, mix->demand_most);
  if (kind == GUESS) arrival.bytes = GUESS_BYTES;
  if (kind == JOB)
    arrival.bytes = extents(log_uniform(state, (double)mix->job_least, (double)mix->job_most));
  if (kind == JOB || kind == DATED_READ)
    arrival.deadline_ns =
        (uint64_t)log_uniform(state, (double)mix->deadline_least_ns, (double)mix->deadline_most_ns);
  return arrival;
}

static void append(struct arrivals *arrivals, uint32_t *room, const struct arrival *arrival) {
  if (arrivals->count == *room) {
    *room = *room == 0 ? 4096 : 2 * *room;
    struct arrival *more = realloc(arrivals->all, *room * sizeof *more);
    if (more == NULL) abort();
    arrivals->all = more;
  }
  arrivals->all[arrivals->count++] = *arrival;
}

/* Demand in bursts: on for 1/burst of the time, at `burst` times the rate, about 5 ms each. */
static double stretch(const struct mix *mix, enum kind kind, double at, double *phase_end,
                      uint64_t *state) {
  if (kind != DEMAND || mix->burst <= 1) return at;
  const double on = 0.005;
  while (at > *phase_end) {
    double off = -log(1 - fraction(state)) * on * (mix->burst - 1);
    at += off;
    *phase_end += off - log(1 - fraction(state)) * on;
  }
  return at;
}

static void fill(struct arrivals *arrivals, uint32_t *room, const struct mix *mix, enum kind kind,
                 double per_second, uint64_t seed, double seconds) {
  uint64_t state = seed * KINDS + kind;
  double phase_end = 0;
  double rate = kind == DEMAND ? per_second * mix->burst : per_second;
  if (rate <= 0) return;
  for (double at = 0;;) {
    at = stretch(mix, kind, at - log(1 - fraction(&state)) / rate, &phase_end, &state);
    if (at >= seconds) return;
    struct arrival arrival = make_one(mix, kind, &state);
    arrival.at_ns = (uint64_t)(at * SECOND_NS);
    if (arrival.deadline_ns != UINT64_MAX) arrival.deadline_ns += arrival.at_ns;
    append(arrivals, room, &arrival);
  }
}

static int by_time(const void *a, const void *b) {
  const struct arrival *left = a, *right = b;
  if (left->at_ns != right->at_ns) return left->at_ns < right->at_ns ? -1 : 1;
  return (int)left->kind - (int)right->kind;
}

void arrivals_make(struct arrivals *arrivals, const struct mix *mix, double load, uint64_t seed,
                   double seconds) {
  assert(arrivals != NULL && mix != NULL && load > 0 && seconds > 0);
  uint32_t room = 0;
  double dated = load - mix->demand_share - mix->write_share;
  double demand_mean = power_of_two_mean(mix->demand_least, mix->demand_most);
  double job_mean = log_uniform_mean((double)mix->job_least, (double)mix->job_most);
  double per_second[KINDS] = {
      [DEMAND] = mix->demand_share * mix->bandwidth / demand_mean,
      [WRITE] = mix->write_share * mix->bandwidth / EXTENT_BYTES,
      [DATED_READ] = dated * mix->dated_read_share * mix->bandwidth / EXTENT_BYTES,
      [JOB] = dated * (1 - mix->dated_read_share) * mix->bandwidth / job_mean,
      [GUESS] = mix->guess_share * mix->bandwidth / GUESS_BYTES,
  };
  *arrivals = (struct arrivals){0};
  for (enum kind kind = 0; kind < KINDS; kind++)
    fill(arrivals, &room, mix, kind, per_second[kind], seed, seconds);
  qsort(arrivals->all, arrivals->count, sizeof *arrivals->all, by_time);
}
