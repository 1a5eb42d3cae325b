/* Operations of the flash: made of what the tier wants, kept by the scheduler until their turn
 * comes, neighbours as one request; see reactor/media_op.c. Writes and syncs end where they are
 * made: nothing of them is simulated.
 */
#include <stdlib.h>

#include "../media.h"
#include "internal.h"

enum { OPS_RESERVE = REPLAY_OPS / 8 }; /* that one urgency leaves to the next */

bool replay_op_init(struct ps_replay *replay) {
  assert(replay != NULL && replay->ops == NULL);
  replay->ops = calloc(REPLAY_OPS, sizeof *replay->ops);
  if (replay->ops == NULL) return false;
  for (uint32_t i = 0; i < REPLAY_OPS; i++) {
    replay->ops[i].next = replay->free_ops;
    replay->free_ops = &replay->ops[i];
  }
  replay->free_op_count = REPLAY_OPS;
  return true;
}

static struct media_op **bucket(struct ps_replay *replay, uint32_t ticket) {
  return &replay->by_ticket[ticket % REPLAY_OPS];
}

static struct media_op *op_of(struct ps_sched_item *item) {
  return CONTAINER(item, struct media_op, item);
}

/* Whether a fill of this urgency may have an operation: the last ones are kept for demand, and as
 * many more for what is dated. */
bool replay_op_may_fill(const struct ps_replay *replay, uint32_t urgency) {
  assert(replay != NULL && urgency <= PS_TIER_SPECULATIVE);
  return replay->free_op_count > urgency * OPS_RESERVE;
}

static struct media_op *op_take(struct ps_replay *replay) {
  struct media_op *op = replay->free_ops;
  assert(op != NULL && replay->free_op_count > 0);
  replay->free_ops = op->next;
  replay->free_op_count--;
  return op;
}

static void op_free(struct ps_replay *replay, struct media_op *op) {
  struct media_op **place = bucket(replay, op->ticket);
  while (*place != op) place = &(*place)->same_ticket;
  *place = op->same_ticket;
  op->next = replay->free_ops;
  replay->free_ops = op;
  replay->free_op_count++;
}

/* The operation that the tier knows by this ticket, or NULL: it has ended. */
static struct media_op *op_of_ticket(struct ps_replay *replay, uint32_t ticket) {
  struct media_op *op = *bucket(replay, ticket);
  while (op != NULL && op->ticket != ticket) op = op->same_ticket;
  return op;
}

static uint8_t class_of(uint32_t urgency) {
  static const uint8_t classes[] = {[PS_TIER_DEMAND] = PS_SCHED_DEMAND,
                                    [PS_TIER_DATED] = PS_SCHED_DATED,
                                    [PS_TIER_SPECULATIVE] = PS_SCHED_SPECULATIVE};
  assert(urgency <= PS_TIER_SPECULATIVE);
  return classes[urgency];
}

static void start_fill(struct ps_replay *replay, const struct ps_tier_action *action) {
  struct media_op *op = op_take(replay);
  uint8_t sched_class = class_of(action->urgency);
  *op = (struct media_op){
      .item = {.offset = action->offset,
               .length = action->length,
               .op = PS_MEDIA_READ,
               .deadline_ns = sched_class == PS_SCHED_DATED ? action->deadline_ns : UINT64_MAX,
               .sched_class = sched_class,
               .priority = action->priority,
               .is_mergeable = true},
      .same_ticket = *bucket(replay, action->ticket),
      .cookie = action->cookie,
      .ticket = action->ticket,
      .is_fetch = action->cookie != 0 || action->urgency == PS_TIER_SPECULATIVE};
  *bucket(replay, op->ticket) = op;
  ps_sched_push(replay->sched, replay->now_ns, &op->item);
  replay->is_wanted = true;
}

/* What the tier wants done; as much as there are operations for. */
void replay_op_start_actions(struct ps_replay *replay) {
  assert(replay != NULL);
  struct ps_tier_action action;
  while (replay->free_ops != NULL) {
    uint32_t least = PS_TIER_SPECULATIVE;
    while (least > PS_TIER_DEMAND && !replay_op_may_fill(replay, least)) least--;
    if (!ps_tier_next_action(replay->tier, replay->now_ns, least, &action)) return;
    if (action.op == PS_TIER_READ) {
      start_fill(replay, &action);
    } else {
      ps_tier_complete(replay->tier, replay->now_ns, action.ticket, 0);
    }
  }
}

/* Fills that somebody waits for now, and which had been wanted less. */
void replay_op_promote(struct ps_replay *replay) {
  assert(replay != NULL);
  struct ps_tier_promotion promotion;
  while (ps_tier_next_promotion(replay->tier, &promotion)) {
    struct media_op *op = op_of_ticket(replay, promotion.ticket);
    if (op == NULL || op->is_submitted) continue;
    ps_sched_promote(replay->sched, replay->now_ns, &op->item, class_of(promotion.urgency),
                     promotion.deadline_ns);
    replay->is_wanted = true;
  }
}

/* It, and all that hangs on it, was popped: one request of the flash. */
void replay_op_submit(struct ps_replay *replay, struct ps_sched_item *item) {
  assert(replay != NULL && item != NULL);
  struct media_op *first = op_of(item);
  bool speculates = item->sched_class == PS_SCHED_SPECULATIVE;
  first->flash = (struct ps_flash_item){.op = speculates ? PS_MEDIA_PREFETCH : PS_MEDIA_READ};
  for (; item != NULL; item = item->merged) {
    struct media_op *op = op_of(item);
    op->is_submitted = true;
    first->flash.length += item->length;
    if (op->is_fetch) {
      replay->stats.fetch_reads++;
      replay->stats.fetch_bytes += item->length;
    } else {
      replay->stats.demand_reads++;
      replay->stats.demand_bytes += item->length;
    }
  }
  ps_flash_submit(replay->flash, replay->now_ns, &first->flash);
  replay->flash_ns = ps_flash_next_time(replay->flash);
}

static void op_end(struct ps_replay *replay, struct media_op *op) {
  uint64_t cookie = op->cookie;
  ps_tier_complete(replay->tier, replay->now_ns, op->ticket, 0);
  if ((cookie & PS_COOKIE_OF_ORDERS) != 0) {
    assert(replay->orders != NULL);
    ps_orders_fill_ended(replay->orders, replay->now_ns, cookie, op->item.length, 0);
  } else if (cookie != 0) {
    ps_hints_fill_ended(replay->hints, replay->now_ns, cookie, op->item.length, 0);
  }
  op_free(replay, op);
}

/* What has ended, in the order of its ends. */
void replay_op_reap(struct ps_replay *replay) {
  assert(replay != NULL);
  if (replay->flash_ns > replay->now_ns) return;
  for (struct ps_flash_item *ended;
       (ended = ps_flash_reap(replay->flash, replay->now_ns)) != NULL;) {
    struct ps_sched_item *item = &CONTAINER(ended, struct media_op, flash)->item;
    ps_sched_done(replay->sched, replay->now_ns, item);
    for (struct ps_sched_item *next; item != NULL; item = next) {
      next = item->merged;
      op_end(replay, op_of(item));
    }
  }
  replay->flash_ns = ps_flash_next_time(replay->flash);
  replay->is_wanted = true;
  replay->tier_changed = true;
}
