/* The inside of the PDU engine: layouts on the wire, slots, receive and send state.
 *
 * One file per message kind reads or writes it; receive.c frames, transmit.c sends, event.c tells.
 * Nothing here is for callers: they see csrc/engine.h only.
 */
#ifndef PRESTAGE_ENGINE_INTERNAL_H
#define PRESTAGE_ENGINE_INTERNAL_H

#include <assert.h>
#include <string.h>

#include "../engine.h"
#include "../nvme.h"

/* ---- the wire: little-endian numbers without alignment ---- */

typedef struct {
  uint8_t bytes[2];
} ps_le16;

typedef struct {
  uint8_t bytes[4];
} ps_le32;

static inline uint16_t ps_get16(ps_le16 value) {
  return (uint16_t)(value.bytes[0] | value.bytes[1] << 8);
}

static inline uint32_t ps_get32(ps_le32 value) {
  return (uint32_t)value.bytes[0] | (uint32_t)value.bytes[1] << 8 | (uint32_t)value.bytes[2] << 16 |
         (uint32_t)value.bytes[3] << 24;
}

static inline ps_le16 ps_put16(uint32_t value) {
  return (ps_le16){{(uint8_t)value, (uint8_t)(value >> 8)}};
}

static inline ps_le32 ps_put32(uint32_t value) {
  return (ps_le32){
      {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)}};
}

/* Common header (TCP 1.0, 3.6.1). */
struct pdu_common {
  uint8_t type;
  uint8_t flags;
  uint8_t hlen;
  uint8_t pdo;
  ps_le32 plen;
};
_Static_assert(sizeof(struct pdu_common) == 8, "common header");

/* ICReq and ICResp (TCP 1.0, 3.6.2.2 and 3.6.2.3): they differ in the meaning of two fields. */
struct pdu_ic {
  struct pdu_common common;
  ps_le16 pfv;
  uint8_t alignment; /* HPDA in an ICReq, CPDA in an ICResp, 0-based dwords */
  uint8_t digests;
  ps_le32 limit; /* MAXR2T in an ICReq (0-based), MAXH2CDATA in an ICResp (bytes) */
  uint8_t reserved[112];
};
_Static_assert(sizeof(struct pdu_ic) == 128, "ICReq, ICResp");

/* H2CTermReq and C2HTermReq (TCP 1.0, 3.6.2.4 and 3.6.2.5). */
struct pdu_term {
  struct pdu_common common;
  ps_le16 fes;
  ps_le32 fei;
  uint8_t reserved[10];
};
_Static_assert(sizeof(struct pdu_term) == 24, "TermReq");

/* Capsules (TCP 1.0, 3.6.2.6 and 3.6.2.7), with the entries as far as the engine reads them. */
struct pdu_command {
  struct pdu_common common;
  uint8_t opcode;
  uint8_t flags; /* FUSE 1:0, PSDT 7:6 */
  ps_le16 cid;
  uint8_t dwords1_5[20];
  uint8_t sgl_address[8];
  ps_le32 sgl_length;
  uint8_t sgl_reserved[3];
  uint8_t sgl_type;
  uint8_t dwords10_15[24];
};
_Static_assert(sizeof(struct pdu_command) == 72, "command capsule");

struct pdu_response {
  struct pdu_common common;
  ps_le32 dw0;
  ps_le32 dw1;
  ps_le16 sqhd;
  ps_le16 sqid;
  ps_le16 cid;
  ps_le16 status; /* phase in bit 0, always 0 over fabrics */
};
_Static_assert(sizeof(struct pdu_response) == 24, "response capsule");

/* H2CData, C2HData and R2T (TCP 1.0, 3.6.2.8 to 3.6.2.10): one layout. */
struct pdu_data {
  struct pdu_common common;
  ps_le16 cccid;
  ps_le16 ttag;   /* reserved in a C2HData */
  ps_le32 offset; /* DATAO, R2TO */
  ps_le32 length; /* DATAL, R2TL */
  ps_le32 reserved;
};
_Static_assert(sizeof(struct pdu_data) == 24, "H2CData, C2HData, R2T");

/* Offsets that a fatal error information (FEI) names. */
enum ps_field {
  PS_FIELD_TYPE = offsetof(struct pdu_common, type),
  PS_FIELD_FLAGS = offsetof(struct pdu_common, flags),
  PS_FIELD_HLEN = offsetof(struct pdu_common, hlen),
  PS_FIELD_PDO = offsetof(struct pdu_common, pdo),
  PS_FIELD_PLEN = offsetof(struct pdu_common, plen),
  PS_FIELD_PFV = offsetof(struct pdu_ic, pfv),
  PS_FIELD_ALIGNMENT = offsetof(struct pdu_ic, alignment),
  PS_FIELD_DIGESTS = offsetof(struct pdu_ic, digests),
  PS_FIELD_MAXH2CDATA = offsetof(struct pdu_ic, limit),
  PS_FIELD_CCCID = offsetof(struct pdu_data, cccid),
  PS_FIELD_LENGTH = offsetof(struct pdu_data, length),
  PS_FIELD_CQE_CID = offsetof(struct pdu_response, cid)
};

enum ps_limit {
  PS_DIGEST_SIZE = 4,
  PS_TERM_SIZE_MAX = 152,   /* TCP 1.0, 3.6.2.4: 24 bytes and 128 of the PDU at fault */
  PS_HEADER_SIZE_MAX = 128, /* ICReq */
  PS_SLOT_COUNT_MAX = 4096,
  PS_ALIGNMENT_MAX = 31,          /* HPDA, CPDA */
  PS_H2C_DATA_MIN = 4096,         /* MAXH2CDATA at least (TCP 1.0, 3.6.2.3) */
  PS_H2C_DATA_MAX = 16 << 20,     /* and at most, here */
  PS_SKIP_MAX = 1 << 20,          /* in-capsule data over the queue's limit, yet skipped */
  PS_PLEN_MAX = (16 << 20) + 128, /* of a PDU sent to a target */
  PS_R2T_MAX = 3,                 /* MAXR2T a host may ask, 0-based */
  PS_R2T_RING = PS_R2T_MAX + 2    /* one more is tolerated: see r2t.c */
};

/* ---- state ---- */

enum engine_state { ENGINE_NEGOTIATING = 0, ENGINE_OPEN = 1, ENGINE_TERMINATED = 2 };

enum receive_state {
  RECEIVE_COMMON = 0, /* the first 8 bytes of a PDU */
  RECEIVE_HEADER,     /* the rest of the header and its digest */
  RECEIVE_HOLD,       /* in-capsule data waits for ps_engine_take or ps_engine_skip */
  RECEIVE_PAD,        /* padding up to PDO (host) */
  RECEIVE_PAYLOAD,    /* data into the slot's iovecs */
  RECEIVE_DISCARD,    /* data that nobody wants */
  RECEIVE_DIGEST      /* the data digest */
};

enum slot_state {
  SLOT_FREE = 0,
  SLOT_HELD,       /* target: in-capsule data is next on the wire, no destination yet */
  SLOT_OPEN,       /* target: with the caller, no data under way; host: submitted */
  SLOT_CAPSULE,    /* target: in-capsule data arriving */
  SLOT_TRANSFER,   /* target: R2T queued or sent, H2CData arriving */
  SLOT_RESPONDING, /* target: answered, bytes still to be sent */
  SLOT_COMPLETED,  /* host: the completion arrived; free once its event was taken */
  SLOT_KEPT        /* host: the event was taken; free once the CID is let go */
};

/* What a queued slot sends, in this order; parts of size 0 are passed over. An R2T is a run of its
 * own, a PDU of data and what follows it another. */
enum part {
  PART_R2T = 0, /* target: R2T */
  PART_HEAD,    /* C2HData, H2CData or command capsule header with its digest */
  PART_PAD,     /* zeros up to PDO */
  PART_DATA,
  PART_TAIL, /* data digest, response capsule with its digest */
  PART_END
};

enum { NO_SLOT = 0xffff };

/* A place in an iovec array, and how many bytes are still to pass. */
struct cursor {
  const struct iovec *iov;
  size_t offset;
  uint32_t left;
};

struct slot {
  struct cursor data;
  uint32_t length;    /* bytes of the host data or C2HData transfer */
  uint32_t covered;   /* bytes of it announced by data PDU headers so far */
  uint32_t data_left; /* PART_DATA: bytes still to be sent of this PDU */
  uint32_t sequence;  /* target: order of arrival */
  uint32_t ghost; /* target: bytes asked for by earlier R2Ts of this slot, not come, not wanted */
  uint16_t cid;
  uint16_t ttag;
  uint16_t next;    /* in the free list or in the output queue */
  uint8_t state;    /* enum slot_state */
  uint8_t part;     /* enum part: being sent */
  uint8_t part_end; /* enum part: this run ends before it */
  uint8_t part_offset;
  uint8_t sizes[PART_END]; /* bytes of the fixed parts; PART_DATA unused */
  bool queued;             /* in the output queue */
  bool exposed; /* its bytes were shown by ps_engine_output: they must go out unchanged */
  uint8_t digest_error;
  uint8_t transfer;  /* host: enum ps_transfer */
  uint8_t r2t_count; /* host: R2Ts not honoured yet */
  bool last;         /* host: C2HData with LAST has come */
  bool complete;     /* host: the completion came while a PDU was being sent */
  bool kept;         /* host: the CID must not be used again */
  union {
    struct {
      uint8_t r2t[sizeof(struct pdu_data) + PS_DIGEST_SIZE];
      uint8_t head[sizeof(struct pdu_data) + PS_DIGEST_SIZE];
      uint8_t tail[PS_DIGEST_SIZE + sizeof(struct pdu_response) + PS_DIGEST_SIZE];
    } target;
    struct {
      uint8_t head[sizeof(struct pdu_command) + PS_DIGEST_SIZE];
      uint8_t tail[PS_DIGEST_SIZE];
      uint8_t cqe[16];
      uint16_t r2t_ttag[PS_R2T_RING];
      uint32_t r2t_length[PS_R2T_RING];
      uint32_t r2t_left; /* of the first R2T: bytes not put into a PDU yet */
      uint32_t asked;    /* bytes asked for by R2Ts so far */
    } host;
  } u;
};
_Static_assert(sizeof(struct slot) <= 320, "slots are small: there are up to 4096 per connection");

/* The PDU being received. */
struct receiver {
  uint8_t state;       /* enum receive_state */
  uint8_t digest_size; /* of the header: 0 or 4 */
  uint8_t have;        /* header bytes so far, or data digest bytes so far */
  uint8_t need;        /* header bytes in all, with the digest */
  uint8_t seen;        /* header bytes that were checked: a TermReq of ours shows them */
  uint16_t slot;       /* that the payload belongs to; NO_SLOT: to nobody */
  bool data_digest;    /* a data digest follows the payload */
  uint8_t pad;         /* padding bytes still to come */
  uint32_t left;       /* payload bytes still to come */
  uint32_t crc;        /* of the payload so far */
  uint8_t digest[PS_DIGEST_SIZE];
  uint8_t header[PS_HEADER_SIZE_MAX + PS_DIGEST_SIZE];
};

struct ps_engine {
  struct ps_engine_config config;
  uint8_t state;   /* enum engine_state */
  uint8_t digests; /* in force */
  bool blocked;    /* an event of the receiver waits to be taken */
  bool success_allowed;
  bool flow_control_disabled;
  bool from_peer; /* TERMINATED */
  uint16_t fes;
  uint32_t fei;
  uint32_t sq_size;
  uint32_t sq_head;
  uint32_t in_capsule_size;
  uint32_t max_h2c_data; /* announced (target), to be kept (host) */
  uint32_t alignment;    /* of C2HData, bytes */
  uint32_t sequence;
  uint32_t tag_bits; /* of a TTAG that name the slot; the others count generations */
  /* Target: how a command capsule begins, without data and (but for PLEN) with it; receive.c. */
  struct pdu_common plain, plain_data;
  struct pdu_data c2h_data; /* Target: a C2HData but for SUCCESS, PLEN, CCCID and DATAL */
  uint32_t slots_used;      /* slots from this one on were never used */
  uint16_t free_head;
  uint16_t free_tail;
  uint16_t output_head;
  uint16_t output_tail;
  uint32_t event_head;
  uint32_t event_tail;
  uint32_t event_mask;
  uint32_t *events; /* kind, slot and EVENT_BLOCKS of each */
  struct slot *slots;
  struct receiver receiver;
  uint8_t ic_sent;
  uint8_t ic_size;
  uint8_t term_sent;
  uint8_t term_size;
  uint8_t ic[sizeof(struct pdu_ic)];
  uint8_t term[PS_TERM_SIZE_MAX];
};

static inline struct slot *ps_slot(const struct ps_engine *engine, uint32_t index) {
  assert(index < engine->slots_used);
  return &engine->slots[index];
}

static inline bool ps_is_target(const struct ps_engine *engine) {
  return engine->config.role == PS_ROLE_TARGET;
}

/* ---- slot.c ---- */

uint16_t ps_slot_allocate(struct ps_engine *engine); /* NO_SLOT when none is free */
void ps_slot_free(struct ps_engine *engine, uint32_t index);
void ps_slot_set_ttag(struct ps_engine *engine, uint32_t index);

/* ---- cursor.c ---- */

void ps_cursor_set(struct cursor *cursor, const struct iovec *iov, size_t iov_count,
                   uint32_t length);
void ps_cursor_advance(struct cursor *cursor, size_t size);
size_t ps_cursor_list(const struct cursor *cursor, size_t size, struct iovec *iov, size_t most);
void ps_cursor_write(struct cursor *cursor, const uint8_t *bytes, size_t size);
uint32_t ps_cursor_crc(const struct cursor *cursor, size_t size, uint32_t crc);

/* ---- digest.c: a digest is begun, extended by bytes and ended ---- */

#define PS_CRC_BEGIN UINT32_C(0xffffffff)
uint32_t ps_crc_extend(uint32_t crc, const uint8_t *bytes, size_t size);
static inline uint32_t ps_crc_end(uint32_t crc) { return ~crc; }
void ps_digest_put(uint8_t *at, uint32_t crc);
/* Ends a header: writes its digest behind it where they are in force; returns the whole size. */
uint8_t ps_header_end(const struct ps_engine *engine, uint8_t *header, uint32_t size);

/* ---- event.c ---- */

enum { EVENT_BLOCKS = 0x80 };
void ps_event_push(struct ps_engine *engine, uint32_t kind, uint32_t slot);
/* An event of the receiver: nothing more is received until it was taken. */
void ps_event_push_received(struct ps_engine *engine, uint32_t kind, uint32_t slot);

/* ---- receive.c, payload.c ---- */

uint32_t ps_received_plen(const struct ps_engine *engine);
void ps_receive_next(struct ps_engine *engine);
/* The payload of a PDU follows, for `slot` (NO_SLOT: to be thrown away). */
void ps_payload_begin(struct ps_engine *engine, uint32_t slot, uint32_t length);
size_t ps_payload_receive(struct ps_engine *engine, const uint8_t *bytes, size_t size);
/* The slot has ended: what is still to come for it goes nowhere. */
void ps_payload_detach(struct ps_engine *engine, uint32_t slot);

/* ---- message kinds: each reads the header in engine->receiver ---- */

void ps_icreq_read(struct ps_engine *engine);
void ps_icresp_read(struct ps_engine *engine);
void ps_icreq_write(struct ps_engine *engine);
void ps_term_read(struct ps_engine *engine);
void ps_command_read(struct ps_engine *engine);
void ps_h2c_data_read(struct ps_engine *engine);
void ps_h2c_data_arrived(struct ps_engine *engine, uint32_t slot);
void ps_response_read(struct ps_engine *engine);
void ps_c2h_data_read(struct ps_engine *engine);
void ps_c2h_data_arrived(struct ps_engine *engine, uint32_t slot);
void ps_r2t_read(struct ps_engine *engine);
void ps_r2t_write(struct ps_engine *engine, uint32_t slot);

/* ---- host.c, h2c_send.c ---- */

/* The completion of a host's slot is known; the event follows when its PDU has left. */
void ps_host_complete(struct ps_engine *engine, uint32_t slot);
/* Queue the next H2CData of a slot, if an R2T asks for one. */
void ps_h2c_data_write(struct ps_engine *engine, uint32_t slot);
/* The slot's capsule or H2CData has left: on to the next, if an R2T asks for more. */
void ps_h2c_data_sent(struct ps_engine *engine, uint32_t slot);
/* A queued PDU of a host's slot has left. */
void ps_host_sent(struct ps_engine *engine, uint32_t slot);

/* ---- term.c ---- */

/* The peer broke a rule: queue a TermReq that shows the header received so far. */
void ps_term_fault(struct ps_engine *engine, uint16_t fes, uint32_t fei);
/* The peer said TermReq. */
void ps_term_peer(struct ps_engine *engine, uint16_t fes, uint32_t fei);

/* ---- transmit.c ---- */

/* Queue the parts `first` to before `end` of a slot. */
void ps_output_queue(struct ps_engine *engine, uint32_t slot, enum part first, enum part end);

#endif
