/* Orders: what the model wants done, from its own process, through shared memory.
 *
 * A sealed memfd: struct ps_orders_header, then `capacity` orders at `orders_offset`, then two
 * value tables (PS_TIER_CLASSES by PS_TIER_AGE_BINS floats each) at `values_offset`. The model owns
 * `head` and the table that is not in force; the target owns `tail`, `refused` and the gauges. The
 * model writes orders, moves `head`, and signals the wake descriptor; it never waits for the target
 * and the target never waits for it. No pointers.
 *
 * The target believes nothing that stands there: an order is copied, then looked at, and one that
 * is wrong is refused and counted. An order changes what is in the tier and when media are read,
 * never a byte or a status.
 *
 * The consumer is a pure core beside hints: it takes `now_ns`, makes no system calls (but for
 * ps_orders_new) and allocates nothing after it. One caller at a time, who holds the lock of the
 * tier and of the schedulers.
 */
#ifndef PRESTAGE_ORDERS_H
#define PRESTAGE_ORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring.h"
#include "scheduler.h"
#include "tier.h"

/* cffi: begin */
#define PS_ORDERS_MAGIC 0x4f584150 /* 'PAXO' */
#define PS_ORDERS_VERSION 1
#define PS_ORDER_MAX_BYTES 268435456 /* that one order is about */

enum ps_order_kind {
  PS_ORDER_FETCH = 1,    /* bring the range in: speculation, at the price `value` */
  PS_ORDER_CLASSIFY = 2, /* ps_tier_classify: value_class, age_ns */
  PS_ORDER_WITHDRAW = 3, /* the fetch `id` is not wanted any more, as far as it was not started */
  PS_ORDER_VALUES = 4,   /* value table `aux` (0 or 1) is in force from now on */
  PS_ORDER_RESET = 5     /* all fetches are withdrawn, and the value tables are LRU again */
};

/* How a fetch ended: PS_FACT_FETCHED comes once for each that was not refused, when nothing of it
 * is under way any more (after a reset, or when the volume goes: at once). Its value says how many
 * bytes were read from the medium for it, which is done in whole units of the tier. */
enum ps_order_end {
  PS_ORDER_LANDED = 0,    /* all of it was read from the medium, or some of it was and the rest was
                             warm */
  PS_ORDER_WARM = 1,      /* nothing was missing */
  PS_ORDER_NO_ROOM = 2,   /* some of it found no frame that is worth less */
  PS_ORDER_FAILED = 3,    /* the medium failed, or the volume went away */
  PS_ORDER_WITHDRAWN = 4, /* before all of it was started */
  PS_ORDER_EXPIRED = 5    /* its time passed before all of it was started */
};

struct ps_order {
  uint64_t id;         /* FETCH, WITHDRAW: the model's own, not 0; below 2^62 */
  uint64_t offset;     /* FETCH, CLASSIFY: bytes into the volume */
  uint64_t length;     /* bytes; at most PS_ORDER_MAX_BYTES */
  uint64_t age_ns;     /* CLASSIFY */
  uint64_t expires_ns; /* FETCH: not started later than this, on the clock of the facts */
  float value;         /* FETCH: expected benefit per byte, in the unit of the value tables; 0 or
                          more. That unit is the model's own choice; hints speculate on what hosts
                          say they read next as worth 1, a read per second */
  uint32_t aux;
  uint16_t volume;
  uint16_t tenant;
  uint8_t kind;        /* enum ps_order_kind */
  uint8_t value_class; /* FETCH, CLASSIFY: one of the model's; FETCH: or 0 */
  uint8_t reserved[10];
};

struct ps_orders_header {
  uint32_t magic, version;
  uint32_t order_size, orders_offset;
  uint32_t values_offset, table_bytes;
  uint64_t capacity; /* orders, a power of two */
  uint64_t reserved[4];
  uint64_t head; /* orders put in so far; on a cache line of its own */
  uint64_t pad[7];
  uint64_t tail; /* orders taken so far; on a cache line of its own */
  uint64_t refused;
  /* Gauges: as of the last time orders were taken, or a tick. */
  uint64_t now_ns;
  uint64_t bandwidth;   /* of all media together, bytes per second, as their schedulers estimate */
  uint64_t fetch_bytes; /* of fetches that were not started */
  uint32_t fetches;     /* that have not ended */
  uint32_t frame_count, frames_free, slot_size;
  uint64_t pad2[1];
};

struct ps_orders_stats {
  uint64_t orders, refused, resets;
  uint64_t fetches, landed, warm, no_room, failed, withdrawn, expired;
  uint64_t fetched_bytes; /* that media were asked for */
  uint32_t pending;       /* fetches that have not ended */
};

struct ps_orders_config {
  uint64_t capacity;     /* orders in the ring, a power of two */
  uint32_t fetches;      /* pending at most; more are NO_ROOM */
  uint32_t volume_count; /* volumes are 0 to volume_count - 1 */
  uint32_t tenant_count;
  uint32_t slot_size;
  uint32_t piece_bytes; /* a fetch is started in pieces of this (262144) */
};

struct ps_orders;

/* NULL when memory cannot be had. `ring` may be NULL: nobody hears how fetches end. */
struct ps_orders *ps_orders_new(const struct ps_orders_config *config, struct ps_tier *tier,
                                struct ps_ring *ring);
void ps_orders_free(struct ps_orders *orders);
int ps_orders_fd(const struct ps_orders *orders);
/* The volume's scheduler and size; NULL: the volume is gone, its fetches have failed. */
void ps_orders_volume(struct ps_orders *orders, uint64_t now_ns, uint32_t volume,
                      struct ps_sched *sched, uint64_t size_bytes);
/* Whether orders wait. A load. */
bool ps_orders_waiting(const struct ps_orders *orders);
/* Ends what has expired, takes up to `most` orders (fewer when they are much work), and fills in
 * the gauges. False when there is more to do: call again. */
bool ps_orders_take(struct ps_orders *orders, uint64_t now_ns, uint32_t most);
/* When ps_orders_take is to be called although no order waits; UINT64_MAX: never. */
uint64_t ps_orders_next_time(const struct ps_orders *orders);
/* A volume whose scheduler got a job since it was last told; -1: none. */
int32_t ps_orders_next_volume(struct ps_orders *orders);
/* As ps_hints_start_job, for a job whose owner is PS_JOB_OF_ORDERS. */
void ps_orders_start_job(struct ps_orders *orders, uint64_t now_ns, struct ps_sched_job *job);
/* A fill that carried a cookie with PS_COOKIE_OF_ORDERS in it has ended. */
void ps_orders_fill_ended(struct ps_orders *orders, uint64_t now_ns, uint64_t cookie,
                          uint32_t bytes, int32_t error);
/* The model is gone: as PS_ORDER_RESET, and what stands in the ring is forgotten. Where very many
 * fetches are pending some of them are left to ps_orders_take. */
void ps_orders_reset(struct ps_orders *orders, uint64_t now_ns);
void ps_orders_get_stats(const struct ps_orders *orders, struct ps_orders_stats *stats);
/* All internal invariants (for tests): 0, or the number of the one that fails. */
int ps_orders_check(const struct ps_orders *orders);
/* cffi: end */

#define PS_JOB_OF_HINTS 0
#define PS_JOB_OF_ORDERS 1
#define PS_COOKIE_OF_ORDERS (UINT64_C(1) << 63)

#endif
