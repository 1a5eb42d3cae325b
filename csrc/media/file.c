/* The kind "file": a regular file or block device, by io_uring or by threads. */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "backing.h"
#include "pool.h"
#include "uring.h"

enum { ENGINE_AUTO = 0, ENGINE_URING = 1, ENGINE_THREADS = 2 };
enum { SIZE, CREATE, ENGINE, DIRECT, DEPTH, OPTIONS };

#define DEPTH_DEFAULT 128
#define FEWEST_THREADS 4
#define MOST_THREADS 8

const char *const ps_flags[] = {"0", "1", NULL};
static const char *const engines[] = {"auto", "uring", "threads", NULL};
static const char *const directs[] = {"auto", "0", "1", NULL}; /* as enum ps_direct */

static const struct ps_option options[OPTIONS] = {
    [SIZE] = PS_FILE_OPTION_SIZE,
    [CREATE] = PS_FILE_OPTION_CREATE,
    [ENGINE] = {.key = "engine", .type = PS_OPTION_CHOICE, .choices = engines},
    [DIRECT] = {.key = "direct", .type = PS_OPTION_CHOICE, .choices = directs},
    [DEPTH] = PS_FILE_OPTION_DEPTH,
};

struct file_media {
  struct ps_media base;
  struct ps_backing backing;
  uint32_t depth;
  uint32_t engine; /* ENGINE_URING or ENGINE_THREADS, once started */
  bool started;
  bool event_may_be_set;
  atomic_uint warnings; /* of the engine */
  int event_fd;
  struct ps_uring uring;
  struct ps_pool *pool;          /* the threads engine; or, for io_uring, what it cannot do */
  struct ps_request_list failed; /* ended without reaching the file, with their error */
};

static struct file_media *of(struct ps_media *media) {
  assert(media != NULL);
  return (struct file_media *)media;
}

static void get_limits(struct ps_media *media, struct ps_media_limits *limits) {
  struct file_media *file = of(media);
  assert(limits != NULL);
  *limits = (struct ps_media_limits){
      .size = file->backing.size,
      .block_size = file->backing.file.block_size,
      .queue_depth = file->depth,
      .warnings = file->backing.warnings | file->warnings,
      .has_volatile_cache = file->backing.has_volatile_cache,
      .is_rotational = file->backing.is_rotational,
      .size_is_fixed = file->backing.file.is_device,
  };
}

static uint32_t thread_count(void) {
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t wanted = processors > 0 ? 2 * (uint32_t)processors : FEWEST_THREADS;
  if (wanted < FEWEST_THREADS) return FEWEST_THREADS;
  return wanted < MOST_THREADS ? wanted : MOST_THREADS;
}

static int start_pool(struct file_media *file, uint32_t threads) {
  assert(file->pool == NULL);
  file->pool = ps_pool_new(&file->backing.file, threads, file->event_fd);
  return file->pool != NULL ? 0 : errno;
}

static int start(struct ps_media *media) {
  struct file_media *file = of(media);
  assert(!file->started);
  int error = 0;
  if (file->engine != ENGINE_THREADS) {
    error = ps_uring_open(&file->uring, &file->backing.file, file->depth, file->event_fd);
    if (error == 0) {
      file->engine = ENGINE_URING;
      file->started = true;
      return 0;
    }
    if (file->engine == ENGINE_URING) return error;
    file->warnings |= PS_MEDIA_THREADS;
  }
  error = start_pool(file, thread_count());
  if (error != 0) return error;
  file->engine = ENGINE_THREADS;
  file->started = true;
  return 0;
}

/* Runs in a thread what the ring refused. The one thread is made when it is first needed: most
 * files never do. */
static void run_refused(struct file_media *file) {
  for (;;) {
    struct ps_media_request *request = ps_list_pop(&file->uring.refused);
    if (request == NULL) return;
    int error = file->pool == NULL ? start_pool(file, 1) : 0;
    if (error == 0) {
      ps_pool_submit(file->pool, request);
    } else {
      request->error = error;
      ps_list_push(&file->failed, request);
    }
  }
}

static void submit(struct ps_media *media, struct ps_media_request *request) {
  struct file_media *file = of(media);
  assert(file->started);
  int error = ps_request_check(request, file->backing.size, file->backing.file.block_size);
  if (error != 0) {
    request->error = error;
    ps_list_push(&file->failed, request);
  } else if (file->engine == ENGINE_THREADS) {
    ps_pool_submit(file->pool, request);
  } else {
    ps_uring_submit(&file->uring, request);
    run_refused(file);
  }
}

static void kick(struct ps_media *media) {
  struct file_media *file = of(media);
  assert(file->started);
  if (file->engine == ENGINE_URING) ps_uring_kick(&file->uring);
}

static bool is_ready(struct file_media *file) {
  if (!file->started) return false;
  if (file->failed.head != NULL) return true;
  if (file->pool != NULL && ps_pool_has_ended(file->pool)) return true;
  if (file->engine != ENGINE_URING) return false;
  return file->uring.ended.head != NULL || ps_uring_is_ready(&file->uring);
}

/* The descriptor is cleared before the reaping, so that what ends in between sets it again; and
 * not at all when nothing has ended since the last time, which is what a busy owner mostly sees. */
static int poll_file(struct ps_media *media, uint64_t now_ns) {
  struct file_media *file = of(media);
  struct ps_request_list ended = {0};
  int count = 0;
  (void)now_ns;
  bool ready = is_ready(file);
  if (!ready && !file->event_may_be_set) return 0;
  ps_event_clear(file->event_fd);
  file->event_may_be_set = ready;
  if (file->engine == ENGINE_URING) {
    ps_uring_reap(&file->uring);
    run_refused(file);
    ps_list_move(&ended, &file->uring.ended);
  }
  if (file->pool != NULL) ps_pool_take(file->pool, &ended);
  ps_list_move(&ended, &file->failed);
  for (;; count++) {
    struct ps_media_request *request = ps_list_pop(&ended);
    if (request == NULL) return count;
    ps_request_end(request, request->error);
  }
}

static int wait_fd(struct ps_media *media) { return of(media)->event_fd; }

static uint64_t next_time(struct ps_media *media) { return is_ready(of(media)) ? 0 : UINT64_MAX; }

static int resize(struct ps_media *media, uint64_t size) {
  return ps_backing_resize(&of(media)->backing, size);
}

static void close_file(struct ps_media *media, bool abandon) {
  struct file_media *file = of(media);
  if (file->pool != NULL) ps_pool_close(file->pool, abandon);
  if (file->started && file->engine == ENGINE_URING) ps_uring_close(&file->uring);
  ps_backing_close(&file->backing);
  close(file->event_fd);
  free(file);
}

static const struct ps_media_kind kind = {
    .name = "file",
    .get_limits = get_limits,
    .start = start,
    .submit = submit,
    .kick = kick,
    .poll = poll_file,
    .wait_fd = wait_fd,
    .next_time = next_time,
    .resize = resize,
    .close = close_file,
};

/* Which engine, as far as can be told before the owner's thread is known. */
static bool choose_engine(const struct ps_spec_report *report, struct file_media *file,
                          const struct ps_option_value *engine) {
  file->engine = engine->given ? (uint32_t)engine->number : ENGINE_AUTO;
  if (file->engine == ENGINE_THREADS) return true;
  int error = ps_uring_probe();
  if (error == 0) return true;
  if (file->engine == ENGINE_URING) {
    return ps_spec_fail(report, engine->at,
                        "io_uring cannot be used here (errno %d); expected engine=auto or "
                        "engine=threads",
                        error);
  }
  file->engine = ENGINE_THREADS;
  file->warnings = PS_MEDIA_THREADS;
  return true;
}

struct ps_media *ps_file_new(const struct ps_spec_report *report, const struct ps_spec_part *part,
                             const struct ps_file_order *order) {
  assert(report != NULL && part != NULL && order != NULL);
  struct file_media *file = calloc(1, sizeof *file);
  int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (file == NULL || event_fd < 0) {
    ps_spec_fail(report, part->start, "no memory or descriptors for the medium");
    goto failed;
  }
  file->base.kind = &kind;
  file->event_fd = event_fd;
  file->depth = order->depth.given ? (uint32_t)order->depth.number : DEPTH_DEFAULT;
  if (!choose_engine(report, file, &order->engine)) goto failed;
  struct ps_backing_order backing = {
      .path = part->path,
      .path_at = part->path_start,
      .has_size = order->size.given,
      .size = order->size.number,
      .size_at = order->size.at,
      .create = order->create.given && order->create.number == 1,
      .direct = order->direct.given ? (uint32_t)order->direct.number : PS_DIRECT_AUTO,
  };
  if (ps_backing_open(report, &backing, &file->backing)) return &file->base;
failed:
  if (event_fd >= 0) close(event_fd);
  free(file);
  return NULL;
}

struct ps_media *ps_file_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                              struct ps_media *below) {
  assert(below == NULL && part->path != NULL);
  (void)below;
  struct ps_option_value values[OPTIONS];
  if (!ps_spec_read(report, part, options, OPTIONS, values)) return NULL;
  struct ps_file_order order = {.size = values[SIZE],
                                .create = values[CREATE],
                                .engine = values[ENGINE],
                                .direct = values[DIRECT],
                                .depth = values[DEPTH]};
  return ps_file_new(report, part, &order);
}
