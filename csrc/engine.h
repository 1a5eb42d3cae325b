/* The NVMe/TCP PDU engine: bytes in, actions out, no system calls and no allocation.
 *
 * One `ps_engine` is one end of one connection, in either role. It frames PDUs, checks and makes
 * digests, negotiates (ICReq/ICResp), hands out and honours transfer tags, and says what went wrong
 * (C2HTermReq/H2CTermReq). It knows nothing of namespaces, media, sockets or time.
 *
 * Source: NVM Express TCP Transport Specification 1.0 (clauses cited at each rule).
 * The text between the two cffi marks is the single source for C, cffi and the stub.
 */
#ifndef PRESTAGE_ENGINE_H
#define PRESTAGE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "digest.h"

/* cffi: begin */
enum ps_role { PS_ROLE_TARGET = 0, PS_ROLE_HOST = 1 };

struct ps_engine_config {
  uint32_t role;            /* enum ps_role */
  uint32_t slot_count;      /* commands in flight at most, 1 to 4096 */
  uint32_t max_h2c_data;    /* target: MAXH2CDATA announced, bytes, 4 KiB to 16 MiB, dwords */
  uint32_t in_capsule_size; /* in-capsule data taken before ps_engine_bind, bytes (8192) */
  uint32_t digests;         /* enum ps_digest bits: granted at most (target), asked for (host) */
  uint32_t max_r2t;         /* host: MAXR2T asked, 0-based */
  uint32_t data_alignment;  /* host: HPDA asked (0-based dwords); a target always asks CPDA 0 */
};

enum ps_engine_event_kind {
  PS_EVENT_NONE = 0,
  PS_EVENT_CONNECTED = 1,  /* ICReq/ICResp done; ICResp is queued for sending (target) */
  PS_EVENT_COMMAND = 2,    /* target: a command capsule's SQE is complete; see ps_engine_take */
  PS_EVENT_DATA = 3,       /* target: all host data of the slot has arrived, digests checked */
  PS_EVENT_SENT = 4,       /* target: last byte of the slot's response handed over; slot is free */
  PS_EVENT_COMPLETION = 5, /* host: the slot's completion arrived; slot is free */
  PS_EVENT_TERMINATED = 6  /* fatal: a TermReq was queued by us, or came from the peer */
};

struct ps_engine_event {
  uint32_t kind;         /* enum ps_engine_event_kind */
  uint32_t slot;         /* COMMAND, DATA, SENT, COMPLETION */
  uint32_t data_length;  /* COMMAND: in-capsule bytes that follow (0: none); COMPLETION: bytes
                            that were transferred, in the capsule or by PDUs of data */
  uint32_t digest_error; /* DATA (target), COMPLETION (host): the data digest did not match */
  uint16_t fes;          /* TERMINATED: fatal error status (TCP 1.0, 3.6.2.5) */
  uint16_t from_peer;    /* TERMINATED: 1 when the peer said it */
  uint32_t fei;          /* TERMINATED: fatal error information */
  uint8_t entry[64];     /* COMMAND: the SQE; COMPLETION: the CQE in the first 16 bytes;
                            otherwise not written */
};

struct ps_engine;

/* Bytes of memory that an engine of this configuration needs (aligned to 64); 0 when a field of
 * `config` is out of range. */
size_t ps_engine_size(const struct ps_engine_config *config);

/* Initialise an engine in `memory`, of which little is touched before it is used. A host's ICReq is
 * queued at once.
 * Returns NULL when a field of `config` is out of range. */
struct ps_engine *ps_engine_init(void *memory, const struct ps_engine_config *config);

/* ---- input ---- */

/* Consume at most `size` bytes; returns how many. It stops early after each event, consumes nothing
 * until that event was taken, and nothing while the in-capsule data of a COMMAND has no destination
 * yet (ps_engine_take, ps_engine_skip, or ps_engine_respond), which is how a caller withholds
 * memory. */
size_t ps_engine_receive(struct ps_engine *engine, const uint8_t *bytes, size_t size);

/* Target: the submission queue entries of the whole command capsules that these bytes, which
 * ps_engine_receive is to get next, begin with: up to `most`; returns their number. Nothing is
 * consumed or checked, header digests neither: it is to get ready for what comes, not to act on. */
uint32_t ps_engine_peek(const struct ps_engine *engine, const uint8_t *bytes, size_t size,
                        const uint8_t **entries, uint32_t most);

/* Where the next payload bytes may be received directly: fills up to `most` iovecs, returns their
 * number; 0 when header bytes (or bytes to be discarded) come next. After a direct receive call
 * ps_engine_received, before any slot is ended. */
size_t ps_engine_destination(struct ps_engine *engine, struct iovec *iov, size_t most);
void ps_engine_received(struct ps_engine *engine, size_t size);

/* Take the next event, oldest first; false when there is none. */
bool ps_engine_next_event(struct ps_engine *engine, struct ps_engine_event *event);

/* ---- output ---- */

/* Bytes waiting to be sent: fills up to `most` iovecs, returns their number. The bytes stay valid
 * and unchanged until ps_engine_sent has passed them. */
size_t ps_engine_output(struct ps_engine *engine, struct iovec *iov, size_t most);
void ps_engine_sent(struct ps_engine *engine, size_t size);

/* True after a TermReq was sent or received: nothing more is parsed; send what is queued, close. */
bool ps_engine_is_terminated(const struct ps_engine *engine);

/* Digests in force, enum ps_digest bits (after CONNECTED). */
uint32_t ps_engine_digests(const struct ps_engine *engine);

/* ---- target role ---- */

/* The queue's parameters, from the Connect command: `sq_size` entries (SQSIZE + 1), whether the
 * host disabled SQ flow control (CATTR bit 2: SQHD is FFFFh, SUCCESS may stand for a response), the
 * in-capsule limit of this queue in bytes, and whether SUCCESS may be used at all. */
void ps_engine_bind(struct ps_engine *engine, uint32_t sq_size, bool flow_control_disabled,
                    uint32_t in_capsule_size, bool success_allowed);

/* Receive the host's data of a command into `iov` (`length` bytes in all): in-capsule data as it
 * follows, else by R2T. The iovecs and their memory must stay until DATA, or until the slot is
 * ended. The array itself is not copied. Ends in a DATA event. */
void ps_engine_take(struct ps_engine *engine, uint32_t slot, const struct iovec *iov,
                    size_t iov_count, uint32_t length);

/* Throw away the in-capsule data that follows (a command that failed validation). No DATA event:
 * ps_engine_respond may be called at once, in any order with the bytes arriving. */
void ps_engine_skip(struct ps_engine *engine, uint32_t slot);

/* Answer a command: `data_length` bytes of C2HData from `iov` (0: none), then the response, or
 * SUCCESS in the last C2HData when that is allowed, status is 0 and DW0/DW1 are 0. `status` is the
 * 15-bit status field (DNR << 14 | MORE << 13 | CRD | SCT << 8 | SC). SQHD, CID and SQID are the
 * engine's. The iovecs and their memory must stay until SENT. Legal in any state of the slot: one
 * still receiving data ends here, and its H2CData that is still under way is discarded without
 * touching the memory it was to go to. After termination nothing is sent: SENT follows at once. */
void ps_engine_respond(struct ps_engine *engine, uint32_t slot, uint16_t status, uint32_t dw0,
                       uint32_t dw1, const struct iovec *iov, size_t iov_count,
                       uint32_t data_length);

/* The slot of the oldest unanswered command with this CID, or -1. */
int32_t ps_engine_find(const struct ps_engine *engine, uint16_t cid);

/* True while the host's data of the slot is still arriving. */
bool ps_engine_is_receiving(const struct ps_engine *engine, uint32_t slot);

/* Queue a C2HTermReq of our own (for example, an idle half-open connection). */
void ps_engine_terminate(struct ps_engine *engine, uint16_t fes, uint32_t fei);

/* ---- host role ---- */

enum ps_transfer {
  PS_TRANSFER_NONE = 0,
  PS_TRANSFER_FROM_CONTROLLER = 1,
  PS_TRANSFER_TO_CONTROLLER = 2, /* by R2T */
  PS_TRANSFER_IN_CAPSULE = 3
};

/* Send the 64-byte `sqe` (its CID and SGL1 are set by the engine) with up to `length` bytes of data
 * in the given direction. Returns the slot (also the CID), or -1 when none is free. The iovecs and
 * their memory must stay until COMPLETION. */
int32_t ps_engine_submit(struct ps_engine *engine, const uint8_t *sqe, uint32_t transfer,
                         const struct iovec *iov, size_t iov_count, uint32_t length);

/* Something under way means the CID of the slot's command (an Abort): until ps_engine_let_go no
 * other command gets it, also when the command has ended long since. Once for each command. */
void ps_engine_keep(struct ps_engine *engine, uint32_t slot);
void ps_engine_let_go(struct ps_engine *engine, uint32_t slot);

/* CRC32C (Castagnoli) as NVMe/TCP digests use it, of `size` bytes. */
uint32_t ps_crc32c(const uint8_t *bytes, size_t size);
/* cffi: end */

#endif
