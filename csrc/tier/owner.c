/* For whom frames are kept: the cookies of hints that are for one use. Found by hash; to end all
 * keeps of one takes a step, and each call of the tier ends a few of those that are over. */
#include <stdlib.h>

#include "keep.h"

bool tier_owners_init(struct ps_tier *tier) {
  uint32_t frames = tier->config.frame_count;
  uint32_t buckets = 16;
  while (buckets < frames && buckets < (UINT32_C(1) << 31)) buckets *= 2;
  tier->kept = calloc(frames, sizeof(*tier->kept));
  tier->owners = calloc(frames, sizeof(*tier->owners));
  tier->owner_buckets = calloc(buckets, sizeof(*tier->owner_buckets));
  if (tier->kept == NULL || tier->owners == NULL || tier->owner_buckets == NULL) return false;
  memset(tier->owner_buckets, 0xFF, buckets * sizeof(*tier->owner_buckets));
  for (uint32_t i = 0; i < frames; i++) tier->kept[i].owner = NONE;
  tier->owner_mask = buckets - 1;
  tier->owner_free = NONE;
  tier_list_init(&tier->over, &tier->owners[0].links, sizeof(struct owner));
  return true;
}

void tier_owners_free(struct ps_tier *tier) {
  free(tier->kept);
  free(tier->owners);
  free(tier->owner_buckets);
}

/* The place in the chain of its bucket where the number of the cookie's owner is, or NONE. */
static uint32_t *find(const struct ps_tier *tier, uint64_t cookie) {
  uint64_t hash = cookie * UINT64_C(0x9E3779B97F4A7C15);
  uint32_t *place = &tier->owner_buckets[(hash >> 32) & tier->owner_mask];
  while (*place != NONE && tier->owners[*place].cookie != cookie)
    place = &tier->owners[*place].hash_next;
  return place;
}

static uint32_t find_or_make(struct ps_tier *tier, uint64_t cookie) {
  uint32_t *place = find(tier, cookie);
  if (*place != NONE) return *place;
  uint32_t number = tier->owner_free != NONE ? tier->owner_free : tier->owners_used++;
  assert(number < tier->config.frame_count); /* each has a frame at least */
  if (number == tier->owner_free) tier->owner_free = tier->owners[number].hash_next;
  struct owner *owner = &tier->owners[number];
  *owner = (struct owner){.cookie = cookie, .hash_next = NONE};
  tier_list_init(&owner->frames, &tier->kept[0].links, sizeof(struct keep));
  *place = number;
  return number;
}

static void leave_bucket(struct ps_tier *tier, uint32_t number) {
  uint32_t *place = find(tier, tier->owners[number].cookie);
  assert(*place == number);
  *place = tier->owners[number].hash_next;
}

static void leave(struct ps_tier *tier, uint32_t frame) {
  uint32_t number = tier->kept[frame].owner;
  struct owner *owner = &tier->owners[number];
  tier_list_remove(&owner->frames, frame);
  tier->kept[frame].owner = NONE;
  if (owner->frames.length > 0) return;
  if (owner->is_over) {
    tier_list_remove(&tier->over, number);
  } else {
    leave_bucket(tier, number);
  }
  owner->hash_next = tier->owner_free;
  tier->owner_free = number;
}

void tier_set_owner(struct ps_tier *tier, uint32_t frame, uint64_t cookie) {
  assert(frame < tier->config.frame_count);
  if (tier->kept[frame].owner != NONE) leave(tier, frame);
  if (cookie == 0) return;
  uint32_t number = find_or_make(tier, cookie);
  tier->kept[frame].owner = number;
  tier_list_append(&tier->owners[number].frames, frame);
}

bool tier_is_over(const struct ps_tier *tier, uint32_t frame) {
  uint32_t number = tier->kept[frame].owner;
  return number != NONE && tier->owners[number].is_over;
}

uint32_t tier_next_over(const struct ps_tier *tier) {
  if (tier->over.first == NONE) return NONE;
  const struct owner *owner = &tier->owners[tier->over.first];
  assert(owner->is_over && owner->frames.first != NONE);
  return owner->frames.first;
}

void ps_tier_end_keeps(struct ps_tier *tier, uint64_t now_ns, uint64_t cookie) {
  assert(tier != NULL && cookie != 0);
  uint32_t number = *find(tier, cookie);
  if (number != NONE) {
    leave_bucket(tier, number);
    tier->owners[number].is_over = true;
    tier_list_append(&tier->over, number);
  }
  tier_enter(tier, now_ns, NULL);
  (void)tier_leave(tier, NULL, PS_TIER_DONE);
}
