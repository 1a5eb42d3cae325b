/* What the wrappers share: a medium above another one, which gets requests of its own (the caller's
 * request stays here meanwhile), and wakes its owner through one descriptor for the whole chain. */
#ifndef PRESTAGE_MEDIA_SHIM_H
#define PRESTAGE_MEDIA_SHIM_H

#include <pthread.h>

#include "internal.h"

struct ps_shim;

/* A request for the medium below. */
struct ps_shim_entry {
  struct ps_media_request below;  /* `owner` is this entry */
  struct ps_media_request *outer; /* the caller's; NULL: the wrapper's own, see `index` */
  struct ps_shim *shim;
  struct ps_shim_entry *next_free;
  uint64_t index;                     /* the wrapper's own */
  struct iovec parts[PS_MEDIA_PARTS]; /* of a request that is passed on in part */
};

struct ps_shim {
  struct ps_media base;
  uint32_t depth;
  int event_fd;                  /* set from other threads */
  int epoll_fd;                  /* of the whole chain: event_fd of each wrapper, and the medium */
  bool owns_epoll;               /* the innermost wrapper made it */
  struct ps_shim_entry *entries; /* depth of them, for the owner's thread */
  struct ps_shim_entry *free;
  struct ps_request_list ended;  /* the caller's requests, with their error */
  pthread_mutex_t lock;          /* all below, and what a wrapper's orders change */
  struct ps_request_list landed; /* requests that the medium below has ended */
  bool polling;                  /* the owner is about to take `landed`: nobody need wake it */
  bool event_is_set;
  atomic_bool has_news; /* `landed` or an order waits */
};

/* On failure: false, with a report, and nothing is left; `below` stays the caller's. */
bool ps_shim_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                  struct ps_shim *shim, const struct ps_media_kind *kind, struct ps_media *below);
/* Closes the medium below, and frees all but the memory of `shim` itself. */
void ps_shim_close(struct ps_shim *shim, bool abandon);
/* Undoes ps_shim_open when a wrapper cannot be finished; `below` stays the caller's. */
void ps_shim_abort(struct ps_shim *shim);

/* Hands `outer` to the medium below, or only its first `length` bytes. It ends with EAGAIN when
 * more requests are under way than the queue depth allows. */
void ps_shim_pass(struct ps_shim *shim, struct ps_media_request *outer, uint32_t length);
/* A request of the wrapper's own. False when there is no entry left. */
bool ps_shim_send(struct ps_shim *shim, uint32_t op, uint8_t *buffer, uint64_t offset,
                  uint32_t length, uint64_t index);
/* Polls the medium below, then takes one that has landed: fill `landed` first, then take until
 * NULL. The entry must be given back by ps_shim_give_back. */
void ps_shim_reap(struct ps_shim *shim, uint64_t now_ns, struct ps_request_list *landed);
struct ps_shim_entry *ps_shim_take(struct ps_request_list *landed);
void ps_shim_give_back(struct ps_shim *shim, struct ps_shim_entry *entry);
/* Ends the caller's request at the next ps_shim_deliver. */
void ps_shim_end(struct ps_shim *shim, struct ps_media_request *outer, int error);
int ps_shim_deliver(struct ps_shim *shim);
/* Wakes the owner after an order; with the lock held. */
void ps_shim_wake(struct ps_shim *shim);
/* UINT64_MAX, 0 when something waits already, or the time of the medium below. */
uint64_t ps_shim_next_time(struct ps_shim *shim);

/* Callbacks that most wrappers use as they are. */
void ps_shim_get_limits(struct ps_media *media, struct ps_media_limits *limits);
int ps_shim_start(struct ps_media *media);
void ps_shim_kick(struct ps_media *media);
int ps_shim_wait_fd(struct ps_media *media);
int ps_shim_resize(struct ps_media *media, uint64_t size);

static inline struct ps_shim *ps_shim_of(struct ps_media *media) {
  assert(media != NULL && media->below != NULL);
  return (struct ps_shim *)media;
}

/* ---- requests that are held until they are due ---- */

struct ps_hold {
  struct ps_media_request **heap; /* the earliest `due_ns` first, then the lowest `state` */
  uint32_t count;
  uint32_t capacity;
  uint64_t sequence;
};

bool ps_hold_open(struct ps_hold *hold, uint32_t capacity);
void ps_hold_close(struct ps_hold *hold);
/* `request->due_ns` is set; `state` becomes the hold's. False when it is full. */
bool ps_hold_push(struct ps_hold *hold, struct ps_media_request *request);
/* The first that is due by now, or NULL. */
struct ps_media_request *ps_hold_pop(struct ps_hold *hold, uint64_t now_ns);
uint64_t ps_hold_next_time(const struct ps_hold *hold);

#endif
