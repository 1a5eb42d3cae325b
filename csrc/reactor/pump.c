/* Between the tier, hints, orders, the schedulers and the media: what the tier wants done waits in
 * the schedulers; the reactor that owns a medium starts what its scheduler says; what the tier
 * wakes goes to the reactor it belongs to.
 *
 * Anybody who holds the lock may push to a scheduler, or have hints or orders give it a job, and
 * then says that the volume wants its owner to look (volume_want). A pass in which nothing was
 * wanted, no order waits and no time has come takes no lock.
 */
#include <assert.h>

#include "internal.h"

enum {
  STARTS = 32,         /* requests that are started for one volume in one go */
  PIECES = 16,         /* pieces of jobs, likewise */
  MOMENT_NS = 1000000, /* when there was no room for more: look again then */
  ORDERS = 64,         /* of the model, taken in one go */
  GAUGES_NS = 10000000 /* between two looks at the gauges that the model sees */
};

/* ---- with the lock held ---- */

/* Its owner is to ask its scheduler; once it is started, which asks for the first time. Before that
 * the owner would take note of it and find no volume to look at. */
void volume_want(struct reactor *reactor, struct volume *volume) {
  assert(reactor != NULL && volume != NULL);
  if (!volume->is_started) return;
  if (atomic_load_explicit(&volume->is_wanted, memory_order_relaxed)) return;
  atomic_store_explicit(&volume->is_wanted, true, memory_order_relaxed);
  atomic_store_explicit(&volume->reactor->has_wanted, true, memory_order_release);
  if (volume->reactor != reactor) reactor->must_signal |= 1ull << volume->reactor->number;
}

/* Wake a task in its own reactor. */
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

/* What the tier wants done, and whom it wakes. */
static void move_tier(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  op_promote(reactor);
  op_start_actions(reactor);
  for (struct ps_tier_waiter *waiter; (waiter = ps_tier_next_woken(core->tier)) != NULL;)
    wake_task(reactor, CONTAINER(waiter, struct task, waiter));
}

/* What the hints have changed: jobs, and events that hosts want to hear of. */
static void move_hints(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  for (int32_t volume; (volume = ps_hints_next_volume(core->hints)) >= 0;)
    volume_want(reactor, &core->volumes[volume]);
  hint_tell_events(core);
}

/* Orders are the first reactor's to take. Jobs that came of them are their volumes'. */
static void move_orders(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  if (core->orders == NULL) return;
  if (reactor->number == 0) {
    bool is_due = ps_orders_next_time(core->orders) <= reactor->now_ns;
    bool is_old = core->gauges_ns <= reactor->now_ns;
    if (is_due || is_old || ps_orders_waiting(core->orders)) {
      (void)ps_orders_take(core->orders, reactor->now_ns, ORDERS);
      core->gauges_ns = reactor->now_ns + GAUGES_NS;
    }
  }
  for (int32_t volume; (volume = ps_orders_next_volume(core->orders)) >= 0;)
    volume_want(reactor, &core->volumes[volume]);
}

/* Facts were put by whoever holds the lock, for a reader that may sleep. */
static void move_facts(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  if (core->ring != NULL && ps_ring_must_wake(core->ring)) reactor->must_wake_model = true;
}

static uint64_t jobs_time(const struct ps_core *core) {
  uint64_t time = ps_hints_next_time(core->hints);
  uint64_t orders_time = core->orders != NULL ? ps_orders_next_time(core->orders) : UINT64_MAX;
  return orders_time < time ? orders_time : time;
}

/* The times of the tier (write-back by age), of hints and of orders are the first reactor's to
 * keep. */
static void keep_time(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  uint64_t time = jobs_time(core);
  if (reactor->number == 0) {
    uint64_t tier_time = ps_tier_next_time(core->tier);
    atomic_store_explicit(&core->timer_ns, tier_time < time ? tier_time : time,
                          memory_order_relaxed);
  } else if (time < atomic_load_explicit(&core->timer_ns, memory_order_relaxed)) {
    atomic_store_explicit(&core->timer_ns, time, memory_order_relaxed);
    reactor->must_signal |= 1;
  }
}

static bool is_time(const struct reactor *reactor) {
  if (reactor->number != 0) return false;
  return atomic_load_explicit(&reactor->core->timer_ns, memory_order_relaxed) <= reactor->now_ns;
}

/* Move all that has changed to where it belongs. */
static void move(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  core_lock(core);
  if (reactor->number == 0 && ps_hints_next_time(core->hints) <= reactor->now_ns)
    ps_hints_tick(core->hints, reactor->now_ns);
  move_orders(reactor);
  move_tier(reactor);
  move_hints(reactor);
  keep_time(reactor);
  move_facts(reactor);
  core_unlock(core);
}

/* Have a piece of a job made ready, and make operations of it. False when there is none to start
 * now, or (`has_more`) no operations for it. */
static bool start_piece(struct reactor *reactor, struct volume *volume, bool *has_more) {
  struct ps_core *core = reactor->core;
  struct ps_sched_job *job = ps_sched_next_job(volume->sched, reactor->now_ns);
  *has_more = job != NULL;
  if (job == NULL) return false;
  bool is_guess = job->sched_class == PS_SCHED_SPECULATIVE;
  if (!op_may_fill(core, is_guess ? PS_TIER_SPECULATIVE : PS_TIER_DATED)) return false;
  if (job->owner == PS_JOB_OF_ORDERS)
    ps_orders_start_job(core->orders, reactor->now_ns, job);
  else
    ps_hints_start_job(core->hints, reactor->now_ns, job);
  move_tier(reactor);
  return true;
}

/* Pop what is to be started now, up to a bound, and settle when to look again. */
static uint32_t pop_batch(struct reactor *reactor, struct volume *volume, struct media_op **batch) {
  uint32_t count = 0, pieces = 0;
  bool has_more = true;
  atomic_store_explicit(&volume->is_wanted, false, memory_order_relaxed);
  while (count < STARTS) {
    struct ps_sched_item *item = ps_sched_pop(volume->sched, reactor->now_ns);
    if (item != NULL) {
      batch[count++] = op_popped(item);
      continue;
    }
    if (pieces == PIECES || !start_piece(reactor, volume, &has_more)) break;
    pieces++;
  }
  if (pieces > 0) {
    move_hints(reactor);
    move_orders(reactor);
    keep_time(reactor);
    move_facts(reactor);
  }
  if (has_more && count > 0) {
    volume_want(reactor, volume);
  } else if (has_more) { /* no operation is free, or nothing came of the pieces */
    volume->look_ns = reactor->now_ns + MOMENT_NS;
  } else {
    volume->look_ns = ps_sched_next_time(volume->sched, reactor->now_ns);
  }
  return count;
}

/* ---- without the lock ---- */

static void volume_start_ops(struct reactor *reactor, struct volume *volume) {
  struct media_op *batch[STARTS];
  assert(volume->reactor == reactor && volume->is_started);
  core_lock(reactor->core);
  uint32_t count = pop_batch(reactor, volume, batch);
  core_unlock(reactor->core);
  for (uint32_t i = 0; i < count; i++) op_submit(batch[i]);
  if (count > 0) ps_media_kick(volume->media);
}

/* Volumes that want it, and those whose time has come. */
static void start_ops(struct reactor *reactor) {
  (void)atomic_exchange_explicit(&reactor->has_wanted, false, memory_order_acquire);
  reactor->look_ns = UINT64_MAX;
  reactor_tell_time(reactor); /* the schedulers measure how long their medium takes */
  for (uint32_t i = 0; i < reactor->volume_count; i++) {
    struct volume *volume = reactor->volumes[i];
    bool is_wanted = atomic_load_explicit(&volume->is_wanted, memory_order_relaxed);
    if (is_wanted || volume->look_ns <= reactor->now_ns) volume_start_ops(reactor, volume);
    if (volume->look_ns < reactor->look_ns) reactor->look_ns = volume->look_ns;
  }
}

/* Whether a volume of the reactor wants it to look; in its thread. */
bool pump_is_wanted(const struct reactor *reactor) {
  return atomic_load_explicit(&reactor->has_wanted, memory_order_acquire);
}

/* Whether the model has ordered something; of the reactor that takes it. Costs a load or two. */
bool pump_has_orders(const struct reactor *reactor) {
  assert(reactor != NULL);
  const struct ps_core *core = reactor->core;
  return reactor->number == 0 && core->orders != NULL && ps_orders_waiting(core->orders);
}

/* When the pump has something to do although nobody said so. */
uint64_t pump_next_time(const struct reactor *reactor) {
  uint64_t time = reactor->look_ns;
  if (reactor->number != 0) return time;
  uint64_t timer_ns = atomic_load_explicit(&reactor->core->timer_ns, memory_order_relaxed);
  return timer_ns < time ? timer_ns : time;
}

void pump(struct reactor *reactor) {
  bool must_move = reactor->tier_changed || is_time(reactor);
  reactor->tier_changed = false;
  if (must_move) move(reactor);
  if (pump_is_wanted(reactor) || reactor->look_ns <= reactor->now_ns) start_ops(reactor);
  signal_others(reactor);
}

/* The reactors, the control thread and the model, that were given something while the lock was
 * held. */
void signal_others(struct reactor *reactor) {
  if (reactor->must_wake_control) {
    reactor->must_wake_control = false;
    notice_wake(reactor->core);
  }
  if (reactor->must_wake_model) {
    reactor->must_wake_model = false;
    orders_wake_model(reactor->core);
  }
  while (reactor->must_signal != 0) {
    uint32_t number = (uint32_t)__builtin_ctzll(reactor->must_signal);
    reactor->must_signal &= reactor->must_signal - 1;
    mailbox_signal(&reactor->core->reactors[number].mailbox);
  }
}
