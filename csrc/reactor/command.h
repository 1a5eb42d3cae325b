/* A command of an I/O queue, and what the files that carry commands out share: the second half of
 * internal.h, which includes it. */
#ifndef PRESTAGE_REACTOR_COMMAND_H
#define PRESTAGE_REACTOR_COMMAND_H

/* A command of an I/O queue while it runs. `step` is called again after each wait. */
struct command {
  struct task task;
  uint8_t sqe[64];
  /* Its place: what command_prepare has made of it. */
  struct connection *connection;
  uint32_t *fresh;   /* frames that host data goes to, or is made in */
  uint32_t *pins;    /* frames pinned for reading */
  struct iovec *iov; /* one per extent */
  uint32_t slot;
  /* From here on a new command begins with zeros. First what is looked at again when it is gone:
   * many are under way, and each line of the cache that they do not touch counts. */
  uint32_t reserved; /* frames held of the tier's budget */
  uint32_t shared;   /* frames that count as its connection's */
  uint16_t status;
  uint16_t fresh_count, pin_count, done_count, receive_frames;
  /* is_used: from the capsule to SENT. committed: past the point where Abort can end it. orphaned:
   * its connection ended while its own media operation was under way. is_clearing: it has its range
   * fenced in the tier. sends_data: when it succeeds. is_touched: the hints know of it, and are to
   * be told of its end. has_missed: it waited for a fill. has_waited: somebody may have woken it.
   */
  bool is_used, in_capsule, asked_data, has_data, digest_error, committed, is_gated, fua, orphaned,
      responded, counts_receive, receives, reserves_alone, flushing, filling, is_clearing,
      on_extension, sends_data, is_touched, has_missed, has_waited;
  uint8_t stage, range_stage, part;
  struct link receive_wait; /* in core->receive_waiters */
  struct link share_wait;   /* in connection->share_waiters */
  struct volume *volume;    /* NULL: the extension namespace, or none */
  enum step (*step)(struct command *command);
  uint64_t started_ns;
  uint64_t host_ns; /* since when it is the host's turn: to send, or to take its data */
  uint64_t offset;  /* bytes into the volume */
  uint64_t fail_offset;
  uint64_t gate_offset, gate_length;
  uint32_t length;
  uint32_t data_length; /* of host data that is expected */
  uint32_t nsid;
  uint32_t entered_nsid;  /* the namespace it counts as a user of; 0: none */
  struct link active;     /* in volume->active or volume->gated */
  const uint8_t *at_hand; /* its data, all of it received with its capsule; only when it starts */
  struct ps_tier_access access; /* how its reads are to be made */
  struct ps_hints_read read;    /* Reads: what the hints are told */
  uint32_t dw0, dw1;            /* of its completion */
  uint32_t share_wanted;
  uint32_t index;           /* of a list: of ranges, of pages */
  uint32_t media_under_way; /* own media operations */
  int32_t media_error;
  struct command *mate; /* the other of a fused pair */
  /* From here on a new Read is what the last command left: no Read looks at it. */
  uint64_t cursor;                   /* range commands: how far they are */
  uint64_t clear_offset, clear_end;  /* ... and what of the range the medium clears */
  struct ps_hints_progress progress; /* of the batch that is being taken */
};

enum step { STEP_WAIT, STEP_DONE };

/* gate.c: with the lock held */
bool gate_enter(struct command *command, bool exclusive);
bool gate_is_free(const struct command *command);
void gate_leave(struct command *command);

/* command.c */
void command_prepare(struct connection *connection, uint32_t slot);
void command_start(struct connection *connection, const struct ps_engine_event *event);
void command_data(struct connection *connection, const struct ps_engine_event *event);
void command_sent(struct connection *connection, uint32_t slot);
void command_run(struct reactor *reactor, struct task *task);
bool command_abort(struct connection *connection, uint32_t slot);
void break_pair(struct connection *connection);
void command_end_all(struct connection *connection);
void command_media_ended(struct reactor *reactor, struct command *command, int32_t error);
void receive_data(struct command *command, uint32_t iov_count, uint32_t length);

/* rw.c: with the lock held */
bool settle(struct command *command);

/* range.c: with the lock held */
void end_clear(struct command *command, bool is_cleared);

/* parse.c: 0, or the status to end the command with */
uint16_t command_parse(struct command *command, const struct ps_engine_event *event);
uint32_t command_block_shift(const struct command *command);
uint64_t command_blocks(const struct command *command);

/* transfer.c: with the lock held */
uint32_t segment_count(const struct command *command);
void fail(struct command *command, int32_t error, bool is_write);
void leave_receive(struct command *command);
bool reserve_frames(struct command *command, uint32_t reserve);
bool answer_frames(struct command *command, uint32_t count);
bool take_frames(struct command *command, uint32_t fresh, uint32_t reserve);
bool receive_fresh(struct command *command, uint32_t reserve);
bool receive_parameters(struct command *command, uint32_t reserve);
bool publish_fresh(struct command *command, struct command *source);
bool make_durable(struct command *command, uint64_t offset, uint64_t length, bool sync);
bool pin_at_once(struct command *command);
bool pin_range(struct command *command);
uint32_t pinned_iov(struct command *command);
uint32_t fresh_iov(struct command *command);
void drop_pins(struct command *command);
void drop_fresh(struct command *command);
void drop_all(struct command *command);

/* hint.c: with the lock held */
struct ps_hints_scope hint_scope(const struct connection *connection);
void hint_touch(struct command *command);
void hint_read_missed(struct command *command);
void hint_read_ended(struct command *command);
void hint_written(struct command *command, uint64_t offset, uint64_t length, bool is_discard);
bool hint_take_batch(struct command *command, uint32_t mailbox, const uint8_t *bytes,
                     uint32_t size);
void hint_dataset(struct command *command, const uint8_t *ranges, uint32_t count);

/* share.c: with the lock held, but for share_is_short and share_check */
void share_init(struct ps_core *core);
bool share_is_free(const struct command *command, uint32_t frames);
void share_take(struct command *command, uint32_t frames);
bool share_enter(struct command *command, uint32_t frames);
void share_leave(struct command *command);
bool share_is_short(struct ps_core *core);
void share_check(struct connection *connection, bool is_short);

/* What others should not wait for is done in turns: is it one? If not, `step_later` asks for it. */
static inline bool has_turn(const struct command *command) {
  return command->connection->reactor->has_turn;
}

static inline enum step step_later(struct command *command) {
  task_later(command->connection->reactor, &command->task);
  return STEP_WAIT;
}

/* A step is over when its work is done, or when the command failed with a status. */
static inline enum step step_of(const struct command *command, bool is_done) {
  return is_done || command->status != 0 ? STEP_DONE : STEP_WAIT;
}

/* Its data stands in its capsule, and nothing behind that is read until it has a place. */
static inline bool lacks_place(const struct command *command) {
  return command->in_capsule && !command->asked_data && !command->responded;
}

/* The first of a fused pair: FUSE, bits 1:0 of byte 1 (Base 2.0, 3.3.3.1). */
static inline bool is_first_of_pair(const struct command *command) {
  return (command->sqe[1] & 0x03) == 1;
}

/* How the other of a fused pair ends: the pair can be sent again where what failed can be. */
static inline uint16_t aborted_beside(uint16_t status) {
  assert(status != 0);
  return (uint16_t)(PS_SC_ABORTED_FUSED | (status & PS_DNR));
}

/* The execute functions, one file each. */
enum step read_step(struct command *command);
enum step write_step(struct command *command);
enum step flush_step(struct command *command);
enum step compare_step(struct command *command);
enum step fused_write_step(struct command *command);
enum step zeroes_step(struct command *command);
enum step verify_step(struct command *command);
enum step dsm_step(struct command *command);
enum step copy_step(struct command *command);
enum step submit_step(struct command *command);
enum step query_step(struct command *command);
enum step extension_read_step(struct command *command);
enum step extension_write_step(struct command *command);
enum step no_step(struct command *command);

#endif
