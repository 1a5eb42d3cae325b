/* How each call of the tier begins and ends; internal.h includes it. */
#ifndef PRESTAGE_TIER_CALL_H
#define PRESTAGE_TIER_CALL_H

/* ---- waiter.c ---- */
/* Takes the waiter out of the queue that it is in, if any. */
void tier_unqueue(struct ps_tier *tier, struct ps_tier_waiter *waiter);
void tier_drop_grants(struct ps_tier *tier, struct ps_tier_waiter *waiter, uint32_t grants);
/* Hands out what is free to those who wait for it; tier_pump looks whether anybody does. */
void tier_hand_out(struct ps_tier *tier);

/* ---- keep.c ---- */
void tier_expire_keeps(struct ps_tier *tier);

static inline void tier_pump(struct ps_tier *tier) {
  if (tier->frame_queue.first != NULL || tier->dirty_queue.first != NULL ||
      tier->credit_queue.first != NULL)
    tier_hand_out(tier);
}

/* Start of a call: the latest time, and the waiter is in no queue from here on. */
static inline void tier_enter(struct ps_tier *tier, uint64_t now_ns,
                              struct ps_tier_waiter *waiter) {
  assert(tier != NULL);
  if (now_ns > tier->now_ns) tier->now_ns = now_ns;
  if (tier->keeps.length > 0) tier_expire_keeps(tier);
  if (waiter != NULL && (waiter->state & WAIT_QUEUE) != WAIT_NOTHING) tier_unqueue(tier, waiter);
}

/* End of a call: gives back what the waiter no longer needs, hands out what became free. */
static inline int tier_leave(struct ps_tier *tier, struct ps_tier_waiter *waiter, int result) {
  assert(result >= PS_TIER_DONE && result <= PS_TIER_ERROR);
  if (waiter != NULL && result != PS_TIER_WAIT) {
    if ((waiter->state & GRANTS) != 0) tier_drop_grants(tier, waiter, GRANTS);
    waiter->state = WAIT_NOTHING;
    if (result == PS_TIER_DONE) waiter->error = 0;
  }
  tier_pump(tier);
  return result;
}

#endif
