/* What a tenant may do in a second, its log of warm events, and who is to be told of it. */
#include "internal.h"

struct tenant *hints_tenant(const struct ps_hints *hints, uint16_t tenant) {
  assert(hints != NULL && tenant < hints->config.tenant_count);
  return &hints->tenants[tenant];
}

const struct ps_hints_budget *hints_budget(const struct ps_hints *hints,
                                           const struct tenant *tenant) {
  assert(hints != NULL && tenant != NULL);
  return tenant->has_budget ? &tenant->budget : &hints->config.budget;
}

bool hints_is_shared(const struct tenant *tenant) {
  assert(tenant != NULL);
  return tenant->has_budget && tenant->budget.is_shared;
}

/* A bucket that holds one second: rate_ns is the time at which all that was taken is paid for. */
bool hints_take_records(const struct ps_hints *hints, struct tenant *tenant, uint64_t now_ns,
                        uint32_t records) {
  assert(tenant != NULL);
  uint64_t rate = hints_budget(hints, tenant)->records_per_s;
  if (rate == 0) return false;
  uint64_t price_ns = records * (SECOND_NS / rate);
  uint64_t start_ns = tenant->rate_ns > now_ns ? tenant->rate_ns : now_ns;
  if (price_ns > SECOND_NS - hints_min(start_ns - now_ns, SECOND_NS)) return false;
  tenant->rate_ns = start_ns + price_ns;
  return true;
}

bool hints_take_record(const struct ps_hints *hints, struct tenant *tenant, uint64_t now_ns,
                       uint32_t ranges) {
  assert(tenant != NULL);
  uint64_t price = 1 + ranges / RANGES_PER_TOKEN;
  uint64_t rate = hints_budget(hints, tenant)->records_per_s;
  return hints_take_records(hints, tenant, now_ns, (uint32_t)hints_min(price, rate));
}

bool hints_take_extents(const struct ps_hints *hints, struct tenant *tenant, uint64_t now_ns,
                        uint64_t extents) {
  assert(tenant != NULL);
  uint64_t owed = tenant->extents_owed + extents;
  uint64_t records = owed / EXTENTS_PER_TOKEN;
  if (records > UINT32_MAX) return false;
  if (records > 0 && !hints_take_records(hints, tenant, now_ns, (uint32_t)records)) return false;
  tenant->extents_owed = (uint32_t)(owed % EXTENTS_PER_TOKEN);
  tenant->extents_looked += extents;
  return true;
}

bool hints_look(struct ps_hints *hints, uint64_t looks) {
  assert(hints != NULL);
  if (hints->looks > 0 && looks > LOOKS_MOST - hints_min(hints->looks, LOOKS_MOST)) return false;
  hints->looks += looks;
  return true;
}

static void turn_second(struct tenant *tenant, uint64_t second) {
  if (second <= tenant->second) return;
  tenant->last_records = second == tenant->second + 1 ? tenant->second_records : 0;
  tenant->second_records = 0;
  tenant->second = second;
}

void hints_count_records(struct tenant *tenant, uint64_t now_ns, uint32_t records) {
  assert(tenant != NULL);
  turn_second(tenant, now_ns / SECOND_NS);
  tenant->second_records += records;
  tenant->records += records;
}

/* In the last second: the share of the whole one before that is not past it, and this one. */
uint64_t hints_recent_records(const struct tenant *tenant, uint64_t now_ns) {
  assert(tenant != NULL);
  struct tenant copy;
  copy.second = tenant->second;
  copy.second_records = tenant->second_records;
  copy.last_records = tenant->last_records;
  turn_second(&copy, now_ns / SECOND_NS);
  uint64_t left_ns = SECOND_NS - now_ns % SECOND_NS;
  return copy.second_records + copy.last_records * left_ns / SECOND_NS;
}

static void announce(struct ps_hints *hints, uint16_t tenant) {
  struct tenant *who = hints_tenant(hints, tenant);
  if (who->is_told) return;
  who->is_told = true;
  if (who->is_queued) return;
  who->is_queued = true;
  who->event_next = NONE;
  uint32_t entry = tenant + 1u;
  if (hints->event_queue.last == NONE) {
    hints->event_queue.first = entry;
  } else {
    hints_tenant(hints, (uint16_t)(hints->event_queue.last - 1))->event_next = entry;
  }
  hints->event_queue.last = entry;
}

void hints_note_event(struct ps_hints *hints, const struct intent *intent) {
  assert(intent != NULL && intent->state > PAX_STATE_PENDING);
  struct tenant *tenant = hints_tenant(hints, intent->tenant);
  tenant->event_count++;
  if (hints_is_shared(tenant)) return;
  if (tenant->log_count == EVENTS) {
    tenant->log_first = (tenant->log_first + 1) % EVENTS;
    tenant->log_count--;
    tenant->log_lost++;
    tenant->events_lost++;
  }
  uint32_t at = (tenant->log_first + tenant->log_count++) % EVENTS;
  tenant->log[at] = (struct pax_event){.intent_id = intent->id,
                                       .session = intent->session,
                                       .ready_us = intent->ended_us,
                                       .state = intent->state,
                                       .reason = intent->reason,
                                       .priority = intent->priority,
                                       .flags = intent->flags};
  announce(hints, intent->tenant);
}

int32_t ps_hints_next_event(struct ps_hints *hints) {
  assert(hints != NULL);
  while (hints->event_queue.first != NONE) {
    uint16_t tenant = (uint16_t)(hints->event_queue.first - 1);
    struct tenant *who = hints_tenant(hints, tenant);
    hints->event_queue.first = who->event_next;
    if (who->event_next == NONE) hints->event_queue.last = NONE;
    who->is_queued = false;
    if (who->is_told) return tenant;
  }
  return -1;
}

void ps_hints_events(struct ps_hints *hints, uint16_t tenant, bool clear, uint8_t *page) {
  assert(hints != NULL && page != NULL);
  struct tenant *who = hints_tenant(hints, tenant);
  struct pax_events header = {.magic = PAX_MAGIC_EVENTS,
                              .major = PAX_MAJOR,
                              .minor = PAX_MINOR,
                              .header_size = sizeof header,
                              .event_count = who->log_count,
                              .lost = who->log_lost};
  memset(page, 0, PAX_PAGE_BYTES);
  memcpy(page, &header, sizeof header);
  for (uint32_t i = 0; i < who->log_count; i++) {
    const struct pax_event *event = &who->log[(who->log_first + i) % EVENTS];
    memcpy(page + sizeof header + i * sizeof *event, event, sizeof *event);
  }
  if (!clear) return;
  who->log_first = 0;
  who->log_count = 0;
  who->log_lost = 0;
  who->is_told = false;
}
