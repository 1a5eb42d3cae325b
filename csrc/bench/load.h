/* How the load generator reaches a target (handshake.c). */
#ifndef PRESTAGE_BENCH_LOAD_H
#define PRESTAGE_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

struct endpoint {
  const char *address, *port;
  const char *nqn;  /* NULL: the bare server, which takes I/O at once */
  const char *host; /* NQN of the host */
  uint8_t digests;  /* of I/O queues */
};

struct geometry {
  uint64_t blocks;
  uint32_t block_size;
  uint32_t in_capsule;    /* bytes that an I/O queue takes in the capsule */
  uint32_t queue_entries; /* of an I/O queue at most (MQES + 1) */
  uint32_t queues;        /* I/O queues that the controller granted */
  uint32_t nsid;          /* of the namespace whose geometry this is */
  uint16_t controller;
};

/* Connect the admin queue, enable the controller, ask for I/O queues and the geometry of the
 * namespace `geometry->nsid`. */
int admin_connect(const struct endpoint *endpoint, uint32_t queues, struct geometry *geometry);
/* Connect I/O queue `qid` with `depth` commands; SQ flow control is disabled. */
int queue_connect(const struct endpoint *endpoint, uint16_t qid, uint32_t depth,
                  const struct geometry *geometry);
/* Connect `count` I/O queues, of as many controllers as it takes, and put them into `fds`. Returns
 * how many are of the last controller, which `geometry` is of: their QIDs are 1 and following. */
uint16_t queues_connect(const struct endpoint *endpoint, uint32_t count, uint32_t depth,
                        struct geometry *geometry, int *fds);
/* Open `count` connections that then do nothing: admin queues, each with what I/O queues it is
 * granted. */
void idle_connect(const struct endpoint *endpoint, uint32_t count, struct geometry geometry);
int tcp_connect(const struct endpoint *endpoint);

#endif
