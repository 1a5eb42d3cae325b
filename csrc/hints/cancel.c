/* CANCEL records, a part at a time, so that what else there is to do does not wait for the end of
 * all the intents that a tenant may have. What came after the record was begun is not meant. */
#include "internal.h"

struct part {
  uint64_t now_ns;
  uint64_t arrivals; /* of intents, when it began */
  uint32_t left;     /* intents that this part may withdraw */
};

static bool is_meant(const struct intent *intent, const struct part *part) {
  return intent->arrival <= part->arrivals;
}

/* False: some are left, and so it is below. */
static bool cancel_session(struct ps_hints *hints, struct part *part, uint16_t tenant,
                           uint64_t session) {
  if (session == 0) return true;
  uint64_t hash = hints_session_hash(hints, tenant, session);
  uint32_t index = hints_table_first(&hints->intents_by_session, hash);
  while (index != NONE) {
    const struct intent *intent = hints_intent(hints, index);
    uint32_t next = intent->session_links.next;
    if (intent->session == session && intent->tenant == tenant && is_meant(intent, part)) {
      if (part->left == 0) return false;
      part->left--;
      hints_cancel_intent(hints, part->now_ns, index);
    }
    index = next;
  }
  return true;
}

/* From a list whose first came first, or nearly so: an intent may end before one that came sooner.
 */
static bool cancel_first(struct ps_hints *hints, struct part *part, const struct fifo *fifo) {
  while (fifo->first != NONE && is_meant(hints_intent(hints, fifo->first), part)) {
    if (part->left == 0) return false;
    part->left--;
    hints_cancel_intent(hints, part->now_ns, fifo->first);
  }
  return true;
}

/* Those that are met before it is their turn are not kept any more: see hints_end_intent. */
static bool cancel_all(struct ps_hints *hints, struct part *part, uint16_t tenant) {
  struct tenant *who = hints_tenant(hints, tenant);
  if (part->arrivals > who->let_go) who->let_go = part->arrivals;
  return cancel_first(hints, part, &who->pending) && cancel_first(hints, part, &who->kept);
}

/* Sets and signatures are forgotten by the epoch, and freed by the sweep. */
static bool cancel_everything(struct ps_hints *hints, struct part *part, uint16_t tenant) {
  if (!cancel_all(hints, part, tenant)) return false;
  hints_end_tenant_follows(hints, tenant);
  struct tenant *who = hints_tenant(hints, tenant);
  who->epoch++;
  who->sets = 0;
  who->set_ranges = 0;
  who->signatures = 0;
  who->implicit_first = who->implicit_next;
  hints_sweep_now(hints, part->now_ns);
  return true;
}

static bool cancel_what(struct ps_hints *hints, struct part *part, uint16_t tenant,
                        const struct pax_cancel *record) {
  uint32_t index = NONE;
  switch (record->what) {
    case PAX_CANCEL_WHAT_INTENT:
      index = hints_find_intent(hints, tenant, record->id);
      if (index != NONE) hints_cancel_intent(hints, part->now_ns, index);
      return true;
    case PAX_CANCEL_WHAT_SESSION:
      return cancel_session(hints, part, tenant, record->id);
    case PAX_CANCEL_WHAT_ALL:
      return cancel_all(hints, part, tenant);
    default:
      return cancel_everything(hints, part, tenant);
  }
}

uint8_t hints_apply_cancel(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *bytes,
                           struct ps_hints_progress *progress) {
  assert(hints != NULL && scope != NULL && bytes != NULL && progress != NULL);
  struct pax_cancel record;
  memcpy(&record, bytes, sizeof record);
  if (!progress->goes_on) progress->mark = hints->arrivals;
  struct part part = {
      .now_ns = now_ns, .arrivals = progress->mark, .left = hints->config.part_items};
  progress->goes_on = !cancel_what(hints, &part, scope->tenant, &record);
  if (progress->goes_on) return PAX_REASON_NONE;
  struct ps_fact fact = {.time_ns = now_ns,
                         .id = record.id,
                         .aux = record.what,
                         .tenant = scope->tenant,
                         .kind = PS_FACT_CANCEL,
                         .queue = scope->queue};
  hints_fact(hints, &fact);
  return PAX_REASON_NONE;
}

bool hints_cancel_volume(struct ps_hints *hints, uint64_t now_ns, uint32_t volume, uint32_t most) {
  const struct hint_volume *where = &hints->volumes[volume];
  for (uint32_t i = 0; i < most && where->intents != NONE; i++)
    hints_cancel_intent(hints, now_ns, where->intents);
  return where->intents == NONE;
}
