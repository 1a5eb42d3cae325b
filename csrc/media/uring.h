/* The io_uring engine of a backing file. All calls in the owner's thread, except ps_uring_probe. */
#ifndef PRESTAGE_MEDIA_URING_H
#define PRESTAGE_MEDIA_URING_H

#include <liburing.h>

#include "backing.h"

struct ps_uring {
  struct io_uring ring;
  struct ps_backing_file file;
  uint32_t in_flight;
  /* Requests that the ring cannot do (the owner runs them in a thread). */
  struct ps_request_list refused;
  struct ps_request_list ended; /* with their error */
};

/* 0 when a ring can be made here, or the errno that says why not. */
int ps_uring_probe(void);
/* 0 or an errno. `event_fd` becomes readable on completions. */
int ps_uring_open(struct ps_uring *uring, const struct ps_backing_file *file, uint32_t depth,
                  int event_fd);
void ps_uring_submit(struct ps_uring *uring, struct ps_media_request *request);
void ps_uring_kick(struct ps_uring *uring);
/* True when ps_uring_reap has something to do, seen without a system call. */
bool ps_uring_is_ready(struct ps_uring *uring);
/* Moves completions to `ended` and `refused`. */
void ps_uring_reap(struct ps_uring *uring);
/* Requests under way are cancelled as far as the kernel can. */
void ps_uring_close(struct ps_uring *uring);

#endif
