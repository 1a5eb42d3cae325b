/* Reads: hits pin, misses wait for fills. */
#include "keep.h"

/* `is_first`: it was brought in for this read. `is_ahead`: a hydrate brought it in, and this is the
 * first read of it. If either has a class of the model's by then, this read is what it has it for:
 * the model hears of a miss when it begins. */
static void warm(struct ps_tier *tier, struct extent *extent, bool is_first, bool is_ahead) {
  uint32_t value_class = extent->value_class;
  extent->last_use = tier_ticks(tier->now_ns);
  if (value_class >= OWN_CLASSES && (is_first || is_ahead)) return;
  if (value_class < CLASS_READ) {
    extent->value_class = CLASS_READ;
  } else if (value_class >= OWN_CLASSES || (value_class == CLASS_READ && !is_first)) {
    extent->value_class = CLASS_READ_AGAIN;
  }
}

/* What is kept for one use has been used, when it was the tenant itself. */
static void meet_keep(struct ps_tier *tier, uint32_t index, uint16_t tenant) {
  uint32_t frame = tier->extents[index].frame;
  if (tier->frames[frame].keeper == tenant) tier_disown(tier, index);
}

/* `is_seen`: the read was here before, so what brought it in was for this read, or counted then. */
static void touch(struct ps_tier *tier, uint32_t index, uint16_t units,
                  const struct ps_tier_access *access, bool is_seen) {
  struct extent *extent = &tier->extents[index];
  bool is_ahead = extent->prestaged;
  if (extent->place != PLACE_UNSYNCED) tier_unplace(tier, index);
  if (is_ahead || extent->unread != 0) tier_meet(tier, index, units, is_seen);
  /* A read that warms nothing leaves the rest of the extent to its keep. */
  if (extent->kept && !(access->once && extent->unread != 0))
    meet_keep(tier, index, access->tenant);
  extent->promised = 0;
  if (!access->once) {
    warm(tier, extent, is_seen, is_ahead);
  } else if (is_ahead && extent->tenant == access->tenant) {
    extent->value_class = CLASS_ONCE; /* it was brought in for one read */
  } else if (is_seen) {
    extent->last_use = tier_ticks(tier->now_ns);
  } /* else it neither warms nor cools what others keep */
}

static int miss(struct ps_tier *tier, const struct span *span, const struct ps_tier_access *access,
                struct ps_tier_waiter *waiter, bool is_seen) {
  bool is_there = tier_need(tier, span, span->touched, access, waiter);
  uint32_t index = tier_find(tier, span->volume, span->number);
  assert(!is_there);
  if (!is_seen) tier->stats.read_misses++;
  if (waiter != NULL) waiter->state |= SEEN_MISS;
  if (index != NONE) tier_meet_late(tier, index, span->touched);
  return PS_TIER_WAIT;
}

/* Hold the frame of what is all there; false: it is not. Nothing is to be settled: what is read and
 * held has no place but among the unsynced, which it keeps, and what it has does not change. */
static bool hit(struct ps_tier *tier, const struct span *span, const struct ps_tier_access *access,
                bool is_seen, uint32_t *frame) {
  uint32_t index = tier_find(tier, span->volume, span->number);
  if (index == NONE || (span->touched & ~tier->extents[index].valid) != 0) return false;
  if (!is_seen) tier->stats.read_hits++;
  *frame = tier->extents[index].frame;
  tier_hold(tier, *frame);
  touch(tier, index, span->touched, access, is_seen);
  return true;
}

static int read_span(struct ps_tier *tier, const struct span *span,
                     const struct ps_tier_access *access, struct ps_tier_waiter *waiter,
                     uint32_t *frame) {
  bool is_seen = access->is_again || (waiter != NULL && (waiter->state & SEEN_MISS) != 0);
  if (hit(tier, span, access, is_seen, frame)) return PS_TIER_DONE;
  return miss(tier, span, access, waiter, is_seen);
}

int ps_tier_read(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                 uint32_t length, const struct ps_tier_access *access,
                 struct ps_tier_waiter *waiter, uint32_t *frame) {
  struct span span;
  assert(frame != NULL && access != NULL && access->urgency <= PS_TIER_SPECULATIVE);
  tier_enter(tier, now_ns, waiter);
  *frame = NONE;
  if (tier_told_error(waiter)) return tier_leave(tier, waiter, PS_TIER_ERROR);
  int32_t error = tier_span(tier, volume, offset, length, &span);
  if (error != 0) return tier_leave(tier, waiter, tier_fail(waiter, error));
  return tier_leave(tier, waiter, read_span(tier, &span, access, waiter, frame));
}

bool ps_tier_read_at_once(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                          uint32_t length, const struct ps_tier_access *access, uint32_t *frame) {
  struct span span;
  assert(frame != NULL && access != NULL && !access->is_again);
  tier_enter(tier, now_ns, NULL);
  if (tier->credit_queue.first != NULL || tier->credits == 0) return false;
  if (tier_span(tier, volume, offset, length, &span) != 0) return false;
  if (!hit(tier, &span, access, false, frame)) return false;
  tier->credits--;
  return true;
}
