/* What commands share in moving data: frames to receive into, frames pinned to send from,
 * publishing, and durability. Everything here runs with the core's lock held; each function that
 * returns a bool is called again after a wait until it is true, or the command's status is set.
 */
#include <assert.h>
#include <errno.h>

#include "internal.h"

static uint64_t slot_mask(const struct command *command) {
  return command->connection->reactor->core->config.slot_size - 1;
}

static uint32_t slot_shift(const struct command *command) {
  return command->connection->reactor->core->slot_shift;
}

/* How many extents the command's range touches. */
uint32_t segment_count(const struct command *command) {
  uint32_t shift = slot_shift(command);
  assert(command->length > 0);
  uint64_t first = command->offset >> shift;
  uint64_t last = (command->offset + command->length - 1) >> shift;
  return (uint32_t)(last - first + 1);
}

/* The part of the command's range in its extent number `index`. */
static void segment(const struct command *command, uint32_t index, uint64_t *offset,
                    uint32_t *length) {
  uint32_t shift = slot_shift(command);
  uint64_t end = command->offset + command->length;
  uint64_t start = ((command->offset >> shift) + index) << shift;
  uint64_t stop = start + (UINT64_C(1) << shift);
  if (stop > end) stop = end;
  if (start < command->offset) start = command->offset;
  assert(start < stop);
  *offset = start;
  *length = (uint32_t)(stop - start);
}

void fail(struct command *command, int32_t error, bool is_write) {
  assert(error > 0);
  if (error == ERANGE) /* the volume has shrunk since the command was checked */
    command->status = PS_SC_LBA_RANGE | PS_DNR;
  else if (is_write)
    command->status = error == ENOSPC ? PS_SC_CAPACITY : PS_SC_WRITE_FAULT;
  else
    command->status = PS_SC_READ_ERROR;
}

/* Frames that commands hold while their host has not sent the data yet are limited apart, so that
 * hosts that never send it cannot keep others from reading. First come, first served. */
static bool receive_fits(const struct ps_core *core, const struct command *command) {
  return core->receive_frames == 0 ||
         core->receive_frames + command->receive_frames <= core->receive_limit;
}

static void wake_receiver(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  if (list_is_empty(&core->receive_waiters)) return;
  struct command *next = CONTAINER(core->receive_waiters.next, struct command, receive_wait);
  if (!receive_fits(core, next)) return;
  list_remove(&next->receive_wait);
  next->counts_receive = true;
  core->receive_frames += next->receive_frames;
  wake_task(reactor, &next->task);
}

static bool enter_receive(struct command *command, uint32_t frames) {
  struct ps_core *core = command->connection->reactor->core;
  if (command->in_capsule || command->has_data || command->counts_receive) return true;
  if (link_is_in(&command->receive_wait)) return false;
  command->receive_frames = (uint16_t)frames;
  if (!list_is_empty(&core->receive_waiters) || !receive_fits(core, command)) {
    list_append(&core->receive_waiters, &command->receive_wait);
    return false;
  }
  command->counts_receive = true;
  core->receive_frames += frames;
  return true;
}

void leave_receive(struct command *command) {
  struct ps_core *core = command->connection->reactor->core;
  if (link_is_in(&command->receive_wait)) list_remove(&command->receive_wait);
  if (command->counts_receive) {
    assert(core->receive_frames >= command->receive_frames);
    command->counts_receive = false;
    core->receive_frames -= command->receive_frames;
  }
  /* More than one may fit now: each that enters does not call here, so try them all. */
  for (uint32_t i = 0; i < core->config.queue_depth && !list_is_empty(&core->receive_waiters); i++)
    wake_receiver(command->connection->reactor);
}

/* The tier has set aside `reserve` frames of its budget for the command. */
static void hold_budget(struct command *command, uint32_t reserve) {
  assert(command->reserved == 0 && reserve > 0);
  command->reserved = reserve;
  command->connection->reactor->core->transfers++;
}

/* Hold `reserve` frames of the tier's budget, as a part of the connection's share. */
bool reserve_frames(struct command *command, uint32_t reserve) {
  struct ps_core *core = command->connection->reactor->core;
  if (command->reserved > 0) return true;
  if (!share_enter(command, reserve)) return false;
  int result = ps_tier_reserve(core->tier, reserve, &command->task.waiter);
  /* Only a pair can need more than there is: every tier has room for two transfers. */
  if (result == PS_TIER_ERROR) command->status = PS_SC_ATOMIC_EXCEEDED | PS_DNR;
  if (result != PS_TIER_DONE) return false;
  hold_budget(command, reserve);
  return true;
}

static bool take_fresh(struct command *command, uint32_t fresh) {
  struct reactor *reactor = command->connection->reactor;
  while (command->fresh_count < fresh) {
    uint32_t *frame = &command->fresh[command->fresh_count];
    if (ps_tier_fresh(reactor->core->tier, reactor->now_ns, &command->task.waiter, frame) !=
        PS_TIER_DONE)
      return false;
    command->fresh_count++;
  }
  return true;
}

/* `count` fresh frames, all that are held, to make in them what is sent. */
bool answer_frames(struct command *command, uint32_t count) {
  assert(count > 0 && command->sends_data);
  return reserve_frames(command, count) && take_fresh(command, count);
}

/* `fresh` frames to receive or make data in, out of `reserve` held; 0: held by its mate. */
bool take_frames(struct command *command, uint32_t fresh, uint32_t reserve) {
  assert(fresh <= reserve || (reserve == 0 && command->mate != NULL));
  if (!command->in_capsule && !command->has_data) command->receives = true;
  /* A second does not queue for what it has already, nor behind firsts that wait for frames which
   * its own pair holds. */
  if (reserve > 0 && (!share_enter(command, reserve) || !enter_receive(command, reserve) ||
                      !reserve_frames(command, reserve)))
    return false;
  return take_fresh(command, fresh);
}

/* The command's range in `frames`, each byte where it stands, as iovecs in order. */
static uint32_t frames_iov(struct command *command, const uint32_t *frames, uint32_t count) {
  struct ps_core *core = command->connection->reactor->core;
  uint64_t start = command->offset & slot_mask(command); /* of the first; the others begin at 0 */
  size_t rest = command->length;
  for (uint32_t i = 0; i < count; i++) {
    size_t room = core->config.slot_size - start;
    command->iov[i].iov_base = frame_bytes(core, frames[i]) + start;
    command->iov[i].iov_len = rest < room ? rest : room;
    rest -= command->iov[i].iov_len;
    start = 0;
  }
  assert(rest == 0);
  return count;
}

/* The pinned bytes; returns the number of iovecs. */
uint32_t pinned_iov(struct command *command) {
  return frames_iov(command, command->pins, command->pin_count);
}

/* The bytes of the fresh frames; returns the number of iovecs. */
uint32_t fresh_iov(struct command *command) {
  return frames_iov(command, command->fresh, command->fresh_count);
}

/* Ask the engine for the host's data, into the fresh frames. */
static void receive_range(struct command *command) {
  uint32_t count = fresh_iov(command);
  receive_data(command, count, command->length);
}

static bool has_arrived(struct command *command) {
  if (!command->has_data) return false;
  /* The first of a pair holds frames for data that is still to come: its second's. */
  if (!is_first_of_pair(command)) leave_receive(command);
  if (command->digest_error) command->status = PS_SC_TRANSIENT_TRANSPORT;
  return command->status == 0;
}

/* Take the host's data into fresh frames; true once it is here. `reserve` frames are held. */
bool receive_fresh(struct command *command, uint32_t reserve) {
  if (!command->asked_data) {
    if (!take_frames(command, segment_count(command), reserve)) return false;
    receive_range(command);
  }
  return has_arrived(command);
}

/* Parameters of a command (ranges) into one fresh frame, out of `reserve` held; true once they are
 * here. */
bool receive_parameters(struct command *command, uint32_t reserve) {
  if (!command->asked_data) {
    if (!take_frames(command, 1, reserve)) return false;
    command->iov[0].iov_base = frame_bytes(command->connection->reactor->core, command->fresh[0]);
    command->iov[0].iov_len = command->data_length;
    receive_data(command, 1, command->data_length);
  }
  return has_arrived(command);
}

/* Publish the fresh frames of `source` (the command itself, or its fused mate). */
bool publish_fresh(struct command *command, struct command *source) {
  struct reactor *reactor = command->connection->reactor;
  uint64_t offset;
  uint32_t length;
  while (source->done_count < source->fresh_count) {
    uint32_t index = source->done_count;
    segment(source, index, &offset, &length);
    int result = ps_tier_publish(reactor->core->tier, reactor->now_ns, source->volume->number,
                                 offset, length, source->connection->queue.tenant,
                                 source->fresh[index], &command->task.waiter);
    if (result == PS_TIER_ERROR) {
      source->fail_offset = offset;
      fail(source, command->task.waiter.error, true);
    }
    if (result != PS_TIER_DONE) return false;
    source->done_count++;
  }
  return true;
}

/* Write-through: on the medium; FUA and Flush: synced as well. */
bool make_durable(struct command *command, uint64_t offset, uint64_t length, bool sync) {
  struct reactor *reactor = command->connection->reactor;
  if (!command->flushing) command->task.waiter.sequence = 0;
  command->flushing = true;
  int result = ps_tier_flush(reactor->core->tier, reactor->now_ns, command->volume->number, offset,
                             length, sync, &command->task.waiter);
  if (result == PS_TIER_WAIT) return false;
  command->flushing = false;
  if (result == PS_TIER_DONE) return true;
  command->fail_offset = offset;
  fail(command, command->task.waiter.error, true);
  return false;
}

/* The extents after the one that is missing are filled beside it. */
static void read_ahead(struct command *command, uint32_t count) {
  struct reactor *reactor = command->connection->reactor;
  struct ps_tier *tier = reactor->core->tier;
  uint64_t offset;
  uint32_t length, hit;
  for (uint32_t i = command->pin_count + 1; i < count; i++) {
    segment(command, i, &offset, &length);
    if (ps_tier_read(tier, reactor->now_ns, command->volume->number, offset, length,
                     &command->access, NULL, &hit) == PS_TIER_DONE)
      ps_tier_release(tier, reactor->now_ns, hit);
  }
  command->filling = true;
}

/* Pin the command's range for reading when it is of one extent that is all there and there is
 * nobody to wait for, which is so of most reads. Such a one ends when it starts: it need not enter
 * the gate. False, and nothing was done: step by step then. */
bool pin_at_once(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  if (command->has_waited || segment_count(command) > 1) return false;
  if (!gate_is_free(command) || !share_is_free(command, 1)) return false;
  if (!ps_tier_read_at_once(reactor->core->tier, reactor->now_ns, command->volume->number,
                            command->offset, command->length, &command->access, command->pins))
    return false;
  command->pin_count = 1;
  hold_budget(command, 1);
  share_take(command, 1);
  return true;
}

/* Pin the command's whole range for reading; missing extents are filled side by side. */
bool pin_range(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  uint32_t count = segment_count(command);
  struct ps_tier_access access = command->access;
  uint64_t offset;
  uint32_t length;
  access.is_again = command->filling;
  while (command->pin_count < count) {
    segment(command, command->pin_count, &offset, &length);
    int result =
        ps_tier_read(reactor->core->tier, reactor->now_ns, command->volume->number, offset, length,
                     &access, &command->task.waiter, &command->pins[command->pin_count]);
    if (result == PS_TIER_DONE) {
      command->pin_count++;
      continue;
    }
    if (result == PS_TIER_ERROR) {
      command->fail_offset = offset;
      fail(command, command->task.waiter.error, false);
      return false;
    }
    if (!command->filling) read_ahead(command, count);
    hint_read_missed(command);
    return false;
  }
  return true;
}

void drop_pins(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  while (command->pin_count > 0)
    ps_tier_release(reactor->core->tier, reactor->now_ns, command->pins[--command->pin_count]);
  command->filling = false;
}

void drop_fresh(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  while (command->fresh_count > command->done_count)
    ps_tier_release(reactor->core->tier, reactor->now_ns, command->fresh[--command->fresh_count]);
  command->fresh_count = command->done_count = 0;
}

/* Everything the command holds of the tier. */
void drop_all(struct command *command) {
  if (command->pin_count > 0) drop_pins(command);
  if (command->fresh_count > 0) drop_fresh(command);
  if (command->receive_frames > 0) leave_receive(command);
  if (command->reserved > 0) {
    struct ps_core *core = command->connection->reactor->core;
    assert(core->transfers > 0);
    core->transfers--;
    ps_tier_unreserve(core->tier, command->reserved);
    command->reserved = 0;
  }
  share_leave(command);
}
