/* The wrapper "stall": holds requests, before the medium below sees them, until they are released.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { AFTER, OP, OPTIONS };
enum { OP_ANY = 0, OP_READ = 1, OP_WRITE = 2, OP_SYNC = 3 };

static const char *const ops[] = {"any", "read", "write", "sync", NULL};

static const struct ps_option options[OPTIONS] = {
    [AFTER] = {.key = "after", .type = PS_OPTION_NUMBER, .most = UINT64_MAX},
    [OP] = {.key = "op", .type = PS_OPTION_CHOICE, .choices = ops},
};

struct stall_media {
  struct ps_shim shim;
  struct ps_request_list held; /* the owner's thread */
  uint64_t values[OPTIONS];    /* from here on: under the shim's lock */
  uint64_t matched;            /* since it was armed */
  bool released;
};

static struct stall_media *of(struct ps_media *media) {
  return (struct stall_media *)ps_shim_of(media);
}

static bool matches(uint64_t wanted, uint32_t op) {
  switch (wanted) {
    case OP_READ:
      return ps_op_is_read(op);
    case OP_WRITE:
      return ps_op_is_write(op);
    case OP_SYNC:
      return op == PS_MEDIA_SYNC;
    default:
      return true;
  }
}

static void submit(struct ps_media *media, struct ps_media_request *request) {
  struct stall_media *stall = of(media);
  assert(request != NULL);
  pthread_mutex_lock(&stall->shim.lock);
  bool holds = false;
  if (!stall->released && matches(stall->values[OP], request->op)) {
    holds = stall->matched++ >= stall->values[AFTER];
  }
  pthread_mutex_unlock(&stall->shim.lock);
  if (holds) {
    ps_list_push(&stall->held, request);
  } else {
    ps_shim_pass(&stall->shim, request, request->length);
  }
}

static void pass_held(struct stall_media *stall) {
  struct ps_media_request *request = NULL;
  while ((request = ps_list_pop(&stall->held)) != NULL) {
    ps_shim_pass(&stall->shim, request, request->length);
  }
  ps_media_kick(stall->shim.base.below);
}

static int poll_stall(struct ps_media *media, uint64_t now_ns) {
  struct stall_media *stall = of(media);
  struct ps_request_list landed = {0};
  struct ps_shim_entry *entry = NULL;
  ps_shim_reap(&stall->shim, now_ns, &landed);
  pthread_mutex_lock(&stall->shim.lock);
  bool released = stall->released;
  pthread_mutex_unlock(&stall->shim.lock);
  if (released && stall->held.head != NULL) pass_held(stall);
  while ((entry = ps_shim_take(&landed)) != NULL) {
    struct ps_media_request *request = entry->outer;
    int error = entry->below.error;
    ps_shim_give_back(&stall->shim, entry);
    ps_shim_end(&stall->shim, request, error);
  }
  return ps_shim_deliver(&stall->shim);
}

static uint64_t next_time(struct ps_media *media) { return ps_shim_next_time(ps_shim_of(media)); }

static int set(struct stall_media *stall, const struct ps_spec_report *report, const char *verb) {
  struct ps_option_value value;
  int index = ps_option_set(report, verb, options, OPTIONS, &value);
  if (index < 0) return -EINVAL;
  pthread_mutex_lock(&stall->shim.lock);
  stall->values[index] = value.number;
  pthread_mutex_unlock(&stall->shim.lock);
  return 0;
}

static int control(struct ps_media *media, const char *verb, char *error, size_t error_size) {
  struct stall_media *stall = of(media);
  struct ps_spec_report report = {.text = error, .size = error_size};
  if (strncmp(verb, "set ", 4) == 0) return set(stall, &report, verb);
  bool release = strcmp(verb, "release") == 0;
  if (!release && strcmp(verb, "arm") != 0) {
    ps_spec_fail(&report, NULL,
                 "unknown order \"%s\" to stall; expected release, arm or set KEY=VALUE", verb);
    return -EINVAL;
  }
  pthread_mutex_lock(&stall->shim.lock);
  stall->released = release;
  stall->matched = 0;
  if (release) ps_shim_wake(&stall->shim);
  pthread_mutex_unlock(&stall->shim.lock);
  return 0;
}

static void close_stall(struct ps_media *media, bool abandon) {
  struct stall_media *stall = of(media);
  assert(abandon || stall->held.head == NULL);
  ps_shim_close(&stall->shim, abandon);
  free(stall);
}

static const struct ps_media_kind kind = {
    .name = "stall",
    .get_limits = ps_shim_get_limits,
    .start = ps_shim_start,
    .submit = submit,
    .kick = ps_shim_kick,
    .poll = poll_stall,
    .wait_fd = ps_shim_wait_fd,
    .next_time = next_time,
    .resize = ps_shim_resize,
    .control = control,
    .close = close_stall,
};

struct ps_media *ps_stall_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below) {
  assert(below != NULL);
  struct ps_option_value values[OPTIONS];
  if (!ps_spec_read(report, part, options, OPTIONS, values)) return NULL;
  struct stall_media *stall = calloc(1, sizeof *stall);
  if (stall == NULL) {
    ps_spec_fail(report, part->start, "no memory for the medium");
    return NULL;
  }
  if (!ps_shim_open(report, part, &stall->shim, &kind, below)) {
    free(stall);
    return NULL;
  }
  for (int i = 0; i < OPTIONS; i++) stall->values[i] = values[i].number;
  return &stall->shim.base;
}
