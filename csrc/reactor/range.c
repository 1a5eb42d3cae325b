/* Commands on ranges that move no data of the host: Write Zeroes and Dataset Management (NVM
 * Command Set 1.0, 3.2.8 and 3.2.3).
 *
 * Large ranges are cleared on the medium (holes), not written from DRAM: the command takes its
 * range alone, the tier ends the media writes there and begins none, the medium clears it, the tier
 * forgets what it has of it, and only then does anybody else get at the range again.
 */
#include <assert.h>
#include <errno.h>

#include "internal.h"

enum { DSM_CDW11 = 44, DSM_IDR = 1 << 0, DSM_AD = 1 << 2, DSM_RANGE = 16, CLEAR_BYTES = 1 << 30 };

static uint64_t unit_size(const struct command *command) {
  uint64_t unit = command->connection->reactor->core->config.slot_size / 16;
  return unit > command->volume->block_size ? unit : command->volume->block_size;
}

static bool can_clear(const struct command *command) {
  return (command->volume->limits.warnings & PS_MEDIA_NO_PUNCH) == 0;
}

/* The command's fence in the tier falls, however clearing went. The lock is held. */
void end_clear(struct command *command, bool is_cleared) {
  struct reactor *reactor = command->connection->reactor;
  if (!command->is_clearing) return;
  command->is_clearing = false;
  command->range_stage = 0;
  ps_tier_clear_end(reactor->core->tier, reactor->now_ns, command->volume->number, is_cleared);
}

static bool fail_clear(struct command *command, uint64_t offset, int32_t error) {
  end_clear(command, false);
  command->fail_offset = offset;
  fail(command, error, true);
  return false;
}

/* Clear whole units on the medium; the range is ours alone. Call again until it is true or the
 * status is set. `cursor` is how far the medium has been told. */
static bool clear_range(struct command *command, uint64_t offset, uint64_t length) {
  struct reactor *reactor = command->connection->reactor;
  assert(command->is_gated && length > 0);
  if (command->range_stage == 0) {
    int result = ps_tier_clear_begin(reactor->core->tier, reactor->now_ns, command->volume->number,
                                     offset, length, &command->task.waiter);
    if (result == PS_TIER_ERROR) return fail_clear(command, offset, command->task.waiter.error);
    command->is_clearing = true;
    if (result != PS_TIER_DONE) return false;
    command->range_stage = 1;
    command->cursor = offset;
  }
  if (command->media_under_way > 0) return false;
  if (command->media_error != 0) return fail_clear(command, offset, command->media_error);
  uint64_t left = offset + length - command->cursor;
  if (left == 0) {
    end_clear(command, true);
    return true;
  }
  uint32_t part = left < CLEAR_BYTES ? (uint32_t)left : CLEAR_BYTES;
  if (command_media(command, PS_MEDIA_ZERO, command->cursor, part))
    command->cursor += part;
  else
    task_ready(reactor, &command->task);
  return false;
}

/* Zeros through the tier, extent by extent, from `cursor` to `end`. */
static bool zero_through(struct command *command, uint64_t end) {
  struct reactor *reactor = command->connection->reactor;
  uint64_t slot_size = reactor->core->config.slot_size;
  while (command->cursor < end) {
    uint64_t stop = (command->cursor / slot_size + 1) * slot_size;
    if (stop > end) stop = end;
    int result = ps_tier_zero(reactor->core->tier, reactor->now_ns, command->volume->number,
                              command->cursor, (uint32_t)(stop - command->cursor),
                              command->connection->queue.tenant, &command->task.waiter);
    if (result == PS_TIER_ERROR) {
      command->fail_offset = command->cursor;
      fail(command, command->task.waiter.error, true);
    }
    if (result != PS_TIER_DONE) return false;
    command->cursor = stop;
  }
  return true;
}

enum { PART_HEAD, PART_CLEAR, PART_TAIL };

/* Plan to make a range zeros: its whole units are cleared on the medium when there are any and the
 * range has `least` bytes, everything else goes through the tier. The plan stays as it is when the
 * volume's size changes on the way. */
static void plan_zeros(struct command *command, uint64_t offset, uint64_t length, uint64_t least) {
  uint64_t unit = unit_size(command), end = offset + length;
  uint64_t first = (offset + unit - 1) / unit * unit, last = end / unit * unit;
  bool clears = length >= least && can_clear(command) && first < last;
  command->clear_offset = clears ? first : end;
  command->clear_end = clears ? last : end;
  command->cursor = offset;
  command->part = PART_HEAD;
}

static bool clears_any(const struct command *command) {
  return command->clear_offset < command->clear_end;
}

/* Carry out the plan for a range that ends at `end`. */
static bool make_zeros(struct command *command, uint64_t end) {
  if (command->part == PART_HEAD) {
    if (!zero_through(command, command->clear_offset)) return false;
    command->part = PART_CLEAR;
  }
  if (command->part == PART_CLEAR) {
    uint64_t length = command->clear_end - command->clear_offset;
    if (clears_any(command) && !clear_range(command, command->clear_offset, length)) return false;
    command->cursor = command->clear_end;
    command->part = PART_TAIL;
  }
  return zero_through(command, end);
}

enum { ZERO_START, ZERO_ENTER, ZERO_MAKE, ZERO_SETTLE };

enum step zeroes_step(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  if (command->stage == ZERO_START) {
    uint64_t slot_size = command->connection->reactor->core->config.slot_size;
    plan_zeros(command, command->offset, command->length, slot_size + 1);
    command->stage = ZERO_ENTER;
  }
  if (command->stage == ZERO_ENTER) {
    if (!reserve_frames(command, 1)) return step_of(command, false);
    if (!gate_enter(command, clears_any(command))) return step_of(command, false);
    command->committed = true;
    command->stage = ZERO_MAKE;
  }
  if (command->stage == ZERO_MAKE) {
    if (!make_zeros(command, command->offset + command->length)) return step_of(command, false);
    hint_written(command, command->offset, command->length, false);
    command->stage = ZERO_SETTLE;
  }
  return step_of(command, settle(command));
}

/* ---- Dataset Management ---- */

enum { DSM_RECEIVE, DSM_NEXT, DSM_CLEAR };

static const uint8_t *dsm_range(const struct command *command, uint32_t index) {
  return frame_bytes(command->connection->reactor->core, command->fresh[0]) +
         (size_t)index * DSM_RANGE;
}

static uint32_t dsm_count(const struct command *command) {
  return (uint32_t)command->sqe[40] + 1; /* NR, 0-based, CDW10 bits 7:0 */
}

static uint16_t check_ranges(const struct command *command) {
  uint64_t blocks = command_blocks(command);
  for (uint32_t i = 0; i < dsm_count(command); i++) {
    uint64_t count = le32(dsm_range(command, i) + 4), slba = le64(dsm_range(command, i) + 8);
    if (slba > blocks || count > blocks - slba) return PS_SC_LBA_RANGE | PS_DNR;
  }
  return 0;
}

/* Begin with the range `index`; false when the volume has shrunk meanwhile. */
static bool begin_range(struct command *command, uint32_t index) {
  const struct volume *volume = command->volume;
  const uint8_t *range = dsm_range(command, index);
  command->gate_offset = le64(range + 8) << volume->block_shift;
  command->gate_length = (uint64_t)le32(range + 4) << volume->block_shift;
  if (command->gate_length > volume->size ||
      command->gate_offset > volume->size - command->gate_length) {
    command->status = PS_SC_LBA_RANGE | PS_DNR;
    return false;
  }
  plan_zeros(command, command->gate_offset, command->gate_length, 1);
  return true;
}

/* Deallocate the range that was begun. Its blocks read as zeros from then on, as DLFEAT says: what
 * is not a whole unit is written. */
static bool deallocate(struct command *command) {
  uint64_t offset = command->gate_offset, length = command->gate_length;
  if (length == 0) return true;
  if (!gate_enter(command, clears_any(command))) return false;
  if (!make_zeros(command, offset + length)) return false;
  if (command->volume->write_through && !make_durable(command, offset, length, false)) return false;
  hint_written(command, offset, length, true);
  gate_leave(command);
  command->gate_length = 0;
  return true;
}

static bool deallocates(const struct command *command) {
  return (le32(command->sqe + DSM_CDW11) & DSM_AD) != 0;
}

/* Receive the ranges and look at all of them before anything is done. */
static bool dsm_receive(struct command *command) {
  if (command->data_length < dsm_count(command) * DSM_RANGE)
    command->status = PS_SC_SGL_LENGTH | PS_DNR;
  else if (deallocates(command) && !command->on_extension && command->volume->read_only)
    command->status = PS_SC_WRITE_PROTECTED | PS_DNR;
  if (command->status != 0 || !receive_parameters(command, 2)) return false;
  command->status = check_ranges(command);
  if (command->status != 0) return false;
  if (le32(command->sqe + DSM_CDW11) & DSM_IDR)
    hint_dataset(command, dsm_range(command, 0), dsm_count(command));
  command->committed = true;
  return true;
}

enum step dsm_step(struct command *command) {
  if (command->stage == DSM_RECEIVE) {
    if (!dsm_receive(command)) return step_of(command, false);
    command->stage = DSM_NEXT;
  }
  if (command->on_extension || !deallocates(command) || !can_clear(command)) return STEP_DONE;
  while (command->index < dsm_count(command)) {
    if (command->stage == DSM_NEXT) {
      if (!begin_range(command, command->index)) return STEP_DONE;
      command->stage = DSM_CLEAR;
    }
    if (!deallocate(command)) return step_of(command, false);
    command->index++;
    command->stage = DSM_NEXT;
  }
  return STEP_DONE;
}
