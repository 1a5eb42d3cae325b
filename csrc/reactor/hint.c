/* Hints that commands carry: what Reads say of themselves, sets by Dataset Management, batches and
 * queries by the vendor opcodes (PAX 1.0). Everything here runs with the core's lock held.
 */
#include <assert.h>
#include <string.h>

#include "internal.h"

enum { SQE_CDW10 = 40, NO_MAILBOX = PAX_MAILBOXES };

/* The connection's scope as pages show it. */
struct ps_hints_scope hint_scope(const struct connection *connection) {
  assert(connection != NULL && connection->is_bound);
  const struct ps_core *core = connection->reactor->core;
  struct ps_hints_scope scope = connection->scope;
  scope.extension_nsid = core->maps[scope.subsystem].extension_nsid;
  return scope;
}

/* ---- Reads and writes ---- */

void hint_touch(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  assert(command->volume != NULL && !command->is_touched);
  command->is_touched = true;
  command->read.volume_bytes = command->volume->size;
  ps_hints_touch(reactor->core->hints, reactor->now_ns, &command->connection->scope,
                 &command->read);
}

static void tell_read(const struct command *command) {
  const struct connection *connection = command->connection;
  ps_hints_read_seen(connection->reactor->core->hints, &connection->scope, &command->read,
                     command->started_ns);
}

/* It waits for a fill, for the first time or again. */
void hint_read_missed(struct command *command) {
  if (command->is_touched && !command->has_missed) tell_read(command);
  command->has_missed = true;
}

/* Of a Read that failed nobody can say that it met its deadline, or was late. */
void hint_read_ended(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  if (!command->is_touched) return;
  bool failed = command->status != 0;
  command->is_touched = false;
  if (!command->has_missed) {
    if (!failed) command->read.flags |= PS_FACT_HIT;
    tell_read(command);
  }
  ps_hints_read_ended(reactor->core->hints, reactor->now_ns, &command->connection->scope,
                      &command->read, command->started_ns, failed);
}

void hint_written(struct command *command, uint64_t offset, uint64_t length, bool is_discard) {
  struct reactor *reactor = command->connection->reactor;
  assert(command->volume != NULL);
  ps_hints_written(reactor->core->hints, reactor->now_ns, &command->connection->scope,
                   command->volume->number, offset, length, is_discard);
}

/* Dataset Management with Integral Dataset for Read. */
void hint_dataset(struct command *command, const uint8_t *ranges, uint32_t count) {
  struct reactor *reactor = command->connection->reactor;
  assert(ranges != NULL && count > 0);
  if (command->on_extension) return; /* no blocks that could belong together */
  if ((reactor->core->carriers & PAX_CARRIER_DATASET_MANAGEMENT) == 0) return;
  ps_hints_dataset(reactor->core->hints, reactor->now_ns, &command->connection->scope,
                   command->nsid, ranges, count);
}

/* ---- batches and queries ---- */

/* Take a batch, some records in each turn, and few turns in a pass for all batches together, so
 * that however many hints come, reads between them wait for few: false when it goes on later. */
bool hint_take_batch(struct command *command, uint32_t mailbox, const uint8_t *bytes,
                     uint32_t size) {
  struct reactor *reactor = command->connection->reactor;
  if (!has_turn(command)) return false;
  return ps_hints_submit_some(reactor->core->hints, reactor->now_ns, &command->connection->scope,
                              mailbox, bytes, size, PS_HINTS_TURN_RECORDS, &command->progress);
}

/* Submit: a batch from the host. CDW10 is the mailbox that its answer goes to, FFFFFFFFh for none.
 * The completion says what became of it: DW0 and DW1 count its records, or say where a malformed
 * batch is wrong, and how. */
enum step submit_step(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  uint32_t mailbox = le32(command->sqe + SQE_CDW10);
  if (mailbox >= PAX_MAILBOXES && mailbox != UINT32_MAX) {
    command->status = PS_SC_INVALID_FIELD | PS_DNR;
    return STEP_DONE;
  }
  if (!receive_parameters(command, 1)) return step_of(command, false);
  command->committed = true;
  if (!hint_take_batch(command, mailbox == UINT32_MAX ? NO_MAILBOX : mailbox,
                       frame_bytes(reactor->core, command->fresh[0]), command->length)) {
    return step_later(command);
  }
  const struct ps_hints_result *result = &command->progress.result;
  if (result->fault != 0) {
    command->status = PS_SC_INVALID_FIELD | PS_DNR;
    command->dw0 = result->fault_offset;
    command->dw1 = result->fault;
  } else {
    command->dw0 = (uint32_t)result->accepted | (uint32_t)result->dropped << 16;
    command->dw1 = result->unknown;
  }
  return STEP_DONE;
}

/* Query: one question in CDW10 to 15, its answer a page of which the host takes as much as it
 * wants. The page is made in the frame that it is sent from. */
enum step query_step(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  if (!answer_frames(command, 1)) return step_of(command, false);
  const struct ps_hints_scope scope = hint_scope(command->connection);
  uint32_t question[6];
  for (uint32_t i = 0; i < 6; i++) question[i] = le32(command->sqe + SQE_CDW10 + (size_t)i * 4);
  command->committed = true;
  if (!has_turn(command)) return step_later(command);
  command->status = ps_hints_query(reactor->core->hints, reactor->now_ns, &scope, command->nsid,
                                   question, frame_bytes(reactor->core, command->fresh[0]));
  return STEP_DONE;
}

/* ---- the warm-event log ---- */

/* Tell the control plane which tenants' logs are not empty any more. */
void hint_tell_events(struct ps_core *core) {
  assert(core != NULL);
  for (int32_t tenant; (tenant = ps_hints_next_event(core->hints)) >= 0;)
    notice_warm_event(core, (uint16_t)tenant);
}
