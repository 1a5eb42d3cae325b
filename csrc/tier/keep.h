/* Keeps, and for whom they are. */
#ifndef PRESTAGE_TIER_KEEP_H
#define PRESTAGE_TIER_KEEP_H

#include "internal.h"

/* How long and for whom a frame is kept; zeros and no owner while it is not. */
struct keep {
  uint64_t retained_ns; /* asked for without a cookie; tier->keeps has the later of both times */
  uint32_t owner;       /* in tier->owners, or NONE */
  struct links links;   /* of the owner's frames */
};

/* A cookie for which frames are kept: there is one while there are such frames. */
struct owner {
  uint64_t cookie;
  struct list frames;
  uint32_t hash_next; /* of its bucket, while it is not over; also the free list */
  bool is_over;       /* in tier->over: its keeps are to end */
  struct links links;
};

/* ---- keep.c ---- */
/* Keeps the extent for the tenant as far as its hint limit goes; true when it is kept (by whomever)
 * until then at least. */
bool tier_keep(struct ps_tier *tier, uint32_t index, uint16_t tenant, uint64_t cookie,
               uint64_t until_ns);
void tier_end_keep(struct ps_tier *tier, uint32_t index);
/* What its owner wanted it for is done: it is kept as long as was asked for otherwise. */
void tier_disown(struct ps_tier *tier, uint32_t index);
/* The extent goes on in another frame. */
void tier_move_keep(struct ps_tier *tier, uint32_t index, uint32_t frame);

/* ---- owner.c ---- */
bool tier_owners_init(struct ps_tier *tier);
void tier_owners_free(struct ps_tier *tier);
/* The frame is kept for the cookie (0: for none) and for no other. */
void tier_set_owner(struct ps_tier *tier, uint32_t frame, uint64_t cookie);
/* The keeps of its owner are to end. */
bool tier_is_over(const struct ps_tier *tier, uint32_t frame);
/* A frame of an owner whose keeps are to end, or NONE. */
uint32_t tier_next_over(const struct ps_tier *tier);

/* ---- tenant.c ---- */
/* Who answers for what a hydrate brings in: the tenant whose hint it is, or the model. */
struct tenant *tier_who_hydrates(struct ps_tier *tier, uint16_t tenant, bool is_model);
/* The extent counts for the tenant as what its hints brought in. */
bool tier_is_hinted_for(const struct extent *extent, uint16_t tenant);
/* It is known whether what a hint brought in was of use. */
void tier_settle_hint(struct ps_tier *tier, uint32_t index, bool is_used);

static inline bool is_of_model(const struct extent *extent) {
  return extent->source == PS_TIER_OF_MODEL;
}

#endif
