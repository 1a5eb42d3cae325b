/* The wrapper "powercut": a volatile write cache that can lose power. Writes end when they are
 * copied into the log; SYNC puts the log on the medium below. A DISCARD is logged as zeros.
 *
 * Reads go to the medium below, and what the log holds is laid over them when they land. Therefore
 * the log goes down only while no read is below, and nothing is admitted meanwhile. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cutplan.h"
#include "shim.h"

enum { SEED, LIMIT, SECTOR, OPTIONS };
enum phase { SERVING = 0, DESTAGING = 1, CUTTING = 2 };
enum cut_stage { CUT_READ = 0, CUT_MERGE = 1 };

#define LIMIT_DEFAULT (UINT64_C(64) << 20)
#define CLOSE_CUT_NS UINT64_C(2000000000) /* for a cut that was ordered just before the close */
#define CLOSE_POLL_MS 5

static const char *const sectors[] = {"512", "4096", NULL};

static const struct ps_option options[OPTIONS] = {
    [SEED] = {.key = "seed", .type = PS_OPTION_NUMBER, .most = UINT64_MAX},
    [LIMIT] = {.key = "limit", .type = PS_OPTION_SIZE, .least = 4096, .most = UINT64_C(1) << 36},
    [SECTOR] = {.key = "sector", .type = PS_OPTION_CHOICE, .choices = sectors},
};

struct powercut_media {
  struct ps_shim shim;
  struct ps_cutlog log;
  struct ps_request_list waiting; /* not admitted yet, oldest first */
  struct ps_request_list after;   /* came after a cut was ordered that has not happened yet */
  struct ps_request_list syncs;   /* wait until the log before their `state` is below */
  uint64_t completed;             /* writes of the log before this have ended for the caller */
  uint64_t target;                /* the log goes down to here */
  uint64_t batch_next;            /* DESTAGING: up to here it is on its way */
  int batch_error;
  enum phase phase;
  enum cut_stage cut_stage;
  uint32_t passed;  /* reads, and writes larger than the log, that are below */
  uint32_t syncing; /* SYNCs that are below */
  uint32_t own;     /* requests of the wrapper's own that are below */
  int own_error;    /* of the last of them that failed */
  bool closing;     /* the callers' requests are not to be touched any more */
  pthread_t owner;
  struct ps_cutplan plan;
  uint64_t cut_next; /* CUTTING: place in the plan */
  uint8_t *scratch;  /* CUTTING: for torn entries */
  uint64_t seed;     /* from here on: under the shim's lock */
  uint64_t cut_number;
  bool cut_ordered;
};

static struct powercut_media *of(struct ps_media *media) {
  return (struct powercut_media *)ps_shim_of(media);
}

static bool cut_is_ordered(struct powercut_media *cut) {
  pthread_mutex_lock(&cut->shim.lock);
  bool ordered = cut->cut_ordered;
  pthread_mutex_unlock(&cut->shim.lock);
  return ordered;
}

static void get_limits(struct ps_media *media, struct ps_media_limits *limits) {
  ps_shim_get_limits(media, limits);
  limits->has_volatile_cache = 1;
}

static uint64_t size_below(struct powercut_media *cut) {
  struct ps_media_limits limits;
  ps_media_get_limits(cut->shim.base.below, &limits);
  return limits.size;
}

/* The medium may have shrunk since the entry was logged. */
static bool fits_below(const struct ps_cutlog_entry *entry, uint64_t size) {
  return entry->offset <= size && entry->length <= size - entry->offset;
}

/* ---- the log goes down ---- */

static bool overlaps(const struct ps_cutlog_entry *a, const struct ps_cutlog_entry *b) {
  return a->offset < b->offset + b->length && b->offset < a->offset + a->length;
}

/* True when an entry of the batch overlaps this one: they must go down one after the other. */
static bool overlaps_batch(struct powercut_media *cut, const struct ps_cutlog_entry *entry) {
  for (uint64_t i = cut->log.first; i < cut->batch_next; i++) {
    if (overlaps(ps_cutlog_at(&cut->log, i), entry)) return true;
  }
  return false;
}

static bool send_entry(struct powercut_media *cut, const struct ps_cutlog_entry *entry) {
  uint32_t op = entry->data != NULL ? PS_MEDIA_WRITE : PS_MEDIA_ZERO;
  if (!ps_shim_send(&cut->shim, op, entry->data, entry->offset, entry->length, 0)) return false;
  cut->own++;
  return true;
}

static void begin_batch(struct powercut_media *cut) {
  assert(cut->phase == SERVING && cut->passed == 0 && cut->own == 0);
  assert(cut->target > cut->log.first && cut->target <= cut->log.next);
  uint64_t size = size_below(cut);
  cut->phase = DESTAGING;
  cut->own_error = 0;
  cut->batch_next = cut->log.first;
  while (cut->batch_next < cut->target) {
    const struct ps_cutlog_entry *entry = ps_cutlog_at(&cut->log, cut->batch_next);
    if (overlaps_batch(cut, entry)) break;
    if (fits_below(entry, size) && !send_entry(cut, entry)) break;
    cut->batch_next++;
  }
}

static void pass_sync(struct powercut_media *cut, struct ps_media_request *request) {
  cut->syncing++;
  ps_shim_pass(&cut->shim, request, request->length);
}

/* A batch that failed stays in the log, to be written again; who waited for it hears of it. */
static void end_batch(struct powercut_media *cut) {
  assert(cut->phase == DESTAGING && cut->own == 0);
  struct ps_media_request *request = NULL;
  cut->phase = SERVING;
  cut->batch_error = cut->own_error;
  if (cut->batch_error == 0 && cut->batch_next == cut->log.first) cut->batch_error = EAGAIN;
  if (cut->batch_error != 0) {
    cut->target = cut->log.first;
    while ((request = ps_list_pop(&cut->syncs)) != NULL) {
      ps_shim_end(&cut->shim, request, cut->batch_error);
    }
    return;
  }
  ps_cutlog_forget(&cut->log, cut->batch_next);
  while (cut->syncs.head != NULL && cut->syncs.head->state <= cut->log.first) {
    pass_sync(cut, ps_list_pop(&cut->syncs));
  }
}

/* ---- a cut ---- */

static void fail_all(struct powercut_media *cut, struct ps_request_list *list) {
  struct ps_media_request *request = NULL;
  while ((request = ps_list_pop(list)) != NULL) ps_shim_end(&cut->shim, request, EIO);
}

static uint8_t *new_scratch(struct powercut_media *cut) {
  uint32_t most = 0;
  for (uint64_t i = cut->log.first; i < cut->log.next; i++) {
    uint32_t length = ps_cutlog_at(&cut->log, i)->length;
    if (length > most) most = length;
  }
  return most > 0 ? aligned_alloc(4096, ((size_t)most + 4095) / 4096 * 4096) : NULL;
}

/* Whatever had not ended for its caller when the power went ends with EIO. */
static void begin_cut(struct powercut_media *cut) {
  assert(cut->phase == SERVING);
  assert(cut->passed == 0 && cut->syncing == 0 && cut->own == 0);
  for (struct ps_media_request *at = cut->shim.ended.head; at != NULL; at = at->next) {
    at->error = EIO;
  }
  fail_all(cut, &cut->waiting);
  fail_all(cut, &cut->syncs);
  pthread_mutex_lock(&cut->shim.lock);
  uint64_t seed = cut->seed;
  uint64_t number = cut->cut_number++;
  pthread_mutex_unlock(&cut->shim.lock);
  ps_cutplan_make(&cut->plan, seed, number, ps_cutlog_count(&cut->log));
  cut->scratch = new_scratch(cut);
  cut->phase = CUTTING;
  cut->cut_stage = CUT_READ;
  cut->cut_next = 0;
}

static void end_cut(struct powercut_media *cut) {
  assert(cut->phase == CUTTING && cut->own == 0);
  free(cut->scratch);
  cut->scratch = NULL;
  ps_cutlog_forget(&cut->log, cut->log.next);
  cut->completed = cut->log.next;
  cut->target = cut->log.next;
  cut->batch_error = 0;
  cut->phase = SERVING;
  pthread_mutex_lock(&cut->shim.lock);
  cut->cut_ordered = false;
  pthread_mutex_unlock(&cut->shim.lock);
  ps_list_move(&cut->waiting, &cut->after);
}

/* The second half of a torn entry: the old bytes are here; some sectors are written over them. */
static void merge(struct powercut_media *cut, uint64_t index, const struct ps_cutlog_entry *entry) {
  assert(cut->scratch != NULL && cut->cut_stage == CUT_MERGE);
  cut->cut_stage = CUT_READ;
  cut->cut_next++;
  if (cut->own_error != 0) return; /* the old bytes cannot be read: nothing was written */
  ps_cutplan_tear(&cut->plan, index, entry, cut->scratch);
  if (ps_shim_send(&cut->shim, PS_MEDIA_WRITE, cut->scratch, entry->offset, entry->length, 0)) {
    cut->own++;
  }
}

/* One step, one request at a time: entries may overlap. */
static void step_cut(struct powercut_media *cut) {
  assert(cut->phase == CUTTING && cut->own == 0);
  uint64_t size = size_below(cut);
  while (cut->own == 0 && cut->cut_next < cut->plan.count) {
    uint64_t index = cut->plan.order[cut->cut_next];
    const struct ps_cutlog_entry *entry = ps_cutlog_at(&cut->log, cut->log.first + index);
    enum ps_cut_fate fate = ps_cutplan_fate(&cut->plan, index, entry);
    if (cut->cut_stage == CUT_MERGE) {
      merge(cut, index, entry);
    } else if (fate == PS_CUT_TORN && cut->scratch != NULL && fits_below(entry, size)) {
      cut->own_error = 0;
      cut->cut_stage = CUT_MERGE;
      if (ps_shim_send(&cut->shim, PS_MEDIA_READ, cut->scratch, entry->offset, entry->length, 0)) {
        cut->own++;
      }
    } else {
      if (fate == PS_CUT_WHOLE && fits_below(entry, size)) send_entry(cut, entry);
      cut->cut_next++;
    }
  }
  if (cut->own == 0) end_cut(cut);
}

/* ---- admission ---- */

/* No room: half of the log goes down early, as a device's cache does too. */
static void make_room(struct powercut_media *cut, struct ps_media_request *request) {
  int error = cut->batch_error;
  uint64_t count = ps_cutlog_count(&cut->log);
  if (count == 0) { /* larger than the whole log: straight through */
    request->state = 0;
    cut->passed++;
    ps_shim_pass(&cut->shim, request, request->length);
  } else if (error != 0) {
    cut->batch_error = 0;
    ps_shim_end(&cut->shim, request, error);
  } else {
    request->next = cut->waiting.head;
    cut->waiting.head = request;
    if (cut->waiting.tail == NULL) cut->waiting.tail = request;
    cut->target = cut->log.first + (count + 1) / 2;
  }
}

static void admit_write(struct powercut_media *cut, struct ps_media_request *request) {
  const uint8_t *data = request->op == PS_MEDIA_WRITE ? request->buffer : NULL;
  if (!ps_cutlog_append(&cut->log, request->offset, request->length, data)) {
    make_room(cut, request);
    return;
  }
  request->state = cut->log.next;
  ps_shim_end(&cut->shim, request, 0);
}

static bool admit_one(struct powercut_media *cut) {
  assert(cut->phase == SERVING);
  struct ps_media_request *request = ps_list_pop(&cut->waiting);
  if (request == NULL) return false;
  if (ps_op_is_write(request->op)) {
    admit_write(cut, request);
  } else if (request->op != PS_MEDIA_SYNC) {
    cut->passed++;
    ps_shim_pass(&cut->shim, request, request->length);
  } else if (request->state <= cut->log.first) {
    pass_sync(cut, request);
  } else {
    if (request->state > cut->target) cut->target = request->state;
    ps_list_push(&cut->syncs, request);
  }
  return true;
}

/* Does all that can be done now. Every turn ends a request, an entry of the log or a cut. */
static void step(struct powercut_media *cut) {
  for (;;) {
    if (cut->own > 0) return;
    if (cut->phase == DESTAGING) {
      end_batch(cut);
    } else if (cut->phase == CUTTING) {
      step_cut(cut);
    } else if (cut_is_ordered(cut)) {
      if (cut->passed > 0 || cut->syncing > 0) return;
      begin_cut(cut);
    } else if (cut->target > cut->log.first) {
      if (cut->passed > 0) return;
      begin_batch(cut);
    } else if (!admit_one(cut)) {
      return;
    }
  }
}

/* ---- the callbacks ---- */

static int start(struct ps_media *media) {
  of(media)->owner = pthread_self();
  return ps_shim_start(media);
}

static void submit(struct ps_media *media, struct ps_media_request *request) {
  struct powercut_media *cut = of(media);
  struct ps_media_limits limits;
  ps_media_get_limits(cut->shim.base.below, &limits);
  int error = ps_request_check(request, limits.size, limits.block_size);
  request->state = request->op == PS_MEDIA_SYNC ? cut->completed : 0;
  if (error != 0) {
    ps_shim_end(&cut->shim, request, error);
  } else if (cut_is_ordered(cut)) {
    ps_list_push(&cut->after, request);
  } else {
    ps_list_push(&cut->waiting, request);
  }
}

static void kick(struct ps_media *media) {
  struct powercut_media *cut = of(media);
  step(cut);
  ps_shim_kick(media);
}

/* What is not below yet, over what was read from there. */
static void overlay(struct powercut_media *cut, const struct ps_media_request *request) {
  uint64_t offset = request->offset;
  if (!ps_is_in_parts(request))
    ps_cutlog_overlay(&cut->log, offset, request->length, request->buffer);
  for (uint32_t i = 0; i < request->part_count; i++) {
    const struct iovec *part = &request->parts[i];
    ps_cutlog_overlay(&cut->log, offset, (uint32_t)part->iov_len, part->iov_base);
    offset += part->iov_len;
  }
}

static void land(struct powercut_media *cut, struct ps_shim_entry *entry, bool is_cut) {
  struct ps_media_request *request = entry->outer;
  int error = entry->below.error;
  uint32_t op = entry->below.op;
  ps_shim_give_back(&cut->shim, entry);
  if (request == NULL) {
    assert(cut->own > 0);
    cut->own--;
    if (error != 0) cut->own_error = error;
    return;
  }
  uint32_t *count = op == PS_MEDIA_SYNC ? &cut->syncing : &cut->passed;
  assert(*count > 0);
  --*count;
  if (cut->closing) return;
  if (error == 0 && ps_op_is_read(op)) overlay(cut, request);
  ps_shim_end(&cut->shim, request, is_cut ? EIO : error);
}

static void reap(struct powercut_media *cut, uint64_t now_ns) {
  struct ps_request_list landed = {0};
  struct ps_shim_entry *entry = NULL;
  ps_shim_reap(&cut->shim, now_ns, &landed);
  bool is_cut = cut_is_ordered(cut);
  while ((entry = ps_shim_take(&landed)) != NULL) land(cut, entry, is_cut);
  step(cut);
  ps_media_kick(cut->shim.base.below);
}

/* As ps_shim_deliver; a write counts for later SYNCs from here on. */
static int deliver(struct powercut_media *cut) {
  struct ps_request_list ended = {0};
  ps_list_move(&ended, &cut->shim.ended);
  for (int count = 0;; count++) {
    struct ps_media_request *request = ps_list_pop(&ended);
    if (request == NULL) return count;
    bool logged = ps_op_is_write(request->op) && request->error == 0;
    if (logged && request->state > cut->completed) cut->completed = request->state;
    ps_request_end(request, request->error);
  }
}

static int poll_powercut(struct ps_media *media, uint64_t now_ns) {
  struct powercut_media *cut = of(media);
  reap(cut, now_ns);
  return deliver(cut);
}

static uint64_t next_time(struct ps_media *media) { return ps_shim_next_time(ps_shim_of(media)); }

static int set(struct powercut_media *cut, const struct ps_spec_report *report, const char *verb) {
  struct ps_option_value value;
  /* The limit's memory is taken on opening: only the seed can be set. */
  int index = ps_option_set(report, verb, options, LIMIT, &value);
  if (index < 0) return -EINVAL;
  pthread_mutex_lock(&cut->shim.lock);
  cut->seed = value.number;
  cut->cut_number = 0;
  pthread_mutex_unlock(&cut->shim.lock);
  return 0;
}

static int control(struct ps_media *media, const char *verb, char *error, size_t error_size) {
  struct powercut_media *cut = of(media);
  struct ps_spec_report report = {.text = error, .size = error_size};
  if (strncmp(verb, "set ", 4) == 0) return set(cut, &report, verb);
  if (strcmp(verb, "cut") != 0) {
    ps_spec_fail(&report, NULL, "unknown order \"%s\" to powercut; expected cut or set KEY=VALUE",
                 verb);
    return -EINVAL;
  }
  pthread_mutex_lock(&cut->shim.lock);
  cut->cut_ordered = true;
  ps_shim_wake(&cut->shim);
  pthread_mutex_unlock(&cut->shim.lock);
  return 0;
}

/* A cut that was ordered and not done yet, before the close; for the owner's thread, and not for
 * longer than a bound. */
static void finish_cut(struct powercut_media *cut) {
  uint64_t end_ns = ps_monotonic_ns() + CLOSE_CUT_NS;
  cut->waiting = (struct ps_request_list){0};
  cut->after = (struct ps_request_list){0};
  cut->syncs = (struct ps_request_list){0};
  cut->shim.ended = (struct ps_request_list){0};
  for (uint64_t now_ns = 0; now_ns < end_ns; now_ns = ps_monotonic_ns()) {
    reap(cut, now_ns);
    if (!cut_is_ordered(cut)) return;
    struct pollfd event = {.fd = cut->shim.epoll_fd, .events = POLLIN};
    if (ps_media_next_time(cut->shim.base.below) != 0) poll(&event, 1, CLOSE_POLL_MS);
  }
}

/* What was not synced is lost, as in a cut that drops everything. */
static void close_powercut(struct ps_media *media, bool abandon) {
  struct powercut_media *cut = of(media);
  cut->closing = true;
  if (cut_is_ordered(cut) && pthread_equal(cut->owner, pthread_self())) finish_cut(cut);
  ps_shim_close(&cut->shim, abandon);
  free(cut->scratch);
  ps_cutplan_close(&cut->plan);
  ps_cutlog_close(&cut->log);
  free(cut);
}

static const struct ps_media_kind kind = {
    .name = "powercut",
    .get_limits = get_limits,
    .start = start,
    .submit = submit,
    .kick = kick,
    .poll = poll_powercut,
    .wait_fd = ps_shim_wait_fd,
    .next_time = next_time,
    .resize = ps_shim_resize,
    .control = control,
    .close = close_powercut,
};

struct ps_media *ps_powercut_open(const struct ps_spec_report *report,
                                  const struct ps_spec_part *part, struct ps_media *below) {
  assert(below != NULL);
  struct ps_option_value values[OPTIONS];
  if (!ps_spec_read(report, part, options, OPTIONS, values)) return NULL;
  struct powercut_media *cut = calloc(1, sizeof *cut);
  if (cut == NULL) {
    ps_spec_fail(report, part->start, "no memory for the medium");
    return NULL;
  }
  if (!ps_shim_open(report, part, &cut->shim, &kind, below)) {
    free(cut);
    return NULL;
  }
  cut->seed = values[SEED].number;
  cut->owner = pthread_self();
  uint64_t limit = values[LIMIT].given ? values[LIMIT].number : LIMIT_DEFAULT;
  uint32_t sector = values[SECTOR].number == 1 ? 4096 : 512;
  if (ps_cutlog_open(&cut->log, limit) && ps_cutplan_open(&cut->plan, cut->log.capacity, sector)) {
    return &cut->shim.base;
  }
  ps_spec_fail(report, values[LIMIT].at, "no memory for the log; expected a smaller limit");
  ps_shim_abort(&cut->shim);
  ps_cutlog_close(&cut->log);
  free(cut);
  return NULL;
}
