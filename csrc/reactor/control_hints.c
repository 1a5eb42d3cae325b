/* What the control thread asks of hints, schedulers and tenants. */
#include <assert.h>
#include <errno.h>

#include "internal.h"

void ps_core_set_capability(struct ps_core *core, const struct pax_capability *capability) {
  assert(core != NULL && capability != NULL);
  core_lock(core);
  core->carriers = capability->carriers;
  ps_hints_set_capability(core->hints, capability);
  core_unlock(core);
}

void ps_core_set_benefit(struct ps_core *core, const struct pax_benefit *benefit) {
  assert(core != NULL && benefit != NULL);
  core_lock(core);
  ps_hints_set_benefit(core->hints, benefit);
  core_unlock(core);
}

void ps_core_set_budget(struct ps_core *core, uint16_t tenant,
                        const struct ps_hints_budget *budget) {
  assert(core != NULL && tenant < core->config.tenant_count);
  core_lock(core);
  ps_hints_set_budget(core->hints, tenant, budget);
  core_unlock(core);
}

void ps_core_hint_status(struct ps_core *core, uint16_t tenant, uint32_t subsystem, uint8_t *page) {
  assert(core != NULL && page != NULL);
  assert(tenant < core->config.tenant_count && subsystem < PS_MAX_SUBSYSTEMS);
  core_lock(core);
  const struct ps_hints_scope scope = {.tenant = tenant,
                                       .subsystem = (uint16_t)subsystem,
                                       .extension_nsid = core->maps[subsystem].extension_nsid};
  ps_hints_status(core->hints, monotonic_ns(), &scope, page);
  core_unlock(core);
}

void ps_core_hint_events(struct ps_core *core, uint16_t tenant, bool clear, uint8_t *page) {
  assert(core != NULL && page != NULL && tenant < core->config.tenant_count);
  core_lock(core);
  ps_hints_events(core->hints, tenant, clear, page);
  core_unlock(core);
}

void ps_core_hint_stats(struct ps_core *core, struct ps_hints_stats *stats) {
  assert(core != NULL && stats != NULL);
  core_lock(core);
  ps_hints_get_stats(core->hints, stats);
  core_unlock(core);
}

void ps_core_hint_trust(struct ps_core *core, uint16_t tenant, uint32_t source,
                        struct ps_hints_trust *trust) {
  assert(core != NULL && trust != NULL);
  assert(tenant < core->config.tenant_count && source < PS_TIER_HINTS);
  core_lock(core);
  ps_hints_get_trust(core->hints, tenant, source, trust);
  core_unlock(core);
}

int ps_core_ring_fd(struct ps_core *core) {
  assert(core != NULL);
  return core->ring == NULL ? -1 : ps_ring_fd(core->ring);
}

void ps_core_tenant_stats(struct ps_core *core, uint16_t tenant, struct ps_tier_tenant *stats) {
  assert(core != NULL && stats != NULL && tenant < core->config.tenant_count);
  core_lock(core);
  ps_tier_get_tenant(core->tier, tenant, stats);
  core_unlock(core);
}

int ps_core_volume_sched(struct ps_core *core, uint32_t number, struct ps_sched_stats *stats) {
  assert(core != NULL && stats != NULL);
  int result = -ENOENT;
  core_lock(core);
  if (number < PS_MAX_VOLUMES && core->volumes[number].is_open) {
    ps_sched_get_stats(core->volumes[number].sched, stats);
    result = 0;
  }
  core_unlock(core);
  return result;
}
