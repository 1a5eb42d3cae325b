/* The floor: a socket server that does nothing but what the wire forces.
 *
 *   bare PORT-FILE
 *
 * For each 72-byte read request it sends a 24-byte C2HData header (LAST, SUCCESS) and the payload
 * from one warm buffer; for each write it takes the payload into one buffer (by R2T when it is not
 * in the capsule) and sends a 24-byte response. One thread, epoll, one receive and one send a pass
 * and connection: no NVMe state, no lookup, no checks. It ends with its standard input.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "wire.h"

enum { CONNECTIONS = 64, BATCH = 256, BUFFER = 256 << 10, PAYLOAD = 2 << 20 };

struct connection {
  struct connection *next;
  int fd;
  uint8_t bytes[BUFFER];
  size_t length;       /* in bytes */
  size_t payload_left; /* of the write whose payload comes now */
  uint16_t payload_cid;
  struct iovec out[2 * BATCH];
  struct short_pdu headers[BATCH];
  size_t out_count, header_count;
};

static uint8_t payload[PAYLOAD], sink[PAYLOAD];

static void flush_out(struct connection *connection) {
  size_t first = 0;
  while (first < connection->out_count) {
    size_t count = connection->out_count - first;
    ssize_t sent = writev(connection->fd, connection->out + first, (int)count);
    if (sent < 0 && errno == EAGAIN) {
      struct pollfd room = {.fd = connection->fd, .events = POLLOUT};
      poll(&room, 1, -1);
      continue;
    }
    if (sent < 0) break; /* The peer is gone: the next receive says so. */
    while (sent > 0) {
      struct iovec *iov = &connection->out[first];
      size_t part = (size_t)sent < iov->iov_len ? (size_t)sent : iov->iov_len;
      iov->iov_base = (uint8_t *)iov->iov_base + part;
      iov->iov_len -= part;
      sent -= (ssize_t)part;
      if (iov->iov_len == 0) first++;
    }
  }
  connection->out_count = connection->header_count = 0;
}

static struct short_pdu *put(struct connection *connection, uint8_t type, uint32_t plen) {
  if (connection->header_count == BATCH) flush_out(connection);
  struct short_pdu *pdu = &connection->headers[connection->header_count++];
  memset(pdu, 0, sizeof *pdu);
  pdu->type = type;
  pdu->hlen = SHORT_PDU;
  pdu->plen = plen;
  connection->out[connection->out_count++] = (struct iovec){pdu, SHORT_PDU};
  return pdu;
}

static void respond(struct connection *connection, uint16_t cid) {
  put(connection, PS_PDU_RESPONSE, SHORT_PDU)->cid = cid;
}

static void serve_capsule(struct connection *connection, const struct capsule *capsule) {
  if (capsule->opcode == PS_OP_READ) {
    struct short_pdu *pdu = put(connection, PS_PDU_C2H_DATA, SHORT_PDU + capsule->sgl_length);
    pdu->flags = PS_PDU_LAST | PS_PDU_SUCCESS;
    pdu->pdo = SHORT_PDU;
    pdu->cccid = capsule->cid;
    pdu->length = capsule->sgl_length;
    connection->out[connection->out_count++] = (struct iovec){payload, capsule->sgl_length};
  } else if (capsule->plen > CAPSULE) {
    connection->payload_left = capsule->plen - CAPSULE;
    connection->payload_cid = capsule->cid;
  } else {
    struct short_pdu *pdu = put(connection, PS_PDU_R2T, SHORT_PDU);
    pdu->cccid = pdu->ttag = capsule->cid;
    pdu->length = capsule->sgl_length;
  }
}

/* One PDU at `at`; returns its header's length, 0 when more bytes are needed. */
static size_t serve_pdu(struct connection *connection, size_t at) {
  const uint8_t *bytes = connection->bytes + at;
  size_t left = connection->length - at;
  if (left < SHORT_PDU) return 0;
  if (bytes[0] == PS_PDU_H2C_DATA) {
    const struct short_pdu *pdu = (const void *)bytes;
    connection->payload_left = pdu->length;
    connection->payload_cid = pdu->cccid;
    return SHORT_PDU;
  }
  if (left < CAPSULE) return 0;
  serve_capsule(connection, (const void *)bytes);
  return CAPSULE;
}

static size_t take_payload(struct connection *connection, size_t available) {
  size_t part = available < connection->payload_left ? available : connection->payload_left;
  connection->payload_left -= part;
  if (connection->payload_left == 0) respond(connection, connection->payload_cid);
  return part;
}

static void serve_bytes(struct connection *connection) {
  size_t at = 0;
  while (at < connection->length) {
    if (connection->payload_left > 0) {
      size_t part = take_payload(connection, connection->length - at);
      memcpy(sink, connection->bytes + at, part);
      at += part;
      continue;
    }
    size_t used = serve_pdu(connection, at);
    if (used == 0) break;
    at += used;
  }
  connection->length -= at;
  memmove(connection->bytes, connection->bytes + at, connection->length);
}

/* Receive once, payload straight into the sink; false when the peer has closed. */
static int serve(struct connection *connection) {
  struct iovec in[2] = {{sink, connection->payload_left},
                        {connection->bytes + connection->length, BUFFER - connection->length}};
  ssize_t got = readv(connection->fd, in, 2);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
  if (got <= 0) return 0;
  size_t direct = (size_t)got < connection->payload_left ? (size_t)got : connection->payload_left;
  if (direct > 0) take_payload(connection, direct);
  connection->length += (size_t)got - direct;
  serve_bytes(connection);
  flush_out(connection);
  return 1;
}

static int listen_on_loopback(const char *port_file) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
      listen(fd, CONNECTIONS) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0)
    die("bare: listen");
  FILE *file = fopen(port_file, "w");
  if (file == NULL) die(port_file);
  fprintf(file, "%d\n", ntohs(address.sin_port));
  fclose(file);
  return fd;
}

static struct connection *connections; /* all, to the end of the process */

static void accept_one(int epoll_fd, int listener) {
  const int on = 1;
  struct connection *connection = calloc(1, sizeof *connection);
  if (connection == NULL) die("bare: memory");
  connection->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
  if (connection->fd < 0) die("bare: accept");
  setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0) die("bare: epoll");
  connection->next = connections;
  connections = connection;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: bare PORT-FILE\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN); /* A generator may be gone before its last answers are sent. */
  memset(payload, 0x5a, sizeof payload);
  int epoll_fd = epoll_create1(0), listener = listen_on_loopback(argv[1]);
  static int listener_tag, input_tag;
  struct epoll_event on_listener = {.events = EPOLLIN, .data.ptr = &listener_tag};
  struct epoll_event on_input = {.events = EPOLLIN | EPOLLHUP, .data.ptr = &input_tag};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &on_listener);
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &on_input);
  for (;;) {
    struct epoll_event events[CONNECTIONS];
    int count = epoll_wait(epoll_fd, events, CONNECTIONS, -1);
    for (int i = 0; i < count; i++) {
      if (events[i].data.ptr == &input_tag) return 0;
      if (events[i].data.ptr == &listener_tag) {
        accept_one(epoll_fd, listener);
      } else if (!serve(events[i].data.ptr)) {
        struct connection *connection = events[i].data.ptr;
        close(connection->fd);
        free(connection);
      }
    }
  }
}
