/* The oracle: preemptive earliest deadline first on a medium without latency, that moves any
 * number of bytes at its bandwidth, demand reads and writes before everything else at once.
 *
 * It knows all demand and writes of the future. So time can be measured in the bytes that they
 * leave over, and what remains is one machine at a constant rate: EDF meets all deadlines there
 * whenever that is possible at all. When a job comes that makes it impossible with those that are
 * there, the one with most bytes left, of those due by the first deadline that would be missed, is
 * given up (Moore and Hodgson), whether or not it was begun. No scheduler of real operations, which
 * have a latency and cannot be stopped, knows as much or can do as much with it.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sched_sim.h"

struct pending {
  double due;  /* in bytes left over */
  double left; /* bytes */
  uint32_t arrival;
};

/* Bytes left over by demand and writes until a time: they are served as they come, first. */
struct clock {
  const struct arrivals *arrivals;
  double bytes_per_ns;
  uint64_t at_ns;
  double backlog, left_over;
  uint32_t next;
};

static void pass(struct clock *clock, uint64_t until_ns) {
  double bytes = (double)(until_ns - clock->at_ns) * clock->bytes_per_ns;
  double first = bytes < clock->backlog ? bytes : clock->backlog;
  clock->backlog -= first;
  clock->left_over += bytes - first;
  clock->at_ns = until_ns;
}

/* Times may not go back. */
static double left_over_until(struct clock *clock, uint64_t time_ns) {
  const struct arrivals *arrivals = clock->arrivals;
  for (; clock->next < arrivals->count; clock->next++) {
    const struct arrival *arrival = &arrivals->all[clock->next];
    if (arrival->at_ns > time_ns) break;
    if (arrival->kind != DEMAND && arrival->kind != WRITE) continue;
    pass(clock, arrival->at_ns);
    clock->backlog += (double)arrival->bytes;
  }
  pass(clock, time_ns);
  return clock->left_over;
}

struct moment {
  uint64_t time_ns;
  uint32_t arrival;
  bool is_deadline;
};

static int by_time(const void *a, const void *b) {
  const struct moment *left = a, *right = b;
  if (left->time_ns != right->time_ns) return left->time_ns < right->time_ns ? -1 : 1;
  return 0;
}

static bool is_dated(const struct arrival *arrival) {
  return arrival->kind == JOB || arrival->kind == DATED_READ;
}

/* Arrival and deadline of every dated arrival, in bytes left over. */
static void transform(const struct arrivals *arrivals, double bandwidth, double *came,
                      double *due) {
  struct moment *moments = calloc(2 * (size_t)arrivals->count + 1, sizeof *moments);
  uint32_t count = 0;
  if (moments == NULL) abort();
  for (uint32_t i = 0; i < arrivals->count; i++) {
    const struct arrival *arrival = &arrivals->all[i];
    if (!is_dated(arrival)) continue;
    moments[count++] = (struct moment){arrival->at_ns, i, false};
    moments[count++] = (struct moment){arrival->deadline_ns, i, true};
  }
  qsort(moments, count, sizeof *moments, by_time);
  struct clock clock = {.arrivals = arrivals, .bytes_per_ns = bandwidth / 1e9};
  for (uint32_t i = 0; i < count; i++) {
    double bytes = left_over_until(&clock, moments[i].time_ns);
    (moments[i].is_deadline ? due : came)[moments[i].arrival] = bytes;
  }
  free(moments);
}

struct edf {
  struct pending *all; /* by deadline */
  uint32_t count;
};

static void drop(struct edf *edf, uint32_t number) {
  edf->count--;
  memmove(&edf->all[number], &edf->all[number + 1], (edf->count - number) * sizeof edf->all[0]);
}

/* Serves `bytes`, those with the earliest deadlines first. */
static void serve(struct edf *edf, double bytes, bool *met) {
  while (edf->count > 0 && bytes >= edf->all[0].left) {
    bytes -= edf->all[0].left;
    met[edf->all[0].arrival] = true;
    drop(edf, 0);
  }
  if (edf->count > 0) edf->all[0].left -= bytes;
}

static void insert(struct edf *edf, const struct pending *pending) {
  uint32_t at = edf->count;
  while (at > 0 && edf->all[at - 1].due > pending->due) at--;
  memmove(&edf->all[at + 1], &edf->all[at], (edf->count - at) * sizeof edf->all[0]);
  edf->all[at] = *pending;
  edf->count++;
}

/* Gives up what must be given up for the rest to be in time. */
static void make_feasible(struct edf *edf, double now) {
  double ready = now;
  for (uint32_t i = 0; i < edf->count; i++) {
    ready += edf->all[i].left;
    if (ready <= edf->all[i].due) continue;
    uint32_t largest = 0;
    for (uint32_t j = 1; j <= i; j++)
      if (edf->all[j].left > edf->all[largest].left) largest = j;
    ready -= edf->all[largest].left;
    drop(edf, largest);
    i--;
  }
}

void oracle_run(const struct arrivals *arrivals, double bandwidth, bool *met) {
  assert(arrivals != NULL && bandwidth > 0 && met != NULL);
  double *came = calloc(arrivals->count + 1, sizeof *came);
  double *due = calloc(arrivals->count + 1, sizeof *due);
  struct edf edf = {.all = calloc(arrivals->count + 1, sizeof *edf.all)};
  if (came == NULL || due == NULL || edf.all == NULL) abort();
  transform(arrivals, bandwidth, came, due);
  double now = 0;
  for (uint32_t i = 0; i < arrivals->count; i++) {
    if (!is_dated(&arrivals->all[i])) continue;
    serve(&edf, came[i] - now, met);
    now = came[i];
    insert(&edf, &(struct pending){due[i], (double)arrivals->all[i].bytes, i});
    make_feasible(&edf, now);
  }
  serve(&edf, 1e18, met);
  free(came);
  free(due);
  free(edf.all);
}
