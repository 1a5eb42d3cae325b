/* The few PDU layouts that the load generator and the bare server speak (TCP 1.0, 3.6). */
#ifndef PRESTAGE_BENCH_WIRE_H
#define PRESTAGE_BENCH_WIRE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crc.h"
#include "digest.h"
#include "nvme.h"

/* Command capsule; C2HData, H2CData, R2T and response; ICReq and ICResp. */
enum { CAPSULE = 72, SHORT_PDU = 24, IC = 128 };

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

struct __attribute__((packed)) ic {
  uint8_t type, flags, hlen, pdo;
  uint32_t plen;
  uint16_t version;
  uint8_t alignment, digests; /* PS_DIGEST_HEADER, PS_DIGEST_DATA */
  uint32_t limit;             /* MAXR2T, MAXH2CDATA */
  uint8_t reserved[112];
};
_Static_assert(sizeof(struct ic) == IC, "ICReq, ICResp");

/* Headers as they are sent: where header digests are not in use, the digest is left away. */
struct __attribute__((packed)) sent_capsule {
  struct capsule pdu;
  uint32_t digest;
};
struct __attribute__((packed)) sent_short {
  struct short_pdu pdu;
  uint32_t digest;
};

static inline uint32_t header_digest_bytes(uint8_t digests) {
  return digests & PS_DIGEST_HEADER ? DIGEST : 0;
}
static inline uint32_t data_digest_bytes(uint8_t digests) {
  return digests & PS_DIGEST_DATA ? DIGEST : 0;
}

/* The digest of the header at `bytes` is right (it follows at `hlen`), or there is none. */
static inline int header_is_whole(const uint8_t *bytes, uint32_t hlen, uint8_t digests) {
  uint32_t came;
  if (!(digests & PS_DIGEST_HEADER)) return 1;
  memcpy(&came, bytes + hlen, sizeof came);
  return came == crc_of(bytes, hlen);
}

static inline void __attribute__((noreturn)) die(const char *what) {
  perror(what);
  exit(1);
}

#endif
