/* The log of unsynced writes; see cutlog.h. */
#include "cutlog.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ALIGNMENT UINT64_C(4096) /* of buffers that media get */
#define ENTRIES_LEAST 64

static uint64_t aligned(uint64_t length) {
  return (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

bool ps_cutlog_open(struct ps_cutlog *log, uint64_t limit) {
  assert(log != NULL && limit >= ALIGNMENT);
  *log = (struct ps_cutlog){.byte_count = limit / ALIGNMENT * ALIGNMENT};
  log->capacity = log->byte_count / ALIGNMENT;
  if (log->capacity < ENTRIES_LEAST) log->capacity = ENTRIES_LEAST;
  log->entries = calloc(log->capacity, sizeof *log->entries);
  void *bytes =
      mmap(NULL, log->byte_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  log->bytes = bytes != MAP_FAILED ? bytes : NULL;
  if (log->entries != NULL && log->bytes != NULL) return true;
  ps_cutlog_close(log);
  return false;
}

void ps_cutlog_close(struct ps_cutlog *log) {
  assert(log != NULL);
  free(log->entries);
  if (log->bytes != NULL) munmap(log->bytes, log->byte_count);
  log->entries = NULL;
  log->bytes = NULL;
}

struct ps_cutlog_entry *ps_cutlog_at(struct ps_cutlog *log, uint64_t sequence) {
  assert(log != NULL);
  assert(sequence >= log->first && sequence < log->next);
  return &log->entries[sequence % log->capacity];
}

/* The oldest bytes in use, or NULL when there are none. */
static uint8_t *oldest_data(struct ps_cutlog *log) {
  for (uint64_t i = log->first; i < log->next; i++) {
    uint8_t *data = ps_cutlog_at(log, i)->data;
    if (data != NULL) return data;
  }
  return NULL;
}

/* Room for `length` bytes in one piece of the ring, or NULL. */
static uint8_t *reserve(struct ps_cutlog *log, uint64_t length) {
  assert(length % ALIGNMENT == 0);
  uint8_t *oldest = oldest_data(log);
  if (oldest == NULL) log->next_byte = 0;
  uint64_t used_from = oldest != NULL ? (uint64_t)(oldest - log->bytes) : log->byte_count;
  uint64_t at = log->next_byte;
  if (oldest == NULL || at > used_from) { /* in use: [used_from, at); at == used_from: all is */
    if (length <= log->byte_count - at) {
      log->next_byte = at + length;
      return log->bytes + at;
    }
    if (oldest == NULL) return NULL;
    at = 0;
  }
  if (at > used_from || length > used_from - at) return NULL;
  log->next_byte = at + length;
  return log->bytes + at;
}

bool ps_cutlog_append(struct ps_cutlog *log, uint64_t offset, uint32_t length,
                      const uint8_t *data) {
  assert(log != NULL && length > 0);
  if (ps_cutlog_count(log) == log->capacity) return false;
  uint8_t *copy = NULL;
  if (data != NULL) {
    copy = reserve(log, aligned(length));
    if (copy == NULL) return false;
    memcpy(copy, data, length);
  }
  log->next++;
  *ps_cutlog_at(log, log->next - 1) =
      (struct ps_cutlog_entry){.offset = offset, .length = length, .data = copy};
  return true;
}

void ps_cutlog_forget(struct ps_cutlog *log, uint64_t sequence) {
  assert(log != NULL);
  assert(sequence >= log->first && sequence <= log->next);
  log->first = sequence;
}

void ps_cutlog_overlay(struct ps_cutlog *log, uint64_t offset, uint32_t length, uint8_t *data) {
  assert(log != NULL && data != NULL);
  uint64_t end = offset + length;
  for (uint64_t i = log->first; i < log->next; i++) {
    const struct ps_cutlog_entry *entry = ps_cutlog_at(log, i);
    uint64_t from = entry->offset > offset ? entry->offset : offset;
    uint64_t to = entry->offset + entry->length < end ? entry->offset + entry->length : end;
    if (from >= to) continue;
    if (entry->data != NULL) {
      memcpy(data + (from - offset), entry->data + (from - entry->offset), to - from);
    } else {
      memset(data + (from - offset), 0, to - from);
    }
  }
}
