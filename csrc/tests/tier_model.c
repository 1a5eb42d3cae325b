/* The byte-exact model test of the DRAM tier.
 *
 *   tier_model SEED RUNS
 *
 * Each run is one seed: a small tier, a few volumes, and commands that read, write, zero, flush,
 * hydrate, resize and abort in random interleavings, while media operations end in any order, late,
 * or in error, and power cuts end the tier's life three times. Every byte that is read must be
 * exactly what was last written; after a cut every block must hold what it held when a flush of it
 * that completed began, or something newer; all waiting must end; ps_tier_check holds after each
 * step. Prints the seed and exits 1 when anything is wrong.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tier_medium.h"

enum {
  SLOT = 16384,
  FRAMES = 32,
  VOLUMES = 3,
  COMMANDS = 12,
  HISTORY = 48,
  LIVES = 3,
  MOST_OTHERS = 3,
  EXTENT_BLOCKS = SLOT / 512
};

/* What a block was made to hold, in order. After a cut any of them from `first` on may be there. */
struct history {
  uint32_t data[HISTORY];
  uint64_t sequence[HISTORY];
  uint32_t length;
};

enum kind { KIND_READ, KIND_WRITE, KIND_ZERO, KIND_FLUSH, KIND_COUNT };
enum stage { IDLE, RESERVING, OTHERS, FRAME, RECEIVING, CHANGING, FLUSHING, HOLDING };

struct command {
  struct ps_tier_waiter waiter;
  enum kind kind;
  enum stage stage;
  bool is_ready; /* to be called: just begun, or woken */
  bool once, through, sync, has_flushed;
  uint32_t volume, frame;
  uint32_t reserved; /* frames: its own, and others that it holds all the time */
  uint32_t others[MOST_OTHERS], other_count;
  uint64_t offset;
  uint64_t length;
  uint64_t flush_sequence;
  uint64_t resizes;             /* of the volume, when the frame was pinned */
  uint32_t data[EXTENT_BLOCKS]; /* of a write, or of what a read must keep seeing */
};

static struct model {
  uint64_t seed;
  struct random random;
  struct ps_tier *tier;
  struct ps_tier_config config;
  uint64_t now_ns;
  uint64_t sequence; /* of acknowledged changes */
  uint32_t next_data;
  uint32_t volume_count;
  struct medium media[VOLUMES];
  uint64_t sizes[VOLUMES];
  uint64_t resizes[VOLUMES];
  struct history history[VOLUMES][MEDIUM_BLOCKS];
  struct flying flying[MEDIUM_FLYING];
  uint32_t flying_count;
  uint32_t write_errors, read_errors, sync_errors; /* percent */
  bool is_draining;
  struct command commands[COMMANDS];
  uint64_t done[KIND_COUNT], failed[KIND_COUNT], cuts;
  uint8_t frames[FRAMES * SLOT];
} model;

void model_fail(const char *what, uint64_t a, uint64_t b) {
  fprintf(stderr, "tier_model: seed %llu: %s (%llu, %llu)\n", (unsigned long long)model.seed, what,
          (unsigned long long)a, (unsigned long long)b);
  abort();
}

static uint32_t below(uint32_t bound) { return random_below(&model.random, bound); }
static bool chance(uint32_t percent) { return random_chance(&model.random, percent); }

/* ---- what blocks must hold ---- */

static uint32_t latest(uint32_t volume, uint32_t block) {
  const struct history *history = &model.history[volume][block];
  return history->data[history->length - 1];
}

static void restart_history(uint32_t volume, uint32_t block, uint32_t data) {
  struct history *history = &model.history[volume][block];
  history->length = 1;
  history->data[0] = data;
  history->sequence[0] = model.sequence;
}

static void push_history(uint32_t volume, uint32_t block, uint32_t data) {
  struct history *history = &model.history[volume][block];
  if (history->length == HISTORY) model_fail("the model's history is full", volume, block);
  history->data[history->length] = data;
  history->sequence[history->length++] = model.sequence;
}

static bool history_is_long(uint32_t volume, uint64_t offset, uint64_t length) {
  uint32_t size = model.media[volume].block_size;
  for (uint64_t at = offset / size; at < (offset + length) / size; at++) {
    if (model.history[volume][at].length > HISTORY - COMMANDS - 1) return true;
  }
  return false;
}

static bool is_allowed(uint32_t volume, uint32_t block, uint32_t data, uint64_t sequence) {
  const struct history *history = &model.history[volume][block];
  for (uint32_t i = history->length; i > 0; i--) {
    if (history->data[i - 1] == data) return true;
    if (history->sequence[i - 1] <= sequence) return false;
  }
  return false;
}

/* A flush that began at `sequence` has completed: older values must not come back. */
static void raise_floor(uint32_t volume, uint32_t block, uint64_t sequence) {
  struct history *history = &model.history[volume][block];
  uint32_t first = 0;
  while (first + 1 < history->length && history->sequence[first + 1] <= sequence) first++;
  history->length -= first;
  memmove(history->data, history->data + first, history->length * sizeof(history->data[0]));
  memmove(history->sequence, history->sequence + first,
          history->length * sizeof(history->sequence[0]));
}

static void check_flushed(const struct command *command) {
  const struct medium *medium = &model.media[command->volume];
  uint64_t size = model.sizes[command->volume];
  if (command->offset >= size) return;
  uint64_t end =
      command->length < size - command->offset ? command->offset + command->length : size;
  for (uint64_t at = command->offset / medium->block_size; at < end / medium->block_size; at++) {
    uint32_t block = (uint32_t)at;
    uint32_t data = medium->current[block];
    if (!is_allowed(command->volume, block, data, command->flush_sequence)) {
      model_fail("a flush completed before the medium has the block", command->volume, block);
    }
    if (command->sync) raise_floor(command->volume, block, command->flush_sequence);
  }
}

/* ---- commands ---- */

static uint8_t *frame_bytes(uint32_t frame) { return model.frames + (size_t)frame * SLOT; }

static void end_command(struct command *command, bool is_failed) {
  if (is_failed) {
    model.failed[command->kind]++;
  } else {
    model.done[command->kind]++;
  }
  for (uint32_t i = 0; i < command->other_count; i++) {
    ps_tier_release(model.tier, model.now_ns, command->others[i]);
  }
  if (command->stage > RESERVING) ps_tier_unreserve(model.tier, command->reserved);
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
    push_history(command->volume, first + i, command->kind == KIND_ZERO ? 0 : command->data[i]);
  }
}

static bool is_expected(int32_t error) {
  return error == 5 || error == 28 || error == 34; /* EIO, ENOSPC, ERANGE */
}

static int change(struct command *command) {
  uint32_t length = (uint32_t)command->length;
  if (history_is_long(command->volume, command->offset, command->length)) return PS_TIER_ERROR;
  if (command->kind == KIND_ZERO) {
    return ps_tier_zero(model.tier, model.now_ns, command->volume, command->offset, length, 1,
                        &command->waiter);
  }
  return ps_tier_publish(model.tier, model.now_ns, command->volume, command->offset, length, 1,
                         command->frame, &command->waiter);
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

static void read_stage(struct command *command) {
  const struct medium *medium = &model.media[command->volume];
  int result =
      ps_tier_read(model.tier, model.now_ns, command->volume, command->offset,
                   (uint32_t)command->length, 2, command->once, &command->waiter, &command->frame);
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
  for (uint32_t i = 0; i < command->length / medium->block_size; i++) {
    uint32_t block = (uint32_t)(command->offset / medium->block_size) + i;
    command->data[i] = latest(command->volume, block);
  }
  check_frame(command, "a read gave other bytes than were written");
  command->resizes = model.resizes[command->volume];
  command->stage = HOLDING;
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

static void step_command(struct command *command) {
  int result;
  switch (command->stage) {
    case RESERVING:
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
    case IDLE:
      return;
  }
}

/* A range of blocks within one extent. */
static bool pick_range(struct command *command) {
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

static void begin_command(struct command *command) {
  assert(command->stage == IDLE);
  command->volume = below(model.volume_count);
  if (!pick_range(command)) return;
  uint32_t kind = below(100);
  command->kind = kind < 40   ? KIND_READ
                  : kind < 78 ? KIND_WRITE
                  : kind < 88 ? KIND_ZERO
                              : KIND_FLUSH;
  command->stage = RESERVING;
  uint32_t budget = ps_tier_budget(model.tier);
  command->reserved = 1 + below(budget < 1 + MOST_OTHERS ? budget : 1 + MOST_OTHERS);
  command->once = chance(10);
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
static void abort_command(struct command *command) {
  ps_tier_forget(model.tier, &command->waiter);
  bool has_frame = command->stage == HOLDING || command->stage == RECEIVING ||
                   (command->stage == CHANGING && command->kind == KIND_WRITE);
  if (has_frame) ps_tier_release(model.tier, model.now_ns, command->frame);
  end_command(command, true);
}

/* ---- media ---- */

static void wake_commands(void) {
  struct ps_tier_waiter *waiter;
  while ((waiter = ps_tier_next_woken(model.tier)) != NULL) {
    struct command *command = (struct command *)(void *)waiter;
    if (command->stage == IDLE || command->is_ready) model_fail("woken without waiting", 0, 0);
    command->is_ready = true;
  }
}

static void check_overlap(const struct ps_tier_action *action) {
  for (uint32_t i = 0; i < model.flying_count; i++) {
    const struct ps_tier_action *other = &model.flying[i].action;
    if (other->volume != action->volume || other->op != action->op) continue;
    if (other->op == PS_TIER_READ) continue;
    if (other->op == PS_TIER_SYNC) model_fail("two syncs of a volume at once", 0, 0);
    if (other->offset / SLOT == action->offset / SLOT) {
      model_fail("two media writes of an extent at once", action->offset, other->offset);
    }
  }
}

static bool issue_one(void) {
  struct flying *flying = &model.flying[model.flying_count];
  if (model.flying_count == MEDIUM_FLYING) model_fail("too much media work", 0, 0);
  if (!ps_tier_next_action(model.tier, model.now_ns, &flying->action)) return false;
  check_overlap(&flying->action);
  const uint8_t *frame = NULL;
  if (flying->action.op != PS_TIER_SYNC) frame = frame_bytes(flying->action.frame);
  medium_issue(&model.media[flying->action.volume], &model.random, flying, frame);
  model.flying_count++;
  return true;
}

static int32_t pick_error(uint32_t op) {
  uint32_t rates[] = {0, model.read_errors, model.write_errors, model.sync_errors};
  if (model.is_draining || !chance(rates[op])) return 0;
  return op == PS_TIER_WRITE && chance(50) ? 28 : 5;
}

static void end_one(void) {
  if (model.flying_count == 0) return;
  uint32_t chosen = below(model.flying_count);
  struct flying *flying = &model.flying[chosen];
  uint32_t ticket = flying->action.ticket;
  uint32_t volume = flying->action.volume;
  int32_t error = pick_error(flying->action.op);
  uint8_t *frame = NULL;
  if (flying->action.op != PS_TIER_SYNC) frame = frame_bytes(flying->action.frame);
  medium_end(&model.media[volume], &model.random, flying, frame, error);
  *flying = model.flying[--model.flying_count];
  ps_tier_complete(model.tier, model.now_ns, ticket, error);
  medium_settle(&model.media[volume], model.flying, model.flying_count, volume);
}

static void resize(void) {
  uint32_t volume = below(model.volume_count);
  struct medium *medium = &model.media[volume];
  uint64_t old = model.sizes[volume];
  uint32_t block = medium->block_size;
  if (medium->is_shrinking) return;
  uint64_t size = (uint64_t)below(12 * SLOT / block) * block;
  if (ps_tier_volume_resize(model.tier, volume, size) != 0) model_fail("resize failed", size, 0);
  medium_resize(medium, size);
  model.sizes[volume] = size;
  model.resizes[volume]++;
  model.sequence++;
  uint64_t from = size < old ? size : old;
  uint64_t to = size < old ? old : size;
  for (uint64_t at = from / block; at < to / block; at++) {
    restart_history(volume, (uint32_t)at, 0);
  }
  medium_settle(medium, model.flying, model.flying_count, volume);
}

/* ---- a life ---- */

static void hydrate(void) {
  struct command range = {.volume = below(model.volume_count)};
  if (!pick_range(&range)) return;
  uint32_t frame;
  if (chance(50)) {
    (void)ps_tier_hydrate(model.tier, model.now_ns, range.volume, range.offset,
                          (uint32_t)range.length, 3, below(8));
  } else if (ps_tier_read(model.tier, model.now_ns, range.volume, range.offset,
                          (uint32_t)range.length, 3, false, NULL, &frame) == PS_TIER_DONE) {
    ps_tier_release(model.tier, model.now_ns, frame);
  }
}

static void change_errors(void) {
  bool fails = chance(40);
  model.write_errors = fails ? below(101) : 0;
  model.read_errors = fails && chance(50) ? below(40) : 0;
  model.sync_errors = fails && chance(50) ? below(101) : 0;
}

static void step(void) {
  struct command *command = &model.commands[below(COMMANDS)];
  uint32_t what = below(1000);
  if (what < 350) {
    if (command->stage == IDLE) {
      begin_command(command);
    } else if (command->is_ready) {
      step_command(command);
    }
  } else if (what < 600) {
    if (command->is_ready) step_command(command);
  } else if (what < 760) {
    (void)issue_one();
  } else if (what < 910) {
    end_one();
  } else if (what < 940) {
    hydrate();
  } else if (what < 988) {
    model.now_ns += (uint64_t)below(chance(10) ? 3000 : 20) * 1000000;
  } else if (what < 991) {
    if (command->stage != IDLE) abort_command(command);
  } else if (what < 997) {
    change_errors();
  } else if (chance(30)) {
    resize();
  }
}

static void check(void) {
  int failed = ps_tier_check(model.tier);
  if (failed != 0) model_fail("ps_tier_check", (uint64_t)failed, 0);
  wake_commands();
}

static bool is_busy(void) {
  for (uint32_t i = 0; i < COMMANDS; i++) {
    if (model.commands[i].stage != IDLE) return true;
  }
  return model.flying_count != 0;
}

/* Everything that was begun must end by media work and time alone. */
static void drain(void) {
  model.is_draining = true;
  for (uint32_t round = 0; is_busy(); round++) {
    if (round == 20000) model_fail("commands wait for ever", model.flying_count, 0);
    bool has_stepped = false;
    for (uint32_t i = 0; i < COMMANDS; i++) {
      if (!model.commands[i].is_ready) continue;
      step_command(&model.commands[i]);
      check();
      has_stepped = true;
    }
    if (issue_one()) continue;
    check();
    if (has_stepped) continue;
    if (model.flying_count > 0) {
      end_one();
      check();
      continue;
    }
    uint64_t time = ps_tier_next_time(model.tier);
    if (time == UINT64_MAX && is_busy()) model_fail("commands wait for nothing", 0, 0);
    if (time <= model.now_ns && is_busy()) model_fail("next_time has passed", time, model.now_ns);
    if (is_busy()) model.now_ns = time;
  }
  model.is_draining = false;
}

/* After a clean end: flushed, nothing is unclean, no frame is held, and the medium has it all. */
static void check_clean(void) {
  struct ps_tier_stats stats;
  for (uint32_t volume = 0; volume < model.volume_count; volume++) {
    model.commands[volume] = (struct command){.kind = KIND_FLUSH,
                                              .stage = FLUSHING,
                                              .is_ready = true,
                                              .sync = true,
                                              .volume = volume,
                                              .length = UINT64_MAX};
  }
  drain();
  ps_tier_get_stats(model.tier, &stats);
  if (stats.frames_pinned != 0) model_fail("frames are still held", stats.frames_pinned, 0);
  for (uint32_t volume = 0; volume < model.volume_count; volume++) {
    const struct medium *medium = &model.media[volume];
    if (ps_tier_unflushed(model.tier, volume) != 0) model_fail("unflushed bytes", volume, 0);
    for (uint32_t i = 0; i < model.sizes[volume] / medium->block_size; i++) {
      if (medium->current[i] == latest(volume, i)) continue;
      model_fail("the medium has other bytes than were written", volume, i);
    }
    if (ps_tier_volume_remove(model.tier, volume) != 0) model_fail("remove failed", volume, 0);
  }
  ps_tier_get_stats(model.tier, &stats);
  if (stats.frames_free != model.config.frame_count) model_fail("frames leaked", 0, 0);
}

static void power_cut(void) {
  model.cuts++;
  for (uint32_t i = 0; i < model.flying_count; i++) {
    struct flying *flying = &model.flying[i];
    struct medium *medium = &model.media[flying->action.volume];
    uint8_t *frame = NULL;
    if (flying->action.op == PS_TIER_SYNC) continue;
    if (flying->action.op == PS_TIER_READ || chance(50)) continue;
    frame = frame_bytes(flying->action.frame);
    medium_end(medium, &model.random, flying, frame, 5); /* landed in part */
  }
  model.flying_count = 0;
  memset(model.commands, 0, sizeof(model.commands));
  for (uint32_t volume = 0; volume < model.volume_count; volume++) {
    struct medium *medium = &model.media[volume];
    medium_power_cut(medium, &model.random);
    medium_settle(medium, model.flying, 0, volume);
    for (uint32_t i = 0; i < model.sizes[volume] / medium->block_size; i++) {
      uint32_t data = medium->current[i];
      if (!is_allowed(volume, i, data, 0)) model_fail("a flushed write was lost", volume, i);
      restart_history(volume, i, data);
    }
  }
}

static void start_tier(void) {
  model.tier = ps_tier_new(&model.config);
  if (model.tier == NULL) model_fail("ps_tier_new refused", model.config.frame_count, 0);
  for (uint32_t i = 0; i < model.volume_count; i++) {
    int error = ps_tier_volume_add(model.tier, i, model.sizes[i], model.media[i].block_size);
    if (error != 0) model_fail("ps_tier_volume_add failed", i, 0);
  }
}

static void run(uint64_t seed) {
  uint64_t cuts = model.cuts;
  memset(&model, 0, offsetof(struct model, done));
  model.seed = seed;
  model.cuts = cuts;
  model.random.state = seed;
  model.volume_count = 1 + below(VOLUMES);
  uint32_t frames = 4 + below(chance(50) ? 6 : FRAMES - 3);
  model.config = (struct ps_tier_config){.frame_count = frames,
                                         .slot_size = SLOT,
                                         .extent_count = frames + below(10),
                                         .dirty_limit = 1 + below(frames - 3),
                                         .volume_count = VOLUMES,
                                         .unsynced_age_ns = 500000000,
                                         .writeback_age_ns = (uint64_t)below(1000) * 1000000,
                                         .retry_ns = 20000000,
                                         .frames = model.frames};
  for (uint32_t i = 0; i < model.volume_count; i++) {
    uint32_t block = 512u << below(4);
    uint64_t size = (uint64_t)(1 + below(12 * SLOT / block)) * block;
    medium_init(&model.media[i], size, block);
    model.sizes[i] = size;
    for (uint32_t b = 0; b < size / block; b++) restart_history(i, b, 0);
  }
  for (uint32_t life = 0; life < LIVES; life++) {
    start_tier();
    change_errors();
    uint32_t steps = 50 + below(800);
    for (uint32_t i = 0; i < steps; i++) {
      step();
      check();
    }
    if (life + 1 < LIVES || chance(50)) {
      power_cut();
    } else {
      drain();
      check_clean();
    }
    ps_tier_free(model.tier);
  }
}

static bool read_number(const char *text, uint64_t *number) {
  char *end = NULL;
  *number = strtoull(text, &end, 0);
  return end != text && *end == '\0';
}

int main(int argc, char **argv) {
  uint64_t seed, runs;
  if (argc != 3 || !read_number(argv[1], &seed) || !read_number(argv[2], &runs)) {
    fprintf(stderr, "usage: %s SEED RUNS (two numbers)\n", argv[0]);
    return 2;
  }
  for (uint64_t i = 0; i < runs; i++) run(seed + i);
  printf("%llu runs from seed %llu: %llu power cuts", (unsigned long long)runs,
         (unsigned long long)seed, (unsigned long long)model.cuts);
  static const char *const names[] = {"reads", "writes", "zeros", "flushes"};
  for (uint32_t i = 0; i < KIND_COUNT; i++) {
    printf(", %llu %s (%llu failed)", (unsigned long long)model.done[i], names[i],
           (unsigned long long)model.failed[i]);
  }
  printf("\n");
  return 0;
}
