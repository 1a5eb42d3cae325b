/* Commands on ranges that move no data of the host: Write Zeroes and Dataset Management (NVM
 * Command Set 1.0, 3.2.8 and 3.2.3).
 *
 * Large ranges are cleared on the medium (holes), not written from DRAM: the command takes its
 * range alone, the tier drops what it has of it once no media work is under way there, the medium
 * clears it, and only then does anybody else get at the range again.
 */
#include <assert.h>
#include <errno.h>

#include "internal.h"

enum { DSM_IDR = 1 << 0, DSM_AD = 1 << 2, DSM_RANGE = 16, CLEAR_BYTES = 1 << 30 };

static enum step step_of(const struct command *command, bool done) {
  return done || command->status != 0 ? STEP_DONE : STEP_WAIT;
}

static uint64_t unit_size(const struct command *command) {
  uint64_t unit = command->connection->reactor->core->config.slot_size / 16;
  return unit > command->volume->block_size ? unit : command->volume->block_size;
}

static bool can_clear(const struct command *command) {
  return (command->volume->limits.warnings & PS_MEDIA_NO_PUNCH) == 0;
}

/* The whole units inside a range; false when there is none. The end of the volume ends a unit. */
static bool whole_units(const struct command *command, uint64_t *offset, uint64_t *length) {
  uint64_t unit = unit_size(command), end = *offset + *length;
  uint64_t first = (*offset + unit - 1) / unit * unit;
  uint64_t size = command->is_gated ? command->medium_size : command->volume->medium_size;
  uint64_t last = end == size ? end : end / unit * unit;
  if (first >= last) return false;
  *offset = first;
  *length = last - first;
  return true;
}

/* Clear whole units on the medium; the range is ours alone. Call again until it is true or the
 * status is set. `cursor` is how far the medium has been told. */
bool clear_range(struct command *command, uint64_t offset, uint64_t length) {
  struct reactor *reactor = command->connection->reactor;
  uint32_t volume = command->volume->number;
  assert(command->is_gated && length > 0);
  if (command->range_stage == 0) {
    if (ps_tier_drop(reactor->core->tier, volume, offset, length, &command->task.waiter) !=
        PS_TIER_DONE)
      return false;
    command->range_stage = 1;
    command->cursor = offset;
  }
  if (command->media_under_way > 0) return false;
  if (command->media_error != 0) {
    command->fail_offset = offset;
    fail(command, command->media_error, true);
    return false;
  }
  uint64_t left = offset + length - command->cursor;
  if (left == 0) {
    ps_tier_wrote(reactor->core->tier, reactor->now_ns, volume);
    command->range_stage = 0;
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

enum { ZERO_START, ZERO_HEAD, ZERO_CLEAR, ZERO_TAIL, ZERO_SETTLE };

/* The part of Write Zeroes that is cleared on the medium: what is more than a slot. */
static void middle(const struct command *command, uint64_t *offset, uint64_t *length) {
  *offset = command->offset;
  *length = command->length;
  bool is_large = command->length > command->connection->reactor->core->config.slot_size;
  if (is_large && can_clear(command) && whole_units(command, offset, length)) return;
  *offset = command->offset + command->length;
  *length = 0;
}

enum step zeroes_step(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  uint64_t offset, length, end = command->offset + command->length;
  middle(command, &offset, &length);
  if (command->stage == ZERO_START) {
    if (!reserve_frames(command, 1)) return step_of(command, false);
    if (!gate_enter(command, length > 0)) return step_of(command, false);
    command->committed = true;
    command->cursor = command->offset;
    command->stage = ZERO_HEAD;
  }
  if (command->stage == ZERO_HEAD) {
    if (!zero_through(command, offset)) return step_of(command, false);
    command->stage = ZERO_CLEAR;
  }
  if (command->stage == ZERO_CLEAR) {
    if (length > 0 && !clear_range(command, offset, length)) return step_of(command, false);
    command->cursor = offset + length;
    command->stage = ZERO_TAIL;
  }
  if (command->stage == ZERO_TAIL) {
    if (!zero_through(command, end)) return step_of(command, false);
    command->stage = ZERO_SETTLE;
  }
  return step_of(command, settle(command));
}

/* ---- Dataset Management ---- */

enum { DSM_RECEIVE, DSM_CHECK, DSM_CLEAR };

static const uint8_t *dsm_range(const struct command *command, uint32_t index) {
  return frame_bytes(command->connection->reactor->core, command->fresh[0]) +
         (size_t)index * DSM_RANGE;
}

static uint32_t dsm_count(const struct command *command) {
  return (uint32_t)command->sqe[40] + 1; /* NR, 0-based, CDW10 bits 7:0 */
}

static uint16_t check_ranges(const struct command *command) {
  uint64_t blocks = command->volume->size >> command->volume->block_shift;
  for (uint32_t i = 0; i < dsm_count(command); i++) {
    uint64_t count = le32(dsm_range(command, i) + 4), slba = le64(dsm_range(command, i) + 8);
    if (slba > blocks || count > blocks - slba) return PS_SC_LBA_RANGE | PS_DNR;
  }
  return 0;
}

/* Integral Dataset for Read: keep the ranges and their context attributes, newest last. */
static void remember_ranges(struct command *command) {
  struct volume *volume = command->volume;
  volume->dsm_set++;
  for (uint32_t i = 0; i < dsm_count(command); i++) {
    const uint8_t *range = dsm_range(command, i);
    volume->dsm_ranges[volume->dsm_count++ % DSM_RANGES] =
        (struct ps_dsm_range){.slba = le64(range + 8),
                              .nlb = le32(range + 4),
                              .attributes = le32(range),
                              .arrived_ns = command->started_ns,
                              .nsid = command->nsid,
                              .tenant = command->connection->queue.tenant,
                              .set = volume->dsm_set};
  }
}

/* Deallocate one range: what is whole units is cleared, the rest keeps its bytes, which the
 * command allows. */
static bool deallocate(struct command *command, uint32_t index) {
  struct volume *volume = command->volume;
  const uint8_t *range = dsm_range(command, index);
  uint64_t offset = le64(range + 8) << volume->block_shift;
  uint64_t length = (uint64_t)le32(range + 4) << volume->block_shift;
  if (!whole_units(command, &offset, &length)) return true;
  if (!command->is_gated) {
    command->gate_offset = offset;
    command->gate_length = length;
  }
  if (!gate_enter(command, true) || !clear_range(command, offset, length)) return false;
  gate_leave(command);
  return true;
}

enum step dsm_step(struct command *command) {
  uint32_t attributes = le32(command->sqe + 44);
  if (command->stage == DSM_RECEIVE) {
    if (command->data_length < dsm_count(command) * DSM_RANGE) {
      command->status = PS_SC_SGL_LENGTH | PS_DNR;
      return STEP_DONE;
    }
    if (!receive_parameters(command, 1)) return step_of(command, false);
    command->status = check_ranges(command);
    if (command->status != 0) return STEP_DONE;
    if (attributes & DSM_IDR) remember_ranges(command);
    command->committed = true;
    command->stage = DSM_CLEAR;
  }
  bool clears = (attributes & DSM_AD) && can_clear(command) && !command->volume->read_only;
  while (clears && command->index < dsm_count(command)) {
    if (!deallocate(command, command->index)) return step_of(command, false);
    command->index++;
  }
  return STEP_DONE;
}
