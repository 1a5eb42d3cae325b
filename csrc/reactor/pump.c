/* Between the tier, the schedulers and the media: the tier's actions become media operations in
 * the queue of the reactor that owns the medium; what has ended goes back to the tier; what the
 * tier wakes goes to the reactor it belongs to.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "internal.h"

static void op_free(struct ps_core *core, struct media_op *op) {
  op->owner = NULL;
  op->is_submitted = false;
  op->volume = NULL;
  op->next = core->free_ops;
  core->free_ops = op;
}

/* Tell the tier, or the command that owns it, that an operation has ended. The lock is held. */
static void op_end(struct reactor *reactor, struct media_op *op, int32_t error) {
  struct ps_core *core = reactor->core;
  if (op->owner == NULL)
    ps_tier_complete(core->tier, reactor->now_ns, op->ticket, error);
  else
    command_media_ended(reactor, CONTAINER(op->owner, struct command, task), error);
  op_free(core, op);
}

/* Its medium is gone. */
void op_cancel(struct reactor *reactor, struct media_op *op) {
  assert(op->volume->is_dead || !op->volume->is_started);
  reactor->tier_changed = true;
  op_end(reactor, op, ENODEV);
}

/* Hand `op` to the owner of its medium. The lock is held. */
static void route_op(struct reactor *reactor, struct media_op *op) {
  struct volume *volume = op->volume;
  if (volume->is_dead || !volume->is_started) {
    op_cancel(reactor, op);
    return;
  }
  volume->stats.media_in_flight++;
  if (volume->reactor == reactor) {
    ps_sched_push(volume->sched, reactor->now_ns, &op->item);
    return;
  }
  op->next = volume->incoming;
  volume->incoming = op;
  reactor->must_signal |= 1ull << volume->reactor->number;
}

/* Wake a task in its own reactor. The lock is held. */
void wake_task(struct reactor *reactor, struct task *task) {
  assert(reactor != NULL && task != NULL);
  uint32_t owner = task->waiter.owner;
  if (owner == reactor->number) {
    task_ready(reactor, task);
    return;
  }
  assert(owner < reactor->core->config.reactor_count);
  mailbox_wake(&reactor->core->reactors[owner].mailbox, task);
  reactor->must_signal |= 1ull << owner;
}

static struct media_op *op_take(struct ps_core *core) {
  struct media_op *op = core->free_ops;
  if (op != NULL) core->free_ops = op->next;
  return op;
}

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

static void op_fill(struct media_op *op, struct volume *volume, uint32_t kind, uint64_t offset,
                    uint32_t length, uint8_t *buffer) {
  op->volume = volume;
  op->item.offset = offset;
  op->item.length = length;
  op->item.op = kind;
  op->request.op = kind;
  op->request.offset = offset;
  op->request.length = length;
  op->request.buffer = buffer;
  op->request.error = 0;
  op->request.owner = op;
  op->request.done = op_ended;
}

static void start_action(struct reactor *reactor, struct media_op *op,
                         const struct ps_tier_action *action) {
  struct ps_core *core = reactor->core;
  static const uint32_t kinds[] = {[PS_TIER_READ] = PS_MEDIA_READ,
                                   [PS_TIER_WRITE] = PS_MEDIA_WRITE,
                                   [PS_TIER_SYNC] = PS_MEDIA_SYNC};
  assert(action->op >= PS_TIER_READ && action->op <= PS_TIER_SYNC);
  uint32_t kind = kinds[action->op];
  if (kind == PS_MEDIA_READ && !action->demand) kind = PS_MEDIA_PREFETCH;
  uint8_t *buffer = NULL;
  if (kind != PS_MEDIA_SYNC) buffer = frame_bytes(core, action->frame) + action->frame_offset;
  op_fill(op, &core->volumes[action->volume], kind, action->offset, action->length, buffer);
  op->ticket = action->ticket;
  op->owner = NULL;
  route_op(reactor, op);
}

/* Move what the tier wants done, and whom it wakes, to where they belong. */
static void move(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  struct ps_tier_action action;
  core_lock(core);
  while (core->free_ops != NULL && ps_tier_next_action(core->tier, reactor->now_ns, &action))
    start_action(reactor, op_take(core), &action);
  for (struct ps_tier_waiter *waiter; (waiter = ps_tier_next_woken(core->tier)) != NULL;)
    wake_task(reactor, CONTAINER(waiter, struct task, waiter));
  core_unlock(core);
}

void pump(struct reactor *reactor) {
  /* The tier's own times (write-back by age) are the first reactor's to keep. */
  bool look = reactor->tier_changed || reactor->number == 0;
  reactor->tier_changed = false;
  if (look) move(reactor);
  for (uint32_t i = 0; i < reactor->volume_count; i++)
    volume_start_ops(reactor, reactor->volumes[i]);
  signal_others(reactor);
}

/* The reactors, and the control thread, that were given something while the lock was held. */
void signal_others(struct reactor *reactor) {
  if (reactor->must_wake_control) {
    reactor->must_wake_control = false;
    notice_wake(reactor->core);
  }
  while (reactor->must_signal != 0) {
    uint32_t number = (uint32_t)__builtin_ctzll(reactor->must_signal);
    reactor->must_signal &= reactor->must_signal - 1;
    mailbox_signal(&reactor->core->reactors[number].mailbox);
  }
}

/* Operations other reactors left for a medium of ours. */
void volume_take_incoming(struct reactor *reactor, struct volume *volume) {
  assert(volume->reactor == reactor);
  core_lock(reactor->core);
  struct media_op *op = volume->incoming;
  volume->incoming = NULL;
  core_unlock(reactor->core);
  struct media_op *ordered = NULL;
  while (op != NULL) {
    struct media_op *next = op->next;
    op->next = ordered;
    ordered = op;
    op = next;
  }
  for (; ordered != NULL; ordered = ordered->next)
    ps_sched_push(volume->sched, reactor->now_ns, &ordered->item);
}

void volume_start_ops(struct reactor *reactor, struct volume *volume) {
  assert(volume->reactor == reactor);
  struct ps_sched_item *item;
  bool any = false;
  while ((item = ps_sched_pop(volume->sched, reactor->now_ns)) != NULL) {
    struct media_op *op = CONTAINER(item, struct media_op, item);
    op->is_submitted = true;
    ps_media_submit(volume->media, &op->request);
    any = true;
  }
  if (any) ps_media_kick(volume->media);
}

static void count(struct volume *volume, const struct media_op *op) {
  struct ps_volume_stats *stats = &volume->stats;
  if (op->item.op == PS_MEDIA_READ || op->item.op == PS_MEDIA_PREFETCH) {
    stats->media_reads++;
    stats->media_read_bytes += op->item.length;
  } else if (op->item.op == PS_MEDIA_WRITE) {
    stats->media_writes++;
    stats->media_write_bytes += op->item.length;
  } else if (op->item.op == PS_MEDIA_SYNC) {
    stats->media_syncs++;
  }
}

/* Deferred writes began to fail, or succeed again: say so once each time. */
static void note_health(struct volume *volume, const struct media_op *op) {
  if (op->item.op != PS_MEDIA_WRITE && op->item.op != PS_MEDIA_SYNC) return;
  int32_t error = op->request.error;
  bool was_ill = volume->stats.health != 0;
  if (was_ill == (error != 0)) return;
  volume->stats.health = error;
  notice_send(volume->core,
              &(struct ps_notice){
                  .kind = PS_NOTICE_VOLUME_HEALTH, .volume = volume->number, .result = error});
}

static void conclude(struct reactor *reactor, struct media_op *op) {
  struct volume *volume = op->volume;
  ps_sched_done(volume->sched, reactor->now_ns, &op->item);
  volume->stats.media_in_flight--;
  count(volume, op);
  note_health(volume, op);
  op_end(reactor, op, op->request.error);
}

void media_ended(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  struct media_op *op = atomic_exchange_explicit(&reactor->ended, NULL, memory_order_acquire);
  if (op == NULL) return;
  core_lock(core);
  while (op != NULL) {
    struct media_op *next = op->next;
    conclude(reactor, op);
    op = next;
  }
  core_unlock(core);
  reactor->tier_changed = true;
}

/* A command's own operation on its medium. False when no operation is free (try again later).
 * The lock is held. */
bool command_media(struct command *command, uint32_t kind, uint64_t offset, uint32_t length) {
  struct reactor *reactor = command->connection->reactor;
  assert(length > 0 || kind == PS_MEDIA_SYNC);
  struct media_op *op = op_take(reactor->core);
  if (op == NULL) return false;
  op_fill(op, command->volume, kind, offset, length, NULL);
  op->owner = &command->task;
  command->media_under_way++;
  route_op(reactor, op);
  return true;
}
