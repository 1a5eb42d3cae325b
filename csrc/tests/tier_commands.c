/* The model's commands: what hosts do with the tier, stage by stage. */
#include <assert.h>
#include <string.h>

#include "tier_model.h"

static void check_flushed(const struct command *command) {
  const struct medium *medium = &model.media[command->volume];
  uint64_t size = model.sizes[command->volume];
  if (command->offset >= size) return;
  uint64_t end =
      command->length < size - command->offset ? command->offset + command->length : size;
  for (uint64_t at = command->offset / medium->block_size; at < end / medium->block_size; at++) {
    uint32_t block = (uint32_t)at;
    uint32_t data = medium->current[block];
    bool is_cleared =
        data == 0 && is_being_cleared(command->volume, at * medium->block_size, medium->block_size);
    if (!is_cleared && !history_allows(command->volume, block, data, command->flush_sequence)) {
      model_fail("a flush completed before the medium has the block", command->volume, block);
    }
    if (command->sync) history_raise_floor(command->volume, block, command->flush_sequence);
  }
}

uint8_t *frame_bytes(uint32_t frame) { return model.frames + (size_t)frame * SLOT; }

void end_command(struct command *command, bool is_failed) {
  if (is_failed) {
    model.failed[command->kind]++;
  } else {
    model.done[command->kind]++;
  }
  for (uint32_t i = 0; i < command->other_count; i++) {
    ps_tier_release(model.tier, model.now_ns, command->others[i]);
  }
  if (command->reserved > 0 && command->stage > RESERVING)
    ps_tier_unreserve(model.tier, command->reserved);
  memset(command, 0, sizeof(*command));
}

static void check_frame(const struct command *command, const char *what) {
  uint32_t size = model.media[command->volume].block_size;
  const uint8_t *bytes = frame_bytes(command->frame) + command->offset % SLOT;
  for (uint32_t i = 0; i < command->length / size; i++) {
    if (block_read(bytes + (size_t)i * size, size) != command->data[i]) {
      model_fail(what, command->offset + i * (uint64_t)size, command->data[i]);
    }
  }
}

static void fill_frame(struct command *command) {
  uint32_t size = model.media[command->volume].block_size;
  uint8_t *bytes = frame_bytes(command->frame);
  memset(bytes, 0xA5, SLOT); /* what was there before must never be seen */
  for (uint32_t i = 0; i < command->length / size; i++) {
    command->data[i] = ++model.next_data;
    block_write(bytes + command->offset % SLOT + (size_t)i * size, size, command->data[i]);
  }
}

/* The change is acknowledged: from now on it is what reads give. */
static void note_change(const struct command *command) {
  uint32_t size = model.media[command->volume].block_size;
  uint32_t first = (uint32_t)(command->offset / size);
  model.sequence++;
  for (uint32_t i = 0; i < command->length / size; i++) {
    history_push(command->volume, first + i, command->kind == KIND_ZERO ? 0 : command->data[i]);
  }
}

static bool is_expected(int32_t error) {
  return error == 5 || error == 28 || error == 34; /* EIO, ENOSPC, ERANGE */
}

/* Data that has come already goes in without its frame, when it can. */
static bool overwrite(struct command *command) {
  const uint8_t *bytes = frame_bytes(command->frame) + command->offset % SLOT;
  if (!ps_tier_overwrite(model.tier, model.now_ns, command->volume, command->offset,
                         (uint32_t)command->length, bytes))
    return false;
  model.overwrites++;
  ps_tier_forget(model.tier, &command->waiter);
  ps_tier_release(model.tier, model.now_ns, command->frame);
  return true;
}

static int change(struct command *command) {
  uint32_t length = (uint32_t)command->length;
  if (history_is_long(command->volume, command->offset, command->length)) return PS_TIER_ERROR;
  if (command->kind == KIND_ZERO) {
    return ps_tier_zero(model.tier, model.now_ns, command->volume, command->offset, length,
                        command->access.tenant, &command->waiter);
  }
  if (chance(30) && overwrite(command)) return PS_TIER_DONE;
  return ps_tier_publish(model.tier, model.now_ns, command->volume, command->offset, length,
                         command->access.tenant, command->frame, &command->waiter);
}

static void change_stage(struct command *command) {
  int result = change(command);
  if (result == PS_TIER_WAIT) {
    command->is_ready = false;
  } else if (result == PS_TIER_ERROR) {
    if (command->waiter.error != 0 && !is_expected(command->waiter.error)) {
      model_fail("a write ended in an unexpected error", command->kind,
                 (uint64_t)command->waiter.error);
    }
    if (command->kind == KIND_WRITE) ps_tier_release(model.tier, model.now_ns, command->frame);
    ps_tier_forget(model.tier, &command->waiter);
    end_command(command, true);
  } else {
    note_change(command);
    command->stage = FLUSHING;
    if (!command->through) end_command(command, false);
  }
}

static void flush_stage(struct command *command) {
  if (!command->has_flushed) command->flush_sequence = model.sequence;
  command->has_flushed = true;
  int result = ps_tier_flush(model.tier, model.now_ns, command->volume, command->offset,
                             command->length, command->sync, &command->waiter);
  if (result == PS_TIER_WAIT) {
    command->is_ready = false;
    return;
  }
  if (result == PS_TIER_ERROR && !is_expected(command->waiter.error)) {
    model_fail("a flush ended in an unexpected error", 0, (uint64_t)command->waiter.error);
  }
  if (result == PS_TIER_DONE) check_flushed(command);
  end_command(command, result != PS_TIER_DONE);
}

/* The frame is held: it has what was written last, and keeps it until it is given back. */
static void begin_holding(struct command *command) {
  uint32_t size = model.media[command->volume].block_size;
  for (uint32_t i = 0; i < command->length / size; i++) {
    command->data[i] = history_latest(command->volume, (uint32_t)(command->offset / size) + i);
  }
  check_frame(command, "a read gave other bytes than were written");
  command->resizes = model.resizes[command->volume];
  command->stage = HOLDING;
}

/* Whatever is asked for, there or not: what is checked then is that nothing became of it. */
static void prefetch(const struct command *command) {
  struct ps_tier_place places[PS_TIER_PREFETCHED];
  for (uint32_t i = 0; i < PS_TIER_PREFETCHED; i++)
    places[i] = (struct ps_tier_place){command->volume + i / 8, command->offset + i * (SLOT / 2)};
  ps_tier_prefetch(model.tier, places, PS_TIER_PREFETCHED);
}

/* A read that nobody keeps waiting takes budget and frame in one, when it can. */
static bool read_at_once(struct command *command) {
  if (command->kind != KIND_READ || command->waiter.state != 0) return false;
  if (!ps_tier_read_at_once(model.tier, model.now_ns, command->volume, command->offset,
                            (uint32_t)command->length, &command->access, &command->frame))
    return false;
  model.reads_at_once++;
  command->reserved = 1;
  begin_holding(command);
  return true;
}

static void read_stage(struct command *command) {
  int result =
      ps_tier_read(model.tier, model.now_ns, command->volume, command->offset,
                   (uint32_t)command->length, &command->access, &command->waiter, &command->frame);
  if (result == PS_TIER_WAIT) {
    command->is_ready = false;
    return;
  }
  if (result == PS_TIER_ERROR) {
    if (!is_expected(command->waiter.error)) {
      model_fail("a read ended in an unexpected error", 0, (uint64_t)command->waiter.error);
    }
    end_command(command, true);
    return;
  }
  begin_holding(command);
}

/* A command of several extents: it holds a frame for each. */
static void others_stage(struct command *command) {
  if (command->other_count + 1 >= command->reserved) {
    command->stage = command->kind == KIND_WRITE ? FRAME : CHANGING;
    return;
  }
  uint32_t *frame = &command->others[command->other_count];
  int result = ps_tier_fresh(model.tier, model.now_ns, &command->waiter, frame);
  command->is_ready = result == PS_TIER_DONE;
  if (result == PS_TIER_DONE) command->other_count++;
}

void step_command(struct command *command) {
  int result;
  command->is_ready = true; /* unless it waits (again): it may have been called without a wake */
  switch (command->stage) {
    case RESERVING:
      prefetch(command);
      if (chance(50) && read_at_once(command)) return;
      result = ps_tier_reserve(model.tier, command->reserved, &command->waiter);
      command->is_ready = result == PS_TIER_DONE;
      if (result == PS_TIER_ERROR) model_fail("a reservation failed", command->reserved, 0);
      if (result == PS_TIER_DONE) command->stage = OTHERS;
      return;
    case OTHERS:
      others_stage(command);
      return;
    case FRAME:
      result = ps_tier_fresh(model.tier, model.now_ns, &command->waiter, &command->frame);
      command->is_ready = result == PS_TIER_DONE;
      if (result == PS_TIER_WAIT) return;
      fill_frame(command);
      command->stage = RECEIVING;
      return;
    case RECEIVING:
      command->stage = CHANGING;
      return;
    case CHANGING:
      if (command->kind == KIND_READ) {
        read_stage(command);
      } else {
        change_stage(command);
      }
      return;
    case FLUSHING:
      flush_stage(command);
      return;
    case HOLDING:
      /* Bytes that a resize cut off are zeros even for who still reads them. */
      if (command->resizes == model.resizes[command->volume]) {
        check_frame(command, "a pinned frame changed");
      }
      ps_tier_release(model.tier, model.now_ns, command->frame);
      end_command(command, false);
      return;
    case FENCING:
    case CLEARING:
      clear_stage(command);
      return;
    case IDLE:
      return;
  }
}

/* A range of blocks within one extent. */
bool pick_range(struct command *command) {
  uint64_t size = model.sizes[command->volume];
  uint32_t block = model.media[command->volume].block_size;
  if (size == 0) return false;
  uint64_t first = below((uint32_t)(size / block));
  if (chance(50)) first = first % 8 * (SLOT / block) % (size / block); /* some are hot, whole */
  uint64_t most = SLOT / block - first % (SLOT / block);
  if (most > size / block - first) most = size / block - first;
  uint64_t count = chance(30) ? most : 1 + below((uint32_t)most);
  command->offset = first * block;
  command->length = count * block;
  return true;
}

void begin_command(struct command *command) {
  assert(command->stage == IDLE);
  command->volume = below(model.volume_count);
  if (chance(5)) {
    (void)begin_clear(command);
    return;
  }
  if (!pick_range(command)) return;
  uint32_t kind = below(100);
  command->kind = kind < 40   ? KIND_READ
                  : kind < 78 ? KIND_WRITE
                  : kind < 88 ? KIND_ZERO
                              : KIND_FLUSH;
  if (command->kind != KIND_FLUSH &&
      is_being_cleared(command->volume, command->offset, command->length))
    return;
  command->stage = RESERVING;
  uint32_t budget = ps_tier_budget(model.tier);
  command->reserved = 1 + below(budget < 1 + MOST_OTHERS ? budget : 1 + MOST_OTHERS);
  command->access = random_access();
  command->access.once = chance(10);
  command->through = chance(20);
  command->sync = chance(70);
  command->is_ready = true;
  if (command->kind != KIND_FLUSH) return;
  command->stage = FLUSHING;
  command->reserved = 0;
  if (chance(60)) {
    command->offset = 0;
    command->length = UINT64_MAX;
  }
}

/* The host goes away: at any stage. */
void abort_command(struct command *command) {
  if (command->kind == KIND_CLEAR) {
    abort_clear(command);
    return;
  }
  ps_tier_forget(model.tier, &command->waiter);
  bool has_frame = command->stage == HOLDING || command->stage == RECEIVING ||
                   (command->stage == CHANGING && command->kind == KIND_WRITE);
  if (has_frame) ps_tier_release(model.tier, model.now_ns, command->frame);
  end_command(command, true);
}
