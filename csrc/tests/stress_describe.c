/* What is under way in the core when core_stress hangs. It looks without asking anybody. */
#include <stdio.h>

#include "reactor/internal.h"
#include "stress_control.h"

static void describe_command(const struct command *command) {
  fprintf(stderr,
          "  slot %u: opcode %02x fuse %u stage %u status %x capsule %d asked %d data %d gated %d"
          " reserved %u fresh %u pins %u media %u receive %d responded %d orphan %d ready %d"
          " committed %d queue %d/%d waiter %u mate %d\n",
          command->slot, command->sqe[0], command->sqe[1] & 3u, command->stage, command->status,
          command->in_capsule, command->asked_data, command->has_data, command->is_gated,
          command->reserved, command->fresh_count, command->pin_count, command->media_under_way,
          command->counts_receive, command->responded, command->orphaned,
          link_is_in(&command->task.ready), command->committed, link_is_in(&command->active),
          link_is_in(&command->receive_wait), command->task.waiter.state, command->mate != NULL);
}

static void describe_connection(const struct ps_core *core, const struct connection *connection) {
  fprintf(stderr,
          "connection %x: state %d readable %d writable %d held %d kept %u closing %d in flight %u"
          " orphans %u\n",
          connection->id, (int)connection->state, connection->is_readable, connection->is_writable,
          connection->has_held, connection->receive_length, connection->close_after_output,
          connection->io_in_flight, connection->orphans);
  for (uint32_t slot = 0; connection->commands != NULL && slot < core->config.queue_depth; slot++) {
    const struct command *command = command_at(connection, slot);
    if (command->is_used) describe_command(command);
  }
}

void control_describe(struct control *control) {
  struct ps_core *core = control->core;
  struct ps_tier_stats tier;
  ps_core_tier_stats(core, &tier);
  fprintf(stderr, "frames: %u in all, %u free, %u resident, %u pinned, %u dirty, %u unsynced\n",
          core->frame_count, tier.frames_free, tier.frames_resident, tier.frames_pinned,
          tier.frames_dirty, tier.frames_unsynced);
  fprintf(stderr, "receive %u of %u, budget %u, stalls %u\n", core->receive_frames,
          core->receive_limit, ps_tier_budget(core->tier), control->stalls);
  for (uint32_t i = 0; i < VOLUMES; i++) {
    const struct control_volume *volume = &control->volumes[i];
    const struct volume *inside = &core->volumes[volume->number];
    fprintf(stderr, "volume %d: state %d, exclusive %d, blockers %u, task %d, media %s\n",
            volume->number, (int)volume->state, inside->exclusive != NULL,
            inside->exclusive_blockers, inside->task != NULL, stress.volumes[i].spec);
  }
  for (uint32_t i = 0; i < HOSTS; i++) {
    const struct stress_host *host = &stress.hosts[i];
    fprintf(stderr, "host %u: state %u, connection %x, connected %d, slow %d, mute %d, %u\n", i,
            (unsigned)host->state, (unsigned)host->connection, host->is_connected, host->is_slow,
            host->is_mute, host->in_flight);
  }
  for (uint32_t i = 0; i < core->config.max_connections; i++)
    if (core->connections[i] != NULL) describe_connection(core, core->connections[i]);
}
