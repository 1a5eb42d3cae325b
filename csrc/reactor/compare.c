/* Compare, and the fused Compare and Write (NVM Command Set 1.0, 3.2.1 and 2.1.3.1; Base 2.0,
 * 3.4.2). The first of a pair runs both, alone on its range; the second waits for the verdict.
 */
#include <assert.h>
#include <string.h>

#include "internal.h"

enum { RECEIVE, WAIT_MATE, READ, WRITE, SETTLE };

/* Equal so far as both go; extents line up, for both stand at offset % slot size. */
static bool is_equal(struct command *command) {
  struct ps_core *core = command->connection->reactor->core;
  uint64_t done = 0;
  for (uint32_t i = 0; i < command->pin_count; i++) {
    const uint8_t *stored = command->iov[i].iov_base;
    size_t inside = (size_t)(stored - frame_bytes(core, command->pins[i]));
    const uint8_t *given = frame_bytes(core, command->fresh[i]) + inside;
    if (memcmp(stored, given, command->iov[i].iov_len) != 0) {
      command->fail_offset = command->offset + done;
      return false;
    }
    done += command->iov[i].iov_len;
  }
  return true;
}

/* The verdict for the second: its own status, or aborted because the first failed. */
static void release_mate(struct command *command) {
  struct command *mate = command->mate;
  if (mate == NULL) return;
  command->mate = NULL;
  mate->mate = NULL;
  mate->committed = true;
  mate->stage = SETTLE;
  if (command->status != 0 && mate->status == 0) mate->status = aborted_beside(command->status);
  wake_task(command->connection->reactor, &mate->task);
}

static enum step failed(struct command *command) {
  if (command->status == 0) return STEP_WAIT;
  release_mate(command);
  return STEP_DONE;
}

static enum step compare_or_fail(struct command *command) {
  pinned_iov(command);
  if (!is_equal(command)) {
    command->status = PS_SC_COMPARE_FAILURE | PS_DNR;
    return failed(command);
  }
  drop_pins(command);
  command->stage = WRITE;
  return STEP_WAIT;
}

/* The Write of a pair whose Compare held, while the range is still ours alone. */
static enum step write_mate(struct command *command) {
  struct command *mate = command->mate;
  if (command->stage == WRITE) {
    if (!publish_fresh(command, mate)) {
      if (mate->status != 0) command->status = aborted_beside(mate->status);
      return failed(command);
    }
    hint_written(mate, mate->offset, mate->length, false);
    command->stage = SETTLE;
  }
  if (mate->fua || mate->volume->write_through) {
    if (!make_durable(command, mate->offset, mate->length, mate->fua)) {
      /* It is the Write that failed: what it wrote may be there or not. */
      if (command->status != 0) {
        mate->status = command->status;
        mate->fail_offset = command->fail_offset;
        command->status = aborted_beside(mate->status);
      }
      return failed(command);
    }
  }
  release_mate(command);
  return STEP_DONE;
}

enum step compare_step(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  uint32_t count = segment_count(command);
  if (command->stage == RECEIVE) {
    /* A first reserves for its second too: seconds that waited behind other pairs' firsts, which
     * wait for their seconds, would wait for ever. */
    bool had_frames = command->reserved > 0;
    bool has_data = receive_fresh(command, is_first_of_pair(command) ? 3 * count : 2 * count);
    if (!had_frames && command->reserved > 0 && command->mate != NULL)
      wake_task(command->connection->reactor, &command->mate->task);
    if (!has_data) return failed(command);
    command->stage = WAIT_MATE;
  }
  if (command->stage == WAIT_MATE) {
    if (is_first_of_pair(command) && (command->mate == NULL || !command->mate->has_data))
      return STEP_WAIT;
    leave_receive(command);
    if (!gate_enter(command, is_first_of_pair(command))) return failed(command);
    command->committed = true;
    command->stage = READ;
  }
  if (command->stage == READ) {
    if (!pin_range(command)) return failed(command);
    enum step step = compare_or_fail(command);
    if (step == STEP_DONE || command->mate == NULL) return STEP_DONE;
  }
  return write_mate(command);
}

/* The frames that the second of a pair reserves: its first does it for both, unless the second's
 * data stands in its capsule and the first has none yet: see share_enter. */
static uint32_t second_reserve(struct command *command, const struct command *first) {
  if (command->in_capsule && first->reserved == 0) command->reserves_alone = true;
  return command->reserves_alone ? segment_count(command) : 0;
}

/* The second of a pair: takes its data, wakes the first, and waits for the verdict. */
enum step fused_write_step(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  if (command->stage == SETTLE) return STEP_DONE;
  bool had_data = command->committed;
  struct command *first = command->mate;
  if (first != NULL && command->status == 0) {
    if (first->reserved == 0 && !command->in_capsule) return STEP_WAIT;
    if (!receive_fresh(command, second_reserve(command, first)) && command->status == 0)
      return STEP_WAIT;
  }
  if (command->status != 0) {
    if (first != NULL) {
      first->mate = command->mate = NULL;
      first->status = aborted_beside(command->status);
      wake_task(command->connection->reactor, &first->task);
    }
    return STEP_DONE;
  }
  if (first == NULL) {
    command->status = PS_SC_ABORTED_FUSED | PS_DNR;
    return STEP_DONE;
  }
  command->committed = true;
  if (!had_data) wake_task(command->connection->reactor, &first->task);
  return STEP_WAIT;
}
