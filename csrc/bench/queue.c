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

void queue_command(struct queue *queue, const struct capsule *sqe, uint16_t cid,
                   const void *payload, uint32_t length, uint32_t in_capsule) {
  struct capsule *capsule = &queue->capsules[cid];
  bool is_inside = payload != NULL && length <= in_capsule;
  *capsule = *sqe;
  capsule->type = PS_PDU_COMMAND;
  capsule->hlen = CAPSULE;
  capsule->pdo = is_inside ? CAPSULE : 0;
  capsule->plen = CAPSULE + (is_inside ? length : 0);
  capsule->entry_flags = 0x40;
  capsule->cid = cid;
  capsule->sgl_length = length;
  capsule->sgl_type = is_inside ? PS_SGL_IN_CAPSULE : PS_SGL_TRANSPORT;
  queue->payloads[cid] = payload;
  queue_out(queue, capsule, CAPSULE);
  if (is_inside) queue_out(queue, payload, length);
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
  queue_out(queue, (const uint8_t *)queue->payloads[r2t->cccid] + r2t->offset, r2t->length);
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
  } else if (pdu->type == PS_PDU_R2T) {
    answer_r2t(queue, pdu);
  } else if (pdu->type == PS_PDU_RESPONSE && pdu->status == 0) {
    finish(queue, pdu->cid, pdu->dw0 | (uint64_t)pdu->dw1 << 32, now_ns);
  } else {
    fprintf(stderr, "load: PDU type %u, status %04xh came\n", pdu->type, pdu->status >> 1);
    exit(1);
  }
}

static size_t take_payload(struct queue *queue, size_t available, uint64_t now_ns) {
  size_t part = available < queue->payload_left ? available : queue->payload_left;
  queue->payload_left -= part;
  if (queue->payload_left == 0 && queue->payload_ends) finish(queue, queue->payload_cid, 0, now_ns);
  return part;
}

static void parse(struct queue *queue, uint64_t now_ns) {
  size_t at = 0;
  while (at < queue->length) {
    size_t left = queue->length - at;
    if (queue->payload_left > 0) {
      at += take_payload(queue, left, now_ns);
      continue;
    }
    if (left < SHORT_PDU) break;
    struct short_pdu pdu;
    memcpy(&pdu, queue->bytes + at, sizeof pdu);
    at += SHORT_PDU;
    handle(queue, &pdu, now_ns);
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
  if (direct > 0) take_payload(queue, direct, now_ns);
  queue->length += (size_t)got - direct;
  parse(queue, now_ns);
}
