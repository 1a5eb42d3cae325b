/* What a power cut does to the log, decided by seed alone: in which order entries reach the medium,
 * which are lost, and which sectors of a torn one were written. No system calls. */
#ifndef PRESTAGE_MEDIA_CUTPLAN_H
#define PRESTAGE_MEDIA_CUTPLAN_H

#include "cutlog.h"

enum ps_cut_fate { PS_CUT_LOST = 0, PS_CUT_WHOLE = 1, PS_CUT_TORN = 2 };

struct ps_cutplan {
  uint32_t sector; /* bytes that the device writes whole or not at all; a power of two */
  uint64_t seed;   /* of this cut */
  uint64_t count;  /* entries of the log */
  uint64_t *order; /* indices from the oldest, in the order in which they reach the medium */
  uint64_t capacity;
};

bool ps_cutplan_open(struct ps_cutplan *plan, uint64_t capacity, uint32_t sector);
void ps_cutplan_close(struct ps_cutplan *plan);
/* Plans the cut with this number (from 0) of a medium with this seed. */
void ps_cutplan_make(struct ps_cutplan *plan, uint64_t seed, uint64_t number, uint64_t count);
enum ps_cut_fate ps_cutplan_fate(const struct ps_cutplan *plan, uint64_t index,
                                 const struct ps_cutlog_entry *entry);
/* Lays those sectors of a torn entry that were written over `data`, which holds the old bytes. */
void ps_cutplan_tear(const struct ps_cutplan *plan, uint64_t index,
                     const struct ps_cutlog_entry *entry, uint8_t *data);

#endif
