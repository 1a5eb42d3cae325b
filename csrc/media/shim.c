/* What the wrappers share; see shim.h. */
#include "shim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int watch(int epoll_fd, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  if (fd < 0) return 0;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

/* One epoll instance for the whole chain: the kernel nests them four deep only. */
static int join_epoll(struct ps_shim *shim, struct ps_media *below) {
  assert(shim != NULL && below != NULL);
  int error = 0;
  if (below->kind->wait_fd == ps_shim_wait_fd) {
    shim->epoll_fd = ps_shim_of(below)->epoll_fd;
  } else {
    shim->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (shim->epoll_fd < 0) return errno;
    shim->owns_epoll = true;
    error = watch(shim->epoll_fd, ps_media_wait_fd(below));
  }
  return error != 0 ? error : watch(shim->epoll_fd, shim->event_fd);
}

void ps_shim_abort(struct ps_shim *shim) {
  assert(shim != NULL);
  if (shim->event_fd >= 0) close(shim->event_fd);
  if (shim->owns_epoll) close(shim->epoll_fd);
  free(shim->entries);
  pthread_mutex_destroy(&shim->lock);
}

static void land(struct ps_media_request *request);

bool ps_shim_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                  struct ps_shim *shim, const struct ps_media_kind *kind, struct ps_media *below) {
  assert(shim != NULL && kind != NULL && below != NULL);
  struct ps_media_limits limits;
  ps_media_get_limits(below, &limits);
  memset(shim, 0, sizeof *shim);
  shim->base.kind = kind;
  shim->base.below = below;
  shim->depth = limits.queue_depth;
  pthread_mutex_init(&shim->lock, NULL);
  shim->entries = calloc(shim->depth, sizeof *shim->entries);
  shim->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (shim->entries == NULL || shim->event_fd < 0 || join_epoll(shim, below) != 0) {
    ps_shim_abort(shim);
    return ps_spec_fail(report, part->start, "no memory or descriptors for the medium");
  }
  for (uint32_t i = shim->depth; i > 0; i--) {
    struct ps_shim_entry *entry = &shim->entries[i - 1];
    entry->shim = shim;
    entry->below.owner = entry;
    entry->below.done = land;
    entry->next_free = shim->free;
    shim->free = entry;
  }
  return true;
}

void ps_shim_close(struct ps_shim *shim, bool abandon) {
  assert(shim != NULL && shim->base.below != NULL);
  ps_media_close(shim->base.below, abandon);
  ps_shim_abort(shim);
}

/* Called by the medium below, in any thread. */
static void land(struct ps_media_request *request) {
  struct ps_shim_entry *entry = request->owner;
  struct ps_shim *shim = entry->shim;
  pthread_mutex_lock(&shim->lock);
  ps_list_push(&shim->landed, request);
  if (!shim->polling) ps_shim_wake(shim);
  pthread_mutex_unlock(&shim->lock);
}

void ps_shim_wake(struct ps_shim *shim) {
  assert(shim != NULL);
  atomic_store_explicit(&shim->has_news, true, memory_order_release);
  if (shim->event_is_set) return;
  shim->event_is_set = true;
  ps_event_set(shim->event_fd);
}

static struct ps_shim_entry *new_entry(struct ps_shim *shim) {
  struct ps_shim_entry *entry = shim->free;
  if (entry != NULL) shim->free = entry->next_free;
  return entry;
}

void ps_shim_give_back(struct ps_shim *shim, struct ps_shim_entry *entry) {
  assert(shim != NULL && entry != NULL && entry->shim == shim);
  entry->next_free = shim->free;
  shim->free = entry;
}

/* The parts of `outer` as far as its first `length` bytes reach. */
static void cut_parts(struct ps_shim_entry *entry, const struct ps_media_request *outer,
                      uint32_t length) {
  assert(length < outer->length);
  size_t left = length;
  uint32_t count = 0;
  for (; count < outer->part_count && count < PS_MEDIA_PARTS && left > 0; count++) {
    struct iovec part = outer->parts[count];
    if (part.iov_len > left) part.iov_len = left;
    entry->parts[count] = part;
    left -= part.iov_len;
  }
  entry->below.parts = entry->parts;
  entry->below.part_count = count;
}

void ps_shim_pass(struct ps_shim *shim, struct ps_media_request *outer, uint32_t length) {
  assert(shim != NULL && outer != NULL);
  assert(length <= outer->length);
  struct ps_shim_entry *entry = new_entry(shim);
  if (entry == NULL) {
    ps_shim_end(shim, outer, EAGAIN);
    return;
  }
  entry->outer = outer;
  struct ps_media_request *below = &entry->below;
  below->op = outer->op;
  below->buffer = outer->buffer;
  below->offset = outer->offset;
  below->length = length;
  below->parts = outer->parts;
  below->part_count = outer->part_count;
  if (ps_is_in_parts(outer) && length < outer->length) cut_parts(entry, outer, length);
  below->error = 0;
  ps_media_submit(shim->base.below, below);
}

bool ps_shim_send(struct ps_shim *shim, uint32_t op, uint8_t *buffer, uint64_t offset,
                  uint32_t length, uint64_t index) {
  assert(shim != NULL);
  struct ps_shim_entry *entry = new_entry(shim);
  if (entry == NULL) return false;
  entry->outer = NULL;
  entry->index = index;
  struct ps_media_request *below = &entry->below;
  below->op = op;
  below->buffer = buffer;
  below->offset = offset;
  below->length = length;
  below->parts = NULL;
  below->part_count = 0;
  below->error = 0;
  ps_media_submit(shim->base.below, below);
  return true;
}

void ps_shim_reap(struct ps_shim *shim, uint64_t now_ns, struct ps_request_list *landed) {
  assert(shim != NULL && landed != NULL);
  pthread_mutex_lock(&shim->lock);
  shim->polling = true;
  pthread_mutex_unlock(&shim->lock);
  ps_media_poll(shim->base.below, now_ns);
  pthread_mutex_lock(&shim->lock);
  shim->polling = false;
  if (shim->event_is_set) ps_event_clear(shim->event_fd);
  shim->event_is_set = false;
  atomic_store_explicit(&shim->has_news, false, memory_order_relaxed);
  ps_list_move(landed, &shim->landed);
  pthread_mutex_unlock(&shim->lock);
}

struct ps_shim_entry *ps_shim_take(struct ps_request_list *landed) {
  struct ps_media_request *request = ps_list_pop(landed);
  return request != NULL ? request->owner : NULL;
}

void ps_shim_end(struct ps_shim *shim, struct ps_media_request *outer, int error) {
  assert(shim != NULL && outer != NULL && error >= 0);
  outer->error = error;
  ps_list_push(&shim->ended, outer);
}

int ps_shim_deliver(struct ps_shim *shim) {
  assert(shim != NULL);
  struct ps_request_list ended = {0};
  ps_list_move(&ended, &shim->ended); /* `done` may submit again */
  for (int count = 0;; count++) {
    struct ps_media_request *request = ps_list_pop(&ended);
    if (request == NULL) return count;
    ps_request_end(request, request->error);
  }
}

uint64_t ps_shim_next_time(struct ps_shim *shim) {
  assert(shim != NULL);
  if (shim->ended.head != NULL) return 0;
  if (atomic_load_explicit(&shim->has_news, memory_order_acquire)) return 0;
  return ps_media_next_time(shim->base.below);
}

void ps_shim_get_limits(struct ps_media *media, struct ps_media_limits *limits) {
  ps_media_get_limits(ps_shim_of(media)->base.below, limits);
}

int ps_shim_start(struct ps_media *media) { return ps_media_start(ps_shim_of(media)->base.below); }

void ps_shim_kick(struct ps_media *media) { ps_media_kick(ps_shim_of(media)->base.below); }

int ps_shim_wait_fd(struct ps_media *media) { return ps_shim_of(media)->epoll_fd; }

int ps_shim_resize(struct ps_media *media, uint64_t size) {
  return ps_media_resize(ps_shim_of(media)->base.below, size);
}
