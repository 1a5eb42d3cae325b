/* The wrapper "error": fails requests that match, the same ones for the same seed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { OP, ERRNO, RATE, COUNT, FIRST, LAST, SEED, OPTIONS };
enum { OP_ANY = 0, OP_READ = 1, OP_WRITE = 2, OP_SYNC = 3 };
enum { FAIL_IO = 0, FAIL_SPACE = 1, FAIL_SHORT = 2 };

static const char *const ops[] = {"any", "read", "write", "sync", NULL};
static const char *const errors[] = {"EIO", "ENOSPC", "SHORT", NULL};

static const struct ps_option options[OPTIONS] = {
    [OP] = {.key = "op", .type = PS_OPTION_CHOICE, .choices = ops},
    [ERRNO] = {.key = "errno", .type = PS_OPTION_CHOICE, .choices = errors},
    [RATE] = {.key = "rate", .type = PS_OPTION_FRACTION, .most_real = 1},
    [COUNT] = {.key = "count", .type = PS_OPTION_NUMBER, .most = UINT64_MAX},
    [FIRST] = {.key = "first", .type = PS_OPTION_SIZE, .most = UINT64_MAX},
    [LAST] = {.key = "last", .type = PS_OPTION_SIZE, .most = UINT64_MAX},
    [SEED] = {.key = "seed", .type = PS_OPTION_NUMBER, .most = UINT64_MAX},
};

struct error_media {
  struct ps_shim shim;
  uint32_t block_size;
  uint64_t values[OPTIONS]; /* from here on: under the shim's lock */
  double rate;
  uint64_t matched; /* since it was armed */
  uint64_t failed;
};

/* `state` of a request here: it fails although the medium below had part of it. */
enum { STATE_PASS = 0, STATE_SHORT = 1 };

static struct error_media *of(struct ps_media *media) {
  return (struct error_media *)ps_shim_of(media);
}

static bool matches(const struct error_media *error, const struct ps_media_request *request) {
  switch (error->values[OP]) {
    case OP_READ:
      if (!ps_op_is_read(request->op)) return false;
      break;
    case OP_WRITE:
      if (!ps_op_is_write(request->op)) return false;
      break;
    case OP_SYNC:
      if (request->op != PS_MEDIA_SYNC) return false;
      break;
    default:
      break;
  }
  if (request->op == PS_MEDIA_SYNC || request->length == 0) return true;
  uint64_t end = request->offset + (request->length - 1);
  return request->offset <= error->values[LAST] && end >= error->values[FIRST];
}

/* Whether this one fails, and how. With the lock held. */
static bool decide(struct error_media *error, const struct ps_media_request *request) {
  assert(error != NULL && request != NULL);
  if (!matches(error, request) || error->failed >= error->values[COUNT]) return false;
  uint64_t number = error->matched++;
  if (ps_fraction(error->values[SEED], number) >= error->rate) return false;
  error->failed++;
  return true;
}

static void submit(struct ps_media *media, struct ps_media_request *request) {
  struct error_media *error = of(media);
  pthread_mutex_lock(&error->shim.lock);
  bool fails = decide(error, request);
  uint64_t how = error->values[ERRNO];
  pthread_mutex_unlock(&error->shim.lock);
  request->state = STATE_PASS;
  if (!fails) {
    ps_shim_pass(&error->shim, request, request->length);
    return;
  }
  uint32_t half = request->length / 2 / error->block_size * error->block_size;
  if (how == FAIL_SHORT && half > 0 && request->op != PS_MEDIA_SYNC) {
    request->state = STATE_SHORT;
    ps_shim_pass(&error->shim, request, half);
  } else {
    ps_shim_end(&error->shim, request, how == FAIL_SPACE ? ENOSPC : EIO);
  }
}

static int poll_error(struct ps_media *media, uint64_t now_ns) {
  struct error_media *error = of(media);
  struct ps_request_list landed = {0};
  struct ps_shim_entry *entry = NULL;
  ps_shim_reap(&error->shim, now_ns, &landed);
  while ((entry = ps_shim_take(&landed)) != NULL) {
    struct ps_media_request *request = entry->outer;
    int result = request->state == STATE_SHORT ? EIO : entry->below.error;
    ps_shim_give_back(&error->shim, entry);
    ps_shim_end(&error->shim, request, result);
  }
  return ps_shim_deliver(&error->shim);
}

static uint64_t next_time(struct ps_media *media) { return ps_shim_next_time(ps_shim_of(media)); }

static int set(struct error_media *error, const struct ps_spec_report *report, const char *verb) {
  struct ps_option_value value;
  int index = ps_option_set(report, verb, options, OPTIONS, &value);
  if (index < 0) return -EINVAL;
  pthread_mutex_lock(&error->shim.lock);
  error->values[index] = value.number;
  if (index == RATE) error->rate = value.real;
  pthread_mutex_unlock(&error->shim.lock);
  return 0;
}

static int control(struct ps_media *media, const char *verb, char *text, size_t text_size) {
  struct error_media *error = of(media);
  struct ps_spec_report report = {.text = text, .size = text_size};
  if (strncmp(verb, "set ", 4) == 0) return set(error, &report, verb);
  if (strcmp(verb, "arm") != 0) {
    ps_spec_fail(&report, NULL, "unknown order \"%s\" to error; expected arm or set KEY=VALUE",
                 verb);
    return -EINVAL;
  }
  pthread_mutex_lock(&error->shim.lock);
  error->matched = 0;
  error->failed = 0;
  pthread_mutex_unlock(&error->shim.lock);
  return 0;
}

static void close_error(struct ps_media *media, bool abandon) {
  struct error_media *error = of(media);
  ps_shim_close(&error->shim, abandon);
  free(error);
}

static const struct ps_media_kind kind = {
    .name = "error",
    .get_limits = ps_shim_get_limits,
    .start = ps_shim_start,
    .submit = submit,
    .kick = ps_shim_kick,
    .poll = poll_error,
    .wait_fd = ps_shim_wait_fd,
    .next_time = next_time,
    .resize = ps_shim_resize,
    .control = control,
    .close = close_error,
};

struct ps_media *ps_error_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below) {
  assert(below != NULL);
  struct ps_option_value values[OPTIONS];
  struct ps_media_limits limits;
  if (!ps_spec_read(report, part, options, OPTIONS, values)) return NULL;
  struct error_media *error = calloc(1, sizeof *error);
  if (error == NULL) {
    ps_spec_fail(report, part->start, "no memory for the medium");
    return NULL;
  }
  if (!ps_shim_open(report, part, &error->shim, &kind, below)) {
    free(error);
    return NULL;
  }
  ps_media_get_limits(below, &limits);
  error->block_size = limits.block_size;
  for (int i = 0; i < OPTIONS; i++) error->values[i] = values[i].number;
  if (!values[COUNT].given) error->values[COUNT] = UINT64_MAX;
  if (!values[LAST].given) error->values[LAST] = UINT64_MAX;
  error->rate = values[RATE].given ? values[RATE].real : 1;
  return &error->shim.base;
}
