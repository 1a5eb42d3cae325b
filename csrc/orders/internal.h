/* The insides of the orders, shared by the files of this folder and by nobody else. */
#ifndef PRESTAGE_ORDERS_INTERNAL_H
#define PRESTAGE_ORDERS_INTERNAL_H

#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "../orders.h"

enum {
  NONE = 0,             /* fetches are numbered from 1 on */
  WALK_EXTENTS = 64,    /* looked at in one start of a job */
  SETTLE_EXTENTS = 256, /* looked at in one look at whether anything is under way */
  WAKES = 64,           /* fetches whose time has come, in one call */
  FORGETS = 64,         /* fetches of a model that is gone, in one call */
  VALUES = PS_TIER_CLASSES * PS_TIER_AGE_BINS,
  LOOKS = 4096,      /* look-ups of extents after which no other order is taken in one call */
  VALUES_LOOKS = 512 /* that new value tables count for */
};
#define SETTLE_NS UINT64_C(100000000)   /* after which a fetch is looked at, should it not end */
#define BANDWIDTH_NS UINT64_C(10000000) /* between two looks at what media can move */
#define COOKIE_GENERATIONS ((UINT32_C(1) << 31) - 1)

enum fetch_state {
  FETCH_FREE = 0,
  FETCH_QUEUED,  /* its job is in the scheduler */
  FETCH_SETTLING /* nothing more is started; what was started has not ended */
};

struct fetch {
  struct ps_sched_job job;
  uint64_t id;
  uint64_t offset, end; /* bytes of the volume */
  uint64_t at;          /* what is before was looked at, and started if it was missing */
  uint64_t checked;     /* SETTLING: nothing before is under way, as the last looks found */
  uint64_t started_bytes;
  uint64_t coming_bytes; /* of these, as far as is known */
  uint64_t expires_ns;
  uint64_t wake_ns;
  uint32_t heap_place; /* 0: it is not there */
  uint32_t generation; /* survives its end: stale cookies find another */
  uint32_t hash_next;
  uint32_t next, previous; /* of its volume; free ones: the next free one */
  float value;
  uint16_t volume, tenant;
  uint8_t state; /* enum fetch_state */
  uint8_t value_class;
  uint8_t end_as; /* enum ps_order_end: SETTLING */
};

struct order_volume {
  struct ps_sched *sched; /* NULL: it is not there */
  uint64_t size;
  uint32_t first, last; /* its fetches, in the order in which they came */
  uint32_t place;       /* in orders->present */
  uint32_t next_queued; /* number + 1; 0: none */
  bool is_queued;
};

struct ps_orders {
  struct ps_orders_config config;
  struct ps_tier *tier;
  struct ps_ring *ring;
  /* The shared memory, where the model may write what it likes at any time: it is told and never
   * believed. */
  struct ps_orders_header *header;
  struct ps_order *ring_orders;
  const uint8_t *tables; /* two of them */
  size_t memory_bytes;
  int fd;
  uint32_t frame_count;
  uint64_t bandwidth;    /* of all media, as it was ... */
  uint64_t bandwidth_ns; /* ... then */
  _Atomic uint64_t tail; /* written by who holds the lock, read by anybody */
  struct fetch *fetches; /* config.fetches + 1 */
  uint32_t fresh;        /* fetches that were ever used */
  uint32_t free;
  uint32_t *buckets; /* by id */
  uint32_t bucket_mask;
  uint64_t keys[3]; /* of the hash: the model must not know which ids share a bucket */
  uint32_t *heap;   /* by wake_ns, from 1 on */
  uint32_t heap_size;
  struct order_volume *volumes;
  uint16_t *present; /* numbers of the volumes that are there, in no order */
  uint32_t present_count;
  uint32_t first_queued, last_queued; /* volumes that are to be told of; number + 1 */
  uint64_t waiting_bytes;             /* of fetches that were not started */
  bool is_forgetting; /* a reset goes on: fetches from before it are left, and no others */
  uint64_t forgot_ns; /* when some of them were forgotten last */
  struct ps_orders_stats stats;
  float values[VALUES]; /* a table on its way from the shared memory to the tier */
};

static inline struct fetch *orders_fetch(const struct ps_orders *orders, uint32_t index) {
  assert(index != NONE && index <= orders->fresh);
  return &orders->fetches[index];
}

static inline uint64_t orders_min(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* How many orders wait; more than there is room for when the model has written nonsense. */
static inline uint64_t orders_waiting(const struct ps_orders *orders) {
  uint64_t head = __atomic_load_n(&orders->header->head, __ATOMIC_ACQUIRE);
  return head - atomic_load_explicit(&orders->tail, memory_order_relaxed);
}

/* The bytes from `offset` to the end of their extent, or to `end`. */
static inline uint32_t orders_span(const struct ps_orders *orders, uint64_t offset, uint64_t end) {
  uint64_t slot = orders->config.slot_size;
  return (uint32_t)(orders_min((offset & ~(slot - 1)) + slot, end) - offset);
}

/* ---- pool.c: fetches by number, by id and by time ---- */
bool orders_pool_init(struct ps_orders *orders);
void orders_pool_free(struct ps_orders *orders);
/* A zeroed fetch with this id, or NONE. */
uint32_t orders_new_fetch(struct ps_orders *orders, uint64_t id);
void orders_free_fetch(struct ps_orders *orders, uint32_t index);
uint32_t orders_find(const struct ps_orders *orders, uint64_t id);
void orders_wake_at(struct ps_orders *orders, uint32_t index, uint64_t wake_ns);
void orders_wake_never(struct ps_orders *orders, uint32_t index);

/* ---- memory.c: what the model may write to ---- */
bool orders_memory_init(struct ps_orders *orders);
/* The parts of the header that are the target's, whatever stands there. */
void orders_tell_header(struct ps_orders *orders);
void orders_memory_free(struct ps_orders *orders);
/* The oldest order that waits, as it stands now. */
void orders_copy(const struct ps_orders *orders, struct ps_order *order);
/* One of the two tables, into orders->values. */
void orders_copy_values(struct ps_orders *orders, uint32_t table);
/* So many are behind. */
void orders_pass(struct ps_orders *orders, uint64_t count);
void orders_tell_gauges(struct ps_orders *orders, uint64_t now_ns);

/* ---- fetch.c ---- */
/* False: the order is refused. */
bool orders_begin_fetch(struct ps_orders *orders, uint64_t now_ns, const struct ps_order *order);
/* Nothing more of it is started; it ends like this when what was started has ended. */
void orders_stop_fetch(struct ps_orders *orders, uint64_t now_ns, uint32_t index, uint8_t end_as);
/* It ends at once, whatever is under way. */
void orders_end_fetch(struct ps_orders *orders, uint64_t now_ns, uint32_t index, uint8_t end_as);
/* Its wake_ns has come. */
void orders_wake_fetch(struct ps_orders *orders, uint64_t now_ns, uint32_t index);

/* ---- orders.c ---- */
/* The volume's scheduler has something new to do: its owner is to be told. */
void orders_announce_volume(struct ps_orders *orders, uint32_t volume);

#endif
