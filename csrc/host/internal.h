/* The inside of a host's queue: commands in flight, and what a pass keeps.
 *
 * host.c makes a queue, socket.c receives and sends, batch.c starts and ends commands of batches,
 * deadline.c keeps time. Nothing here is for callers: they see csrc/host.h only.
 */
#ifndef PRESTAGE_HOST_INTERNAL_H
#define PRESTAGE_HOST_INTERNAL_H

#include <assert.h>
#include <string.h>

#include "../host.h"

enum ps_host_limit {
  PS_SCRATCH_SIZE = 256 << 10, /* of headers and small payloads that one receive may bring */
  PS_VECTORS = 256             /* pieces that one send takes */
};

enum command_kind {
  COMMAND_FREE = 0,
  COMMAND_SINGLE,
  COMMAND_BATCH,
  COMMAND_KEPT /* it has ended, and its CID must not be used again yet */
};

/* A command in flight. It keeps its place while it is, which is not the place of its slot: the
 * engine is given the address of `iov` before it says which slot that will be. */
struct command {
  struct iovec iov; /* the engine reads it each time that it moves bytes */
  struct ps_host_batch *batch;
  uint64_t deadline_us; /* 0: none */
  uint32_t piece;
  uint16_t slot;
  uint16_t next; /* of those that are free */
  uint8_t kind;  /* enum command_kind */
  bool is_overdue;
  bool is_kept; /* its slot is not free when it ends */
};

struct ps_host {
  struct ps_host_config config;
  struct ps_host_state state;
  struct ps_engine *engine;
  struct ps_host_work *work; /* NULL: of single commands only */
  struct command *commands;
  struct ps_host_completion *completions;
  uint16_t *places; /* by slot: of its command */
  uint8_t *scratch;
  int32_t socket;
  int32_t low_water;       /* bytes that wake the caller */
  uint32_t news;           /* of this pass */
  uint32_t batch_commands; /* in flight */
  uint32_t in_capsule_size;
  uint16_t first_free;
  bool is_blocked;  /* the socket takes no more */
  bool was_batch;   /* the last command that was started was of a batch */
  bool was_payload; /* the last receive brought much payload: the next begins with a header */
};

/* ---- host.c ---- */

/* Submit a command of either kind; NULL when no slot is free or the connection is not open. */
struct command *ps_command_start(struct ps_host *host, const uint8_t *sqe, uint32_t transfer,
                                 void *address, uint32_t length, uint64_t deadline_us);
/* The command has ended: its slot is free, unless its CID is kept. */
void ps_command_end(struct ps_host *host, struct command *command);

/* ---- batch.c ---- */

void ps_batch_completed(struct ps_host *host, const struct command *command,
                        const struct ps_host_completion *completion);
/* A batch ends by itself. */
void ps_batch_end(struct ps_host *host, struct ps_host_batch *batch, enum ps_host_batch_end end);

#endif
