/* Queues of a host, each with a target of its own at the other end of a socket pair. */
#ifndef PRESTAGE_HOST_RIG_H
#define PRESTAGE_HOST_RIG_H

#include "../host.h"

enum {
  RIG_BLOCK = 512,
  RIG_BLOCKS = 2048, /* of the store: the first half is read, the second is written */
  RIG_LANES = 3,
  RIG_SLOTS_MOST = 8,
  RIG_TIMEOUT_US = 1000000
};

/* A command at the target that was not answered. */
struct pending {
  struct iovec iov; /* of its data, either way */
  uint8_t *data;
  uint64_t slba;
  uint32_t nlb;
  uint32_t slot;
  uint16_t cid;
  bool is_used, is_read, has_data;
};

/* A single command's memory, or that of a command that outlived its batch. */
struct single {
  uint8_t *memory;
  uint64_t slba;
  uint32_t nlb;
  bool is_read, is_detached;
};

struct rig;

struct lane {
  struct rig *rig;
  struct ps_host *host;
  struct ps_host_state *state;
  struct ps_engine *target;
  void *memory, *target_memory;
  int fd, target_fd;
  uint32_t slots;
  bool is_connected;
  bool is_kept[RIG_SLOTS_MOST];      /* by CID: an Abort of it is under way */
  uint32_t may_come[RIG_SLOTS_MOST]; /* while it is kept: commands that have the CID */
  struct single singles[RIG_SLOTS_MOST];
  struct pending pending[RIG_SLOTS_MOST];
};

struct rig {
  uint64_t seed, now_us;
  struct ps_host_work work;
  struct lane lanes[RIG_LANES];
  uint32_t lane_count, digests;
  bool is_rough; /* answers may be wrong or late, connections may break */
  uint64_t lies, breaks;
  uint64_t all_singles, all_breaks, all_kept;
  uint8_t store[RIG_BLOCKS * RIG_BLOCK];
};

void lanes_open(struct rig *rig, uint64_t seed);
void lanes_close(struct rig *rig);
/* A number below `below`, which is at least 1. */
uint32_t rig_pick(struct rig *rig, uint32_t below);
/* Where `nlb` blocks to read, or to write, are. */
uint64_t rig_place(struct rig *rig, bool is_read, uint32_t nlb);
/* What blocks hold: right for every reader and every writer. */
void rig_content(uint8_t *bytes, uint64_t slba, uint32_t nlb);
void rig_check(const uint8_t *bytes, uint64_t slba, uint32_t nlb);

/* One of: the target receives, answers, sends; the host receives or sends. */
void lane_turn(struct lane *lane);
void lane_fill(struct lane *lane, uint32_t most);
void lane_single(struct lane *lane);
void lane_reserve(struct lane *lane, uint32_t slots);
void lane_keep_time(struct lane *lane);
/* Aborts have been answered: CIDs may be used again. */
void lane_let_go(struct lane *lane);
/* Break the connection, in one way or another. */
void lane_break(struct lane *lane);
void lane_detach(struct lane *lane, const struct ps_host_batch *batch);
void lane_check(const struct lane *lane);
/* Nothing is in flight. */
bool lane_is_quiet(const struct lane *lane);

#endif
