/* What the tables of the hints are made of.
 *
 * Everything lies in pools that ps_hints_new maps: fixed arrays whose items are numbered from 1 on,
 * so that fresh memory, which is zeros, says "none" everywhere and is not touched before it is
 * used. Look-ups go through hash tables keyed by a secret, so that no host can choose ids that
 * meet in one bucket.
 *
 * A set is a record with ranges in chunks of four. An intent holds a reference to the set whose
 * ranges it wants, and remembers how many there were: a set that is replaced, dropped or extended
 * later is kept as it was for as long as an intent needs it. Ranges that came with an intent are a
 * set without a name.
 *
 * What has lived its time, or was forgotten with its tenant's or volume's epoch, is seen by nobody
 * from that moment on, and its memory comes back when the sweep passes.
 */
#ifndef PRESTAGE_HINTS_TABLES_H
#define PRESTAGE_HINTS_TABLES_H

#include "../hints.h"

#define NONE 0u

enum {
  CHUNK_RANGES = 4,
  LEVELS = 9,       /* sizes of regions: 1 MiB times 8 to the power of the level */
  LEVEL_SHIFT = 20, /* of level 0 */
  LEVEL_STEP = 3,
  RANGE_NODES = 2,        /* regions that one range is found by */
  LOOK_MOST = 64,         /* ranges looked at in one look-up of a region */
  INTENT_RANGES = 64,     /* that came with intents, for each intent that a tenant may have */
  WALK_EXTENTS = 64,      /* looked at in one start of a job */
  LOOKS_MOST = 16384,     /* extents and ranges looked at for the records of one page */
  PASSES_MOST = 8,        /* how often what was evicted again is brought in again for an intent */
  TICK_INTENTS = 16,      /* woken in one tick ... */
  TICK_EXTENTS = 128,     /* ... and looked at for these, before no more are woken */
  SWEEP_ITEMS = 128,      /* looked at in one step of the sweep */
  BURY_RANGES = 64,       /* freed at once of a set that goes; the rest follows in steps */
  OLDEST_MOST = 1024,     /* numbers looked at to find the oldest set of the target's own */
  FOLLOW_JOBS = 1024,     /* speculative jobs */
  FOLLOW_TENANT = 128,    /* of these, of one tenant */
  EVENTS = 127,           /* kept in a tenant's log: as many as its page shows */
  KEEP_EXTENTS = 64,      /* looked at together before each is kept, a power of two */
  PREFETCH_RECORDS = 16,  /* whose memory is asked for together */
  PART_EXTENTS = 32,      /* looked up in one part of a batch, and what its last record needs */
  EXTENTS_PER_TOKEN = 16, /* extents that may be looked up for the price of one record */
  RANGES_PER_TOKEN = 16,  /* ranges that a record brings for the price of one more */
  MAPS = 32
};

#define SWEEP_STEP_NS 500000u
#define ARRIVAL_NS 1000000u /* then it goes on without the batch that it came with */
#define RETRY_FIRST_NS 1000000u
#define RETRY_MOST_NS 16000000u
#define SECOND_NS 1000000000u
#define TARGET_SET (UINT64_C(1) << 63)

struct pool {
  uint8_t *items; /* of item 0, which is never used */
  size_t stride;
  uint32_t count;
  uint32_t fresh; /* items up to this one were used at some time */
  uint32_t free;  /* first of those that are not used any more; linked by their first 4 bytes */
  uint32_t in_use;
};

/* Chains of items of one pool. */
struct table {
  uint32_t *buckets;
  uint32_t mask;
  struct pool *pool;
  size_t link; /* offset of the uint32_t in an item */
};

struct range {
  uint64_t offset; /* bytes of the volume */
  uint32_t blocks;
  uint32_t node; /* first of the nodes by which it is found */
};

struct chunk {
  uint32_t next;
  uint32_t owner;   /* the set */
  uint32_t ordinal; /* of its first range in the set */
  struct range ranges[CHUNK_RANGES];
};

/* A range in the chain of one region. */
struct node {
  uint32_t next;
  uint32_t previous; /* or the bucket, with NODE_HEAD */
  uint32_t range;    /* chunk * CHUNK_RANGES + slot */
  uint32_t sibling;
};
#define NODE_HEAD 0x80000000u

enum set_flag {
  SET_USED = 1,
  SET_ORDERED = 2,
  SET_DEAD = 4,      /* replaced, dropped or expired; intents still hold it, or it is a grave */
  SET_OF_INTENT = 8, /* it has no name */
  SET_THROUGH = 16   /* what follows was brought in, as far as it goes */
};

struct set {
  uint64_t id;
  uint64_t expires_ns;
  uint64_t bytes;
  uint32_t hash_next;   /* grave: the next one */
  uint32_t first, last; /* chunks */
  uint32_t range_count;
  uint32_t references; /* one while it is not dead, and one of each intent; 0: a grave */
  uint32_t follow;     /* the speculative job that brings in the rest */
  uint32_t read_last;  /* ordinal of the range that was read last */
  uint32_t epoch, volume_epoch;
  uint32_t stamp; /* another for each set that ever was, or nearly so */
  uint32_t nsid;
  uint16_t tenant, volume, subsystem;
  uint8_t flags; /* bits set_flag */
  uint8_t block_shift;
};

struct signature {
  uint64_t slba;
  uint64_t expires_ns;
  uint8_t vector[16];
  uint32_t nlb;
  uint32_t hash_next;
  uint32_t epoch, volume_epoch;
  uint16_t tenant, volume;
  uint16_t bits, family; /* bits of 0: the item is free */
};

/* A place in the ranges of a set. */
struct cursor {
  uint64_t done; /* bytes of the range that are behind it */
  uint32_t at;   /* chunk * CHUNK_RANGES + slot */
  uint32_t left; /* ranges from this one on */
};

/* Bytes within one extent. */
struct span {
  uint64_t offset;
  uint32_t length;
};

struct links {
  uint32_t previous, next;
};

enum phase {
  PHASE_ARRIVING = 0, /* looking whether it is warm already */
  PHASE_QUEUED = 1,   /* its job is the scheduler's */
  PHASE_WAITING = 2,  /* no room, or not now: its job is added again at wake_ns */
  PHASE_SETTLING = 3  /* all of it was started: looking whether it has become warm */
};

struct intent {
  struct ps_sched_job job;
  uint64_t id, session;
  uint64_t arrival; /* counts intents */
  uint64_t arrived_ns, deadline_ns, wake_ns;
  uint64_t total_bytes, admitted_bytes;
  uint64_t walked_bytes;   /* of the admitted, that are behind `walk` */
  uint64_t verified_bytes; /* of the admitted, that are behind `check`: they were warm */
  uint64_t warm_bytes;     /* that were warm when walked, or landed since */
  struct cursor walk, check;
  uint32_t set; /* with a reference */
  uint32_t hash_next;
  struct links session_links;
  struct links tenant_links; /* of the tenant's pending, kept or ended */
  struct links volume_links;
  uint32_t heap_index;
  uint32_t generation; /* survives its end: stale cookies find another */
  uint32_t predicted_us, ended_us;
  uint32_t retry_ns;
  uint16_t tenant, volume;
  uint8_t state, verdict, reason, flags; /* as in an outcome answer */
  uint8_t priority, confidence;
  uint8_t wanted; /* bits pax_intent_flag */
  uint8_t phase;
  uint8_t passes;
  bool has_job;    /* the scheduler holds it */
  bool lacks_room; /* why it is waiting */
  bool in_session; /* of its session's list: pending, or with something left in the tier */
  bool is_kept;    /* something may be kept for it in the tier */
};

/* A speculative job: what follows in a set, or in a stream of reads. */
struct follow {
  struct ps_sched_job job;
  uint64_t offset, end;  /* stream: bytes of the volume */
  uint64_t volume_bytes; /* stream */
  struct cursor walk;    /* set */
  uint32_t set;          /* or NONE: a stream */
  uint32_t hash_next;
  uint16_t tenant, volume;
  bool is_used;
};

/* What somebody submitted and may ask about. */
struct page {
  struct links tenant_links;
  uint32_t size; /* bytes kept; 0: it was refused */
  uint32_t sequence;
  uint64_t writer;
  struct ps_hints_result result;
  uint32_t dropped_tag;
  uint16_t tenant;
  uint8_t mailbox;
  uint8_t dropped_reason;
  uint64_t limited[8]; /* a bit a record: dropped by rate */
  uint8_t bytes[PAX_MAX_BATCH_BYTES];
};
_Static_assert(PAX_MAX_BATCH_BYTES / sizeof(struct pax_record) <= 512, "page.limited");

struct fifo {
  uint32_t first, last;
};

/* What is known of one kind of a tenant's hints: trust.c. */
struct trust {
  struct ps_tier_outcome seen;  /* of the tier's counts, so far */
  uint32_t used, unused;        /* extents, fading */
  uint64_t untrusted, left_out; /* hints that came without trust; and of these, to no effect */
  bool is_lost;
};

struct tenant {
  struct ps_hints_budget budget; /* when it has one of its own */
  bool has_budget;
  uint64_t sets, set_ranges, signatures, intents, intent_bytes, intent_ranges; /* used */
  uint32_t epoch;
  uint32_t follows;
  struct trust trusts[PS_TIER_HINTS];    /* by enum ps_tier_source */
  uint64_t rate_ns;                      /* when the records so far are paid for */
  uint64_t second;                       /* the latest one that had records */
  uint32_t second_records, last_records; /* in it, and in the one before */
  uint32_t extents_owed;
  uint64_t extents_looked;   /* looked up for it so far */
  uint64_t no_room_until_ns; /* one of its intents found no room a moment ago */
  uint32_t ordered[LEVELS];  /* nodes of ordered sets by level */
  uint32_t ordered_levels;   /* a bit for each level that has some */
  uint64_t implicit_first, implicit_next;
  uint64_t batches, refused, records, unknown, dropped[8], read_hints, dataset_sets;
  uint64_t event_count, events_lost;
  struct pax_counts intent_counts[PAX_PRIORITIES], read_counts[PAX_PRIORITIES];
  struct pax_refusal refusals[PAX_REFUSALS]; /* number n at n % PAX_REFUSALS */
  uint32_t mailboxes[PAX_MAILBOXES];         /* pages */
  struct fifo pages;
  struct fifo pending, kept, ended; /* intents: see is_kept */
  uint64_t let_go;                  /* CANCEL of all was told when so many intents had arrived */
  uint32_t log_first, log_count, log_lost;
  bool is_told; /* ps_hints_next_event said so, or will */
  bool is_queued;
  uint32_t event_next;
  struct pax_event log[EVENTS];
};

/* Who holds how many of something that all share: whoever holds most is found at once. */
struct share {
  uint32_t *heads; /* tenant + 1, by how many it holds */
  uint32_t *counts;
  struct links *links; /* tenant + 1 */
  uint32_t most;
};

struct hint_volume {
  struct ps_sched *sched; /* NULL: there is none */
  uint32_t epoch;
  uint32_t intents; /* first of its pending ones */
  uint32_t next;    /* volume + 1, of those to be told */
  bool is_queued;
};

struct sweep {
  uint64_t step_ns;     /* when the next step is due; UINT64_MAX: nothing will expire */
  uint64_t earliest_ns; /* of what this pass has left behind */
  uint32_t at;          /* the last item looked at */
};

struct ps_hints {
  struct ps_hints_config config;
  struct ps_tier *tier;
  struct ps_ring *ring;
  ps_hints_resolve resolve;
  void *context;
  struct pax_capability capability;
  struct pax_benefit benefit;
  uint64_t keys[3]; /* of the hashes */
  uint32_t slot_shift;

  struct pool sets, chunks, nodes, signatures, intents, follows, pages;
  struct table sets_by_id, signatures_by_slba, intents_by_id, intents_by_session, streams;
  uint32_t *regions; /* buckets of nodes */
  uint32_t region_mask;
  uint32_t *heap; /* intents by wake_ns; the first at 1 */
  uint32_t heap_size;
  struct share ended_share, page_share;
  struct tenant *tenants;
  struct hint_volume *volumes;
  struct sweep set_sweep, signature_sweep;
  struct fifo event_queue;  /* tenant + 1 */
  struct fifo volume_queue; /* volume + 1 */

  uint64_t live_sets, set_ranges, live_signatures, pending, intent_ranges;
  uint64_t grave_sets; /* their ranges count in set_ranges until they are freed */
  uint64_t bury_ns;    /* when a few of these are freed next; UINT64_MAX: there are none */
  uint32_t graves;     /* the first of them: sets that nobody wants any more */
  struct ps_hints_stats stats;
  uint64_t arrivals;      /* of intents */
  uint32_t stamps;        /* of sets */
  uint64_t looks;         /* at extents and ranges, for this page so far */
  uint64_t looked;        /* at extents of intents, ever */
  uint64_t mapped_tables; /* bytes of buckets and the like */
  struct {
    void *start;
    size_t size;
  } maps[MAPS];
  uint32_t map_count;
};

#endif
