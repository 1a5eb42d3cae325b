/* Memory that is shared with a process that is not believed: of facts, and of orders. */
#ifndef PRESTAGE_SEALED_H
#define PRESTAGE_SEALED_H

#include <assert.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

/* A descriptor of new memory; -1 with errno: there is none. All of it is taken now: a page that
 * cannot be had later would be a signal in the data path. Nobody can make it smaller under us, or
 * larger, or allow that again. */
static inline int sealed_memory(const char *name, size_t size) {
  assert(name != NULL && size > 0);
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return -1;
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fallocate(fd, 0, 0, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0) return fd;
  close(fd);
  return -1;
}

#endif
