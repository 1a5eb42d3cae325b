/* What the engine's fuzz modes share: the input as a source of choices, PDU builders, and one end
 * of a connection with a model of its slots.
 */
#ifndef PRESTAGE_FUZZ_SUPPORT_H
#define PRESTAGE_FUZZ_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine.h"
#include "../nvme.h"

enum {
  FUZZ_SLOTS = 6,
  FUZZ_STREAM_SIZE = 1 << 17,
  FUZZ_DATA_MOST = 24 << 10,
  FUZZ_IOVECS = 5,
  FUZZ_R2TS = 16
};

#define FUZZ_CHECK(condition)                                                 \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

/* The fuzzer's bytes; zeros once they are used up. */
struct choices {
  const uint8_t *bytes;
  size_t left;
};

/* Bytes on their way to an engine. */
struct stream {
  uint8_t bytes[FUZZ_STREAM_SIZE];
  size_t size;
  size_t taken;
};

/* What the model knows of a slot. */
enum model_state { MODEL_FREE, MODEL_HELD, MODEL_OPEN, MODEL_RECEIVING, MODEL_ENDED };

struct model {
  enum model_state state;
  uint32_t length;   /* host: asked for; target: in-capsule bytes that wait */
  uint32_t covered;  /* host live mode: C2HData or R2T built so far */
  uint32_t transfer; /* host */
  uint32_t tag;      /* pair mode: what the data must look like */
  uint16_t cid;
  bool taken;
  uint8_t *memory; /* of the iovecs: freed as early as the contract allows */
  uint32_t memory_size;
  struct iovec *iov;
};

struct r2t_note {
  uint16_t cid;
  uint16_t ttag;
  uint32_t length;
  uint32_t done;
};

/* One engine, its slots as they should be, and what it sent. */
struct end {
  struct ps_engine *engine;
  void *memory;
  uint32_t digests;
  bool is_target;
  bool connected;
  bool terminated;
  struct model slots[FUZZ_SLOTS];
  struct r2t_note r2ts[FUZZ_R2TS];
  uint32_t r2t_count;
  struct stream out; /* sent bytes; parsed up to out.taken */
  uint64_t trace;    /* of events, output and received data */
};

uint32_t choose(struct choices *choices, uint32_t below); /* 0 to below - 1 */
uint32_t choose_length(struct choices *choices); /* 1 to FUZZ_DATA_MOST, small ones often */

void end_open(struct end *end, uint32_t role, uint32_t digests, uint32_t alignment,
              uint32_t max_r2t);
void end_close(struct end *end);
/* Buffers of `length` bytes in several iovecs for a slot; returns their number. */
size_t end_give(struct end *end, uint32_t slot, uint32_t length, struct choices *choices);
void end_ungive(struct end *end, uint32_t slot);
/* Pass up to `most` bytes of output into end->out; checks their framing; returns how many. */
size_t end_send(struct end *end, size_t most, size_t iovecs);
void end_trace(struct end *end, const void *bytes, size_t size);

/* A PDU at the end of the stream, its digests right; `mutate` of them changes a byte. */
void build_pdu(struct stream *stream, const uint8_t *header, size_t header_size, uint32_t pad,
               uint32_t data_size, uint32_t digests, struct choices *mutate);
void build_ic(struct stream *stream, bool is_request, uint32_t digests, uint32_t alignment,
              struct choices *mutate);
void build_data(struct stream *stream, uint8_t type, uint8_t flags, uint16_t cid, uint16_t ttag,
                uint32_t offset, uint32_t length, uint32_t data_size, uint32_t digests,
                uint32_t pad, struct choices *mutate);

/* The modes. */
void fuzz_target(struct choices *choices);
void fuzz_host(struct choices *choices);
void fuzz_split(struct choices *choices);
void fuzz_pair(struct choices *choices);

/* Of the target's live mode, for the split mode too. */
void target_build(struct end *end, struct stream *stream, struct choices *choices);
void host_build(struct end *end, struct stream *stream, struct choices *choices);

#endif
