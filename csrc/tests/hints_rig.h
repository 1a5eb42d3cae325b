/* What the tests of the hints share: hints over a tier without payload, a scheduler for each
 * volume, and media that do nothing but take their time. All choices come from a source of numbers
 * below a bound: a seed, or a fuzzer's bytes.
 */
#ifndef PRESTAGE_TESTS_HINTS_RIG_H
#define PRESTAGE_TESTS_HINTS_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../engine.h"
#include "../hints.h"
#include "../nvme.h"

enum {
  RIG_VOLUMES = 3,
  RIG_TENANTS = 3,
  RIG_SUBSYSTEMS = 2,
  RIG_SLOT = 16384,
  RIG_FRAMES = 48,
  RIG_BLOCK = 512,
  RIG_OPS = 1024,
  RIG_MAILBOXES = 3,
  RIG_FACTS = 4096
};

#define RIG_CHECK(condition)                                                  \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                \
    }                                                                         \
  } while (0)

struct rig;

struct rig_op {
  struct ps_sched_item item;
  struct rig_op *next_free;
  uint64_t cookie;
  uint64_t done_ns; /* of the first of a chain, when it is under way; else 0 */
  uint32_t ticket;
  uint32_t volume;
  bool is_used;
};

struct rig {
  uint32_t (*below)(struct rig *rig, uint32_t bound);
  void *source; /* of the numbers */
  uint64_t state;
  struct ps_tier *tier;
  struct ps_hints *hints;
  struct ps_ring *ring;
  struct ps_sched *scheds[RIG_VOLUMES];
  uint64_t sizes[RIG_VOLUMES]; /* 0: the volume is not there */
  bool is_leaving[RIG_VOLUMES];
  bool is_unmapped[RIG_SUBSYSTEMS][RIG_VOLUMES];
  struct rig_op ops[RIG_OPS];
  struct rig_op *free_op;
  uint32_t ops_used;
  uint64_t now_ns;
  uint64_t outcome_facts[RIG_TENANTS];
  uint64_t lost_facts;
  uint32_t error_percent;
  uint64_t met, late, dropped, cancelled, follows, parts; /* of rigs that were freed */
};

/* splitmix64 */
uint32_t rig_random(struct rig *rig, uint32_t bound);
static inline bool rig_chance(struct rig *rig, uint32_t percent) {
  return rig->below(rig, 100) < percent;
}

/* Says the seed at hand when the program is aborted. */
void rig_note_seed(const char *program, unsigned long seed);
void rig_open(struct rig *rig);
void rig_close(struct rig *rig);
/* Starts and ends what is due; takes facts out of the ring and checks them. */
void rig_pump(struct rig *rig);
/* To the next time at which something happens, at most `most_ns` from now. */
void rig_advance(struct rig *rig, uint64_t most_ns);
/* A read as the data path does it, in one extent. */
void rig_read(struct rig *rig, uint16_t tenant, uint32_t volume, uint64_t offset, uint32_t length);
/* The volume goes: as fast as its media work allows. Or comes back. */
void rig_turn_volume(struct rig *rig, uint32_t volume);
bool rig_is_up(const struct rig *rig, uint32_t volume);
struct ps_hints_scope rig_scope(uint16_t tenant, uint16_t subsystem);

/* ---- hints_batch.c ---- */
/* A batch of random records, valid but for what ids and ranges say; its size. */
uint32_t rig_batch(struct rig *rig, uint8_t *bytes);
/* Makes the checksum right again. */
void rig_seal(uint8_t *bytes);
/* Asks and looks at everything that a host can. */
void rig_look(struct rig *rig, const struct ps_hints_scope *scope);

#endif
