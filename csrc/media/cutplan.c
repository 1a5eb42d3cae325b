/* What a power cut does to the log; see cutplan.h. */
#include "cutplan.h"

#include <stdlib.h>
#include <string.h>

/* Shares of what a cut does to an unsynced write; the rest is torn. */
#define SHARE_LOST 0.35
#define SHARE_WHOLE 0.35

/* Separate streams of random numbers, so that one decision does not move another. */
enum { STREAM_ORDER = 1, STREAM_FATE = 2, STREAM_TEAR = 3, STREAM_SECTOR = 4 };
enum { TEAR_FRONT = 0, TEAR_BACK = 1, TEAR_SCATTERED = 2, TEAR_KINDS = 3 };

bool ps_cutplan_open(struct ps_cutplan *plan, uint64_t capacity, uint32_t sector) {
  assert(plan != NULL && capacity > 0);
  assert(sector >= 512 && (sector & (sector - 1)) == 0);
  *plan = (struct ps_cutplan){.capacity = capacity, .sector = sector};
  plan->order = calloc(capacity, sizeof *plan->order);
  return plan->order != NULL;
}

void ps_cutplan_close(struct ps_cutplan *plan) {
  assert(plan != NULL);
  free(plan->order);
  plan->order = NULL;
}

static uint64_t stream(const struct ps_cutplan *plan, uint64_t which) {
  return ps_mix(plan->seed, which);
}

void ps_cutplan_make(struct ps_cutplan *plan, uint64_t seed, uint64_t number, uint64_t count) {
  assert(plan != NULL && plan->order != NULL);
  assert(count <= plan->capacity);
  plan->seed = ps_mix(seed, number);
  plan->count = count;
  uint64_t random = stream(plan, STREAM_ORDER);
  for (uint64_t i = 0; i < count; i++) plan->order[i] = i;
  for (uint64_t i = count; i > 1; i--) {
    uint64_t other = ps_mix(random, i) % i;
    uint64_t index = plan->order[i - 1];
    plan->order[i - 1] = plan->order[other];
    plan->order[other] = index;
  }
}

/* How many sectors the entry touches. */
static uint32_t sector_count(const struct ps_cutplan *plan, const struct ps_cutlog_entry *entry) {
  uint64_t first = entry->offset / plan->sector;
  uint64_t last = (entry->offset + entry->length - 1) / plan->sector;
  return (uint32_t)(last - first + 1);
}

enum ps_cut_fate ps_cutplan_fate(const struct ps_cutplan *plan, uint64_t index,
                                 const struct ps_cutlog_entry *entry) {
  assert(plan != NULL && index < plan->count && entry != NULL);
  double luck = ps_fraction(stream(plan, STREAM_FATE), index);
  if (luck < SHARE_LOST) return PS_CUT_LOST;
  if (luck < SHARE_LOST + SHARE_WHOLE) return PS_CUT_WHOLE;
  return sector_count(plan, entry) > 1 ? PS_CUT_TORN : PS_CUT_LOST;
}

void ps_cutplan_tear(const struct ps_cutplan *plan, uint64_t index,
                     const struct ps_cutlog_entry *entry, uint8_t *data) {
  assert(plan != NULL && entry != NULL && data != NULL);
  uint64_t random = ps_mix(stream(plan, STREAM_TEAR), index);
  uint64_t scatter = ps_mix(stream(plan, STREAM_SECTOR), index);
  uint32_t sectors = sector_count(plan, entry);
  uint32_t kind = (uint32_t)(random % TEAR_KINDS);
  assert(sectors > 1);
  uint32_t edge = 1 + (uint32_t)((random >> 8) % (sectors - 1)); /* at least one on each side */
  size_t start = 0;
  for (uint32_t i = 0; i < sectors; i++) {
    size_t stop = (size_t)((entry->offset / plan->sector + i + 1) * plan->sector - entry->offset);
    if (stop > entry->length) stop = entry->length;
    bool written = kind == TEAR_FRONT  ? i < edge
                   : kind == TEAR_BACK ? i >= edge
                                       : ps_mix(scatter, i) % 2 == 0;
    if (written && entry->data != NULL) memcpy(data + start, entry->data + start, stop - start);
    if (written && entry->data == NULL) memset(data + start, 0, stop - start);
    start = stop;
  }
}
