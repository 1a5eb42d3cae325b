/* PDUs of one I/O queue (TCP 1.0, 3.6): capsules and H2CData out; C2HData, R2T and responses in. */
#include "queue.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static uint8_t sink[PAYLOAD];

uint64_t clock_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t random_next(uint64_t *seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed;
}

static void queue_out(struct queue *queue, const void *bytes, size_t length) {
  queue->out[queue->out_count++] = (struct iovec){(void *)(uintptr_t)bytes, length};
}

/* `length` bytes of data of a command, and their digest. */
static void queue_payload(struct queue *queue, uint16_t cid, const void *bytes, uint32_t length) {
  queue_out(queue, bytes, length);
  if (!(queue->digests & PS_DIGEST_DATA)) return;
  queue->data_digests[cid] = crc_of(bytes, length);
  queue_out(queue, &queue->data_digests[cid], DIGEST);
}

void queue_command(struct queue *queue, const struct capsule *sqe, uint16_t cid,
                   const void *payload, uint32_t length, uint32_t in_capsule) {
  struct sent_capsule *sent = &queue->capsules[cid];
  struct capsule *capsule = &sent->pdu;
  bool is_inside = payload != NULL && length <= in_capsule;
  uint32_t hdgst = header_digest_bytes(queue->digests);
  uint32_t ddgst = is_inside ? data_digest_bytes(queue->digests) : 0;
  *capsule = *sqe;
  capsule->type = PS_PDU_COMMAND;
  capsule->flags = (hdgst ? PS_PDU_HDGST : 0) | (ddgst ? PS_PDU_DDGST : 0);
  capsule->hlen = CAPSULE;
  capsule->pdo = is_inside ? (uint8_t)(CAPSULE + hdgst) : 0;
  capsule->plen = CAPSULE + hdgst + (is_inside ? length : 0) + ddgst;
  capsule->entry_flags = 0x40;
  capsule->cid = cid;
  capsule->sgl_length = length;
  capsule->sgl_type = is_inside ? PS_SGL_IN_CAPSULE : PS_SGL_TRANSPORT;
  if (hdgst) sent->digest = crc_of(capsule, CAPSULE);
  queue->payloads[cid] = payload;
  queue_out(queue, sent, CAPSULE + hdgst);
  if (is_inside) queue_payload(queue, cid, payload, length);
}

/* The target asks for a write's data (all of it is offered to every target here). */
static void answer_r2t(struct queue *queue, const struct short_pdu *r2t) {
  struct sent_short *sent = &queue->data[r2t->cccid];
  uint32_t hdgst = header_digest_bytes(queue->digests);
  uint32_t ddgst = data_digest_bytes(queue->digests);
  uint8_t flags = PS_PDU_LAST | (hdgst ? PS_PDU_HDGST : 0) | (ddgst ? PS_PDU_DDGST : 0);
  sent->pdu = (struct short_pdu){.type = PS_PDU_H2C_DATA,
                                 .flags = flags,
                                 .hlen = SHORT_PDU,
                                 .pdo = (uint8_t)(SHORT_PDU + hdgst),
                                 .plen = SHORT_PDU + hdgst + r2t->length + ddgst,
                                 .cccid = r2t->cccid,
                                 .ttag = r2t->ttag,
                                 .offset = r2t->offset,
                                 .length = r2t->length};
  if (hdgst) sent->digest = crc_of(&sent->pdu, SHORT_PDU);
  queue_out(queue, sent, SHORT_PDU + hdgst);
  queue_payload(queue, r2t->cccid, (const uint8_t *)queue->payloads[r2t->cccid] + r2t->offset,
                r2t->length);
}

static void finish(struct queue *queue, uint16_t cid, uint64_t result, uint64_t now_ns) {
  queue->result = result;
  queue->ended(queue, cid, now_ns);
}

static void handle(struct queue *queue, const struct short_pdu *pdu, uint64_t now_ns) {
  if (pdu->type == PS_PDU_C2H_DATA) {
    queue->payload_left = pdu->length;
    queue->payload_cid = pdu->cccid;
    queue->payload_ends = (pdu->flags & PS_PDU_SUCCESS) != 0;
    queue->payload_crc = CRC_BEGIN;
  } else if (pdu->type == PS_PDU_R2T) {
    answer_r2t(queue, pdu);
  } else if (pdu->type == PS_PDU_RESPONSE && pdu->status == 0) {
    finish(queue, pdu->cid, pdu->dw0 | (uint64_t)pdu->dw1 << 32, now_ns);
  } else {
    fprintf(stderr, "load: PDU type %u, status %04xh came\n", pdu->type, pdu->status >> 1);
    exit(1);
  }
}

static void end_payload(struct queue *queue, uint64_t now_ns) {
  queue->awaits_digest = false;
  if (queue->payload_ends) finish(queue, queue->payload_cid, 0, now_ns);
}

static size_t take_payload(struct queue *queue, const uint8_t *bytes, size_t available,
                           uint64_t now_ns) {
  size_t part = available < queue->payload_left ? available : queue->payload_left;
  bool has_digest = (queue->digests & PS_DIGEST_DATA) != 0;
  if (has_digest) queue->payload_crc = crc_extend(queue->payload_crc, bytes, part);
  queue->payload_left -= part;
  if (queue->payload_left > 0) return part;
  queue->awaits_digest = has_digest;
  if (!has_digest) end_payload(queue, now_ns);
  return part;
}

static void __attribute__((noreturn)) die_of_digest(const char *what) {
  fprintf(stderr, "load: %s came whose digest is wrong\n", what);
  exit(1);
}

/* The digest behind a payload; returns its length, 0 when more bytes are needed. */
static size_t take_digest(struct queue *queue, const uint8_t *bytes, size_t left, uint64_t now_ns) {
  uint32_t came;
  if (left < sizeof came) return 0;
  memcpy(&came, bytes, sizeof came);
  if (came != ~queue->payload_crc) die_of_digest("data");
  end_payload(queue, now_ns);
  return sizeof came;
}

/* The header of a PDU; returns its length, 0 when more bytes are needed. */
static size_t take_header(struct queue *queue, const uint8_t *bytes, size_t left, uint64_t now_ns) {
  struct short_pdu pdu;
  size_t length = SHORT_PDU + header_digest_bytes(queue->digests);
  if (left < length) return 0;
  if (!header_is_whole(bytes, SHORT_PDU, queue->digests)) die_of_digest("a header");
  memcpy(&pdu, bytes, sizeof pdu);
  handle(queue, &pdu, now_ns);
  return length;
}

static void parse(struct queue *queue, uint64_t now_ns) {
  size_t at = 0;
  while (at < queue->length) {
    const uint8_t *bytes = queue->bytes + at;
    size_t left = queue->length - at, used;
    if (queue->payload_left > 0) {
      used = take_payload(queue, bytes, left, now_ns);
    } else if (queue->awaits_digest) {
      used = take_digest(queue, bytes, left, now_ns);
    } else {
      used = take_header(queue, bytes, left, now_ns);
    }
    if (used == 0) break;
    at += used;
  }
  queue->length -= at;
  memmove(queue->bytes, queue->bytes + at, queue->length);
}

void queue_flush(struct queue *queue) {
  while (queue->out_first < queue->out_count) {
    struct msghdr message = {.msg_iov = queue->out + queue->out_first,
                             .msg_iovlen = queue->out_count - queue->out_first};
    ssize_t sent = sendmsg(queue->fd, &message, MSG_NOSIGNAL);
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

void queue_stamp(struct queue *queue) {
  int on = 1;
  if (setsockopt(queue->fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on) != 0)
    die("load: timestamps");
  queue->is_stamped = true;
}

/* When the last of a message came, by its stamp, which is of the wall clock. */
static uint64_t came_ns(const struct queue *queue, struct msghdr *message, uint64_t now_ns) {
  struct timespec wall;
  struct timespec stamp;
  const struct cmsghdr *control = queue->is_stamped ? CMSG_FIRSTHDR(message) : NULL;
  if (control == NULL || control->cmsg_type != SCM_TIMESTAMPNS) return now_ns;
  memcpy(&stamp, CMSG_DATA(control), sizeof stamp);
  clock_gettime(CLOCK_REALTIME, &wall);
  int64_t ago_ns =
      (wall.tv_sec - stamp.tv_sec) * INT64_C(1000000000) + wall.tv_nsec - stamp.tv_nsec;
  return ago_ns > 0 && (uint64_t)ago_ns < now_ns ? now_ns - (uint64_t)ago_ns : now_ns;
}

void queue_receive(struct queue *queue) {
  struct iovec in[2] = {{sink, queue->payload_left},
                        {queue->bytes + queue->length, BUFFER - queue->length}};
  _Alignas(struct cmsghdr) uint8_t control[256];
  struct msghdr message = {.msg_iov = in,
                           .msg_iovlen = 2,
                           .msg_control = control,
                           .msg_controllen = queue->is_stamped ? sizeof control : 0};
  ssize_t got = recvmsg(queue->fd, &message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) die("load: the target closed the connection");
  uint64_t now_ns = came_ns(queue, &message, clock_now_ns());
  size_t direct = (size_t)got < queue->payload_left ? (size_t)got : queue->payload_left;
  if (direct > 0) take_payload(queue, sink, direct, now_ns);
  queue->length += (size_t)got - direct;
  parse(queue, now_ns);
}
