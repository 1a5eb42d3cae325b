/* What the tests of the orders share: orders over a tier without payload, a scheduler for each
 * volume, media that do nothing but take their time, dated jobs beside them; and the shared memory
 * as the model maps it. All choices come from a source of numbers below a bound: a seed, or a
 * fuzzer's bytes.
 */
#ifndef PRESTAGE_TESTS_ORDERS_RIG_H
#define PRESTAGE_TESTS_ORDERS_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../orders/internal.h"

enum {
  SHOP_VOLUMES = 3,
  SHOP_TENANTS = 2,
  SHOP_SLOT = 16384,
  SHOP_FRAMES = 40,
  SHOP_BLOCK = 4096,
  SHOP_OPS = 512,
  SHOP_CAPACITY = 32, /* orders */
  SHOP_FETCHES = 20,  /* pending at most */
  SHOP_FACTS = 4096,
  SHOP_DATED = 3 /* dated jobs at most */
};

#define SHOP_CHECK(condition)                                                 \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

struct shop_op {
  struct ps_sched_item item;
  struct shop_op *next_free;
  uint64_t cookie;
  uint64_t fetch_id; /* of the fetch that it is for; 0: none */
  uint64_t done_ns;  /* of the first of a chain, when it is under way; else 0 */
  uint32_t ticket;
  uint32_t volume;
  bool is_used;
};

/* Work that was announced, for which speculation has to wait. */
struct shop_dated {
  struct ps_sched_job job;
  uint64_t offset;
  uint32_t volume;
  bool is_used;
};

struct shop {
  uint32_t (*below)(struct shop *shop, uint32_t bound);
  void *source; /* of the numbers */
  uint64_t state;
  struct ps_tier *tier;
  struct ps_ring *ring;
  struct ps_orders *orders;
  struct ps_sched *scheds[SHOP_VOLUMES];
  uint64_t sizes[SHOP_VOLUMES]; /* 0: the volume is not there */
  bool is_leaving[SHOP_VOLUMES];
  struct shop_op ops[SHOP_OPS];
  struct shop_op *free_op;
  struct shop_dated dated[SHOP_DATED];
  uint64_t now_ns;
  uint32_t error_percent;
  /* The model's own view of the memories. */
  uint8_t *memory;
  size_t memory_bytes;
  uint32_t orders_offset, values_offset;
  struct ps_ring_header *ring_header;
  void (*tell)(struct shop *shop, const struct ps_fact *fact); /* of each PS_FACT_FETCHED */
  uint64_t starting;              /* the id of the fetch of which a piece is being started */
  uint64_t speculated, held_back; /* pieces that were started; times that others went before */
};

/* splitmix64 */
uint32_t shop_random(struct shop *shop, uint32_t bound);
static inline bool shop_chance(struct shop *shop, uint32_t percent) {
  return shop->below(shop, 100) < percent;
}
static inline bool shop_is_up(const struct shop *shop, uint32_t volume) {
  return shop->sizes[volume] != 0 && !shop->is_leaving[volume];
}
static inline struct ps_orders_header *shop_header(const struct shop *shop) {
  return (struct ps_orders_header *)(void *)shop->memory;
}
/* The order with this number, counted from the first. */
static inline struct ps_order *shop_order(const struct shop *shop, uint64_t number) {
  struct ps_order *orders = (struct ps_order *)(void *)(shop->memory + shop->orders_offset);
  return &orders[number % SHOP_CAPACITY];
}

/* Says the seed at hand when the program is aborted. */
void shop_note_seed(const char *program, unsigned long seed);
void shop_open(struct shop *shop);
void shop_close(struct shop *shop);
/* Starts and ends what is due; takes facts out of the ring. Speculation must have waited for
 * everything else. */
void shop_pump(struct shop *shop);
/* To the next time at which something happens, at most `most_ns` from now. */
void shop_advance(struct shop *shop, uint64_t most_ns);
/* Takes facts out of the ring. */
void shop_take_facts(struct shop *shop);
/* Whether something is under way that was started for this fetch. */
bool shop_has_ops(const struct shop *shop, uint64_t fetch_id);
/* What is under way for it is nobody's any more. */
void shop_forget_ops(struct shop *shop, uint64_t fetch_id);
/* All invariants. */
void shop_check(const struct shop *shop);

/* ---- what else goes on ---- */
/* A demand read, a write, a dated job, a volume that goes or comes back, or has another size. */
void shop_disturb(struct shop *shop);
/* The volume goes: as fast as its media work allows. Or comes back. */
void shop_turn_volume(struct shop *shop, uint32_t volume);

#endif
