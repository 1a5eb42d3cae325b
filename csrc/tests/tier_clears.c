/* The model's commands that clear a range on the medium past the tier, as a deallocation does. What
 * gates do in a target is done here by not beginning commands that would meet on a range.
 */
#include "tier_model.h"

static bool overlaps(const struct command *command, uint32_t volume, uint64_t offset,
                     uint64_t length) {
  if (command->stage == IDLE || command->volume != volume) return false;
  return command->offset < offset + length && offset < command->offset + command->length;
}

bool is_being_cleared(uint32_t volume, uint64_t offset, uint64_t length) {
  for (uint32_t i = 0; i < COMMANDS; i++) {
    const struct command *command = &model.commands[i];
    if (command->kind == KIND_CLEAR && overlaps(command, volume, offset, length)) return true;
  }
  return false;
}

bool has_fence(uint32_t volume) {
  for (uint32_t i = 0; i < COMMANDS; i++) {
    const struct command *command = &model.commands[i];
    if (command->has_fence && command->volume == volume) return true;
  }
  return false;
}

/* Nobody else may be on the range, but flushes; and one clear a volume. */
static bool is_free(uint32_t volume, uint64_t offset, uint64_t length) {
  for (uint32_t i = 0; i < COMMANDS; i++) {
    const struct command *command = &model.commands[i];
    if (command->stage == IDLE || command->volume != volume) continue;
    if (command->kind == KIND_CLEAR) return false;
    if (command->kind != KIND_FLUSH && overlaps(command, volume, offset, length)) return false;
  }
  return true;
}

/* Whole units, of several extents as likely as of one. */
bool begin_clear(struct command *command) {
  uint64_t size = model.sizes[command->volume];
  uint32_t block = model.media[command->volume].block_size;
  uint32_t unit = block > SLOT / 16 ? block : SLOT / 16;
  uint32_t units = (uint32_t)((size + unit - 1) / unit);
  if (units == 0) return false;
  uint32_t first = below(units);
  uint32_t count = 1 + below(chance(50) ? units - first : 1 + (units - first) / 4);
  if (count > units - first) count = units - first;
  uint64_t offset = (uint64_t)first * unit;
  uint64_t length = (uint64_t)count * unit < size - offset ? (uint64_t)count * unit : size - offset;
  if (!is_free(command->volume, offset, length)) return false;
  if (history_is_long(command->volume, offset, length)) return false;
  command->kind = KIND_CLEAR;
  command->stage = FENCING;
  command->offset = offset;
  command->length = length;
  command->is_ready = true;
  return true;
}

void clear_stage(struct command *command) {
  command->is_ready = false;
  if (command->stage == CLEARING) return; /* the medium has it */
  int result = ps_tier_clear_begin(model.tier, model.now_ns, command->volume, command->offset,
                                   command->length, &command->waiter);
  if (result == PS_TIER_ERROR) {
    bool is_resized = command->waiter.error == 34 || command->waiter.error == 22;
    if (command->has_fence || !is_resized) /* ERANGE, EINVAL */
      model_fail("a clear was refused", command->offset, (uint64_t)command->waiter.error);
    end_command(command, true);
    return;
  }
  command->has_fence = true;
  if (result == PS_TIER_WAIT) return;
  command->stage = CLEARING;
  issue_clear(command);
}

static bool is_kept(const struct command *command, uint32_t block, uint32_t size) {
  uint64_t warm, coming;
  ps_tier_residency(model.tier, command->volume, (uint64_t)block * size, size, &warm, &coming);
  return warm == size;
}

/* Reads now give what the tier has kept, or else what the medium has: the last bytes, or zeros. A
 * cut may bring up zeros over what was kept, until that is flushed. */
static void look(const struct command *command, bool is_cleared) {
  const struct medium *medium = &model.media[command->volume];
  uint32_t size = medium->block_size;
  model.sequence++;
  for (uint64_t at = command->offset; at < command->offset + command->length; at += size) {
    uint32_t block = (uint32_t)(at / size), latest = history_latest(command->volume, block);
    bool has_kept = is_kept(command, block, size), is_zero = medium->current[block] == 0;
    if (is_cleared && (has_kept || !is_zero))
      model_fail("what was cleared is not zeros", command->volume, block);
    if (!has_kept && !is_zero && medium->current[block] != latest)
      model_fail("a clear that failed brought old bytes back", command->volume, block);
    if (is_zero) history_push(command->volume, block, 0);
    if (is_zero && has_kept) history_push(command->volume, block, latest);
  }
}

void clear_ended(struct command *command, int32_t error) {
  bool is_cleared = error == 0 && !command->is_gone;
  ps_tier_clear_end(model.tier, model.now_ns, command->volume, is_cleared);
  look(command, is_cleared);
  end_command(command, !is_cleared);
}

void abort_clear(struct command *command) {
  if (command->stage == CLEARING) {
    command->is_gone = true;
    return;
  }
  ps_tier_forget(model.tier, &command->waiter);
  if (command->has_fence) {
    ps_tier_clear_end(model.tier, model.now_ns, command->volume, false);
    look(command, false);
  }
  end_command(command, true);
}
