/* Passes over the socket: receive, hand out what has happened, send. */
#include <errno.h>
#include <sys/socket.h>

#include "internal.h"

enum {
  /* A pass gives the caller's loop its turn after so many receives, or bytes. */
  PASS_ROUNDS = 32,
  PASS_BYTES = 4 << 20,
  SEND_ROUNDS = 16,
  /* Payload of at least so many bytes is worth a receive of its own: of what follows it no more is
   * taken than headers have, for the rest would have to be copied. */
  LARGE_PAYLOAD = 16 << 10,
  HEADER_ROOM = 512,
  /* Of a large payload so much must be there before the socket wakes anybody. */
  LOW_WATER = 256 << 10
};

static void end(struct ps_host *host, enum ps_host_end how, int error) {
  assert(how >= PS_HOST_CLOSED && how <= PS_HOST_TERMINATED);
  if (host->state.end != 0) return;
  host->state.end = how;
  host->state.error = error;
  host->news |= PS_HOST_OVER;
}

static void completed(struct ps_host *host, const struct ps_engine_event *event) {
  struct command *command = &host->commands[host->places[event->slot]];
  assert(command->kind != COMMAND_FREE && command->slot == event->slot);
  struct ps_host_completion completion = {
      .slot = event->slot, .transferred = event->data_length, .digest_error = event->digest_error};
  memcpy(completion.cqe, event->entry, sizeof completion.cqe);
  if (command->kind == COMMAND_BATCH) {
    ps_batch_completed(host, command, &completion);
  } else {
    assert(host->state.completion_count < host->config.slot_count);
    host->completions[host->state.completion_count++] = completion;
    host->news |= PS_HOST_COMPLETIONS;
  }
  if (!command->is_kept) host->news |= PS_HOST_FREED;
  ps_command_end(host, command);
}

static void take_events(struct ps_host *host) {
  struct ps_engine_event event;
  assert(host->engine != NULL);
  while (ps_engine_next_event(host->engine, &event)) {
    if (event.kind == PS_EVENT_COMPLETION) {
      completed(host, &event);
    } else if (event.kind == PS_EVENT_CONNECTED) {
      host->news |= PS_HOST_CONNECTED;
    } else {
      assert(event.kind == PS_EVENT_TERMINATED);
      host->state.fes = event.fes;
      host->state.fei = event.fei;
      host->state.from_peer = event.from_peer;
      end(host, PS_HOST_TERMINATED, 0);
    }
  }
}

/* What was received besides payload: headers, digests, small payloads. */
static void feed(struct ps_host *host, size_t size) {
  size_t taken = 0;
  assert(size <= PS_SCRATCH_SIZE);
  while (taken < size) {
    size_t step = ps_engine_receive(host->engine, host->scratch + taken, size - taken);
    taken += step;
    take_events(host);
    if (step == 0) break; /* Only a terminated engine takes nothing once its events were taken. */
  }
}

/* Receive once; the bytes that came, 0 when there are none or the connection is over. */
static size_t receive_once(struct ps_host *host) {
  struct iovec iov[2];
  size_t count = ps_engine_destination(host->engine, iov, 1);
  size_t wanted = count > 0 ? iov[0].iov_len : 0;
  bool is_large = wanted >= LARGE_PAYLOAD || (count == 0 && host->was_payload);
  iov[count] = (struct iovec){host->scratch, is_large ? HEADER_ROOM : PS_SCRATCH_SIZE};
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = count + 1};
  ssize_t size = recvmsg(host->socket, &message, MSG_DONTWAIT);
  if (size == 0) end(host, PS_HOST_CLOSED, 0);
  if (size < 0 && errno != EAGAIN && errno != EINTR) end(host, PS_HOST_FAILED, errno);
  if (size <= 0) return 0;
  size_t direct = (size_t)size < wanted ? (size_t)size : wanted;
  host->was_payload = direct >= LARGE_PAYLOAD;
  if (direct > 0) {
    ps_engine_received(host->engine, direct);
    take_events(host);
  }
  feed(host, (size_t)size - direct);
  return (size_t)size;
}

/* Send once; false when there is nothing more to be done now. */
static bool send_once(struct ps_host *host) {
  struct iovec iov[PS_VECTORS];
  size_t count = ps_engine_output(host->engine, iov, PS_VECTORS);
  size_t wanted = 0;
  assert(count <= PS_VECTORS);
  if (count == 0) return false;
  for (size_t i = 0; i < count; i++) wanted += iov[i].iov_len;
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
  ssize_t size = sendmsg(host->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size < 0 && errno != EAGAIN && errno != EINTR) {
    end(host, PS_HOST_FAILED, errno);
    return false;
  }
  if (size > 0) ps_engine_sent(host->engine, (size_t)size);
  take_events(host);
  host->is_blocked = size < 0 || (size_t)size < wanted;
  return !host->is_blocked;
}

static void send_all(struct ps_host *host) {
  assert(host->engine != NULL);
  for (int round = 0; round < SEND_ROUNDS; round++) {
    if (host->is_blocked || host->state.end != 0 || !send_once(host)) return;
  }
  host->news |= PS_HOST_MORE;
}

/* Say what is worth a wake-up: the rest of the payload under way, or much of it. The end of the
 * connection always is. */
static void set_low_water(struct ps_host *host) {
  struct iovec iov;
  size_t count = ps_engine_destination(host->engine, &iov, 1);
  size_t wanted = count > 0 ? iov.iov_len : 0;
  int low_water = 1;
  if (wanted >= LARGE_PAYLOAD) low_water = wanted < LOW_WATER ? (int)wanted : LOW_WATER;
  if (low_water == host->low_water) return;
  host->low_water = low_water;
  /* Without it there are more wake-ups, that is all. */
  int failed = setsockopt(host->socket, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
  (void)failed;
}

static void begin(struct ps_host *host) {
  assert(host->state.end == 0);
  host->news = 0;
  host->state.completion_count = 0;
}

static uint32_t news(const struct ps_host *host) {
  uint32_t found = host->news | (host->is_blocked ? PS_HOST_BLOCKED : 0u);
  bool is_full = host->state.in_flight + host->state.reserved >= host->config.slot_count;
  return is_full ? found & ~(uint32_t)PS_HOST_FREED : found;
}

uint32_t ps_host_receive(struct ps_host *host, uint64_t now_us) {
  size_t bytes = 0;
  begin(host);
  for (int round = 0; round < PASS_ROUNDS && bytes < PASS_BYTES; round++) {
    size_t size = receive_once(host);
    if (size == 0 || host->state.end != 0) break;
    bytes += size;
    ps_host_fill(host, UINT32_MAX, now_us);
    send_all(host);
  }
  if (host->state.end == 0) set_low_water(host);
  return news(host);
}

uint32_t ps_host_send(struct ps_host *host, uint64_t now_us) {
  begin(host);
  host->is_blocked = false;
  send_all(host);
  /* A command may have waited for its last byte to leave before it ended. */
  if (host->news & PS_HOST_FREED && ps_host_fill(host, UINT32_MAX, now_us) > 0) {
    host->news |= PS_HOST_MORE;
  }
  return news(host);
}

void ps_host_send_last(struct ps_host *host) {
  struct iovec iov[PS_VECTORS];
  assert(host->socket >= 0);
  struct msghdr message = {.msg_iov = iov,
                           .msg_iovlen = ps_engine_output(host->engine, iov, PS_VECTORS)};
  if (message.msg_iovlen == 0) return;
  ssize_t size = sendmsg(host->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  (void)size;
}
