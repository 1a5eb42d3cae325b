/* One TCP connection: receive into the engine, carry out its events, send its output, end. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "internal.h"

enum { DESTINATIONS = 64, LINGER_NS = 1000000000 };
enum { TOGETHER = 32 }; /* events that are handled under one lock: then others have it */

static struct ps_engine_config engine_config(const struct ps_core_config *config) {
  return (struct ps_engine_config){.role = PS_ROLE_TARGET,
                                   .slot_count = config->queue_depth,
                                   .max_h2c_data = config->max_h2c_data,
                                   .in_capsule_size = ADMIN_DATA,
                                   .digests = config->digests};
}

/* Where the parts of a connection's memory are; all of it is one mapping, and only what is used of
 * it becomes resident: most queues are never as deep as they might be. */
struct layout {
  size_t admin, commands, receive_buffer, size;
};

static struct layout layout_of(const struct ps_core *core) {
  struct ps_engine_config config = engine_config(&core->config);
  struct layout layout;
  layout.admin = (ps_engine_size(&config) + 63) & ~(size_t)63;
  layout.commands = layout.admin + core->config.queue_depth * sizeof(struct admin_command);
  layout.commands = (layout.commands + 63) & ~(size_t)63;
  layout.receive_buffer = layout.commands + core->command_size * core->config.queue_depth;
  layout.receive_buffer = (layout.receive_buffer + 4095) & ~(size_t)4095;
  layout.size = layout.receive_buffer + RECEIVE_BUFFER;
  return layout;
}

/* NULL when memory is short. Runs in the control thread. */
struct connection *connection_new(struct ps_core *core, int fd, uint32_t id,
                                  struct reactor *reactor) {
  struct ps_engine_config config = engine_config(&core->config);
  struct layout layout = layout_of(core);
  struct connection *connection = calloc(1, sizeof *connection);
  if (connection == NULL) return NULL;
  uint8_t *memory = mmap(NULL, layout.size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    free(connection);
    return NULL;
  }
  connection->memory = memory;
  connection->engine = ps_engine_init(memory, &config);
  connection->admin = (struct admin_command *)(void *)(memory + layout.admin);
  connection->commands = memory + layout.commands;
  connection->receive_buffer = memory + layout.receive_buffer;
  list_init(&connection->share_waiters);
  list_init(&connection->admin_waiters);
  connection->reactor = reactor;
  connection->id = id;
  connection->fd = fd;
  assert(connection->engine != NULL);
  return connection;
}

/* Runs in the control thread, once nothing can reach the connection any more. */
void connection_free(struct connection *connection) {
  if (connection->fd >= 0) close(connection->fd); /* no reactor has taken it over */
  admin_free(connection);
  munmap(connection->memory, layout_of(connection->reactor->core).size);
  free(connection);
}

static void set_options(int fd) {
  const int on = 1, idle_s = 60, interval_s = 10;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
}

void connection_open(struct reactor *reactor, struct connection *connection) {
  assert(connection->reactor == reactor && connection->fd >= 0);
  list_append(&reactor->connections, &connection->all);
  reactor->by_index[(connection->id & 0xffff) - 1] = connection;
  connection->opened_ns = reactor->now_ns;
  atomic_store_explicit(&connection->last_command_ns, reactor->now_ns, memory_order_relaxed);
  connection->is_writable = true;
  reactor->stats.connections_opened++;
  set_options(connection->fd);
  int error =
      reactor_watch(reactor, connection->fd, connection, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (error != 0) connection_end(connection);
}

void connection_bind(struct connection *connection, const struct ps_queue_config *queue) {
  const struct ps_core *core = connection->reactor->core;
  assert(!connection->is_bound && queue->sq_size > 0);
  connection->queue = *queue;
  connection->scope = (struct ps_hints_scope){
      .tenant = queue->tenant, .subsystem = (uint16_t)queue->subsystem, .queue = connection->id};
  connection->is_bound = true;
  ps_engine_bind(connection->engine, queue->sq_size, queue->flow_control_disabled != 0,
                 queue->qid == 0 ? ADMIN_DATA : core->config.in_capsule_size,
                 queue->flow_control_disabled != 0 || core->config.success != 0);
}

void connection_wants_output(struct connection *connection) {
  if (connection->state == CONNECTION_CLOSED || link_is_in(&connection->output)) return;
  list_append(&connection->reactor->output, &connection->output);
}

/* Something may go on: bytes to read, or kept bytes to parse. */
void connection_resume(struct connection *connection) {
  if (connection->state == CONNECTION_CLOSED) return;
  if (!link_is_in(&connection->ready) && !connection->is_parsing)
    list_append(&connection->reactor->ready, &connection->ready);
  if (connection->is_writable && !link_is_in(&connection->output))
    connection_wants_output(connection);
}

/* The reactor alone writes the counters that others read. */
static void add_to(_Atomic uint64_t *counter, uint64_t more) {
  uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
  atomic_store_explicit(counter, before + more, memory_order_relaxed);
}

/* ---- input ---- */

static bool is_admin(const struct connection *connection, const uint8_t *sqe) {
  return !is_io_queue(connection) || sqe[0] == PS_OP_FABRICS;
}

static void start_command(struct connection *connection, const struct ps_engine_event *event) {
  struct reactor *reactor = connection->reactor;
  atomic_store_explicit(&connection->last_command_ns, reactor->now_ns, memory_order_relaxed);
  add_to(&connection->command_count, 1);
  if (!is_admin(connection, event->entry)) {
    reactor->stats.commands++;
    command_start(connection, event);
    return;
  }
  if (admin_start(connection, event)) {
    reactor->stats.admin_commands++;
    return;
  }
  connection->held = *event;
  connection->has_held = true;
  list_append(&reactor->starved, &connection->starved);
}

/* Whether the slot has an I/O command; else it has one that is the control plane's. */
static bool is_of_io(const struct connection *connection, uint32_t slot) {
  return is_io_queue(connection) && command_at(connection, slot)->is_used;
}

static void handle(struct connection *connection, const struct ps_engine_event *event) {
  struct reactor *reactor = connection->reactor;
  switch (event->kind) {
    case PS_EVENT_CONNECTED:
      atomic_store_explicit(&connection->digests, ps_engine_digests(connection->engine),
                            memory_order_relaxed);
      connection_wants_output(connection);
      break;
    case PS_EVENT_COMMAND:
      start_command(connection, event);
      break;
    case PS_EVENT_DATA:
      if (event->digest_error) reactor->stats.digest_errors++;
      if (is_of_io(connection, event->slot))
        command_data(connection, event);
      else
        admin_data(connection, event);
      break;
    case PS_EVENT_SENT:
      if (is_of_io(connection, event->slot))
        command_sent(connection, event->slot);
      else
        admin_sent(connection, event->slot);
      break;
    case PS_EVENT_TERMINATED:
      reactor->stats.protocol_errors++;
      connection->close_after_output = true;
      connection_wants_output(connection);
      break;
    default:
      assert(false);
  }
}

static bool handle_events(struct connection *connection) {
  struct ps_engine_event event;
  bool any = false;
  while (connection->state == CONNECTION_OPEN && !connection->has_held &&
         ps_engine_next_event(connection->engine, &event)) {
    handle(connection, &event);
    any = true;
  }
  return any;
}

/* In-capsule data of the command whose capsule was taken last, when all of it is among the kept
 * bytes and there is no digest to compare it with; else NULL. */
const uint8_t *connection_data_at_hand(const struct connection *connection, uint32_t length) {
  if (length == 0 || connection->receive_length < length) return NULL;
  if ((ps_engine_digests(connection->engine) & PS_DIGEST_DATA) != 0) return NULL;
  return connection->receive_buffer + connection->receive_offset;
}

/* Feed kept bytes to the engine, up to some events; false when they are used up or it takes none.
 */
static bool parse_some(struct connection *connection) {
  look_ahead(connection, TOGETHER);
  for (uint32_t i = 0; i < TOGETHER; i++) {
    if (connection->state != CONNECTION_OPEN || connection->has_held) return false;
    if (connection->receive_length == 0) return false;
    size_t used = ps_engine_receive(connection->engine,
                                    connection->receive_buffer + connection->receive_offset,
                                    connection->receive_length);
    connection->receive_offset += (uint32_t)used;
    connection->receive_length -= (uint32_t)used;
    if (!handle_events(connection) && used == 0) return false;
  }
  return true;
}

static void parse(struct connection *connection) {
  bool has_more = connection->receive_length > 0;
  connection->is_parsing = true;
  while (has_more) {
    reactor_lock(connection->reactor);
    has_more = parse_some(connection);
    reactor_unlock(connection->reactor);
  }
  connection->is_parsing = false;
  if (connection->receive_length == 0) connection->receive_offset = 0;
}

/* The peer has gone, or said goodbye. */
static void peer_closed(struct connection *connection) {
  connection->is_readable = false;
  connection_end(connection);
}

/* How much a receive of `direct` bytes of payload may bring besides, into the buffer, from where
 * payload is copied: little while large payloads come, whose place is known once their headers are
 * read; much while small ones do, many of which come together. */
static size_t room_besides(struct connection *connection, size_t direct) {
  if (direct >= LARGE_PAYLOAD)
    connection->brings_large = true;
  else if (connection->was_filled)
    connection->brings_large = false;
  return connection->brings_large ? RECEIVE_LEAST : RECEIVE_BUFFER;
}

/* One receive: straight into the payload's place where that is known, the rest into the buffer.
 * Returns the bytes, or -1 when there is nothing more now. */
static ssize_t receive_once(struct connection *connection) {
  struct reactor *reactor = connection->reactor;
  struct iovec iov[DESTINATIONS + 1];
  size_t direct = 0, count = ps_engine_destination(connection->engine, iov, DESTINATIONS);
  for (size_t i = 0; i < count; i++) direct += iov[i].iov_len;
  iov[count].iov_base = connection->receive_buffer;
  const size_t room = room_besides(connection, direct);
  iov[count].iov_len = room;
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = count + 1};
  ssize_t got = recvmsg(connection->fd, &message, MSG_DONTWAIT);
  reactor->stats.receive_calls++;
  if (got <= 0) {
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
      connection->is_readable = errno == EINTR;
    else
      peer_closed(connection);
    return -1;
  }
  /* A short read has emptied the socket; but for a FIN behind it, which gives no second edge. */
  connection->was_filled = (size_t)got == direct + room;
  if (!connection->was_filled && !connection->is_hanging_up) connection->is_readable = false;
  size_t placed = (size_t)got < direct ? (size_t)got : direct;
  reactor->stats.bytes_in += (uint64_t)got;
  add_to(&connection->bytes_in, (uint64_t)got);
  connection->receive_length = (uint32_t)((size_t)got - placed);
  if (placed > 0) {
    ps_engine_received(connection->engine, placed);
    handle_events(connection);
  }
  return got;
}

/* Throw away what comes after the end: a reset would take our last PDU from the peer. */
static void discard(struct connection *connection) {
  for (int i = 0; i < 16; i++) {
    ssize_t got = recv(connection->fd, connection->receive_buffer, RECEIVE_BUFFER, MSG_DONTWAIT);
    if (got > 0) continue;
    if (got == 0 || errno != EAGAIN) connection_close(connection);
    return;
  }
  connection_resume(connection);
}

/* A command whose data has no memory yet is tried again first. */
static void retry_held(struct connection *connection) {
  if (!connection->has_held) return;
  struct ps_engine_event event = connection->held;
  connection->has_held = false;
  start_command(connection, &event);
  handle_events(connection); /* what came behind it */
}

void connection_receive(struct connection *connection) {
  if (connection->state == CONNECTION_ENDING) discard(connection);
  if (connection->state != CONNECTION_OPEN) return;
  if (link_is_in(&connection->starved)) list_remove(&connection->starved);
  retry_held(connection);
  parse(connection);
  size_t budget = RECEIVE_BUDGET;
  while (connection->state == CONNECTION_OPEN && connection->receive_length == 0 &&
         !connection->has_held && connection->is_readable && !connection->close_after_output) {
    ssize_t got = receive_once(connection);
    if (got < 0) return;
    parse(connection);
    budget -= (size_t)got < budget ? (size_t)got : budget;
    if (budget == 0) {
      if (connection->is_readable) connection_resume(connection);
      return;
    }
  }
}

/* ---- output ---- */

/* Commands whose last byte is on its way give back what they hold. */
static void handle_sent(struct connection *connection) {
  reactor_lock(connection->reactor);
  handle_events(connection);
  reactor_unlock(connection->reactor);
}

/* How many of the iovecs go out together, and their bytes. While a call sends, the kernel looks at
 * nothing that comes in: of large payloads half of what waits goes first, so that the socket's
 * memory is given back, and what is next is asked for, while the rest goes. Of small ones, the more
 * the better. */
static size_t cut_output(const struct iovec *iov, size_t count, size_t *size) {
  size_t taken = 0, all = 0;
  *size = 0;
  for (size_t i = 0; i < count; i++) all += iov[i].iov_len;
  size_t portion = all / 2 > SEND_LARGE ? all / 2 : SEND_LARGE;
  while (taken < count && (*size < portion || iov[taken].iov_len < LARGE_PAYLOAD))
    *size += iov[taken++].iov_len;
  return taken;
}

static bool send_once(struct connection *connection) {
  struct reactor *reactor = connection->reactor;
  size_t wanted, count = ps_engine_output(connection->engine, reactor->iov, SEND_IOVECS);
  if (count == 0) return false;
  count = cut_output(reactor->iov, count, &wanted);
  struct msghdr message = {.msg_iov = reactor->iov, .msg_iovlen = count};
  ssize_t sent = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  reactor->stats.send_calls++;
  if (sent < 0) {
    if (errno == EAGAIN)
      connection->is_writable = false;
    else if (errno != EINTR)
      connection_end(connection);
    return false;
  }
  reactor->stats.bytes_out += (uint64_t)sent;
  add_to(&connection->bytes_out, (uint64_t)sent);
  ps_engine_sent(connection->engine, (size_t)sent);
  handle_sent(connection);
  if ((size_t)sent < wanted) connection->is_writable = false;
  return connection->is_writable;
}

/* The last byte is out: say so, and wait a moment for the peer to close. */
static void finish_output(struct connection *connection) {
  struct iovec iov;
  if (connection->state != CONNECTION_OPEN || !connection->close_after_output) return;
  if (ps_engine_output(connection->engine, &iov, 1) != 0) return;
  connection_end_commands(connection);
  connection->state = CONNECTION_ENDING;
  connection->opened_ns = connection->reactor->now_ns;
  shutdown(connection->fd, SHUT_WR);
  connection_resume(connection);
}

void connection_send(struct connection *connection) {
  while (connection->state == CONNECTION_OPEN && connection->is_writable && send_once(connection));
  finish_output(connection);
}

/* ---- the end ---- */

/* Commands end; their frames, pins and places in queues are given back. */
void connection_end_commands(struct connection *connection) {
  if (connection->has_ended) return;
  connection->has_ended = true;
  command_end_all(connection);
  connection->has_held = false;
  if (link_is_in(&connection->starved)) list_remove(&connection->starved);
}

/* The socket goes. */
void connection_close(struct connection *connection) {
  if (connection->state == CONNECTION_CLOSED) return;
  connection->state = CONNECTION_CLOSED;
  /* A child of this process that has not executed its program yet may share the socket, and then
   * closing it here does not end the events. */
  epoll_ctl(connection->reactor->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
  close(connection->fd);
  connection->fd = -1;
  if (link_is_in(&connection->ready)) list_remove(&connection->ready);
  if (link_is_in(&connection->output)) list_remove(&connection->output);
  connection_finish(connection);
}

void connection_end(struct connection *connection) {
  connection_end_commands(connection);
  connection_close(connection);
}

/* Nothing is left of it. Whoever ended it may still look at it, until the pass is over. */
void connection_finish(struct connection *connection) {
  struct reactor *reactor = connection->reactor;
  if (connection->state != CONNECTION_CLOSED || connection->orphans > 0) return;
  list_remove(&connection->all);
  list_append(&reactor->finished, &connection->all);
  reactor->by_index[(connection->id & 0xffff) - 1] = NULL;
  reactor->stats.connections_closed++;
}

/* Tell the control plane what has ended: at the end of a pass, when nobody on the stack uses it any
 * more, for the control thread may free it at once. */
void connections_tell_finished(struct reactor *reactor) {
  for (struct link *link; (link = list_pop(&reactor->finished)) != NULL;) {
    struct connection *connection = CONTAINER(link, struct connection, all);
    assert(connection->state == CONNECTION_CLOSED && connection->orphans == 0);
    connection->closed.notice =
        (struct ps_notice){.kind = PS_NOTICE_CLOSED, .connection = connection->id};
    notice_post(reactor->core, &connection->closed);
  }
}

/* At the reactor's end: media operations of its commands will not come back. */
void connection_abandon(struct connection *connection) {
  connection_end(connection);
  if (connection->orphans == 0) return;
  connection->orphans = 0;
  connection_finish(connection);
}

void connection_check_quiet(struct connection *connection) {
  if (connection->wants_quiet) break_pair(connection);
  if (!connection->wants_quiet || connection->io_in_flight > 0) return;
  connection->wants_quiet = false;
  notice_send(connection->reactor->core, &(struct ps_notice){.kind = PS_NOTICE_QUIET,
                                                             .connection = connection->id,
                                                             .cookie = connection->quiet_cookie});
}

/* A host that does not finish ICReq and Connect, and one that does not go after the end. */
void connection_check_time(struct connection *connection, uint64_t handshake_timeout_ns) {
  struct reactor *reactor = connection->reactor;
  const struct command *first = connection->fused_first;
  uint64_t age_ns = reactor->now_ns - connection->opened_ns;
  if (connection->state == CONNECTION_ENDING && age_ns > LINGER_NS) {
    connection_close(connection);
  } else if (connection->state == CONNECTION_OPEN && !connection->is_bound &&
             age_ns > handshake_timeout_ns) {
    reactor->stats.handshake_timeouts++;
    connection_end(connection);
  } else if (first != NULL && !lacks_place(first) &&
             reactor->now_ns - first->host_ns > handshake_timeout_ns) {
    break_pair(connection); /* it holds memory for both */
  } else if (connection->state == CONNECTION_OPEN && connection->close_after_output &&
             connection->closing_ns == 0) {
    connection->closing_ns = reactor->now_ns;
  } else if (connection->closing_ns != 0 &&
             reactor->now_ns - connection->closing_ns > handshake_timeout_ns) {
    connection_end(connection);
  }
}
