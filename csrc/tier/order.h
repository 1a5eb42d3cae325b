/* The order of eviction, and the value tables that it is by. */
#ifndef PRESTAGE_TIER_ORDER_H
#define PRESTAGE_TIER_ORDER_H

#include "internal.h"

enum {
  AGE_MOST = 64,                  /* steps by which one call makes extents older */
  CELLS = CLASS_COUNT * AGE_BINS, /* of a value table; a cell is class * AGE_BINS + bin */
  CLASSIFY_MOST = 4096,           /* extents that one call looks at for those to classify */
  CUT_TABLES = 60,                /* value tables for which a cut stays that they do not need */
  SORT_MOST = 32, /* extents that one passes on the way to its place among its run */
};

/* Extents that may be evicted, of one class and of ages in neighbouring bins over which the class's
 * value does not rise: so the coldest of them is worth least. */
struct run {
  uint32_t due_place; /* in tier->order.due, while it is due */
  bool is_due;
  bool is_shown; /* non-empty: its coldest extent has a rank */
  uint8_t shown; /* the bin as of which it has it */
  uint8_t last_bin;
};

/* What may be evicted, and in what order: order.c. A run has the number of the cell of its first
 * bin, and its list is a ring of extents through the anchor, which is an element of tier->extents
 * beyond all extents: so an extent leaves its list without a look at which it is. */
struct order {
  float values[CELLS];
  uint16_t cells[CELLS]; /* in order of their values, and of equal ones by number */
  uint16_t ranks[CELLS]; /* of a cell, in the above */
  /* Bits: ranks of cells that the coldest extent of a run is in, and words of them that have any.
   */
  uint64_t ready[CELLS / 64];
  uint64_t ready_words;
  struct run runs[CELLS];
  uint8_t first_bins[CELLS]; /* of the run that the bin is in */
  uint8_t cuts[CELLS];       /* not 0: a run begins here, for so many tables more */
  struct heap due;           /* runs whose coldest extent comes to another bin then, or sooner */
  struct heap_entry due_entries[CELLS];
  uint64_t keys[2][CELLS]; /* to sort by */
};
_Static_assert(CELLS == 64 * 64, "one word has a bit for each word of ranks");

/* ---- order.c ---- */
/* False when memory cannot be had. */
bool tier_order_init(struct ps_tier *tier);
/* Among what may be evicted, and out of it. */
void tier_order_add(struct ps_tier *tier, uint32_t index);
void tier_order_remove(struct ps_tier *tier, uint32_t index);
/* What became older is where its age belongs, as far as the work of one call goes. */
void tier_order_age(struct ps_tier *tier);
/* Of the runs by the rank of their coldest extent: the first from this one on, or NONE. */
uint32_t tier_order_next(const struct ps_tier *tier, uint32_t rank);
/* That extent, and the next warmer one of the run of an extent; NONE: there is none. */
uint32_t tier_order_coldest(const struct ps_tier *tier, uint32_t rank);
uint32_t tier_order_warmer(const struct ps_tier *tier, uint32_t index);
/* The extent that is worth least; of equal ones the one used longest ago; NONE: there is none. To
 * be called after tier_order_age. */
uint32_t tier_order_least(const struct ps_tier *tier);
/* The runs are those of the cuts, and their ranks those of the values, which have changed. */
void tier_order_renew(struct ps_tier *tier);

/* ---- values.c ---- */
/* The bin of an age; the extent's own; and the age at which a bin ends (UINT64_MAX: never). */
uint32_t tier_age_bin(uint64_t age_ns);
uint32_t tier_bin_of(const struct ps_tier *tier, const struct extent *extent);
uint64_t tier_bin_end_ns(uint32_t bin);
/* Since its last use. */
uint64_t tier_age_ns(const struct ps_tier *tier, const struct extent *extent);
/* What the extent is worth now, as its own class. */
float tier_value(const struct ps_tier *tier, const struct extent *extent);
/* The tick of what was used so long ago. */
uint32_t tier_use_before(const struct ps_tier *tier, uint64_t age_ns);
void tier_values_init(struct ps_tier *tier);

/* ---- check_order.c ---- */
/* How many extents there are in it. */
uint32_t tier_order_length(const struct ps_tier *tier);
/* 14x. */
int tier_check_order(const struct ps_tier *tier);

#endif
