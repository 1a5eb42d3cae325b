/* INTENT records: what there is room for, what is warm already, and what can be ready in time. */
#include "internal.h"

/* What the tier has of an intent: all of it, not all of it, or all that was looked at so far. */
enum arrival { IS_WARM, IS_COLD, GOES_ON };

/* What is known of an intent's ranges when it is judged. */
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

/* Keeps an extent that is warm until the deadline, and a little longer. */
static void keep(struct ps_hints *hints, uint64_t now_ns, uint32_t index, struct span span) {
  struct intent *intent = hints_intent(hints, index);
  if (!hints_is_trusted(hints, intent->tenant, PS_TIER_OF_INTENT)) return;
  uint64_t until_ns = hints_add(intent->deadline_ns, hints->config.grace_ns);
  ps_tier_keep(hints->tier, now_ns, intent->volume, span.offset, span.length, intent->tenant,
               hints_cookie(intent, index, 0), until_ns);
  intent->is_kept = true;
}

/* Looks at a part of it, from where `walk` is. What is warm up to the first that is not is counted
 * by the intent, for all parts, and kept; what comes behind that is only counted. */
static enum arrival look(struct ps_hints *hints, uint64_t now_ns, uint32_t index,
                         struct warmth *warmth) {
  struct intent *intent = hints_intent(hints, index);
  uint32_t shift = hints_set(hints, intent->set)->block_shift;
  struct tenant *tenant = hints_tenant(hints, intent->tenant);
  struct span span;
  bool all = true;
  uint64_t behind = 0;
  for (uint32_t i = 0; hints_cursor_span(hints, &intent->walk, shift, &span); i++) {
    if (i == hints->config.part_items && all) return GOES_ON;
    if (i == hints->config.part_items || !hints_take_extents(hints, tenant, now_ns, 1)) break;
    uint64_t warm;
    uint64_t coming;
    ps_tier_residency(hints->tier, intent->volume, span.offset, span.length, &warm, &coming);
    hints->looked++;
    all = all && warm == span.length;
    if (all) {
      intent->warm_bytes += warm;
      keep(hints, now_ns, index, span);
    } else {
      behind += warm;
    }
    hints_cursor_advance(hints, &intent->walk, shift, span.length);
  }
  if (all && intent->walk.left == 0) return IS_WARM;
  *warmth = (struct warmth){.bytes = intent->warm_bytes + behind, .lead_bytes = intent->warm_bytes};
  return IS_COLD;
}

/* What is found while a look takes its first moment was so when the intent came. */
static uint64_t found_ns(const struct intent *intent, uint64_t now_ns) {
  bool is_prompt = now_ns <= hints_add(intent->arrived_ns, ARRIVAL_NS);
  return is_prompt ? intent->arrived_ns : now_ns;
}

/* All of it is warm, and that is all. */
static void end_warm(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  uint64_t met_ns = found_ns(intent, now_ns);
  bool is_in_time = met_ns <= intent->deadline_ns;
  intent->warm_bytes = intent->total_bytes;
  intent->admitted_bytes = intent->total_bytes;
  intent->verdict = PAX_VERDICT_ACCEPTED;
  intent->flags = met_ns == intent->arrived_ns ? PAX_OUTCOME_FLAG_WAS_WARM : 0;
  hints_end_intent(hints, met_ns, index, is_in_time ? PAX_STATE_MET : PAX_STATE_LATE,
                   PAX_REASON_NONE);
}

static void predict(struct ps_hints *hints, uint64_t now_ns, struct intent *intent, uint64_t bytes,
                    struct ps_sched_forecast *forecast) {
  const struct ps_sched *sched = hints->volumes[intent->volume].sched;
  ps_sched_forecast(sched, now_ns, bytes, intent->deadline_ns, intent->priority, forecast);
  uint64_t wait_ns = forecast->ready_ns > now_ns ? forecast->ready_ns - now_ns : 0;
  intent->predicted_us = (uint32_t)hints_min(wait_ns / 1000, PAX_READY_NEVER);
}

/* Takes what comes first of it, `cold_bytes` of what is not there; false: that is nothing. */
static bool take_prefix(struct ps_hints *hints, uint64_t now_ns, struct intent *intent,
                        uint64_t lead_bytes, uint64_t cold_bytes) {
  uint64_t prefix = hints_min(intent->total_bytes, hints_add(lead_bytes, cold_bytes));
  prefix -= prefix % hints->config.piece_bytes;
  if (prefix == 0) return false;
  intent->admitted_bytes = prefix;
  intent->verdict = PAX_VERDICT_PARTIAL;
  struct ps_sched_forecast forecast;
  predict(hints, now_ns, intent, prefix - hints_min(lead_bytes, prefix), &forecast);
  return true;
}

/* The verdict, and how much of it is taken: the reason why nothing is, or none. What was brought in
 * stays until all of it is there, so it has to be held at one time. */
static uint8_t judge(struct ps_hints *hints, uint64_t now_ns, struct intent *intent,
                     const struct warmth *warmth) {
  bool is_late_ok = (intent->wanted & PAX_INTENT_FLAG_LATE_OK) != 0;
  uint64_t cold = intent->total_bytes - warmth->bytes;
  uint64_t frames = ps_tier_hint_room(hints->tier, intent->tenant);
  uint64_t room = frames << hints->slot_shift;
  struct ps_sched_forecast forecast;
  predict(hints, now_ns, intent, cold, &forecast);
  bool is_in_time = forecast.bytes_in_time >= cold;
  if (room >= cold && (is_in_time || is_late_ok)) {
    intent->admitted_bytes = intent->total_bytes;
    intent->verdict = is_in_time ? PAX_VERDICT_ACCEPTED : PAX_VERDICT_LATE;
    return PAX_REASON_NONE;
  }
  intent->admitted_bytes = 0;
  intent->verdict = PAX_VERDICT_DROPPED;
  bool is_prefix_ok = (intent->wanted & PAX_INTENT_FLAG_PREFIX) != 0 && !is_late_ok;
  uint64_t possible = hints_min(room, forecast.bytes_in_time);
  if (is_prefix_ok && take_prefix(hints, now_ns, intent, warmth->lead_bytes, possible))
    return PAX_REASON_NONE;
  return room >= cold ? PAX_REASON_DEADLINE : PAX_REASON_ROOM;
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

/* What comes of a look: the reason to drop it, or none. */
static uint8_t act_on(struct ps_hints *hints, uint64_t now_ns, uint32_t index, enum arrival arrival,
                      const struct warmth *warmth) {
  struct intent *intent = hints_intent(hints, index);
  if (arrival == IS_WARM) {
    end_warm(hints, now_ns, index);
    return PAX_REASON_NONE;
  }
  if (arrival == GOES_ON) {
    intent->phase = PHASE_ARRIVING;
    hints_wake_at(hints, index, now_ns + ARRIVAL_NS);
    return PAX_REASON_NONE;
  }
  intent->warm_bytes = 0; /* counted again as it is walked */
  hints_cursor_start(hints_set(hints, intent->set), &intent->walk);
  uint8_t reason = judge(hints, now_ns, intent, warmth);
  if (reason != PAX_REASON_NONE) return reason;
  hints_queue_intent(hints, now_ns, index);
  return PAX_REASON_NONE;
}

/* The model does not hear of what nobody acts on: it is left to it. */
static uint8_t admit(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     const struct pax_intent *record, const uint8_t *ranges, uint32_t index) {
  struct ps_hints_namespace space;
  struct warmth warmth;
  uint8_t reason = bind(hints, now_ns, scope, record, ranges, index, &space);
  if (reason != PAX_REASON_NONE) return reason;
  enum arrival arrival = look(hints, now_ns, index, &warmth);
  if (arrival == IS_COLD && !hints_may_act(hints, scope->tenant, PS_TIER_OF_INTENT))
    return PAX_REASON_BUDGET;
  bool may_be_acted_on =
      arrival != GOES_ON || hints_is_trusted(hints, scope->tenant, PS_TIER_OF_INTENT);
  if (may_be_acted_on) tell(hints, now_ns, scope, record, &space, ranges);
  return act_on(hints, now_ns, index, arrival, &warmth);
}

static uint8_t drop(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint8_t reason) {
  hints_intent(hints, index)->verdict = PAX_VERDICT_DROPPED;
  hints_end_intent(hints, now_ns, index, PAX_STATE_DROPPED, reason);
  return reason;
}

static bool is_arriving(const struct intent *intent) {
  return intent->state == PAX_STATE_PENDING && intent->phase == PHASE_ARRIVING;
}

uint8_t hints_look_on(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  const struct intent *intent = hints_intent(hints, index);
  assert(is_arriving(intent));
  uint64_t volume_bytes;
  if (!hints_find_volume_bytes(hints, intent, &volume_bytes)) {
    hints_end_intent(hints, now_ns, index, PAX_STATE_CANCELLED, PAX_REASON_NONE);
    return PAX_REASON_NONE;
  }
  bool is_late_ok = (intent->wanted & PAX_INTENT_FLAG_LATE_OK) != 0;
  if (found_ns(intent, now_ns) > intent->deadline_ns && !is_late_ok)
    return drop(hints, now_ns, index, PAX_REASON_DEADLINE);
  struct warmth warmth;
  enum arrival arrival = look(hints, now_ns, index, &warmth);
  if (arrival == IS_COLD && !hints_may_act(hints, intent->tenant, PS_TIER_OF_INTENT))
    return drop(hints, now_ns, index, PAX_REASON_BUDGET);
  uint8_t reason = act_on(hints, now_ns, index, arrival, &warmth);
  return reason == PAX_REASON_NONE ? reason : drop(hints, now_ns, index, reason);
}

/* The record's intent may have ended in the meantime, and its place may be another's. */
static uint8_t go_on(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint64_t id, struct ps_hints_progress *progress) {
  uint32_t index = (uint32_t)progress->mark;
  uint32_t generation = (uint32_t)(progress->mark >> 32);
  const struct intent *intent = hints_intent(hints, index);
  progress->goes_on = false;
  if (intent->generation == generation && is_arriving(intent)) {
    uint8_t reason = hints_look_on(hints, now_ns, index);
    progress->goes_on = intent->generation == generation && is_arriving(intent);
    return reason;
  }
  bool is_ended = intent->generation == generation + 1 && intent->state == PAX_STATE_DROPPED;
  bool is_it = is_ended && intent->id == id && intent->tenant == scope->tenant;
  return is_it && intent->verdict == PAX_VERDICT_DROPPED ? intent->reason : PAX_REASON_NONE;
}

uint8_t hints_apply_intent(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *bytes,
                           struct ps_hints_progress *progress) {
  assert(hints != NULL && scope != NULL && bytes != NULL && progress != NULL);
  struct pax_intent record;
  memcpy(&record, bytes, sizeof record);
  if (progress->goes_on) return go_on(hints, now_ns, scope, record.intent_id, progress);
  uint32_t index = hints_new_intent(hints, now_ns, scope->tenant, &record);
  uint8_t reason = admit(hints, now_ns, scope, &record, bytes + sizeof record, index);
  if (reason != PAX_REASON_NONE) return drop(hints, now_ns, index, reason);
  const struct intent *intent = hints_intent(hints, index);
  progress->goes_on = is_arriving(intent);
  progress->mark = (uint64_t)intent->generation << 32 | index;
  return PAX_REASON_NONE;
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
  (void)drop(hints, now_ns, index, PAX_REASON_RATE);
}
