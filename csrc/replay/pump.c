/* Between the tier, the hints, the orders, the scheduler and the flash; see reactor/pump.c. */
#include "internal.h"

enum {
  STARTS = 32,         /* requests that are started in one go */
  PIECES = 16,         /* pieces of jobs, likewise */
  MOMENT_NS = 1000000, /* when there was no room for more: look again then */
  ORDERS = 64          /* of the model, taken in one go */
};

/* What the tier wants done, and whom it wakes. */
static void move_tier(struct ps_replay *replay) {
  replay_op_promote(replay);
  replay_op_start_actions(replay);
  for (struct ps_tier_waiter *waiter; (waiter = ps_tier_next_woken(replay->tier)) != NULL;)
    replay_woken(replay, waiter);
}

/* Jobs that the hints have changed. Nobody is told of warm events. */
static void move_hints(struct ps_replay *replay) {
  while (ps_hints_next_volume(replay->hints) >= 0) replay->is_wanted = true;
  while (ps_hints_next_event(replay->hints) >= 0) continue;
}

bool replay_has_orders(const struct ps_replay *replay) {
  assert(replay != NULL);
  return replay->orders != NULL && ps_orders_waiting(replay->orders);
}

static void move_orders(struct ps_replay *replay) {
  if (replay->orders == NULL) return;
  bool is_due = ps_orders_next_time(replay->orders) <= replay->now_ns;
  if (is_due || replay_has_orders(replay))
    (void)ps_orders_take(replay->orders, replay->now_ns, ORDERS);
  while (ps_orders_next_volume(replay->orders) >= 0) replay->is_wanted = true;
}

static uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void keep_time(struct ps_replay *replay) {
  uint64_t time = sooner(ps_hints_next_time(replay->hints), ps_tier_next_time(replay->tier));
  if (replay->orders != NULL) time = sooner(time, ps_orders_next_time(replay->orders));
  replay->timer_ns = time;
}

static void move(struct ps_replay *replay) {
  if (ps_hints_next_time(replay->hints) <= replay->now_ns)
    ps_hints_tick(replay->hints, replay->now_ns);
  move_orders(replay);
  move_tier(replay);
  move_hints(replay);
  keep_time(replay);
}

/* Have a piece of a job made ready, and make operations of it. False when there is none to start
 * now, or (`has_more`) no operations for it. */
static bool start_piece(struct ps_replay *replay, bool *has_more) {
  struct ps_sched_job *job = ps_sched_next_job(replay->sched, replay->now_ns);
  *has_more = job != NULL;
  if (job == NULL) return false;
  bool is_guess = job->sched_class == PS_SCHED_SPECULATIVE;
  if (!replay_op_may_fill(replay, is_guess ? PS_TIER_SPECULATIVE : PS_TIER_DATED)) return false;
  if (job->owner == PS_JOB_OF_ORDERS) {
    ps_orders_start_job(replay->orders, replay->now_ns, job);
  } else {
    ps_hints_start_job(replay->hints, replay->now_ns, job);
  }
  move_tier(replay);
  return true;
}

/* Start what the scheduler says, up to a bound, and settle when to look again. */
static void start_ops(struct ps_replay *replay) {
  uint32_t count = 0, pieces = 0;
  bool has_more = true;
  replay->is_wanted = false;
  while (count < STARTS) {
    struct ps_sched_item *item = ps_sched_pop(replay->sched, replay->now_ns);
    if (item != NULL) {
      replay_op_submit(replay, item);
      count++;
      continue;
    }
    if (pieces == PIECES || !start_piece(replay, &has_more)) break;
    pieces++;
  }
  if (pieces > 0) {
    move_hints(replay);
    move_orders(replay);
    keep_time(replay);
  }
  if (has_more && count > 0) {
    replay->is_wanted = true;
  } else if (has_more) { /* no operation is free, or nothing came of the pieces */
    replay->look_ns = replay->now_ns + MOMENT_NS;
  } else {
    replay->look_ns = ps_sched_next_time(replay->sched, replay->now_ns);
  }
}

uint64_t replay_pump_time(const struct ps_replay *replay) {
  assert(replay != NULL);
  return sooner(replay->look_ns, replay->timer_ns);
}

void replay_pump(struct ps_replay *replay) {
  assert(replay != NULL);
  bool is_time = replay->timer_ns <= replay->now_ns;
  bool must_move = replay->tier_changed || is_time || replay_has_orders(replay);
  replay->tier_changed = false;
  if (must_move) move(replay);
  if (replay->is_wanted || replay->look_ns <= replay->now_ns) start_ops(replay);
}
