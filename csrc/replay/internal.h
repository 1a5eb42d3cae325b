/* What the files of the replay core share; everything else is static in its file.
 *
 * The core is a reactor without sockets: command.c is what reactor/rw.c, hint.c and command.c do
 * with commands, media_op.c and pump.c are those of the reactor, run.c is its loop, on a clock that
 * stands still while there is something to do. What they do in which order is the same, so that
 * the tier and the scheduler see here what they see there.
 */
#ifndef PRESTAGE_REPLAY_INTERNAL_H
#define PRESTAGE_REPLAY_INTERNAL_H

#include <assert.h>

#include "../replay.h"

#define REPLAY_OPS 1024 /* media operations handed over by the tier at most, as in a reactor */

#define CONTAINER(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* An event that has begun and not ended. */
struct command {
  struct ps_tier_waiter waiter; /* `next` is the tier's; lists of ours go by next_command */
  struct command *next_command;
  struct ps_replay_result *result;
  struct ps_hints_scope scope;
  struct ps_hints_read read; /* also of a write: its range */
  struct ps_tier_access access;
  struct ps_hints_progress progress; /* of a batch that is taken in parts */
  const uint8_t *batch;
  uint64_t arrived_ns;
  uint32_t batch_size;
  uint32_t frame; /* of a write */
  uint8_t op;     /* enum ps_replay_op */
  uint8_t stage;
  uint8_t state;   /* enum ps_replay_state: what its result will be */
  bool is_ready;   /* stands in the list of tasks */
  bool has_missed; /* it waited for a fill, which is what the facts call no hit */
};

struct command_list {
  struct command *first, *last;
};

/* An operation of the medium, as reactor/internal.h has it. */
struct media_op {
  struct ps_sched_item item;
  struct ps_flash_item flash;
  struct media_op *next; /* free ones */
  struct media_op *same_ticket;
  uint64_t cookie;
  uint32_t ticket;
  bool is_submitted;
  bool is_fetch; /* began as a hydrate: nobody waited for it */
};

/* Commands come in blocks that are never given back before the end. */
struct command_block;

/* The stream that is being run: valid during ps_replay_run. */
struct stream {
  const struct ps_replay_event *events;
  const uint8_t *data;
  struct ps_replay_result *results;
  uint64_t at, count, data_bytes;
};

struct ps_replay {
  struct ps_replay_config config;
  struct ps_tier *tier;
  struct ps_sched *sched;
  struct ps_flash *flash;
  struct ps_ring *ring;     /* NULL: there is none */
  struct ps_orders *orders; /* NULL: none are taken */
  struct ps_hints *hints;
  struct stream stream;
  uint64_t now_ns;
  uint64_t passed_ns; /* when the last pass was */
  uint64_t look_ns;   /* when to ask the scheduler although nobody said so */
  uint64_t timer_ns;  /* of the tier, the hints and the orders */
  uint64_t flash_ns;  /* when the next operation ends */
  bool is_wanted;     /* the scheduler is to be asked */
  bool tier_changed;
  bool took_hints; /* in this pass */
  struct command_list tasks;
  struct command *free_commands;
  struct command_block *blocks;
  uint64_t pending;
  struct media_op *ops;
  struct media_op *free_ops;
  struct media_op *by_ticket[REPLAY_OPS];
  uint32_t free_op_count;
  struct ps_replay_stats stats;
};

/* command.c */
void replay_begin(struct ps_replay *replay, const struct ps_replay_event *event,
                  struct ps_replay_result *result);
void replay_woken(struct ps_replay *replay, struct ps_tier_waiter *waiter);
void replay_run_tasks(struct ps_replay *replay);
void replay_free_commands(struct ps_replay *replay);

/* media_op.c */
bool replay_op_may_fill(const struct ps_replay *replay, uint32_t urgency);
void replay_op_promote(struct ps_replay *replay);
void replay_op_start_actions(struct ps_replay *replay);
void replay_op_submit(struct ps_replay *replay, struct ps_sched_item *item);
void replay_op_reap(struct ps_replay *replay);
bool replay_op_init(struct ps_replay *replay);

/* pump.c */
void replay_pump(struct ps_replay *replay);
bool replay_has_orders(const struct ps_replay *replay);
uint64_t replay_pump_time(const struct ps_replay *replay);

#endif
