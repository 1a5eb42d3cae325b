/* Copy (NVM Command Set 1.0, 3.2.2), descriptor format 0: up to COPY_RANGES source ranges to one
 * destination, piece by piece through the tier; no piece crosses an extent of the destination.
 */
#include <assert.h>
#include <string.h>

#include "internal.h"

enum {
  COPY_RANGE = 32,
  COPY_FRAMES = 5, /* parameters, one fresh, two pinned of a piece, one spare */
  COPY_RECEIVE = 0,
  COPY_PIECE = 1,
  COPY_PUBLISH = 2,
  COPY_SETTLE = 3
};

static uint32_t range_count(const struct command *command) {
  return (uint32_t)command->sqe[48] + 1; /* NR, 0-based, CDW12 bits 7:0 */
}

static const uint8_t *range_at(const struct command *command, uint32_t index) {
  return frame_bytes(command->connection->reactor->core, command->fresh[0]) +
         (size_t)index * COPY_RANGE;
}

static uint64_t range_bytes(const struct command *command, uint32_t index) {
  return ((uint64_t)le16(range_at(command, index) + 16) + 1) << command->volume->block_shift;
}

static uint64_t destination(const struct command *command) {
  return le64(command->sqe + 40) << command->volume->block_shift;
}

/* The limits that Identify announces (MSSRL, MCL, MSRC), and the ranges. */
static uint16_t check(const struct command *command) {
  uint32_t limit = command->connection->reactor->core->config.max_transfer;
  uint64_t blocks = command->volume->size >> command->volume->block_shift;
  uint64_t total = 0, to = le64(command->sqe + 40);
  for (uint32_t i = 0; i < range_count(command); i++) {
    uint64_t from = le64(range_at(command, i) + 8), bytes = range_bytes(command, i);
    uint64_t count = bytes >> command->volume->block_shift;
    if (bytes > limit) return PS_SC_COPY_SIZE_LIMIT | PS_DNR;
    if (from > blocks || count > blocks - from) return PS_SC_LBA_RANGE | PS_DNR;
    total += count;
  }
  if (total << command->volume->block_shift > (uint64_t)limit * COPY_RANGES)
    return PS_SC_COPY_SIZE_LIMIT | PS_DNR;
  if (to > blocks || total > blocks - to) return PS_SC_LBA_RANGE | PS_DNR;
  return 0;
}

static uint16_t check_header(const struct command *command) {
  if (range_count(command) > COPY_RANGES) return PS_SC_COPY_SIZE_LIMIT | PS_DNR;
  if ((command->sqe[49] & 0x0f) != 0) return PS_SC_INVALID_FIELD | PS_DNR; /* DESFMT */
  if (command->data_length < range_count(command) * COPY_RANGE) return PS_SC_SGL_LENGTH | PS_DNR;
  return 0;
}

/* The next piece: sets the command's range to its source; false when all is copied. */
static bool next_piece(struct command *command) {
  uint64_t slot_size = command->connection->reactor->core->config.slot_size;
  uint64_t done = command->cursor;
  uint32_t index = 0;
  while (index < range_count(command) && done >= range_bytes(command, index))
    done -= range_bytes(command, index++);
  if (index == range_count(command)) return false;
  uint64_t left = range_bytes(command, index) - done;
  uint64_t to = destination(command) + command->cursor;
  uint64_t room = slot_size - to % slot_size;
  command->offset = (le64(range_at(command, index) + 8) << command->volume->block_shift) + done;
  command->length = (uint32_t)(left < room ? left : room);
  return true;
}

/* The pinned source into the fresh frame, where the destination's bytes stand. */
static void copy_piece(struct command *command) {
  struct ps_core *core = command->connection->reactor->core;
  uint64_t to = destination(command) + command->cursor;
  uint8_t *target = frame_bytes(core, command->fresh[1]) + to % core->config.slot_size;
  uint32_t count = pinned_iov(command);
  for (uint32_t i = 0; i < count; i++) {
    memcpy(target, command->iov[i].iov_base, command->iov[i].iov_len);
    target += command->iov[i].iov_len;
  }
  drop_pins(command);
}

/* One piece through the tier; false on a wait, or when the status is set. */
static bool move_piece(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  struct ps_tier *tier = reactor->core->tier;
  if (command->stage == COPY_PIECE) {
    if (!pin_range(command) || !take_frames(command, 2, COPY_FRAMES)) return false;
    copy_piece(command);
    command->stage = COPY_PUBLISH;
  }
  uint64_t to = destination(command) + command->cursor;
  int result =
      ps_tier_publish(tier, reactor->now_ns, command->volume->number, to, command->length,
                      command->connection->queue.tenant, command->fresh[1], &command->task.waiter);
  if (result == PS_TIER_ERROR) {
    command->fail_offset = to;
    fail(command, command->task.waiter.error, true);
  }
  if (result != PS_TIER_DONE) return false;
  command->fresh_count = 1;
  command->cursor += command->length;
  command->stage = COPY_PIECE;
  return true;
}

/* Parameters here and checked, the volume's gate entered. */
static bool prepare(struct command *command) {
  command->status = check_header(command);
  if (command->status != 0 || !receive_parameters(command, COPY_FRAMES)) return false;
  if (!command->is_gated) command->status = check(command);
  command->gate_offset = 0;
  command->gate_length = command->volume->size;
  if (command->status != 0 || !gate_enter(command, false)) return false;
  command->committed = true;
  command->fua = (command->sqe[51] & 0x40) != 0;
  return true;
}

enum step copy_step(struct command *command) {
  assert(command->volume != NULL);
  bool waits = false;
  if (command->stage == COPY_RECEIVE) {
    if (!prepare(command)) return command->status != 0 ? STEP_DONE : STEP_WAIT;
    command->stage = COPY_PIECE;
  }
  while (!waits && command->stage != COPY_SETTLE) {
    if (command->stage == COPY_PIECE && !next_piece(command)) {
      command->stage = COPY_SETTLE;
      command->offset = destination(command);
      command->length = (uint32_t)command->cursor;
      hint_written(command, command->offset, command->length, false);
    } else if (!move_piece(command)) {
      waits = true;
    }
  }
  if (!waits) waits = !settle(command);
  return !waits || command->status != 0 ? STEP_DONE : STEP_WAIT;
}
