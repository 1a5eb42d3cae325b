/* What a volatile write cache holds: writes and zeros in order, each with a copy of its bytes. A
 * bounded ring of entries over a bounded ring of bytes; all memory is taken when it is opened. */
#ifndef PRESTAGE_MEDIA_CUTLOG_H
#define PRESTAGE_MEDIA_CUTLOG_H

#include "internal.h"

struct ps_cutlog_entry {
  uint64_t offset;
  uint32_t length;
  uint8_t *data; /* NULL: zeros */
};

struct ps_cutlog {
  uint8_t *bytes;
  uint64_t byte_count;
  uint64_t next_byte; /* where the next data goes */
  struct ps_cutlog_entry *entries;
  uint64_t capacity;
  uint64_t first; /* sequence numbers: entries are [first, next) */
  uint64_t next;
};

bool ps_cutlog_open(struct ps_cutlog *log, uint64_t limit);
void ps_cutlog_close(struct ps_cutlog *log);
/* Copies a write (`data` NULL: zeros). False when there is no room. */
bool ps_cutlog_append(struct ps_cutlog *log, uint64_t offset, uint32_t length, const uint8_t *data);
struct ps_cutlog_entry *ps_cutlog_at(struct ps_cutlog *log, uint64_t sequence);
/* Forgets the entries before `sequence`. */
void ps_cutlog_forget(struct ps_cutlog *log, uint64_t sequence);
/* Lays the entries, oldest first, over bytes that were read from the medium below. */
void ps_cutlog_overlay(struct ps_cutlog *log, uint64_t offset, uint32_t length, uint8_t *data);

static inline uint64_t ps_cutlog_count(const struct ps_cutlog *log) {
  return log->next - log->first;
}

#endif
