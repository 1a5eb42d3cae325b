/* The insides of the hints, shared by the files of this folder and by nobody else: what each file
 * does for the others. */
#ifndef PRESTAGE_HINTS_INTERNAL_H
#define PRESTAGE_HINTS_INTERNAL_H

#include <assert.h>
#include <string.h>

#include "../orders.h" /* whose jobs and cookies are whose */
#include "tables.h"

/* ---- pool.c ---- */
void *hints_map(struct ps_hints *hints, uint64_t items, size_t size);
bool hints_pool_init(struct ps_hints *hints, struct pool *pool, uint64_t count, size_t stride);
bool hints_table_init(struct ps_hints *hints, struct table *table, struct pool *pool, size_t link);
/* A zeroed item, or NONE. */
uint32_t hints_take(struct pool *pool);
void hints_give(struct pool *pool, uint32_t index);
void hints_table_add(struct table *table, uint64_t hash, uint32_t index);
void hints_table_remove(struct table *table, uint64_t hash, uint32_t index);

static inline void *hints_item(const struct pool *pool, uint32_t index) {
  assert(index != NONE && index <= pool->fresh);
  return pool->items + pool->stride * index;
}

static inline uint32_t hints_table_first(const struct table *table, uint64_t hash) {
  return table->buckets[hash & table->mask];
}

/* ---- share.c ---- */
bool hints_share_init(struct ps_hints *hints, struct share *share, uint64_t items);
void hints_share_add(struct share *share, uint16_t tenant);
void hints_share_sub(struct share *share, uint16_t tenant);
/* From whom to take one for `tenant`: from itself when nobody holds more. Somebody holds some. */
uint16_t hints_share_victim(const struct share *share, uint16_t tenant);

/* ---- heap.c ---- */
/* The intent's wake_ns was set or changed. */
void hints_wake_at(struct ps_hints *hints, uint32_t index, uint64_t wake_ns);
void hints_wake_never(struct ps_hints *hints, uint32_t index);

/* ---- check.c ---- */
/* Bytes of a record without what trails, and where its range_count is (0: it has none). */
uint32_t hints_record_size(uint32_t type);

/* ---- ranges.c ---- */
void hints_append(struct ps_hints *hints, uint32_t set, uint64_t offset, uint32_t blocks);
void hints_free_ranges(struct ps_hints *hints, struct set *set);
void hints_cursor_start(const struct set *set, struct cursor *cursor);
/* The bytes at the cursor up to the end of their extent or range; false at the end. */
bool hints_cursor_span(const struct ps_hints *hints, const struct cursor *cursor, uint32_t shift,
                       struct span *span);
void hints_cursor_advance(const struct ps_hints *hints, struct cursor *cursor, uint32_t shift,
                          uint64_t bytes);
static inline struct chunk *hints_chunk(const struct ps_hints *hints, uint32_t at) {
  return hints_item(&hints->chunks, at / CHUNK_RANGES);
}
static inline struct range *hints_range(const struct ps_hints *hints, uint32_t at) {
  return &hints_chunk(hints, at)->ranges[at % CHUNK_RANGES];
}

/* ---- region.c ---- */
void hints_region_add(struct ps_hints *hints, const struct set *set, uint32_t at);
void hints_region_remove(struct ps_hints *hints, const struct set *set, uint32_t at);
/* A range of an ordered set of the tenant that overlaps the byte, or NONE. */
uint32_t hints_region_find(const struct ps_hints *hints, uint64_t now_ns, uint16_t tenant,
                           uint32_t volume, uint64_t offset);

/* The bucket of the first region by which a range is found. */
const uint32_t *hints_region_bucket(const struct ps_hints *hints, uint16_t tenant,
                                    const struct ps_hints_namespace *space, uint64_t slba,
                                    uint32_t nlb);

/* ---- prefetch.c ---- */
void hints_prefetch(const struct ps_hints *hints, uint64_t now_ns,
                    const struct ps_hints_scope *scope, const uint8_t *records, uint32_t count);

/* ---- sets.c ---- */
uint32_t hints_find_set(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant, uint64_t id);
bool hints_is_stale(const struct ps_hints *hints, const struct set *set, uint64_t now_ns);
void hints_unreference(struct ps_hints *hints, uint32_t set);
void hints_drop_set(struct ps_hints *hints, uint32_t set);
/* Frees at least so many ranges of sets that nobody wants any more, if there are. */
void hints_bury(struct ps_hints *hints, uint32_t ranges);
uint8_t hints_apply_set(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                        const uint8_t *record);
uint64_t hints_expiry(const struct ps_hints *hints, uint64_t now_ns, uint32_t ttl_ms);
/* A set like this one, which replaces what had its id, with room for its ranges; NONE: over budget.
 */
uint32_t hints_define(struct ps_hints *hints, uint64_t now_ns, const struct set *like,
                      uint32_t ranges);
uint32_t hints_define_nameless(struct ps_hints *hints, const struct set *like, uint32_t ranges);
/* Room for ranges to be appended; false: over budget. */
bool hints_extend(struct ps_hints *hints, uint64_t now_ns, uint32_t set, uint32_t ranges);
/* The set with this id as the scope may use it; else NONE and the reason. */
uint32_t hints_use_set(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                       uint64_t id, struct ps_hints_namespace *space, uint8_t *reason);

/* ---- define.c ---- */
/* The namespace as the scope sees it; false when there is none, or ranges are beyond its end. */
bool hints_find_space(const struct ps_hints *hints, const struct ps_hints_scope *scope,
                      uint32_t nsid, struct ps_hints_namespace *space, const uint8_t *ranges,
                      uint32_t count);
void hints_append_all(struct ps_hints *hints, uint32_t set, const uint8_t *ranges, uint32_t count);

/* ---- signatures.c ---- */
uint64_t hints_signature_hash(const struct ps_hints *hints, uint16_t tenant, uint16_t volume,
                              uint64_t slba);
uint8_t hints_apply_signature(struct ps_hints *hints, uint64_t now_ns,
                              const struct ps_hints_scope *scope, const uint8_t *record);
/* Drops it when it has lived its time. */
bool hints_expire_signature(struct ps_hints *hints, uint64_t now_ns, uint32_t index);

/* ---- sweep.c ---- */
void hints_sweep_soon(struct sweep *sweep, uint64_t when_ns);
void hints_sweep_now(struct ps_hints *hints, uint64_t now_ns);
void hints_sweep(struct ps_hints *hints, uint64_t now_ns);
/* A few items, for somebody who found no room. */
void hints_sweep_sets(struct ps_hints *hints, uint64_t now_ns, uint32_t items);
void hints_sweep_signatures(struct ps_hints *hints, uint64_t now_ns, uint32_t items);

/* ---- hints.c ---- */
/* The volume's scheduler has something new to do: its owner is to be told. */
void hints_announce_volume(struct ps_hints *hints, uint32_t volume);

/* ---- intents.c ---- */
uint64_t hints_session_hash(const struct ps_hints *hints, uint16_t tenant, uint64_t session);
uint32_t hints_find_intent(const struct ps_hints *hints, uint16_t tenant, uint64_t id);
/* A new pending intent that is not in the scheduler; what had its id is cancelled or forgotten. */
uint32_t hints_new_intent(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant,
                          const struct pax_intent *record);
/* It may be used now, or is pending on a volume. */
void hints_bind_intent(struct ps_hints *hints, uint32_t index, uint32_t set, uint32_t volume);
void hints_end_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint8_t state,
                      uint8_t reason);
/* The tenant's log and the ring hear of an end; not of a tenant that several hosts share. */
void hints_tell_end(struct ps_hints *hints, uint64_t now_ns, const struct intent *intent);
/* One that has ended stays as it ended, and the tier no longer keeps anything for it. */
void hints_cancel_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index);

/* ---- cancel.c ---- */
/* A part of it. Of the intents that were there when the first part was. */
uint8_t hints_apply_cancel(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *record,
                           struct ps_hints_progress *progress);
/* At most so many of the volume's; true when none is left. */
bool hints_cancel_volume(struct ps_hints *hints, uint64_t now_ns, uint32_t volume, uint32_t most);
static inline struct intent *hints_intent(const struct ps_hints *hints, uint32_t index) {
  return hints_item(&hints->intents, index);
}
/* What the tier knows a pending intent by, `ago` generations ago. Bit 63 is not the hints' own. */
static inline uint64_t hints_cookie(const struct intent *intent, uint32_t index, uint32_t ago) {
  uint32_t generation = (intent->generation - ago) & (UINT32_MAX >> 1);
  return (uint64_t)generation << 32 | index;
}
static inline struct set *hints_set(const struct ps_hints *hints, uint32_t index) {
  return hints_item(&hints->sets, index);
}

/* ---- admit.c ---- */
/* The whole of it, or a part: `progress` says whether it goes on. */
uint8_t hints_apply_intent(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *record,
                           struct ps_hints_progress *progress);
/* Goes on with one that was not looked at whole yet; returns the reason why it was dropped. */
uint8_t hints_look_on(struct ps_hints *hints, uint64_t now_ns, uint32_t index);
/* An INTENT that is not looked at because the tenant's records of this second are used up. */
void hints_limit_intent(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                        const uint8_t *record);

/* ---- walk.c ---- */
/* How large the volume of a pending intent is; false: its namespace has gone. */
bool hints_find_volume_bytes(const struct ps_hints *hints, const struct intent *intent,
                             uint64_t *volume_bytes);
void hints_queue_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index);
void hints_walk_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index);
/* Its wake_ns has come. */
void hints_wake_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index);
/* The extent around the span, as far as the volume goes: what is hydrated for it. */
void hints_round(const struct ps_hints *hints, uint64_t volume_bytes, struct span *span);

/* ---- follow.c ---- */
void hints_walk_follow(struct ps_hints *hints, uint64_t now_ns, uint32_t index);
void hints_end_follow(struct ps_hints *hints, uint32_t index);
void hints_end_follows(struct ps_hints *hints, uint32_t volume);
void hints_end_tenant_follows(struct ps_hints *hints, uint16_t tenant);

/* ---- target.c ---- */
/* What a RETAIN or a RESIDENCY is about: a set, or the ranges that trail. */
struct target {
  struct ps_hints_namespace space;
  uint64_t bytes;   /* of all its ranges */
  uint64_t extents; /* to be looked up for them */
  uint32_t set;     /* NONE: */
  const uint8_t *ranges;
  uint32_t count;
  struct cursor cursor; /* set: the next range; else `left` is used alone */
};
/* PAX_REASON_NONE, or why not. */
uint8_t hints_target_open(struct ps_hints *hints, uint64_t now_ns,
                          const struct ps_hints_scope *scope, uint64_t set_id, uint32_t nsid,
                          const uint8_t *ranges, uint32_t count, struct target *target);
void hints_target_rewind(const struct ps_hints *hints, struct target *target);
bool hints_target_next(const struct ps_hints *hints, struct target *target, uint64_t *offset,
                       uint64_t *bytes);

/* A part of it: `progress` says whether it goes on. */
uint8_t hints_apply_retain(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *record,
                           struct ps_hints_progress *progress);

/* ---- tenant.c ---- */
struct tenant *hints_tenant(const struct ps_hints *hints, uint16_t tenant);
const struct ps_hints_budget *hints_budget(const struct ps_hints *hints,
                                           const struct tenant *tenant);
/* Several hosts share it, who must learn nothing of each other. */
bool hints_is_shared(const struct tenant *tenant);
/* Takes the price of records out of the tenant's allowance; false: it is used up. */
bool hints_take_records(const struct ps_hints *hints, struct tenant *tenant, uint64_t now_ns,
                        uint32_t records);
/* ... of one record with its ranges: it is never more than a second's worth. */
bool hints_take_record(const struct ps_hints *hints, struct tenant *tenant, uint64_t now_ns,
                       uint32_t ranges);
/* ... of look-ups of extents. */
bool hints_take_extents(const struct ps_hints *hints, struct tenant *tenant, uint64_t now_ns,
                        uint64_t extents);
/* Whether so much may be looked at for the page at hand, too. What comes first always may: it is
 * bounded by itself. */
bool hints_look(struct ps_hints *hints, uint64_t looks);
void hints_count_records(struct tenant *tenant, uint64_t now_ns, uint32_t records);
uint64_t hints_recent_records(const struct tenant *tenant, uint64_t now_ns);
void hints_note_event(struct ps_hints *hints, const struct intent *intent);

/* ---- trust.c ---- */
/* Whether the tenant's hints of this kind have been worth what they brought in. */
bool hints_is_trusted(const struct ps_hints *hints, uint16_t tenant, uint32_t source);
/* Whether one that has come may bring something in: some may that are not trusted, so that it is
 * seen when they have become better. */
bool hints_may_act(struct ps_hints *hints, uint16_t tenant, uint32_t source);

/* ---- mailboxes.c ---- */
/* The page of a mailbox, emptied; NONE when nothing is kept for it. */
uint32_t hints_open_page(struct ps_hints *hints, uint16_t tenant, uint32_t mailbox);
static inline struct page *hints_page(const struct ps_hints *hints, uint32_t index) {
  return hints_item(&hints->pages, index);
}

/* ---- facts.c ---- */
void hints_fact(struct ps_hints *hints, const struct ps_fact *fact);
/* A fact with those of its ranges after it: all of them, or none. */
void hints_facts(struct ps_hints *hints, const struct ps_fact *head, const uint8_t *ranges,
                 uint32_t count, uint32_t block_shift);

/* ---- answers.c ---- */
void hints_outcome(const struct ps_hints *hints, uint16_t tenant, uint64_t id, uint32_t tag,
                   struct pax_outcome_answer *answer);

/* ---- residency.c ---- */
void hints_residency(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     const uint8_t *record, struct pax_residency_answer *answer);

/* ---- inline ---- */

/* A keyed hash of two numbers: a multiplication of 64 by 64 bits, folded, twice. */
static inline uint64_t hints_hash(const struct ps_hints *hints, uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)(a ^ hints->keys[0]) * (b ^ hints->keys[1]);
  uint64_t folded = (uint64_t)product ^ (uint64_t)(product >> 64);
  product = (unsigned __int128)(folded ^ hints->keys[2]) * UINT64_C(0x9E3779B97F4A7C15);
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hints_min(uint64_t a, uint64_t b) { return a < b ? a : b; }

static inline uint64_t hints_add(uint64_t a, uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* Whether blocks are within a namespace. */
static inline bool hints_is_within(const struct ps_hints_namespace *space, uint64_t slba,
                                   uint64_t blocks) {
  return blocks <= space->blocks && slba <= space->blocks - blocks;
}

#endif
