/* The operations of a backing file by blocking system calls, for the threads that run them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "backing.h"

#define RETRIES 64 /* of EINTR and EAGAIN, and of transfers without progress */

static ssize_t move_some(int fd, const struct ps_media_request *request, uint32_t progress) {
  struct ps_memory memory = ps_memory_at(request, progress);
  off_t where = (off_t)(request->offset + progress);
  if (!ps_op_is_read(request->op)) return pwrite(fd, memory.piece, memory.length, where);
  if (memory.parts == NULL) return pread(fd, memory.piece, memory.length, where);
  return preadv(fd, memory.parts, (int)memory.part_count, where);
}

static int transfer(const struct ps_backing_file *file, const struct ps_media_request *request) {
  assert(file != NULL && request != NULL);
  assert(ps_is_in_parts(request) || request->buffer != NULL);
  bool reading = ps_op_is_read(request->op);
  uint32_t progress = 0;
  int retries = 0;
  while (progress < request->length) {
    ssize_t got = move_some(file->fd, request, progress);
    if (got < 0) {
      if ((errno != EINTR && errno != EAGAIN) || ++retries > RETRIES) return errno;
      continue;
    }
    uint32_t whole = (uint32_t)got - (uint32_t)got % file->block_size;
    if (whole == 0 && (got == 0 || reading || ++retries > RETRIES)) return EIO;
    progress += whole;
  }
  return 0;
}

/* Zeros where the file system can neither punch nor zero a range. */
static int write_zeros(const struct ps_backing_file *file, uint64_t offset, uint32_t length) {
  static const _Alignas(4096) uint8_t zeros[65536];
  assert(file != NULL);
  while (length > 0) {
    uint32_t part = length < sizeof zeros ? length : (uint32_t)sizeof zeros;
    struct ps_media_request request = {.op = PS_MEDIA_WRITE,
                                       .length = part,
                                       .offset = offset,
                                       .buffer = (uint8_t *)(uintptr_t)zeros};
    int error = transfer(file, &request);
    if (error != 0) return error;
    offset += part;
    length -= part;
  }
  return 0;
}

static int allocate(const struct ps_backing_file *file, int mode, uint64_t offset,
                    uint32_t length) {
  int result = -1;
  for (int i = 0; i <= RETRIES; i++) {
    result = fallocate(file->fd, mode, (off_t)offset, (off_t)length);
    if (result == 0 || (errno != EINTR && errno != EAGAIN)) break;
  }
  return result == 0 ? 0 : errno;
}

static bool is_refusal(int error) {
  return error == EOPNOTSUPP || error == ENOSYS || error == ENODEV || error == EINVAL ||
         error == ENOTTY || error == EPERM;
}

static int zero(const struct ps_backing_file *file, uint64_t offset, uint32_t length) {
  int modes[2] = {PS_MAKE_HOLE, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
  for (int i = 0; file->can_punch && i < 2; i++) {
    int error = allocate(file, modes[i], offset, length);
    if (error == 0 || !is_refusal(error)) return error;
  }
  if (file->is_device) {
    uint64_t range[2] = {offset, length};
    if (ioctl(file->fd, BLKZEROOUT, range) == 0) return 0;
    if (!is_refusal(errno)) return errno;
  }
  return write_zeros(file, offset, length);
}

/* A hint: what cannot do it does not fail it. */
static int discard(const struct ps_backing_file *file, uint64_t offset, uint32_t length) {
  if (!file->can_punch) return 0;
  int error = 0;
  if (file->is_device) {
    uint64_t range[2] = {offset, length};
    if (ioctl(file->fd, BLKDISCARD, range) != 0) error = errno;
  } else {
    error = allocate(file, PS_MAKE_HOLE, offset, length);
  }
  return is_refusal(error) ? 0 : error;
}

static int sync_data(const struct ps_backing_file *file) {
  int result = -1;
  for (int i = 0; i <= RETRIES; i++) {
    result = fdatasync(file->fd);
    if (result == 0 || errno != EINTR) break;
  }
  return result == 0 ? 0 : errno;
}

int ps_blocking_run(const struct ps_backing_file *file, const struct ps_media_request *request) {
  assert(file != NULL && file->fd >= 0);
  assert(request != NULL && file->block_size >= 512);
  switch (request->op) {
    case PS_MEDIA_READ:
    case PS_MEDIA_PREFETCH:
    case PS_MEDIA_WRITE:
      return transfer(file, request);
    case PS_MEDIA_SYNC:
      return sync_data(file);
    case PS_MEDIA_DISCARD:
      return discard(file, request->offset, request->length);
    case PS_MEDIA_ZERO:
      return zero(file, request->offset, request->length);
    default:
      return EINVAL;
  }
}
