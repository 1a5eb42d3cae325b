/* Hints: what hosts say belongs together and is needed by when, and what they ask (PAX 1.0,
 * ext/SPECIFICATION.md; the layouts are in pax.h).
 *
 * A pure core beside the tier and the schedulers: it takes `now_ns`, makes no system calls and
 * allocates nothing after ps_hints_new. One caller at a time, who holds the lock of the tier and of
 * the schedulers too. It keeps sets, signatures and intents per tenant within budgets, turns
 * intents into jobs of the schedulers and pieces of jobs into hydrates of the tier, counts what
 * became of them, and answers queries. It never touches a byte of a block, and nothing a read does
 * depends on it.
 *
 * Everything is bounded: the work of one call by the size of a batch (a page) or by a constant;
 * residency queries are cut to PS_HINTS_QUERY_BYTES.
 */
#ifndef PRESTAGE_HINTS_H
#define PRESTAGE_HINTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pax.h"
#include "ring.h"
#include "scheduler.h"
#include "tier.h"

/* cffi: begin */
#define PS_HINTS_QUERY_BYTES 268435456 /* of one residency query */

/* Of one tenant, at most. */
struct ps_hints_budget {
  uint64_t sets, set_ranges, signatures;
  uint64_t intents, intent_bytes; /* pending */
  uint64_t tier_bytes;            /* in the tier by hints and not read yet, or kept by them */
  uint64_t records_per_s;
  /* It stands for hosts that must learn nothing of each other: what they say is counted and not
   * kept, and what they are told has neither counts nor answers in it. The limits are zero. */
  bool is_shared;
};

struct ps_hints_config {
  uint32_t tenant_count; /* tenants are 0 to tenant_count - 1 */
  uint32_t volume_count; /* volumes are 0 to volume_count - 1 */
  uint32_t subsystem_count;
  uint64_t sets, set_ranges, signatures, intents; /* of all tenants together, at most */
  uint32_t answer_pages;                          /* mailboxes in use, of all tenants together */
  uint32_t max_set_ranges;                        /* of one set */
  uint32_t max_ttl_ms;
  uint32_t slot_size;    /* of the tier: hints are rounded to it */
  uint32_t piece_bytes;  /* a job is started in pieces of this (262144) */
  uint32_t part_items;   /* extents looked at or kept, intents withdrawn, in one go (32) */
  uint32_t follow_bytes; /* how much beyond a Read with AF = 7 is brought in (1 MiB) */
  uint64_t grace_ns;     /* what was brought in for an intent is kept this long past its deadline,
                            when it is neither read nor withdrawn before */
  struct ps_hints_budget budget; /* of every tenant that has no other */
};

/* Whose connection speaks. */
struct ps_hints_scope {
  uint16_t tenant;
  uint16_t subsystem;
  uint32_t extension_nsid; /* of the subsystem; 0: none */
  uint32_t queue;          /* the connection */
};

/* A namespace as ps_hints sees it; `resolve` fills it in, false when there is none. */
struct ps_hints_namespace {
  uint32_t volume;
  uint32_t block_shift;
  uint64_t blocks;
};

typedef bool (*ps_hints_resolve)(void *context, uint32_t subsystem, uint32_t nsid,
                                 struct ps_hints_namespace *result);

/* What became of a batch. */
struct ps_hints_result {
  uint32_t fault; /* enum pax_fault; not 0: refused whole, nothing was applied */
  uint32_t fault_offset;
  uint16_t accepted, dropped, unknown;
  uint16_t reserved;
};

/* What a Read says beside its range. */
struct ps_hints_read {
  uint64_t offset, length; /* bytes of the volume */
  uint64_t volume_bytes;   /* how many it has */
  uint64_t session;
  uint32_t volume;
  uint32_t deadline_us;
  uint8_t flags; /* bits ps_fact_flag */
  uint8_t priority;
};

/* How far a tenant's hints of one kind are trusted: by what became of what they brought in. */
struct ps_hints_trust {
  uint64_t used, unused; /* extents: see ps_tier_outcome */
  uint64_t left_out;     /* hints that brought nothing in, for want of trust */
  bool is_trusted;
};

struct ps_hints_stats {
  uint64_t batches, records, refused, unknown, dropped;
  uint64_t sets, set_ranges, signatures, intents, answer_pages; /* in use now */
  uint64_t follows; /* speculative jobs by touches of sets and by AF = 7 */
  uint64_t memory_bytes;
};

struct ps_hints;

/* NULL when the configuration is out of range or memory cannot be had. `ring` may be NULL. The
 * tables are mapped, and take memory as they are used. */
struct ps_hints *ps_hints_new(const struct ps_hints_config *config, struct ps_tier *tier,
                              struct ps_ring *ring, ps_hints_resolve resolve, void *context);
void ps_hints_free(struct ps_hints *hints);

/* The volume's scheduler; NULL: the volume is gone, and so are its sets, signatures and intents
 * (cancelled). A namespace that is unmapped takes with it what named it. */
void ps_hints_volume(struct ps_hints *hints, uint64_t now_ns, uint32_t volume,
                     struct ps_sched *sched);
/* The volume is about to go, and nothing new names it: cancels at most `most` of its intents, so
 * that not all of them end at once. True: none is left, and ps_hints_volume has little to do. */
bool ps_hints_leave(struct ps_hints *hints, uint64_t now_ns, uint32_t volume, uint32_t most);
/* NULL: the default budget again. */
void ps_hints_set_budget(struct ps_hints *hints, uint16_t tenant,
                         const struct ps_hints_budget *budget);
/* What the controllers of this target offer (advertised numbers, carriers). Copied. */
void ps_hints_set_capability(struct ps_hints *hints, const struct pax_capability *capability);

/* What status pages say of the target's own predictions. Copied; zeros before the first call. */
void ps_hints_set_benefit(struct ps_hints *hints, const struct pax_benefit *benefit);

/* ---- carriers ---- */

/* Looks at a whole batch without changing anything: 0, or the fault and where it is. Any thread,
 * no lock. `bytes` of `size`; what stands beyond the batch's own size is not looked at. */
void ps_hints_check(const uint8_t *bytes, uint32_t size, uint32_t max_size,
                    struct ps_hints_result *result);
/* Takes a batch that was checked (else refuses it), keeping it in `mailbox` for its answer
 * (PAX_MAILBOXES or more: nowhere). */
void ps_hints_submit(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint32_t mailbox, const uint8_t *bytes, uint32_t size,
                     struct ps_hints_result *result);
/* Dataset Management with IDR: `ranges` as on the wire (NVM 1.0, figure 41), 16 bytes each. */
void ps_hints_dataset(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      uint32_t nsid, const uint8_t *ranges, uint32_t count);
/* Every Read, once, when it was parsed; PS_FACT_HIT is not in its flags yet. Cheap: one look-up. */
void ps_hints_touch(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                    const struct ps_hints_read *read);
/* Every Read, once, for the ring: as soon as it is known whether all of it is in the tier. One that
 * has to wait for a medium is heard of before it does, so that what came together stays together.
 */
void ps_hints_read_seen(struct ps_hints *hints, const struct ps_hints_scope *scope,
                        const struct ps_hints_read *read, uint64_t arrived_ns);
/* Every Read, once, when its data is there (or it failed, or was aborted), for the counts of dated
 * reads. */
void ps_hints_read_ended(struct ps_hints *hints, uint64_t now_ns,
                         const struct ps_hints_scope *scope, const struct ps_hints_read *read,
                         uint64_t arrived_ns, bool is_cancelled);
/* Writes and discards, for the ring. */
void ps_hints_written(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      uint32_t volume, uint64_t offset, uint64_t length, bool is_discard);

/* ---- answers: each fills exactly PAX_PAGE_BYTES at `page` ---- */

void ps_hints_answer(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint32_t mailbox, uint8_t *page);
/* The page of the query opcode: CDW10 to CDW15; the status field to end the command with. */
uint16_t ps_hints_query(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                        uint32_t nsid, const uint32_t cdw10_to_15[6], uint8_t *page);
void ps_hints_status(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint8_t *page);
/* The warm-event log of a tenant; what was read is forgotten when `clear`. */
void ps_hints_events(struct ps_hints *hints, uint16_t tenant, bool clear, uint8_t *page);
/* A tenant whose log got its first event since it was last cleared; -1: none. */
int32_t ps_hints_next_event(struct ps_hints *hints);

/* ---- work ---- */

/* A volume whose scheduler got a job, or more or sooner work of one, since it was last told; -1:
 * none. Each comes once. Its owner is to ask the scheduler then. */
int32_t ps_hints_next_volume(struct ps_hints *hints);

/* The scheduler wants a piece of this job: hydrates up to piece_bytes of it through the tier (its
 * actions carry the cookie), updates or removes the job. */
void ps_hints_start_job(struct ps_hints *hints, uint64_t now_ns, struct ps_sched_job *job);
/* A fill of the tier that carried `cookie` has ended. */
void ps_hints_fill_ended(struct ps_hints *hints, uint64_t now_ns, uint64_t cookie, uint32_t bytes,
                         int32_t error);
/* Deadlines that have passed, and what has lived its time: a bounded number a call. */
void ps_hints_tick(struct ps_hints *hints, uint64_t now_ns);
uint64_t ps_hints_next_time(const struct ps_hints *hints);

void ps_hints_get_trust(struct ps_hints *hints, uint16_t tenant, uint32_t source,
                        struct ps_hints_trust *trust);
void ps_hints_get_stats(const struct ps_hints *hints, struct ps_hints_stats *stats);
/* All internal invariants (for tests): 0, or the number of the one that fails. */
int ps_hints_check_all(const struct ps_hints *hints);
/* A batch that is taken in parts, so that what else there is to do does not wait for all of it.
 * Zeroed before the first part. */
struct ps_hints_progress {
  struct ps_hints_result result; /* so far */
  uint32_t at;                   /* bytes of the batch that are behind; 0: nothing was done yet */
  uint32_t number;               /* of the next record */
  uint32_t asked_until;          /* what records before this one touch was asked of the memory */
  uint32_t limited_from;         /* records from this one on came too fast; UINT32_MAX: none did */
  uint32_t looks;                /* extents that its records have looked up */
  bool goes_on;                  /* the record was begun ... */
  uint64_t mark, place, done;    /* ... and this is how far it has come: its own */
  uint32_t dropped_tag;
  uint8_t dropped_reason;
};

/* Records of a batch that are taken in one turn, while others wait. */
#define PS_HINTS_TURN_RECORDS 4

/* As ps_hints_submit, but at most so many records of it (UINT32_MAX: all of them); the whole
 * batch is looked at first. False: call again, with the same batch. Its answer is there when all of
 * it was taken. */
bool ps_hints_submit_some(struct ps_hints *hints, uint64_t now_ns,
                          const struct ps_hints_scope *scope, uint32_t mailbox,
                          const uint8_t *bytes, uint32_t size, uint32_t records,
                          struct ps_hints_progress *progress);
/* cffi: end */

#endif
