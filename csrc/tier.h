/* The DRAM tier: which extents of which volumes are in which frames, and what must be read,
 * written and synced for it. A pure core: it takes `now_ns`, makes no system calls, allocates
 * nothing after ps_tier_new, and works without payload (frames == NULL) for simulation.
 * One caller at a time (callers hold the tier's lock).
 *
 * Words: a volume's bytes are cut into extents of `slot_size` bytes; a resident extent owns one
 * frame; a unit is slot_size / 16 or the volume's block size, whichever is larger (at most 16 a
 * slot), with a valid, a dirty, a flushing and an unsynced bit.
 *
 * The rules that keep bytes right:
 *  - A frame with references beyond the index's own is never written in place. A publish into such
 *    a frame goes to the fresh frame, merged, and the index swaps.
 *  - A fill (media read) lands only in units whose fill bit is still set; a write, zero or discard
 *    of a unit clears its fill bit. An extent with fill bits is not dropped from the index.
 *  - At most one media write of an extent is under way. A unit is evictable only when it is neither
 *    dirty, flushing nor unsynced.
 *  - A failed media write makes its units dirty again; a failed sync makes all unsynced units of
 *    the volume dirty again (they are still here, for they are not evictable).
 */
#ifndef PRESTAGE_TIER_H
#define PRESTAGE_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_ring;

/* cffi: begin */
#define PS_TIER_CLASSES 64
#define PS_TIER_OWN_CLASSES 8 /* classes below are the tier's own, the others are the model's */
#define PS_TIER_AGE_BINS 64

struct ps_tier_config {
  uint32_t frame_count;      /* slots of DRAM */
  uint32_t slot_size;        /* bytes, power of two, 16 KiB to 2 MiB */
  uint32_t extent_count;     /* tracked extents at most (>= frame_count) */
  uint32_t dirty_limit;      /* dirty + flushing + unsynced frames at most, <= frame_count - 3 */
  uint32_t volume_count;     /* volumes at most */
  uint32_t tenant_count;     /* tenants are 0 to tenant_count - 1 */
  uint64_t unsynced_age_ns;  /* a sync is wanted when written units wait longer than this */
  uint64_t writeback_age_ns; /* dirty units are written at latest after this */
  uint64_t retry_ns;    /* first back-off after a failed write or sync; doubles up to 64 times */
  uint8_t *frames;      /* frame_count * slot_size bytes, or NULL: no payload */
  struct ps_ring *ring; /* who hears of what is evicted (PS_FACT_EVICTED); NULL: nobody */
};

enum ps_tier_result {
  PS_TIER_DONE = 0, /* done (and, for a read, pinned) */
  PS_TIER_WAIT = 1, /* the waiter is queued; try again when it is woken */
  PS_TIER_ERROR = 2 /* see waiter->error: an errno */
};

/* One per command, embedded by the caller, zeroed before its first use; in at most one queue at a
 * time. What it waited for (a frame, room below the dirty limit, a reservation) is set aside for it
 * when it is woken: so after WAIT make the same call again once it is woken, or ps_tier_forget it;
 * its memory must stay until then. After DONE or ERROR nothing is kept for it. */
struct ps_tier_waiter {
  struct ps_tier_waiter *next;
  struct ps_tier_waiter *previous;
  uint64_t sequence; /* flush: what it waits for */
  int32_t error;     /* after ERROR: what failed (EIO, ENOSPC, ...), or what was wrong with the
                        call: ENODEV (no such volume), EINVAL (not within one extent), ERANGE
                        (beyond the end of the volume), E2BIG (more than ps_tier_budget) */
  uint32_t owner;    /* the caller's own: which reactor to wake */
  uint32_t state;    /* the tier's own */
  uint32_t volume;   /* the tier's own */
};

/* How soon media work is wanted; smaller is sooner. */
enum ps_tier_urgency {
  PS_TIER_DEMAND = 0,     /* somebody waits, without a deadline */
  PS_TIER_DATED = 1,      /* somebody waits, until a deadline; or a hint is due then */
  PS_TIER_SPECULATIVE = 2 /* nobody asked */
};

/* Who has something brought in. */
enum ps_tier_source {
  PS_TIER_OF_INTENT = 0, /* a hint: it is needed by then */
  PS_TIER_OF_SET = 1,    /* a hint: what follows in a set of which a part was read */
  PS_TIER_OF_STREAM = 2, /* a hint: what follows a read that says so */
  PS_TIER_OF_MODEL = 3,  /* no hint: it is counted apart */
  PS_TIER_HINTS = 3      /* kinds of hints: they are below */
};

/* On whose behalf, and how. */
struct ps_tier_access {
  uint64_t deadline_ns;   /* DATED; else UINT64_MAX */
  uint64_t cookie;        /* hydrate: comes back with its actions, and owns its keep; 0: none */
  uint64_t keep_until_ns; /* hydrate: ps_tier_keep until then, as far as the hint limit goes */
  uint16_t tenant;
  uint8_t urgency;     /* enum ps_tier_urgency */
  uint8_t priority;    /* 0 urgent to 3 low */
  uint8_t value_class; /* hydrate: the class of an extent that it brings in; 0 or one of the
                          model's */
  float value;         /* SPECULATIVE hydrate: it evicts only what is worth less than this; 0: only
                          what is worth no more than a fresh class 0 extent */
  uint8_t source;      /* hydrate: enum ps_tier_source */
  bool once;           /* read: do not keep (AF = 6) */
  bool is_again; /* read: the same read was here before and did not wait; it is counted already */
};

enum ps_tier_op { PS_TIER_READ = 1, PS_TIER_WRITE = 2, PS_TIER_SYNC = 3 };

/* Work for a medium. */
struct ps_tier_action {
  uint32_t op; /* enum ps_tier_op */
  uint32_t volume;
  uint64_t offset;       /* bytes into the volume */
  uint32_t length;       /* bytes; 0 for a sync */
  uint32_t frame;        /* the frame that holds the bytes */
  uint32_t frame_offset; /* bytes into the frame */
  uint32_t ticket;       /* hand back to ps_tier_complete */
  uint64_t deadline_ns;  /* UINT64_MAX: none */
  uint64_t cookie;       /* of the hydrate it is for; 0: none */
  uint8_t urgency;       /* enum ps_tier_urgency; DEMAND for writes that somebody waits for */
  uint8_t priority;
  uint16_t tenant;
};

/* What became of what hints of one kind brought in, in extents, each counted once. */
struct ps_tier_outcome {
  uint64_t used;   /* read while it was there for the hint */
  uint64_t unused; /* it was not: its keep ran out before, or it was evicted */
};

/* What became of a hydrate. */
enum ps_tier_hydrated {
  PS_TIER_WARM = 0,    /* nothing was missing: it is kept as asked */
  PS_TIER_STARTED = 1, /* media work was made; its actions carry the cookie */
  PS_TIER_COMING = 2,  /* what is missing is being filled for somebody else: look again later */
  PS_TIER_NO_ROOM = 3, /* no frame that this tenant's hints may take (now) */
  PS_TIER_BUSY = 4,    /* not now: units are being settled; look again later */
  PS_TIER_INVALID = 5  /* no such volume, or not within one extent of it */
};

struct ps_tier_tenant {
  /* All but hint_frames are of the tenant that the extent is charged to: its hint or read or write
   * brought it in. What the model brought in counts among `frames` alone. Bytes are of whole
   * units. */
  uint64_t timely_hits;    /* first reads that found there what a hydrate had brought in */
  uint64_t late_hits;      /* first reads that waited for a hydrate's fill */
  uint64_t hydrated_bytes; /* that landed */
  uint64_t wasted_bytes;   /* hydrated, and evicted or overwritten before anybody read them */
  uint32_t frames;         /* charged to it */
  uint32_t hint_frames;    /* that its hydrates brought in and nobody read yet, or that it keeps */
};

struct ps_tier_stats {
  uint64_t read_hits, read_misses; /* extents of reads */
  uint64_t fills, fill_errors;
  uint64_t writebacks, writeback_errors;
  uint64_t syncs, sync_errors;
  uint64_t evictions;
  uint64_t publish_swaps, publish_copies, publish_adopts;
  uint64_t frame_waits, dirty_waits;
  uint64_t timely_hits, late_hits, hydrated_bytes, wasted_bytes; /* of all tenants, and the model */
  uint32_t frames_free, frames_resident, frames_pinned, frames_dirty, frames_unsynced;
  uint32_t frames_reserved; /* of ps_tier_budget */
};

struct ps_tier;

struct ps_tier *ps_tier_new(const struct ps_tier_config *config);
void ps_tier_free(struct ps_tier *tier);

/* Volumes: `volume` is a small number the caller chooses. `tenant` defaults per access. */
/* 0, -EEXIST, or -EINVAL (volume number, a size that is not whole blocks, or a block size that is
 * not a power of two from 512 to slot_size). */
int ps_tier_volume_add(struct ps_tier *tier, uint32_t volume, uint64_t size, uint32_t block_size);
/* Growth or shrink: extents beyond a smaller size are dropped, dirty or not. -EBUSY while a range
 * is being cleared. Media work that was
 * handed out before may still reach beyond the new end: let it end before the medium shrinks. What
 * the last, partial unit gains by growth reads as zeros. -EBUSY, and nothing is changed, while the
 * extent that a smaller size cuts within a unit is pinned. */
int ps_tier_volume_resize(struct ps_tier *tier, uint32_t volume, uint64_t size);
/* Drops everything of the volume. -EBUSY while frames are pinned or media work is under way. Those
 * who wait for a flush of it are woken with ENODEV. */
int ps_tier_volume_remove(struct ps_tier *tier, uint32_t volume);

/* How many frames commands may hold at once (pins and fresh frames), in FIFO order: a command
 * reserves for all its extents before it starts, so holders never wait for one another. */
int ps_tier_reserve(struct ps_tier *tier, uint32_t frames, struct ps_tier_waiter *waiter);
void ps_tier_unreserve(struct ps_tier *tier, uint32_t frames);
/* Whether somebody waits for a reservation. */
bool ps_tier_is_short(const struct ps_tier *tier);
/* Frames that may be reserved in all: frame_count - dirty_limit - 2. More is ERROR with E2BIG. */
uint32_t ps_tier_budget(const struct ps_tier *tier);

/* Read `length` bytes at `offset` (within one extent). DONE: *frame is pinned (one reference) and
 * holds them at offset % slot_size. WAIT: a fill is under way; one that was less urgent becomes as
 * urgent as `access` says (see ps_tier_promotion). `waiter` may be NULL: start the fill and do not
 * wait (returns WAIT). */
int ps_tier_read(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                 uint32_t length, const struct ps_tier_access *access,
                 struct ps_tier_waiter *waiter, uint32_t *frame);

/* A fill that was handed out already (its ticket) has become more urgent; false: none. Each fill
 * comes once however often it was promoted meanwhile, and not at all when it has ended. */
struct ps_tier_promotion {
  uint64_t deadline_ns;
  uint32_t ticket;
  uint32_t urgency;
};
bool ps_tier_next_promotion(struct ps_tier *tier, struct ps_tier_promotion *promotion);

/* Prestage: bring the range in (within one extent). Frames come from, in this order: free ones (a
 * 16th of all stays free from a tenant that holds its share already); extents charged to the same
 * tenant; extents of tenants that hold more than their share (frame_count / tenants that hold any,
 * this one among them); what the tenant's own hydrates brought in and nobody has read (earlier only
 * if it is worth less than the first). Never from within another tenant's share, never from what is
 * kept, never before anybody who waits for a frame; SPECULATIVE also never evicts what is worth
 * more than `access` allows (its `value`). At most the tenant's hint limit (ps_tier_set_tenant) is
 * held by its hydrates and keeps: at the limit only the last of these sources is left. The model's
 * hydrates are held by no tenant's limit, but by seven eighths of all frames as a limit of its own,
 * and take nothing that hints have brought in and nobody has read. Bounded work, so that a frame
 * among very many may be overlooked (NO_ROOM) and be found the next time. What is being filled
 * already for somebody less urgent is promoted. Returns enum ps_tier_hydrated.
 */
int ps_tier_hydrate(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                    uint32_t length, const struct ps_tier_access *access);

/* Keep what is valid of the range (within one extent) until then; charged to the tenant's hint
 * limit. Of several times of one tenant the latest counts; one that has passed ends the tenant's
 * keep. While another tenant keeps the extent, that keep stays as it is. Reads and writes that need
 * a frame take what is kept when there is nothing else, or when a tenant keeps more than its share
 * and the frame would come out of another's. Returns how many bytes of the range are kept until
 * then at least: 0 at the hint limit.
 *
 * With a cookie (not 0) it is a keep for one use: it ends before its time when the tenant reads the
 * extent, or by ps_tier_end_keeps. Of several cookies the one with the latest time owns it. What
 * was asked for without a cookie is left then. When its time is over, and a hint had brought the
 * extent in that nobody has read, it is as old as can be from then on. */
uint32_t ps_tier_keep(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                      uint32_t length, uint16_t tenant, uint64_t cookie, uint64_t until_ns);
/* All keeps that the cookie owns end: a few with each later call, and sooner when one of them is in
 * the way of another keep. */
void ps_tier_end_keeps(struct ps_tier *tier, uint64_t now_ns, uint64_t cookie);

/* How many frames the hydrates and keeps of one tenant may hold (default: a quarter of them). */
void ps_tier_set_tenant(struct ps_tier *tier, uint16_t tenant, uint32_t hint_frames);
/* How many frames they can hold at a time as the tier is shared now: of the limit, what the tenant
 * has or may take without going into another's share. */
uint32_t ps_tier_hint_room(const struct ps_tier *tier, uint16_t tenant);
void ps_tier_get_tenant(const struct ps_tier *tier, uint16_t tenant, struct ps_tier_tenant *stats);
/* How what the tenant's hints of one kind brought in turned out. */
void ps_tier_get_outcome(const struct ps_tier *tier, uint16_t tenant, uint32_t source,
                         struct ps_tier_outcome *outcome);
/* The same of the model: what its hydrates brought in, whoever it is charged to. `frames` is 0. */
void ps_tier_get_model(const struct ps_tier *tier, struct ps_tier_tenant *stats);

/* A fresh frame for a write that is arriving (one reference, seen by nobody). */
int ps_tier_fresh(struct ps_tier *tier, uint64_t now_ns, struct ps_tier_waiter *waiter,
                  uint32_t *frame);

/* Publish bytes [offset, offset + length) (one extent) that stand in the fresh `frame` at offset %
 * slot_size. Whole units need nothing else; a partial unit is completed from the medium first
 * (WAIT, then call again). WAIT also at the dirty limit, with the reference kept. DONE consumes the
 * reference. ERROR (ENOSPC, EIO): at the dirty limit while the medium refuses writes, or the read
 * of the rest failed; the reference is kept.
 * Write-through is publish, then ps_tier_flush of the range without sync; FUA the same with sync.
 */
int ps_tier_publish(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                    uint32_t length, uint16_t tenant, uint32_t frame,
                    struct ps_tier_waiter *waiter);

#define PS_TIER_PREFETCHED 32 /* places in one call at most */

/* Where somebody will look soon. */
struct ps_tier_place {
  uint32_t volume;
  uint64_t offset;
};

/* Have the memory bring what finding the extents of these places, and holding their frames, will
 * touch; returns for how many: not for those that were used so lately that the caches are likely to
 * have it. Nothing is changed, and nothing depends on it. */
uint32_t ps_tier_prefetch(const struct ps_tier *tier, const struct ps_tier_place *places,
                          uint32_t count);

/* Hold the frame of [offset, offset + length) for reading, with one frame of the budget: when all
 * of it is resident in one extent, and nobody waits for the budget. False, and nothing was done,
 * when that cannot be done at once: reserve and read then. */
bool ps_tier_read_at_once(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                          uint32_t length, const struct ps_tier_access *access, uint32_t *frame);

/* Write `bytes` at [offset, offset + length) (one extent) of what is resident and seen by nobody
 * else, as publishing a frame with them would, but for the frame. False, and nothing was done, when
 * that cannot be done at once: publish then. */
bool ps_tier_overwrite(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                       uint32_t length, const uint8_t *bytes);

/* Compare-and-write and friends: the units of the range as zeros (whole units at once, partial
 * units through a fill first: WAIT, then call again). No frame is needed from the caller. */
int ps_tier_zero(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                 uint32_t length, uint16_t tenant, struct ps_tier_waiter *waiter);

/* The caller is about to clear whole units on the medium itself (holes), and keeps commands away
 * from the range meanwhile. WAIT while media writes of the range are under way, then call again;
 * from DONE on none is. What the tier has of the range stays for now, and flushes of it wait.
 * ERROR: ENODEV, ERANGE (beyond the end) or EINVAL (not whole units).
 * Whatever comes of it, after the first call that was no ERROR ps_tier_clear_end must follow. One
 * range of a volume at a time. */
int ps_tier_clear_begin(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                        uint64_t length, struct ps_tier_waiter *waiter);

/* The range is zeros on the medium, and what the tier had of it is forgotten. Or, not
 * `is_cleared`: it may be in part; what was not durable is kept and will be written again. The next
 * flush of the volume must sync. */
void ps_tier_clear_end(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, bool is_cleared);

/* Write everything of [offset, offset + length) that is dirty now to the medium, and then, when
 * `sync`, sync it. The whole volume: offset 0, length UINT64_MAX. First call with waiter->sequence
 * == 0; WAIT, then call again on waking until DONE or ERROR. A failure of any write or sync under
 * way, or outstanding from before, gives ERROR once to each caller; the data stays dirty. */
int ps_tier_flush(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                  uint64_t length, bool sync, struct ps_tier_waiter *waiter);

/* References: a pin of a frame (reads, sends) or a fresh frame that is not published. */
void ps_tier_reference(struct ps_tier *tier, uint32_t frame);
void ps_tier_release(struct ps_tier *tier, uint64_t now_ns, uint32_t frame);

/* A waiter leaves whatever queue it is in and gives back what was set aside for it (a command that
 * was aborted while waiting, or after it was woken). */
void ps_tier_forget(struct ps_tier *tier, struct ps_tier_waiter *waiter);

/* Media work to start now, one at a time; false when there is none. Of fills only those that are at
 * least as urgent as `least` (enum ps_tier_urgency), the most urgent first. */
bool ps_tier_next_action(struct ps_tier *tier, uint64_t now_ns, uint32_t least,
                         struct ps_tier_action *action);
/* ... and its end: `error` is 0 or an errno. */
void ps_tier_complete(struct ps_tier *tier, uint64_t now_ns, uint32_t ticket, int32_t error);
bool ps_tier_has_woken(const struct ps_tier *tier);
/* Waiters to wake, one at a time; NULL when there is none. */
struct ps_tier_waiter *ps_tier_next_woken(struct ps_tier *tier);
/* The errno of the volume's last write or sync when that failed; 0 when it succeeded. */
int32_t ps_tier_health(const struct ps_tier *tier, uint32_t volume);
/* When ps_tier_next_action may have work although nothing completes (UINT64_MAX: never). Ask after
 * ps_tier_next_action said false. */
uint64_t ps_tier_next_time(const struct ps_tier *tier);

/* The value tables: worth of (class, age bin), PS_TIER_CLASSES by PS_TIER_AGE_BINS, lower is
 * evicted first; of what is worth the same, what was used longest ago. It need not fall with age:
 * what was just read may be worth less than what was read a minute ago. (Between two cuts where it
 * rises the tier keeps one list; where very many extents become older at once, or new tables rise
 * elsewhere, each eviction does a bounded part of moving them, and some count as younger for a
 * while. With tables that do not rise the order is exact.) Ages count from the last use, or from
 * what ps_tier_classify said, in ticks of 2^20 ns. Bin 2k holds ages in [2^k, 1.5 * 2^k) ms, bin 2k
 * + 1 those in [1.5 * 2^k, 2^(k+1)) ms; ages below 1 ms are in bin 0. Classes: 0 brought in and not
 * read yet, 1 read with `once` only, 2 read, 3 read again, 4 written, 5 kept by a hint (evicted
 * only when nothing else can be; becomes what it was before when its time is over), 6 and 7 unused;
 * the others mean what the model wants them to mean. What was read with `once` counts as of the
 * oldest bin. Default: LRU for every class. NaN counts as 0. Copied. */
void ps_tier_set_values(struct ps_tier *tier, const float *values);
/* The extents of the range (of any length) that are resident are of this class of the model's from
 * now on, and were last used `age_ns` ago (39 days at most; not what was filled just now for a
 * reader who is to come back for it: its age is the fill's). Any later access makes one the tier's
 * own again (a read: class 3; a write: class 4), except the read that something was brought in for,
 * and the first read of what a hydrate brought in: these leave it its class of the model's, or make
 * it class 2 when it has none; after a hydrate, with `once`, it is class 1 then, as if it had none.
 * Returns how many there were. Costs a look-up an extent; at most 4096 extents are looked at. */
uint32_t ps_tier_classify(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                          uint64_t length, uint32_t value_class, uint64_t age_ns);

/* Residency of a range, in bytes: valid, and being filled. Costs a look-up per extent. */
void ps_tier_residency(const struct ps_tier *tier, uint32_t volume, uint64_t offset,
                       uint64_t length, uint64_t *warm_bytes, uint64_t *coming_bytes);
/* Bytes of the volume that are not durable (dirty, flushing or unsynced). */
uint64_t ps_tier_unflushed(const struct ps_tier *tier, uint32_t volume);
void ps_tier_get_stats(const struct ps_tier *tier, struct ps_tier_stats *stats);
/* All internal invariants (for tests): 0, or the number of the one that fails. */
int ps_tier_check(const struct ps_tier *tier);
/* cffi: end */

#endif
