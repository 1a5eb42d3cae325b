/* Opening, locking and measuring a backing file or block device. */
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define GREATEST_SIZE ((uint64_t)INT64_MAX)

/* A file system in memory: newer kernels take O_DIRECT there, and use the page cache all the same.
 */
static bool is_in_memory(int fd) {
  assert(fd >= 0);
  struct statfs status;
  if (fstatfs(fd, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

/* Opens, with O_DIRECT first unless told otherwise. Returns the descriptor or -errno. */
static int open_either_way(const char *path, int flags, uint32_t direct, bool *buffered) {
  assert(path != NULL && buffered != NULL);
  *buffered = false;
  if (direct != PS_DIRECT_NEVER) {
    int fd = open(path, flags | O_DIRECT, 0600);
    if (fd >= 0 && !is_in_memory(fd)) return fd;
    int error = fd >= 0 ? EINVAL : errno;
    if (fd >= 0) close(fd);
    /* The refusal comes after the file was made. */
    if (error == EINVAL && (flags & O_CREAT) != 0) unlink(path);
    if (error != EINVAL || direct == PS_DIRECT_ALWAYS) return -error;
  }
  *buffered = true;
  int fd = open(path, flags, 0600);
  return fd >= 0 ? fd : -errno;
}

static bool fail_open(const struct ps_spec_report *report, const struct ps_backing_order *order,
                      int error) {
  assert(error > 0);
  const char *path = order->path;
  switch (error) {
    case EBUSY:
      return ps_spec_fail(report, order->path_at,
                          "%s is in use by another target, or mounted; expected a device that "
                          "nothing else uses",
                          path);
    case ENOENT:
      if (order->create) {
        return ps_spec_fail(report, order->path_at,
                            "there is no directory to create %s in; expected one", path);
      }
      return ps_spec_fail(report, order->path_at,
                          "%s does not exist; expected a file or block device (or create=1 and "
                          "size=BYTES to make a file)",
                          path);
    case EINVAL:
      if (order->direct == PS_DIRECT_ALWAYS) {
        return ps_spec_fail(report, order->path_at,
                            "%s cannot be opened with O_DIRECT; expected direct=auto or direct=0 "
                            "on this file system",
                            path);
      }
      break;
    default:
      break;
  }
  return ps_spec_fail(report, order->path_at,
                      "cannot open %s: %s; expected a file or block device that can be read and "
                      "written",
                      path, strerror(error));
}

/* What stands at the path: regular file, device, or nothing (`*exists` false). */
static bool check_kind(const struct ps_spec_report *report, const struct ps_backing_order *order,
                       struct stat *status, bool *exists) {
  assert(order != NULL && status != NULL && exists != NULL);
  *exists = stat(order->path, status) == 0;
  if (!*exists) {
    if (errno != ENOENT || !order->create) return fail_open(report, order, errno);
    if (!order->has_size) {
      return ps_spec_fail(report, order->path_at,
                          "%s does not exist and create=1 has no size; expected size=BYTES",
                          order->path);
    }
    return true;
  }
  if (S_ISREG(status->st_mode) || S_ISBLK(status->st_mode)) return true;
  const char *what = S_ISDIR(status->st_mode)    ? "a directory"
                     : S_ISCHR(status->st_mode)  ? "a character device"
                     : S_ISFIFO(status->st_mode) ? "a pipe"
                                                 : "a socket";
  return ps_spec_fail(report, order->path_at, "%s is %s; expected a regular file or block device",
                      order->path, what);
}

/* An open-file-description lock, so that it guards against a second open in this process too. */
static bool lock(const struct ps_spec_report *report, const struct ps_backing_order *order,
                 int fd) {
  assert(fd >= 0);
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  if (fcntl(fd, F_OFD_SETLK, &whole) == 0) return true;
  if (errno == EAGAIN || errno == EACCES) {
    return ps_spec_fail(report, order->path_at,
                        "%s is in use by another target; expected a file that nothing else uses",
                        order->path);
  }
  return ps_spec_fail(report, order->path_at,
                      "cannot lock %s: %s; expected a file system with "
                      "locks",
                      order->path, strerror(errno));
}

/* What the kernel says about O_DIRECT on this file; 0 when it is too old to say. */
static uint32_t direct_alignment(int fd) {
  uint32_t alignment = 0;
#ifdef STATX_DIOALIGN
  struct statx status = {0};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    alignment = status.stx_dio_offset_align;
  }
#endif
  (void)fd;
  return alignment;
}

/* O_DIRECT refuses what is smaller than its blocks: the kernel says how large they are, or the
 * device does, or the smallest read that succeeds. (Beyond the end of a file all do.) */
static uint32_t probe_block_size(int fd) {
  assert(fd >= 0);
  void *buffer = NULL;
  uint32_t block_size = direct_alignment(fd);
  if (block_size == 0) block_size = ps_backing_device_block(fd);
  if (block_size >= 512 && block_size <= 4096) return block_size;
  if (posix_memalign(&buffer, 4096, 4096) != 0) return 4096;
  for (block_size = 512; block_size < 4096; block_size *= 2) {
    if (pread(fd, buffer, block_size, (off_t)block_size) >= 0 || errno != EINVAL) break;
  }
  free(buffer);
  return block_size;
}

static bool measure_device(const struct ps_spec_report *report,
                           const struct ps_backing_order *order, struct ps_backing *backing) {
  uint64_t size = 0;
  int block_size = 0;
  if (ioctl(backing->file.fd, BLKGETSIZE64, &size) != 0 ||
      ioctl(backing->file.fd, BLKSSZGET, &block_size) != 0) {
    return ps_spec_fail(report, order->path_at, "cannot measure %s: %s", order->path,
                        strerror(errno));
  }
  if (block_size < 512 || block_size > 4096) {
    return ps_spec_fail(report, order->path_at, "%s has blocks of %d bytes; expected 512 to 4096",
                        order->path, block_size);
  }
  if (order->has_size && order->size != size) {
    return ps_spec_fail(report, order->size_at,
                        "size=%" PRIu64 " is not the size of the device %s; expected %" PRIu64
                        " or no size",
                        order->size, order->path, size);
  }
  backing->file.block_size = (uint32_t)block_size;
  backing->size = size;
  if (size == 0) {
    return ps_spec_fail(report, order->path_at, "%s is empty; expected a device with a medium",
                        order->path);
  }
  ps_backing_probe_device(backing);
  return true;
}

static bool check_size(const struct ps_spec_report *report, const struct ps_backing_order *order,
                       uint64_t present, uint32_t block_size) {
  assert(block_size >= 512);
  uint64_t size = order->has_size ? order->size : present;
  const char *at = order->has_size ? order->size_at : order->path_at;
  if (size == 0) {
    return ps_spec_fail(report, at, "%s is empty; expected size=BYTES to give it a size",
                        order->path);
  }
  if (size % block_size != 0) {
    return ps_spec_fail(report, at,
                        "size %" PRIu64
                        " of %s is no multiple of its block size; expected a "
                        "multiple of %" PRIu32,
                        size, order->path, block_size);
  }
  if (size < present) {
    return ps_spec_fail(report, at,
                        "size=%" PRIu64 " is smaller than %s; expected at least its %" PRIu64
                        " bytes (nothing is cut off on opening)",
                        size, order->path, present);
  }
  return true;
}

/* Punching beyond the end changes nothing and tells whether the file system can do it. */
static bool probe_punch(int fd, uint64_t size, uint32_t block_size) {
  assert(fd >= 0);
  if (size > GREATEST_SIZE - block_size) return false;
  return fallocate(fd, PS_MAKE_HOLE, (off_t)size, (off_t)block_size) == 0;
}

static bool measure_file(const struct ps_spec_report *report, const struct ps_backing_order *order,
                         struct ps_backing *backing) {
  struct stat status;
  if (fstat(backing->file.fd, &status) != 0) return fail_open(report, order, errno);
  uint64_t present = (uint64_t)status.st_size;
  bool buffered = (backing->warnings & PS_MEDIA_BUFFERED) != 0;
  backing->file.block_size = buffered ? 512 : probe_block_size(backing->file.fd);
  if (!check_size(report, order, present, backing->file.block_size)) return false;
  uint64_t size = order->has_size ? order->size : present;
  if (size > present && ftruncate(backing->file.fd, (off_t)size) != 0) {
    return ps_spec_fail(report, order->size_at, "cannot grow %s to %" PRIu64 " bytes: %s",
                        order->path, size, strerror(errno));
  }
  backing->size = size;
  ps_backing_probe_device(backing);
  backing->has_volatile_cache = true; /* metadata and page cache at least wait for fdatasync */
  backing->file.can_punch = probe_punch(backing->file.fd, size, backing->file.block_size);
  return true;
}

/* After open and lock: kind again (the path may have changed since), measure. */
static bool settle(const struct ps_spec_report *report, const struct ps_backing_order *order,
                   struct ps_backing *backing) {
  struct stat status;
  if (fstat(backing->file.fd, &status) != 0) return fail_open(report, order, errno);
  backing->file.is_device = S_ISBLK(status.st_mode);
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
    return ps_spec_fail(report, order->path_at,
                        "%s changed; expected a regular file or block "
                        "device",
                        order->path);
  }
  bool good = backing->file.is_device ? measure_device(report, order, backing)
                                      : measure_file(report, order, backing);
  if (good && !backing->file.can_punch) backing->warnings |= PS_MEDIA_NO_PUNCH;
  return good;
}

bool ps_backing_open(const struct ps_spec_report *report, const struct ps_backing_order *order,
                     struct ps_backing *backing) {
  assert(report != NULL && order != NULL && backing != NULL);
  assert(order->path != NULL && order->direct <= PS_DIRECT_ALWAYS);
  struct stat status;
  bool exists = false;
  bool buffered = false;
  if (!check_kind(report, order, &status, &exists)) return false;
  int flags = O_RDWR | O_CLOEXEC | O_NOCTTY;
  if (!exists) flags |= O_CREAT | O_EXCL;
  if (exists && S_ISBLK(status.st_mode)) flags |= O_EXCL; /* refused while it is mounted */
  int fd = open_either_way(order->path, flags, order->direct, &buffered);
  if (fd == -EEXIST) { /* somebody was faster: it is not ours to remove */
    exists = true;
    fd = open_either_way(order->path, flags & ~(O_CREAT | O_EXCL), order->direct, &buffered);
  }
  if (fd < 0) return fail_open(report, order, -fd);
  *backing = (struct ps_backing){.file = {.fd = fd, .block_size = 512}};
  if (buffered) backing->warnings |= PS_MEDIA_BUFFERED;
  bool locked = lock(report, order, fd);
  if (locked && settle(report, order, backing)) return true;
  if (locked && !exists) unlink(order->path);
  ps_backing_close(backing);
  return false;
}

int ps_backing_resize(struct ps_backing *backing, uint64_t size) {
  assert(backing != NULL && backing->file.fd >= 0);
  uint64_t present = 0;
  if (backing->file.is_device) {
    if (ioctl(backing->file.fd, BLKGETSIZE64, &present) != 0) return -errno;
    if (size != 0 && size != present) return -EINVAL;
  } else {
    struct stat status;
    if (size > GREATEST_SIZE || size % backing->file.block_size != 0) return -EINVAL;
    if (size != 0 && ftruncate(backing->file.fd, (off_t)size) != 0) return -errno;
    if (fstat(backing->file.fd, &status) != 0) return -errno;
    present = (uint64_t)status.st_size;
  }
  present -= present % backing->file.block_size;
  if (present == 0) return -EINVAL;
  backing->size = present;
  return 0;
}

/* Closing is not enough to unlock: a request that was abandoned keeps the open file description
 * until the kernel has ended it. */
void ps_backing_close(struct ps_backing *backing) {
  assert(backing != NULL && backing->file.fd >= 0);
  struct flock whole = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
  (void)fcntl(backing->file.fd, F_OFD_SETLK, &whole);
  close(backing->file.fd);
  backing->file.fd = -1;
}
