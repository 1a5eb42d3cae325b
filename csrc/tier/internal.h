/* The tier's insides, shared by the files of this folder and by nobody else.
 *
 * Everything is an index into an array that ps_tier_new made: extents, frames, operations, volumes.
 * A list is intrusive and by index; a queue of waiters is intrusive and by pointer, for waiters are
 * the callers' memory.
 *
 * Where an extent can be:
 *  - one of its volume's three lists of changed extents, exactly while it has dirty units:
 *    `dirty` (by age), `urgent` (a flush waits) or `failed` (its last write failed, back-off);
 *  - one `place`: its volume's `unsynced` list (by the sync that covers it), a run of what may be
 *    evicted (order.c) or the list of those of them that are kept, the list of `promised` extents
 *    (filled for somebody who has not come back for it yet), or none (pinned, dirty or under media
 *    work).
 *
 * Why frames never run out for good (checked in ps_tier_new as
 * frame_count >= dirty_limit + RESERVE_FRAMES + 1): at most dirty_limit frames are unclean,
 * commands hold at most budget = frame_count - dirty_limit - RESERVE_FRAMES frames by reservation,
 * so at least RESERVE_FRAMES are neither. Such a frame is free, evictable, promised (evictable
 * after PROMISE_TICKS at latest) or held by media work, which ends. So whoever waits for a frame
 * waits for no other command. Two in reserve: one frame for the fill of a partial write, one for a
 * zero.
 *
 * Hints change none of it. Shares, hint limits and keeps are refusals to hints alone: a read or a
 * write takes any frame that is evictable, of whichever tenant, and a kept one when there is no
 * other (tier_take_frame). A hydrate takes no frame while somebody waits for one, and holds what it
 * took only as media work that it began; from the end of that on the frame is evictable. That work
 * may be put off for other media work only while there is other work (nobody idles while
 * speculation waits); and each piece of other work, when it ends, makes what it holds evictable or
 * clean. So it is still true that the frame that is waited for comes.
 */
#ifndef PRESTAGE_TIER_INTERNAL_H
#define PRESTAGE_TIER_INTERNAL_H

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "../tier.h"

#define NONE UINT32_MAX

enum {
  CLASS_COUNT = PS_TIER_CLASSES,
  OWN_CLASSES = PS_TIER_OWN_CLASSES,
  AGE_BINS = PS_TIER_AGE_BINS,
  UNITS_MAX = 16,
  WRITE_OPS = 64,       /* media writes under way at most, so that reads are not starved */
  FILLS_PER_FRAME = 8,  /* runs of missing units that 16 units can have */
  RANGE_BUCKETS = 64,   /* queues of flushes of ranges, by extent */
  RANGE_EXTENTS = 1024, /* a flush of more extents is done as one of the whole volume */
  RESERVE_FRAMES = 2,
  TICK_SHIFT = 20,      /* a tick is 2^20 ns, about a millisecond */
  PROMISE_TICKS = 1024, /* how long a filled extent is kept for who waited for it */
  BACKOFF_MOST = 64,    /* times retry_ns */
  HUNT_LENGTH = 32,     /* extents of a list, and frames, that a hint looks at for one to evict */
  HUNT_MOST = 256,      /* extents of all lists together that it looks at */
  SPARE_SHARE = 16,     /* when more than one frame of so many is free, there are some to spare */
  MODEL_SPARE = 8,      /* one frame of so many is not for what the model brought in */
  HINT_SHARE = 4,       /* one frame of so many may be held by hints of one tenant, by default */
  EXPIRE_MOST = 8       /* keeps that one call ends; each call makes one at most */
};

struct links {
  uint32_t previous, next;
};

struct list {
  char *links; /* of element 0 */
  size_t stride;
  uint32_t first, last, length;
};

struct queue {
  struct ps_tier_waiter *first, *last;
  uint32_t length;
};

/* Smallest first: by key, and of equal ones by rank. */
struct heap_entry {
  uint64_t key;
  uint32_t rank;
  uint32_t item;
};

struct heap {
  struct heap_entry *entries;
  char *places; /* of element 0: a uint32_t that is the heap's own while the element is in it */
  size_t stride;
  uint32_t length;
};

enum dirty_list { DIRTY_NONE, DIRTY_AGED, DIRTY_URGENT, DIRTY_FAILED };
enum place { PLACE_NONE, PLACE_UNSYNCED, PLACE_EVICTABLE, PLACE_PROMISED };

struct extent {
  uint64_t number;         /* of the volume */
  uint64_t dirty_sequence; /* of the oldest change among the dirty units */
  struct links dirty_links;
  struct links place_links;
  uint32_t hash_next; /* also the free list */
  uint32_t frame;
  uint32_t fills;       /* first of its fill operations */
  uint32_t last_use;    /* ticks */
  uint32_t dirty_since; /* ticks */
  uint32_t sync_stamp;  /* syncs of the volume that had begun when its last write ended */
  uint16_t volume;
  uint16_t tenant;
  uint16_t value_class : 6;
  uint16_t in_dirty : 2; /* enum dirty_list */
  uint16_t place : 2;    /* enum place */
  uint16_t promised : 1;
  uint16_t tracked : 1;
  uint16_t counted_dirty : 1;      /* as the counters know it */
  uint16_t prestaged : 1;          /* a hydrate brought it in, and nobody has read it yet */
  uint16_t hinted : 1;             /* a hydrate was for some of it that no read has come to yet */
  uint16_t kept : 1;               /* by a hint: its frame is in tier->keeps */
  uint8_t write;                   /* its write operation, or NO_WRITE */
  uint8_t source : 2, is_owed : 1; /* enum ps_tier_source; a hint of its tenant: see tenant.c */
  /* One bit a unit. */
  uint16_t valid, dirty, flushing, unsynced, fill;
  uint16_t exposed; /* dropped while others saw the frame: not to be filled before they left */
  uint16_t counted; /* dirty | flushing | unsynced as the counters know it */
  uint16_t unread;  /* brought in by a hydrate; nobody has read or overwritten it */
};

#define NO_WRITE UINT8_MAX
_Static_assert(sizeof(struct extent) <= 64 + 8 * sizeof(uint16_t),
               "64 bytes and the bits of units");

/* Only what is resident is kept, so what a keep needs is here. */
struct frame {
  uint32_t references; /* the index's own, pins, fresh, media work */
  uint32_t extent;     /* whose frame it is, or NONE */
  union {
    uint32_t next_free;
    uint32_t keep_place; /* in tier->keeps, while its extent is kept */
  };
  uint16_t keeper; /* the tenant that keeps its extent */
};
_Static_assert(sizeof(struct frame) <= 16, "frame metadata");

enum op_state { OP_FREE, OP_PENDING, OP_ISSUED };

/* Media work. Fills come first in the array, then WRITE_OPS writes, then a sync per volume. */
struct op {
  union {
    uint64_t sequence;    /* write: of the oldest change in this pass */
    uint64_t deadline_ns; /* fill: UINT64_MAX: none */
  };
  uint64_t cookie; /* fill: of its hydrate */
  struct queue waiters;
  uint32_t extent;
  uint32_t volume;
  uint32_t frame;     /* referenced while it is pending (fill) or issued */
  uint32_t next;      /* the extent's next fill; also the free list */
  struct links links; /* pending: of its list (`previous` is its place in tier->dated instead, when
                         that is where it is); issued: of tier->promotions, when it was promoted */
  uint16_t units;     /* the run */
  uint16_t live;      /* fill: units that may still land */
  uint16_t tenant;    /* on whose behalf */
  uint8_t kind;       /* enum ps_tier_op */
  uint8_t state;      /* enum op_state */
  uint8_t urgency;    /* enum ps_tier_urgency */
  uint8_t priority;
  bool is_hydrate;  /* fill: a hydrate made it */
  bool is_promoted; /* in tier->promotions */
};

struct tenant {
  struct ps_tier_tenant stats;
  struct ps_tier_outcome outcomes[PS_TIER_HINTS];
  uint32_t hint_limit; /* frames */
  uint32_t hand;       /* the frame where its next hunt goes on */
};

struct volume {
  uint64_t size;
  uint32_t block_size, unit_size, unit_shift;
  bool is_present;
  bool is_active; /* in tier->active */
  bool sync_under_way;
  bool sync_failed;      /* and none has succeeded since */
  bool wrote_directly;   /* the caller wrote past the tier; no sync has covered it yet */
  uint32_t direct_stamp; /* syncs that had begun when it did */
  /* Bytes that the caller is clearing itself; an end of 0: none. */
  uint64_t fence_offset, fence_end;
  struct links active_links;
  struct list aged, urgent, failed, unsynced;
  struct queue flushes;     /* of the whole volume, waiting for writes; by sequence */
  struct queue syncs;       /* flushes waiting for a sync */
  uint64_t wanted_sequence; /* changes up to this one are to be written at once */
  uint64_t sync_started, sync_wanted, sync_completed; /* numbers of syncs */
  uint64_t unsynced_since_ns;
  uint64_t retry_at_ns, backoff_ns;
  uint64_t unflushed_units;
  uint32_t unclean_frames;
  uint32_t ops;  /* media work pending or under way */
  int32_t error; /* of the last write or sync, 0 when it succeeded */
};

struct ps_tier {
  struct ps_tier_config config;
  uint64_t now_ns;   /* the latest time seen */
  uint64_t sequence; /* of changes and flushes */
  uint32_t slot_shift;
  uint32_t volumes_present;

  uint32_t *buckets;
  uint32_t bucket_mask;
  struct extent *extents;
  uint32_t extent_free, extents_tracked;

  struct frame *frames;
  uint32_t frame_free, frames_free, frames_resident, frames_idle;
  uint32_t frames_dirty, frames_unclean;
  struct order *order;      /* order.h */
  struct list kept_extents; /* that may be evicted, but for their being kept */
  struct list promised;
  struct heap keeps;      /* frames of kept extents, by when that ends */
  bool has_expired_keeps; /* more than the last call could end */
  struct keep *kept;      /* by frame: keep.h */
  struct owner *owners;   /* as many as frames */
  uint32_t *owner_buckets;
  uint32_t owner_mask, owner_free, owners_used; /* those from owners_used on were never used */
  struct list over;                             /* owners whose keeps are to end */
  struct tenant *tenants;
  struct tenant model;
  uint32_t holders; /* tenants that hold frames */
  uint32_t budget, credits;

  struct op *ops;
  uint32_t fill_count, op_count;
  uint32_t fill_free, fills_used; /* fills from fills_used on were never used */
  uint32_t write_free, writes_in_use;
  /* Pending operations: fills by urgency, and writes whose pass goes on. */
  struct list demand_fills, speculative_fills, next_runs;
  struct heap dated_fills;
  uint32_t dated_count; /* that there ever were */
  struct list promotions;

  struct volume *volumes;
  struct list active;

  struct queue frame_queue, dirty_queue, credit_queue, woken;
  struct queue ranges[RANGE_BUCKETS];
  uint32_t dirty_granted;
  struct ps_tier_stats stats;
};

/* What a waiter is doing: the queue it is in, and what it was given or told when it was woken. */
enum waiter_state {
  WAIT_NOTHING = 0,
  WAIT_FILL = 1, /* waiter->volume: the operation */
  WAIT_FRAME = 2,
  WAIT_DIRTY = 3,  /* waiter->volume: the volume */
  WAIT_CREDIT = 4, /* waiter->volume: how many frames */
  WAIT_FLUSH = 5,  /* waiter->volume: the volume */
  WAIT_RANGE = 6,  /* waiter->volume: the extent */
  WAIT_SYNC = 7,   /* waiter->volume: the volume */
  WAIT_WOKEN = 8,
  WAIT_QUEUE = 15,       /* mask of the above */
  GRANT_FRAME = 1 << 4,  /* waiter->volume is a frame of its own */
  GRANT_DIRTY = 1 << 5,  /* one frame may become unclean */
  GRANT_CREDIT = 1 << 6, /* waiter->volume frames are reserved */
  GRANTS = GRANT_FRAME | GRANT_DIRTY | GRANT_CREDIT,
  TOLD_ERROR = 1 << 7,     /* waiter->error is to be reported */
  TOLD_DONE = 1 << 8,      /* the flush is complete */
  FLUSH_SYNC = 1 << 9,     /* the flush wants a sync */
  FLUSH_WRITTEN = 1 << 10, /* the flush waits for sync number waiter->sequence */
  SEEN_MISS = 1 << 11      /* the read was counted as a miss */
};

/* Classes of value: what brought an extent in and what happened to it since. */
enum value_class {
  CLASS_HYDRATED = 0,
  CLASS_ONCE = 1,
  CLASS_READ = 2,
  CLASS_READ_AGAIN = 3,
  CLASS_WRITTEN = 4,
  CLASS_KEPT = 5 /* of what is kept in place of its own class, which extent->value_class stays */
};

/* Part of a volume that lies within one extent. */
struct span {
  uint64_t number; /* of the extent */
  uint32_t volume;
  uint32_t start, end; /* bytes of the extent */
  uint16_t touched;    /* units with at least one byte in it */
};

/* ---- list.c ---- */
void tier_list_init(struct list *list, void *links, size_t stride);
uint32_t tier_list_next(const struct list *list, uint32_t index);
uint32_t tier_list_previous(const struct list *list, uint32_t index);
void tier_list_append(struct list *list, uint32_t index);
void tier_list_prepend(struct list *list, uint32_t index);
void tier_list_insert_after(struct list *list, uint32_t index, uint32_t before);
void tier_list_remove(struct list *list, uint32_t index);

/* ---- heap.c ---- */
void tier_heap_init(struct heap *heap, struct heap_entry *entries, void *places, size_t stride);
void tier_heap_add(struct heap *heap, uint32_t item, uint64_t key, uint32_t rank);
void tier_heap_remove(struct heap *heap, uint32_t item);
/* The entry of an item that is in the heap. */
const struct heap_entry *tier_heap_entry(const struct heap *heap, uint32_t item);

/* ---- waiter.c ---- */
void tier_queue_append(struct queue *queue, struct ps_tier_waiter *waiter);
void tier_queue_remove(struct queue *queue, struct ps_tier_waiter *waiter);
/* What the waiter was told: true (and cleared) when it is an error to report. */
bool tier_told_error(struct ps_tier_waiter *waiter);
int tier_fail(struct ps_tier_waiter *waiter, int32_t error);
void tier_wait(struct ps_tier *tier, struct ps_tier_waiter *waiter, uint32_t queue, uint32_t which);
void tier_wake(struct ps_tier *tier, struct ps_tier_waiter *waiter, uint32_t flags);
void tier_wake_all(struct ps_tier *tier, struct queue *queue, int32_t error);

/* ---- index.c ---- */
uint32_t tier_bucket_of(const struct ps_tier *tier, uint32_t volume, uint64_t number);
uint32_t tier_find(const struct ps_tier *tier, uint32_t volume, uint64_t number);
/* Gives a frame (one reference, the index's from now on) to the extent, which is tracked from now
 * on if it was not, and charges it to the tenant. `index`: as tier_find says, and without a frame.
 */
uint32_t tier_bring_in(struct ps_tier *tier, uint32_t index, const struct span *span,
                       uint16_t tenant, uint32_t value_class, uint32_t frame);
/* Brings counters and lists in line with the masks and references of the extent; stops tracking
 * it when nothing is left of it. To be called after every change of either. */
void tier_settle(struct ps_tier *tier, uint32_t index);
/* The volume has something to write or to sync: it takes its turns. */
void tier_activate(struct ps_tier *tier, struct volume *volume);
/* Takes the extent out of its place, before its class or what orders the place changes. */
void tier_unplace(struct ps_tier *tier, uint32_t index);
void tier_set_frame(struct ps_tier *tier, uint32_t index, uint32_t frame);
void tier_list_dirty(struct ps_tier *tier, uint32_t index, enum dirty_list where);
/* Forgets units of the extent, dirty or not; media work under way will not touch them. */
void tier_forget_units(struct ps_tier *tier, uint32_t index, uint16_t units);

/* ---- frame.c ---- */
void tier_hold(struct ps_tier *tier, uint32_t frame);
void tier_unhold(struct ps_tier *tier, uint32_t frame);
/* A frame (one reference) that is free, or whose extent is worth least; or NONE. What is kept goes
 * when nothing else can. */
uint32_t tier_take_frame(struct ps_tier *tier);
/* Takes the frame of an extent that may be evicted. */
uint32_t tier_evict(struct ps_tier *tier, uint32_t index);
/* A free frame, or NONE. */
uint32_t tier_take_free(struct ps_tier *tier);
void tier_expire_promises(struct ps_tier *tier);
/* The same in FIFO order with who waits already; queues the waiter when there is none. */
uint32_t tier_get_frame(struct ps_tier *tier, struct ps_tier_waiter *waiter);
void tier_copy(struct ps_tier *tier, uint32_t to, uint32_t from, uint32_t start, uint32_t end);
void tier_clear(struct ps_tier *tier, uint32_t frame, uint32_t start, uint32_t end);
/* What a unit has beyond the volume's end is zeros, so that growing finds zeros there. */
void tier_clear_tail(struct ps_tier *tier, uint32_t volume, uint64_t number, uint32_t frame);

/* ---- fill.c ---- */
/* True when `units` of the span's extent are valid. Else starts what is missing, as urgent as
 * `access` says, and queues the waiter (may be NULL) on it or on the frame that it needs. */
bool tier_need(struct ps_tier *tier, const struct span *span, uint16_t units,
               const struct ps_tier_access *access, struct ps_tier_waiter *waiter);
/* Fills of units that the extent's frame misses. */
void tier_start_fills(struct ps_tier *tier, uint32_t index, uint16_t missing,
                      const struct ps_tier_access *access, bool is_hydrate);
/* Media work under way to or from these units, which were dropped since: a new fill waits for its
 * end. Returns the operation, or NONE. */
uint32_t tier_unsettled(struct ps_tier *tier, const struct extent *extent, uint16_t units);
/* Whether some of the units were dropped while somebody read them who still does. */
bool tier_is_exposed(const struct ps_tier *tier, const struct extent *extent, uint16_t units);
void tier_cancel_fills(struct ps_tier *tier, uint32_t index, uint16_t units);
void tier_end_fill(struct ps_tier *tier, uint32_t op, int32_t error);
/* The next fill that is at least so urgent. */
bool tier_issue_fill(struct ps_tier *tier, uint32_t least, struct ps_tier_action *action);

/* ---- urgency.c ---- */
/* Puts a pending fill where its urgency belongs, and takes the most urgent one out (NONE: there is
 * none that is at least so urgent). */
void tier_list_fill(struct ps_tier *tier, uint32_t op);
uint32_t tier_next_fill(struct ps_tier *tier, uint32_t least);
/* Fills of these units become at least as urgent as the access. */
void tier_promote(struct ps_tier *tier, const struct extent *extent, uint16_t units,
                  const struct ps_tier_access *access);
/* The fill ends: nobody needs to hear of its promotion. */
void tier_drop_promotion(struct ps_tier *tier, uint32_t op);

/* ---- tenant.c ---- */
/* One frame more (or less) is charged to the tenant. */
void tier_charge(struct ps_tier *tier, uint16_t tenant);
void tier_discharge(struct ps_tier *tier, uint16_t tenant);
/* How many frames are a tenant's share when this one is among those that hold any. */
uint32_t tier_share(const struct ps_tier *tier, uint16_t tenant);
bool tier_is_at_hint_limit(const struct ps_tier *tier, uint16_t tenant);
void tier_set_prestaged(struct ps_tier *tier, uint32_t index, bool is_prestaged);
/* `units` that a hydrate had brought in go without having been read. */
void tier_waste(struct ps_tier *tier, uint32_t index, uint16_t units);
/* A read comes to these units: they are there (`is_seen`: it had to wait before), or not. */
void tier_meet(struct ps_tier *tier, uint32_t index, uint16_t units, bool is_seen);
void tier_meet_late(struct ps_tier *tier, uint32_t index, uint16_t units);
void tier_land_hydrate(struct ps_tier *tier, uint32_t index, uint16_t units);

/* ---- action.c ---- */
void tier_describe(const struct ps_tier *tier, uint32_t op, struct ps_tier_action *action);

/* ---- writeback.c ---- */
bool tier_issue_write(struct ps_tier *tier, struct ps_tier_action *action);
void tier_end_write(struct ps_tier *tier, uint32_t op, int32_t error);
bool tier_issue_sync(struct ps_tier *tier, struct ps_tier_action *action);
void tier_end_sync(struct ps_tier *tier, uint32_t op, int32_t error);
/* The units are dirty (again), and older than whatever a flush may wait for. */
void tier_make_failed(struct ps_tier *tier, uint32_t index, uint16_t units, uint64_t sequence);
/* When background writing or syncing of the volume falls due (UINT64_MAX: never). */
uint64_t tier_writeback_time(const struct ps_tier *tier, const struct volume *volume);

/* ---- write.c ---- */
/* Room for one more unclean frame: in the tier (NULL), or in the volume's share of it too. */
bool tier_has_room(const struct ps_tier *tier, const struct volume *volume);

/* ---- flush.c ---- */
/* Flushes of the whole volume whose writes have ended go on. */
void tier_advance_flushes(struct ps_tier *tier, uint32_t volume);
/* Flushes that wait for the extent look again, or get the error. */
void tier_wake_ranges(struct ps_tier *tier, uint32_t index, int32_t error);

/* ---- check_order.c: for ps_tier_check ---- */
bool tier_heap_is_sound(const struct heap *heap);

/* ---- inline ---- */

static inline uint32_t tier_ticks(uint64_t now_ns) { return (uint32_t)(now_ns >> TICK_SHIFT); }

/* The time of a tick in the past 2^32 ticks. */
static inline uint64_t tier_tick_ns(const struct ps_tier *tier, uint32_t tick) {
  uint64_t ticks = tier->now_ns >> TICK_SHIFT;
  uint32_t age = (uint32_t)ticks - tick;
  return age > ticks ? 0 : (ticks - age) << TICK_SHIFT;
}

static inline struct volume *volume_of(struct ps_tier *tier, const struct extent *extent) {
  return &tier->volumes[extent->volume];
}

static inline uint32_t write_base(const struct ps_tier *tier) { return tier->fill_count; }

static inline struct op *write_of(struct ps_tier *tier, const struct extent *extent) {
  assert(extent->write != NO_WRITE);
  return &tier->ops[write_base(tier) + extent->write];
}

static inline uint16_t unclean_units(const struct extent *extent) {
  return (uint16_t)(extent->dirty | extent->flushing | extent->unsynced);
}

/* The lowest run of neighbouring bits. */
static inline uint16_t lowest_run(uint16_t mask) {
  uint32_t bits = mask;
  uint32_t lowest = bits & (~bits + 1u);
  return (uint16_t)(bits & ~(bits + lowest));
}

static inline uint32_t first_unit(uint16_t mask) {
  assert(mask != 0);
  return (uint32_t)__builtin_ctz(mask);
}

static inline uint32_t unit_count(uint16_t mask) { return (uint32_t)__builtin_popcount(mask); }

static inline void deadline_min(uint64_t *deadline, uint64_t other) {
  if (other < *deadline) *deadline = other;
}

/* Bytes of the extent that the volume has. */
static inline uint32_t extent_bytes(const struct ps_tier *tier, const struct volume *volume,
                                    uint64_t number) {
  uint64_t start = number << tier->slot_shift;
  if (start >= volume->size) return 0;
  uint64_t rest = volume->size - start;
  return rest < tier->config.slot_size ? (uint32_t)rest : tier->config.slot_size;
}

/* True while some of the extent is being cleared by the caller: no write of it may begin. */
static inline bool tier_is_fenced(const struct ps_tier *tier, const struct extent *extent) {
  const struct volume *volume = &tier->volumes[extent->volume];
  uint64_t base = extent->number << tier->slot_shift;
  return base < volume->fence_end && volume->fence_offset < base + tier->config.slot_size;
}

/* ---- volume.c ---- */
/* 0, or ENODEV (no such volume), EINVAL (not within one extent), ERANGE (beyond its end). */
int32_t tier_span(const struct ps_tier *tier, uint32_t volume, uint64_t offset, uint64_t length,
                  struct span *span);
uint16_t tier_units(const struct volume *volume, uint32_t start, uint32_t end);
/* Units that the span covers, as far as the volume goes. */
uint16_t tier_whole_units(const struct ps_tier *tier, const struct span *span);
/* How many bytes of the units are in [start, end) of their extent. */
uint32_t tier_bytes_within(const struct volume *volume, uint16_t units, uint32_t start,
                           uint32_t end);

#include "call.h"

#endif
