/* The control plane of core_stress, as far as hints go: budgets, extension namespaces that come and
 * go, warm-event logs; and whether the counts add up at the end.
 */
#include <stddef.h>
#include <string.h>

#include "nvme.h"
#include "pax.h"
#include "reactor/internal.h"
#include "stress_control.h"

static uint32_t draw(struct control *control, uint32_t below) {
  return (uint32_t)stress_draw(&control->random, below);
}

/* Little of everything, so that all limits are met. */
void control_configure_hints(struct ps_hints_config *config) {
  *config = (struct ps_hints_config){.sets = 64,
                                     .set_ranges = 256,
                                     .signatures = 64,
                                     .intents = 128,
                                     .answer_pages = 32,
                                     .max_set_ranges = 64,
                                     .max_ttl_ms = 100,
                                     .piece_bytes = 262144,
                                     .part_items = 3,
                                     .follow_bytes = 1 << 20,
                                     .grace_ns = 10000000,
                                     .budget = {.sets = 20,
                                                .set_ranges = 100,
                                                .signatures = 20,
                                                .intents = 40,
                                                .intent_bytes = 8 << 20,
                                                .tier_bytes = 1 << 20,
                                                .records_per_s = 20000}};
}

static uint32_t nsid_of(uint32_t index) {
  return index == 0 ? EXTENSION_NSID : TRASH_EXTENSION_NSID;
}

void control_map_extension(struct control *control, uint32_t index) {
  struct pax_capability capability = {
      .magic = PAX_MAGIC_CAPABILITY, .major = PAX_MAJOR, .carriers = UINT32_MAX};
  ps_core_set_capability(control->core, &capability);
  int result = ps_core_map_extension(control->core, index, nsid_of(index));
  if (result != 0) stress_fail("an extension namespace was not mapped", (uint64_t)-result);
  control->is_extension_mapped[index] = true;
}

/* It is mapped again when its last command has ended. */
void control_change_extension(struct control *control) {
  uint32_t index = draw(control, EXTENSIONS);
  if (!control->is_extension_mapped[index]) return;
  control->is_extension_mapped[index] = false;
  int result = ps_core_unmap(control->core, index, nsid_of(index),
                             control_cookie(control, EXTENSION_INDEX + index));
  if (result != 0) stress_fail("an extension namespace was not unmapped", (uint64_t)-result);
}

/* Nobody else reads the logs so that they are empty again: what is told of is there. */
void control_warm_event(struct control *control, uint32_t tenant) {
  uint8_t page[PAX_PAGE_BYTES];
  uint32_t count;
  if (tenant >= TENANTS) stress_fail("a warm event of no tenant", tenant);
  ps_core_hint_events(control->core, (uint16_t)tenant, true, page);
  memcpy(&count, page + offsetof(struct pax_events, event_count), sizeof count);
  if (count == 0) stress_fail("a warm event, and an empty log, of tenant", tenant);
}

void control_look_at_hints(struct control *control) {
  struct ps_hints_stats hints;
  struct ps_tier_tenant stats;
  struct ps_sched_stats sched;
  struct ps_hints_budget budget = {.sets = draw(control, 10),
                                   .set_ranges = 50,
                                   .intents = draw(control, 40),
                                   .intent_bytes = draw(control, 4 << 20),
                                   .tier_bytes = draw(control, 1 << 20),
                                   .records_per_s = 1000};
  uint8_t page[PAX_PAGE_BYTES];
  uint16_t tenant = (uint16_t)draw(control, TENANTS);
  ps_core_hint_stats(control->core, &hints);
  ps_core_hint_status(control->core, tenant, 0, page);
  ps_core_tenant_stats(control->core, tenant, &stats);
  ps_core_volume_sched(control->core, (uint32_t)control->volumes[draw(control, VOLUMES)].number,
                       &sched);
  if (draw(control, 4) == 0)
    ps_core_set_budget(control->core, tenant, draw(control, 2) ? &budget : NULL);
  if (draw(control, 4) == 0) ps_core_hint_events(control->core, tenant, false, page);
}

/* All have ended, and each in one way. */
static void check_counts(uint32_t tenant, const struct pax_counts *counts, const char *what) {
  uint64_t sum = counts->met + counts->late + counts->dropped + counts->cancelled;
  if (counts->pending != 0) stress_fail(what, tenant);
  if (counts->arrived != sum) stress_fail(what, counts->arrived - sum);
}

/* Sets and signatures go some at a time after their volumes, intents with them. */
bool control_hints_left(struct control *control) {
  struct ps_hints_stats hints;
  ps_core_hint_stats(control->core, &hints);
  if (hints.intents != 0) stress_fail("intents outlive their volumes", hints.intents);
  return hints.sets != 0 || hints.signatures != 0;
}

void control_check_hints(struct control *control) {
  struct ps_core *core = control->core;
  struct pax_status status;
  uint8_t page[PAX_PAGE_BYTES];
  core_lock(core);
  int broken = ps_hints_check_all(core->hints);
  core_unlock(core);
  if (broken != 0) stress_fail("an invariant of the hints is broken", (uint64_t)broken);
  for (uint32_t tenant = 0; tenant < TENANTS; tenant++) {
    ps_core_hint_status(core, (uint16_t)tenant, 0, page);
    memcpy(&status, page, sizeof status);
    for (uint32_t i = 0; i < PAX_PRIORITIES; i++) {
      check_counts(tenant, &status.intent_counts[i], "intents do not add up, tenant or number");
      check_counts(tenant, &status.read_counts[i], "dated reads do not add up, tenant or number");
    }
  }
}
