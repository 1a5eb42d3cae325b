/* Writing back: when dirty extents are written and volumes synced, and how failures are retried.
 *
 * A pass writes the units of an extent that are dirty when it begins, one contiguous run after
 * another (`flushing` holds what is left of the pass). What is changed meanwhile is dirty again
 * and goes with a later pass, unless its run has not begun yet.
 */
#include "internal.h"

/* ---- a pass ---- */

static void issue_run(struct ps_tier *tier, uint32_t number, struct ps_tier_action *action) {
  struct op *op = &tier->ops[number];
  struct extent *extent = &tier->extents[op->extent];
  assert(extent->flushing != 0 && extent->frame != NONE && op->state == OP_PENDING);
  op->units = lowest_run(extent->flushing);
  op->frame = extent->frame;
  op->state = OP_ISSUED;
  tier_hold(tier, op->frame);
  extent->dirty = (uint16_t)(extent->dirty & ~op->units); /* what is there now is written */
  tier->stats.writebacks++;
  tier_settle(tier, op->extent);
  tier_describe(tier, number, action);
}

static void start_pass(struct ps_tier *tier, uint32_t index, bool is_wanted,
                       struct ps_tier_action *action) {
  struct extent *extent = &tier->extents[index];
  uint32_t number = tier->write_free;
  assert(number != NONE && extent->write == NO_WRITE && extent->dirty != 0);
  struct op *op = &tier->ops[number];
  tier->write_free = op->next;
  tier->writes_in_use++;
  op->kind = PS_TIER_WRITE;
  op->state = OP_PENDING;
  op->urgency = is_wanted ? PS_TIER_DEMAND : PS_TIER_SPECULATIVE;
  op->tenant = extent->tenant;
  op->extent = index;
  op->volume = extent->volume;
  op->sequence = extent->dirty_sequence;
  volume_of(tier, extent)->ops++;
  extent->write = (uint8_t)(number - write_base(tier));
  extent->flushing = extent->dirty;
  extent->dirty = 0;
  issue_run(tier, number, action);
}

static void end_pass(struct ps_tier *tier, uint32_t number) {
  struct op *op = &tier->ops[number];
  struct extent *extent = &tier->extents[op->extent];
  struct volume *volume = &tier->volumes[op->volume];
  assert(extent->flushing == 0 && tier->writes_in_use > 0 && volume->ops > 0);
  extent->write = NO_WRITE;
  op->state = OP_FREE;
  op->next = tier->write_free;
  tier->write_free = number;
  tier->writes_in_use--;
  volume->ops--;
}

/* ---- failure and success ---- */

static void note_failure(struct ps_tier *tier, uint32_t number, int32_t error) {
  struct volume *volume = &tier->volumes[number];
  uint64_t first = tier->config.retry_ns;
  assert(error > 0);
  volume->error = error;
  if (tier->now_ns >= volume->retry_at_ns) {
    uint64_t doubled = volume->backoff_ns == 0 ? first : volume->backoff_ns * 2;
    volume->backoff_ns = doubled < first * BACKOFF_MOST ? doubled : first * BACKOFF_MOST;
    volume->retry_at_ns = tier->now_ns + volume->backoff_ns;
  }
  /* Each flush hears of it once; the next one asks for another try at once. */
  volume->wanted_sequence = 0;
  tier_wake_all(tier, &volume->flushes, error);
  struct ps_tier_waiter *waiter = tier->dirty_queue.first;
  while (waiter != NULL) {
    struct ps_tier_waiter *next = waiter->next;
    if (waiter->volume == number) {
      waiter->error = error;
      tier_wake(tier, waiter, TOLD_ERROR);
    }
    waiter = next;
  }
}

static void note_success(struct volume *volume) {
  if (volume->sync_failed) return;
  volume->error = 0;
  if (volume->failed.length == 0) {
    volume->backoff_ns = 0;
    volume->retry_at_ns = 0;
  }
}

void tier_make_failed(struct ps_tier *tier, uint32_t index, uint16_t units, uint64_t sequence) {
  struct extent *extent = &tier->extents[index];
  if (units == 0) return;
  if (extent->dirty == 0) extent->dirty_since = tier_ticks(tier->now_ns);
  if (extent->dirty == 0 || sequence < extent->dirty_sequence) extent->dirty_sequence = sequence;
  extent->dirty |= units;
  bool is_urgent = extent->in_dirty == DIRTY_URGENT; /* a flush waits for another change of it */
  tier_list_dirty(tier, index, is_urgent ? DIRTY_URGENT : DIRTY_FAILED);
}

static void end_run(struct ps_tier *tier, struct op *op) {
  struct extent *extent = &tier->extents[op->extent];
  struct volume *volume = &tier->volumes[op->volume];
  uint16_t written = op->units & extent->flushing; /* the rest was dropped meanwhile */
  extent->flushing = (uint16_t)(extent->flushing & ~written);
  if (written != 0) {
    tier_unplace(tier, op->extent);
    extent->unsynced |= written;
    extent->sync_stamp = (uint32_t)volume->sync_started;
  }
  note_success(volume);
}

void tier_end_write(struct ps_tier *tier, uint32_t number, int32_t error) {
  struct op *op = &tier->ops[number];
  uint32_t index = op->extent;
  uint32_t volume = op->volume;
  struct extent *extent = &tier->extents[index];
  assert(op->kind == PS_TIER_WRITE && op->state == OP_ISSUED);
  op->state = OP_PENDING;
  if (error == 0) {
    end_run(tier, op);
  } else if (extent->flushing != 0) {
    tier->stats.writeback_errors++;
    tier_make_failed(tier, index, extent->flushing, op->sequence);
    extent->flushing = 0;
    note_failure(tier, volume, error);
  } else {
    error = 0; /* nobody has an interest in dropped bytes */
  }
  op->units = 0;
  tier_unhold(tier, op->frame);
  tier_wake_all(tier, &op->waiters, 0);
  if (extent->flushing != 0) {
    tier_list_append(&tier->next_runs, number);
    tier_settle(tier, index);
    return;
  }
  end_pass(tier, number);
  tier_wake_ranges(tier, index, error);
  tier_settle(tier, index);
  tier_advance_flushes(tier, volume);
}

/* ---- what to write next ---- */

/* Somebody waits for what writing back frees, or too much is dirty. */
static bool is_pressed(const struct ps_tier *tier) {
  if (tier->frame_queue.first != NULL || tier->dirty_queue.first != NULL) return true;
  return tier->frames_unclean > tier->config.dirty_limit / 2;
}

static uint64_t age_time(const struct ps_tier *tier, const struct extent *extent) {
  uint64_t since = tier_tick_ns(tier, extent->dirty_since);
  uint64_t age = tier->config.writeback_age_ns;
  return age < UINT64_MAX - since ? since + age : UINT64_MAX;
}

/* First of the list that a write of may begin. At most WRITE_OPS are passed over for the writes
 * that they have under way, and more only while the caller clears a range. */
static uint32_t first_startable(const struct ps_tier *tier, const struct list *list) {
  uint32_t index = list->first;
  while (index != NONE) {
    const struct extent *extent = &tier->extents[index];
    if (extent->write == NO_WRITE && !tier_is_fenced(tier, extent)) break;
    index = tier_list_next(list, index);
  }
  return index;
}

static uint32_t pick_write(const struct ps_tier *tier, const struct volume *volume) {
  uint32_t index = first_startable(tier, &volume->urgent);
  if (index != NONE) return index;
  uint32_t aged = first_startable(tier, &volume->aged);
  if (aged != NONE && tier->extents[aged].dirty_sequence <= volume->wanted_sequence) return aged;
  if (tier->now_ns < volume->retry_at_ns) {
    if (volume->error != 0) return NONE;
  } else {
    index = first_startable(tier, &volume->failed);
    if (index != NONE) return index;
  }
  if (aged == NONE) return NONE;
  if (is_pressed(tier)) return aged;
  return tier->now_ns >= age_time(tier, &tier->extents[aged]) ? aged : NONE;
}

static bool is_idle(const struct volume *volume) {
  return volume->aged.length + volume->urgent.length + volume->failed.length == 0 &&
         volume->unsynced.length == 0 && volume->syncs.first == NULL;
}

/* Volumes take turns. */
static void turn(struct ps_tier *tier, uint32_t number) {
  tier_list_remove(&tier->active, number);
  tier_list_append(&tier->active, number);
}

bool tier_issue_write(struct ps_tier *tier, struct ps_tier_action *action) {
  while (tier->next_runs.first != NONE) {
    uint32_t number = tier->next_runs.first;
    uint32_t index = tier->ops[number].extent;
    tier_list_remove(&tier->next_runs, number);
    if (tier->extents[index].flushing != 0) {
      issue_run(tier, number, action);
      return true;
    }
    end_pass(tier, number); /* the rest of the pass was dropped */
    uint32_t volume = tier->extents[index].volume;
    tier_wake_ranges(tier, index, 0);
    tier_settle(tier, index);
    tier_advance_flushes(tier, volume);
  }
  if (tier->writes_in_use == WRITE_OPS) return false;
  for (uint32_t turns = tier->active.length; turns > 0; turns--) {
    uint32_t number = tier->active.first;
    struct volume *volume = &tier->volumes[number];
    uint32_t index = pick_write(tier, volume);
    turn(tier, number);
    if (index == NONE) continue;
    bool is_wanted = volume->flushes.first != NULL || tier->frame_queue.first != NULL ||
                     tier->dirty_queue.first != NULL ||
                     tier->extents[index].in_dirty == DIRTY_URGENT;
    start_pass(tier, index, is_wanted, action);
    return true;
  }
  return false;
}

/* ---- syncs ---- */

static uint64_t sync_time(const struct ps_tier *tier, const struct volume *volume) {
  uint64_t since = volume->unsynced_since_ns;
  uint64_t age = tier->config.unsynced_age_ns;
  return age < UINT64_MAX - since ? since + age : UINT64_MAX;
}

static bool wants_sync(const struct ps_tier *tier, const struct volume *volume) {
  if (volume->sync_under_way) return false;
  if (volume->sync_wanted > volume->sync_started) return true;
  if (volume->unsynced.length == 0) return false;
  if (tier->frame_queue.first != NULL || tier->dirty_queue.first != NULL) return true;
  if (volume->unsynced.length > tier->config.dirty_limit / 4) return true;
  return tier->now_ns >= sync_time(tier, volume);
}

bool tier_issue_sync(struct ps_tier *tier, struct ps_tier_action *action) {
  for (uint32_t turns = tier->active.length; turns > 0; turns--) {
    uint32_t number = tier->active.first;
    struct volume *volume = &tier->volumes[number];
    if (is_idle(volume)) {
      tier_list_remove(&tier->active, number);
      volume->is_active = false;
      continue;
    }
    turn(tier, number);
    if (!wants_sync(tier, volume)) continue;
    uint32_t op_number = write_base(tier) + WRITE_OPS + number;
    struct op *op = &tier->ops[op_number];
    assert(op->state == OP_FREE);
    op->kind = PS_TIER_SYNC;
    op->state = OP_ISSUED;
    op->volume = number;
    op->urgency = volume->syncs.first != NULL ? PS_TIER_DEMAND : PS_TIER_SPECULATIVE;
    volume->ops++;
    volume->sync_under_way = true;
    volume->sync_started++;
    tier->stats.syncs++;
    tier_describe(tier, op_number, action);
    return true;
  }
  return false;
}

static void sync_succeeded(struct ps_tier *tier, struct volume *volume) {
  uint32_t index;
  volume->sync_completed = volume->sync_started;
  if (volume->direct_stamp != (uint32_t)volume->sync_started) volume->wrote_directly = false;
  while ((index = volume->unsynced.first) != NONE) {
    struct extent *extent = &tier->extents[index];
    if (extent->sync_stamp == (uint32_t)volume->sync_started) break; /* written since it began */
    extent->unsynced = 0;
    tier_settle(tier, index);
  }
  volume->unsynced_since_ns = tier->now_ns;
  volume->sync_failed = false;
  note_success(volume);
  struct ps_tier_waiter *waiter = volume->syncs.first;
  while (waiter != NULL) {
    struct ps_tier_waiter *next = waiter->next;
    if (waiter->sequence <= volume->sync_completed) tier_wake(tier, waiter, TOLD_DONE);
    waiter = next;
  }
}

/* Nothing is known of what was written since the last good sync: all of it is dirty again. */
static void sync_failed(struct ps_tier *tier, uint32_t number, int32_t error) {
  struct volume *volume = &tier->volumes[number];
  uint32_t index;
  tier->stats.sync_errors++;
  while ((index = volume->unsynced.first) != NONE) {
    struct extent *extent = &tier->extents[index];
    uint16_t units = extent->unsynced;
    tier_unplace(tier, index);
    extent->unsynced = 0;
    tier_make_failed(tier, index, units, 0);
    tier_settle(tier, index);
  }
  volume->sync_failed = true;
  volume->sync_wanted = volume->sync_started;
  note_failure(tier, number, error);
  tier_wake_all(tier, &volume->syncs, error);
}

void tier_end_sync(struct ps_tier *tier, uint32_t number, int32_t error) {
  struct op *op = &tier->ops[number];
  struct volume *volume = &tier->volumes[op->volume];
  assert(op->kind == PS_TIER_SYNC && op->state == OP_ISSUED && volume->sync_under_way);
  op->state = OP_FREE;
  volume->ops--;
  volume->sync_under_way = false;
  if (error == 0) {
    sync_succeeded(tier, volume);
  } else {
    sync_failed(tier, op->volume, error);
  }
}

/* ---- time ---- */

uint64_t tier_writeback_time(const struct ps_tier *tier, const struct volume *volume) {
  uint64_t time = UINT64_MAX;
  bool blocked = volume->error != 0 && tier->now_ns < volume->retry_at_ns;
  if (!volume->sync_under_way && volume->unsynced.length > 0) {
    deadline_min(&time, sync_time(tier, volume));
  }
  if (tier->writes_in_use == WRITE_OPS) return time; /* an end comes first */
  uint32_t failed = first_startable(tier, &volume->failed);
  if (failed != NONE || blocked) deadline_min(&time, volume->retry_at_ns);
  uint32_t aged = first_startable(tier, &volume->aged);
  if (aged != NONE && !blocked) deadline_min(&time, age_time(tier, &tier->extents[aged]));
  return time;
}
