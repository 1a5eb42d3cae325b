/* A backing file or block device: opened, checked, locked, measured; and its operations done by
 * plain blocking system calls. */
#ifndef PRESTAGE_MEDIA_BACKING_H
#define PRESTAGE_MEDIA_BACKING_H

#include <linux/falloc.h>

#include "internal.h"

/* The mode of fallocate(2) for DISCARD and ZERO. A device's hole reads as zeros too: the kernel
 * makes it by what the device promises to read as zeros, and refuses where it would have to write
 * them. */
enum { PS_MAKE_HOLE = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE };

/* Enough to run an operation, copied into whatever thread runs it. */
struct ps_backing_file {
  int fd;
  uint32_t block_size;
  bool is_device;
  bool can_punch; /* discard and zero reach the medium as such */
};

struct ps_backing {
  struct ps_backing_file file;
  _Atomic uint64_t size;
  uint32_t warnings;
  bool has_volatile_cache;
  bool is_rotational;
};

struct ps_backing_order {
  const char *path;
  const char *path_at; /* into the spec, for complaints */
  bool has_size;
  uint64_t size;
  const char *size_at;
  bool create;
  uint32_t direct; /* enum ps_direct */
};

enum ps_direct { PS_DIRECT_AUTO = 0, PS_DIRECT_NEVER = 1, PS_DIRECT_ALWAYS = 2 };

bool ps_backing_open(const struct ps_spec_report *report, const struct ps_backing_order *order,
                     struct ps_backing *backing);
/* 0 or -errno. */
int ps_backing_resize(struct ps_backing *backing, uint64_t size);
/* Unlocks and closes. */
void ps_backing_close(struct ps_backing *backing);

/* Reads sysfs about the device under `fd`; leaves the defaults where sysfs is silent. */
void ps_backing_probe_device(struct ps_backing *backing);

/* The logical block size of the device below a file, as sysfs says; 0 when it is silent. */
uint32_t ps_backing_device_block(int fd);

/* Runs an operation to its end in this thread. 0 or an errno. */
int ps_blocking_run(const struct ps_backing_file *file, const struct ps_media_request *request);

#endif
