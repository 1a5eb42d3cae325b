/* The wrapper "delay": every request ends so much later. The delay runs from the submission, so it
 * is a lower bound, and the medium below works meanwhile. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum { READ_US, WRITE_US, SYNC_US, SEED, OPTIONS };

#define DELAY_MOST_US UINT64_C(3600000000)

static const struct ps_option options[OPTIONS] = {
    [READ_US] = {.key = "read_us", .type = PS_OPTION_NUMBER, .most = DELAY_MOST_US},
    [WRITE_US] = {.key = "write_us", .type = PS_OPTION_NUMBER, .most = DELAY_MOST_US},
    [SYNC_US] = {.key = "sync_us", .type = PS_OPTION_NUMBER, .most = DELAY_MOST_US},
    [SEED] = {.key = "seed", .type = PS_OPTION_NUMBER, .most = UINT64_MAX},
};

struct delay_media {
  struct ps_shim shim;
  struct ps_hold hold;
  uint64_t values[OPTIONS]; /* under the shim's lock */
  bool is_seeded;           /* likewise */
  uint64_t counter;
};

static struct delay_media *of(struct ps_media *media) {
  return (struct delay_media *)ps_shim_of(media);
}

/* Exact; or, with a seed, anything from none to twice as long, by the number of the request. */
static uint64_t delay_ns(struct delay_media *delay, uint32_t op) {
  int index = op == PS_MEDIA_SYNC ? SYNC_US : ps_op_is_read(op) ? READ_US : WRITE_US;
  pthread_mutex_lock(&delay->shim.lock);
  uint64_t ns = delay->values[index] * 1000;
  uint64_t seed = delay->values[SEED];
  bool is_seeded = delay->is_seeded;
  pthread_mutex_unlock(&delay->shim.lock);
  uint64_t number = delay->counter++;
  return is_seeded ? (uint64_t)(2 * (double)ns * ps_fraction(seed, number)) : ns;
}

static void submit(struct ps_media *media, struct ps_media_request *request) {
  struct delay_media *delay = of(media);
  assert(request != NULL);
  request->due_ns = ps_monotonic_ns() + delay_ns(delay, request->op);
  ps_shim_pass(&delay->shim, request, request->length);
}

static int poll_delay(struct ps_media *media, uint64_t now_ns) {
  struct delay_media *delay = of(media);
  struct ps_request_list landed = {0};
  struct ps_shim_entry *entry = NULL;
  ps_shim_reap(&delay->shim, now_ns, &landed);
  while ((entry = ps_shim_take(&landed)) != NULL) {
    struct ps_media_request *request = entry->outer;
    request->error = entry->below.error;
    ps_shim_give_back(&delay->shim, entry);
    if (request->due_ns <= now_ns || !ps_hold_push(&delay->hold, request)) {
      ps_shim_end(&delay->shim, request, request->error);
    }
  }
  struct ps_media_request *due = NULL;
  while ((due = ps_hold_pop(&delay->hold, now_ns)) != NULL) {
    ps_shim_end(&delay->shim, due, due->error);
  }
  return ps_shim_deliver(&delay->shim);
}

static uint64_t next_time(struct ps_media *media) {
  struct delay_media *delay = of(media);
  uint64_t below = ps_shim_next_time(&delay->shim);
  uint64_t held = ps_hold_next_time(&delay->hold);
  return below < held ? below : held;
}

static int control(struct ps_media *media, const char *verb, char *error, size_t error_size) {
  struct delay_media *delay = of(media);
  struct ps_spec_report report = {.text = error, .size = error_size};
  struct ps_option_value value;
  if (strncmp(verb, "set ", 4) != 0) {
    ps_spec_fail(&report, NULL, "unknown order \"%s\" to delay; expected set KEY=VALUE", verb);
    return -EINVAL;
  }
  int index = ps_option_set(&report, verb, options, OPTIONS, &value);
  if (index < 0) return -EINVAL;
  pthread_mutex_lock(&delay->shim.lock);
  delay->values[index] = value.number;
  if (index == SEED) delay->is_seeded = true;
  pthread_mutex_unlock(&delay->shim.lock);
  return 0;
}

static void get_limits(struct ps_media *media, struct ps_media_limits *limits) {
  struct delay_media *delay = of(media);
  ps_shim_get_limits(media, limits);
  pthread_mutex_lock(&delay->shim.lock);
  limits->read_ns += delay->values[READ_US] * 1000;
  pthread_mutex_unlock(&delay->shim.lock);
}

static void close_delay(struct ps_media *media, bool abandon) {
  struct delay_media *delay = of(media);
  assert(abandon || delay->hold.count == 0);
  ps_shim_close(&delay->shim, abandon);
  ps_hold_close(&delay->hold);
  free(delay);
}

static const struct ps_media_kind kind = {
    .name = "delay",
    .get_limits = get_limits,
    .start = ps_shim_start,
    .submit = submit,
    .kick = ps_shim_kick,
    .poll = poll_delay,
    .wait_fd = ps_shim_wait_fd,
    .next_time = next_time,
    .resize = ps_shim_resize,
    .control = control,
    .close = close_delay,
};

struct ps_media *ps_delay_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below) {
  assert(below != NULL);
  struct ps_option_value values[OPTIONS];
  if (!ps_spec_read(report, part, options, OPTIONS, values)) return NULL;
  struct delay_media *delay = calloc(1, sizeof *delay);
  if (delay == NULL) {
    ps_spec_fail(report, part->start, "no memory for the medium");
    return NULL;
  }
  if (!ps_shim_open(report, part, &delay->shim, &kind, below)) {
    free(delay);
    return NULL;
  }
  for (int i = 0; i < OPTIONS; i++) delay->values[i] = values[i].number;
  delay->is_seeded = values[SEED].given;
  if (ps_hold_open(&delay->hold, delay->shim.depth)) return &delay->shim.base;
  ps_spec_fail(report, part->start, "no memory for the medium");
  ps_shim_abort(&delay->shim);
  free(delay);
  return NULL;
}
