/* What the files of core_stress share: hosts on one thread, the control plane on another. */
#ifndef PRESTAGE_TESTS_STRESS_H
#define PRESTAGE_TESTS_STRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core.h"
#include "engine.h"

enum {
  HOSTS = 10,
  TRASH_HOST = HOSTS - 1, /* its bytes are damaged on the way; it has a volume of its own */
  VOLUMES = 4,            /* memory, a file, a file with faults, and the trash */
  TRASH_VOLUME = VOLUMES - 1,
  DEPTH = 32,
  TRANSFER = 64 << 10,
  LANE_BYTES = 192 << 10, /* of each host on each volume: what only it touches */
  LANE_BLOCKS = LANE_BYTES / 512,
  SHARED_BYTES = 192 << 10, /* behind the lanes; everybody's, and the volume may end in it */
  VOLUME_BYTES = HOSTS * LANE_BYTES + SHARED_BYTES,
  IN_CAPSULE = 8192,
  PARAMETERS = 1024,
  TENANTS = 4,
  EXTENSION_NSID = 9, /* of the subsystem of all, and of the trash's */
  TRASH_EXTENSION_NSID = 2
};

/* Blocks are one 64-bit word, repeated. */
struct lane {
  uint64_t words[LANE_BLOCKS];
  bool is_known[LANE_BLOCKS];
  bool is_busy[LANE_BLOCKS];
};

struct stress_command {
  bool is_used, is_shared, is_right; /* right: a Compare that holds */
  bool is_hint;                      /* it touches no lane: see stress_hints.c */
  uint8_t opcode, fuse;
  uint32_t volume;
  uint32_t first, count; /* blocks: of the lane, or of the shared part */
  uint32_t from;         /* Copy: where to copy from, in the lane */
  uint64_t word;         /* Write: of the first block */
  struct stress_command *mate;
  bool is_over; /* the mate has not ended yet */
  uint16_t status;
  uint64_t started_ns;
  struct iovec iov;
  uint8_t *data; /* TRANSFER bytes */
};

enum host_state { HOST_IDLE, HOST_STARTED, HOST_GONE };

struct stress_host {
  uint32_t number;
  uint32_t subsystem;
  _Atomic uint32_t state;      /* enum host_state: who may touch the rest */
  _Atomic uint32_t connection; /* the core's id */
  int fd;
  bool is_admin, is_connected, is_slow, is_mute;
  uint32_t in_flight;
  uint32_t life; /* steps until it closes without a word */
  void *memory;
  struct ps_engine *engine;
  struct stress_command commands[DEPTH];
  struct stress_command *by_slot[DEPTH]; /* of the engine */
  struct lane lanes[VOLUMES];
};

struct stress_volume {
  const char *spec;
  uint32_t block_size;
  bool is_faulty;
  _Atomic bool is_unsure; /* bytes may have been lost: nothing is checked any more */
};

struct stress {
  uint64_t seed;
  struct stress_host hosts[HOSTS];
  struct stress_volume volumes[VOLUMES];
  _Atomic uint64_t done;     /* commands that ended well */
  _Atomic bool drains;       /* no new commands */
  _Atomic bool stops;        /* the host thread ends */
  _Atomic uint64_t moved_ns; /* when something last went on */
};

extern struct stress stress;

uint64_t stress_draw(uint64_t *state, uint64_t below);
uint64_t stress_now(void);
_Noreturn void stress_fail(const char *what, uint64_t number);

/* stress_host.c */
void host_start(struct stress_host *host, int fd, uint32_t digests);
void *host_main(void *argument);

/* stress_commands.c */
bool command_submit(struct stress_host *host, uint64_t *random);
void command_ended(struct stress_host *host, struct stress_command *command, const uint8_t *cqe);
void commands_lost(struct stress_host *host);

/* stress_hints.c */
uint32_t hint_fill(struct stress_host *host, struct stress_command *command, uint8_t *sqe,
                   uint32_t *transfer, uint64_t *random);
void hint_read(struct stress_command *command, uint8_t *sqe, uint64_t *random);
void hint_ended(const struct stress_command *command);

#endif
