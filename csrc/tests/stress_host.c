/* The hosts of core_stress: all of them on one thread, each with the PDU engine in the host role on
 * one end of a socket. Some read slowly, some stop reading, some go without a word.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nvme.h"
#include "stress.h"

enum { CHUNK = 64 << 10, CONNECT_DATA = 1024, FCTYPE_CONNECT = 1, STEPS = 16 };

void host_start(struct stress_host *host, int fd, uint32_t digests) {
  struct ps_engine_config config = {
      .role = PS_ROLE_HOST, .slot_count = DEPTH - 1, .digests = digests, .max_r2t = 1};
  size_t size = (ps_engine_size(&config) + 63) & ~(size_t)63;
  if (host->memory == NULL) host->memory = aligned_alloc(64, size);
  if (host->memory == NULL) stress_fail("no memory", size);
  host->engine = ps_engine_init(host->memory, &config);
  assert(host->engine != NULL);
  host->fd = fd;
  host->is_connected = false;
}

static void leave(struct stress_host *host) {
  close(host->fd);
  host->fd = -1;
  commands_lost(host);
  stress.moved_ns = stress_now();
  atomic_store(&host->state, HOST_GONE);
}

static void connect_queue(struct stress_host *host) {
  static uint8_t data[CONNECT_DATA];
  static const struct iovec iov = {.iov_base = data, .iov_len = sizeof data};
  uint8_t sqe[64] = {PS_OP_FABRICS, 0, 0, 0, FCTYPE_CONNECT};
  if (ps_engine_submit(host->engine, sqe, PS_TRANSFER_IN_CAPSULE, &iov, 1, sizeof data) < 0)
    stress_fail("no Connect", 0);
}

/* True unless the connection is over. */
static bool handle_events(struct stress_host *host) {
  struct ps_engine_event event;
  while (ps_engine_next_event(host->engine, &event)) {
    if (event.kind == PS_EVENT_CONNECTED) {
      connect_queue(host);
    } else if (event.kind == PS_EVENT_TERMINATED) {
      if (host->number != TRASH_HOST) stress_fail("a TermReq, FES", event.fes);
      return false;
    } else if (event.kind == PS_EVENT_COMPLETION && !host->is_connected) {
      host->is_connected = true; /* whatever the control plane said */
    } else if (event.kind == PS_EVENT_COMPLETION) {
      const struct stress_command *command = host->by_slot[event.slot];
      if (event.digest_error && host->number != TRASH_HOST) {
        fprintf(stderr, "host %u: opcode %x, volume %u, shared %d, block %u, %u blocks\n",
                host->number, command->opcode, command->volume, command->is_shared, command->first,
                command->count);
        stress_fail("a digest error", 0);
      }
      command_ended(host, host->by_slot[event.slot], event.entry);
    }
  }
  return true;
}

static bool receive(struct stress_host *host, uint64_t *random) {
  static uint8_t bytes[CHUNK];
  size_t most = host->is_slow ? 1 + stress_draw(random, 2000) : CHUNK;
  ssize_t got = recv(host->fd, bytes, most, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  for (size_t used = 0; used < (size_t)got;) {
    size_t step = ps_engine_receive(host->engine, bytes + used, (size_t)got - used);
    used += step;
    if (!handle_events(host)) return false;
    if (step == 0 && ps_engine_is_terminated(host->engine)) return false;
  }
  return true;
}

static bool send_some(struct stress_host *host, uint64_t *random) {
  static uint8_t damaged[CHUNK];
  struct iovec iov[16];
  size_t count = ps_engine_output(host->engine, iov, 16);
  if (count == 0) return true;
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
  /* At times a part of a header, or of the data, alone. */
  if (stress_draw(random, 4) == 0) {
    message.msg_iovlen = 1;
    iov[0].iov_len = 1 + stress_draw(random, iov[0].iov_len);
  }
  if (host->number == TRASH_HOST && host->is_connected && stress_draw(random, 8) == 0) {
    message.msg_iovlen = 1;
    if (iov[0].iov_len > CHUNK) iov[0].iov_len = CHUNK;
    memcpy(damaged, iov[0].iov_base, iov[0].iov_len);
    damaged[stress_draw(random, iov[0].iov_len)] ^= (uint8_t)(1u << stress_draw(random, 8));
    iov[0].iov_base = damaged;
  }
  ssize_t sent = sendmsg(host->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN || errno == EINTR;
  ps_engine_sent(host->engine, (size_t)sent);
  return handle_events(host);
}

/* Go on with one host for a while. */
static void step(struct stress_host *host, uint64_t *random) {
  bool goes_on = true;
  for (uint32_t i = 0; i < STEPS && goes_on; i++) {
    bool submits = host->is_connected && !stress.drains && stress_draw(random, 2);
    if (submits) command_submit(host, random);
    goes_on = send_some(host, random);
    bool reads = !host->is_mute && (!host->is_slow || stress_draw(random, 4) == 0);
    if (goes_on && (reads || stress.drains)) goes_on = receive(host, random);
  }
  bool is_last = host->life == 1;
  if (host->life > 0) host->life--;
  if (is_last && !stress.drains) goes_on = false;
  if (!goes_on) leave(host);
}

/* Until something comes, or a moment has passed: slow hosts go on by themselves. */
static void wait_for_some(void) {
  struct pollfd polls[HOSTS];
  nfds_t count = 0;
  for (uint32_t i = 0; i < HOSTS; i++) {
    struct stress_host *host = &stress.hosts[i];
    if (atomic_load(&host->state) != HOST_STARTED || host->is_mute) continue;
    struct iovec iov;
    bool wants_out = ps_engine_output(host->engine, &iov, 1) > 0;
    polls[count++] =
        (struct pollfd){.fd = host->fd, .events = (short)(POLLIN | (wants_out ? POLLOUT : 0))};
  }
  poll(polls, count, 1);
}

void *host_main(void *argument) {
  uint64_t random = *(const uint64_t *)argument;
  while (!stress.stops) {
    wait_for_some();
    for (uint32_t i = 0; i < HOSTS; i++) {
      struct stress_host *host = &stress.hosts[i];
      if (atomic_load(&host->state) == HOST_STARTED) step(host, &random);
    }
  }
  for (uint32_t i = 0; i < HOSTS; i++)
    if (atomic_load(&stress.hosts[i].state) == HOST_STARTED) leave(&stress.hosts[i]);
  return NULL;
}
