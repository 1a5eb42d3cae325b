/* The operations of a backing file by blocking system calls, for the threads that run them. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "backing.h"

#define RETRIES 64 /* of EINTR and EAGAIN, and of transfers without progress */

static int transfer(const struct ps_backing_file *file, bool reading, uint8_t *buffer,
                    uint64_t offset, uint32_t length) {
  assert(file != NULL && buffer != NULL);
  uint32_t progress = 0;
  int retries = 0;
  while (progress < length) {
    uint8_t *at = buffer + progress;
    off_t where = (off_t)(offset + progress);
    ssize_t got = reading ? pread(file->fd, at, length - progress, where)
                          : pwrite(file->fd, at, length - progress, where);
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
    int error = transfer(file, false, (uint8_t *)(uintptr_t)zeros, offset, part);
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

int ps_blocking_run(const struct ps_backing_file *file, uint32_t op, uint8_t *buffer,
                    uint64_t offset, uint32_t length) {
  assert(file != NULL && file->fd >= 0);
  assert(file->block_size >= 512);
  switch (op) {
    case PS_MEDIA_READ:
    case PS_MEDIA_PREFETCH:
      return transfer(file, true, buffer, offset, length);
    case PS_MEDIA_WRITE:
      return transfer(file, false, buffer, offset, length);
    case PS_MEDIA_SYNC:
      return sync_data(file);
    case PS_MEDIA_DISCARD:
      return discard(file, offset, length);
    case PS_MEDIA_ZERO:
      return zero(file, offset, length);
    default:
      return EINVAL;
  }
}
