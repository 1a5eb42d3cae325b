/* Read, Write, Verify and Flush (NVM Command Set 1.0, 3.2.4, 3.2.6, 3.2.5; Base 2.0, 7.1).
 *
 * Every command reserves its frames before it enters the volume's gate: whoever is inside the gate
 * needs no more of the budget, so commands never wait for one another in a circle.
 */
#include <assert.h>

#include "internal.h"

enum step read_step(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  if (pin_at_once(command)) return STEP_DONE;
  if (!reserve_frames(command, segment_count(command))) return step_of(command, false);
  if (!gate_enter(command, false)) return step_of(command, false);
  command->committed = true;
  return step_of(command, pin_range(command));
}

/* Verify reads what the medium holds and sends nothing: one extent after the other. */
enum step verify_step(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  if (command->stage == 0) {
    command->cursor = command->offset + command->length;
    command->stage = 1;
  }
  if (!reserve_frames(command, 1)) return step_of(command, false);
  if (!gate_enter(command, false)) return step_of(command, false);
  command->committed = true;
  uint64_t slot_size = command->connection->reactor->core->config.slot_size;
  while (command->offset < command->cursor) {
    uint64_t end = (command->offset / slot_size + 1) * slot_size;
    if (end > command->cursor) end = command->cursor;
    command->length = (uint32_t)(end - command->offset);
    if (!pin_range(command)) return step_of(command, false);
    drop_pins(command);
    command->offset = end;
  }
  return STEP_DONE;
}

/* After publishing: FUA and write-through. */
bool settle(struct command *command) {
  if (!command->fua && !command->volume->write_through) return true;
  return make_durable(command, command->offset, command->length, command->fua);
}

/* A small write of what has come with its capsule, over what is in the tier: there is nothing to
 * wait for, and no frame to receive it in. */
static bool write_at_once(struct command *command) {
  struct reactor *reactor = command->connection->reactor;
  if (command->at_hand == NULL || command->fua || command->volume->write_through) return false;
  if (segment_count(command) > 1 || !gate_is_free(command)) return false;
  if (!ps_tier_overwrite(reactor->core->tier, reactor->now_ns, command->volume->number,
                         command->offset, command->length, command->at_hand))
    return false;
  hint_written(command, command->offset, command->length, false);
  return true;
}

enum step write_step(struct command *command) {
  assert(command->volume != NULL && command->length > 0);
  if (write_at_once(command)) return STEP_DONE;
  if (command->stage == 0) {
    if (!receive_fresh(command, segment_count(command))) return step_of(command, false);
    command->stage = 1;
  }
  if (command->stage == 1) {
    if (!gate_enter(command, false)) return step_of(command, false);
    command->committed = true;
    if (!publish_fresh(command, command)) return step_of(command, false);
    hint_written(command, command->offset, command->length, false);
    command->stage = 2;
  }
  return step_of(command, settle(command));
}

static void leave(struct command *command) {
  const struct connection *connection = command->connection;
  namespace_leave(connection->reactor->core, connection->queue.subsystem, command->entered_nsid);
  command->entered_nsid = 0;
}

/* Enter a namespace to flush it; false when there is nothing to flush. */
static bool enter_next(struct command *command, uint32_t nsid) {
  const struct connection *connection = command->connection;
  const struct namespace_slot *slot =
      namespace_enter(connection->reactor->core, connection->queue.subsystem, nsid);
  if (slot == NULL) return false;
  command->entered_nsid = nsid;
  command->volume = slot->volume;
  if (command->volume == NULL)
    leave(command);
  else
    command->volume->stats.in_flight++;
  return command->volume != NULL;
}

/* Flush of one namespace, or of all the subsystem's (NSID FFFFFFFFh: VWC bits 2:1 are 11b). */
enum step flush_step(struct command *command) {
  command->committed = true;
  if (command->nsid != 0xffffffff)
    return step_of(command, make_durable(command, 0, UINT64_MAX, true));
  for (; command->cursor <= PS_MAX_NSID; command->cursor++) {
    uint32_t nsid = (uint32_t)command->cursor;
    if (command->volume == NULL && !enter_next(command, nsid)) continue;
    if (!make_durable(command, 0, UINT64_MAX, true)) return step_of(command, false);
    command->volume->stats.in_flight--;
    command->volume = NULL;
    leave(command);
  }
  return STEP_DONE;
}
