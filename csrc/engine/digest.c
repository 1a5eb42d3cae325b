/* Digests: CRC32C as RFC 3720 has it, least significant byte first (TCP 1.0, 3.3.1.1). */
#include <isa-l/crc.h>

#include "internal.h"

enum { CHUNK_SIZE = 1 << 30 }; /* the library counts in int */

uint32_t ps_crc_extend(uint32_t crc, const uint8_t *bytes, size_t size) {
  assert(bytes != NULL || size == 0);
  while (size > 0) {
    size_t chunk = size < CHUNK_SIZE ? size : CHUNK_SIZE;
    /* The library does not write; its prototype merely lacks the const. */
    crc = crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)chunk, crc);
    bytes += chunk;
    size -= chunk;
  }
  return crc;
}

uint32_t ps_crc32c(const uint8_t *bytes, size_t size) {
  return ps_crc_end(ps_crc_extend(PS_CRC_BEGIN, bytes, size));
}

void ps_digest_put(uint8_t *at, uint32_t crc) {
  assert(at != NULL);
  ps_le32 value = ps_put32(ps_crc_end(crc));
  memcpy(at, &value, sizeof value);
}

uint8_t ps_header_end(const struct ps_engine *engine, uint8_t *header, uint32_t size) {
  assert(header != NULL);
  assert(size <= sizeof(struct pdu_command));
  if (!(engine->digests & PS_DIGEST_HEADER)) return (uint8_t)size;
  ps_digest_put(header + size, ps_crc_extend(PS_CRC_BEGIN, header, size));
  return (uint8_t)(size + PS_DIGEST_SIZE);
}
