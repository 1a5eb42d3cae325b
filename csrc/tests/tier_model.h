/* What the files of tier_model share: the state of a run, and its commands. */
#ifndef TIER_MODEL_H
#define TIER_MODEL_H

#include "tier_medium.h"

enum {
  SLOT = 16384,
  FRAMES = 32,
  VOLUMES = 3,
  COMMANDS = 12,
  HISTORY = 48,
  LIVES = 3,
  MOST_OTHERS = 3,
  TENANTS = 4,
  COOKIES = 1024,
  KEEPS = 64,
  EXTENT_BLOCKS = SLOT / 512
};

/* What a block was made to hold, in order. After a cut any of them from `first` on may be there. */
struct history {
  uint32_t data[HISTORY];
  uint64_t sequence[HISTORY];
  uint32_t length;
};

enum kind { KIND_READ, KIND_WRITE, KIND_ZERO, KIND_FLUSH, KIND_CLEAR, KIND_COUNT };
enum stage {
  IDLE,
  RESERVING,
  OTHERS,
  FRAME,
  RECEIVING,
  CHANGING,
  FLUSHING,
  HOLDING,
  FENCING,
  CLEARING
};

struct command {
  struct ps_tier_waiter waiter;
  enum kind kind;
  enum stage stage;
  bool is_ready; /* to be called: just begun, or woken */
  bool through, sync, has_flushed;
  struct ps_tier_access access;
  bool has_fence;
  bool is_gone; /* its host is; the medium has not ended its clearing */
  uint32_t volume, frame;
  uint32_t reserved; /* frames: its own, and others that it holds all the time */
  uint32_t others[MOST_OTHERS], other_count;
  uint64_t offset;
  uint64_t length;
  uint64_t flush_sequence;
  uint64_t resizes;             /* of the volume, when the frame was pinned */
  uint32_t data[EXTENT_BLOCKS]; /* of a write, or of what a read must keep seeing */
};

/* What ps_tier_keep said is kept. */
struct keep {
  uint32_t volume;
  uint64_t number, until_ns;
};

/* A hydrate, by its cookie. */
struct asked {
  uint32_t volume;
  uint64_t number;
  uint16_t tenant;
  uint8_t urgency;
  bool is_started;
};

struct hints {
  uint64_t cookies;
  struct asked asked[COOKIES];
  struct keep keeps[KEEPS];
  uint32_t keep_count;
  uint32_t limits[TENANTS];
};

struct model {
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
  uint32_t resize_percent;
  bool is_draining;
  bool puts_off; /* while draining: speculation waits for everything else */
  struct hints hints;
  struct command commands[COMMANDS];
  uint64_t done[KIND_COUNT], failed[KIND_COUNT], cuts;
  uint64_t reads_at_once, overwrites, promotions, hydrated_bytes, timely_hits, late_hits,
      wasted_bytes;
  uint8_t frames[FRAMES * SLOT];
};

extern struct model model;

static inline uint32_t below(uint32_t bound) { return random_below(&model.random, bound); }
static inline bool chance(uint32_t percent) { return random_chance(&model.random, percent); }

/* ---- tier_history.c: what blocks must hold ---- */
uint32_t history_latest(uint32_t volume, uint32_t block);
void history_restart(uint32_t volume, uint32_t block, uint32_t data);
void history_push(uint32_t volume, uint32_t block, uint32_t data);
/* True when a change of the range could not be remembered. */
bool history_is_long(uint32_t volume, uint64_t offset, uint64_t length);
/* True when the block may hold `data` although a flush that began at `sequence` has completed. */
bool history_allows(uint32_t volume, uint32_t block, uint32_t data, uint64_t sequence);
/* A flush that began at `sequence` has completed: older values must not come back. */
void history_raise_floor(uint32_t volume, uint32_t block, uint64_t sequence);

/* ---- tier_commands.c ---- */
bool pick_range(struct command *command);
void begin_command(struct command *command);
void step_command(struct command *command);
/* The host goes away: at any stage. */
void abort_command(struct command *command);
uint8_t *frame_bytes(uint32_t frame);

/* ---- tier_clears.c: commands that clear a range on the medium themselves, alone on it ---- */
bool begin_clear(struct command *command);
void clear_stage(struct command *command);
/* The medium has cleared the range, or has failed to. */
void clear_ended(struct command *command, int32_t error);
void abort_clear(struct command *command);
/* A clear is under way on blocks of the range: no other command may begin there. */
bool is_being_cleared(uint32_t volume, uint64_t offset, uint64_t length);
bool has_fence(uint32_t volume);
void end_command(struct command *command, bool is_failed);

/* ---- tier_hints.c ---- */
struct ps_tier_access random_access(void);
uint64_t random_time(void);
/* The tier is new. */
void start_hints(void);
/* Hydrates or keeps something, or starts the fills of a read that does not wait. */
void hint(void);
void prune_keeps(void);
void check_hint_action(const struct ps_tier_action *action);
void take_promotions(void);

/* ---- tier_values.c: the value tables, and who is evicted ---- */
/* Hears of what is evicted. */
struct ps_ring *values_ring(void);
/* The tier is new. */
void start_values(void);
void change_values(void);
/* Classifies some range. */
void classify(void);
/* What something may be worth now. */
float some_worth(void);
/* What a hydrate has just evicted, and what was evicted in the last step. */
void check_hint_evictions(const struct ps_tier_access *access);
void check_evictions(void);

/* ---- tier_model.c ---- */
void issue_clear(const struct command *command);

#endif
