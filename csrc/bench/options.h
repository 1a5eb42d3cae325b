/* The command line of the load generator; load.c says what it means. */
#ifndef PRESTAGE_BENCH_OPTIONS_H
#define PRESTAGE_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "flood.h"

enum { QUEUES_MOST = 64 };

enum kind { READ, WRITE, MIXED, NOTHING };

struct options {
  struct endpoint endpoint;
  enum kind kind;
  uint32_t size, depth, connections;
  uint64_t duration_ns, span, pid, rate, cold_percent, sequential, stamped, seed;
  bool has_flood;
  const char *flood_nqn, *flood_host; /* NULL: as the reads */
  struct flood_config flood;
};

/* Ends the program, saying why, when something is wrong. */
void read_options(struct options *options, int count, char **arguments);

#endif
