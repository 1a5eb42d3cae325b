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

uint64_t hints_session_hash(const struct ps_hints *hints, uint16_t tenant, uint64_t session) {
  assert(hints != NULL);
  return hints_hash(hints, (uint64_t)tenant + (UINT64_C(1) << 32), session);
}

static void join_session(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  if (intent->session == 0) return;
  intent->in_session = true;
  const struct table *table = &hints->intents_by_session;
  uint64_t hash = hints_session_hash(hints, intent->tenant, intent->session);
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
    uint64_t hash = hints_session_hash(hints, intent->tenant, intent->session);
    assert(table->buckets[hash & table->mask] == index);
    table->buckets[hash & table->mask] = links.next;
  } else {
    hints_intent(hints, links.previous)->session_links.next = links.next;
  }
  if (links.next != NONE) hints_intent(hints, links.next)->session_links.previous = links.previous;
}

static struct fifo *fifo_of(const struct ps_hints *hints, const struct intent *intent) {
  struct tenant *tenant = hints_tenant(hints, intent->tenant);
  if (intent->state == PAX_STATE_PENDING) return &tenant->pending;
  return intent->is_kept ? &tenant->kept : &tenant->ended;
}

/* Forgets one that has ended. */
static void forget(struct ps_hints *hints, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state > PAX_STATE_PENDING && intent->set == NONE);
  uint32_t generation = intent->generation;
  leave_session(hints, index);
  hints_table_remove(&hints->intents_by_id, hints_hash(hints, intent->tenant, intent->id), index);
  fifo_remove(hints, fifo_of(hints, intent), index);
  hints_share_sub(&hints->ended_share, intent->tenant);
  hints_give(&hints->intents, index);
  hints_intent(hints, index)->generation = generation;
}

/* Reactors look at the clock each for themselves: one may be behind another. */
static uint64_t end_ns(const struct intent *intent) {
  return intent->arrived_ns + intent->ended_us * UINT64_C(1000);
}

static uint32_t first_ended(const struct ps_hints *hints, uint16_t number) {
  const struct tenant *tenant = hints_tenant(hints, number);
  uint32_t kept = tenant->kept.first;
  uint32_t ended = tenant->ended.first;
  if (kept == NONE || ended == NONE) return kept == NONE ? ended : kept;
  bool is_kept = end_ns(hints_intent(hints, kept)) < end_ns(hints_intent(hints, ended));
  return is_kept ? kept : ended;
}

static uint32_t take(struct ps_hints *hints, uint16_t tenant) {
  uint32_t index = hints_take(&hints->intents);
  if (index != NONE) return index;
  uint16_t victim = hints_share_victim(&hints->ended_share, tenant);
  forget(hints, first_ended(hints, victim));
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
  intent->arrival = ++hints->arrivals;
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

void hints_end_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint8_t state,
                      uint8_t reason) {
  struct intent *intent = hints_intent(hints, index);
  assert(intent->state == PAX_STATE_PENDING && state > PAX_STATE_PENDING);
  if (intent->set != NONE) unbind(hints, index);
  bool is_vain = state == PAX_STATE_CANCELLED || state == PAX_STATE_DROPPED;
  bool is_done_with = is_vain || intent->arrival <= hints_tenant(hints, intent->tenant)->let_go;
  if (is_done_with && intent->is_kept) let_go(hints, now_ns, index);
  uint64_t us = now_ns > intent->arrived_ns ? (now_ns - intent->arrived_ns) / 1000 : 0;
  fifo_remove(hints, fifo_of(hints, intent), index);
  intent->ended_us = (uint32_t)hints_min(us, PAX_READY_NEVER - 1);
  intent->state = state;
  intent->reason = reason;
  intent->generation++;
  intent->is_kept = !is_done_with;
  if (is_done_with) leave_session(hints, index);
  fifo_append(hints, fifo_of(hints, intent), index);
  hints_share_add(&hints->ended_share, intent->tenant);
  count_end(&hints_tenant(hints, intent->tenant)->intent_counts[intent->priority], intent);
  hints_tell_end(hints, now_ns, intent);
}

/* One that has ended stays as it ended. */
void hints_cancel_intent(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct intent *intent = hints_intent(hints, index);
  if (intent->state == PAX_STATE_PENDING) {
    hints_end_intent(hints, now_ns, index, PAX_STATE_CANCELLED, PAX_REASON_NONE);
  } else if (intent->is_kept) {
    let_go(hints, now_ns, index);
    leave_session(hints, index);
    fifo_remove(hints, fifo_of(hints, intent), index);
    intent->is_kept = false;
    fifo_append(hints, fifo_of(hints, intent), index);
  }
}
