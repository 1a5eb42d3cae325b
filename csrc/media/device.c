/* What sysfs says about the device below a file or block device. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backing.h"

/* Reads queue/NAME of the device, or of the disk that the partition is on. */
static bool read_queue(dev_t device, const char *name, char *text, size_t size) {
  static const char *const folders[] = {"queue", "../queue"};
  assert(name != NULL && text != NULL && size > 1);
  for (size_t i = 0; i < 2; i++) {
    char path[128];
    snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s/%s", major(device), minor(device),
             folders[i], name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ssize_t got = read(fd, text, size - 1);
    close(fd);
    if (got <= 0) continue;
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return true;
  }
  return false;
}

void ps_backing_probe_device(struct ps_backing *backing) {
  assert(backing != NULL && backing->file.fd >= 0);
  struct stat status;
  char text[64];
  backing->has_volatile_cache = true;
  if (fstat(backing->file.fd, &status) != 0) return;
  bool is_device = S_ISBLK(status.st_mode);
  dev_t device = is_device ? status.st_rdev : status.st_dev;
  if (read_queue(device, "rotational", text, sizeof text)) {
    backing->is_rotational = strcmp(text, "1") == 0;
  }
  if (!is_device) return;
  if (read_queue(device, "write_cache", text, sizeof text)) {
    backing->has_volatile_cache = strcmp(text, "write through") != 0;
  }
  /* Without it a hole would be written as zeros: slower than leaving what is there. */
  if (read_queue(device, "write_zeroes_max_bytes", text, sizeof text)) {
    backing->file.can_punch = strtoull(text, NULL, 10) > 0;
  }
}

uint32_t ps_backing_device_block(int fd) {
  assert(fd >= 0);
  struct stat status;
  char text[64];
  if (fstat(fd, &status) != 0) return 0;
  if (!read_queue(status.st_dev, "logical_block_size", text, sizeof text)) return 0;
  return (uint32_t)strtoul(text, NULL, 10);
}
