/* A load generator for NVMe/TCP targets and for the bare server.
 *
 *   load ADDRESS PORT NQN|bare OP SIZE DEPTH CONNECTIONS SECONDS SPAN [PID]
 *
 * OP is read, write or mixed (two reads to a write), SIZE and SPAN are bytes (SPAN: how much of the
 * namespace is touched, from its start, at random), DEPTH is per connection. With PID, the CPU time
 * that process used meanwhile is measured. Prints one JSON object. One thread, epoll.
 */
#include "load.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"

enum { DEPTH_MOST = 256, QUEUES_MOST = 64, BUFFER = 256 << 10, PAYLOAD = 2 << 20 };

enum kind { READ, WRITE, MIXED };

struct queue {
  int fd;
  uint8_t bytes[BUFFER];
  size_t length;
  size_t payload_left; /* of a C2HData that is arriving */
  uint16_t payload_cid;
  bool payload_ends; /* SUCCESS: no response follows */
  struct capsule capsules[DEPTH_MOST];
  struct short_pdu data[DEPTH_MOST];
  uint64_t started_ns[DEPTH_MOST];
  struct iovec out[4 * DEPTH_MOST];
  size_t out_count, out_first;
};

struct load {
  enum kind kind;
  uint32_t size, depth, connections;
  uint64_t span, seed, until_ns, done, reads;
  bool is_over;
  struct geometry geometry;
  struct histogram histogram;
  struct queue *queues;
};

static uint8_t payload[PAYLOAD], sink[PAYLOAD];

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t random_next(uint64_t *seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

static void queue_out(struct queue *queue, void *bytes, size_t length) {
  queue->out[queue->out_count++] = (struct iovec){bytes, length};
}

/* Make the command of one slot and queue it for sending. */
static void start(struct load *load, struct queue *queue, uint16_t cid, uint64_t now_ns) {
  uint64_t place = random_next(&load->seed);
  bool is_read = load->kind == READ || (load->kind == MIXED && place % 3 != 0);
  uint64_t slba =
      (place >> 8) % (load->span / load->size) * (load->size / load->geometry.block_size);
  bool in_capsule = !is_read && load->size <= load->geometry.in_capsule;
  struct capsule *capsule = &queue->capsules[cid];
  *capsule = (struct capsule){.type = PS_PDU_COMMAND,
                              .hlen = CAPSULE,
                              .pdo = in_capsule ? CAPSULE : 0,
                              .plen = CAPSULE + (in_capsule ? load->size : 0),
                              .opcode = is_read ? PS_OP_READ : PS_OP_WRITE,
                              .entry_flags = 0x40,
                              .cid = cid,
                              .nsid = 1,
                              .sgl_length = load->size,
                              .sgl_type = in_capsule ? PS_SGL_IN_CAPSULE : PS_SGL_TRANSPORT,
                              .cdw10 = (uint32_t)slba,
                              .cdw11 = (uint32_t)(slba >> 32),
                              .cdw12 = load->size / load->geometry.block_size - 1};
  queue->started_ns[cid] = now_ns;
  queue_out(queue, capsule, CAPSULE);
  if (in_capsule) queue_out(queue, payload, load->size);
}

static void finish(struct load *load, struct queue *queue, uint16_t cid, uint64_t now_ns) {
  histogram_add(&load->histogram, now_ns - queue->started_ns[cid]);
  load->done++;
  load->reads += queue->capsules[cid].opcode == PS_OP_READ;
  if (!load->is_over) start(load, queue, cid, now_ns);
}

/* The target asks for a write's data (all of it is offered to every target here). */
static void answer_r2t(struct queue *queue, const struct short_pdu *r2t) {
  struct short_pdu *pdu = &queue->data[r2t->cccid];
  *pdu = (struct short_pdu){.type = PS_PDU_H2C_DATA,
                            .flags = PS_PDU_LAST,
                            .hlen = SHORT_PDU,
                            .pdo = SHORT_PDU,
                            .plen = SHORT_PDU + r2t->length,
                            .cccid = r2t->cccid,
                            .ttag = r2t->ttag,
                            .offset = r2t->offset,
                            .length = r2t->length};
  queue_out(queue, pdu, SHORT_PDU);
  queue_out(queue, payload, r2t->length);
}

static void unexpected(const struct short_pdu *pdu) {
  fprintf(stderr, "load: PDU type %u, status %04xh came\n", pdu->type, pdu->status >> 1);
  exit(1);
}

static void handle(struct load *load, struct queue *queue, const struct short_pdu *pdu,
                   uint64_t now_ns) {
  if (pdu->type == PS_PDU_C2H_DATA) {
    queue->payload_left = pdu->length;
    queue->payload_cid = pdu->cccid;
    queue->payload_ends = (pdu->flags & PS_PDU_SUCCESS) != 0;
  } else if (pdu->type == PS_PDU_R2T) {
    answer_r2t(queue, pdu);
  } else if (pdu->type == PS_PDU_RESPONSE && pdu->status == 0) {
    finish(load, queue, pdu->cid, now_ns);
  } else {
    unexpected(pdu);
  }
}

static size_t take_payload(struct load *load, struct queue *queue, size_t available,
                           uint64_t now_ns) {
  size_t part = available < queue->payload_left ? available : queue->payload_left;
  queue->payload_left -= part;
  if (queue->payload_left == 0 && queue->payload_ends)
    finish(load, queue, queue->payload_cid, now_ns);
  return part;
}

static void parse(struct load *load, struct queue *queue, uint64_t now_ns) {
  size_t at = 0;
  while (at < queue->length) {
    size_t left = queue->length - at;
    if (queue->payload_left > 0) {
      at += take_payload(load, queue, left, now_ns);
      continue;
    }
    if (left < SHORT_PDU) break;
    struct short_pdu pdu;
    memcpy(&pdu, queue->bytes + at, sizeof pdu);
    at += SHORT_PDU;
    handle(load, queue, &pdu, now_ns);
  }
  queue->length -= at;
  memmove(queue->bytes, queue->bytes + at, queue->length);
}

static void flush_out(struct queue *queue) {
  while (queue->out_first < queue->out_count) {
    size_t count = queue->out_count - queue->out_first;
    ssize_t sent = writev(queue->fd, queue->out + queue->out_first, (int)count);
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) die("load: send");
    while (sent > 0) {
      struct iovec *iov = &queue->out[queue->out_first];
      size_t part = (size_t)sent < iov->iov_len ? (size_t)sent : iov->iov_len;
      iov->iov_base = (uint8_t *)iov->iov_base + part;
      iov->iov_len -= part;
      sent -= (ssize_t)part;
      if (iov->iov_len == 0) queue->out_first++;
    }
  }
  queue->out_first = queue->out_count = 0;
}

static void receive(struct load *load, struct queue *queue) {
  struct iovec in[2] = {{sink, queue->payload_left},
                        {queue->bytes + queue->length, BUFFER - queue->length}};
  /* No room to queue answers while output is stuck: leave the rest with the kernel. */
  if (queue->out_count > 2 * DEPTH_MOST) return;
  ssize_t got = readv(queue->fd, in, 2);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) die("load: the target closed the connection");
  uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
  if (now_ns >= load->until_ns) load->is_over = true;
  size_t direct = (size_t)got < queue->payload_left ? (size_t)got : queue->payload_left;
  if (direct > 0) take_payload(load, queue, direct, now_ns);
  queue->length += (size_t)got - direct;
  parse(load, queue, now_ns);
}

static void run(struct load *load) {
  int epoll_fd = epoll_create1(0);
  uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);
  for (uint32_t i = 0; i < load->connections; i++) {
    struct queue *queue = &load->queues[i];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = queue};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, queue->fd, &event);
    for (uint32_t cid = 0; cid < load->depth; cid++) start(load, queue, (uint16_t)cid, now_ns);
    flush_out(queue);
  }
  while (!load->is_over) {
    struct epoll_event events[QUEUES_MOST];
    int count = epoll_wait(epoll_fd, events, QUEUES_MOST, 1000);
    if (count == 0 && clock_ns(CLOCK_MONOTONIC) > load->until_ns + 5000000000u)
      die("load: nothing came for seconds");
    for (int i = 0; i < count; i++) {
      receive(load, events[i].data.ptr);
      flush_out(events[i].data.ptr);
    }
    for (uint32_t i = 0; i < load->connections; i++) flush_out(&load->queues[i]);
  }
  close(epoll_fd);
}

static void report(const struct load *load, uint64_t elapsed_ns, uint64_t cpu_ns,
                   uint64_t own_cpu_ns) {
  double seconds = (double)elapsed_ns / 1e9, done = (double)load->done;
  printf(
      "{\"iops\": %.1f, \"bytes_per_s\": %.1f, \"commands\": %llu, \"reads\": %llu, "
      "\"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"cpu_us_per_command\": %.4f, "
      "\"generator_cpu_us_per_command\": %.4f, \"seconds\": %.4f}\n",
      done / seconds, done * load->size / seconds, (unsigned long long)load->done,
      (unsigned long long)load->reads, (double)histogram_at(&load->histogram, 0.5) / 1e3,
      (double)histogram_at(&load->histogram, 0.99) / 1e3,
      (double)histogram_at(&load->histogram, 0.999) / 1e3, (double)cpu_ns / 1e3 / done,
      (double)own_cpu_ns / 1e3 / done, seconds);
}

static uint64_t number(const char *name, const char *text, uint64_t least, uint64_t most) {
  char *end;
  errno = 0;
  uint64_t value = strtoull(text, &end, 10);
  if (errno != 0 || *text == '\0' || *end != '\0' || value < least || value > most) {
    fprintf(stderr, "load: %s is '%s', expected %llu to %llu\n", name, text,
            (unsigned long long)least, (unsigned long long)most);
    exit(2);
  }
  return value;
}

static enum kind kind_of(const char *text) {
  static const char *const names[] = {"read", "write", "mixed"};
  for (int i = 0; i < 3; i++)
    if (strcmp(text, names[i]) == 0) return (enum kind)i;
  fprintf(stderr, "load: OP is '%s', expected read, write or mixed\n", text);
  exit(2);
}

static void connect_all(struct load *load, const struct endpoint *endpoint) {
  load->geometry = (struct geometry){.block_size = 4096, .blocks = 1u << 30, .in_capsule = 8192};
  if (endpoint->nqn != NULL) admin_connect(endpoint, load->connections, &load->geometry);
  if (load->span > load->geometry.blocks * load->geometry.block_size || load->span < load->size) {
    fprintf(stderr, "load: SPAN must be between SIZE and the namespace's size\n");
    exit(2);
  }
  load->queues = calloc(load->connections, sizeof *load->queues);
  if (load->queues == NULL) die("load: memory");
  for (uint32_t i = 0; i < load->connections; i++) {
    load->queues[i].fd = queue_connect(endpoint, (uint16_t)(i + 1), load->depth, &load->geometry);
  }
}

int main(int argc, char **argv) {
  if (argc != 10 && argc != 11) {
    fprintf(stderr,
            "usage: load ADDRESS PORT NQN|bare OP SIZE DEPTH CONNECTIONS SECONDS SPAN"
            " [PID]\n");
    return 2;
  }
  struct endpoint endpoint = {argv[1], argv[2], strcmp(argv[3], "bare") == 0 ? NULL : argv[3]};
  static struct load load;
  load.kind = kind_of(argv[4]);
  load.size = (uint32_t)number("SIZE", argv[5], 512, PAYLOAD);
  load.depth = (uint32_t)number("DEPTH", argv[6], 1, DEPTH_MOST);
  load.connections = (uint32_t)number("CONNECTIONS", argv[7], 1, QUEUES_MOST);
  uint64_t seconds = number("SECONDS", argv[8], 1, 3600);
  load.span = number("SPAN", argv[9], 4096, UINT64_MAX / 2);
  load.seed = 88172645463325252u;
  clockid_t cpu_clock = CLOCK_MONOTONIC;
  if (argc == 11) {
    pid_t pid = (pid_t)number("PID", argv[10], 1, 1 << 22);
    if (clock_getcpuclockid(pid, &cpu_clock) != 0) die("load: PID");
  }
  connect_all(&load, &endpoint);
  uint64_t cpu_ns = clock_ns(cpu_clock), own_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
  uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
  load.until_ns = start_ns + seconds * 1000000000;
  run(&load);
  report(&load, clock_ns(CLOCK_MONOTONIC) - start_ns, argc == 11 ? clock_ns(cpu_clock) - cpu_ns : 0,
         clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own_ns);
  return 0;
}
