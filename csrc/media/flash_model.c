/* The timing of a flash device; see flash_model.h. */
#include "flash_model.h"

#include <math.h>
#include <stdlib.h>

#include "internal.h"

#define NORMAL_P99 2.3263478740408408 /* 99 % of a standard normal are below */
#define TWO_PI 6.283185307179586
#define LATENCY_MOST_NS 1e13 /* a bound for absurd tails, so that times stay whole numbers */

struct item_list {
  struct ps_flash_item *head;
  struct ps_flash_item *tail;
};

struct ps_flash {
  struct ps_flash_config config;
  uint64_t count;       /* requests so far */
  uint64_t bus_free_ns; /* when the shared bandwidth is free again */
  struct item_list demand;
  struct item_list prefetch;
  struct ps_flash_item *channels[PS_FLASH_MAX_CHANNELS]; /* what each serves */
};

static bool is_good(const struct ps_flash_config *config) {
  return config->read_median_us > 0 && config->read_p99_us >= config->read_median_us &&
         config->write_median_us > 0 && config->write_p99_us >= config->write_median_us &&
         config->bandwidth > 0 && config->scale > 0 && config->channels >= 1 &&
         config->channels <= PS_FLASH_MAX_CHANNELS;
}

struct ps_flash *ps_flash_new(const struct ps_flash_config *config) {
  assert(config != NULL);
  if (!is_good(config)) return NULL;
  struct ps_flash *flash = calloc(1, sizeof *flash);
  if (flash != NULL) flash->config = *config;
  return flash;
}

void ps_flash_free(struct ps_flash *flash) { free(flash); }

static uint64_t whole(double value) {
  return value < (double)INT64_MAX ? (uint64_t)value : INT64_MAX;
}

uint64_t ps_flash_bandwidth(const struct ps_flash_config *config) {
  assert(config != NULL && is_good(config));
  return whole(config->bandwidth / config->scale);
}

uint64_t ps_flash_read_ns(const struct ps_flash_config *config) {
  assert(config != NULL && is_good(config));
  return whole(config->read_median_us * 1000 * config->scale);
}

/* Box and Muller's way from two fractions to one normal number. */
static double normal(uint64_t seed, uint64_t number) {
  double radius = sqrt(-2 * log(1 - ps_fraction(seed, 2 * number)));
  return radius * cos(TWO_PI * ps_fraction(seed, 2 * number + 1));
}

uint64_t ps_flash_latency(const struct ps_flash_config *config, uint32_t op, uint64_t number) {
  assert(config != NULL && is_good(config));
  bool reading = ps_op_is_read(op);
  double median_us = reading ? config->read_median_us : config->write_median_us;
  double p99_us = reading ? config->read_p99_us : config->write_p99_us;
  double sigma = log(p99_us / median_us) / NORMAL_P99;
  double ns = median_us * 1000 * exp(sigma * normal(config->seed, number)) * config->scale;
  return ns < LATENCY_MOST_NS ? (uint64_t)ns : (uint64_t)LATENCY_MOST_NS;
}

static uint64_t transfer_ns(const struct ps_flash *flash, const struct ps_flash_item *item) {
  bool has_data = ps_op_is_read(item->op) || item->op == PS_MEDIA_WRITE;
  double ns = (double)item->length * 1e9 / flash->config.bandwidth * flash->config.scale;
  if (!has_data) return 0;
  return ns < LATENCY_MOST_NS ? (uint64_t)ns : (uint64_t)LATENCY_MOST_NS;
}

static void push(struct item_list *list, struct ps_flash_item *item) {
  assert(list != NULL && item != NULL);
  item->next = NULL;
  if (list->tail != NULL) {
    list->tail->next = item;
  } else {
    list->head = item;
  }
  list->tail = item;
}

static struct ps_flash_item *pop(struct item_list *list) {
  assert(list->head != NULL);
  struct ps_flash_item *item = list->head;
  list->head = item->next;
  if (list->head == NULL) list->tail = NULL;
  item->next = NULL;
  return item;
}

static void serve(struct ps_flash *flash, uint32_t channel, struct ps_flash_item *item,
                  uint64_t free_ns) {
  assert(channel < flash->config.channels);
  assert(flash->channels[channel] == NULL);
  uint64_t start = free_ns > item->arrived_ns ? free_ns : item->arrived_ns;
  if (flash->bus_free_ns > start) start = flash->bus_free_ns;
  uint64_t moved = start + transfer_ns(flash, item);
  flash->bus_free_ns = moved;
  item->due_ns = moved + ps_flash_latency(&flash->config, item->op, item->number);
  flash->channels[channel] = item;
}

/* What a channel that got free at `free_ns` serves next. The caller may be late: of those that had
 * arrived by then demand comes first; else whoever came first. */
static struct ps_flash_item *pick(struct ps_flash *flash, uint64_t free_ns) {
  struct ps_flash_item *demand = flash->demand.head;
  struct ps_flash_item *prefetch = flash->prefetch.head;
  if (demand == NULL && prefetch == NULL) return NULL;
  if (demand == NULL) return pop(&flash->prefetch);
  if (prefetch == NULL) return pop(&flash->demand);
  bool demand_first = demand->arrived_ns <= free_ns || demand->arrived_ns <= prefetch->arrived_ns;
  return pop(demand_first ? &flash->demand : &flash->prefetch);
}

void ps_flash_submit(struct ps_flash *flash, uint64_t now_ns, struct ps_flash_item *item) {
  assert(flash != NULL && item != NULL);
  assert(item->op >= PS_MEDIA_READ && item->op <= PS_MEDIA_PREFETCH);
  item->arrived_ns = now_ns;
  item->number = flash->count++;
  for (uint32_t i = 0; i < flash->config.channels; i++) {
    if (flash->channels[i] == NULL) {
      serve(flash, i, item, now_ns);
      return;
    }
  }
  push(item->op == PS_MEDIA_PREFETCH ? &flash->prefetch : &flash->demand, item);
}

/* The channel whose request ends first, or `channels` when none is busy. */
static uint32_t first_to_end(const struct ps_flash *flash) {
  uint32_t best = flash->config.channels;
  for (uint32_t i = 0; i < flash->config.channels; i++) {
    const struct ps_flash_item *item = flash->channels[i];
    if (item == NULL) continue;
    if (best == flash->config.channels || item->due_ns < flash->channels[best]->due_ns) best = i;
  }
  return best;
}

struct ps_flash_item *ps_flash_reap(struct ps_flash *flash, uint64_t now_ns) {
  assert(flash != NULL);
  uint32_t channel = first_to_end(flash);
  if (channel == flash->config.channels) return NULL;
  struct ps_flash_item *item = flash->channels[channel];
  if (item->due_ns > now_ns) return NULL;
  flash->channels[channel] = NULL;
  struct ps_flash_item *next = pick(flash, item->due_ns);
  if (next != NULL) serve(flash, channel, next, item->due_ns);
  return item;
}

uint64_t ps_flash_next_time(const struct ps_flash *flash) {
  assert(flash != NULL);
  uint32_t channel = first_to_end(flash);
  if (channel == flash->config.channels) return UINT64_MAX;
  return flash->channels[channel]->due_ns;
}
