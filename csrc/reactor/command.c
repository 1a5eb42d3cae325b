/* I/O commands from capsule to response: start, run (again after each wait), answer, end. */
#include <assert.h>
#include <string.h>

#include "internal.h"

static void wants_run(struct command *command) {
  task_ready(command->connection->reactor, &command->task);
}

static void connection_count_io(struct connection *connection, int32_t change) {
  connection->io_in_flight += (uint32_t)change;
  atomic_store_explicit(&connection->in_flight, connection->io_in_flight, memory_order_relaxed);
}

/* Line by line, the last of which overlaps: for as little as it is, the instruction that clears
 * memory of any size takes longer to begin than all of this. */
static void empty(struct command *command, bool is_read) {
  enum { LINE = 64 };
  size_t at = offsetof(struct command, reserved);
  size_t end = is_read ? offsetof(struct command, cursor) : sizeof *command;
  assert(end - at >= LINE);
  for (; at + LINE < end; at += LINE) memset((uint8_t *)command + at, 0, LINE);
  memset((uint8_t *)command + end - LINE, 0, LINE);
}

static struct command *command_take(struct connection *connection,
                                    const struct ps_engine_event *event) {
  struct command *command = command_at(connection, event->slot);
  if (command->connection == NULL) command_prepare(connection, event->slot); /* its first use */
  assert(!command->is_used && command->connection == connection && command->slot == event->slot);
  empty(command, event->entry[0] == PS_OP_READ);
  command->task = (struct task){.waiter.owner = connection->reactor->number, .run = command_run};
  command->is_used = true;
  command->started_ns = connection->reactor->now_ns;
  memcpy(command->sqe, event->entry, sizeof command->sqe);
  command->in_capsule = event->data_length > 0;
  connection_count_io(connection, 1);
  return command;
}

static void count_latency(uint64_t *bins, uint64_t time_ns) {
  uint32_t bin = (uint32_t)time_ns;
  if (time_ns >= 4) {
    uint32_t octave = 63u - (uint32_t)__builtin_clzll(time_ns);
    bin = 4 * (octave - 1) + (uint32_t)(time_ns >> (octave - 2) & 3);
  }
  bins[bin < PS_LATENCY_BINS ? bin : PS_LATENCY_BINS - 1]++;
}

static void count_done(struct command *command) {
  struct volume *volume = command->volume;
  if (volume == NULL || command->status != 0) return;
  struct ps_volume_stats *stats = &volume->stats;
  uint64_t elapsed_ns = command->connection->reactor->now_ns - command->started_ns;
  switch (command->sqe[0]) {
    case PS_OP_READ:
    case PAX_OPCODE_DATED_READ:
      stats->reads++;
      stats->read_bytes += command->length;
      stats->read_ns += elapsed_ns;
      count_latency(volume->read_latency, elapsed_ns);
      break;
    case PS_OP_WRITE:
      stats->writes++;
      stats->write_bytes += command->length;
      stats->write_ns += elapsed_ns;
      count_latency(volume->write_latency, elapsed_ns);
      break;
    case PS_OP_FLUSH:
      stats->flushes++;
      break;
    case PS_OP_COMPARE:
      stats->compares++;
      stats->compare_bytes += command->length;
      break;
    case PS_OP_WRITE_ZEROES:
      stats->zeroes++;
      break;
    case PS_OP_DATASET_MANAGEMENT:
      stats->discards++;
      break;
    case PS_OP_VERIFY:
      stats->verifies++;
      stats->verify_bytes += command->gate_length;
      break;
    case PS_OP_COPY:
      stats->copies++;
      stats->copy_bytes += command->length;
      break;
    default:
      break;
  }
}

/* A media error is told to the control plane, for the error log (SMART and log page 01h). */
static void note_error(struct command *command) {
  uint16_t code = command->status & 0x7ff;
  if (code != PS_SC_READ_ERROR && code != PS_SC_WRITE_FAULT && code != PS_SC_CAPACITY) return;
  struct connection *connection = command->connection;
  struct ps_notice notice = {.kind = PS_NOTICE_IO_ERROR,
                             .connection = connection->id,
                             .nsid = command->nsid,
                             .status = command->status,
                             .qid = (uint16_t)connection->queue.qid};
  if (command->volume != NULL) {
    command->volume->stats.errors++;
    notice.volume = command->volume->number;
    notice.lba = command->fail_offset >> command->volume->block_shift;
  }
  memcpy(notice.entry, command->sqe, sizeof notice.entry);
  notice_io_error(connection->reactor->core, &notice);
}

static bool sends_data(const struct command *command) {
  return command->sends_data && command->status == 0;
}

/* The command has its status: leave everything but what the response sends from. Lock held. */
static void conclude(struct command *command) {
  struct connection *connection = command->connection;
  struct ps_core *core = connection->reactor->core;
  end_clear(command, false);
  gate_leave(command);
  /* Also when it ends before its second has come (its data's digest was wrong). */
  if (connection->fused_first == command) {
    connection->fused_first = NULL;
    connection->fused_failed = command->status;
  }
  count_done(command);
  note_error(command);
  hint_read_ended(command);
  if (!sends_data(command)) drop_all(command);
  if (command->volume != NULL) command->volume->stats.in_flight--;
  if (command->entered_nsid != 0)
    namespace_leave(core, connection->queue.subsystem, command->entered_nsid);
}

static void respond(struct command *command) {
  struct connection *connection = command->connection;
  assert(!command->responded);
  uint32_t count = 0;
  if (sends_data(command))
    count = command->fresh_count > 0 ? fresh_iov(command) : pinned_iov(command);
  if (lacks_place(command)) {
    ps_engine_skip(connection->engine, command->slot);
    connection_resume(connection);
  }
  command->responded = true;
  command->host_ns = connection->reactor->now_ns;
  ps_engine_respond(connection->engine, command->slot, command->status, command->dw0, command->dw1,
                    command->iov, count, count > 0 ? command->length : 0);
  connection_wants_output(connection);
}

/* A second that will not come: the first ends alone (Base 2.0, 3.4.2). */
void break_pair(struct connection *connection) {
  struct command *first = connection->fused_first;
  connection->fused_first = NULL;
  if (first == NULL) return;
  first->status = PS_SC_MISSING_FUSED | PS_DNR;
  wants_run(first);
}

/* Join the second of a fused pair to its first: next to it in the queue, on the same range. */
static void join_pair(struct connection *connection, struct command *command) {
  uint8_t fuse = command->sqe[1] & 0x03;
  struct command *first = connection->fused_first;
  uint16_t first_failed = connection->fused_failed;
  connection->fused_failed = fuse == 1 ? command->status : 0;
  if (first != NULL && fuse == 2 && command->status == 0 && first->nsid == command->nsid &&
      first->offset == command->offset && first->length == command->length) {
    first->mate = command;
    command->mate = first;
    command->step = fused_write_step;
    connection->fused_first = NULL;
    return;
  }
  break_pair(connection);
  if (fuse == 2 && command->status == 0) {
    command->status = PS_SC_INVALID_FIELD | PS_DNR;
    if (first == NULL) command->status = PS_SC_MISSING_FUSED | PS_DNR;
    if (first_failed != 0) command->status = aborted_beside(first_failed);
  }
  if (fuse == 1 && command->status == 0) {
    connection->fused_first = command;
    command->host_ns = command->started_ns;
  }
}

/* A command capsule on an I/O queue. */
void command_start(struct connection *connection, const struct ps_engine_event *event) {
  assert(connection->is_bound && connection->queue.qid != 0);
  struct reactor *reactor = connection->reactor;
  struct command *command = command_take(connection, event);
  reactor_lock(reactor);
  command->status = command_parse(command, event);
  if (command->volume != NULL) command->volume->stats.in_flight++;
  if (command->status == 0 && command->step == read_step) hint_touch(command);
  join_pair(connection, command);
  command->at_hand = connection_data_at_hand(connection, event->data_length);
  command_run(reactor, &command->task);
  command->at_hand = NULL;
  reactor_unlock(reactor);
}

void receive_data(struct command *command, uint32_t iov_count, uint32_t length) {
  struct connection *connection = command->connection;
  command->asked_data = true;
  command->host_ns = connection->reactor->now_ns;
  ps_engine_take(connection->engine, command->slot, command->iov, iov_count, length);
  if (command->in_capsule)
    connection_resume(connection);
  else
    connection_wants_output(connection);
}

void command_data(struct connection *connection, const struct ps_engine_event *event) {
  struct command *command = command_at(connection, event->slot);
  assert(command->is_used && !command->has_data);
  command->has_data = true;
  command->digest_error = event->digest_error != 0;
  command_run(connection->reactor, &command->task);
}

/* The slot's last byte was handed to the socket, or will never be. */
static void command_free(struct command *command) {
  struct connection *connection = command->connection;
  if (command->pin_count > 0 || command->reserved > 0 || command->shared > 0) {
    struct reactor *reactor = connection->reactor;
    reactor_lock(reactor);
    drop_all(command);
    /* All that giving back does is to wake who waits for it; or a close waits for the last of it.
     */
    if (ps_tier_has_woken(reactor->core->tier) || reactor->core->removals > 0)
      reactor->tier_changed = true;
    reactor_unlock(reactor);
  }
  if (link_is_in(&command->task.ready)) list_remove(&command->task.ready);
  if (command->has_waited) mailbox_forget(&connection->reactor->mailbox, &command->task);
  command->is_used = false;
  connection_count_io(connection, -1);
}

/* End without an answer: the connection is gone. */
static void abandon(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  if (!command->responded) {
    reactor_lock(reactor);
    ps_tier_forget(reactor->core->tier, &command->task.waiter);
    if (command->mate != NULL) command->mate->mate = NULL;
    command->status = PS_SC_ABORT_REQUESTED;
    conclude(command);
    reactor_unlock(reactor);
    reactor->tier_changed = true;
  }
  command_free(command);
}

/* Whether media operations of its own are under way; they may end in another thread. */
static bool is_with_medium(const struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  reactor_lock(reactor);
  bool is = command->media_under_way > 0;
  reactor_unlock(reactor);
  return is;
}

static void orphan_run(struct command *command) {
  struct connection *connection = command->connection;
  if (is_with_medium(command)) return;
  assert(connection->orphans > 0);
  abandon(command);
  connection->orphans--;
  connection_finish(connection);
}

/* The volume has shrunk below the command's range since it was checked. Copy and fused pairs find
 * out piece by piece: the tier refuses what is beyond the end. */
static bool is_cut_off(const struct command *command) {
  if (command->volume == NULL || command->mate != NULL || command->sqe[0] == PS_OP_COPY)
    return false;
  return command->gate_length > 0 &&
         command->gate_offset + command->gate_length > command->volume->size;
}

/* Its data is not taken, so that what stands behind it is; the host may send it again. */
static enum step give_way(struct command *command) {
  command->status = PS_SC_TRANSIENT_TRANSPORT;
  return command->mate != NULL ? command->step(command) : STEP_DONE;
}

static enum step next_step(struct command *command) {
  if (command->status != 0) return STEP_DONE;
  enum step step = command->step(command);
  if (step == STEP_DONE) return step;
  command->has_waited = true;
  return command->connection->gives_way && lacks_place(command) ? give_way(command) : step;
}

void command_run(struct reactor *reactor, struct task *task) {
  struct command *command = CONTAINER(task, struct command, task);
  struct ps_core *core = reactor->core;
  assert(command->connection->reactor == reactor);
  /* A wake may come after the end, when two things woke it; steps take any number of wakes. */
  if (!command->is_used || command->responded) return;
  if (command->orphaned) {
    orphan_run(command);
    return;
  }
  reactor_lock(reactor);
  if (command->has_waited && command->status == 0 && is_cut_off(command))
    command->status = PS_SC_LBA_RANGE | PS_DNR;
  enum step step = next_step(command);
  if (step == STEP_DONE && command->media_under_way > 0) {
    command->has_waited = true;
    step = STEP_WAIT;
  }
  if (step == STEP_DONE) {
    if (command->has_waited) ps_tier_forget(core->tier, &command->task.waiter);
    conclude(command);
  }
  reactor->tier_changed = true;
  reactor_unlock(reactor);
  if (step == STEP_DONE) respond(command);
}

void command_sent(struct connection *connection, uint32_t slot) {
  struct command *command = command_at(connection, slot);
  assert(command->is_used && command->responded);
  command_free(command);
  if (connection->wants_quiet) connection_check_quiet(connection);
}

/* End with 0/07 what is queued or still receiving; false when it is with the medium (Base 2.0,
 * 5.1: Abort is best effort). */
bool command_abort(struct connection *connection, uint32_t slot) {
  struct command *command = command_at(connection, slot);
  if (!command->is_used || command->responded || command->committed) return false;
  if (command->mate != NULL) return false;
  command->status = PS_SC_ABORT_REQUESTED;
  command_run(connection->reactor, &command->task);
  return true;
}

/* An operation of its own on the medium has ended. The lock is held. */
void command_media_ended(struct reactor *reactor, struct command *command, int32_t error) {
  assert(command->media_under_way > 0);
  command->media_under_way--;
  if (error != 0) command->media_error = error;
  wake_task(reactor, &command->task);
}

/* The connection ends: nothing more will be sent. A command with media operations of its own stays
 * until these have ended. */
void command_end_all(struct connection *connection) {
  struct ps_core *core = connection->reactor->core;
  connection->fused_first = NULL;
  if (!is_io_queue(connection)) return;
  for (uint32_t slot = 0; slot < core->config.queue_depth; slot++) {
    struct command *command = command_at(connection, slot);
    if (!command->is_used) continue;
    if (!command->responded && is_with_medium(command)) {
      command->orphaned = true;
      connection->orphans++;
    } else {
      abandon(command);
    }
  }
}
