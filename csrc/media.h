/* A medium: where the bytes of a volume are. One small table of callbacks; every kind and every
 * fault wrapper is one file. Submission is from one thread (the owner's); completion may come from
 * any thread, so a library with threads of its own fits.
 *
 * Base property of every medium and wrapper: the same bytes with and without it, unless it exists
 * to break them.
 */
#ifndef PRESTAGE_MEDIA_H
#define PRESTAGE_MEDIA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* cffi: begin */
#define PS_MEDIA_PARTS 16

enum ps_media_op {
  PS_MEDIA_READ = 1,
  PS_MEDIA_WRITE = 2,
  PS_MEDIA_SYNC = 3,    /* all completed writes are durable when it completes */
  PS_MEDIA_DISCARD = 4, /* contents become zeros or stay; a hint to the medium */
  PS_MEDIA_ZERO = 5,    /* contents become zeros */
  PS_MEDIA_PREFETCH = 6 /* as READ, but nobody waits: a model or device may put it last */
};

/* One operation. `buffer` is aligned to 4096 and `offset`, `length` to the medium's block size.
 * The memory of the request is the caller's until `done` is called, once, from any thread. */
struct ps_media_request {
  struct ps_media_request *next; /* for whoever holds it */
  struct ps_media_request *previous;
  uint32_t op;     /* enum ps_media_op */
  uint32_t length; /* bytes */
  uint64_t offset; /* bytes */
  uint8_t *buffer;
  /* READ and PREFETCH of several places as one: then `buffer` is NULL, every part is aligned as a
   * buffer is, and the parts make up `length`. The array stays until `done`. */
  const struct iovec *parts;
  uint32_t part_count; /* 0: `buffer`; at most PS_MEDIA_PARTS */
  int32_t error;       /* set before `done`: 0 or an errno. A short transfer is EIO */
  uint32_t ticket;     /* the caller's own */
  void *owner;         /* the caller's own */
  void (*done)(struct ps_media_request *request);
  uint64_t due_ns;                /* the medium's own */
  uint64_t state;                 /* the medium's own */
  struct ps_media_request *inner; /* the medium's own */
};

struct ps_media_limits {
  uint64_t size;               /* bytes */
  uint32_t block_size;         /* alignment of offsets and lengths, bytes */
  uint32_t queue_depth;        /* requests under way at most; a caller never submits more */
  uint32_t warnings;           /* enum ps_media_warning bits: what was found on opening */
  uint32_t has_volatile_cache; /* 1: SYNC means something */
  uint32_t is_rotational;
  uint32_t size_is_fixed; /* 1: a device; it may be found grown, but never be cut */
  /* What the medium says of itself; 0: it does not. */
  uint64_t bandwidth; /* bytes per second that it moves at most */
  uint64_t read_ns;   /* of a read, without waiting and transfer */
};

enum ps_media_warning {
  PS_MEDIA_BUFFERED = 1, /* O_DIRECT is refused here (tmpfs): the page cache is used */
  PS_MEDIA_THREADS = 2,  /* io_uring is forbidden here: a pread/pwrite thread pool is used */
  PS_MEDIA_NO_PUNCH = 4  /* holes cannot be punched: discard does nothing, zero writes zeros */
};

struct ps_media;

/* Open a medium. `spec` is a chain, outermost wrapper first, parts joined by '|', options by ',':
 *   file:PATH[,size=BYTES][,create=1][,engine=auto|uring|threads][,direct=auto|0|1][,depth=N]
 *   ram:size=BYTES
 *   model:PATH[,size=BYTES][,create=1][,depth=N],seed=N,read_us=MEDIAN,read_p99_us=..,
 *         write_us=..[,write_p99_us=..],bandwidth=BYTES_PER_S,channels=N[,scale=F]
 *                                                           (a seeded flash over a file)
 *   delay:read_us=N,write_us=N,sync_us=N,seed=N|...        (adds a delay, exact or seeded)
 *   error:op=read|write|sync|any,errno=EIO|ENOSPC|SHORT,rate=F,count=N,first=OFFSET,last=OFFSET,
 *         seed=N|...                                        (fails what matches)
 *   stall:after=N,op=read|write|sync|any|...   (holds what matches until released)
 *   powercut:seed=N,limit=BYTES|...                         (unsynced writes are kept aside)
 * A path's ',' and '|' and '%' are written %2C, %7C and %25. Every option is checked; `error` says
 * what was wrong, where in the spec, and what was expected. The backing file is locked exclusively
 * (an open-file-description lock, F_OFD_SETLK; "is in use by another target"). Returns NULL on
 * failure. Call ps_media_start in the owner's thread before the first submission. */
struct ps_media *ps_media_open(const char *spec, char *error, size_t error_size);
void ps_media_get_limits(struct ps_media *media, struct ps_media_limits *limits);
/* In the owner's thread: makes the ring (SINGLE_ISSUER) or the threads. 0 or an errno; a forbidden
 * io_uring is no error but a warning bit. */
int ps_media_start(struct ps_media *media);
/* Hand over `request`; nothing is promised to be under way until ps_media_kick. */
void ps_media_submit(struct ps_media *media, struct ps_media_request *request);
void ps_media_kick(struct ps_media *media);
/* Reap: calls `done` of what has ended (media with own threads call it from those). Returns how
 * many it reaped. */
int ps_media_poll(struct ps_media *media, uint64_t now_ns);
/* A descriptor that becomes readable when ps_media_poll has something to do, or -1; and the time at
 * which it has although the descriptor says nothing (UINT64_MAX: never). */
int ps_media_wait_fd(struct ps_media *media);
uint64_t ps_media_next_time(struct ps_media *media);
/* Re-read the size of what is below (0: a grown block device), or change it (a file, ram). 0 or
 * -errno. Any thread; it may take a while. */
int ps_media_resize(struct ps_media *media, uint64_t size);
/* Fault wrappers: reach the wrapper called `kind` in the chain. `verb`: "release" (stall), "arm"
 * (error, stall: starts matching again), "cut" (powercut: drop, reorder, tear by seed, then go on
 * as after power-on; done by the owner's next poll or kick, before anything submitted later),
 * "set key=value". 0 or -errno with text in `error`. Any thread. */
int ps_media_control(struct ps_media *media, const char *kind, const char *verb, char *error,
                     size_t error_size);
/* Ends threads and ring, unlocks. Requests under way must have ended, or are abandoned when
 * `abandon` (a stalled medium at exit): `done` is not called for them any more, but the kernel may
 * still use their buffers, which must stay as they are until the process ends. Any thread; powercut
 * does a cut that was ordered and not done yet only when it is the owner's. */
void ps_media_close(struct ps_media *media, bool abandon);
/* cffi: end */

/* What a kind provides (media/NAME.c); wrappers hold the medium below. */
struct ps_media_kind {
  const char *name;
  void (*get_limits)(struct ps_media *media, struct ps_media_limits *limits);
  int (*start)(struct ps_media *media);
  void (*submit)(struct ps_media *media, struct ps_media_request *request);
  void (*kick)(struct ps_media *media);
  int (*poll)(struct ps_media *media, uint64_t now_ns);
  int (*wait_fd)(struct ps_media *media);
  uint64_t (*next_time)(struct ps_media *media);
  int (*resize)(struct ps_media *media, uint64_t size);
  int (*control)(struct ps_media *media, const char *verb, char *error, size_t error_size);
  void (*close)(struct ps_media *media, bool abandon);
};

struct ps_media {
  const struct ps_media_kind *kind;
  struct ps_media *below; /* wrappers only */
};

#endif
