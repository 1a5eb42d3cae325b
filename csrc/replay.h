/* The target on a virtual clock: the tier, the scheduler, hints and orders as they run live, with
 * the flash model for a medium and nothing else. No bytes of blocks, no sockets, no threads; the
 * same events, orders and configuration give the same results, whatever machine it is.
 *
 * What differs from the live target: commands take no time of their own, and the host takes what it
 * is sent at once; every write is durable at once and takes nothing of the flash's bandwidth, so
 * nothing stays dirty; commands on one range do not wait for one another; a batch goes to no
 * mailbox. When it is the clock alone that asks for a pass, a microsecond goes by between two.
 */
#ifndef PRESTAGE_REPLAY_H
#define PRESTAGE_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hints.h"
#include "media/flash_model.h"
#include "orders.h"

/* cffi: begin */
struct ps_replay_config {
  uint32_t frame_count, slot_size;
  uint32_t tenant_count;
  uint32_t block_size; /* of the one volume, number 0, which is namespace 1 of subsystem 0 */
  uint64_t volume_bytes;
  struct ps_flash_config flash; /* channels is the window of the scheduler too */
  uint32_t merge_bytes;         /* as ps_sched_config */
  uint64_t starvation_ns;
  uint64_t ring_capacity;       /* facts, a power of two; 0: no ring */
  uint64_t orders_capacity;     /* orders, a power of two; 0: none are taken */
  uint32_t fetches;             /* as ps_orders_config */
  struct ps_hints_config hints; /* tenant_count, volume_count, slot_size are set here */
};

enum ps_replay_op {
  PS_REPLAY_READ = 1,
  PS_REPLAY_WRITE = 2, /* of whole blocks */
  PS_REPLAY_BATCH = 3  /* a batch of hints: `offset` and `length` say where it stands in `data` */
};

struct ps_replay_event {
  uint64_t time_ns; /* ascending, 1 or more */
  uint64_t offset;  /* bytes into the volume */
  uint64_t session; /* READ, dated */
  uint32_t length;  /* bytes, within one extent but for BATCH */
  uint32_t queue;
  uint32_t deadline_us; /* READ, dated: from time_ns */
  uint16_t tenant;
  uint8_t op;    /* enum ps_replay_op */
  uint8_t flags; /* READ: bits ps_fact_flag */
  uint8_t priority;
  uint8_t reserved[7];
};

enum ps_replay_state {
  PS_REPLAY_PENDING = 0, /* not ended yet */
  PS_REPLAY_HIT = 1,     /* all of it was in the tier when it came */
  PS_REPLAY_LATE = 2,    /* some of it was being read ahead of it */
  PS_REPLAY_MISS = 3,
  PS_REPLAY_WRITTEN = 4,
  PS_REPLAY_TAKEN = 5,  /* a batch */
  PS_REPLAY_REFUSED = 6 /* out of range, or a malformed batch */
};

struct ps_replay_result {
  uint64_t ready_ns; /* when the last byte was there */
  uint32_t state;    /* enum ps_replay_state */
  uint32_t reserved;
};

struct ps_replay_stats {
  uint64_t now_ns;
  uint64_t demand_reads, fetch_reads; /* operations of the medium, merged ones once for each part */
  uint64_t demand_bytes, fetch_bytes;
  uint64_t busy_ns; /* in which the flash moves these bytes */
};

struct ps_replay;

/* NULL on failure, with the reason in `error`. */
struct ps_replay *ps_replay_new(const struct ps_replay_config *config, char *error,
                                size_t error_size);
void ps_replay_free(struct ps_replay *replay);
/* Runs events[from] to events[count - 1] as far as `until_ns`, and everything that ends by then.
 * Results are written as events end, which may be in a later call: `results` is the caller's, as
 * long as `events`, and stays until everything has ended. Returns the first event that was not
 * begun. It stops before `until_ns` when the reader of the ring waits for what has come
 * (ps_ring_must_wake); ps_replay_stats.now_ns says how far it got. Orders that wait are taken
 * first. */
uint64_t ps_replay_run(struct ps_replay *replay, const struct ps_replay_event *events,
                       uint64_t from, uint64_t count, const uint8_t *data, uint64_t data_bytes,
                       uint64_t until_ns, struct ps_replay_result *results);
/* How many events have begun and not ended. */
uint64_t ps_replay_pending(const struct ps_replay *replay);
int ps_replay_ring_fd(const struct ps_replay *replay);
int ps_replay_orders_fd(const struct ps_replay *replay);
void ps_replay_set_budget(struct ps_replay *replay, uint16_t tenant,
                          const struct ps_hints_budget *budget);
void ps_replay_get_stats(const struct ps_replay *replay, struct ps_replay_stats *stats);
void ps_replay_tier_stats(const struct ps_replay *replay, struct ps_tier_stats *stats);
void ps_replay_tenant_stats(const struct ps_replay *replay, uint16_t tenant,
                            struct ps_tier_tenant *stats);
void ps_replay_orders_stats(const struct ps_replay *replay, struct ps_orders_stats *stats);
/* The status page of a tenant (PAX_PAGE_BYTES). */
void ps_replay_hint_status(struct ps_replay *replay, uint16_t tenant, uint8_t *page);
/* All internal invariants of its parts (for tests): 0, or the number of the one that fails. */
int ps_replay_check(const struct ps_replay *replay);
/* cffi: end */

#endif
