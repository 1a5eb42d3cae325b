/* Small things that every kind of medium uses. */
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* Whether the parts make up the range. Their addresses are the caller's promise, as a buffer's is.
 */
static bool check_parts(const struct ps_media_request *request, uint32_t block_size) {
  assert(request != NULL && block_size != 0);
  if (!ps_is_in_parts(request)) return true;
  if (!ps_op_is_read(request->op) || request->parts == NULL) return false;
  if (request->part_count > PS_MEDIA_PARTS) return false;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < request->part_count; i++) {
    size_t length = request->parts[i].iov_len;
    if (length == 0 || length % block_size != 0 || length > request->length) return false;
    sum += length;
  }
  return sum == request->length;
}

int ps_request_check(const struct ps_media_request *request, uint64_t size, uint32_t block_size) {
  assert(request != NULL);
  assert(block_size != 0);
  if (request->op < PS_MEDIA_READ || request->op > PS_MEDIA_PREFETCH) return EINVAL;
  if (request->op == PS_MEDIA_SYNC) return 0;
  if (request->length == 0 || request->length % block_size != 0) return EINVAL;
  if (request->offset % block_size != 0) return EINVAL;
  if (request->offset > size || request->length > size - request->offset) return EINVAL;
  return check_parts(request, block_size) ? 0 : EINVAL;
}

struct ps_memory ps_memory_at(const struct ps_media_request *request, uint32_t at) {
  assert(request != NULL && at < request->length);
  uint32_t rest = request->length - at;
  if (!ps_is_in_parts(request))
    return (struct ps_memory){.piece = request->buffer + at, .length = rest};
  uint32_t index = 0;
  size_t inside = at;
  while (inside >= request->parts[index].iov_len) {
    inside -= request->parts[index++].iov_len;
    assert(index < request->part_count);
  }
  const struct iovec *part = &request->parts[index];
  if (inside == 0) {
    return (struct ps_memory){
        .parts = part, .part_count = request->part_count - index, .length = rest};
  }
  return (struct ps_memory){.piece = (uint8_t *)part->iov_base + inside,
                            .length = (uint32_t)(part->iov_len - inside)};
}

uint64_t ps_monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* The finaliser of a 64-bit counter-based generator: two rounds of multiply and shift. */
uint64_t ps_mix(uint64_t seed, uint64_t counter) {
  uint64_t x = seed * 0x9e3779b97f4a7c15U + counter + 0x632be59bd9b4e019U;
  for (int round = 0; round < 2; round++) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93U;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9U;
  }
  return x ^ (x >> 32);
}

double ps_fraction(uint64_t seed, uint64_t counter) {
  return (double)(ps_mix(seed, counter) >> 11) * 0x1p-53;
}

void ps_event_set(int event_fd) {
  assert(event_fd >= 0);
  uint64_t one = 1;
  ssize_t written;
  do {
    written = write(event_fd, &one, sizeof one);
  } while (written < 0 && errno == EINTR);
  /* EAGAIN means that the counter is full, so the descriptor is readable anyway. */
}

void ps_event_clear(int event_fd) {
  assert(event_fd >= 0);
  uint64_t count;
  ssize_t got;
  do {
    got = read(event_fd, &count, sizeof count);
  } while (got < 0 && errno == EINTR);
}
