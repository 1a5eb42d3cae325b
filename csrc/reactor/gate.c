/* The gate of a volume: commands on ranges run side by side; one that needs its range alone (a
 * fused pair, a deallocation) waits for those before it and holds back those after it.
 * Everything here runs with the core's lock held.
 */
#include <assert.h>

#include "internal.h"

static bool overlaps(const struct command *one, const struct command *other) {
  return one->gate_offset < other->gate_offset + other->gate_length &&
         other->gate_offset < one->gate_offset + one->gate_length;
}

static uint32_t count_blockers(const struct command *command) {
  uint32_t blockers = 0;
  const struct link *active = &command->volume->active;
  for (const struct link *link = active->next; link != active; link = link->next)
    if (overlaps(command, CONTAINER(link, struct command, active))) blockers++;
  return blockers;
}

static void enter(struct command *command) {
  list_append(&command->volume->active, &command->active);
  command->is_gated = true;
}

/* True once the command may go on. Call again after waking when it was false and no status is set.
 * While it is inside, the volume does not lose what is in its range. */
bool gate_enter(struct command *command, bool exclusive) {
  struct volume *volume = command->volume;
  assert(volume != NULL && command->gate_length > 0);
  if (command->is_gated) return volume->exclusive != command || volume->exclusive_blockers == 0;
  if (link_is_in(&command->active)) return false;
  if (command->gate_offset + command->gate_length > volume->size) {
    /* The volume has become smaller since the command was checked. */
    command->status = PS_SC_LBA_RANGE | PS_DNR;
    return false;
  }
  if (volume->exclusive != NULL && (exclusive || overlaps(command, volume->exclusive))) {
    list_append(&volume->gated, &command->active);
    return false;
  }
  if (exclusive) {
    volume->exclusive_blockers = count_blockers(command);
    volume->exclusive = command;
  }
  enter(command);
  return !exclusive || volume->exclusive_blockers == 0;
}

/* Whether a command that ends at once need not enter. */
bool gate_is_free(const struct command *command) {
  const struct volume *volume = command->volume;
  assert(volume != NULL && command->gate_length > 0);
  return volume->exclusive == NULL || !overlaps(command, volume->exclusive);
}

static void wake_gated(struct reactor *reactor, struct volume *volume) {
  for (struct link *link; (link = list_pop(&volume->gated)) != NULL;)
    wake_task(reactor, &CONTAINER(link, struct command, active)->task);
}

void gate_leave(struct command *command) {
  struct volume *volume = command->volume;
  struct reactor *reactor = command->connection->reactor;
  if (!link_is_in(&command->active)) return;
  list_remove(&command->active);
  if (!command->is_gated) return;
  command->is_gated = false;
  if (volume->exclusive == command) {
    volume->exclusive = NULL;
    wake_gated(reactor, volume);
  } else if (volume->exclusive != NULL && overlaps(command, volume->exclusive)) {
    assert(volume->exclusive_blockers > 0);
    if (--volume->exclusive_blockers == 0) wake_task(reactor, &volume->exclusive->task);
  }
}
