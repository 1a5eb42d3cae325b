/* When a flash device would have ended its requests: a pure model on the caller's clock, without
 * data and without system calls. Used by the medium "model" and by simulators.
 *
 * `channels` requests are served at once; further ones wait, reads and writes before prefetches.
 * What is being served is never interrupted. The bytes of all channels share one `bandwidth`; then
 * comes the latency: log-normal, fixed by (seed, number of the request) alone.
 */
#ifndef PRESTAGE_FLASH_MODEL_H
#define PRESTAGE_FLASH_MODEL_H

#include <stdint.h>

/* cffi: begin */
#define PS_FLASH_MAX_CHANNELS 256

struct ps_flash_config {
  uint64_t seed;
  double read_median_us;  /* > 0 */
  double read_p99_us;     /* >= the median */
  double write_median_us; /* > 0; also of syncs, discards and zeros */
  double write_p99_us;    /* >= the median */
  double bandwidth;       /* bytes per second, > 0 */
  double scale;           /* multiplies every time, > 0 */
  uint32_t channels;      /* 1 to PS_FLASH_MAX_CHANNELS */
};

struct ps_flash_item {
  struct ps_flash_item *next; /* the model's own */
  uint64_t arrived_ns;        /* the model's own */
  uint64_t number;            /* the model's own */
  uint64_t due_ns;            /* when it ended; valid once reaped */
  uint32_t op;                /* enum ps_media_op */
  uint32_t length;            /* bytes */
};

struct ps_flash;

/* NULL when there is no memory or the configuration is out of range. */
struct ps_flash *ps_flash_new(const struct ps_flash_config *config);
void ps_flash_free(struct ps_flash *flash);
/* `item` is the caller's and stays until it was reaped. Times never go back. */
void ps_flash_submit(struct ps_flash *flash, uint64_t now_ns, struct ps_flash_item *item);
/* The next that has ended by now, in the order of their ends, or NULL. */
struct ps_flash_item *ps_flash_reap(struct ps_flash *flash, uint64_t now_ns);
/* When the next one ends; UINT64_MAX: never. */
uint64_t ps_flash_next_time(const struct ps_flash *flash);
/* Latency of the request with this number, without waiting and transfer, in nanoseconds. */
uint64_t ps_flash_latency(const struct ps_flash_config *config, uint32_t op, uint64_t number);
/* What it moves at most, in bytes per second, and the median latency of its reads. */
uint64_t ps_flash_bandwidth(const struct ps_flash_config *config);
uint64_t ps_flash_read_ns(const struct ps_flash_config *config);
/* cffi: end */

#endif
