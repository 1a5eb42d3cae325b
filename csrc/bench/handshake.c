/* What comes before the load: ICReq, Connect, enabling (Fabrics 1.1, 2.2; TCP 1.0, 3.5). */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

enum { IC_LENGTH = 128, CONNECT_DATA = 1024, IDENTIFY_DATA = 4096 };
enum { ADMIN_DEPTH = 32, CC_ENABLE = 0x460001, CATTR_NO_FLOW_CONTROL = 1 << 2 };

int tcp_connect(const struct endpoint *endpoint) {
  const int on = 1;
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
  if (getaddrinfo(endpoint->address, endpoint->port, &hints, &found) != 0) {
    fprintf(stderr, "load: %s:%s: expected a numeric address and a port\n", endpoint->address,
            endpoint->port);
    exit(2);
  }
  int fd = socket(found->ai_family, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) die("load: connect");
  freeaddrinfo(found);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static void send_all(int fd, const void *bytes, size_t length) {
  if (send(fd, bytes, length, MSG_NOSIGNAL) != (ssize_t)length) die("load: send");
}

static void receive_all(int fd, void *bytes, size_t length) {
  if (recv(fd, bytes, length, MSG_WAITALL) != (ssize_t)length) die("load: receive");
}

static void initialize(int fd) {
  uint8_t pdu[IC_LENGTH] = {PS_PDU_ICREQ, 0, IC_LENGTH, 0, IC_LENGTH};
  send_all(fd, pdu, sizeof pdu);
  receive_all(fd, pdu, sizeof pdu);
  if (pdu[0] != PS_PDU_ICRESP) {
    fprintf(stderr, "load: PDU type %u came, expected ICResp\n", pdu[0]);
    exit(1);
  }
}

/* Send one command and wait for its response; host data goes in the capsule, data of the
 * controller is put into `in`. Returns DW0 and DW1. */
static uint64_t command(int fd, struct capsule *capsule, const void *out, uint32_t out_length,
                        void *in, uint32_t in_length) {
  capsule->type = PS_PDU_COMMAND;
  capsule->hlen = CAPSULE;
  capsule->pdo = out_length > 0 ? CAPSULE : 0;
  capsule->plen = CAPSULE + out_length;
  capsule->entry_flags = 0x40;
  capsule->sgl_length = out_length > 0 ? out_length : in_length;
  capsule->sgl_type = out_length > 0 ? PS_SGL_IN_CAPSULE : PS_SGL_TRANSPORT;
  send_all(fd, capsule, CAPSULE);
  if (out_length > 0) send_all(fd, out, out_length);
  for (;;) {
    struct short_pdu pdu;
    receive_all(fd, &pdu, sizeof pdu);
    bool is_data =
        in != NULL && pdu.type == PS_PDU_C2H_DATA && pdu.offset + pdu.length <= in_length;
    if (is_data) receive_all(fd, (uint8_t *)in + pdu.offset, pdu.length);
    if (is_data && (pdu.flags & PS_PDU_SUCCESS)) return 0;
    if (pdu.type == PS_PDU_RESPONSE && pdu.status == 0) return pdu.dw0 | (uint64_t)pdu.dw1 << 32;
    if (is_data) continue;
    fprintf(stderr, "load: opcode %02xh ended with PDU type %u, status %04xh\n", capsule->opcode,
            pdu.type, pdu.status >> 1);
    exit(1);
  }
}

static uint16_t fabrics_connect(int fd, const struct endpoint *endpoint, uint16_t qid,
                                uint32_t entries, uint16_t controller, uint32_t attributes) {
  uint8_t data[CONNECT_DATA] = {[0] = 0x42, [15] = 1};
  memcpy(data + 16, &controller, sizeof controller);
  snprintf((char *)data + 256, 256, "%s", endpoint->nqn);
  snprintf((char *)data + 512, 256, "%s", endpoint->host);
  struct capsule capsule = {.opcode = PS_OP_FABRICS, .nsid = 0x01}; /* FCTYPE Connect */
  capsule.cdw10 = (uint32_t)qid << 16;
  capsule.cdw11 = (entries - 1) | attributes << 16;
  return (uint16_t)command(fd, &capsule, data, sizeof data, NULL, 0);
}

static void identify(int fd, uint32_t cns, uint32_t nsid, uint8_t *data) {
  struct capsule capsule = {.opcode = 0x06, .nsid = nsid, .cdw10 = cns};
  command(fd, &capsule, NULL, 0, data, IDENTIFY_DATA);
}

/* Property Get, FCTYPE 04h; `size` 1: eight bytes. */
static uint64_t property_get(int fd, uint32_t size, uint32_t offset) {
  struct capsule get = {.opcode = PS_OP_FABRICS, .nsid = 0x04, .cdw10 = size, .cdw11 = offset};
  return command(fd, &get, NULL, 0, NULL, 0);
}

int admin_connect(const struct endpoint *endpoint, uint32_t queues, struct geometry *geometry) {
  int fd = tcp_connect(endpoint);
  initialize(fd);
  geometry->controller = fabrics_connect(fd, endpoint, 0, ADMIN_DEPTH, 0xffff, 0);
  struct capsule enable = {.opcode = PS_OP_FABRICS, .cdw11 = 0x14, .cdw12 = CC_ENABLE};
  command(fd, &enable, NULL, 0, NULL, 0); /* Property Set, FCTYPE 00h, of CC */
  uint64_t status = 0;
  for (int i = 0; i < 1000 && !(status & 1); i++) {
    status = property_get(fd, 0, 0x1c); /* CSTS */
    if (!(status & 1)) usleep(10000);
  }
  geometry->queue_entries = (uint32_t)(property_get(fd, 1, 0x00) & 0xffff) + 1; /* CAP.MQES */
  struct capsule count = {.opcode = 0x09, .cdw10 = 0x07, .cdw11 = (queues - 1) * 0x10001};
  command(fd, &count, NULL, 0, NULL, 0); /* Set Features, Number of Queues */
  uint8_t data[IDENTIFY_DATA] = {0};
  identify(fd, 0x01, 0, data);
  uint32_t ioccsz;
  memcpy(&ioccsz, data + 1792, sizeof ioccsz);
  geometry->in_capsule = ioccsz * 16 - 64;
  identify(fd, 0x00, 1, data);
  memcpy(&geometry->blocks, data, sizeof geometry->blocks);
  geometry->block_size = 1u << data[128 + 4 * (data[26] & 0x0f) + 2];
  return fd;
}

int queue_connect(const struct endpoint *endpoint, uint16_t qid, uint32_t depth,
                  const struct geometry *geometry) {
  int fd = tcp_connect(endpoint);
  if (endpoint->nqn == NULL) return fd;
  initialize(fd);
  /* One entry more than commands in flight, or as many as the target has. */
  uint32_t entries = depth < geometry->queue_entries ? depth + 1 : geometry->queue_entries;
  fabrics_connect(fd, endpoint, qid, entries, geometry->controller, CATTR_NO_FLOW_CONTROL);
  return fd;
}
