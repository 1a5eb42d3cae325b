/* Transfers of any length, one after the other, bring every byte of a read in parts to its place.
 *
 *   media_parts [SEED [RUNS]]
 *
 * Prints the seed; exit status 1 and a line to standard error on the first difference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "media/internal.h"

#define MOST_LENGTH 512U

static uint64_t seed, drawn;

static uint32_t draw(uint32_t below) { return (uint32_t)(ps_mix(seed, drawn++) % below); }

static void fail(const char *what, uint64_t run) {
  fprintf(stderr, "media_parts: run %llu: %s\n", (unsigned long long)run, what);
  exit(1);
}

/* Parts of 1 to 32 bytes, each in memory of its own, so that a sanitizer sees what is beyond. */
static void make_parts(struct ps_media_request *request, struct iovec *parts) {
  request->part_count = 1 + draw(PS_MEDIA_PARTS);
  request->parts = parts;
  for (uint32_t i = 0; i < request->part_count; i++) {
    parts[i].iov_len = 1 + draw(MOST_LENGTH / PS_MEDIA_PARTS);
    parts[i].iov_base = malloc(parts[i].iov_len);
    if (parts[i].iov_base == NULL) fail("no memory", i);
    request->length += (uint32_t)parts[i].iov_len;
  }
}

/* What a device does that stops where it likes: `most` bytes at most. Returns how many. */
static uint32_t move_some(const struct ps_memory *memory, const uint8_t *from, uint32_t most) {
  uint32_t moved = 0;
  if (memory->parts == NULL) {
    moved = most < memory->length ? most : memory->length;
    memcpy(memory->piece, from, moved);
    return moved;
  }
  for (uint32_t i = 0; i < memory->part_count && moved < most; i++) {
    uint32_t length = (uint32_t)memory->parts[i].iov_len;
    if (length > most - moved) length = most - moved;
    memcpy(memory->parts[i].iov_base, from + moved, length);
    moved += length;
  }
  return moved;
}

static void run_one(uint64_t run) {
  struct ps_media_request request = {.op = PS_MEDIA_READ};
  struct iovec parts[PS_MEDIA_PARTS];
  uint8_t source[MOST_LENGTH];
  make_parts(&request, parts);
  for (uint32_t i = 0; i < request.length; i++) source[i] = (uint8_t)draw(256);
  if (ps_request_check(&request, request.length, 1) != 0) fail("the parts are refused", run);
  for (uint32_t at = 0; at < request.length;) {
    struct ps_memory memory = ps_memory_at(&request, at);
    if (memory.length == 0 || memory.length > request.length - at) fail("length", run);
    at += move_some(&memory, source + at, 1 + draw(request.length));
  }
  const uint8_t *expected = source;
  for (uint32_t i = 0; i < request.part_count; i++) {
    if (memcmp(parts[i].iov_base, expected, parts[i].iov_len) != 0) fail("other bytes", run);
    expected += parts[i].iov_len;
    free(parts[i].iov_base);
  }
}

int main(int argc, char **argv) {
  seed = argc > 1 ? strtoull(argv[1], NULL, 0) : ps_monotonic_ns();
  uint64_t runs = argc > 2 ? strtoull(argv[2], NULL, 0) : 20000;
  printf("media_parts: seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  for (uint64_t run = 0; run < runs; run++) run_one(run);
  return 0;
}
