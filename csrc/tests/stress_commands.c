/* What the hosts of core_stress ask for, and whether the answers are right. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "nvme.h"
#include "stress.h"

enum { FUSED_FIRST = 1, FUSED_SECOND = 2, ADMIN_IDENTIFY = 0x06, DSM_RANGES_MOST = 4 };

static uint32_t block_size(const struct stress_command *command) {
  return stress.volumes[command->volume].block_size;
}

static uint32_t lane_blocks(uint32_t volume) {
  return LANE_BYTES / stress.volumes[volume].block_size;
}

static void put32(uint8_t *bytes, uint32_t value) { memcpy(bytes, &value, sizeof value); }
static void put64(uint8_t *bytes, uint64_t value) { memcpy(bytes, &value, sizeof value); }

/* The word of block `index` of a command's data. */
static uint64_t word_of(const struct stress_command *command, uint32_t index) {
  return command->word + index * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill_block(struct stress_command *command, uint32_t index, uint64_t word) {
  uint32_t size = block_size(command);
  uint8_t *at = command->data + (size_t)index * size;
  for (uint32_t i = 0; i < size; i += 8) put64(at + i, word);
}

static uint64_t slba_of(const struct stress_host *host, const struct stress_command *command,
                        uint32_t block) {
  uint32_t base = command->is_shared ? HOSTS * LANE_BYTES : host->number * LANE_BYTES;
  return base / block_size(command) + block;
}

static struct lane *lane_of(struct stress_host *host, const struct stress_command *command) {
  return &host->lanes[command->volume];
}

static void mark(struct stress_host *host, struct stress_command *command, uint32_t first,
                 bool busy) {
  struct lane *lane = lane_of(host, command);
  if (command->is_shared) return;
  for (uint32_t i = 0; i < command->count; i++) lane->is_busy[first + i] = busy;
}

static bool is_free(struct stress_host *host, const struct stress_command *command,
                    uint32_t first) {
  const struct lane *lane = lane_of(host, command);
  for (uint32_t i = 0; i < command->count; i++)
    if (lane->is_busy[first + i]) return false;
  return true;
}

/* ---- choosing ---- */

static struct stress_command *take(struct stress_host *host) {
  for (uint32_t i = 0; i < DEPTH; i++) {
    struct stress_command *command = &host->commands[i];
    if (command->is_used) continue;
    uint8_t *data = command->data;
    memset(command, 0, sizeof *command);
    command->data = data;
    return command;
  }
  return NULL;
}

static bool choose_range(struct stress_host *host, struct stress_command *command, uint64_t *random,
                         uint32_t most_bytes) {
  uint32_t blocks = lane_blocks(command->volume), most = most_bytes / block_size(command);
  if (stress_draw(random, 2)) most = most < 4 ? most : 4;
  command->count = 1 + (uint32_t)stress_draw(random, most < blocks ? most : blocks);
  command->first = (uint32_t)stress_draw(random, blocks - command->count + 1);
  return command->is_shared || is_free(host, command, command->first);
}

static bool ends_apart(const struct stress_command *command) {
  uint32_t one = command->first, other = command->from;
  return one + command->count <= other || other + command->count <= one;
}

/* Data for a Compare: what is there, or something else. */
static bool choose_compared(struct stress_host *host, struct stress_command *command,
                            uint64_t *random) {
  const struct lane *lane = lane_of(host, command);
  command->is_right = stress_draw(random, 4) != 0;
  for (uint32_t i = 0; i < command->count; i++) {
    if (!lane->is_known[command->first + i]) return false;
    fill_block(command, i, lane->words[command->first + i]);
  }
  uint32_t bytes = command->count * block_size(command);
  if (!command->is_right) command->data[stress_draw(random, bytes)] ^= 1;
  return true;
}

static void fill_ranges(struct stress_host *host, struct stress_command *command, uint32_t count) {
  memset(command->data, 0, PARAMETERS);
  uint32_t done = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t part = (command->count - done) / (count - i);
    if (command->opcode == PS_OP_COPY) {
      put64(command->data + i * 32 + 8, slba_of(host, command, command->from + done));
      put32(command->data + i * 32 + 16, part - 1);
    } else {
      put32(command->data + i * 16 + 4, part);
      put64(command->data + i * 16 + 8, slba_of(host, command, command->first + done));
    }
    done += part;
  }
}

static uint8_t choose_opcode(uint64_t *random) {
  static const uint8_t opcodes[] = {
      PS_OP_READ,    PS_OP_READ,    PS_OP_READ,         PS_OP_READ,
      PS_OP_READ,    PS_OP_WRITE,   PS_OP_WRITE,        PS_OP_WRITE,
      PS_OP_WRITE,   PS_OP_WRITE,   PS_OP_FLUSH,        PS_OP_COMPARE,
      PS_OP_COMPARE, PS_OP_COMPARE, PS_OP_WRITE_ZEROES, PS_OP_DATASET_MANAGEMENT,
      PS_OP_VERIFY,  PS_OP_COPY};
  return opcodes[stress_draw(random, sizeof opcodes)];
}

/* ---- submitting ---- */

static bool submit(struct stress_host *host, struct stress_command *command, const uint8_t *sqe,
                   uint32_t transfer, uint32_t length) {
  command->iov = (struct iovec){.iov_base = command->data, .iov_len = length};
  if (length == 0) transfer = PS_TRANSFER_NONE;
  int32_t slot = ps_engine_submit(host->engine, sqe, transfer, &command->iov, length > 0, length);
  if (slot < 0) return false;
  host->by_slot[slot] = command;
  command->is_used = true;
  command->started_ns = stress_now();
  host->in_flight++;
  return true;
}

static bool submit_range(struct stress_host *host, struct stress_command *command,
                         uint64_t *random) {
  uint8_t sqe[64] = {command->opcode, command->fuse};
  uint32_t length = command->count * block_size(command), transfer = PS_TRANSFER_NONE;
  bool fua = stress_draw(random, 8) == 0;
  put32(sqe + 4, host->subsystem == 1 ? 1 : command->volume + 1);
  put64(sqe + 40, slba_of(host, command, command->first));
  put32(sqe + 48, (command->count - 1) | (fua ? 1u << 30 : 0));
  if (command->opcode == PS_OP_READ) {
    hint_read(command, sqe, random);
    transfer = PS_TRANSFER_FROM_CONTROLLER;
  } else if (command->opcode == PS_OP_WRITE || command->opcode == PS_OP_COMPARE) {
    transfer = length <= IN_CAPSULE && stress_draw(random, 2) ? PS_TRANSFER_IN_CAPSULE
                                                              : PS_TRANSFER_TO_CONTROLLER;
  } else {
    length = 0;
  }
  if (command->opcode == PS_OP_COPY || command->opcode == PS_OP_DATASET_MANAGEMENT) {
    uint32_t most = command->count < DSM_RANGES_MOST ? command->count : DSM_RANGES_MOST;
    uint32_t count = 1 + (uint32_t)stress_draw(random, most);
    bool copies = command->opcode == PS_OP_COPY;
    fill_ranges(host, command, count);
    length = count * (copies ? 32 : 16);
    transfer = stress_draw(random, 2) ? PS_TRANSFER_IN_CAPSULE : PS_TRANSFER_TO_CONTROLLER;
    if (copies) {
      put32(sqe + 48, count - 1);
    } else {
      put32(sqe + 40, count - 1);
      put32(sqe + 44, 4 | (uint32_t)stress_draw(random, 2));
      put32(sqe + 48, 0);
    }
  }
  return submit(host, command, sqe, transfer, length);
}

static struct stress_command *second_of(struct stress_host *host, struct stress_command *first) {
  struct stress_command *second = NULL;
  first->is_used = true;
  second = take(host);
  first->is_used = false;
  if (second == NULL) return NULL;
  second->volume = first->volume;
  second->opcode = PS_OP_WRITE;
  second->fuse = FUSED_SECOND;
  second->first = first->first;
  second->count = first->count;
  first->fuse = FUSED_FIRST;
  first->mate = second;
  second->mate = first;
  return second;
}

static void fill_new(struct stress_command *command, uint64_t *random) {
  command->word = stress_draw(random, UINT64_MAX) | 1;
  for (uint32_t i = 0; i < command->count; i++) fill_block(command, i, word_of(command, i));
}

static bool submit_admin(struct stress_host *host, struct stress_command *command,
                         uint64_t *random) {
  uint8_t sqe[64] = {ADMIN_IDENTIFY};
  uint32_t transfer = (uint32_t)stress_draw(random, 4);
  command->opcode = ADMIN_IDENTIFY;
  if (transfer != PS_TRANSFER_FROM_CONTROLLER && transfer != PS_TRANSFER_NONE) sqe[0] = 0x09;
  uint32_t length =
      transfer == PS_TRANSFER_NONE ? 0 : 4 * (1 + (uint32_t)stress_draw(random, 1024));
  return submit(host, command, sqe, transfer, length);
}

static bool submit_hint(struct stress_host *host, struct stress_command *command,
                        uint64_t *random) {
  uint8_t sqe[64] = {0};
  uint32_t transfer, length = hint_fill(host, command, sqe, &transfer, random);
  return submit(host, command, sqe, transfer, length);
}

/* One more command, or a fused pair; false when none was to be had. */
bool command_submit(struct stress_host *host, uint64_t *random) {
  struct stress_command *command = take(host), *second = NULL;
  if (command == NULL || host->in_flight + 2 > DEPTH - 1) return false;
  if (host->is_admin) return submit_admin(host, command, random);
  if (stress_draw(random, 4) == 0) return submit_hint(host, command, random);
  command->opcode = choose_opcode(random);
  command->volume =
      host->number == TRASH_HOST ? TRASH_VOLUME : (uint32_t)stress_draw(random, TRASH_VOLUME);
  bool is_simple = command->opcode == PS_OP_READ || command->opcode == PS_OP_WRITE ||
                   command->opcode == PS_OP_WRITE_ZEROES;
  command->is_shared = is_simple && stress_draw(random, 4) == 0;
  bool moves = command->opcode != PS_OP_WRITE_ZEROES && command->opcode != PS_OP_VERIFY &&
               command->opcode != PS_OP_DATASET_MANAGEMENT;
  if (!choose_range(host, command, random, moves ? TRANSFER : LANE_BYTES)) return false;
  if (command->opcode == PS_OP_COPY) {
    uint32_t blocks = lane_blocks(command->volume);
    command->from = (uint32_t)stress_draw(random, blocks - command->count + 1);
    if (!ends_apart(command) || !is_free(host, command, command->from)) return false;
    mark(host, command, command->from, true);
  }
  if (command->opcode == PS_OP_WRITE) fill_new(command, random);
  if (command->opcode == PS_OP_COMPARE) {
    if (!choose_compared(host, command, random)) return false;
    if (stress_draw(random, 2)) second = second_of(host, command);
  }
  mark(host, command, command->first, true);
  if (!submit_range(host, command, random)) stress_fail("the engine took no command", 0);
  if (second == NULL) return true;
  fill_new(second, random);
  /* A second that never comes: the next command breaks the pair. */
  if (stress_draw(random, 8) == 0) {
    command->mate = NULL;
    return true;
  }
  second->is_used = false;
  if (!submit_range(host, second, random)) stress_fail("the engine took no command", 1);
  return true;
}

/* ---- judging ---- */

static bool leaves_alone(uint16_t status) {
  switch (status & 0x7ff) {
    case PS_SC_ABORT_REQUESTED:
    case PS_SC_ABORTED_FUSED:
    case PS_SC_MISSING_FUSED:
    case PS_SC_INVALID_NAMESPACE:
    case PS_SC_SEQUENCE_ERROR:
    case PS_SC_COMPARE_FAILURE:
      return true;
    default:
      return false;
  }
}

static void judge_status(const struct stress_command *command) {
  const struct stress_volume *volume = &stress.volumes[command->volume];
  uint16_t code = command->status & 0x7ff;
  if (code == 0 || command->volume == TRASH_VOLUME || volume->is_unsure) return;
  bool is_media = code == PS_SC_WRITE_FAULT || code == PS_SC_READ_ERROR || code == PS_SC_CAPACITY;
  if (is_media && volume->is_faulty) return;
  if (code == PS_SC_LBA_RANGE && command->is_shared) return;
  if (leaves_alone(code) && code != PS_SC_COMPARE_FAILURE && code != PS_SC_ABORTED_FUSED &&
      code != PS_SC_MISSING_FUSED)
    return;
  if (code == PS_SC_COMPARE_FAILURE && command->opcode == PS_OP_COMPARE && !command->is_right)
    return;
  if (code == PS_SC_ABORTED_FUSED && command->fuse != 0) return;
  if (code == PS_SC_MISSING_FUSED && command->fuse != 0) return;
  fprintf(stderr, "volume %u (%s), shared %d, block %u, %u blocks of %u\n", command->volume,
          volume->spec, command->is_shared, command->first, command->count, block_size(command));
  stress_fail("a status that nothing explains", (uint64_t)command->opcode << 16 | command->status);
}

static void check_read(struct stress_host *host, struct stress_command *command) {
  const struct lane *lane = lane_of(host, command);
  uint32_t size = block_size(command);
  for (uint32_t i = 0; i < command->count; i++) {
    const uint8_t *at = command->data + (size_t)i * size;
    uint64_t word;
    memcpy(&word, at, sizeof word);
    if (memcmp(at, at + 8, size - 8) != 0) stress_fail("a torn block", slba_of(host, command, i));
    if (command->is_shared || !lane->is_known[command->first + i]) continue;
    if (word != lane->words[command->first + i])
      fprintf(stderr, "host %u, volume %u (%s), block %u of %u, %u of %u: %llx, expected %llx\n",
              host->number, command->volume, stress.volumes[command->volume].spec,
              command->first + i, block_size(command), i, command->count, (unsigned long long)word,
              (unsigned long long)lane->words[command->first + i]);
    if (word != lane->words[command->first + i])
      stress_fail("other bytes than were written, block",
                  slba_of(host, command, command->first + i));
  }
}

/* What the lane holds now. */
static void learn(struct stress_host *host, struct stress_command *command) {
  struct lane *lane = lane_of(host, command);
  bool writes = command->opcode == PS_OP_WRITE || command->opcode == PS_OP_WRITE_ZEROES ||
                command->opcode == PS_OP_COPY || command->opcode == PS_OP_DATASET_MANAGEMENT;
  if (command->is_shared || !writes || leaves_alone(command->status)) return;
  for (uint32_t i = 0; i < command->count; i++) {
    uint32_t to = command->first + i;
    lane->is_known[to] = command->status == 0 && command->opcode != PS_OP_DATASET_MANAGEMENT;
    if (command->opcode == PS_OP_WRITE) lane->words[to] = word_of(command, i);
    if (command->opcode == PS_OP_WRITE_ZEROES) lane->words[to] = 0;
    if (command->opcode == PS_OP_COPY) {
      lane->words[to] = lane->words[command->from + i];
      lane->is_known[to] = lane->is_known[to] && lane->is_known[command->from + i];
    }
  }
}

static void let_go(struct stress_host *host, struct stress_command *command) {
  mark(host, command, command->first, false);
  if (command->opcode == PS_OP_COPY) mark(host, command, command->from, false);
}

/* Both of a pair have ended: they agree. */
static void judge_pair(const struct stress_command *first, const struct stress_command *second) {
  const struct stress_volume *volume = &stress.volumes[first->volume];
  if (first->volume == TRASH_VOLUME || volume->is_unsure) return;
  if (second->status == 0 && (first->status != 0 || !first->is_right))
    stress_fail("the second of a pair was done, the first was not", first->status);
  if (first->status == 0 && second->status != 0 && !volume->is_faulty)
    stress_fail("the first of a pair was done, the second was not", second->status);
}

void command_ended(struct stress_host *host, struct stress_command *command, const uint8_t *cqe) {
  assert(command->is_used);
  host->in_flight--;
  uint16_t status = 0;
  memcpy(&status, cqe + 14, sizeof status);
  command->status = status >> 1;
  stress.moved_ns = stress_now();
  if (command->status == 0) stress.done++;
  if (command->is_hint) {
    if (host->number != TRASH_HOST) hint_ended(command);
    command->is_used = false;
    return;
  }
  if (host->is_admin || host->number == TRASH_HOST) {
    if (!host->is_admin) let_go(host, command);
    command->is_used = false;
    if (command->mate != NULL) command->mate->mate = NULL;
    return;
  }
  judge_status(command);
  bool is_unsure = stress.volumes[command->volume].is_unsure;
  if (command->opcode == PS_OP_READ && command->status == 0 && !is_unsure)
    check_read(host, command);
  if (command->opcode == PS_OP_COMPARE && command->status == 0 && !command->is_right && !is_unsure)
    stress_fail("a Compare of other bytes held", slba_of(host, command, command->first));
  learn(host, command);
  struct stress_command *mate = command->mate;
  if (mate == NULL) {
    let_go(host, command);
    command->is_used = false;
  } else if (!mate->is_over) {
    command->is_over = true; /* its blocks stay busy until the other has ended too */
  } else {
    judge_pair(command->fuse == FUSED_FIRST ? command : mate,
               command->fuse == FUSED_FIRST ? mate : command);
    let_go(host, command);
    mate->is_used = mate->is_over = command->is_used = false;
  }
}

/* The connection has gone; whatever was under way may have been done or not. */
void commands_lost(struct stress_host *host) {
  for (uint32_t i = 0; i < DEPTH; i++) {
    struct stress_command *command = &host->commands[i];
    if (!command->is_used) continue;
    if (!host->is_admin && !command->is_hint && !command->is_over) {
      command->status = PS_SC_INTERNAL;
      learn(host, command);
    }
    command->is_used = command->is_over = false;
  }
  for (uint32_t volume = 0; volume < VOLUMES; volume++)
    memset(host->lanes[volume].is_busy, 0, sizeof host->lanes[volume].is_busy);
  host->in_flight = 0;
}
