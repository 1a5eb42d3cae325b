/* Reads, writes, syncs and fallocate through io_uring, with short transfers continued. */
#include "uring.h"

#include <errno.h>
#include <string.h>

#define RETRIES 64 /* of EINTR and EAGAIN, and of transfers without progress */
#define REAP_MOST 1024

/* From what the newest kernels take to what all take. */
static const unsigned ring_flags[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN |
        IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    0,
};

static int make_ring(struct io_uring *ring, uint32_t entries) {
  int result = -EINVAL;
  for (size_t i = 0; i < sizeof ring_flags / sizeof ring_flags[0] && result == -EINVAL; i++) {
    result = io_uring_queue_init(entries, ring, ring_flags[i]);
  }
  return -result;
}

int ps_uring_probe(void) {
  struct io_uring ring;
  int error = make_ring(&ring, 1);
  if (error == 0) io_uring_queue_exit(&ring);
  return error;
}

int ps_uring_open(struct ps_uring *uring, const struct ps_backing_file *file, uint32_t depth,
                  int event_fd) {
  assert(uring != NULL && file != NULL);
  assert(depth > 0 && event_fd >= 0);
  memset(uring, 0, sizeof *uring);
  uring->file = *file;
  int error = make_ring(&uring->ring, depth);
  if (error != 0) return error;
  /* The ring's own descriptor does not wake epoll while completions wait to be run by their
   * issuer (DEFER_TASKRUN); an eventfd does. */
  int result = io_uring_register_eventfd(&uring->ring, event_fd);
  if (result == 0) return 0;
  io_uring_queue_exit(&uring->ring);
  return -result;
}

static struct io_uring_sqe *next_entry(struct ps_uring *uring) {
  struct io_uring_sqe *entry = io_uring_get_sqe(&uring->ring);
  if (entry != NULL) return entry;
  (void)io_uring_submit(&uring->ring);
  return io_uring_get_sqe(&uring->ring);
}

/* `state` of a request here: bytes done below, retries above. */
static uint32_t progress_of(const struct ps_media_request *request) {
  return (uint32_t)request->state;
}

static bool may_retry(struct ps_media_request *request) {
  request->state += UINT64_C(1) << 32;
  return (request->state >> 32) <= RETRIES;
}

/* The kernel takes the list of parts with the entry (IORING_FEAT_SUBMIT_STABLE, Linux 5.5). */
static void prepare_transfer(struct io_uring_sqe *entry, int fd,
                             const struct ps_media_request *request) {
  uint32_t done = progress_of(request);
  struct ps_memory memory = ps_memory_at(request, done);
  uint64_t offset = request->offset + done;
  if (request->op == PS_MEDIA_WRITE)
    io_uring_prep_write(entry, fd, memory.piece, memory.length, offset);
  else if (memory.parts == NULL)
    io_uring_prep_read(entry, fd, memory.piece, memory.length, offset);
  else
    io_uring_prep_readv(entry, fd, memory.parts, memory.part_count, offset);
}

/* Prepares the rest of the request; it ends with EAGAIN should the ring have no room.
 * The file is not registered with the ring: the kernel takes a ring down some time after it was
 * closed, and a registered file would stay open, and its device claimed, until then. */
static void issue(struct ps_uring *uring, struct ps_media_request *request) {
  assert(uring != NULL && request != NULL);
  struct io_uring_sqe *entry = next_entry(uring);
  if (entry == NULL) {
    request->error = EAGAIN;
    ps_list_push(&uring->ended, request);
    return;
  }
  int fd = uring->file.fd;
  switch (request->op) {
    case PS_MEDIA_SYNC:
      io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC);
      break;
    case PS_MEDIA_DISCARD:
    case PS_MEDIA_ZERO:
      io_uring_prep_fallocate(entry, fd, PS_MAKE_HOLE, (off_t)request->offset,
                              (off_t)request->length);
      break;
    default:
      prepare_transfer(entry, fd, request);
      break;
  }
  io_uring_sqe_set_data(entry, request);
  uring->in_flight++;
}

/* What the ring has no operation for: a device's discard, and zeros where nothing can be punched.
 */
static bool needs_thread(const struct ps_uring *uring, uint32_t op) {
  if (op != PS_MEDIA_DISCARD && op != PS_MEDIA_ZERO) return false;
  return !uring->file.can_punch || (op == PS_MEDIA_DISCARD && uring->file.is_device);
}

void ps_uring_submit(struct ps_uring *uring, struct ps_media_request *request) {
  assert(uring != NULL && request != NULL);
  request->state = 0;
  if (needs_thread(uring, request->op)) {
    ps_list_push(&uring->refused, request);
  } else {
    issue(uring, request);
  }
}

void ps_uring_kick(struct ps_uring *uring) {
  assert(uring != NULL);
  for (int i = 0; i < RETRIES && io_uring_sq_ready(&uring->ring) > 0; i++) {
    int result = io_uring_submit(&uring->ring);
    assert(result != -EEXIST); /* another thread than the one that started the medium */
    if (result < 0 && result != -EINTR && result != -EAGAIN && result != -EBUSY) break;
    if (result == -EAGAIN || result == -EBUSY) break; /* the next poll kicks again */
  }
}

static void end(struct ps_uring *uring, struct ps_media_request *request, int error) {
  request->error = error;
  ps_list_push(&uring->ended, request);
}

/* A read or write moved `count` bytes: done, or the rest is issued. */
static void advance(struct ps_uring *uring, struct ps_media_request *request, uint32_t count) {
  assert(count <= request->length - progress_of(request));
  uint32_t whole = count - count % uring->file.block_size;
  if (count == request->length - progress_of(request)) {
    end(uring, request, 0);
  } else if (whole == 0 && (count == 0 || ps_op_is_read(request->op) || !may_retry(request))) {
    end(uring, request, EIO); /* the end of a file that was cut off */
  } else {
    request->state += whole;
    issue(uring, request);
  }
}

static void complete(struct ps_uring *uring, struct ps_media_request *request, int result) {
  assert(uring->in_flight > 0);
  uring->in_flight--;
  bool transfers = ps_op_is_read(request->op) || request->op == PS_MEDIA_WRITE;
  if (result >= 0 && transfers) {
    advance(uring, request, (uint32_t)result);
  } else if (result >= 0) {
    end(uring, request, 0);
  } else if ((result == -EINTR || result == -EAGAIN) && may_retry(request)) {
    issue(uring, request);
  } else if (!transfers && request->op != PS_MEDIA_SYNC &&
             (result == -EOPNOTSUPP || result == -EINVAL || result == -EPERM)) {
    ps_list_push(&uring->refused, request);
  } else {
    end(uring, request, -result);
  }
}

bool ps_uring_is_ready(struct ps_uring *uring) {
  assert(uring != NULL);
  unsigned flags = __atomic_load_n(uring->ring.sq.kflags, __ATOMIC_RELAXED);
  if ((flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0) return true;
  return io_uring_cq_ready(&uring->ring) > 0 || io_uring_sq_ready(&uring->ring) > 0;
}

void ps_uring_reap(struct ps_uring *uring) {
  assert(uring != NULL);
  struct io_uring_cqe *entry = NULL;
  for (int i = 0; i < REAP_MOST && io_uring_peek_cqe(&uring->ring, &entry) == 0; i++) {
    struct ps_media_request *request = io_uring_cqe_get_data(entry);
    int result = entry->res;
    io_uring_cqe_seen(&uring->ring, entry);
    if (request != NULL) complete(uring, request, result);
  }
  ps_uring_kick(uring); /* the rest of short transfers */
}

void ps_uring_close(struct ps_uring *uring) {
  assert(uring != NULL);
  io_uring_queue_exit(&uring->ring);
}
