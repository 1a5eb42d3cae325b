/* The few PDU layouts that the load generator and the bare server speak (TCP 1.0, 3.6). */
#ifndef PRESTAGE_BENCH_WIRE_H
#define PRESTAGE_BENCH_WIRE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "nvme.h"

enum { CAPSULE = 72, SHORT_PDU = 24 }; /* command capsule; C2HData, H2CData, R2T, response */

/* Both ends run on the same little-endian machine: the benchmark is over loopback only. */
struct __attribute__((packed)) capsule {
  uint8_t type, flags, hlen, pdo;
  uint32_t plen;
  uint8_t opcode, entry_flags;
  uint16_t cid;
  uint32_t nsid;
  uint8_t dwords2_5[16];
  uint64_t sgl_address;
  uint32_t sgl_length;
  uint8_t sgl_reserved[3], sgl_type;
  uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
_Static_assert(sizeof(struct capsule) == CAPSULE, "command capsule");

struct __attribute__((packed)) short_pdu {
  uint8_t type, flags, hlen, pdo;
  uint32_t plen;
  union {
    struct __attribute__((packed)) {
      uint16_t cccid, ttag;
      uint32_t offset, length, reserved;
    };
    struct __attribute__((packed)) {
      uint32_t dw0, dw1;
      uint16_t sqhd, sqid, cid, status;
    };
  };
};
_Static_assert(sizeof(struct short_pdu) == SHORT_PDU, "data PDU, response");

static inline void __attribute__((noreturn)) die(const char *what) {
  perror(what);
  exit(1);
}

#endif
