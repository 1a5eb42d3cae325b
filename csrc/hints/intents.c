/* Intents by tenant and id: how they begin, how each of them ends exactly once, and which of those
 * that have ended are remembered. */
#include "internal.h"

static void fifo_append(struct ps_hints *hints, struct fifo *fifo, uint32_t index) {
  struct links *links = &hints_intent(hints, index)->tenant_links;
  *links = (struct links){.previous = fifo->last, .next = NONE};
  if (fifo->last == NONE) {
    fifo->first = index;
  } else {
    hints_intent(hints, fifo->last)->tenant_links.next = index;
  }
  fifo->last = index;
}

static void fifo_remove(struct ps_hints *hints, struct fifo *fifo, uint32_t index) {
  const struct links links = hints_intent(hints, index)->tenant_links;
  if (links.previous == NONE) {
    assert(fifo->first == index);
    fifo->first = links.next;
  } else {
    hints_intent(hints, links.previous)->tenant_links.next = links.next;
  }
  if (links.next == NONE) {
    assert(fifo->last == index);
    fifo->last = links.previous;
  } else {
    hints_intent(hints, links.next)->tenant_links.previous = links.previous;
  }
}

uint32_t hints_find_intent(const struct ps_hints *hints, uint16_t tenant, uint64_t id) {
  assert(hints != NULL);
  uint32_t index = hints_table_first(&hints->intents_by_id, hints_hash(hints, tenant, id));
  while (index != NONE) {
    const struct intent *intent = hints_intent(hints, index);
    if (intent->id == id && intent->tenant == tenant) return index;
    index = intent->hash_next;
  }
  return NONE;
}

static uint64_t session_hash(const struct ps_hints *hints, uint16_t tenant, uint64_t session) {
  return hints_hash(hints, (uint64_t)tenant + (UINT64_C(1) << 32), session);
}

static void join_session(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  if (intent->session == 0) return;
  intent->in_session = true;
  const struct table *table = &hints->intents_by_session;
  uint64_t hash = session_hash(hints, intent->tenant, intent->session);
  uint32_t *head = &table->buckets[hash & table->mask];
  intent->session_links = (struct links){.previous = NONE, .next = *head};
  if (*head != NONE) hints_intent(hints, *head)->session_links.previous = index;
  *head = index;
}

static void leave_session(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  if (!intent->in_session) return;
  intent->in_session = false;
  const struct table *table = &hints->intents_by_session;
  const struct links links = intent->session_links;
  if (links.previous == NONE) {
    uint64_t hash = session_hash(hints, intent->tenant, intent->session);
    assert(table->buckets[hash & table->mask] == index);
    table->buckets[hash & table->mask] = links.next;
  } else {
    hints_intent(hints, links.previous)->session_links.next = links.next;
  }
  if (links.next != NONE) hints_intent(hints, links.next)->session_links.previous = links.previous;
}

/* Forgets one that has ended. */
static void forget(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state > PAX_STATE_PENDING && intent->set == NONE);
  uint32_t generation = intent->generation;
  leave_session(hints, index);
  hints_table_remove(&hints->intents_by_id, hints_hash(hints, intent->tenant, intent->id), index);
  fifo_remove(hints, &hints_tenant(hints, intent->tenant)->ended, index);
  hints_share_sub(&hints->ended_share, intent->tenant);
  hints_give(&hints->intents, index);
  hints_intent(hints, index)->generation = generation;
}

static uint32_t take(struct ps_hints *hints, uint16_t tenant) {
  uint32_t index = hints_take(&hints->intents);
  if (index != NONE) return index;
  uint16_t victim = hints_share_victim(&hints->ended_share, tenant);
  forget(hints, hints_tenant(hints, victim)->ended.first);
  index = hints_take(&hints->intents);
  assert(index != NONE);
  return index;
}

uint32_t hints_new_intent(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant,
                          const struct pax_intent *record) {
  assert(record != NULL && record->priority < PAX_PRIORITIES);
  uint32_t old = hints_find_intent(hints, tenant, record->intent_id);
  if (old != NONE) {
    if (hints_intent(hints, old)->state == PAX_STATE_PENDING) {
      hints_end_intent(hints, now_ns, old, PAX_STATE_CANCELLED, PAX_REASON_NONE);
    }
    forget(hints, old);
  }
  uint32_t index = take(hints, tenant);
  struct intent *intent = hints_intent(hints, index);
  intent->id = record->intent_id;
  intent->session = record->session;
  intent->arrived_ns = now_ns;
  intent->deadline_ns = hints_add(now_ns, record->deadline_us * UINT64_C(1000));
  intent->tenant = tenant;
  intent->state = PAX_STATE_PENDING;
  intent->priority = record->priority;
  intent->confidence = record->confidence;
  intent->wanted = record->flags;
  hints_table_add(&hints->intents_by_id, hints_hash(hints, tenant, intent->id), index);
  join_session(hints, index);
  struct tenant *who = hints_tenant(hints, tenant);
  fifo_append(hints, &who->pending, index);
  who->intent_counts[intent->priority].arrived++;
  who->intent_counts[intent->priority].pending++;
  return index;
}

void hints_bind_intent(struct ps_hints *hints, uint32_t index, uint32_t set, uint32_t volume) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state == PAX_STATE_PENDING && intent->set == NONE && set != NONE);
  struct hint_volume *where = &hints->volumes[volume];
  struct tenant *tenant = hints_tenant(hints, intent->tenant);
  intent->set = set;
  intent->volume = (uint16_t)volume;
  intent->volume_links.next = where->intents;
  if (where->intents != NONE) {
    hints_intent(hints, where->intents)->volume_links.previous = index;
  }
  where->intents = index;
  tenant->intents++;
  tenant->intent_bytes += intent->total_bytes;
  hints->pending++;
}

static void unbind(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  struct tenant *tenant = hints_tenant(hints, intent->tenant);
  struct hint_volume *where = &hints->volumes[intent->volume];
  const struct links links = intent->volume_links;
  if (intent->has_job) ps_sched_remove_job(where->sched, &intent->job);
  intent->has_job = false;
  hints_wake_never(hints, index);
  if (links.previous == NONE) {
    where->intents = links.next;
  } else {
    hints_intent(hints, links.previous)->volume_links.next = links.next;
  }
  if (links.next != NONE) hints_intent(hints, links.next)->volume_links.previous = links.previous;
  intent->volume_links = (struct links){NONE, NONE};
  hints_unreference(hints, intent->set);
  intent->set = NONE;
  assert(tenant->intents > 0 && tenant->intent_bytes >= intent->total_bytes);
  tenant->intents--;
  tenant->intent_bytes -= intent->total_bytes;
  hints->pending--;
}

static void count_end(struct pax_counts *counts, const struct intent *intent) {
  counts->pending--;
  switch (intent->state) {
    case PAX_STATE_MET:
      counts->met++;
      if ((intent->flags & PAX_OUTCOME_FLAG_WAS_WARM) != 0) counts->met_warm++;
      return;
    case PAX_STATE_LATE:
      counts->late++;
      return;
    case PAX_STATE_DROPPED:
      counts->dropped++;
      return;
    default:
      assert(intent->state == PAX_STATE_CANCELLED);
      counts->cancelled++;
  }
}

void hints_tell_end(struct ps_hints *hints, uint64_t now_ns, const struct intent *intent) {
  assert(hints != NULL && intent != NULL);
  hints_note_event(hints, intent);
  struct ps_fact fact = {.time_ns = now_ns,
                         .session = intent->session,
                         .id = intent->id,
                         .value = intent->ended_us,
                         .aux = intent->state,
                         .volume = intent->volume,
                         .tenant = intent->tenant,
                         .kind = PS_FACT_OUTCOME,
                         .flags = intent->flags,
                         .priority = intent->priority,
                         .confidence = intent->confidence};
  hints_fact(hints, &fact);
}

/* What was brought in for it is kept for it no longer. An intent that has ended has the generation
 * after the one that the tier knows it by. */
static void let_go(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  const struct intent *intent = hints_intent(hints, index);
  bool is_pending = intent->state == PAX_STATE_PENDING;
  ps_tier_end_keeps(hints->tier, now_ns, hints_cookie(intent, index, is_pending ? 0 : 1));
  hints_tenant(hints, intent->tenant)->no_room_until_ns = 0; /* there may be some now */
}

/* Of those that have ended, only these may have something left in the tier. */
static bool has_come(const struct intent *intent) {
  return intent->state == PAX_STATE_MET || intent->state == PAX_STATE_LATE;
}

void hints_end_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint8_t state,
                      uint8_t reason) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state == PAX_STATE_PENDING && state > PAX_STATE_PENDING);
  if (intent->set != NONE) unbind(hints, index);
  bool is_vain = state == PAX_STATE_CANCELLED || state == PAX_STATE_DROPPED;
  if (is_vain && (intent->walked_bytes > 0 || intent->passes > 0)) let_go(hints, now_ns, index);
  struct tenant *tenant = hints_tenant(hints, intent->tenant);
  /* Reactors look at the clock each for themselves: one may be behind another. */
  uint64_t us = now_ns > intent->arrived_ns ? (now_ns - intent->arrived_ns) / 1000 : 0;
  intent->ended_us = (uint32_t)hints_min(us, PAX_READY_NEVER - 1);
  intent->state = state;
  intent->reason = reason;
  intent->generation++;
  if (is_vain) leave_session(hints, index);
  fifo_remove(hints, &tenant->pending, index);
  fifo_append(hints, &tenant->ended, index);
  hints_share_add(&hints->ended_share, intent->tenant);
  count_end(&tenant->intent_counts[intent->priority], intent);
  hints_tell_end(hints, now_ns, intent);
}

/* One that has ended stays as it ended. */
static void cancel(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  const struct intent *intent = hints_intent(hints, index);
  if (intent->state == PAX_STATE_PENDING) {
    hints_end_intent(hints, now_ns, index, PAX_STATE_CANCELLED, PAX_REASON_NONE);
  } else if (has_come(intent)) {
    let_go(hints, now_ns, index);
    leave_session(hints, index);
  }
}

static void cancel_session(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant,
                           uint64_t session) {
  if (session == 0) return;
  uint64_t hash = session_hash(hints, tenant, session);
  uint32_t index = hints_table_first(&hints->intents_by_session, hash);
  while (index != NONE) {
    const struct intent *intent = hints_intent(hints, index);
    uint32_t next = intent->session_links.next;
    if (intent->session == session && intent->tenant == tenant) cancel(hints, now_ns, index);
    index = next;
  }
}

static void cancel_all(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant) {
  const struct fifo *pending = &hints_tenant(hints, tenant)->pending;
  while (pending->first != NONE) cancel(hints, now_ns, pending->first);
  /* From the last that ended back to those that an earlier call has been through. */
  uint32_t index = hints_tenant(hints, tenant)->ended.last;
  while (index != NONE && !hints_intent(hints, index)->is_let_go) {
    struct intent *intent = hints_intent(hints, index);
    cancel(hints, now_ns, index);
    intent->is_let_go = true;
    index = intent->tenant_links.previous;
  }
}

/* Sets and signatures are forgotten by the epoch, and freed by the sweep. */
static void cancel_everything(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant) {
  cancel_all(hints, now_ns, tenant);
  hints_end_tenant_follows(hints, tenant);
  struct tenant *who = hints_tenant(hints, tenant);
  assert(who->intents == 0 && who->intent_ranges == 0);
  who->epoch++;
  who->sets = 0;
  who->set_ranges = 0;
  who->signatures = 0;
  who->implicit_first = who->implicit_next;
  hints_sweep_now(hints, now_ns);
}

uint8_t hints_apply_cancel(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *bytes) {
  assert(hints != NULL && scope != NULL && bytes != NULL);
  struct pax_cancel record;
  memcpy(&record, bytes, sizeof record);
  if (record.what == PAX_CANCEL_WHAT_INTENT) {
    uint32_t index = hints_find_intent(hints, scope->tenant, record.id);
    if (index != NONE) cancel(hints, now_ns, index);
  } else if (record.what == PAX_CANCEL_WHAT_SESSION) {
    cancel_session(hints, now_ns, scope->tenant, record.id);
  } else if (record.what == PAX_CANCEL_WHAT_ALL) {
    cancel_all(hints, now_ns, scope->tenant);
  } else {
    cancel_everything(hints, now_ns, scope->tenant);
  }
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
    cancel(hints, now_ns, where->intents);
  return where->intents == NONE;
}
