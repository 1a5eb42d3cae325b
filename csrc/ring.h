/* The ring by which the model hears what happens: facts of 64 bytes in shared memory, one producer
 * side (callers take turns), one consumer, in another process or the same one.
 *
 * The memory (a sealed memfd) begins with struct ps_ring_header; `capacity` facts follow at
 * `facts_offset`. The producer owns `head` and `lost`, the consumer owns `tail`. A full ring loses
 * the new fact and counts it; the producer never waits. No pointers: any process may map it.
 */
#ifndef PRESTAGE_RING_H
#define PRESTAGE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define PS_RING_MAGIC 0x52584150 /* 'PAXR' */
#define PS_RING_VERSION 1

enum ps_fact_kind {
  PS_FACT_READ = 1,    /* offset, length, session, flags */
  PS_FACT_WRITE = 2,   /* offset, length */
  PS_FACT_DISCARD = 3, /* offset, length */
  PS_FACT_SET = 4,     /* id = set, aux = ranges that follow, flags = bits set_flag,
                          value = op << 32 | ttl_ms */
  PS_FACT_RANGE = 5, /* of the SET, INTENT or RETAIN before it: id, offset, length, aux = number */
  PS_FACT_SIGNATURE = 6, /* offset, length, id and value = vector, aux = bits << 16 | family */
  PS_FACT_INTENT = 7, /* id, session, value = deadline_us, aux = ranges that follow, offset = set */
  PS_FACT_RETAIN = 8, /* offset = set, value = duration_ms, aux = ranges that follow */
  PS_FACT_CANCEL = 9, /* id, aux = enum cancel_what */
  PS_FACT_OUTCOME = 10,  /* id, session, value = ready_us, aux = state */
  PS_FACT_UNMAPPED = 11, /* the volume is gone */
  PS_FACT_FETCHED = 12,  /* an order to fetch has ended: id = the order's, offset, length,
                            aux = enum ps_order_end */
  PS_FACT_EVICTED = 13   /* offset, length = bytes of the extent; value = ns since its last use,
                            aux = its class, flags = PS_FACT_UNREAD, tenant = whom it was charged
                            to. Evictions alone: its frame went to other bytes. Not what was
                            dropped because the volume shrank or went away, or was cleared, or
                            overwritten */
};

enum ps_fact_flag {
  PS_FACT_HIT = 1,         /* READ: all of it was in the tier */
  PS_FACT_READAHEAD = 2,   /* READ: AF = 7 */
  PS_FACT_ONCE = 4,        /* READ: AF = 6 */
  PS_FACT_SEQUENTIAL = 8,  /* READ: the sequential bit */
  PS_FACT_DATED = 16,      /* READ: by the dated read opcode; value = deadline_us */
  PS_FACT_ATTRIBUTES = 32, /* READ: bits 6:0 of its Dataset Management field are not all zero */
  PS_FACT_UNREAD = 64      /* EVICTED: brought in ahead, and nobody had read it */
};

/* What the consumer, before it sleeps, says that it wants to be woken for. */
enum ps_ring_waits {
  PS_RING_WAITS_NOT = 0,
  PS_RING_WAITS_HINTS = 1, /* facts of hints: SET to CANCEL, and UNMAPPED; or that any were lost */
  PS_RING_WAITS_ALL = 2    /* any fact */
};

struct ps_fact {
  uint64_t time_ns; /* CLOCK_MONOTONIC, or the injected clock */
  uint64_t offset;  /* bytes into the volume */
  uint64_t length;  /* bytes */
  uint64_t session;
  uint64_t id;
  uint64_t value;
  uint32_t aux;
  uint16_t volume;
  uint16_t tenant;
  uint8_t kind;  /* enum ps_fact_kind */
  uint8_t flags; /* bits ps_fact_flag; of hints the record's own */
  uint8_t priority;
  uint8_t confidence;
  uint32_t queue; /* READ, WRITE: the connection, which is a flow */
};

struct ps_ring_header {
  uint32_t magic, version;
  uint32_t fact_size, facts_offset;
  uint64_t capacity; /* facts, a power of two */
  uint64_t reserved[5];
  uint64_t head; /* facts put in so far; on a cache line of its own */
  uint64_t lost; /* facts that found it full */
  uint64_t pad[6];
  uint64_t tail;  /* facts taken so far; on a cache line of its own */
  uint64_t waits; /* enum ps_ring_waits: set by the consumer, cleared by who wakes it */
  uint64_t pad2[6];
};

struct ps_ring;

/* NULL when memory cannot be had. `capacity` is a power of two. */
struct ps_ring *ps_ring_new(uint64_t capacity);
void ps_ring_free(struct ps_ring *ring);
int ps_ring_fd(const struct ps_ring *ring);
/* The consumer is gone, and another is to come: what it may have written over is told again. Facts
 * that it did not take stay, unless what it says of them cannot be: then they are gone. */
void ps_ring_renew(struct ps_ring *ring);
/* False when it was full: counted as lost. */
bool ps_ring_put(struct ps_ring *ring, const struct ps_fact *fact);
/* Room for `count` facts together: hints with ranges go in whole or not at all. */
bool ps_ring_has_room(struct ps_ring *ring, uint32_t count);
void ps_ring_lose(struct ps_ring *ring, uint32_t count);
/* Whether the consumer waits for some of what was put in since this was last asked; clears that it
 * waits. The caller wakes it then (the ring itself makes no system calls), so it asks after each
 * few facts. When nothing was put in it costs a comparison, else an exchange and a load, whether
 * somebody waits or not.
 *
 * No wake-up is lost: the consumer first sets `waits`, then looks whether what it waits for is
 * there already (both sequentially consistent), and sleeps only when it is not. */
bool ps_ring_must_wake(struct ps_ring *ring);
/* cffi: end */

#endif
