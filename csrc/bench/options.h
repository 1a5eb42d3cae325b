/* The command line of the load generator; load.c says what it means. */
#ifndef PRESTAGE_BENCH_OPTIONS_H
#define PRESTAGE_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "flood.h"

enum { QUEUES_MOST = 256, IDLE_MOST = 16384 };

enum kind { READ, WRITE, MIXED, NOTHING };

struct options {
  struct endpoint endpoint;
  enum kind kind;
  uint32_t size, depth, connections;
  uint32_t nsid, namespaces, idle;
  uint64_t duration_ns, span, pid, rate, commands, cold_percent, sequential, stamped, poll, seed;
  uint64_t header_digest, data_digest;
  bool has_flood;
  const char *flood_nqn, *flood_host; /* NULL: as the reads */
  struct flood_config flood;
};

/* Ends the program, saying why, when something is wrong. */
void read_options(struct options *options, int count, char **arguments);

#endif
