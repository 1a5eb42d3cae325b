/* The floor: a socket server that does nothing but what the wire forces.
 *
 *   bare PORT-FILE [poll] [memory=BYTES] [threads=COUNT]
 *
 * For each 72-byte read request it sends a 24-byte C2HData header (LAST, SUCCESS) and the payload
 * from one warm buffer; for each write it takes the payload into one buffer (by R2T when it is not
 * in the capsule) and sends a 24-byte response. It answers ICReq, and makes and checks the digests
 * that were asked for there, of every payload anew. One thread, epoll, one receive and one send a
 * pass and connection: no NVMe state, no lookup, no checks but of digests. With `poll` it does not
 * sleep while there are connections, but receives from each in turn. With `memory` payloads have a
 * place each in so much of it, by their LBA: what a larger working set costs anybody. With
 * `threads` there are so many, each on a CPU of its own, and connections go to them in turn. It
 * ends with its standard input.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "wire.h"

enum { EVENTS = 256, BATCH = 256, BUFFER = 256 << 10, PAYLOAD = 2 << 20, PLACE = 4096 };
/* When polling: how often the connections are looked at before others are let in. */
enum { POLL_PASSES = 64 };
enum { MOST_THREADS = 64 };

struct connection {
  struct connection *next;
  int fd;
  uint8_t bytes[BUFFER];
  size_t length;       /* in bytes */
  size_t payload_left; /* of the write whose payload comes now, */
  uint8_t *payload_at; /* and where it goes */
  uint16_t payload_cid;
  uint8_t digests;
  bool awaits_digest; /* of the payload that has come */
  uint32_t payload_crc;
  struct iovec out[3 * BATCH];
  struct sent_short headers[BATCH];
  uint32_t data_digests[BATCH];
  size_t out_count, header_count;
};

/* What is read from, and written to; one place where no more was asked for. */
static uint8_t *source, *sink;
static uint64_t places = 1;
static _Thread_local uint64_t lbas[1 << 16]; /* of the writes whose R2Ts were sent, by CID */

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

static void put_out(struct connection *connection, const void *bytes, size_t length) {
  connection->out[connection->out_count++] = (struct iovec){(void *)(uintptr_t)bytes, length};
}

static struct short_pdu *begin_pdu(struct connection *connection, uint8_t type) {
  if (connection->header_count == BATCH) flush_out(connection);
  struct short_pdu *pdu = &connection->headers[connection->header_count++].pdu;
  memset(pdu, 0, sizeof *pdu);
  pdu->type = type;
  pdu->hlen = SHORT_PDU;
  return pdu;
}

/* Queue the header that was begun last; `data_bytes` follow it, with their digest. */
static void end_pdu(struct connection *connection, size_t data_bytes) {
  struct sent_short *sent = &connection->headers[connection->header_count - 1];
  uint32_t hdgst = header_digest_bytes(connection->digests);
  sent->pdu.plen = SHORT_PDU + hdgst + (uint32_t)data_bytes;
  if (hdgst) {
    sent->pdu.flags |= PS_PDU_HDGST;
    sent->digest = crc_of(&sent->pdu, SHORT_PDU);
  }
  put_out(connection, sent, SHORT_PDU + hdgst);
}

static void respond(struct connection *connection, uint16_t cid) {
  begin_pdu(connection, PS_PDU_RESPONSE)->cid = cid;
  end_pdu(connection, 0);
}

static size_t place_of(uint64_t lba) { return places == 1 ? 0 : lba % places * PLACE; }

static void send_payload(struct connection *connection, uint16_t cid, uint64_t lba,
                         uint32_t length) {
  const uint8_t *payload = source + place_of(lba);
  uint32_t ddgst = data_digest_bytes(connection->digests);
  struct short_pdu *pdu = begin_pdu(connection, PS_PDU_C2H_DATA);
  uint32_t *digest = &connection->data_digests[connection->header_count - 1];
  pdu->flags = PS_PDU_LAST | PS_PDU_SUCCESS | (ddgst ? PS_PDU_DDGST : 0);
  pdu->pdo = (uint8_t)(SHORT_PDU + header_digest_bytes(connection->digests));
  pdu->cccid = cid;
  pdu->length = length;
  end_pdu(connection, length + ddgst);
  put_out(connection, payload, length);
  if (ddgst == 0) return;
  *digest = crc_of(payload, length);
  put_out(connection, digest, ddgst);
}

static void expect_payload(struct connection *connection, uint16_t cid, uint64_t lba,
                           size_t length) {
  connection->payload_left = length;
  connection->payload_at = sink + place_of(lba);
  connection->payload_cid = cid;
  connection->payload_crc = CRC_BEGIN;
}

static void serve_capsule(struct connection *connection, const struct capsule *capsule) {
  uint64_t lba = (uint64_t)capsule->cdw11 << 32 | capsule->cdw10;
  if (capsule->opcode == PS_OP_READ) {
    send_payload(connection, capsule->cid, lba, capsule->sgl_length);
  } else if (capsule->pdo != 0) {
    expect_payload(connection, capsule->cid, lba, capsule->sgl_length);
  } else {
    lbas[capsule->cid] = lba;
    struct short_pdu *pdu = begin_pdu(connection, PS_PDU_R2T);
    pdu->cccid = pdu->ttag = capsule->cid;
    pdu->length = capsule->sgl_length;
    end_pdu(connection, 0);
  }
}

static void __attribute__((noreturn)) die_of(const char *what) {
  fprintf(stderr, "bare: %s\n", what);
  exit(1);
}

/* ICReq: whatever digests are asked for are granted. */
static void negotiate(struct connection *connection, const struct ic *request) {
  struct ic response = {
      .type = PS_PDU_ICRESP, .hlen = IC, .plen = IC, .digests = request->digests, .limit = PAYLOAD};
  connection->digests = request->digests;
  if (send(connection->fd, &response, sizeof response, 0) != sizeof response)
    die_of("an ICResp could not be sent");
}

/* One PDU at `at`; returns its header's length, 0 when more bytes are needed. */
static size_t serve_pdu(struct connection *connection, size_t at) {
  const uint8_t *bytes = connection->bytes + at;
  size_t left = connection->length - at;
  if (left < SHORT_PDU) return 0;
  if (bytes[0] == PS_PDU_ICREQ) {
    if (left < IC) return 0;
    negotiate(connection, (const void *)bytes);
    return IC;
  }
  uint32_t hlen = bytes[0] == PS_PDU_H2C_DATA ? SHORT_PDU : CAPSULE;
  size_t length = hlen + header_digest_bytes(connection->digests);
  if (left < length) return 0;
  if (!header_is_whole(bytes, hlen, connection->digests)) die_of("a header's digest is wrong");
  if (bytes[0] == PS_PDU_H2C_DATA) {
    const struct short_pdu *pdu = (const void *)bytes;
    expect_payload(connection, pdu->cccid, lbas[pdu->cccid], pdu->length);
  } else {
    serve_capsule(connection, (const void *)bytes);
  }
  return length;
}

/* The next bytes of the payload are where they belong; returns how many of them it takes. */
static size_t take_payload(struct connection *connection, size_t available) {
  const uint8_t *bytes = connection->payload_at;
  size_t part = available < connection->payload_left ? available : connection->payload_left;
  bool has_digest = (connection->digests & PS_DIGEST_DATA) != 0;
  if (has_digest) connection->payload_crc = crc_extend(connection->payload_crc, bytes, part);
  connection->payload_left -= part;
  connection->payload_at += part;
  if (connection->payload_left > 0) return part;
  connection->awaits_digest = has_digest;
  if (!has_digest) respond(connection, connection->payload_cid);
  return part;
}

/* The digest behind a payload; returns its length, 0 when more bytes are needed. */
static size_t take_digest(struct connection *connection, size_t at) {
  uint32_t came;
  if (connection->length - at < sizeof came) return 0;
  memcpy(&came, connection->bytes + at, sizeof came);
  if (came != ~connection->payload_crc) die_of("the digest of data is wrong");
  connection->awaits_digest = false;
  respond(connection, connection->payload_cid);
  return sizeof came;
}

static void serve_bytes(struct connection *connection) {
  size_t at = 0;
  while (at < connection->length) {
    if (connection->payload_left > 0) {
      size_t left = connection->length - at;
      size_t part = left < connection->payload_left ? left : connection->payload_left;
      memcpy(connection->payload_at, connection->bytes + at, part);
      at += take_payload(connection, part);
      continue;
    }
    size_t used =
        connection->awaits_digest ? take_digest(connection, at) : serve_pdu(connection, at);
    if (used == 0) break;
    at += used;
  }
  connection->length -= at;
  memmove(connection->bytes, connection->bytes + at, connection->length);
}

/* Receive once, payload straight to its place; false when the peer has closed. */
static bool serve(struct connection *connection) {
  struct iovec in[2] = {{connection->payload_at, connection->payload_left},
                        {connection->bytes + connection->length, BUFFER - connection->length}};
  ssize_t got = readv(connection->fd, in, 2);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) return false;
  size_t direct = (size_t)got < connection->payload_left ? (size_t)got : connection->payload_left;
  if (direct > 0) take_payload(connection, direct);
  connection->length += (size_t)got - direct;
  serve_bytes(connection);
  flush_out(connection);
  return true;
}

static int listen_on_loopback(const char *port_file) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
      listen(fd, EVENTS) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0)
    die("bare: listen");
  FILE *file = fopen(port_file, "w");
  if (file == NULL) die(port_file);
  fprintf(file, "%d\n", ntohs(address.sin_port));
  fclose(file);
  return fd;
}

static struct connection *connections;
static pthread_mutex_t connections_lock = PTHREAD_MUTEX_INITIALIZER;

/* When polling, a connection is in the list alone, else it is the thread's whose epoll that is. */
static void accept_one(int epoll_fd, int listener, bool is_polling) {
  const int on = 1;
  struct connection *connection = calloc(1, sizeof *connection);
  if (connection == NULL) die("bare: memory");
  connection->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
  if (connection->fd < 0) die("bare: accept");
  setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  pthread_mutex_lock(&connections_lock);
  connection->next = connections;
  connections = connection;
  pthread_mutex_unlock(&connections_lock);
  if (is_polling) return;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0) die("bare: epoll");
}

static void end_connection(struct connection *ended) {
  pthread_mutex_lock(&connections_lock);
  struct connection **at = &connections;
  while (*at != ended) at = &(*at)->next;
  *at = ended->next;
  pthread_mutex_unlock(&connections_lock);
  close(ended->fd);
  free(ended);
}

static void poll_all(void) {
  for (int pass = 0; pass < POLL_PASSES; pass++) {
    for (struct connection *each = connections, *next; each != NULL; each = next) {
      next = each->next;
      if (!serve(each)) end_connection(each);
    }
  }
}

struct settings {
  const char *port_file;
  bool is_polling;
  uint64_t memory_bytes;
  uint64_t thread_count;
  int epolls[MOST_THREADS]; /* one for each thread */
};

static void serve_events(int epoll_fd) {
  struct epoll_event events[EVENTS];
  int count = epoll_wait(epoll_fd, events, EVENTS, -1);
  for (int i = 0; i < count; i++) {
    if (!serve(events[i].data.ptr)) end_connection(events[i].data.ptr);
  }
}

/* A thread beside the first. */
static void *run_beside(void *epoll_fd) {
  for (;;) serve_events((int)(intptr_t)epoll_fd);
  return NULL;
}

/* Thread n has the nth CPU of those that the process may run on. */
static void pin(pthread_t thread, uint64_t number, const cpu_set_t *allowed) {
  cpu_set_t only;
  CPU_ZERO(&only);
  uint64_t seen = 0;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    if (CPU_ISSET(cpu, allowed) && seen++ == number) CPU_SET(cpu, &only);
  }
  errno = pthread_setaffinity_np(thread, sizeof only, &only);
  if (errno != 0) die("bare: a CPU for each thread");
}

static void start_threads(struct settings *settings) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) die("bare: CPUs");
  settings->epolls[0] = epoll_create1(0);
  if (settings->thread_count > 1) pin(pthread_self(), 0, &allowed);
  for (uint64_t i = 1; i < settings->thread_count; i++) {
    pthread_t thread;
    int epoll_fd = settings->epolls[i] = epoll_create1(0);
    errno = pthread_create(&thread, NULL, run_beside, (void *)(intptr_t)epoll_fd);
    if (errno != 0) die("bare: threads");
    pin(thread, i, &allowed);
  }
}

static void run(const struct settings *settings, int listener) {
  static int listener_tag, input_tag;
  const bool is_polling = settings->is_polling;
  const int epoll_fd = settings->epolls[0];
  uint64_t accepted = 0;
  struct epoll_event on_listener = {.events = EPOLLIN, .data.ptr = &listener_tag};
  struct epoll_event on_input = {.events = EPOLLIN | EPOLLHUP, .data.ptr = &input_tag};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &on_listener);
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &on_input);
  for (;;) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll_fd, events, EVENTS, is_polling && connections != NULL ? 0 : -1);
    for (int i = 0; i < count; i++) {
      if (events[i].data.ptr == &input_tag) return;
      if (events[i].data.ptr == &listener_tag) {
        accept_one(settings->epolls[accepted++ % settings->thread_count], listener, is_polling);
      } else if (!serve(events[i].data.ptr)) {
        end_connection(events[i].data.ptr);
      }
    }
    if (is_polling) poll_all();
  }
}

/* Huge pages where there are any, as our target asks for; touched, for what is not is no memory. */
static uint8_t *allocate(size_t size) {
  uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) die("bare: memory");
  madvise(bytes, size, MADV_HUGEPAGE);
  memset(bytes, 0x5a, size);
  return bytes;
}

/* One memory is read and written where it is large: a working set is what both have. */
static void make_places(uint64_t memory_bytes) {
  if (memory_bytes <= PAYLOAD) {
    source = allocate(PAYLOAD);
    sink = allocate(PAYLOAD);
    return;
  }
  places = (memory_bytes - PAYLOAD) / PLACE + 1;
  source = sink = allocate(memory_bytes);
}

static bool read_number(const char *text, uint64_t *number) {
  char *end = NULL;
  *number = strtoull(text, &end, 10);
  return end != text && *end == '\0';
}

static bool read_option(const char *text, struct settings *settings) {
  if (strcmp(text, "poll") == 0) return settings->is_polling = true;
  if (strncmp(text, "memory=", 7) == 0) return read_number(text + 7, &settings->memory_bytes);
  if (strncmp(text, "threads=", 8) == 0) return read_number(text + 8, &settings->thread_count);
  return false;
}

int main(int argc, char **argv) {
  struct settings settings = {.port_file = argv[1], .thread_count = 1};
  bool is_right = argc >= 2;
  for (int i = 2; i < argc; i++) is_right &= read_option(argv[i], &settings);
  /* Who polls has one list of connections. */
  is_right &= 0 < settings.thread_count && settings.thread_count <= MOST_THREADS;
  is_right &= !settings.is_polling || settings.thread_count == 1;
  if (!is_right) {
    fprintf(stderr, "usage: bare PORT-FILE [poll] [memory=BYTES] [threads=COUNT]\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN); /* A generator may be gone before its last answers are sent. */
  make_places(settings.memory_bytes);
  start_threads(&settings);
  run(&settings, listen_on_loopback(settings.port_file));
  return 0;
}
