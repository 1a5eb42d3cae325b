/* Events as commands: what the reactor does with Reads, Writes and batches of hints. The host takes
 * what it is sent at once: a frame is let go when the last byte is there.
 */
#include <stdlib.h>

#include "internal.h"

enum { BLOCK_COMMANDS = 4096, NO_MAILBOX = PAX_MAILBOXES, PRIORITY_NORMAL = 1 };

struct command_block {
  struct command_block *next;
  struct command commands[BLOCK_COMMANDS];
};

enum { STAGE_RESERVE, STAGE_FRAME, STAGE_PUBLISH, STAGE_SETTLE };

/* ---- the pool ---- */

/* A simulation has as many commands under way as its events want, where a live target has as many
 * as its queues are long: this is the one place that takes memory while it runs. */
static void grow(struct ps_replay *replay) {
  struct command_block *block = malloc(sizeof *block);
  if (block == NULL) abort();
  block->next = replay->blocks;
  replay->blocks = block;
  for (uint32_t i = BLOCK_COMMANDS; i > 0; i--) {
    block->commands[i - 1].next_command = replay->free_commands;
    replay->free_commands = &block->commands[i - 1];
  }
}

static struct command *take(struct ps_replay *replay) {
  if (replay->free_commands == NULL) grow(replay);
  struct command *command = replay->free_commands;
  replay->free_commands = command->next_command;
  replay->pending++;
  return command;
}

static void give(struct ps_replay *replay, struct command *command) {
  assert(replay->pending > 0 && !command->is_ready);
  command->next_command = replay->free_commands;
  replay->free_commands = command;
  replay->pending--;
}

void replay_free_commands(struct ps_replay *replay) {
  assert(replay != NULL);
  while (replay->blocks != NULL) {
    struct command_block *block = replay->blocks;
    replay->blocks = block->next;
    free(block);
  }
}

/* ---- tasks ---- */

static void make_ready(struct ps_replay *replay, struct command *command) {
  if (command->is_ready) return;
  command->is_ready = true;
  command->next_command = NULL;
  if (replay->tasks.last == NULL) {
    replay->tasks.first = command;
  } else {
    replay->tasks.last->next_command = command;
  }
  replay->tasks.last = command;
}

void replay_woken(struct ps_replay *replay, struct ps_tier_waiter *waiter) {
  assert(replay != NULL && waiter != NULL);
  make_ready(replay, CONTAINER(waiter, struct command, waiter));
}

/* ---- reads ---- */

static void end(struct ps_replay *replay, struct command *command) {
  assert(command->state != PS_REPLAY_PENDING);
  *command->result = (struct ps_replay_result){.ready_ns = replay->now_ns, .state = command->state};
  give(replay, command);
}

/* What there was when the read came: seen when it first asks for its bytes, or here when it has to
 * wait for its turn before. */
static void note_arrival(struct ps_replay *replay, struct command *command) {
  uint64_t warm_bytes, coming_bytes;
  const struct ps_hints_read *read = &command->read;
  if (command->state != PS_REPLAY_PENDING) return;
  ps_tier_residency(replay->tier, read->volume, read->offset, read->length, &warm_bytes,
                    &coming_bytes);
  command->state = warm_bytes == read->length ? PS_REPLAY_HIT
                   : coming_bytes > 0         ? PS_REPLAY_LATE
                                              : PS_REPLAY_MISS;
}

static void tell_read(struct ps_replay *replay, const struct command *command) {
  ps_hints_read_seen(replay->hints, &command->scope, &command->read, command->arrived_ns);
}

static void end_read(struct ps_replay *replay, struct command *command, bool failed) {
  ps_tier_unreserve(replay->tier, 1);
  if (failed) command->state = PS_REPLAY_REFUSED;
  if (!command->has_missed) {
    if (!failed) command->read.flags |= PS_FACT_HIT;
    tell_read(replay, command);
  }
  ps_hints_read_ended(replay->hints, replay->now_ns, &command->scope, &command->read,
                      command->arrived_ns, failed);
  end(replay, command);
}

static uint64_t late_hits(const struct ps_replay *replay) {
  struct ps_tier_stats stats;
  ps_tier_get_stats(replay->tier, &stats);
  return stats.late_hits;
}

static void run_read(struct ps_replay *replay, struct command *command) {
  struct ps_tier *tier = replay->tier;
  const struct ps_hints_read *read = &command->read;
  uint32_t frame;
  if (command->stage == STAGE_RESERVE) {
    if (ps_tier_reserve(tier, 1, &command->waiter) != PS_TIER_DONE) {
      note_arrival(replay, command);
      return;
    }
    command->stage = STAGE_FRAME;
  }
  uint64_t late_before = command->has_missed ? 0 : late_hits(replay);
  int status = ps_tier_read(tier, replay->now_ns, read->volume, read->offset,
                            (uint32_t)read->length, &command->access, &command->waiter, &frame);
  if (status == PS_TIER_DONE) {
    ps_tier_release(tier, replay->now_ns, frame);
    if (command->state == PS_REPLAY_PENDING) command->state = PS_REPLAY_HIT;
  }
  if (status != PS_TIER_WAIT) {
    end_read(replay, command, status != PS_TIER_DONE);
    return;
  }
  if (command->has_missed) return;
  command->has_missed = true;
  tell_read(replay, command);
  bool is_late = late_hits(replay) != late_before;
  if (command->state == PS_REPLAY_PENDING)
    command->state = is_late ? PS_REPLAY_LATE : PS_REPLAY_MISS;
}

/* What is dated has its own deadline and priority; see reactor/parse.c. */
static void begin_read(struct ps_replay *replay, struct command *command,
                       const struct ps_replay_event *event) {
  struct ps_hints_read *read = &command->read;
  struct ps_tier_access *access = &command->access;
  read->flags = (uint8_t)(event->flags & ~(PS_FACT_HIT | PS_FACT_UNREAD));
  access->once = (event->flags & PS_FACT_ONCE) != 0;
  if ((event->flags & PS_FACT_DATED) != 0) {
    read->session = event->session;
    read->deadline_us = event->deadline_us;
    access->urgency = PS_TIER_DATED;
    access->priority = event->priority % PAX_PRIORITIES;
    access->deadline_ns = command->arrived_ns + (uint64_t)event->deadline_us * 1000;
  }
  read->priority = access->priority;
  ps_hints_touch(replay->hints, replay->now_ns, &command->scope, read);
  run_read(replay, command);
}

/* ---- writes ---- */

static int step_write(struct ps_replay *replay, struct command *command) {
  struct ps_tier *tier = replay->tier;
  const struct ps_hints_read *range = &command->read;
  struct ps_tier_waiter *waiter = &command->waiter;
  switch (command->stage) {
    case STAGE_RESERVE:
      return ps_tier_reserve(tier, 1, waiter);
    case STAGE_FRAME:
      return ps_tier_fresh(tier, replay->now_ns, waiter, &command->frame);
    case STAGE_PUBLISH:
      return ps_tier_publish(tier, replay->now_ns, range->volume, range->offset,
                             (uint32_t)range->length, command->scope.tenant, command->frame,
                             waiter);
    default:
      assert(command->stage == STAGE_SETTLE);
      return ps_tier_flush(tier, replay->now_ns, range->volume, range->offset, range->length, true,
                           waiter);
  }
}

/* Durable at once, so that how much is dirty says nothing about who has a frame. */
static void run_write(struct ps_replay *replay, struct command *command) {
  const struct ps_hints_read *range = &command->read;
  while (command->stage <= STAGE_SETTLE) {
    int status = step_write(replay, command);
    if (status == PS_TIER_WAIT) return;
    assert(status == PS_TIER_DONE); /* it is in range, and no medium fails here */
    if (command->stage == STAGE_PUBLISH) {
      ps_hints_written(replay->hints, replay->now_ns, &command->scope, range->volume, range->offset,
                       range->length, false);
    }
    command->stage++;
  }
  ps_tier_unreserve(replay->tier, 1);
  command->state = PS_REPLAY_WRITTEN;
  end(replay, command);
}

/* ---- batches ---- */

/* Some records in each turn, and one turn in each pass for all batches together. */
static void run_batch(struct ps_replay *replay, struct command *command) {
  if (replay->took_hints) {
    make_ready(replay, command);
    return;
  }
  replay->took_hints = true;
  if (!ps_hints_submit_some(replay->hints, replay->now_ns, &command->scope, NO_MAILBOX,
                            command->batch, command->batch_size, PS_HINTS_TURN_RECORDS,
                            &command->progress)) {
    make_ready(replay, command);
    return;
  }
  bool is_good = command->progress.result.fault == PAX_FAULT_NONE;
  command->state = is_good ? PS_REPLAY_TAKEN : PS_REPLAY_REFUSED;
  end(replay, command);
}

/* ---- beginning and going on ---- */

static void run(struct ps_replay *replay, struct command *command) {
  replay->tier_changed = true;
  if (command->op == PS_REPLAY_READ) {
    run_read(replay, command);
  } else if (command->op == PS_REPLAY_WRITE) {
    run_write(replay, command);
  } else {
    run_batch(replay, command);
  }
}

/* Run what was woken; what these wake in turn waits for the next pass. */
void replay_run_tasks(struct ps_replay *replay) {
  assert(replay != NULL);
  struct command *command = replay->tasks.first;
  replay->tasks = (struct command_list){NULL, NULL};
  for (struct command *next; command != NULL; command = next) {
    next = command->next_command;
    command->is_ready = false;
    run(replay, command);
  }
}

static bool is_in_range(const struct ps_replay *replay, const struct ps_replay_event *event) {
  const struct ps_replay_config *config = &replay->config;
  const struct stream *stream = &replay->stream;
  if (event->tenant >= config->tenant_count) return false;
  if (event->op == PS_REPLAY_BATCH) {
    return event->offset <= stream->data_bytes &&
           event->length <= stream->data_bytes - event->offset;
  }
  if (event->op != PS_REPLAY_READ && event->op != PS_REPLAY_WRITE) return false;
  if (event->length == 0 || event->offset >= config->volume_bytes) return false;
  if (event->length > config->volume_bytes - event->offset) return false;
  uint64_t mask = config->slot_size - 1;
  if ((event->offset & mask) + event->length > config->slot_size) return false;
  return ((event->offset | event->length) & (config->block_size - 1)) == 0;
}

void replay_begin(struct ps_replay *replay, const struct ps_replay_event *event,
                  struct ps_replay_result *result) {
  assert(replay != NULL && event != NULL && result != NULL);
  *result = (struct ps_replay_result){.ready_ns = replay->now_ns, .state = PS_REPLAY_REFUSED};
  if (!is_in_range(replay, event)) return;
  struct command *command = take(replay);
  *result = (struct ps_replay_result){.state = PS_REPLAY_PENDING};
  *command = (struct command){.result = result,
                              .scope = {.tenant = event->tenant, .queue = event->queue},
                              .read = {.offset = event->offset,
                                       .length = event->length,
                                       .volume_bytes = replay->config.volume_bytes},
                              .access = {.deadline_ns = UINT64_MAX,
                                         .tenant = event->tenant,
                                         .urgency = PS_TIER_DEMAND,
                                         .priority = PRIORITY_NORMAL},
                              .arrived_ns = event->time_ns,
                              .op = event->op};
  if (event->op == PS_REPLAY_BATCH) {
    command->batch = replay->stream.data + event->offset;
    command->batch_size = event->length;
  }
  replay->tier_changed = true;
  if (event->op == PS_REPLAY_READ) {
    begin_read(replay, command, event);
  } else {
    run(replay, command);
  }
}
