/* What a tenant is told about itself, and what is counted about its reads and writes. */
#include "internal.h"

static struct pax_budget budget(uint64_t limit, uint64_t used) {
  return (struct pax_budget){.limit = limit, .used = used};
}

static void fill_budgets(const struct ps_hints *hints, uint64_t now_ns, const struct tenant *tenant,
                         const struct ps_tier_tenant *tier, struct pax_status *status) {
  const struct ps_hints_budget *limit = hints_budget(hints, tenant);
  uint64_t tier_bytes = (uint64_t)tier->hint_frames * hints->config.slot_size;
  status->sets = budget(limit->sets, tenant->sets);
  status->set_ranges = budget(limit->set_ranges, tenant->set_ranges);
  status->signatures = budget(limit->signatures, tenant->signatures);
  status->intents = budget(limit->intents, tenant->intents);
  status->intent_bytes = budget(limit->intent_bytes, tenant->intent_bytes);
  status->tier_bytes = budget(limit->tier_bytes, tier_bytes);
  uint64_t records = hints_is_shared(tenant) ? 0 : hints_recent_records(tenant, now_ns);
  status->records_per_s = budget(limit->records_per_s, records);
}

static void fill_counts(const struct tenant *tenant, const struct ps_tier_tenant *tier,
                        struct pax_status *status) {
  status->batches = tenant->batches;
  status->refused = tenant->refused;
  status->records = tenant->records;
  status->unknown = tenant->unknown;
  _Static_assert(sizeof status->dropped == sizeof tenant->dropped, "by reason");
  memcpy(status->dropped, tenant->dropped, sizeof status->dropped);
  status->read_hints = tenant->read_hints;
  status->dataset_sets = tenant->dataset_sets;
  status->timely_hits = tier->timely_hits;
  status->late_hits = tier->late_hits;
  status->wasted_bytes = tier->wasted_bytes;
  status->hydrated_bytes = tier->hydrated_bytes;
  status->event_count = tenant->event_count;
  status->events_lost = tenant->events_lost;
  memcpy(status->intent_counts, tenant->intent_counts, sizeof status->intent_counts);
  memcpy(status->read_counts, tenant->read_counts, sizeof status->read_counts);
  for (uint64_t i = 0; i < PAX_REFUSALS && i < tenant->refused; i++) {
    status->refusals[i] = tenant->refusals[(tenant->refused - 1 - i) % PAX_REFUSALS];
  }
}

void ps_hints_status(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint8_t *page) {
  assert(hints != NULL && scope != NULL && page != NULL);
  const struct tenant *tenant = hints_tenant(hints, scope->tenant);
  struct ps_tier_tenant tier;
  ps_tier_get_tenant(hints->tier, scope->tenant, &tier);
  struct pax_status status = {.capability = hints->capability};
  status.capability.extension_nsid = scope->extension_nsid;
  if (scope->extension_nsid == 0) {
    status.capability.carriers &= ~(uint32_t)PAX_CARRIER_EXTENSION_NAMESPACE;
  }
  fill_budgets(hints, now_ns, tenant, &tier, &status);
  if (!hints_is_shared(tenant)) {
    fill_counts(tenant, &tier, &status);
    status.benefit = hints->benefit;
  }
  _Static_assert(sizeof status <= PAX_PAGE_BYTES, "a status page");
  memset(page, 0, PAX_PAGE_BYTES);
  memcpy(page, &status, sizeof status);
}

static void count_dated(uint64_t now_ns, const struct ps_hints_read *read, uint64_t arrived_ns,
                        bool is_cancelled, struct pax_counts *counts) {
  assert(counts->pending > 0);
  counts->pending--;
  if (is_cancelled) {
    counts->cancelled++;
  } else if (now_ns > hints_add(arrived_ns, read->deadline_us * UINT64_C(1000))) {
    counts->late++;
  } else {
    counts->met++;
    if ((read->flags & PS_FACT_HIT) != 0) counts->met_warm++;
  }
}

void ps_hints_read_seen(struct ps_hints *hints, const struct ps_hints_scope *scope,
                        const struct ps_hints_read *read, uint64_t arrived_ns) {
  assert(hints != NULL && scope != NULL && read != NULL);
  bool is_dated = (read->flags & PS_FACT_DATED) != 0;
  struct ps_fact fact = {.time_ns = arrived_ns,
                         .offset = read->offset,
                         .length = read->length,
                         .session = read->session,
                         .value = is_dated ? read->deadline_us : 0,
                         .volume = (uint16_t)read->volume,
                         .tenant = scope->tenant,
                         .kind = PS_FACT_READ,
                         .flags = read->flags,
                         .priority = read->priority,
                         .queue = scope->queue};
  hints_fact(hints, &fact);
}

void ps_hints_read_ended(struct ps_hints *hints, uint64_t now_ns,
                         const struct ps_hints_scope *scope, const struct ps_hints_read *read,
                         uint64_t arrived_ns, bool is_cancelled) {
  assert(hints != NULL && scope != NULL && read != NULL);
  if ((read->flags & PS_FACT_DATED) == 0) return;
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  count_dated(now_ns, read, arrived_ns, is_cancelled,
              &tenant->read_counts[read->priority % PAX_PRIORITIES]);
}

void ps_hints_written(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      uint32_t volume, uint64_t offset, uint64_t length, bool is_discard) {
  assert(hints != NULL && scope != NULL);
  struct ps_fact fact = {.time_ns = now_ns,
                         .offset = offset,
                         .length = length,
                         .volume = (uint16_t)volume,
                         .tenant = scope->tenant,
                         .kind = is_discard ? PS_FACT_DISCARD : PS_FACT_WRITE,
                         .queue = scope->queue};
  hints_fact(hints, &fact);
}
