/* What is told about one run, as JSON. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "sched_sim.h"

#define FORECAST_TOLERANCE 0.25

static int by_size(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return left < right ? -1 : left > right;
}

struct numbers {
  double *all;
  uint32_t count;
};

static struct numbers numbers_make(const struct sim *sim) {
  struct numbers numbers = {.all = calloc(sim->arrivals->count + 1, sizeof(double))};
  if (numbers.all == NULL) abort();
  return numbers;
}

static double percentile(struct numbers *numbers, double share) {
  if (numbers->count == 0) return 0;
  qsort(numbers->all, numbers->count, sizeof(double), by_size);
  uint32_t index = (uint32_t)(share * numbers->count);
  return numbers->all[index < numbers->count ? index : numbers->count - 1];
}

static void add(struct numbers *numbers, double number) { numbers->all[numbers->count++] = number; }

static void report_demand(const struct sim *sim, const char *name, uint64_t from_ns) {
  struct numbers times = numbers_make(sim);
  for (uint32_t i = 0; i < sim->arrivals->count; i++) {
    const struct arrival *arrival = &sim->arrivals->all[i];
    if (arrival->kind != DEMAND || arrival->at_ns < from_ns) continue;
    add(&times, (double)(sim->outcomes[i].ended_ns - arrival->at_ns) / US_NS);
  }
  printf("\"%s\": {\"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f}, ", name,
         percentile(&times, 0.5), percentile(&times, 0.99), percentile(&times, 0.999));
  free(times.all);
}

static void report_deadlines(const struct sim *sim, const bool *oracle, uint64_t from_ns) {
  uint32_t all = 0, admitted = 0, met = 0, best = 0, both = 0;
  struct numbers late = numbers_make(sim);
  for (uint32_t i = 0; i < sim->arrivals->count; i++) {
    const struct arrival *arrival = &sim->arrivals->all[i];
    const struct outcome *outcome = &sim->outcomes[i];
    if (arrival->deadline_ns == UINT64_MAX || arrival->at_ns < from_ns) continue;
    bool is_met = outcome->ended_ns <= arrival->deadline_ns;
    all++;
    admitted += outcome->is_admitted;
    met += is_met;
    best += oracle[i];
    both += is_met && oracle[i];
    if (outcome->is_admitted && !is_met)
      add(&late, (double)(outcome->ended_ns - arrival->deadline_ns) / MS_NS);
  }
  printf("\"dated\": {\"all\": %u, \"admitted\": %u, \"met\": %u, \"oracle\": %u, \"both\": %u, ",
         all, admitted, met, best, both);
  printf("\"late\": %u, \"late_p50_ms\": %.2f, \"late_p99_ms\": %.2f, \"late_most_ms\": %.2f}, ",
         late.count, percentile(&late, 0.5), percentile(&late, 0.99), percentile(&late, 1));
  free(late.all);
}

static void report_waits(const struct sim *sim) {
  static const char *const names[KINDS] = {"demand", "write", "dated_read", "job", "guess"};
  double longest[KINDS] = {0};
  uint32_t left[KINDS] = {0};
  for (uint32_t i = 0; i < sim->arrivals->count; i++) {
    const struct arrival *arrival = &sim->arrivals->all[i];
    const struct outcome *outcome = &sim->outcomes[i];
    if (!outcome->is_admitted) continue;
    if (outcome->ended_ns == UINT64_MAX) left[arrival->kind]++;
    double wait_ms = (double)(outcome->started_ns - arrival->at_ns) / MS_NS;
    if (outcome->started_ns != UINT64_MAX && wait_ms > longest[arrival->kind])
      longest[arrival->kind] = wait_ms;
  }
  printf("\"longest_wait_ms\": {");
  for (uint32_t i = 0; i < KINDS; i++)
    printf("%s\"%s\": %.3f", i > 0 ? ", " : "", names[i], longest[i]);
  printf("}, \"not_done\": {");
  for (uint32_t i = 0; i < KINDS; i++) printf("%s\"%s\": %u", i > 0 ? ", " : "", names[i], left[i]);
  printf("}, ");
}

/* How far the predicted time from arrival to ready was from what came true. */
static void report_forecasts(const struct sim *sim, uint64_t from_ns) {
  struct numbers errors = numbers_make(sim);
  uint32_t good = 0;
  for (uint32_t i = 0; i < sim->arrivals->count; i++) {
    const struct arrival *arrival = &sim->arrivals->all[i];
    const struct outcome *outcome = &sim->outcomes[i];
    if (outcome->forecast_ns == UINT64_MAX || !outcome->is_admitted || arrival->at_ns < from_ns)
      continue;
    double real = (double)(outcome->ended_ns - arrival->at_ns);
    double error = ((double)(outcome->forecast_ns - arrival->at_ns) - real) / real;
    good += error >= -FORECAST_TOLERANCE && error <= FORECAST_TOLERANCE;
    add(&errors, error);
  }
  double share = errors.count > 0 ? (double)good / errors.count : 0;
  printf(
      "\"forecasts\": {\"count\": %u, \"within_25_percent\": %.4f, \"p5\": %.3f, \"p50\": %.3f, "
      "\"p95\": %.3f}",
      errors.count, share, percentile(&errors, 0.05), percentile(&errors, 0.5),
      percentile(&errors, 0.95));
  free(errors.all);
}

void report(const struct sim *sim, const struct sim *alone, const bool *oracle, uint64_t from_ns) {
  assert(sim != NULL && alone != NULL && oracle != NULL);
  report_demand(sim, "demand", from_ns);
  report_demand(alone, "demand_alone", from_ns);
  report_deadlines(sim, oracle, from_ns);
  report_waits(sim);
  report_forecasts(sim, from_ns);
}
