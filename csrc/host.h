/* A queue of a host: the socket's receive and send loops around a PDU engine in host role.
 *
 * One call a readiness of the socket receives as much as there is, within a budget: payload
 * straight into the memory of its command, headers beside it in the same system call. Single
 * commands end in an array for the caller. A batch is one request of many commands: its next ones
 * are started here as slots become free, by whichever queue of the controller has one, without the
 * caller.
 *
 * A queue and the work it shares belong to one thread. Time is given, in microseconds of any clock.
 * The text between the two cffi marks is the single source for C, cffi and the stub.
 */
#ifndef PRESTAGE_HOST_H
#define PRESTAGE_HOST_H

#include "engine.h"

/* cffi: begin */
struct ps_host_config {
  uint32_t slot_count; /* commands in flight at most, 1 to 4096 */
  uint32_t digests;    /* enum ps_digest bits to ask for */
  uint64_t timeout_us; /* that a command may take */
};

/* What a pass has brought, as bits. */
enum ps_host_news {
  PS_HOST_CONNECTED = 1,   /* the negotiation is done: commands may be submitted */
  PS_HOST_COMPLETIONS = 2, /* single commands have ended: see ps_host_state */
  PS_HOST_FREED = 4,       /* slots have become free that batches did not take */
  PS_HOST_ENDED = 8,       /* a batch has ended: see ps_host_next_ended */
  PS_HOST_BLOCKED = 16,    /* the socket is full: call ps_host_send when it is not */
  PS_HOST_MORE = 32,       /* there is more to send: call ps_host_send soon */
  PS_HOST_OVER = 64        /* the connection is over: see ps_host_state */
};

/* How a connection has ended. */
enum ps_host_end {
  PS_HOST_CLOSED = 1,    /* by the target */
  PS_HOST_FAILED = 2,    /* by an error of the socket */
  PS_HOST_TERMINATED = 3 /* by a TermReq, ours or the target's */
};

struct ps_host_completion {
  uint32_t slot;
  uint32_t transferred; /* bytes of data that moved */
  uint32_t digest_error;
  uint8_t cqe[16];
};

struct ps_host_state {
  uint32_t in_flight; /* slots in use, those whose CID is kept included */
  uint32_t reserved;  /* the caller's: slots that were promised, which batches leave free */
  uint32_t completion_count;
  uint32_t end;  /* enum ps_host_end; 0: it goes on */
  int32_t error; /* FAILED: errno */
  uint32_t fei;  /* TERMINATED: as in struct ps_engine_event */
  uint16_t fes;
  uint16_t from_peer;
  const struct ps_host_completion *completions; /* of single commands that ended in this pass */
};

enum ps_host_piece_state { PS_PIECE_WAITING = 0, PS_PIECE_STARTED = 1, PS_PIECE_DONE = 2 };

/* What one command of a batch carries. */
struct ps_host_piece {
  uint64_t slba;
  uint64_t address; /* of its memory, `nlb` blocks */
  uint32_t nlb;     /* 1 to 65536 */
  uint32_t state;   /* enum ps_host_piece_state */
};

enum ps_host_batch_end {
  PS_BATCH_RUNNING = 0,
  PS_BATCH_DONE = 1,    /* every command has succeeded and moved all of its bytes */
  PS_BATCH_FAILED = 2,  /* `failure` is the first command's that did not */
  PS_BATCH_OVERDUE = 3, /* a command was not answered in time */
  PS_BATCH_LOST = 4,    /* the connection was lost under a command */
  PS_BATCH_STOPPED = 5  /* by ps_host_stop */
};

/* A request of many commands. All but what is said to be the caller's is zero at first. */
struct ps_host_batch {
  struct ps_host_batch *next;     /* of those with pieces that wait, or of those that ended */
  struct ps_host_batch *previous; /* of those with pieces that wait */
  struct ps_host_piece *pieces;   /* the caller's, until the batch has ended everywhere */
  uint64_t tag;                   /* the caller's */
  uint32_t count;                 /* the caller's: of pieces, at least 1 */
  uint32_t block_size;            /* the caller's, bytes */
  uint32_t is_read;               /* the caller's: data comes from the controller */
  uint32_t is_repeatable;         /* the caller's: a lost command may be sent again */
  uint32_t next_piece;            /* no piece before it waits */
  uint32_t waiting;               /* pieces that wait */
  uint32_t done;                  /* pieces that are done */
  uint32_t end;                   /* enum ps_host_batch_end */
  uint32_t is_listed;
  uint32_t failed_length; /* FAILED: bytes that the command was to move */
  struct ps_host_completion failure;
  uint8_t sqe[64]; /* the caller's: SLBA 0 and NLB 1, the engine's fields apart */
};

/* What the queues of one controller share: batches with pieces that wait, which take turns, and
 * batches that have ended. Zeroed memory is an empty one. */
struct ps_host_work {
  struct ps_host_batch *first;
  struct ps_host_batch *last;
  struct ps_host_batch *ended_first;
  struct ps_host_batch *ended_last;
  uint64_t waiting;  /* pieces of all batches that wait */
  uint64_t requests; /* the caller's: single commands that wait for a slot */
};

struct ps_host;

/* Bytes of memory that a queue of this configuration needs (aligned to 64); 0 when a field of
 * `config` is out of range. */
size_t ps_host_size(const struct ps_host_config *config);

/* Initialise a queue in `memory` on a connected, non-blocking socket, which stays the caller's. Its
 * ICReq is queued. Returns NULL when a field of `config` is out of range. */
struct ps_host *ps_host_init(void *memory, const struct ps_host_config *config, int32_t socket);

/* Where the queue says how it stands; valid as long as the queue. */
struct ps_host_state *ps_host_state(struct ps_host *host);

/* The queue is connected: from now on it takes part in `work`. In-capsule data has at most
 * `in_capsule_size` bytes. */
void ps_host_attach(struct ps_host *host, struct ps_host_work *work, uint32_t in_capsule_size);

/* Queue a single command; `address` is its memory, which may be moved by ps_host_redirect, and the
 * rest as in ps_engine_submit. `deadline_us` 0: it may take as long as it likes. Returns the slot
 * (also the CID), or -1 when none is free or the connection is not open. */
int32_t ps_host_submit(struct ps_host *host, const uint8_t *sqe, uint32_t transfer, void *address,
                       uint32_t length, uint64_t deadline_us);

/* From now on the data of the single command in `slot` goes to, or comes from, memory elsewhere, of
 * the same length. */
void ps_host_redirect(struct ps_host *host, uint32_t slot, void *address);

/* Something under way means the CID of the command in `slot` (an Abort): until ps_host_let_go no
 * other command gets it, also when the command has ended. Once for each command. */
void ps_host_keep(struct ps_host *host, uint32_t slot);

/* Nothing under way means the CID any more. Returns whether the slot is free by that. */
bool ps_host_let_go(struct ps_host *host, uint32_t slot);

/* ---- passes: each forgets the completions of the one before; they return ps_host_news bits ----
 */

/* The socket is readable: receive, start commands of batches, send. */
uint32_t ps_host_receive(struct ps_host *host, uint64_t now_us);

/* Send what is queued: the socket is writable, or something was queued. */
uint32_t ps_host_send(struct ps_host *host, uint64_t now_us);

/* Send what the socket takes at once, whatever comes of it: the connection is about to be closed.
 */
void ps_host_send_last(struct ps_host *host);

/* ---- batches ---- */

/* Let the queues of `work` carry out a batch. */
void ps_host_add(struct ps_host_work *work, struct ps_host_batch *batch);

/* Start at most `most` commands of batches, as far as slots are free; returns how many. */
uint32_t ps_host_fill(struct ps_host *host, uint32_t most, uint64_t now_us);

/* Start no more commands of a batch, unless it has ended anyway. It does not come up as ended. */
void ps_host_stop(struct ps_host_work *work, struct ps_host_batch *batch);

/* Carry a batch that runs out by other pieces, those of its commands that are not done cut anew. No
 * command of it is in flight. */
void ps_host_recut(struct ps_host_work *work, struct ps_host_batch *batch,
                   struct ps_host_piece *pieces, uint32_t count);

/* A batch that has ended, oldest first, each once; NULL: there is none. */
struct ps_host_batch *ps_host_next_ended(struct ps_host_work *work);

/* Make a command of a batch that has ended, or was stopped, a single command of the caller's, which
 * may be redirected, so that the batch's memory can be given back at once. Returns its slot and
 * where its memory is; -1: none of the batch is in flight on this queue any more. */
int32_t ps_host_detach(struct ps_host *host, const struct ps_host_batch *batch,
                       struct iovec *memory);

/* ---- time ---- */

/* The earliest deadline of the commands in flight; 0: there is none. */
uint64_t ps_host_deadline(const struct ps_host *host);

/* A command whose time is up at `now_us`: its slot. It gets as much time again, and its batch ends.
 * -1: there is none. -2: there is one whose time was up before. */
int32_t ps_host_overdue(struct ps_host *host, uint64_t now_us);

/* ---- the end ---- */

/* Forget all commands in flight: the connection is over. Those of batches wait again where
 * `may_repeat` and their batch allow it; other batches end. The queue must not be used again. */
void ps_host_lose(struct ps_host *host, bool may_repeat);
/* cffi: end */

#endif
