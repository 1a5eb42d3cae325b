/* Little-endian fields of a submission queue entry, at any alignment. */
#ifndef PRESTAGE_REACTOR_FIELDS_H
#define PRESTAGE_REACTOR_FIELDS_H

#include <stdint.h>

static inline uint16_t le16(const uint8_t *bytes) { return (uint16_t)(bytes[0] | bytes[1] << 8); }
static inline uint32_t le32(const uint8_t *bytes) {
  return (uint32_t)le16(bytes) | (uint32_t)le16(bytes + 2) << 16;
}
static inline uint64_t le64(const uint8_t *bytes) {
  return le32(bytes) | (uint64_t)le32(bytes + 4) << 32;
}

#endif
