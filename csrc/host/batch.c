/* Batches: requests of many commands, which the queues of a controller take turns to carry out. */
#include "internal.h"

enum { SQE_SLBA = 40, SQE_NLB = 48 };

/* ---- the lists of a work ---- */

static void enlist(struct ps_host_work *work, struct ps_host_batch *batch) {
  assert(!batch->is_listed);
  assert(batch->waiting > 0);
  batch->is_listed = true;
  batch->next = NULL;
  batch->previous = work->last;
  if (work->last == NULL) {
    work->first = batch;
  } else {
    work->last->next = batch;
  }
  work->last = batch;
}

static void unlist(struct ps_host_work *work, struct ps_host_batch *batch) {
  assert(batch->is_listed);
  batch->is_listed = false;
  if (batch->previous == NULL) {
    work->first = batch->next;
  } else {
    batch->previous->next = batch->next;
  }
  if (batch->next == NULL) {
    work->last = batch->previous;
  } else {
    batch->next->previous = batch->previous;
  }
  batch->next = batch->previous = NULL;
}

void ps_host_add(struct ps_host_work *work, struct ps_host_batch *batch) {
  assert(batch->count > 0 && batch->pieces != NULL);
  assert(batch->block_size > 0);
  assert(batch->end == PS_BATCH_RUNNING && batch->done == 0);
  batch->waiting = batch->count;
  work->waiting += batch->count;
  enlist(work, batch);
}

/* No piece of it waits any more. */
static void quiet(struct ps_host_work *work, struct ps_host_batch *batch) {
  assert(work->waiting >= batch->waiting);
  work->waiting -= batch->waiting;
  batch->waiting = 0;
  if (batch->is_listed) unlist(work, batch);
}

void ps_host_stop(struct ps_host_work *work, struct ps_host_batch *batch) {
  assert(work != NULL);
  if (batch->end != PS_BATCH_RUNNING) return;
  quiet(work, batch);
  batch->end = PS_BATCH_STOPPED;
}

void ps_host_recut(struct ps_host_work *work, struct ps_host_batch *batch,
                   struct ps_host_piece *pieces, uint32_t count) {
  assert(batch->end == PS_BATCH_RUNNING);
  assert(batch->waiting + batch->done == batch->count);
  quiet(work, batch);
  batch->pieces = pieces;
  batch->count = count;
  batch->next_piece = 0;
  batch->done = 0;
  ps_host_add(work, batch);
}

void ps_batch_end(struct ps_host *host, struct ps_host_batch *batch, enum ps_host_batch_end how) {
  struct ps_host_work *work = host->work;
  assert(batch->end == PS_BATCH_RUNNING && how != PS_BATCH_RUNNING);
  quiet(work, batch);
  batch->end = how;
  if (work->ended_last == NULL) {
    work->ended_first = batch;
  } else {
    work->ended_last->next = batch;
  }
  work->ended_last = batch;
  host->news |= PS_HOST_ENDED;
}

struct ps_host_batch *ps_host_next_ended(struct ps_host_work *work) {
  assert(work != NULL);
  struct ps_host_batch *batch = work->ended_first;
  if (batch == NULL) return NULL;
  work->ended_first = batch->next;
  if (work->ended_first == NULL) work->ended_last = NULL;
  batch->next = NULL;
  return batch;
}

/* ---- starting commands ---- */

/* Slots that batches may take now. While single commands wait they have half of a queue at most,
 * and of a queue of one slot every other turn: neither kind waits for the end of the other. */
static uint32_t room(const struct ps_host *host) {
  const struct ps_host_state *state = &host->state;
  uint32_t slots = host->config.slot_count;
  uint32_t taken = state->in_flight + state->reserved;
  uint32_t most = slots;
  if (host->work->requests > 0) most = slots > 1 ? slots / 2 + slots % 2 : !host->was_batch;
  if (taken >= slots || host->batch_commands >= most) return 0;
  uint32_t left = most - host->batch_commands;
  return left < slots - taken ? left : slots - taken;
}

static void put(uint8_t *at, uint64_t value, size_t size) {
  assert(size <= sizeof value);
  for (size_t i = 0; i < size; i++) at[i] |= (uint8_t)(value >> 8 * i);
}

/* Start the command of a piece; false when the connection takes none. */
static bool start(struct ps_host *host, struct ps_host_batch *batch, uint32_t index,
                  uint64_t now_us) {
  struct ps_host_piece *piece = &batch->pieces[index];
  assert(piece->nlb >= 1 && piece->nlb <= 1 << 16);
  uint64_t length = (uint64_t)piece->nlb * batch->block_size;
  assert(length <= UINT32_MAX);
  uint8_t sqe[sizeof batch->sqe];
  memcpy(sqe, batch->sqe, sizeof sqe);
  put(sqe + SQE_SLBA, piece->slba, sizeof piece->slba);
  put(sqe + SQE_NLB, piece->nlb - 1, sizeof(uint16_t));
  uint32_t transfer = batch->is_read                    ? PS_TRANSFER_FROM_CONTROLLER
                      : length <= host->in_capsule_size ? PS_TRANSFER_IN_CAPSULE
                                                        : PS_TRANSFER_TO_CONTROLLER;
  struct command *command = ps_command_start(host, sqe, transfer, (void *)(uintptr_t)piece->address,
                                             (uint32_t)length, now_us + host->config.timeout_us);
  if (command == NULL) return false;
  host->was_batch = true;
  command->kind = COMMAND_BATCH;
  command->batch = batch;
  command->piece = index;
  host->batch_commands++;
  piece->state = PS_PIECE_STARTED;
  return true;
}

/* The first piece that waits. */
static uint32_t first_waiting(struct ps_host_batch *batch) {
  assert(batch->waiting > 0);
  while (batch->pieces[batch->next_piece].state != PS_PIECE_WAITING) {
    batch->next_piece++;
    assert(batch->next_piece < batch->count);
  }
  return batch->next_piece;
}

uint32_t ps_host_fill(struct ps_host *host, uint32_t most, uint64_t now_us) {
  struct ps_host_work *work = host->work;
  if (work == NULL || work->first == NULL || host->state.end != 0) return 0;
  uint32_t free_slots = room(host);
  uint32_t started = 0;
  if (most > free_slots) most = free_slots;
  while (started < most && work->first != NULL) {
    struct ps_host_batch *batch = work->first;
    assert(batch->end == PS_BATCH_RUNNING);
    if (!start(host, batch, first_waiting(batch), now_us)) break;
    started++;
    work->waiting--;
    batch->waiting--;
    /* The next command is of the next batch. */
    if (batch->waiting > 0 && batch == work->last) continue;
    unlist(work, batch);
    if (batch->waiting > 0) enlist(work, batch);
  }
  return started;
}

/* ---- ending them ---- */

static bool has_succeeded(const struct ps_host_completion *completion, size_t length) {
  /* Bit 0 of the status is the phase; SCT and SC are 0 (Base 2.0, figure 92). */
  uint32_t status = (uint32_t)completion->cqe[14] | (uint32_t)completion->cqe[15] << 8;
  return (status >> 1 & 0x7ff) == 0 && completion->digest_error == 0 &&
         completion->transferred == length;
}

void ps_batch_completed(struct ps_host *host, const struct command *command,
                        const struct ps_host_completion *completion) {
  struct ps_host_batch *batch = command->batch;
  assert(command->kind == COMMAND_BATCH);
  assert(batch->pieces[command->piece].state == PS_PIECE_STARTED);
  if (batch->end != PS_BATCH_RUNNING) return;
  if (!has_succeeded(completion, command->iov.iov_len)) {
    batch->failure = *completion;
    batch->failed_length = (uint32_t)command->iov.iov_len;
    ps_batch_end(host, batch, PS_BATCH_FAILED);
    return;
  }
  batch->pieces[command->piece].state = PS_PIECE_DONE;
  batch->done++;
  if (batch->done == batch->count) ps_batch_end(host, batch, PS_BATCH_DONE);
}

/* ---- giving memory back ---- */

int32_t ps_host_detach(struct ps_host *host, const struct ps_host_batch *batch,
                       struct iovec *memory) {
  assert(batch->end != PS_BATCH_RUNNING);
  assert(memory != NULL);
  for (uint32_t i = 0; i < host->config.slot_count; i++) {
    struct command *command = &host->commands[i];
    if (command->kind != COMMAND_BATCH || command->batch != batch) continue;
    command->kind = COMMAND_SINGLE;
    command->batch = NULL;
    host->batch_commands--;
    *memory = command->iov;
    return command->slot;
  }
  return -1;
}

/* ---- a connection that is over ---- */

/* A command's piece waits again. */
static void wait_again(struct ps_host *host, const struct command *command) {
  struct ps_host_batch *batch = command->batch;
  assert(batch->pieces[command->piece].state == PS_PIECE_STARTED);
  batch->pieces[command->piece].state = PS_PIECE_WAITING;
  batch->waiting++;
  host->work->waiting++;
  if (command->piece < batch->next_piece) batch->next_piece = command->piece;
  if (!batch->is_listed) enlist(host->work, batch);
}

void ps_host_lose(struct ps_host *host, bool may_repeat) {
  assert(host->state.in_flight <= host->config.slot_count);
  for (uint32_t i = 0; i < host->config.slot_count; i++) {
    struct command *command = &host->commands[i];
    if (command->kind == COMMAND_FREE) continue;
    struct ps_host_batch *batch = command->batch;
    if (command->kind == COMMAND_BATCH && batch->end == PS_BATCH_RUNNING) {
      if (may_repeat && batch->is_repeatable) {
        wait_again(host, command);
      } else {
        ps_batch_end(host, batch, PS_BATCH_LOST);
      }
    }
    command->is_kept = false;
    ps_command_end(host, command);
  }
  if (host->state.end == 0) host->state.end = PS_HOST_CLOSED;
}
