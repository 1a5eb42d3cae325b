/* CRC32C of the digests, also of bytes that come in parts (TCP 1.0, 3.3.1.1). */
#ifndef PRESTAGE_BENCH_CRC_H
#define PRESTAGE_BENCH_CRC_H

#include <isa-l/crc.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST = 4 };
#define CRC_BEGIN UINT32_MAX

static inline uint32_t crc_extend(uint32_t crc, const void *bytes, size_t size) {
  /* The library does not write, and no part here is larger than its int. */
  return crc32_iscsi((unsigned char *)(uintptr_t)bytes, (int)size, crc);
}

static inline uint32_t crc_of(const void *bytes, size_t size) {
  return ~crc_extend(CRC_BEGIN, bytes, size);
}

#endif
