/* What must be true between any two calls. Each failure has a number. */
#include "internal.h"

struct sums {
  uint64_t sets, graves, ranges, intent_ranges, signatures, pending, bytes, ended;
};

enum invariant {
  GOOD = 0,
  BAD_SET_COUNT,
  BAD_RANGE_COUNT,
  BAD_SIGNATURE_COUNT,
  BAD_INTENT_COUNT,
  BAD_INTENT_BYTES,
  BAD_PENDING_COUNT,
  BAD_HEAP,
  BAD_JOB,
  BAD_SET,
  BAD_CHUNKS,
  BAD_CURSOR,
  BAD_TENANT_SUM,
  BAD_COUNTS,
  BAD_EVENTS,
  BAD_SHARE,
  BAD_PAGES,
  BAD_FOLLOW,
  BAD_NODES,
  BAD_LOOKUP
};

static int check_set(const struct ps_hints *hints, uint32_t index, struct sums *sums,
                     uint32_t *chunks) {
  const struct set *set = hints_set(hints, index);
  if ((set->flags & SET_USED) == 0) return GOOD;
  uint32_t ranges = 0;
  uint64_t bytes = 0;
  for (uint32_t at = set->first; at != NONE;) {
    const struct chunk *chunk = hints_item(&hints->chunks, at);
    if (chunk->owner != index) return BAD_CHUNKS;
    if (set->references > 0 && chunk->ordinal != ranges) return BAD_CHUNKS;
    for (uint32_t i = 0; i < CHUNK_RANGES && ranges < set->range_count; i++, ranges++) {
      bytes += (uint64_t)chunk->ranges[i].blocks << set->block_shift;
      bool is_found = chunk->ranges[i].node != NONE;
      bool should_be = (set->flags & SET_ORDERED) != 0;
      if (is_found != should_be) return BAD_NODES;
    }
    (*chunks)++;
    at = chunk->next;
  }
  if (ranges != set->range_count || bytes > set->bytes) return BAD_SET;
  if (set->references > 0 ? bytes != set->bytes : (set->flags & SET_DEAD) == 0) return BAD_SET;
  if ((set->flags & SET_OF_INTENT) != 0) {
    sums->intent_ranges += ranges;
    return set->references == 1 ? GOOD : BAD_SET;
  }
  sums->ranges += ranges;
  if ((set->flags & SET_DEAD) == 0) sums->sets++;
  if (set->references == 0) sums->graves++;
  return GOOD;
}

static int check_sets(const struct ps_hints *hints) {
  struct sums sums = {0};
  uint32_t chunks = 0;
  for (uint32_t i = 1; i <= hints->sets.fresh; i++) {
    int bad = check_set(hints, i, &sums, &chunks);
    if (bad != GOOD) return bad;
  }
  if (sums.sets != hints->live_sets || sums.graves != hints->grave_sets) return BAD_SET_COUNT;
  if ((hints->graves == NONE) != (hints->grave_sets == 0)) return BAD_SET_COUNT;
  if (hints->graves != NONE && hints->bury_ns == UINT64_MAX) return BAD_SET_COUNT;
  if (sums.ranges != hints->set_ranges) return BAD_RANGE_COUNT;
  if (sums.intent_ranges != hints->intent_ranges) return BAD_RANGE_COUNT;
  if (chunks != hints->chunks.in_use) return BAD_CHUNKS;
  uint64_t nodes = 0;
  for (uint32_t i = 0; i < hints->config.tenant_count; i++) {
    const struct tenant *tenant = &hints->tenants[i];
    for (uint32_t level = 0; level < LEVELS; level++) {
      bool has_some = (tenant->ordered_levels >> level & 1) != 0;
      if (has_some != (tenant->ordered[level] > 0)) return BAD_NODES;
      nodes += tenant->ordered[level];
    }
  }
  return nodes == hints->nodes.in_use ? GOOD : BAD_NODES;
}

static int check_pending(const struct ps_hints *hints, uint32_t index) {
  const struct intent *intent = hints_intent(hints, index);
  const struct set *set = hints_set(hints, intent->set);
  if ((set->flags & SET_USED) == 0 || set->volume != intent->volume) return BAD_SET;
  if (intent->heap_index == 0 || hints->heap[intent->heap_index] != index) return BAD_HEAP;
  if (intent->has_job != (intent->phase == PHASE_QUEUED)) return BAD_JOB;
  if (intent->has_job && intent->job.bytes == 0) return BAD_JOB;
  if (intent->verified_bytes > intent->walked_bytes) return BAD_CURSOR;
  if (intent->admitted_bytes > intent->total_bytes) return BAD_CURSOR;
  return hints_find_intent(hints, intent->tenant, intent->id) == index ? GOOD : BAD_LOOKUP;
}

static int check_heap(const struct ps_hints *hints) {
  for (uint32_t i = 2; i <= hints->heap_size; i++) {
    const struct intent *child = hints_intent(hints, hints->heap[i]);
    if (child->wake_ns < hints_intent(hints, hints->heap[i / 2])->wake_ns) return BAD_HEAP;
  }
  return hints->heap_size == hints->pending ? GOOD : BAD_HEAP;
}

static bool check_ended(const struct ps_hints *hints, uint32_t first, bool is_kept,
                        uint32_t *count) {
  for (uint32_t i = first; i != NONE; (*count)++) {
    const struct intent *intent = hints_intent(hints, i);
    bool has_come = intent->state == PAX_STATE_MET || intent->state == PAX_STATE_LATE;
    if (intent->state <= PAX_STATE_PENDING || intent->set != NONE) return false;
    if (intent->heap_index != 0 || intent->has_job) return false;
    if (intent->is_kept != is_kept || (is_kept && !has_come)) return false;
    i = intent->tenant_links.next;
  }
  return true;
}

static int check_tenant_intents(const struct ps_hints *hints, uint16_t number, struct sums *sums) {
  const struct tenant *tenant = hints_tenant(hints, number);
  uint64_t pending = 0;
  uint64_t bytes = 0;
  for (uint32_t i = tenant->pending.first; i != NONE;) {
    const struct intent *intent = hints_intent(hints, i);
    if (intent->state != PAX_STATE_PENDING || intent->tenant != number) return BAD_INTENT_COUNT;
    int bad = check_pending(hints, i);
    if (bad != GOOD) return bad;
    pending++;
    bytes += intent->total_bytes;
    i = intent->tenant_links.next;
  }
  uint32_t ended = 0;
  if (!check_ended(hints, tenant->kept.first, true, &ended)) return BAD_INTENT_COUNT;
  if (!check_ended(hints, tenant->ended.first, false, &ended)) return BAD_INTENT_COUNT;
  if (ended != hints->ended_share.counts[number]) return BAD_SHARE;
  if (pending != tenant->intents) return BAD_PENDING_COUNT;
  if (bytes != tenant->intent_bytes) return BAD_INTENT_BYTES;
  sums->pending += pending;
  sums->ended += ended;
  return GOOD;
}

static int check_counts(const struct tenant *tenant) {
  uint64_t ended = 0;
  uint64_t pending = 0;
  for (uint32_t i = 0; i < 2 * PAX_PRIORITIES; i++) {
    bool is_intent = i < PAX_PRIORITIES;
    const struct pax_counts *counts =
        is_intent ? &tenant->intent_counts[i] : &tenant->read_counts[i - PAX_PRIORITIES];
    uint64_t done = counts->met + counts->late + counts->dropped + counts->cancelled;
    if (counts->arrived != counts->pending + done) return BAD_COUNTS;
    if (counts->met_warm > counts->met) return BAD_COUNTS;
    if (!is_intent && counts->dropped != 0) return BAD_COUNTS;
    if (is_intent) ended += done;
    if (is_intent) pending += counts->pending;
  }
  if (pending != tenant->intents) return BAD_COUNTS;
  if (tenant->event_count != ended || tenant->log_count > EVENTS) return BAD_EVENTS;
  return tenant->events_lost <= tenant->event_count ? GOOD : BAD_EVENTS;
}

static int check_pages(const struct ps_hints *hints, uint16_t number) {
  const struct tenant *tenant = hints_tenant(hints, number);
  uint32_t pages = 0;
  for (uint32_t i = tenant->pages.first; i != NONE; pages++) {
    const struct page *page = hints_page(hints, i);
    if (page->tenant != number || tenant->mailboxes[page->mailbox] != i) return BAD_PAGES;
    i = page->tenant_links.next;
  }
  return pages == hints->page_share.counts[number] ? GOOD : BAD_PAGES;
}

static int check_follows(const struct ps_hints *hints) {
  uint32_t used = 0;
  for (uint32_t i = 1; i <= hints->follows.fresh; i++) {
    const struct follow *follow = hints_item(&hints->follows, i);
    if (!follow->is_used) continue;
    used++;
    if (follow->job.bytes == 0 || hints->volumes[follow->volume].sched == NULL) return BAD_FOLLOW;
    if (follow->set == NONE) continue;
    const struct set *set = hints_set(hints, follow->set);
    if (set->follow != i || (set->flags & SET_DEAD) != 0) return BAD_FOLLOW;
  }
  return used == hints->follows.in_use ? GOOD : BAD_FOLLOW;
}

static int check_tenants(const struct ps_hints *hints) {
  struct sums sums = {0};
  uint32_t most = 0;
  for (uint32_t i = 0; i < hints->config.tenant_count; i++) {
    uint16_t number = (uint16_t)i;
    const struct tenant *tenant = hints_tenant(hints, number);
    int bad = check_tenant_intents(hints, number, &sums);
    if (bad == GOOD) bad = check_counts(tenant);
    if (bad == GOOD) bad = check_pages(hints, number);
    if (bad != GOOD) return bad;
    if (hints->page_share.counts[i] > most) most = hints->page_share.counts[i];
    sums.sets += tenant->sets;
    sums.ranges += tenant->set_ranges;
    sums.signatures += tenant->signatures;
  }
  /* What a tenant has cancelled altogether is counted for nobody until the sweep frees it. */
  if (sums.sets > hints->live_sets || sums.ranges > hints->set_ranges) return BAD_TENANT_SUM;
  if (sums.signatures > hints->live_signatures) return BAD_TENANT_SUM;
  if (sums.pending != hints->pending) return BAD_PENDING_COUNT;
  if (sums.pending + sums.ended != hints->intents.in_use) return BAD_INTENT_COUNT;
  return most == hints->page_share.most ? GOOD : BAD_SHARE;
}

int ps_hints_check_all(const struct ps_hints *hints) {
  assert(hints != NULL);
  int bad = check_sets(hints);
  if (bad == GOOD) bad = check_heap(hints);
  if (bad == GOOD) bad = check_tenants(hints);
  if (bad == GOOD) bad = check_follows(hints);
  if (bad == GOOD && hints->live_signatures != hints->signatures.in_use) bad = BAD_SIGNATURE_COUNT;
  return bad;
}
