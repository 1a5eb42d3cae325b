/* An I/O queue of the load generator: commands out, completions in. */
#ifndef PRESTAGE_BENCH_QUEUE_H
#define PRESTAGE_BENCH_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "load.h"

enum { DEPTH_MOST = 256, BUFFER = 256 << 10, PAYLOAD = 2 << 20 };

struct queue {
  int fd;
  uint8_t digests;
  /* A command has ended; DW0 and DW1 of its response are in `result`. May start another. */
  void (*ended)(struct queue *queue, uint16_t cid, uint64_t now_ns);
  void *owner;
  uint64_t result;
  bool is_stamped; /* the kernel says when something came */
  uint8_t bytes[BUFFER];
  size_t length;
  size_t payload_left; /* of a C2HData that is arriving */
  uint16_t payload_cid;
  bool payload_ends;  /* SUCCESS: no response follows */
  bool awaits_digest; /* of the payload that has arrived */
  uint32_t payload_crc;
  struct sent_capsule capsules[DEPTH_MOST];
  const void *payloads[DEPTH_MOST]; /* what a command writes */
  struct sent_short data[DEPTH_MOST];
  uint32_t data_digests[DEPTH_MOST]; /* of those payloads */
  uint64_t started_ns[DEPTH_MOST];
  struct iovec out[4 * DEPTH_MOST];
  size_t out_count, out_first;
};

/* Queue a command for sending: opcode, namespace and CDWs as in `sqe`, `length` bytes of data. A
 * write takes them from `payload`, in the capsule when they fit there; NULL: a read. */
void queue_command(struct queue *queue, const struct capsule *sqe, uint16_t cid,
                   const void *payload, uint32_t length, uint32_t in_capsule);
/* Send all that is queued. */
void queue_flush(struct queue *queue);
/* Have the kernel say when something came: that is when its commands have ended, whatever the
 * generator was doing. */
void queue_stamp(struct queue *queue);
/* Take what has come; calls `ended`. */
void queue_receive(struct queue *queue);

uint64_t clock_now_ns(void);
uint64_t random_next(uint64_t *seed);

#endif
