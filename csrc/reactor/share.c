/* What one connection may hold of the tier's budget, and the end of hosts that hold it too long.
 *
 * A read holds its frames until the host has taken its bytes, a write from its R2T until they have
 * come. Whoever neither reads nor sends would keep the budget from everybody else: so a connection
 * holds a small share of it, its further commands wait behind its own (and not before others'), and
 * when the budget is short although, a connection that owes too long is ended. So it is when a
 * namespace is to be removed and hosts hold something of it.
 */
#include <assert.h>
#include <sys/socket.h>

#include "internal.h"

enum {
  SHARES = 32,         /* of the budget: so many connections at least can hold frames at once */
  RECEIVE_SHARES = 16, /* of what waits for host data */
  STALL_SECONDS = 3,   /* an end after so many seconds, */
  STALL_BYTES = 16384, /* with less than this in each of them, */
  HELD_UP = 2          /* or so many times that where what it owes may have come */
};

static uint32_t larger(uint32_t one, uint32_t other) { return one > other ? one : other; }

void share_init(struct ps_core *core) {
  core->share = larger(2 * core->segments, ps_tier_budget(core->tier) / SHARES);
  core->receive_share = larger(core->segments, core->receive_limit / RECEIVE_SHARES);
}

/* A command that needs more than a share has its connection's to itself. */
static bool fits(const struct command *command, uint32_t frames) {
  const struct connection *connection = command->connection;
  const struct ps_core *core = connection->reactor->core;
  uint32_t limit = command->receives ? core->receive_share : core->share;
  return connection->shared == 0 || connection->shared + frames <= limit;
}

/* `frames` count as held by the command's connection from now on. */
void share_take(struct command *command, uint32_t frames) {
  command->connection->shared += frames;
  command->shared = frames;
}

/* Whether the share has room for `frames` more, and nobody waits for it. */
bool share_is_free(const struct command *command, uint32_t frames) {
  return list_is_empty(&command->connection->share_waiters) && fits(command, frames);
}

/* True once `frames` count as held by the command's connection; false: it is woken. Lock held.
 * In-capsule data never waits here: nothing behind it in the stream can be read until it has a
 * place, and the data of those who hold the share is behind it. */
bool share_enter(struct command *command, uint32_t frames) {
  struct connection *connection = command->connection;
  assert(frames > 0);
  if (command->in_capsule || command->shared > 0) return true;
  if (link_is_in(&command->share_wait)) return false;
  if (!share_is_free(command, frames)) {
    command->share_wanted = frames;
    list_append(&connection->share_waiters, &command->share_wait);
    return false;
  }
  share_take(command, frames);
  return true;
}

void share_leave(struct command *command) {
  struct connection *connection = command->connection;
  assert(connection->shared >= command->shared);
  if (link_is_in(&command->share_wait)) list_remove(&command->share_wait);
  connection->shared -= command->shared;
  command->shared = 0;
  while (!list_is_empty(&connection->share_waiters)) {
    struct command *next = CONTAINER(connection->share_waiters.next, struct command, share_wait);
    if (!fits(next, next->share_wanted)) return;
    list_remove(&next->share_wait);
    share_take(next, next->share_wanted);
    wake_task(connection->reactor, &next->task);
  }
}

/* ---- hosts that owe ---- */

/* Whether commands, or a namespace that is being removed, wait for what others hold. */
bool share_is_short(struct ps_core *core) {
  core_lock(core);
  bool is_short =
      !list_is_empty(&core->receive_waiters) || ps_tier_is_short(core->tier) || core->removals > 0;
  core_unlock(core);
  return is_short;
}

/* The command at whose capsule the input stands, for its data has no place yet; or NULL. */
static struct command *stands_at(const struct connection *connection) {
  for (uint32_t slot = 0; slot < connection->reactor->core->config.queue_depth; slot++) {
    struct command *command = command_at(connection, slot);
    if (command->is_used && lacks_place(command)) return command;
  }
  return NULL;
}

/* It is the host's turn to send: its data, or the second of a pair. */
static bool waits_for_input(const struct command *command) {
  if (command->responded || lacks_place(command)) return false;
  return (command->asked_data && !command->has_data) || command->connection->fused_first == command;
}

/* The first of a pair holds for both. */
static bool holds_budget(const struct command *command) {
  const struct command *mate = command->mate;
  uint32_t of_mate = mate != NULL ? mate->reserved + mate->shared : 0;
  return command->reserved + command->shared + of_mate > 0;
}

/* It is the host's turn to take what is held for it. */
static bool waits_for_output(const struct command *command) {
  return command->responded && command->reserved > 0;
}

/* Whether what holds a part of the budget has waited longer than `limit_ns` for the host. */
static bool owes(const struct connection *connection, bool (*waits)(const struct command *command),
                 uint64_t limit_ns) {
  const struct reactor *reactor = connection->reactor;
  for (uint32_t slot = 0; slot < reactor->core->config.queue_depth; slot++) {
    const struct command *command = command_at(connection, slot);
    if (command->is_used && holds_budget(command) && waits(command) &&
        reactor->now_ns - command->host_ns > limit_ns)
      return true;
  }
  return false;
}

/* A host that does not read owes whatever else it sends. Of one that is to send, those who hold the
 * budget that its own capsule waits for are ended first. If nobody is left who owes, all that is
 * waited for may stand behind such capsules: then these go without a place. */
static bool is_to_end(struct connection *connection) {
  const uint64_t limit_ns = (uint64_t)STALL_SECONDS * 1000000000;
  if (owes(connection, waits_for_output, limit_ns)) return true;
  struct command *at = stands_at(connection);
  bool is_held_up = at != NULL || connection->has_held;
  if (!owes(connection, waits_for_input, is_held_up ? HELD_UP * limit_ns : limit_ns)) return false;
  if (at == NULL) return true;
  connection->gives_way = true;
  command_run(connection->reactor, &at->task);
  return false;
}

/* Once a second. With a reset, so that the system does not keep what the host does not take. */
void share_check(struct connection *connection, bool is_short) {
  assert(connection != NULL);
  uint64_t moved = atomic_load_explicit(&connection->bytes_in, memory_order_relaxed) +
                   atomic_load_explicit(&connection->bytes_out, memory_order_relaxed);
  bool is_slow = moved - connection->moved_before < STALL_BYTES;
  connection->moved_before = moved;
  connection->slow_seconds = is_slow ? connection->slow_seconds + 1 : 0;
  connection->gives_way = false;
  if (!is_short || connection->slow_seconds < STALL_SECONDS) return;
  if (connection->state != CONNECTION_OPEN || !is_io_queue(connection)) return;
  if (!is_to_end(connection)) return;
  const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  connection->reactor->stats.connections_stalled++;
  connection_end(connection);
}
