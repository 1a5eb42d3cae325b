/* Waiters: who waits for what, what they are given when they are woken, and how they leave.
 *
 * What a waiter waits for is set aside for it when it is woken (a frame, room below the dirty
 * limit, a reservation), so that nobody who comes later can take it: waiting is strictly first
 * come, first served. A waiter that was told to wait therefore either calls again or is forgotten.
 */
#include "internal.h"

void tier_queue_append(struct queue *queue, struct ps_tier_waiter *waiter) {
  assert(waiter != NULL);
  waiter->next = NULL;
  waiter->previous = queue->last;
  if (queue->last == NULL) {
    queue->first = waiter;
  } else {
    queue->last->next = waiter;
  }
  queue->last = waiter;
  queue->length++;
}

void tier_queue_remove(struct queue *queue, struct ps_tier_waiter *waiter) {
  assert(queue->length > 0);
  if (waiter->previous == NULL) {
    assert(queue->first == waiter);
    queue->first = waiter->next;
  } else {
    waiter->previous->next = waiter->next;
  }
  if (waiter->next == NULL) {
    assert(queue->last == waiter);
    queue->last = waiter->previous;
  } else {
    waiter->next->previous = waiter->previous;
  }
  waiter->next = NULL;
  waiter->previous = NULL;
  queue->length--;
}

static struct queue *queue_of(struct ps_tier *tier, uint32_t queue, uint32_t which) {
  switch (queue) {
    case WAIT_FILL:
      assert(which < tier->op_count);
      return &tier->ops[which].waiters;
    case WAIT_FRAME:
      return &tier->frame_queue;
    case WAIT_DIRTY:
      return &tier->dirty_queue;
    case WAIT_CREDIT:
      return &tier->credit_queue;
    case WAIT_FLUSH:
      assert(which < tier->config.volume_count);
      return &tier->volumes[which].flushes;
    case WAIT_RANGE:
      return &tier->ranges[which % RANGE_BUCKETS];
    case WAIT_SYNC:
      assert(which < tier->config.volume_count);
      return &tier->volumes[which].syncs;
    default:
      assert(queue == WAIT_WOKEN);
      return &tier->woken;
  }
}

void tier_unqueue(struct ps_tier *tier, struct ps_tier_waiter *waiter) {
  uint32_t queue = waiter->state & WAIT_QUEUE;
  if (queue == WAIT_NOTHING) return;
  tier_queue_remove(queue_of(tier, queue, waiter->volume), waiter);
  waiter->state &= ~(uint32_t)WAIT_QUEUE;
}

bool tier_told_error(struct ps_tier_waiter *waiter) {
  if (waiter == NULL) return false;
  if ((waiter->state & TOLD_ERROR) == 0) {
    waiter->error = 0;
    return false;
  }
  assert(waiter->error != 0);
  waiter->state &= ~(uint32_t)TOLD_ERROR;
  return true;
}

int tier_fail(struct ps_tier_waiter *waiter, int32_t error) {
  assert(error > 0);
  if (waiter != NULL) waiter->error = error;
  return PS_TIER_ERROR;
}

void tier_wait(struct ps_tier *tier, struct ps_tier_waiter *waiter, uint32_t queue,
               uint32_t which) {
  assert((waiter->state & WAIT_QUEUE) == WAIT_NOTHING);
  assert(queue != WAIT_NOTHING && queue < WAIT_WOKEN);
  tier_drop_grants(tier, waiter,
                   GRANT_FRAME | GRANT_CREDIT); /* waiter->volume is about to mean something else */
  waiter->state |= queue;
  waiter->volume = which;
  tier_queue_append(queue_of(tier, queue, which), waiter);
}

void tier_wake(struct ps_tier *tier, struct ps_tier_waiter *waiter, uint32_t flags) {
  assert((waiter->state & WAIT_QUEUE) != WAIT_NOTHING);
  assert((waiter->state & WAIT_QUEUE) != WAIT_WOKEN);
  tier_unqueue(tier, waiter);
  waiter->state |= WAIT_WOKEN | flags;
  tier_queue_append(&tier->woken, waiter);
}

void tier_wake_all(struct ps_tier *tier, struct queue *queue, int32_t error) {
  assert(queue != &tier->woken && error >= 0);
  while (queue->first != NULL) {
    struct ps_tier_waiter *waiter = queue->first;
    if (error != 0) waiter->error = error;
    tier_wake(tier, waiter, error != 0 ? TOLD_ERROR : 0);
  }
}

void tier_drop_grants(struct ps_tier *tier, struct ps_tier_waiter *waiter, uint32_t grants) {
  uint32_t dropped = waiter->state & grants;
  assert((grants & ~(uint32_t)GRANTS) == 0);
  waiter->state &= ~dropped;
  if (dropped & GRANT_FRAME) tier_unhold(tier, waiter->volume);
  if (dropped & GRANT_DIRTY) {
    assert(tier->dirty_granted > 0);
    tier->dirty_granted--;
  }
  if (dropped & GRANT_CREDIT) {
    tier->credits += waiter->volume;
    assert(tier->credits <= tier->budget);
  }
}

static void grant_frames(struct ps_tier *tier) {
  while (tier->frame_queue.first != NULL) {
    uint32_t frame = tier_take_frame(tier);
    if (frame == NONE) return;
    struct ps_tier_waiter *waiter = tier->frame_queue.first;
    tier_wake(tier, waiter, GRANT_FRAME);
    waiter->volume = frame;
  }
}

static void grant_dirty(struct ps_tier *tier) {
  struct ps_tier_waiter *waiter = tier->dirty_queue.first;
  while (waiter != NULL && tier_has_room(tier, NULL)) {
    struct ps_tier_waiter *next = waiter->next;
    if (tier_has_room(tier, &tier->volumes[waiter->volume])) {
      tier_wake(tier, waiter, GRANT_DIRTY);
      tier->dirty_granted++;
    }
    waiter = next;
  }
}

static void grant_credits(struct ps_tier *tier) {
  struct ps_tier_waiter *waiter;
  while ((waiter = tier->credit_queue.first) != NULL && waiter->volume <= tier->credits) {
    tier->credits -= waiter->volume;
    tier_wake(tier, waiter, GRANT_CREDIT);
  }
}

void tier_hand_out(struct ps_tier *tier) {
  if (tier->frame_queue.first != NULL) grant_frames(tier);
  if (tier->dirty_queue.first != NULL) grant_dirty(tier);
  if (tier->credit_queue.first != NULL) grant_credits(tier);
}

void ps_tier_forget(struct ps_tier *tier, struct ps_tier_waiter *waiter) {
  assert(waiter != NULL);
  tier_enter(tier, 0, waiter);
  waiter->sequence = 0;
  (void)tier_leave(tier, waiter, PS_TIER_DONE);
}

bool ps_tier_has_woken(const struct ps_tier *tier) {
  assert(tier != NULL);
  return tier->woken.first != NULL;
}

struct ps_tier_waiter *ps_tier_next_woken(struct ps_tier *tier) {
  struct ps_tier_waiter *waiter = tier->woken.first;
  if (waiter == NULL) return NULL;
  assert((waiter->state & WAIT_QUEUE) == WAIT_WOKEN);
  tier_unqueue(tier, waiter);
  return waiter;
}

int ps_tier_reserve(struct ps_tier *tier, uint32_t frames, struct ps_tier_waiter *waiter) {
  assert(waiter != NULL);
  tier_enter(tier, 0, waiter);
  if (waiter->state & GRANT_CREDIT) {
    assert(waiter->volume == frames);
    waiter->state &= ~(uint32_t)GRANT_CREDIT;
    return tier_leave(tier, waiter, PS_TIER_DONE);
  }
  if (frames > tier->budget) return tier_leave(tier, waiter, tier_fail(waiter, E2BIG));
  if (tier->credit_queue.first == NULL && frames <= tier->credits) {
    tier->credits -= frames;
    return tier_leave(tier, waiter, PS_TIER_DONE);
  }
  tier_wait(tier, waiter, WAIT_CREDIT, frames);
  return tier_leave(tier, waiter, PS_TIER_WAIT);
}

bool ps_tier_is_short(const struct ps_tier *tier) {
  assert(tier != NULL);
  return tier->credit_queue.first != NULL;
}

void ps_tier_unreserve(struct ps_tier *tier, uint32_t frames) {
  assert(frames <= tier->budget - tier->credits);
  tier->credits += frames;
  tier_pump(tier);
}
