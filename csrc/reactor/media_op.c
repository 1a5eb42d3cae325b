/* Operations of the media: made of what the tier or a command wants, kept by the volume's scheduler
 * until their turn comes, then handed to the medium, neighbours as one request.
 */
#include <assert.h>
#include <errno.h>

#include "internal.h"

enum { OPS_RESERVE = MEDIA_OPS / 8 }; /* that one urgency leaves to the next */

/* ---- the pool: with the lock held ---- */

static struct media_op **bucket(struct ps_core *core, uint32_t ticket) {
  return &core->by_ticket[ticket % MEDIA_OPS];
}

/* NULL when none is free: what wants one waits where it is. */
static struct media_op *op_take(struct ps_core *core) {
  struct media_op *op = core->free_ops;
  if (op == NULL) return NULL;
  core->free_ops = op->next;
  core->free_op_count--;
  return op;
}

/* Whether a fill of this urgency may have an operation. The last ones are kept for demand, writes
 * and commands' own, and as many more for what is dated: else what can wait would keep all of them
 * from what cannot. */
bool op_may_fill(const struct ps_core *core, uint32_t urgency) {
  assert(core != NULL && urgency <= PS_TIER_SPECULATIVE);
  return core->free_op_count > urgency * OPS_RESERVE;
}

static void op_free(struct ps_core *core, struct media_op *op) {
  if (op->owner == NULL) {
    struct media_op **place = bucket(core, op->ticket);
    while (*place != op) place = &(*place)->same_ticket;
    *place = op->same_ticket;
  }
  op->owner = NULL;
  op->volume = NULL;
  op->is_submitted = false;
  op->next = core->free_ops;
  core->free_ops = op;
  core->free_op_count++;
}

/* The operation that the tier knows by this ticket, or NULL: it has ended. */
static struct media_op *op_of_ticket(struct ps_core *core, uint32_t ticket) {
  struct media_op *op = *bucket(core, ticket);
  while (op != NULL && op->ticket != ticket) op = op->same_ticket;
  return op;
}

static struct media_op *op_of(struct ps_sched_item *item) {
  return CONTAINER(item, struct media_op, item);
}

/* ---- to the scheduler: with the lock held ---- */

/* Tell whoever it belongs to that an operation has ended. */
static void op_end(struct reactor *reactor, struct media_op *op, int32_t error) {
  struct ps_core *core = reactor->core;
  if (op->owner == NULL)
    ps_tier_complete(core->tier, reactor->now_ns, op->ticket, error);
  else
    command_media_ended(reactor, CONTAINER(op->owner, struct command, task), error);
  if ((op->cookie & PS_COOKIE_OF_ORDERS) != 0)
    ps_orders_fill_ended(core->orders, reactor->now_ns, op->cookie, op->item.length, error);
  else if (op->cookie != 0)
    ps_hints_fill_ended(core->hints, reactor->now_ns, op->cookie, op->item.length, error);
  op_free(core, op);
}

/* Its medium is gone. */
void op_cancel(struct reactor *reactor, struct media_op *op) {
  assert(op->volume->is_dead || !op->volume->is_started);
  reactor->tier_changed = true;
  op_end(reactor, op, ENODEV);
}

static void op_push(struct reactor *reactor, struct media_op *op) {
  struct volume *volume = op->volume;
  if (volume->is_dead || !volume->is_started) {
    op_cancel(reactor, op);
    return;
  }
  volume->stats.media_in_flight++;
  ps_sched_push(volume->sched, reactor->now_ns, &op->item);
  volume_want(reactor, volume);
}

/* A command's own operation on its medium. False when no operation is free (try again later). */
bool command_media(struct command *command, uint32_t kind, uint64_t offset, uint32_t length) {
  struct reactor *reactor = command->connection->reactor;
  assert(length > 0 || kind == PS_MEDIA_SYNC);
  struct media_op *op = op_take(reactor->core);
  if (op == NULL) return false;
  op->item = (struct ps_sched_item){.offset = offset,
                                    .length = length,
                                    .op = kind,
                                    .deadline_ns = UINT64_MAX,
                                    .sched_class = PS_SCHED_WRITE};
  op->volume = command->volume;
  op->owner = &command->task;
  op->buffer = NULL;
  op->cookie = 0;
  command->media_under_way++;
  op_push(reactor, op);
  return true;
}

static uint8_t class_of(uint32_t urgency) {
  static const uint8_t classes[] = {[PS_TIER_DEMAND] = PS_SCHED_DEMAND,
                                    [PS_TIER_DATED] = PS_SCHED_DATED,
                                    [PS_TIER_SPECULATIVE] = PS_SCHED_SPECULATIVE};
  assert(urgency <= PS_TIER_SPECULATIVE);
  return classes[urgency];
}

static void start_action(struct reactor *reactor, struct media_op *op,
                         const struct ps_tier_action *action) {
  static const uint8_t kinds[] = {[PS_TIER_READ] = PS_MEDIA_READ,
                                  [PS_TIER_WRITE] = PS_MEDIA_WRITE,
                                  [PS_TIER_SYNC] = PS_MEDIA_SYNC};
  struct ps_core *core = reactor->core;
  assert(action->op >= PS_TIER_READ && action->op <= PS_TIER_SYNC);
  bool fills = action->op == PS_TIER_READ;
  uint8_t sched_class = fills ? class_of(action->urgency) : PS_SCHED_WRITE;
  op->item = (struct ps_sched_item){
      .offset = action->offset,
      .length = action->length,
      .op = kinds[action->op],
      .deadline_ns = sched_class == PS_SCHED_DATED ? action->deadline_ns : UINT64_MAX,
      .sched_class = sched_class,
      .priority = action->priority,
      .is_mergeable = fills};
  op->volume = &core->volumes[action->volume];
  op->owner = NULL;
  op->buffer = NULL;
  if (action->op != PS_TIER_SYNC)
    op->buffer = frame_bytes(core, action->frame) + action->frame_offset;
  op->cookie = action->cookie;
  op->ticket = action->ticket;
  op->same_ticket = *bucket(core, op->ticket);
  *bucket(core, op->ticket) = op;
  op_push(reactor, op);
}

/* What the tier wants done goes to the schedulers; as much as there are operations for. */
void op_start_actions(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  struct ps_tier_action action;
  while (core->free_ops != NULL) {
    uint32_t least = PS_TIER_SPECULATIVE;
    while (least > PS_TIER_DEMAND && !op_may_fill(core, least)) least--;
    if (!ps_tier_next_action(core->tier, reactor->now_ns, least, &action)) return;
    start_action(reactor, op_take(core), &action);
  }
}

/* Fills that somebody waits for now, and which had been wanted less. */
void op_promote(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  struct ps_tier_promotion promotion;
  while (ps_tier_next_promotion(core->tier, &promotion)) {
    struct media_op *op = op_of_ticket(core, promotion.ticket);
    if (op == NULL || op->is_submitted) continue;
    ps_sched_promote(op->volume->sched, reactor->now_ns, &op->item, class_of(promotion.urgency),
                     promotion.deadline_ns);
    volume_want(reactor, op->volume);
  }
}

/* ---- to the medium: by the owner of the volume, without the lock ---- */

/* Called by the medium, in any thread. */
static void op_ended(struct ps_media_request *request) {
  struct media_op *op = request->owner;
  struct reactor *reactor = op->volume->reactor;
  struct media_op *head = atomic_load_explicit(&reactor->ended, memory_order_relaxed);
  do {
    op->next = head;
  } while (!atomic_compare_exchange_weak_explicit(&reactor->ended, &head, op, memory_order_release,
                                                  memory_order_relaxed));
  if (reactor_current() != reactor) mailbox_signal(&reactor->mailbox);
}

/* All that hangs on `op` as the parts of one request. */
static void join(struct media_op *op) {
  struct ps_media_request *request = &op->request;
  request->buffer = NULL;
  request->length = 0;
  for (struct ps_sched_item *item = &op->item; item != NULL; item = item->merged) {
    assert(request->part_count < PS_MEDIA_PARTS && op_of(item)->buffer != NULL);
    assert(item->offset == request->offset + request->length);
    op->parts[request->part_count++] =
        (struct iovec){.iov_base = op_of(item)->buffer, .iov_len = item->length};
    request->length += item->length;
  }
  request->parts = op->parts;
}

/* Hand an operation to its medium: alone when it is one of a chain that is tried one by one, else
 * with all that hangs on it. */
void op_submit(struct media_op *op) {
  assert(op != NULL && op->is_submitted);
  bool speculates = op->item.sched_class == PS_SCHED_SPECULATIVE;
  op->request = (struct ps_media_request){
      .op = op->item.op == PS_MEDIA_READ && speculates ? PS_MEDIA_PREFETCH : op->item.op,
      .offset = op->item.offset,
      .length = op->item.length,
      .buffer = op->buffer,
      .owner = op,
      .done = op_ended};
  if (op->item.merged != NULL && op->first == NULL) join(op);
  ps_media_submit(op->volume->media, &op->request);
}

/* It, and all that hangs on it, was popped: nobody but the owner of the volume changes it any more.
 * The lock is held. */
struct media_op *op_popped(struct ps_sched_item *item) {
  assert(item != NULL);
  for (struct ps_sched_item *at = item; at != NULL; at = at->merged) {
    struct media_op *op = op_of(at);
    op->is_submitted = true;
    op->first = NULL;
    op->request.error = 0;
  }
  return op_of(item);
}

/* ---- and back: with the lock held ---- */

static void count(struct volume *volume, const struct ps_media_request *request) {
  struct ps_volume_stats *stats = &volume->stats;
  if (request->op == PS_MEDIA_READ || request->op == PS_MEDIA_PREFETCH) {
    stats->media_reads++;
    stats->media_read_bytes += request->length;
  } else if (request->op == PS_MEDIA_WRITE) {
    stats->media_writes++;
    stats->media_write_bytes += request->length;
  } else if (request->op == PS_MEDIA_SYNC) {
    stats->media_syncs++;
  }
}

/* Deferred writes began to fail, or succeed again: say so once each time. */
static void note_health(struct volume *volume, const struct ps_media_request *request) {
  if (request->op != PS_MEDIA_WRITE && request->op != PS_MEDIA_SYNC) return;
  int32_t error = request->error;
  bool was_ill = volume->stats.health != 0;
  if (was_ill == (error != 0)) return;
  volume->stats.health = error;
  notice_send(volume->core,
              &(struct ps_notice){
                  .kind = PS_NOTICE_VOLUME_HEALTH, .volume = volume->number, .result = error});
}

/* All of a chain, or the one, has ended, each with its own error. */
static void finish(struct reactor *reactor, struct media_op *first) {
  struct volume *volume = first->volume;
  ps_sched_done(volume->sched, reactor->now_ns, &first->item);
  volume_want(reactor, volume);
  struct ps_sched_item *next;
  for (struct ps_sched_item *item = &first->item; item != NULL; item = next) {
    next = item->merged;
    volume->stats.media_in_flight--;
    op_end(reactor, op_of(item), op_of(item)->request.error);
  }
}

/* A request has ended. When it was one of several parts and failed, nobody knows which of them are
 * good: each is tried again alone, one after the other, in the place that the chain has in the
 * medium's queue. Returns what is to be submitted for that, or NULL. */
static struct media_op *conclude(struct reactor *reactor, struct media_op *op) {
  struct volume *volume = op->volume;
  bool was_alone = op->first != NULL;
  count(volume, &op->request);
  note_health(volume, &op->request);
  if (was_alone && op->item.merged != NULL) return op_of(op->item.merged);
  if (!was_alone && op->item.merged != NULL && op->request.error != 0) {
    for (struct ps_sched_item *item = &op->item; item != NULL; item = item->merged)
      op_of(item)->first = op;
    return op;
  }
  finish(reactor, was_alone ? op->first : op);
  return NULL;
}

/* What has ended goes back to whoever wanted it. */
void media_ended(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  struct media_op *op = atomic_exchange_explicit(&reactor->ended, NULL, memory_order_acquire);
  struct media_op *again = NULL;
  if (op == NULL) return;
  reactor_tell_time(reactor);
  core_lock(core);
  for (struct media_op *next; op != NULL; op = next) {
    next = op->next;
    struct media_op *retry = conclude(reactor, op);
    if (retry == NULL) continue;
    retry->next = again;
    again = retry;
  }
  core_unlock(core);
  reactor->tier_changed = true;
  for (struct media_op *next; again != NULL; again = next) {
    next = again->next; /* a medium may end it at once */
    op_submit(again);
    ps_media_kick(again->volume->media);
  }
}
