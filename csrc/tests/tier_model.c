/* The byte-exact model test of the DRAM tier.
 *
 *   tier_model SEED RUNS
 *
 * Each run is one seed: a small tier, a few volumes, and commands that read, write, zero, clear,
 * flush, resize and abort for several tenants in random interleavings, among hints that hydrate and
 * keep, while media operations end in any order, late, or in error, and power cuts end the tier's
 * life three times. Every byte that is read must be exactly what was last written; after a cut
 * every block must hold what it held when a flush of it that completed began, or something newer;
 * all waiting must end, even when speculation is put off for everything else; no hint takes what is
 * not for hints; what is evicted is what random value tables say that it is; ps_tier_check holds
 * after each step. Prints the seed and aborts when anything is
 * wrong.
 */
#include "tier_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model model;

void model_fail(const char *what, uint64_t a, uint64_t b) {
  fprintf(stderr, "tier_model: seed %llu: %s (%llu, %llu)\n", (unsigned long long)model.seed, what,
          (unsigned long long)a, (unsigned long long)b);
  abort();
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

static bool overlaps(const struct ps_tier_action *one, const struct ps_tier_action *other) {
  return one->offset < other->offset + other->length && other->offset < one->offset + one->length;
}

static void check_overlap(const struct ps_tier_action *action) {
  for (uint32_t i = 0; i < model.flying_count; i++) {
    const struct ps_tier_action *other = &model.flying[i].action;
    bool are_apart = other->volume != action->volume || !overlaps(action, other);
    bool is_pair = other->op + action->op == PS_TIER_WRITE + MEDIUM_CLEAR;
    if (is_pair && !are_apart) model_fail("a media write of what is cleared", action->offset, 0);
    if (other->volume != action->volume || other->op != action->op) continue;
    if (other->op == PS_TIER_READ) continue;
    if (other->op == MEDIUM_CLEAR) continue;
    if (other->op == PS_TIER_SYNC) model_fail("two syncs of a volume at once", 0, 0);
    if (other->offset / SLOT == action->offset / SLOT) {
      model_fail("two media writes of an extent at once", action->offset, other->offset);
    }
  }
}

static bool issue_one(void) {
  struct flying *flying = &model.flying[model.flying_count];
  if (model.flying_count == MEDIUM_FLYING) model_fail("too much media work", 0, 0);
  if (!ps_tier_next_action(model.tier, model.now_ns, PS_TIER_SPECULATIVE, &flying->action))
    return false;
  check_overlap(&flying->action);
  check_hint_action(&flying->action);
  const uint8_t *frame = NULL;
  if (flying->action.op != PS_TIER_SYNC) frame = frame_bytes(flying->action.frame);
  medium_issue(&model.media[flying->action.volume], &model.random, flying, frame);
  model.flying_count++;
  return true;
}

void issue_clear(const struct command *command) {
  struct flying *flying = &model.flying[model.flying_count];
  if (model.flying_count == MEDIUM_FLYING) model_fail("too much media work", 0, 0);
  flying->action = (struct ps_tier_action){.op = MEDIUM_CLEAR,
                                           .volume = command->volume,
                                           .offset = command->offset,
                                           .length = (uint32_t)command->length,
                                           .ticket = (uint32_t)(command - model.commands)};
  check_overlap(&flying->action);
  medium_issue(&model.media[command->volume], &model.random, flying, NULL);
  model.flying_count++;
}

static int32_t pick_error(uint32_t op) {
  uint32_t rates[] = {0, model.read_errors, model.write_errors, model.sync_errors};
  if (model.is_draining || !chance(op == MEDIUM_CLEAR ? model.write_errors : rates[op])) return 0;
  return op == PS_TIER_WRITE && chance(50) ? 28 : 5;
}

static bool is_put_off(uint32_t number) {
  const struct ps_tier_action *action = &model.flying[number].action;
  return model.puts_off && action->op == PS_TIER_READ && action->urgency == PS_TIER_SPECULATIVE;
}

static void end_one(void) {
  if (model.flying_count == 0) return;
  uint32_t chosen = below(model.flying_count);
  for (uint32_t i = 0; i < model.flying_count && is_put_off(chosen); i++) {
    chosen = (chosen + 1) % model.flying_count;
  }
  struct flying *flying = &model.flying[chosen];
  uint32_t ticket = flying->action.ticket;
  uint32_t volume = flying->action.volume;
  uint32_t op = flying->action.op;
  int32_t error = pick_error(op);
  uint8_t *frame = NULL;
  if (op != PS_TIER_SYNC && op != MEDIUM_CLEAR) frame = frame_bytes(flying->action.frame);
  medium_end(&model.media[volume], &model.random, flying, frame, error);
  *flying = model.flying[--model.flying_count];
  if (op == MEDIUM_CLEAR) {
    clear_ended(&model.commands[ticket], error);
  } else {
    ps_tier_complete(model.tier, model.now_ns, ticket, error);
  }
  medium_settle(&model.media[volume], model.flying, model.flying_count, volume);
}

static void resize(void) {
  uint32_t volume = below(model.volume_count);
  struct medium *medium = &model.media[volume];
  uint64_t old = model.sizes[volume];
  uint32_t block = medium->block_size;
  if (medium->is_shrinking) return;
  uint64_t size = (uint64_t)below(12 * SLOT / block) * block;
  int result = ps_tier_volume_resize(model.tier, volume, size);
  /* Somebody clears, or reads what it would cut. */
  if (result == -EBUSY && (has_fence(volume) || size < medium->size)) return;
  if (result != 0) model_fail("resize failed", size, 0);
  medium_resize(medium, size);
  model.sizes[volume] = size;
  model.resizes[volume]++;
  model.sequence++;
  uint64_t from = size < old ? size : old;
  uint64_t to = size < old ? old : size;
  for (uint64_t at = from / block; at < to / block; at++) {
    history_restart(volume, (uint32_t)at, 0);
  }
  medium_settle(medium, model.flying, model.flying_count, volume);
}

/* ---- a life ---- */

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
  } else if (what < 570) {
    /* Now and then one calls again that was not woken: it may, and loses its turn. */
    if (command->is_ready || (command->stage != IDLE && chance(2))) step_command(command);
  } else if (what < 730) {
    (void)issue_one();
  } else if (what < 860) {
    end_one();
  } else if (what < 915) {
    hint();
  } else if (what < 953) {
    take_promotions();
  } else if (what < 988) {
    model.now_ns += (uint64_t)below(chance(10) ? 3000 : 20) * 1000000;
  } else if (what < 991) {
    if (command->stage != IDLE) abort_command(command);
  } else if (what < 997) {
    change_errors();
  } else if (chance(model.resize_percent)) {
    resize();
  }
}

static void check(void) {
  int failed = ps_tier_check(model.tier);
  if (failed != 0) model_fail("ps_tier_check", (uint64_t)failed, 0);
  check_evictions();
  prune_keeps();
  wake_commands();
}

static bool is_busy(void) {
  for (uint32_t i = 0; i < COMMANDS; i++) {
    if (model.commands[i].stage != IDLE) return true;
  }
  return model.flying_count != 0;
}

/* Steps every command that can go on; false when none could. */
static bool step_ready(void) {
  bool has_stepped = false;
  check();
  for (uint32_t i = 0; i < COMMANDS; i++) {
    if (!model.commands[i].is_ready) continue;
    step_command(&model.commands[i]);
    check();
    has_stepped = true;
  }
  return has_stepped;
}

/* Everything that was begun must end by media work and time alone. Asking for media work may wake
 * a command although there is none: time alone makes a frame evictable. */
static void drain(void) {
  model.is_draining = true;
  model.puts_off = chance(50);
  for (uint32_t round = 0; is_busy(); round++) {
    if (round == 20000) model_fail("commands wait for ever", model.flying_count, 0);
    (void)step_ready();
    take_promotions();
    if (issue_one() || step_ready()) continue;
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
  model.puts_off = false;
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
      if (medium->current[i] == history_latest(volume, i)) continue;
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
    if (flying->action.op == PS_TIER_WRITE) frame = frame_bytes(flying->action.frame);
    medium_end(medium, &model.random, flying, frame, 5); /* landed in part */
  }
  model.flying_count = 0;
  for (uint32_t volume = 0; volume < model.volume_count; volume++) {
    struct medium *medium = &model.media[volume];
    medium_power_cut(medium, &model.random);
    medium_settle(medium, model.flying, 0, volume);
    for (uint32_t i = 0; i < model.sizes[volume] / medium->block_size; i++) {
      uint32_t data = medium->current[i], size = medium->block_size;
      bool is_cleared = data == 0 && is_being_cleared(volume, (uint64_t)i * size, size);
      if (!is_cleared && !history_allows(volume, i, data, 0))
        model_fail("a flushed write was lost", volume, i);
      history_restart(volume, i, data);
    }
  }
  memset(model.commands, 0, sizeof(model.commands));
}

static void start_tier(void) {
  model.tier = ps_tier_new(&model.config);
  if (model.tier == NULL) model_fail("ps_tier_new refused", model.config.frame_count, 0);
  for (uint32_t i = 0; i < model.volume_count; i++) {
    int error = ps_tier_volume_add(model.tier, i, model.sizes[i], model.media[i].block_size);
    if (error != 0) model_fail("ps_tier_volume_add failed", i, 0);
  }
  start_hints();
  start_values();
}

static void count_hints(void) {
  struct ps_tier_stats stats;
  ps_tier_get_stats(model.tier, &stats);
  model.hydrated_bytes += stats.hydrated_bytes;
  model.wasted_bytes += stats.wasted_bytes;
  model.timely_hits += stats.timely_hits;
  model.late_hits += stats.late_hits;
}

static void run(uint64_t seed) {
  uint64_t cuts = model.cuts;
  memset(&model, 0, offsetof(struct model, done));
  model.seed = seed;
  model.cuts = cuts;
  model.random.state = seed;
  model.volume_count = 1 + below(VOLUMES);
  model.resize_percent = chance(30) ? 100 : 10;
  uint32_t frames = 4 + below(chance(50) ? 6 : FRAMES - 3);
  model.config = (struct ps_tier_config){.frame_count = frames,
                                         .slot_size = SLOT,
                                         .extent_count = frames + below(10),
                                         .dirty_limit = 1 + below(frames - 3),
                                         .volume_count = VOLUMES,
                                         .tenant_count = TENANTS,
                                         .unsynced_age_ns = 500000000,
                                         .writeback_age_ns = (uint64_t)below(1000) * 1000000,
                                         .retry_ns = 20000000,
                                         .frames = model.frames,
                                         .ring = values_ring()};
  for (uint32_t i = 0; i < model.volume_count; i++) {
    uint32_t block = 512u << below(4);
    uint64_t size = (uint64_t)(1 + below(12 * SLOT / block)) * block;
    medium_init(&model.media[i], size, block);
    model.sizes[i] = size;
    for (uint32_t b = 0; b < size / block; b++) history_restart(i, b, 0);
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
    count_hints();
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
  static const char *const names[] = {"reads", "writes", "zeros", "flushes", "clears"};
  for (uint32_t i = 0; i < KIND_COUNT; i++) {
    printf(", %llu %s (%llu failed)", (unsigned long long)model.done[i], names[i],
           (unsigned long long)model.failed[i]);
  }
  printf(", %llu reads at once, %llu overwrites, %llu promotions, %llu timely, %llu late",
         (unsigned long long)model.reads_at_once, (unsigned long long)model.overwrites,
         (unsigned long long)model.promotions, (unsigned long long)model.timely_hits,
         (unsigned long long)model.late_hits);
  printf(", %llu of %llu bytes wasted\n", (unsigned long long)model.wasted_bytes,
         (unsigned long long)model.hydrated_bytes);
  return 0;
}
