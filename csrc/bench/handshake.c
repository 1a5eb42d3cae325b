/* What comes before the load: ICReq, Connect, enabling (Fabrics 1.1, 2.2; TCP 1.0, 3.5). */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

enum { CONNECT_DATA = 1024, IDENTIFY_DATA = 4096 };
/* Controllers with as many I/O queues as a host of that many processors has. */
enum { CONTROLLER_QUEUES = 64, IDLE_DEPTH = 127 };
enum { SILENCE_S = 30, ADMIN_DEPTH = 32, CC_ENABLE = 0x460001, CATTR_NO_FLOW_CONTROL = 1 << 2 };
/* Fabrics 1.1, 3.3: where the NSID of other commands is; status codes of Connect, with their type.
 */
enum { FCTYPE_CONNECT = 0x01, STATUS_MASK = 0x7ff };
enum { CONNECT_INVALID_PARAMETERS = 0x182, CONNECT_INVALID_HOST = 0x184 };

int tcp_connect(const struct endpoint *endpoint) {
  const int on = 1;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
  if (getaddrinfo(endpoint->address, endpoint->port, &hints, &found) != 0) {
    fprintf(stderr, "load: %s:%s: expected a numeric address and a port\n", endpoint->address,
            endpoint->port);
    exit(2);
  }
  int fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
    fprintf(stderr, "load: connecting to %s port %s: %s\n", endpoint->address, endpoint->port,
            strerror(errno));
    exit(1);
  }
  freeaddrinfo(found);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  /* A server that says nothing, or takes nothing, is not waited for without end. */
  const struct timeval most = {.tv_sec = SILENCE_S};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  return fd;
}

static void send_all(int fd, const void *bytes, size_t length) {
  if (send(fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length) die("load: send");
}

static void receive_all(int fd, void *bytes, size_t length) {
  if (recv(fd, bytes, length, MSG_WAITALL) != (ssize_t)length) die("load: receive");
}

/* A connection, and what digests it was granted. */
struct line {
  int fd;
  uint8_t digests;
};

static struct line initialize(int fd, uint8_t digests) {
  struct ic pdu = {.type = PS_PDU_ICREQ, .hlen = IC, .plen = IC, .digests = digests};
  send_all(fd, &pdu, sizeof pdu);
  receive_all(fd, &pdu, sizeof pdu);
  if (pdu.type != PS_PDU_ICRESP || pdu.digests != digests) {
    fprintf(stderr, "load: PDU type %u with digests %u came, expected ICResp with %u\n", pdu.type,
            pdu.digests, digests);
    exit(1);
  }
  return (struct line){fd, digests};
}

static void send_capsule(const struct line *line, const struct capsule *capsule, const void *out,
                         uint32_t out_length) {
  struct sent_capsule sent = {.pdu = *capsule};
  uint32_t hdgst = header_digest_bytes(line->digests), ddgst = data_digest_bytes(line->digests);
  if (out_length == 0) ddgst = 0;
  sent.pdu.flags = (hdgst ? PS_PDU_HDGST : 0) | (ddgst ? PS_PDU_DDGST : 0);
  sent.pdu.hlen = CAPSULE;
  sent.pdu.pdo = out_length > 0 ? (uint8_t)(CAPSULE + hdgst) : 0;
  sent.pdu.plen = CAPSULE + hdgst + out_length + ddgst;
  sent.digest = crc_of(&sent.pdu, CAPSULE);
  send_all(line->fd, &sent, CAPSULE + hdgst);
  if (out_length == 0) return;
  uint32_t digest = crc_of(out, out_length);
  send_all(line->fd, out, out_length);
  if (ddgst) send_all(line->fd, &digest, sizeof digest);
}

/* Says how a command ended that should not have, and ends the program. */
static void __attribute__((noreturn)) fail(const struct capsule *capsule,
                                           const struct short_pdu *pdu) {
  uint32_t status = pdu->status >> 1;
  if (pdu->type != PS_PDU_RESPONSE)
    fprintf(stderr, "load: opcode %02xh: PDU type %u came, expected a response\n", capsule->opcode,
            pdu->type);
  else if (capsule->opcode != PS_OP_FABRICS || capsule->nsid != FCTYPE_CONNECT)
    fprintf(stderr, "load: opcode %02xh ended with status %04xh\n", capsule->opcode, status);
  else
    fprintf(stderr, "load: Connect ended with status %04xh%s\n", status,
            (status & STATUS_MASK) == CONNECT_INVALID_PARAMETERS
                ? ": expected the NQN of a subsystem that is there"
            : (status & STATUS_MASK) == CONNECT_INVALID_HOST
                ? ": expected a subsystem that this host may connect to"
                : "");
  exit(1);
}

/* Send one command and wait for its response; host data goes in the capsule, data of the
 * controller is put into `in` (only where there are no data digests). Returns DW0 and DW1. */
static uint64_t command(const struct line *line, struct capsule *capsule, const void *out,
                        uint32_t out_length, void *in, uint32_t in_length) {
  capsule->type = PS_PDU_COMMAND;
  capsule->entry_flags = 0x40;
  capsule->sgl_length = out_length > 0 ? out_length : in_length;
  capsule->sgl_type = out_length > 0 ? PS_SGL_IN_CAPSULE : PS_SGL_TRANSPORT;
  send_capsule(line, capsule, out, out_length);
  for (;;) {
    struct sent_short came;
    receive_all(line->fd, &came, SHORT_PDU + header_digest_bytes(line->digests));
    if (!header_is_whole((const uint8_t *)&came, SHORT_PDU, line->digests)) {
      fprintf(stderr, "load: a header came whose digest is wrong\n");
      exit(1);
    }
    struct short_pdu pdu = came.pdu;
    bool is_data =
        in != NULL && pdu.type == PS_PDU_C2H_DATA && pdu.offset + pdu.length <= in_length;
    if (is_data) receive_all(line->fd, (uint8_t *)in + pdu.offset, pdu.length);
    if (is_data && (pdu.flags & PS_PDU_SUCCESS)) return 0;
    if (pdu.type == PS_PDU_RESPONSE && pdu.status == 0) return pdu.dw0 | (uint64_t)pdu.dw1 << 32;
    if (!is_data) fail(capsule, &pdu);
  }
}

static uint16_t fabrics_connect(const struct line *line, const struct endpoint *endpoint,
                                uint16_t qid, uint32_t entries, uint16_t controller,
                                uint32_t attributes) {
  uint8_t data[CONNECT_DATA] = {[0] = 0x42, [15] = 1};
  memcpy(data + 16, &controller, sizeof controller);
  snprintf((char *)data + 256, 256, "%s", endpoint->nqn);
  snprintf((char *)data + 512, 256, "%s", endpoint->host);
  struct capsule capsule = {.opcode = PS_OP_FABRICS, .nsid = FCTYPE_CONNECT};
  capsule.cdw10 = (uint32_t)qid << 16;
  capsule.cdw11 = (entries - 1) | attributes << 16;
  return (uint16_t)command(line, &capsule, data, sizeof data, NULL, 0);
}

static void identify(const struct line *line, uint32_t cns, uint32_t nsid, uint8_t *data) {
  struct capsule capsule = {.opcode = 0x06, .nsid = nsid, .cdw10 = cns};
  command(line, &capsule, NULL, 0, data, IDENTIFY_DATA);
}

/* Property Get, FCTYPE 04h; `size` 1: eight bytes. */
static uint64_t property_get(const struct line *line, uint32_t size, uint32_t offset) {
  struct capsule get = {.opcode = PS_OP_FABRICS, .nsid = 0x04, .cdw10 = size, .cdw11 = offset};
  return command(line, &get, NULL, 0, NULL, 0);
}

int admin_connect(const struct endpoint *endpoint, uint32_t queues, struct geometry *geometry) {
  struct line line = initialize(tcp_connect(endpoint), 0);
  geometry->controller = fabrics_connect(&line, endpoint, 0, ADMIN_DEPTH, 0xffff, 0);
  struct capsule enable = {.opcode = PS_OP_FABRICS, .cdw11 = 0x14, .cdw12 = CC_ENABLE};
  command(&line, &enable, NULL, 0, NULL, 0); /* Property Set, FCTYPE 00h, of CC */
  uint64_t status = 0;
  for (int i = 0; i < 1000 && !(status & 1); i++) {
    status = property_get(&line, 0, 0x1c); /* CSTS */
    if (!(status & 1)) usleep(10000);
  }
  geometry->queue_entries = (uint32_t)(property_get(&line, 1, 0x00) & 0xffff) + 1; /* CAP.MQES */
  struct capsule count = {.opcode = 0x09, .cdw10 = 0x07, .cdw11 = (queues - 1) * 0x10001};
  /* Set Features, Number of Queues: what was granted is 0's based. */
  geometry->queues = (uint32_t)(command(&line, &count, NULL, 0, NULL, 0) & 0xffff) + 1;
  uint8_t data[IDENTIFY_DATA] = {0};
  identify(&line, 0x01, 0, data);
  uint32_t ioccsz;
  memcpy(&ioccsz, data + 1792, sizeof ioccsz);
  geometry->in_capsule = ioccsz * 16 - 64;
  identify(&line, 0x00, geometry->nsid, data);
  memcpy(&geometry->blocks, data, sizeof geometry->blocks);
  geometry->block_size = 1u << data[128 + 4 * (data[26] & 0x0f) + 2];
  return line.fd;
}

int queue_connect(const struct endpoint *endpoint, uint16_t qid, uint32_t depth,
                  const struct geometry *geometry) {
  struct line line = initialize(tcp_connect(endpoint), endpoint->digests);
  if (endpoint->nqn == NULL) return line.fd;
  if (depth > geometry->queue_entries) {
    fprintf(stderr, "load: DEPTH is %u, expected up to %u, which the queues of this target have\n",
            depth, geometry->queue_entries);
    exit(2);
  }
  /* One entry more than commands in flight, or as many as the target has. */
  uint32_t entries = depth < geometry->queue_entries ? depth + 1 : geometry->queue_entries;
  fabrics_connect(&line, endpoint, qid, entries, geometry->controller, CATTR_NO_FLOW_CONTROL);
  return line.fd;
}

/* How many of `wanted` I/O queues a new controller has, and one more for a flood; the bare server
 * has no controllers. */
static uint32_t controller_of(const struct endpoint *endpoint, uint32_t wanted,
                              struct geometry *geometry) {
  if (endpoint->nqn == NULL) return wanted;
  if (wanted > CONTROLLER_QUEUES) wanted = CONTROLLER_QUEUES;
  admin_connect(endpoint, wanted + 1, geometry);
  return geometry->queues < wanted ? geometry->queues : wanted;
}

uint16_t queues_connect(const struct endpoint *endpoint, uint32_t count, uint32_t depth,
                        struct geometry *geometry, int *fds) {
  uint32_t opened = 0, granted = 0;
  while (opened < count) {
    granted = controller_of(endpoint, count - opened, geometry);
    for (uint32_t i = 0; i < granted; i++)
      fds[opened++] = queue_connect(endpoint, (uint16_t)(i + 1), depth, geometry);
  }
  return (uint16_t)granted;
}

void idle_connect(const struct endpoint *endpoint, uint32_t count, struct geometry geometry) {
  uint32_t admins = endpoint->nqn == NULL ? 0 : 1;
  for (uint32_t opened = 0; opened < count;) {
    uint32_t left = count - opened;
    uint32_t granted = controller_of(endpoint, left > admins ? left - admins : 1, &geometry);
    opened += admins;
    for (uint32_t i = 0; i < granted && opened < count; i++, opened++)
      queue_connect(endpoint, (uint16_t)(i + 1), IDLE_DEPTH, &geometry);
  }
}
