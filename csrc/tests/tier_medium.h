/* A model of a medium with a volatile cache, for tier_model.c. It holds, per block, a number that
 * stands for the block's bytes (0: zeros), and checks every byte when a write brings them.
 *
 * It does what real ones do: reads and writes happen at some time between issue and end; failed
 * writes land in part; writes that no good sync has covered are lost, reordered or torn by a power
 * cut; after a failed sync some of what was written will never be durable although it reads back
 * (but not what was cleared: holes are a file system's own data, which it keeps in its journal).
 */
#ifndef TIER_MEDIUM_H
#define TIER_MEDIUM_H

#include <stdbool.h>
#include <stdint.h>

#include "../tier.h"

enum { MEDIUM_BLOCKS = 384, MEDIUM_FLYING = 512, MEDIUM_LOG = 16384, TRANSFER_BLOCKS = 128 };

/* Beside the tier's own operations: the caller's clearing of a range. */
enum { MEDIUM_CLEAR = 8 };

/* One block written and not durable yet. */
struct medium_entry {
  uint32_t block;
  uint32_t data;
  bool is_clear;
  bool is_complete; /* its write has ended */
  bool is_covered;  /* ... before the sync that is under way began */
};

struct flying {
  struct ps_tier_action action;   /* of MEDIUM_CLEAR: `ticket` is the command's number */
  uint32_t data[TRANSFER_BLOCKS]; /* what a write brings, or a read will give */
  bool has_happened;
};

struct medium {
  uint64_t size;
  uint32_t block_size;
  uint32_t current[MEDIUM_BLOCKS]; /* what reads give */
  uint32_t durable[MEDIUM_BLOCKS]; /* what a power cut leaves for sure, or a newer one of the log */
  struct medium_entry log[MEDIUM_LOG];
  uint32_t log_length;
  uint64_t cut_size; /* shrunk: this is applied when no write beyond it is under way */
  bool is_shrinking;
};

struct random {
  uint64_t state;
};

uint32_t random_below(struct random *random, uint32_t bound);
bool random_chance(struct random *random, uint32_t percent);

void block_write(uint8_t *bytes, uint32_t size, uint32_t data);
/* The number that the bytes stand for, or UINT32_MAX when they are of no one block. */
uint32_t block_read(const uint8_t *bytes, uint32_t size);

void medium_init(struct medium *medium, uint64_t size, uint32_t block_size);
void medium_issue(struct medium *medium, struct random *random, struct flying *flying,
                  const uint8_t *frame);
/* Ends an operation; `error` is its result. */
void medium_end(struct medium *medium, struct random *random, struct flying *flying, uint8_t *frame,
                int32_t error);
void medium_power_cut(struct medium *medium, struct random *random);
void medium_resize(struct medium *medium, uint64_t size);
/* Applies a shrinking whose last write beyond the end has ended. */
void medium_settle(struct medium *medium, const struct flying *flying, uint32_t count,
                   uint32_t volume);

_Noreturn void model_fail(const char *what, uint64_t a, uint64_t b);

#endif
