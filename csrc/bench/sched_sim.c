/* One run of the simulation of the media scheduler; prints a line of JSON.
 *
 *   sched_sim MIX POLICY LOAD SEED SECONDS [WINDOW] [all]
 *
 * MIX      a regime of sched_arrivals.c             POLICY   deadline, fifo or priority
 * LOAD     demand, writes and dated work, as a share of the medium's bandwidth (0.9)
 * WINDOW   operations under way of the plain policies (32)
 * all      admission lets everything in
 */
#include "sched_sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP_NS (SECOND_NS / 2) /* what comes before is not counted */

static const struct policy *policy_named(const char *name) {
  const struct policy *const policies[] = {&policy_deadline, &policy_fifo, &policy_priority};
  for (uint32_t i = 0; i < 3; i++)
    if (strcmp(policies[i]->name, name) == 0) return policies[i];
  return NULL;
}

static int usage(void) {
  fprintf(stderr, "sched_sim MIX POLICY LOAD SEED SECONDS [WINDOW] [all]\n");
  return 2;
}

int main(int argc, char **argv) {
  if (argc < 6) return usage();
  const struct mix *mix = mix_named(argv[1]);
  const struct policy *policy = policy_named(argv[2]);
  double load = strtod(argv[3], NULL), seconds = strtod(argv[5], NULL);
  uint64_t seed = strtoull(argv[4], NULL, 10);
  if (mix == NULL || policy == NULL || load <= 0 || seconds <= 0) return usage();
  struct arrivals arrivals;
  arrivals_make(&arrivals, mix, load, seed, seconds);
  bool *oracle = calloc(arrivals.count + 1, sizeof *oracle);
  if (oracle == NULL) abort();
  oracle_run(&arrivals, mix->bandwidth, oracle);
  struct sim sim = {.mix = mix,
                    .policy = policy,
                    .arrivals = &arrivals,
                    .window = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : 32,
                    .with_dated = true,
                    .admits_all = argc > 7 && strcmp(argv[7], "all") == 0};
  struct sim alone = sim;
  alone.with_dated = false;
  sim_run(&sim, seed);
  sim_run(&alone, seed);
  printf("{\"mix\": \"%s\", \"policy\": \"%s\", \"load\": %g, \"seed\": %llu, ", mix->name,
         policy->name, load, (unsigned long long)seed);
  report(&sim, &alone, oracle, WARM_UP_NS);
  printf("}\n");
  free(sim.outcomes);
  free(alone.outcomes);
  free(arrivals.all);
  free(oracle);
  return 0;
}
