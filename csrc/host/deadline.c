/* Deadlines of commands in flight. They are looked at when the caller's timer ends, not at each. */
#include "internal.h"

uint64_t ps_host_deadline(const struct ps_host *host) {
  uint64_t earliest_us = 0;
  assert(host->state.in_flight <= host->config.slot_count);
  for (uint32_t i = 0; i < host->config.slot_count; i++) {
    const struct command *command = &host->commands[i];
    if (command->kind == COMMAND_FREE || command->deadline_us == 0) continue;
    if (earliest_us == 0 || command->deadline_us < earliest_us) earliest_us = command->deadline_us;
  }
  return earliest_us;
}

int32_t ps_host_overdue(struct ps_host *host, uint64_t now_us) {
  assert(host->state.in_flight <= host->config.slot_count);
  for (uint32_t i = 0; i < host->config.slot_count; i++) {
    struct command *command = &host->commands[i];
    if (command->kind == COMMAND_FREE || command->deadline_us == 0) continue;
    if (command->deadline_us > now_us) continue;
    if (command->is_overdue) return -2;
    command->is_overdue = true;
    command->deadline_us = now_us + host->config.timeout_us;
    if (command->kind == COMMAND_BATCH && command->batch->end == PS_BATCH_RUNNING) {
      ps_batch_end(host, command->batch, PS_BATCH_OVERDUE);
    }
    return command->slot;
  }
  return -1;
}
