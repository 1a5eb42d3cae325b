/* The kind "model": a flash device over a file. The bytes really go to the file; a request ends
 * when both the file and the model (flash_model.c) have ended it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "flash_model.h"
#include "shim.h"

enum {
  SIZE,
  CREATE,
  DEPTH,
  SEED,
  READ_US,
  READ_P99_US,
  WRITE_US,
  WRITE_P99_US,
  BANDWIDTH,
  CHANNELS,
  SCALE,
  OPTIONS
};

#define MICROSECONDS(NAME, REQUIRED) \
  {.key = NAME,                      \
   .type = PS_OPTION_FRACTION,       \
   .required = REQUIRED,             \
   .least_real = 0.001,              \
   .most_real = 1e9}

static const struct ps_option options[OPTIONS] = {
    [SIZE] = PS_FILE_OPTION_SIZE,
    [CREATE] = PS_FILE_OPTION_CREATE,
    [DEPTH] = PS_FILE_OPTION_DEPTH,
    [SEED] = {.key = "seed", .type = PS_OPTION_NUMBER, .required = true, .most = UINT64_MAX},
    [READ_US] = MICROSECONDS("read_us", true),
    [READ_P99_US] = MICROSECONDS("read_p99_us", true),
    [WRITE_US] = MICROSECONDS("write_us", true),
    [WRITE_P99_US] = MICROSECONDS("write_p99_us", false),
    [BANDWIDTH] = {.key = "bandwidth",
                   .type = PS_OPTION_SIZE,
                   .required = true,
                   .least = 1,
                   .most = INT64_MAX},
    [CHANNELS] = {.key = "channels",
                  .type = PS_OPTION_NUMBER,
                  .required = true,
                  .least = 1,
                  .most = PS_FLASH_MAX_CHANNELS},
    [SCALE] = {.key = "scale",
               .type = PS_OPTION_FRACTION,
               .least_real = 0.000001,
               .most_real = 1e6},
};

/* One request in both places. */
struct model_item {
  struct ps_flash_item flash; /* first: the model gives its address back */
  struct ps_media_request *request;
  struct model_item *next_free;
  bool has_landed;
  bool is_due;
};

struct model_media {
  struct ps_shim shim;
  struct ps_flash_config config;
  struct ps_flash *flash;
  struct model_item *items; /* as many as the queue depth */
  struct model_item *free;
};

static struct model_media *of(struct ps_media *media) {
  return (struct model_media *)ps_shim_of(media);
}

static void submit(struct ps_media *media, struct ps_media_request *request) {
  struct model_media *model = of(media);
  struct model_item *item = model->free;
  assert(request != NULL);
  if (item == NULL) {
    ps_shim_end(&model->shim, request, EAGAIN);
    return;
  }
  if (request->op < PS_MEDIA_READ || request->op > PS_MEDIA_PREFETCH) {
    ps_shim_end(&model->shim, request, EINVAL);
    return;
  }
  model->free = item->next_free;
  *item = (struct model_item){.request = request,
                              .flash = {.op = request->op, .length = request->length}};
  request->state = (uint64_t)(item - model->items);
  ps_flash_submit(model->flash, ps_monotonic_ns(), &item->flash);
  ps_shim_pass(&model->shim, request, request->length);
}

static void end_if_both(struct model_media *model, struct model_item *item) {
  if (!item->has_landed || !item->is_due) return;
  ps_shim_end(&model->shim, item->request, item->request->error);
  item->next_free = model->free;
  model->free = item;
}

static int poll_model(struct ps_media *media, uint64_t now_ns) {
  struct model_media *model = of(media);
  struct ps_request_list landed = {0};
  struct ps_shim_entry *entry = NULL;
  struct ps_flash_item *due = NULL;
  ps_shim_reap(&model->shim, now_ns, &landed);
  while ((entry = ps_shim_take(&landed)) != NULL) {
    assert(entry->outer->state < model->shim.depth);
    struct model_item *item = &model->items[entry->outer->state];
    item->request->error = entry->below.error;
    item->has_landed = true;
    ps_shim_give_back(&model->shim, entry);
    end_if_both(model, item);
  }
  while ((due = ps_flash_reap(model->flash, now_ns)) != NULL) {
    struct model_item *item = (struct model_item *)due;
    item->is_due = true;
    end_if_both(model, item);
  }
  return ps_shim_deliver(&model->shim);
}

static uint64_t next_time(struct ps_media *media) {
  struct model_media *model = of(media);
  uint64_t below = ps_shim_next_time(&model->shim);
  uint64_t due = ps_flash_next_time(model->flash);
  return below < due ? below : due;
}

static void get_limits(struct ps_media *media, struct ps_media_limits *limits) {
  const struct ps_flash_config *config = &of(media)->config;
  ps_shim_get_limits(media, limits);
  limits->bandwidth = ps_flash_bandwidth(config);
  limits->read_ns = ps_flash_read_ns(config);
}

static void free_model(struct model_media *model) {
  ps_flash_free(model->flash);
  free(model->items);
  free(model);
}

static void close_model(struct ps_media *media, bool abandon) {
  struct model_media *model = of(media);
  ps_shim_close(&model->shim, abandon);
  free_model(model);
}

static const struct ps_media_kind kind = {
    .name = "model",
    .get_limits = get_limits,
    .start = ps_shim_start,
    .submit = submit,
    .kick = ps_shim_kick,
    .poll = poll_model,
    .wait_fd = ps_shim_wait_fd,
    .next_time = next_time,
    .resize = ps_shim_resize,
    .close = close_model,
};

static bool read_config(const struct ps_spec_report *report, const struct ps_option_value *values,
                        struct ps_flash_config *config) {
  assert(values != NULL && config != NULL);
  double read_us = values[READ_US].real;
  double read_p99_us = values[READ_P99_US].real;
  double write_us = values[WRITE_US].real;
  double write_p99_us = write_us * (read_p99_us / read_us); /* as wide as the reads */
  if (read_p99_us < read_us) {
    return ps_spec_fail(report, values[READ_P99_US].at,
                        "read_p99_us is below the median; expected at least read_us=%g", read_us);
  }
  if (values[WRITE_P99_US].given) {
    write_p99_us = values[WRITE_P99_US].real;
    if (write_p99_us < write_us) {
      return ps_spec_fail(report, values[WRITE_P99_US].at,
                          "write_p99_us is below the median; expected at least write_us=%g",
                          write_us);
    }
  }
  *config = (struct ps_flash_config){
      .seed = values[SEED].number,
      .read_median_us = read_us,
      .read_p99_us = read_p99_us,
      .write_median_us = write_us,
      .write_p99_us = write_p99_us,
      .bandwidth = (double)values[BANDWIDTH].number,
      .scale = values[SCALE].given ? values[SCALE].real : 1,
      .channels = (uint32_t)values[CHANNELS].number,
  };
  return true;
}

/* The file below is there; makes the rest. */
static struct model_media *make(const struct ps_spec_report *report,
                                const struct ps_spec_part *part, struct ps_media *file,
                                const struct ps_flash_config *config) {
  struct model_media *model = calloc(1, sizeof *model);
  if (model == NULL) {
    ps_spec_fail(report, part->start, "no memory for the medium");
    return NULL;
  }
  if (!ps_shim_open(report, part, &model->shim, &kind, file)) {
    free(model);
    return NULL;
  }
  model->config = *config;
  model->flash = ps_flash_new(config);
  model->items = calloc(model->shim.depth, sizeof *model->items);
  if (model->flash == NULL || model->items == NULL) {
    ps_spec_fail(report, part->start, "no memory for the medium");
    ps_shim_abort(&model->shim);
    free_model(model);
    return NULL;
  }
  for (uint32_t i = model->shim.depth; i > 0; i--) {
    model->items[i - 1].next_free = model->free;
    model->free = &model->items[i - 1];
  }
  return model;
}

struct ps_media *ps_model_open(const struct ps_spec_report *report, const struct ps_spec_part *part,
                               struct ps_media *below) {
  assert(below == NULL && part->path != NULL);
  (void)below;
  struct ps_option_value values[OPTIONS];
  struct ps_flash_config config;
  if (!ps_spec_read(report, part, options, OPTIONS, values)) return NULL;
  if (!read_config(report, values, &config)) return NULL;
  struct ps_file_order order = {
      .size = values[SIZE], .create = values[CREATE], .depth = values[DEPTH]};
  struct ps_media *file = ps_file_new(report, part, &order);
  if (file == NULL) return NULL;
  struct model_media *model = make(report, part, file, &config);
  if (model != NULL) return &model->shim.base;
  ps_media_close(file, false);
  return NULL;
}
