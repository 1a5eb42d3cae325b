/* INTENT records: what there is room for, what is warm already, and what can be ready in time. */
#include "internal.h"

enum { COLD_EXTENTS = 256 }; /* looked at in all when some of them are cold */

/* What is known of an intent's ranges when it arrives. */
struct warmth {
  uint64_t bytes;      /* warm, as far as was looked */
  uint64_t lead_bytes; /* of these, before the first that is not */
};

/* The set or the ranges of the record, with a reference for the intent. */
static uint8_t find_ranges(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const struct pax_intent *record,
                           const uint8_t *ranges, struct ps_hints_namespace *space, uint32_t *set) {
  uint8_t reason = PAX_REASON_NONE;
  if (record->set_id != 0) {
    *set = hints_use_set(hints, now_ns, scope, record->set_id, space, &reason);
    if (*set != NONE) hints_set(hints, *set)->references++;
    return reason;
  }
  if (!hints_find_space(hints, scope, record->nsid, space, ranges, record->range_count)) {
    return PAX_REASON_NAMESPACE;
  }
  struct set like = {.nsid = record->nsid,
                     .tenant = scope->tenant,
                     .volume = (uint16_t)space->volume,
                     .subsystem = scope->subsystem,
                     .flags = SET_OF_INTENT,
                     .block_shift = (uint8_t)space->block_shift};
  *set = hints_define_nameless(hints, &like, record->range_count);
  if (*set == NONE) return PAX_REASON_BUDGET;
  hints_append_all(hints, *set, ranges, record->range_count);
  return PAX_REASON_NONE;
}

static bool is_over_budget(const struct ps_hints *hints, const struct tenant *tenant,
                           uint64_t bytes) {
  return hints->pending >= hints->config.intents ||
         tenant->intents >= hints_budget(hints, tenant)->intents ||
         tenant->intent_bytes > hints_budget(hints, tenant)->intent_bytes ||
         bytes > hints_budget(hints, tenant)->intent_bytes - tenant->intent_bytes;
}

/* Looks at the tier; true when all of it is warm. It is not looked at longer than a record may
 * take: a large intent is walked instead, which finds what is warm in its own time. */
static bool is_warm(struct ps_hints *hints, uint64_t now_ns, const struct intent *intent,
                    struct warmth *warmth) {
  const struct set *set = hints_set(hints, intent->set);
  struct tenant *tenant = hints_tenant(hints, intent->tenant);
  struct cursor cursor = intent->check;
  struct span span;
  bool all = true;
  uint32_t most = ARRIVAL_EXTENTS;
  for (uint32_t i = 0; hints_cursor_span(hints, &cursor, set->block_shift, &span); i++) {
    if (i >= most || !hints_look(hints, 1)) return false;
    if (!hints_take_extents(hints, tenant, now_ns, 1)) return false;
    uint64_t warm;
    uint64_t coming;
    ps_tier_residency(hints->tier, intent->volume, span.offset, span.length, &warm, &coming);
    warmth->bytes += warm;
    all = all && warm == span.length;
    if (all) {
      warmth->lead_bytes += warm;
    } else {
      most = COLD_EXTENTS;
    }
    hints_cursor_advance(hints, &cursor, set->block_shift, span.length);
  }
  return all;
}

/* It is kept until the deadline and a little longer. */
static void keep_warm(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  const struct intent *intent = hints_intent(hints, index);
  uint32_t shift = hints_set(hints, intent->set)->block_shift;
  uint64_t until_ns = hints_add(intent->deadline_ns, hints->config.grace_ns);
  struct cursor cursor = intent->check;
  struct span span;
  while (hints_cursor_span(hints, &cursor, shift, &span)) {
    ps_tier_keep(hints->tier, now_ns, intent->volume, span.offset, span.length, intent->tenant,
                 hints_cookie(intent, index, 0), until_ns);
    hints_cursor_advance(hints, &cursor, shift, span.length);
  }
}

/* All of it is warm, and that is all. */
static void end_warm(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  if (hints_is_trusted(hints, intent->tenant, PS_TIER_OF_INTENT)) keep_warm(hints, now_ns, index);
  intent->warm_bytes = intent->total_bytes;
  intent->admitted_bytes = intent->total_bytes;
  intent->verdict = PAX_VERDICT_ACCEPTED;
  intent->flags = PAX_OUTCOME_FLAG_WAS_WARM;
  hints_end_intent(hints, now_ns, index, PAX_STATE_MET, PAX_REASON_NONE);
}

static void predict(struct ps_hints *hints, uint64_t now_ns, struct intent *intent, uint64_t bytes,
                    struct ps_sched_forecast *forecast) {
  const struct ps_sched *sched = hints->volumes[intent->volume].sched;
  ps_sched_forecast(sched, now_ns, bytes, intent->deadline_ns, intent->priority, forecast);
  uint64_t wait_ns = forecast->ready_ns > now_ns ? forecast->ready_ns - now_ns : 0;
  intent->predicted_us = (uint32_t)hints_min(wait_ns / 1000, PAX_READY_NEVER);
}

/* The verdict, and how much of it is taken. */
static void judge(struct ps_hints *hints, uint64_t now_ns, struct intent *intent,
                  const struct warmth *warmth) {
  uint64_t total = intent->total_bytes;
  uint64_t cold = total - warmth->bytes;
  struct ps_sched_forecast forecast;
  predict(hints, now_ns, intent, cold, &forecast);
  intent->admitted_bytes = total;
  if (forecast.bytes_in_time >= cold) {
    intent->verdict = PAX_VERDICT_ACCEPTED;
    return;
  }
  if ((intent->wanted & PAX_INTENT_FLAG_LATE_OK) != 0) {
    intent->verdict = PAX_VERDICT_LATE;
    return;
  }
  intent->admitted_bytes = 0;
  intent->verdict = PAX_VERDICT_DROPPED;
  if ((intent->wanted & PAX_INTENT_FLAG_PREFIX) == 0) return;
  uint64_t prefix = hints_min(total, warmth->lead_bytes + forecast.bytes_in_time);
  prefix -= prefix % hints->config.piece_bytes;
  if (prefix == 0) return;
  intent->admitted_bytes = prefix;
  intent->verdict = PAX_VERDICT_PARTIAL;
  uint64_t lead = hints_min(warmth->lead_bytes, prefix);
  predict(hints, now_ns, intent, prefix - lead, &forecast);
}

static void tell(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                 const struct pax_intent *record, const struct ps_hints_namespace *space,
                 const uint8_t *ranges) {
  struct ps_fact fact = {.time_ns = now_ns,
                         .offset = record->set_id,
                         .session = record->session,
                         .id = record->intent_id,
                         .value = record->deadline_us,
                         .aux = record->range_count,
                         .volume = (uint16_t)space->volume,
                         .tenant = scope->tenant,
                         .kind = PS_FACT_INTENT,
                         .flags = record->flags,
                         .priority = record->priority,
                         .confidence = record->confidence,
                         .queue = scope->queue};
  hints_facts(hints, &fact, ranges, record->range_count, space->block_shift);
}

/* Binds the intent to its ranges: the reason why it cannot be, or none. */
static uint8_t bind(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                    const struct pax_intent *record, const uint8_t *ranges, uint32_t index,
                    struct ps_hints_namespace *space) {
  struct intent *intent = hints_intent(hints, index);
  const struct tenant *tenant = hints_tenant(hints, scope->tenant);
  if (is_over_budget(hints, tenant, 0)) return PAX_REASON_BUDGET;
  uint32_t set = NONE;
  uint8_t reason = find_ranges(hints, now_ns, scope, record, ranges, space, &set);
  if (reason != PAX_REASON_NONE) return reason;
  intent->total_bytes = hints_set(hints, set)->bytes;
  if (is_over_budget(hints, tenant, intent->total_bytes)) {
    hints_unreference(hints, set);
    return PAX_REASON_BUDGET;
  }
  hints_bind_intent(hints, index, set, space->volume);
  hints_cursor_start(hints_set(hints, set), &intent->walk);
  intent->check = intent->walk;
  return PAX_REASON_NONE;
}

/* The model does not hear of what nobody acts on: it is left to it. */
static uint8_t admit(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     const struct pax_intent *record, const uint8_t *ranges, uint32_t index) {
  struct ps_hints_namespace space;
  uint8_t reason = bind(hints, now_ns, scope, record, ranges, index, &space);
  if (reason != PAX_REASON_NONE) return reason;
  struct intent *intent = hints_intent(hints, index);
  struct warmth warmth = {0};
  bool all = is_warm(hints, now_ns, intent, &warmth);
  if (!all && !hints_may_act(hints, scope->tenant, PS_TIER_OF_INTENT)) return PAX_REASON_BUDGET;
  tell(hints, now_ns, scope, record, &space, ranges);
  if (all) {
    end_warm(hints, now_ns, index);
    return PAX_REASON_NONE;
  }
  judge(hints, now_ns, intent, &warmth);
  if (intent->verdict == PAX_VERDICT_DROPPED) return PAX_REASON_DEADLINE;
  hints_queue_intent(hints, now_ns, index);
  return PAX_REASON_NONE;
}

uint8_t hints_apply_intent(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *bytes) {
  assert(hints != NULL && scope != NULL && bytes != NULL);
  struct pax_intent record;
  memcpy(&record, bytes, sizeof record);
  uint32_t index = hints_new_intent(hints, now_ns, scope->tenant, &record);
  uint8_t reason = admit(hints, now_ns, scope, &record, bytes + sizeof record, index);
  if (reason == PAX_REASON_NONE) return reason;
  hints_intent(hints, index)->verdict = PAX_VERDICT_DROPPED;
  hints_end_intent(hints, now_ns, index, PAX_STATE_DROPPED, reason);
  return reason;
}

/* One that has the id of a pending intent does not replace it, for it is not looked at: it ends as
 * it comes, and is not remembered. */
void hints_limit_intent(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                        const uint8_t *bytes) {
  assert(hints != NULL && scope != NULL && bytes != NULL);
  struct pax_intent record;
  memcpy(&record, bytes, sizeof record);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  uint32_t index = hints_find_intent(hints, scope->tenant, record.intent_id);
  bool is_pending = index != NONE && hints_intent(hints, index)->state == PAX_STATE_PENDING;
  if (is_pending || hints_is_shared(tenant)) {
    struct intent passing = {.id = record.intent_id,
                             .session = record.session,
                             .tenant = scope->tenant,
                             .state = PAX_STATE_DROPPED,
                             .reason = PAX_REASON_RATE,
                             .priority = record.priority,
                             .confidence = record.confidence};
    tenant->intent_counts[record.priority].arrived++;
    tenant->intent_counts[record.priority].dropped++;
    hints_tell_end(hints, now_ns, &passing);
    return;
  }
  index = hints_new_intent(hints, now_ns, scope->tenant, &record);
  hints_intent(hints, index)->verdict = PAX_VERDICT_DROPPED;
  hints_end_intent(hints, now_ns, index, PAX_STATE_DROPPED, PAX_REASON_RATE);
}
