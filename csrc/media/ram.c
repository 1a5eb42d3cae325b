/* The kind "ram": anonymous memory. Everything is done by poll, in the owner's thread. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

enum { SIZE, OPTIONS };

#define BLOCK_SIZE 512
#define QUEUE_DEPTH 128
#define PAGE UINT64_C(4096)

static const struct ps_option options[OPTIONS] = {
    [SIZE] = {.key = "size",
              .type = PS_OPTION_SIZE,
              .required = true,
              .least = BLOCK_SIZE,
              .most = UINT64_C(1) << 46},
};

struct ram_media {
  struct ps_media base;
  pthread_mutex_t lock; /* memory and size, against a resize by another thread */
  uint8_t *memory;
  uint64_t size;
  struct ps_request_list waiting; /* the owner's thread only */
};

static struct ram_media *of(struct ps_media *media) {
  assert(media != NULL);
  return (struct ram_media *)media;
}

static void get_limits(struct ps_media *media, struct ps_media_limits *limits) {
  struct ram_media *ram = of(media);
  assert(limits != NULL);
  pthread_mutex_lock(&ram->lock);
  *limits = (struct ps_media_limits){
      .size = ram->size, .block_size = BLOCK_SIZE, .queue_depth = QUEUE_DEPTH};
  pthread_mutex_unlock(&ram->lock);
}

static int start(struct ps_media *media) {
  assert(media != NULL);
  return 0;
}

static void submit(struct ps_media *media, struct ps_media_request *request) {
  ps_list_push(&of(media)->waiting, request);
}

static void kick(struct ps_media *media) { (void)media; }

/* Whole pages go back to the system, which gives zeros for them; the rest is written. */
static void zero(struct ram_media *ram, uint64_t offset, uint64_t length) {
  assert(offset <= ram->size && length <= ram->size - offset);
  uint64_t end = offset + length;
  uint64_t first = (offset + PAGE - 1) / PAGE * PAGE;
  uint64_t last = end / PAGE * PAGE;
  if (first < last && madvise(ram->memory + first, last - first, MADV_DONTNEED) == 0) {
    memset(ram->memory + offset, 0, first - offset);
    memset(ram->memory + last, 0, end - last);
  } else {
    memset(ram->memory + offset, 0, length);
  }
}

static void read_bytes(const struct ram_media *ram, const struct ps_media_request *request) {
  const uint8_t *from = ram->memory + request->offset;
  if (!ps_is_in_parts(request)) memcpy(request->buffer, from, request->length);
  for (uint32_t i = 0; i < request->part_count; i++) {
    memcpy(request->parts[i].iov_base, from, request->parts[i].iov_len);
    from += request->parts[i].iov_len;
  }
}

static int run(struct ram_media *ram, const struct ps_media_request *request) {
  int error = ps_request_check(request, ram->size, BLOCK_SIZE);
  if (error != 0) return error;
  switch (request->op) {
    case PS_MEDIA_READ:
    case PS_MEDIA_PREFETCH:
      read_bytes(ram, request);
      break;
    case PS_MEDIA_WRITE:
      memcpy(ram->memory + request->offset, request->buffer, request->length);
      break;
    case PS_MEDIA_DISCARD:
    case PS_MEDIA_ZERO:
      zero(ram, request->offset, request->length);
      break;
    default:
      break; /* SYNC: there is nothing to wait for */
  }
  return 0;
}

static int poll_ram(struct ps_media *media, uint64_t now_ns) {
  struct ram_media *ram = of(media);
  struct ps_request_list waiting = {0};
  int count = 0;
  (void)now_ns;
  ps_list_move(&waiting, &ram->waiting);
  for (;; count++) {
    struct ps_media_request *request = ps_list_pop(&waiting);
    if (request == NULL) return count;
    pthread_mutex_lock(&ram->lock);
    int error = run(ram, request);
    pthread_mutex_unlock(&ram->lock);
    ps_request_end(request, error);
  }
}

static int wait_fd(struct ps_media *media) {
  (void)media;
  return -1;
}

static uint64_t next_time(struct ps_media *media) {
  return of(media)->waiting.head != NULL ? 0 : UINT64_MAX;
}

static int resize(struct ps_media *media, uint64_t size) {
  struct ram_media *ram = of(media);
  if (size == 0) return 0;
  if (size % BLOCK_SIZE != 0 || size > options[SIZE].most) return -EINVAL;
  pthread_mutex_lock(&ram->lock);
  uint64_t before = (ram->size + PAGE - 1) / PAGE * PAGE;
  void *memory = mremap(ram->memory, before, (size + PAGE - 1) / PAGE * PAGE, MREMAP_MAYMOVE);
  int error = memory == MAP_FAILED ? errno : 0;
  if (error == 0) {
    ram->memory = memory;
    /* The rest of the last page may hold bytes of a larger time; a later growth shows zeros. */
    uint64_t end = (size + PAGE - 1) / PAGE * PAGE;
    uint64_t kept = size < ram->size ? size : ram->size;
    if (kept < end && end <= before) memset(ram->memory + kept, 0, end - kept);
    ram->size = size;
  }
  pthread_mutex_unlock(&ram->lock);
  return -error;
}

static void close_ram(struct ps_media *media, bool abandon) {
  struct ram_media *ram = of(media);
  assert(abandon || ram->waiting.head == NULL);
  (void)abandon;
  munmap(ram->memory, (ram->size + PAGE - 1) / PAGE * PAGE);
  pthread_mutex_destroy(&ram->lock);
  free(ram);
}

static const struct ps_media_kind kind = {
    .name = "ram",
    .get_limits = get_limits,
    .start = start,
    .submit = submit,
    .kick = kick,
    .poll = poll_ram,
    .wait_fd = wait_fd,
    .next_time = next_time,
    .resize = resize,
    .close = close_ram,
};

struct ps_media *ps_ram_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                             struct ps_media *below) {
  assert(below == NULL);
  struct ps_option_value values[OPTIONS];
  if (!ps_spec_read(report, part, options, OPTIONS, values)) return NULL;
  uint64_t size = values[SIZE].number;
  if (size % BLOCK_SIZE != 0) {
    ps_spec_fail(report, values[SIZE].at,
                 "size is no multiple of the block size; expected a "
                 "multiple of %d",
                 BLOCK_SIZE);
    return NULL;
  }
  struct ram_media *ram = calloc(1, sizeof *ram);
  if (ram == NULL) {
    ps_spec_fail(report, part->start, "no memory for the medium");
    return NULL;
  }
  void *memory = mmap(NULL, (size + PAGE - 1) / PAGE * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    ps_spec_fail(report, values[SIZE].at, "no memory for so much; expected a smaller size");
    free(ram);
    return NULL;
  }
  ram->base.kind = &kind;
  ram->memory = memory;
  ram->size = size;
  pthread_mutex_init(&ram->lock, NULL);
  return &ram->base;
}
