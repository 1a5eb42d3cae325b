/* Hints as fast as is asked for, in full batches (PAX 1.0), by the submit opcode or by pages of the
 * extension namespace. */
#ifndef PRESTAGE_BENCH_FLOOD_H
#define PRESTAGE_BENCH_FLOOD_H

#include <stdbool.h>
#include <stdint.h>

#include "pax.h"
#include "queue.h"

/* Of what the batches are made, record by record at random where there are several. */
enum flood_mix {
  FLOOD_SETS,       /* ordered sets of four ranges of 64 KiB */
  FLOOD_SIGNATURES, /* of 128 bits */
  FLOOD_INTENTS,    /* of 64 KiB of what is warm, by a second or later */
  FLOOD_MIX,        /* a third of each */
  FLOOD_HOSTILE /* intents and retains of all there is, at once and urgent, sets, CANCEL of all */
};

struct flood_config {
  enum flood_mix mix;
  bool by_pages;       /* of the extension namespace */
  uint32_t depth;      /* batches in flight */
  uint64_t rate;       /* records a second; 0: as fast as they are taken */
  uint64_t records;    /* end after these; 0: never */
  uint64_t ids;        /* of sets, and places of signatures */
  uint32_t nsid;       /* what sets, signatures and hostile records speak of */
  uint64_t span;       /* bytes of it, from its start */
  uint64_t warm_span;  /* bytes of namespace 1 that intents speak of */
  uint32_t block_size; /* of both */
  uint32_t in_capsule; /* bytes that the queue takes in the capsule */
  uint32_t extension;  /* NSID of the extension namespace */
};

struct flood {
  struct flood_config config;
  struct queue *queue;
  uint64_t seed, number, due_ns, writer;
  uint64_t records, batches, accepted, dropped; /* of batches that have ended */
  uint64_t sent;                                /* records */
  uint32_t idle_count;
  uint16_t idle[DEPTH_MOST]; /* commands that are not under way */
  uint16_t counts[DEPTH_MOST];
  uint8_t pages[DEPTH_MOST][PAX_PAGE_BYTES];
};

void flood_init(struct flood *flood, const struct flood_config *config, struct queue *queue,
                uint64_t now_ns);
/* Send what is due; call when a batch has ended or its time has come. */
void flood_send(struct flood *flood, uint64_t now_ns);
/* When the next batch is due; UINT64_MAX: when one has ended, or never. */
uint64_t flood_next_ns(const struct flood *flood);
bool flood_is_over(const struct flood *flood);

#endif
