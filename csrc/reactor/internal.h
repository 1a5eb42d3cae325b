/* What the files of the reactor share. See core.h for what the control plane sees.
 *
 * Threads: a reactor's own fields and its connections are touched by its thread alone. The tier,
 * the volumes and the namespace maps are touched under `core->lock`, which is never held over a
 * system call. A reactor takes it by reactor_lock, once for many commands when they have come
 * together. Mailboxes and the notice queue have small locks of their own.
 */
#ifndef PRESTAGE_REACTOR_INTERNAL_H
#define PRESTAGE_REACTOR_INTERNAL_H

#include <assert.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "core.h"
#include "engine.h"
#include "fields.h"
#include "hints.h"
#include "list.h"
#include "media.h"
#include "nvme.h"
#include "orders.h"
#include "ring.h"
#include "scheduler.h"
#include "tier.h"

enum {
  RECEIVE_BUFFER = 128 << 10, /* bytes a connection reads ahead at most; resident once used */
  RECEIVE_LEAST = 4 << 10,    /* ... or beside large payloads, which are */
  LARGE_PAYLOAD = 32 << 10,   /* of so many bytes */
  SEND_LARGE = 512 << 10,     /* ... which are sent in portions of this */
  RECEIVE_BUDGET = 512 << 10, /* bytes a connection may receive in one pass */
  SEND_IOVECS = 512,
  ADMIN_DATA = 8192, /* host data of an admin command at most (in-capsule limit, 8 KiB) */
  MEDIA_OPS = 1024,  /* media operations handed over by the tier at most, all volumes */
  ERROR_NOTICES = 256,
  COPY_RANGES = 16, /* MSRC + 1 */
};

struct task;
struct reactor;
struct connection;
struct command;
struct volume;

/* ---- tasks: what the tier or a gate may wake ---- */

/* First member of whatever waits. `run` is called in the thread of reactor waiter.owner. */
struct task {
  struct ps_tier_waiter waiter;
  void (*run)(struct reactor *reactor, struct task *task);
  struct link ready; /* in the ready list of its reactor */
  bool is_posted;    /* in the mailbox of its reactor; under the mailbox's lock */
};

/* ---- notices and messages ---- */

struct notice_node {
  struct link link;
  struct ps_notice notice;
  bool is_allocated; /* free it once it was taken */
};

enum message_kind {
  MESSAGE_ADOPT,
  MESSAGE_BIND,
  MESSAGE_ENABLE,
  MESSAGE_ANSWER,
  MESSAGE_QUIESCE,
  MESSAGE_ABORT,
  MESSAGE_CLOSE,
  MESSAGE_VOLUME_START,
  MESSAGE_VOLUME_RESIZE,
  MESSAGE_VOLUME_CONTROL,
  MESSAGE_VOLUME_FLUSH,
  MESSAGE_VOLUME_CLOSE,
  MESSAGE_STATS,
  MESSAGE_STOP
};

/* From the control thread to a reactor. `reply`, when set, is waited for by the sender. */
struct message {
  struct link link;
  enum message_kind kind;
  uint32_t connection;
  uint32_t slot;
  uint32_t cookie;
  uint32_t flag;
  uint16_t status;
  uint16_t cid;
  uint32_t dw0, dw1;
  uint64_t size;
  struct volume *volume;
  struct connection *opened;   /* ADOPT */
  struct ps_core_stats *stats; /* STATS: where to */
  struct ps_queue_config queue;
  const char *text[2]; /* CONTROL: kind and verb */
  char *error;         /* CONTROL: where to say why not */
  size_t error_size;
  struct reply *reply;
  uint32_t length;
  uint8_t data[];
};

struct reply {
  sem_t done;
  int result;
};

struct mailbox {
  pthread_mutex_t lock;
  struct link messages;
  struct ps_tier_waiter *woken; /* a stack by waiter->next */
  int event_fd;
  bool is_signalled;
};

/* ---- volumes ---- */

/* One operation under way, or waiting in the volume's scheduler. Neighbours that start together
 * hang on the first by item.merged, and its request is for them all. */
struct media_op {
  struct ps_sched_item item;
  struct ps_media_request request;
  struct iovec parts[PS_MEDIA_PARTS];
  struct volume *volume;
  struct task *owner;           /* a command's own operation (zero), or NULL: the tier's */
  struct media_op *first;       /* of the chain whose operations are tried alone, else NULL */
  struct media_op *next;        /* in the pool, or in what ended */
  struct media_op *same_ticket; /* in core->by_ticket */
  uint8_t *buffer;
  uint64_t cookie;   /* of the hints or of the orders: who wanted it; 0: nobody */
  uint32_t ticket;   /* the tier's */
  bool is_submitted; /* the medium has it, or is about to get it */
};

struct volume {
  struct ps_core *core;
  struct ps_media *media;
  struct ps_sched *sched;  /* under the lock, as all of the volume that commands look at */
  struct reactor *reactor; /* owns the medium */
  struct ps_media_limits limits;
  uint32_t number;
  uint32_t block_size;
  uint32_t block_shift;
  uint64_t size;
  bool write_through, read_only, is_started;
  /* Set by the control thread, cleared by the owner. A dead one is never used again. */
  _Atomic bool is_open, is_dead;
  _Atomic uint32_t messages; /* to the owner that it has not seen: so long it is not used again */
  _Atomic bool is_wanted;    /* its scheduler may have something to start; set under the lock */
  bool has_jobs;             /* hints and orders know its scheduler; under the lock */
  bool is_leaving;           /* they are about to forget it; under the lock */
  uint64_t look_ns; /* the owner's: when its scheduler has something although nobody wants */

  /* The gate: commands on ranges, and the one that wants its range alone. */
  struct link active;
  struct link gated;
  struct command *exclusive;
  uint32_t exclusive_blockers;

  struct ps_volume_stats stats;
  uint64_t read_latency[PS_LATENCY_BINS], write_latency[PS_LATENCY_BINS];

  struct volume_task *task; /* the flush or close under way */
  struct volume *next_dead;
};

/* A flush or close of a volume that the control plane asked for. */
struct volume_task {
  struct task task;
  struct volume *volume;
  uint32_t cookie;
  int error;
  bool is_close, abandon, is_flushed, is_counted;
  struct volume_task *next;
};

/* ---- connections ---- */

/* An admin or fabrics command that is with the control plane. */
struct admin_command {
  struct notice_node node;
  struct link waiting; /* in connection->admin_waiters */
  uint8_t *data;
  struct iovec iov;
  uint32_t length; /* of host data */
  uint32_t wanted; /* bytes that the host asks for */
  void *answer;
  /* by_r2t: its data comes by R2T. is_pooled: its buffer is one of core->admin_buffers. */
  bool is_used, by_r2t, is_pooled;
};

enum connection_state { CONNECTION_OPEN, CONNECTION_ENDING, CONNECTION_CLOSED };

struct connection {
  struct reactor *reactor;
  struct ps_engine *engine;
  int fd;
  uint32_t id;
  enum connection_state state;
  bool is_hanging_up; /* a FIN or an error stands behind what can be read */
  bool is_bound, is_readable, is_writable, close_after_output, wants_quiet;
  bool is_parsing;     /* kept bytes are being parsed as far as they go */
  bool brings_large;   /* payloads that are better received straight into their places */
  bool was_filled;     /* the last receive brought all that it had room for */
  uint8_t looks_saved; /* how often look_ahead need not look */
  uint32_t quiet_cookie;
  struct ps_queue_config queue;
  struct ps_hints_scope scope; /* whose its hints are */
  struct link all, ready, output, starved;
  uint64_t opened_ns;
  uint64_t closing_ns; /* since when close_after_output waits for output to leave */
  bool has_ended;      /* its commands have */
  uint32_t receive_offset, receive_length;
  uint32_t io_in_flight;
  uint32_t orphans;
  struct ps_engine_event held; /* the COMMAND whose in-capsule data has no room yet */
  bool has_held;
  bool gives_way;              /* in-capsule data that has no place at once is thrown away */
  struct command *fused_first; /* waits for its second */
  uint16_t fused_failed;       /* status of the command before: a first that has failed already */
  uint32_t shared;             /* frames of the tier's budget that its commands hold */
  struct link share_waiters;
  uint64_t moved_before; /* bytes both ways at the last look, once a second */
  uint32_t slow_seconds;
  uint32_t admin_receiving; /* admin commands whose data comes by R2T */
  uint32_t admin_answers;   /* bytes that admin commands under way were promised */
  struct link admin_waiters;
  uint8_t *memory;             /* of the engine, and of all that follows here */
  struct admin_command *admin; /* slot_count */
  uint8_t *commands;           /* slot_count * core->command_size; of I/O queues */
  uint8_t *receive_buffer;
  struct notice_node closed;
  _Atomic uint64_t last_command_ns, bytes_in, bytes_out, command_count;
  _Atomic uint32_t in_flight, digests;
};

/* ---- reactors ---- */

struct reactor {
  struct ps_core *core;
  uint32_t number;
  pthread_t thread;
  bool has_thread, stop;
  uint32_t lock_depth; /* how often it has taken the core's lock, and not given it back */
  int epoll_fd, timer_fd;
  uint64_t timer_ns; /* when the timer rings, or has rung */
  uint64_t now_ns;
  struct mailbox mailbox;
  struct link connections, finished, ready, output, starved;
  struct link serving;                    /* what a pass found of ready, tasks or output */
  struct link tasks;                      /* woken, of this reactor */
  struct link patient;                    /* tasks that have a turn when all else was done */
  struct connection **by_index;           /* max_connections */
  struct volume *volumes[PS_MAX_VOLUMES]; /* that it owns */
  uint32_t volume_count;
  struct volume *dead; /* abandoned, and not out of the tier yet */
  uint64_t next_second_ns;
  bool tier_changed;              /* actions or wakes may wait in the tier */
  _Atomic bool has_wanted;        /* one of its volumes is wanted; set by any reactor */
  uint64_t look_ns;               /* the earliest look_ns of its volumes */
  struct media_op *_Atomic ended; /* media operations that ended, from any thread */
  uint64_t must_signal;           /* reactors whose mailbox got something under the lock */
  bool must_wake_control;         /* a notice was posted */
  bool must_wake_model;           /* it waits for facts that are there */
  bool has_turn;                  /* the turn of a pass for what is patient is now */
  struct ps_core_stats stats;
  struct iovec iov[SEND_IOVECS];
};

struct ps_core {
  struct ps_core_config config;
  struct reactor *reactors;
  pthread_barrier_t connections_are_gone; /* of all reactors, when they stop */

  pthread_mutex_t lock; /* tier, hints, orders, schedulers, volumes, maps, media_op pool */
  struct ps_tier *tier;
  struct ps_hints *hints;
  struct ps_ring *ring;     /* NULL: none */
  struct ps_orders *orders; /* NULL: none are taken */
  uint64_t gauges_ns;       /* when the model is to be told of the gauges again */
  uint32_t carriers;        /* bits pax_carrier: of hints, that are taken */
  uint8_t *frames;
  size_t frames_size;
  uint32_t frame_count;
  bool keeps_frames; /* an abandoned medium may still use them */
  bool is_started;
  struct volume *volumes; /* PS_MAX_VOLUMES */
  struct namespace_map *maps;
  struct media_op *ops;
  struct media_op *free_ops;
  uint32_t free_op_count;
  struct media_op *by_ticket[MEDIA_OPS];  /* the tier's, by ticket % MEDIA_OPS */
  _Atomic uint64_t timer_ns;              /* when the first reactor moves on by itself */
  uint32_t receive_frames, receive_limit; /* frames of writes that wait for host data */
  uint32_t share, receive_share;          /* of one connection, in frames */
  uint32_t transfers;                     /* commands that hold some of the budget */
  uint32_t removals; /* of namespaces and volumes, that wait for commands to end */
  struct link receive_waiters;

  size_t command_size;
  uint32_t segments; /* extents of a command at most */
  uint32_t slot_shift;

  struct connection **connections; /* max_connections */
  uint16_t *generations;
  uint32_t connection_count;
  uint64_t connections_refused;
  _Atomic int32_t admin_buffers; /* left */

  pthread_mutex_t notice_lock;
  struct link notices;
  int wake_fd;
  int orders_wake_fd, ring_wake_fd; /* shared with the model; -1: none */
  struct ps_notice error_notices[ERROR_NOTICES];
  uint32_t error_head, error_count;
  uint64_t notices_lost;
  uint64_t *warm_tenants; /* bits: tenants whose warm-event log is to be told of */
  uint32_t warm_count;    /* ... of which so many are set */
  struct link consumed;   /* allocated nodes and closed connections to free at the next call */
};

/* A namespace is a volume, or the extension namespace of its subsystem, or there is none. */
struct namespace_slot {
  struct volume *volume;
  uint32_t users;
  bool is_extension, is_unmapping;
  uint32_t cookie;
};

struct namespace_map {
  struct namespace_slot *slots; /* PS_MAX_NSID + 1, made on first use */
  uint32_t extension_nsid;      /* 0: none */
};

static inline void core_lock(struct ps_core *core) { pthread_mutex_lock(&core->lock); }
static inline void core_unlock(struct ps_core *core) { pthread_mutex_unlock(&core->lock); }
static inline uint8_t *frame_bytes(const struct ps_core *core, uint32_t frame) {
  return core->frames + (size_t)frame * core->config.slot_size;
}
static inline struct command *command_at(const struct connection *connection, uint32_t slot) {
  return (struct command *)(connection->commands +
                            (size_t)slot * connection->reactor->core->command_size);
}
/* In the reactor's thread: the lock is held until each call has had its unlock. */
static inline void reactor_lock(struct reactor *reactor) {
  if (reactor->lock_depth++ == 0) core_lock(reactor->core);
}
static inline void reactor_unlock(struct reactor *reactor) {
  assert(reactor->lock_depth > 0);
  if (--reactor->lock_depth == 0) core_unlock(reactor->core);
}
static inline bool is_io_queue(const struct connection *connection) {
  return connection->is_bound && connection->queue.qid != 0;
}
uint64_t monotonic_ns(void);

/* notice.c */
bool notice_init(struct ps_core *core);
void notice_post(struct ps_core *core, struct notice_node *node);
void notice_send(struct ps_core *core, const struct ps_notice *notice);
void notice_io_error(struct ps_core *core, const struct ps_notice *notice);
void notice_wake(struct ps_core *core);
void notice_warm_event(struct ps_core *core, uint16_t tenant);
uint64_t notice_lost(struct ps_core *core);
void notice_release(struct ps_core *core);
void notice_end(struct ps_core *core);

/* mailbox.c */
int mailbox_init(struct mailbox *mailbox);
void mailbox_end(struct mailbox *mailbox);
void mailbox_post(struct mailbox *mailbox, struct message *message);
void mailbox_wake(struct mailbox *mailbox, struct task *task);
void mailbox_forget(struct mailbox *mailbox, struct task *task);
void mailbox_signal(struct mailbox *mailbox);
void mailbox_drain(struct reactor *reactor);

/* message.c */
void message_handle(struct reactor *reactor, struct message *message);

/* reactor.c */
void *reactor_main(void *argument);
void task_ready(struct reactor *reactor, struct task *task);
/* To be run again when everything else has been: one such task in each pass, or a few. */
void task_later(struct reactor *reactor, struct task *task);
void reactor_tell_time(struct reactor *reactor);
int reactor_watch(struct reactor *reactor, int fd, void *tag, uint32_t events);

struct reactor *reactor_current(void);
int volume_watch(struct reactor *reactor, struct volume *volume, int fd);

/* pump.c */
void pump(struct reactor *reactor);
bool pump_has_orders(const struct reactor *reactor);
void wake_task(struct reactor *reactor, struct task *task);
void volume_want(struct reactor *reactor, struct volume *volume);
void signal_others(struct reactor *reactor);
bool pump_is_wanted(const struct reactor *reactor);
uint64_t pump_next_time(const struct reactor *reactor);

/* media_op.c: with the lock held, but for op_submit and media_ended */
bool command_media(struct command *command, uint32_t kind, uint64_t offset, uint32_t length);
void op_start_actions(struct reactor *reactor);
bool op_may_fill(const struct ps_core *core, uint32_t urgency);
void op_promote(struct reactor *reactor);
struct media_op *op_popped(struct ps_sched_item *item);
void op_cancel(struct reactor *reactor, struct media_op *op);
void op_submit(struct media_op *op);
void media_ended(struct reactor *reactor);

/* volume.c */
int volume_start(struct reactor *reactor, struct volume *volume);
int volume_resize(struct reactor *reactor, struct volume *volume, uint64_t size);
int volume_control(struct volume *volume, const struct message *message);
uint32_t volume_work(const struct ps_core *core, const struct volume *volume, uint64_t beyond);
void volume_tell(struct volume *volume, uint64_t now_ns, struct ps_sched *sched);
void volume_abandon(struct reactor *reactor, struct volume *volume);
void volume_task_start(struct reactor *reactor, struct message *message);
void volume_retry(struct reactor *reactor);
void volume_bury(struct reactor *reactor);

/* namespace.c: with the lock held */
const struct namespace_slot *namespace_enter(struct ps_core *core, uint32_t subsystem,
                                             uint32_t nsid);
void namespace_leave(struct ps_core *core, uint32_t subsystem, uint32_t nsid);
bool namespace_resolve(void *context, uint32_t subsystem, uint32_t nsid,
                       struct ps_hints_namespace *result);

/* control_orders.c */
bool orders_init(struct ps_core *core);
void orders_end(struct ps_core *core);
void orders_wake_model(struct ps_core *core);

/* hint.c: with the lock held */
void hint_tell_events(struct ps_core *core);

/* connection.c */
struct connection *connection_new(struct ps_core *core, int fd, uint32_t id,
                                  struct reactor *reactor);
void connection_free(struct connection *connection);
void connection_open(struct reactor *reactor, struct connection *connection);
void connection_bind(struct connection *connection, const struct ps_queue_config *queue);
void connection_receive(struct connection *connection);
void connection_send(struct connection *connection);
void connection_resume(struct connection *connection);
const uint8_t *connection_data_at_hand(const struct connection *connection, uint32_t length);
void connection_wants_output(struct connection *connection);
void connection_end(struct connection *connection);
void connection_end_commands(struct connection *connection);
void connection_close(struct connection *connection);
void connection_finish(struct connection *connection);
void connections_tell_finished(struct reactor *reactor);
void connection_check_quiet(struct connection *connection);
void connection_check_time(struct connection *connection, uint64_t handshake_timeout_ns);
void connection_abandon(struct connection *connection);

/* look_ahead.c: with the lock held */
void look_ahead(struct connection *connection, uint32_t most);

/* admin.c */
bool admin_start(struct connection *connection, const struct ps_engine_event *event);
void admin_data(struct connection *connection, const struct ps_engine_event *event);
void admin_answer(struct connection *connection, const struct message *message);
void admin_sent(struct connection *connection, uint32_t slot);
void admin_free(struct connection *connection);

#include "command.h"

#endif
