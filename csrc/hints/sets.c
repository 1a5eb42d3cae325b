/* Sets by tenant and id: SET records, and what becomes of a set in the end. */
#include "internal.h"

bool hints_is_stale(const struct ps_hints *hints, const struct set *set, uint64_t now_ns) {
  assert(set != NULL && (set->flags & SET_USED) != 0);
  return (set->flags & SET_DEAD) != 0 || set->expires_ns <= now_ns ||
         set->epoch != hints_tenant(hints, set->tenant)->epoch ||
         set->volume_epoch != hints->volumes[set->volume].epoch;
}

/* The tenant's counts do not know of what it had before it cancelled everything. */
static bool is_counted(const struct ps_hints *hints, const struct set *set) {
  return set->epoch == hints_tenant(hints, set->tenant)->epoch;
}

static void give_back_ranges(struct ps_hints *hints, const struct set *set) {
  struct tenant *tenant = hints_tenant(hints, set->tenant);
  if (!is_counted(hints, set)) return;
  assert(tenant->set_ranges >= set->range_count);
  tenant->set_ranges -= set->range_count;
}

/* A set without a name is as small as the record that it came with. */
static void free_nameless(struct ps_hints *hints, uint32_t index) {
  struct set *set = hints_set(hints, index);
  struct tenant *tenant = hints_tenant(hints, set->tenant);
  assert(tenant->intent_ranges >= set->range_count);
  tenant->intent_ranges -= set->range_count;
  hints->intent_ranges -= set->range_count;
  hints_free_ranges(hints, set);
  hints_give(&hints->sets, index);
}

/* The first of its chunks, with what finds its ranges; returns how many these were. */
static uint32_t bury_chunk(struct ps_hints *hints, struct set *set) {
  uint32_t index = set->first;
  const struct chunk *chunk = hints_item(&hints->chunks, index);
  uint32_t count = set->range_count < CHUNK_RANGES ? set->range_count : CHUNK_RANGES;
  assert(count > 0 && hints->set_ranges >= count);
  for (uint32_t i = 0; i < count; i++) {
    hints_region_remove(hints, set, index * CHUNK_RANGES + i);
  }
  set->first = chunk->next;
  set->range_count -= count;
  hints->set_ranges -= count;
  hints_give(&hints->chunks, index);
  return count;
}

void hints_bury(struct ps_hints *hints, uint32_t ranges) {
  assert(hints != NULL);
  for (uint32_t freed = 0; hints->graves != NONE && freed < ranges;) {
    uint32_t index = hints->graves;
    struct set *set = hints_set(hints, index);
    while (set->first != NONE && freed < ranges) freed += bury_chunk(hints, set);
    if (set->first != NONE) return;
    hints->graves = set->hash_next;
    hints->grave_sets--;
    hints_give(&hints->sets, index);
  }
}

/* The last that died is buried first: who replaces a set gets its room. */
static void dig(struct ps_hints *hints, uint32_t index) {
  struct set *set = hints_set(hints, index);
  assert((set->flags & SET_DEAD) != 0 && set->references == 0);
  set->hash_next = hints->graves;
  hints->graves = index;
  hints->grave_sets++;
  hints_bury(hints, BURY_RANGES);
  if (hints->graves != NONE && hints->bury_ns == UINT64_MAX) hints->bury_ns = 0;
}

void hints_unreference(struct ps_hints *hints, uint32_t index) {
  struct set *set = hints_set(hints, index);
  assert(set->references > 0);
  if (--set->references > 0) return;
  if ((set->flags & SET_OF_INTENT) != 0) {
    free_nameless(hints, index);
    return;
  }
  give_back_ranges(hints, set);
  dig(hints, index);
}

void hints_drop_set(struct ps_hints *hints, uint32_t index) {
  struct set *set = hints_set(hints, index);
  assert((set->flags & (SET_USED | SET_DEAD | SET_OF_INTENT)) == SET_USED);
  if (set->follow != NONE) hints_end_follow(hints, set->follow);
  hints_table_remove(&hints->sets_by_id, hints_hash(hints, set->tenant, set->id), index);
  set->flags |= SET_DEAD;
  hints->live_sets--;
  if (is_counted(hints, set)) hints_tenant(hints, set->tenant)->sets--;
  hints_unreference(hints, index);
}

uint32_t hints_find_set(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant, uint64_t id) {
  assert(hints != NULL);
  uint32_t index = hints_table_first(&hints->sets_by_id, hints_hash(hints, tenant, id));
  while (index != NONE) {
    const struct set *set = hints_set(hints, index);
    if (set->id == id && set->tenant == tenant) break;
    index = set->hash_next;
  }
  if (index == NONE || !hints_is_stale(hints, hints_set(hints, index), now_ns)) return index;
  hints_drop_set(hints, index);
  return NONE;
}

/* A set is of the namespace that its connection meant; it is of no use through another subsystem,
 * nor when the namespace is another by now. */
static bool is_of_scope(const struct ps_hints *hints, const struct ps_hints_scope *scope,
                        const struct set *set, struct ps_hints_namespace *space) {
  return set->subsystem == scope->subsystem &&
         hints->resolve(hints->context, scope->subsystem, set->nsid, space) &&
         space->volume == set->volume;
}

uint32_t hints_use_set(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                       uint64_t id, struct ps_hints_namespace *space, uint8_t *reason) {
  assert(scope != NULL && space != NULL && reason != NULL);
  uint32_t index = hints_find_set(hints, now_ns, scope->tenant, id);
  *reason = index == NONE ? PAX_REASON_SET : PAX_REASON_NONE;
  if (index == NONE || is_of_scope(hints, scope, hints_set(hints, index), space)) return index;
  *reason = PAX_REASON_NAMESPACE;
  return NONE;
}

uint64_t hints_expiry(const struct ps_hints *hints, uint64_t now_ns, uint32_t ttl_ms) {
  uint32_t most_ms = hints->config.max_ttl_ms;
  uint64_t ms = ttl_ms == 0 || ttl_ms > most_ms ? most_ms : ttl_ms;
  return hints_add(now_ns, ms * 1000000);
}

/* The oldest of the sets that the target made for the tenant; NONE: there is none left, or it was
 * not found yet among the many that have gone. */
static uint32_t oldest_implicit(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant) {
  struct tenant *who = hints_tenant(hints, tenant);
  for (uint32_t i = 0; i < OLDEST_MOST && who->implicit_first < who->implicit_next; i++) {
    uint64_t id = TARGET_SET | who->implicit_first;
    uint32_t index = hints_find_set(hints, now_ns, tenant, id);
    if (index != NONE) return index;
    who->implicit_first++;
  }
  return NONE;
}

/* Whether the tenant may have `sets` and `ranges` more. */
static bool has_room(const struct ps_hints *hints, const struct tenant *tenant, uint32_t sets,
                     uint64_t ranges) {
  return tenant->sets + sets <= hints_budget(hints, tenant)->sets &&
         tenant->set_ranges + ranges <= hints_budget(hints, tenant)->set_ranges &&
         hints->live_sets + hints->grave_sets + sets <= hints->config.sets &&
         hints->set_ranges + ranges <= hints->config.set_ranges;
}

/* Makes it true if it can be: by what has expired, or by what the target made itself. */
static bool make_room(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant, uint32_t sets,
                      uint64_t ranges, bool is_implicit) {
  const struct tenant *who = hints_tenant(hints, tenant);
  if (has_room(hints, who, sets, ranges)) return true;
  hints_sweep_sets(hints, now_ns, LOOK_MOST);
  hints_bury(hints, (uint32_t)ranges + BURY_RANGES);
  while (is_implicit && !has_room(hints, who, sets, ranges)) {
    uint32_t oldest = oldest_implicit(hints, now_ns, tenant);
    if (oldest == NONE) return false;
    hints_drop_set(hints, oldest);
    hints_bury(hints, (uint32_t)ranges);
  }
  return has_room(hints, who, sets, ranges);
}

static void charge_ranges(struct ps_hints *hints, uint16_t tenant, uint64_t ranges) {
  hints->set_ranges += ranges;
  hints_tenant(hints, tenant)->set_ranges += ranges;
}

static uint32_t new_set(struct ps_hints *hints, const struct set *like) {
  uint32_t index = hints_take(&hints->sets);
  assert(index != NONE); /* live ones are counted, and each dead one is some intent's */
  struct set *set = hints_set(hints, index);
  *set = *like;
  set->flags |= SET_USED;
  set->references = 1;
  set->stamp = ++hints->stamps;
  set->epoch = hints_tenant(hints, set->tenant)->epoch;
  set->volume_epoch = hints->volumes[set->volume].epoch;
  if ((set->flags & SET_OF_INTENT) != 0) return index;
  hints_table_add(&hints->sets_by_id, hints_hash(hints, set->tenant, set->id), index);
  hints->live_sets++;
  hints_tenant(hints, set->tenant)->sets++;
  hints_sweep_soon(&hints->set_sweep, set->expires_ns);
  return index;
}

uint32_t hints_define(struct ps_hints *hints, uint64_t now_ns, const struct set *like,
                      uint32_t ranges) {
  assert(like != NULL && ranges > 0);
  if (ranges > hints->config.max_set_ranges) return NONE;
  uint32_t old = hints_find_set(hints, now_ns, like->tenant, like->id);
  uint32_t freed = 0;
  if (old != NONE && hints_set(hints, old)->references == 1) {
    freed = hints_set(hints, old)->range_count;
  }
  uint32_t more = ranges > freed ? ranges - freed : 0;
  bool is_implicit = (like->id & TARGET_SET) != 0;
  if (!make_room(hints, now_ns, like->tenant, old == NONE ? 1 : 0, more, is_implicit)) return NONE;
  if (old != NONE) {
    hints_drop_set(hints, old);
    hints_bury(hints, more < ranges ? ranges : 0);
  }
  charge_ranges(hints, like->tenant, ranges);
  return new_set(hints, like);
}

/* The ranges of an intent as a set without a name; NONE when the tenant has no room for them. */
uint32_t hints_define_nameless(struct ps_hints *hints, const struct set *like, uint32_t ranges) {
  assert(like != NULL && (like->flags & SET_OF_INTENT) != 0);
  struct tenant *tenant = hints_tenant(hints, like->tenant);
  if (tenant->intent_ranges + ranges > hints_budget(hints, tenant)->intents * INTENT_RANGES)
    return NONE;
  if (hints->intent_ranges + ranges > hints->config.intents * INTENT_RANGES) return NONE;
  tenant->intent_ranges += ranges;
  hints->intent_ranges += ranges;
  return new_set(hints, like);
}

bool hints_extend(struct ps_hints *hints, uint64_t now_ns, uint32_t index, uint32_t ranges) {
  struct set *set = hints_set(hints, index);
  if (ranges > hints->config.max_set_ranges - set->range_count) return false;
  if (!make_room(hints, now_ns, set->tenant, 0, ranges, false)) return false;
  charge_ranges(hints, set->tenant, ranges);
  return true;
}
