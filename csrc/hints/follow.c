/* Speculative jobs: what follows a read that says so, and the rest of an ordered set of which a
 * part is read. Nothing depends on them: they go when there is no room. */
#include "internal.h"

enum {
  STEP_BACK = 8,   /* ranges that reads may be out of order without beginning again */
  REST_RANGES = 64 /* counted to say how much is left of a set */
};
/* Among the orders of the model, whose unit of benefit is a read expected per second: what a host
 * says that it reads next is as good as one read within a second. To find a frame it is worth what
 * the tables say of anything that was just brought in. */
#define FOLLOW_VALUE 1.0f

static struct follow *follow_at(const struct ps_hints *hints, uint32_t index) {
  struct follow *follow = hints_item(&hints->follows, index);
  assert(follow->is_used);
  return follow;
}

static uint64_t stream_hash(const struct ps_hints *hints, uint16_t tenant, uint32_t volume) {
  return hints_hash(hints, tenant, volume);
}

static uint32_t find_stream(const struct ps_hints *hints, uint16_t tenant, uint32_t volume) {
  uint32_t index = hints_table_first(&hints->streams, stream_hash(hints, tenant, volume));
  while (index != NONE) {
    const struct follow *follow = follow_at(hints, index);
    if (follow->tenant == tenant && follow->volume == volume) return index;
    index = follow->hash_next;
  }
  return NONE;
}

/* Bytes of a set that are left to bring in, as far as the next ranges say. */
static uint64_t rest_of_set(const struct ps_hints *hints, const struct follow *follow) {
  struct cursor cursor = follow->walk;
  uint32_t shift = hints_set(hints, follow->set)->block_shift;
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < REST_RANGES && cursor.left > 0; i++) {
    uint64_t left = ((uint64_t)hints_range(hints, cursor.at)->blocks << shift) - cursor.done;
    bytes = hints_add(bytes, left);
    hints_cursor_advance(hints, &cursor, shift, left);
  }
  return bytes;
}

static uint64_t rest_of(const struct ps_hints *hints, const struct follow *follow) {
  return follow->set != NONE ? rest_of_set(hints, follow) : follow->end - follow->offset;
}

void hints_end_follow(struct ps_hints *hints, uint32_t index) {
  struct follow *follow = follow_at(hints, index);
  struct tenant *tenant = hints_tenant(hints, follow->tenant);
  ps_sched_remove_job(hints->volumes[follow->volume].sched, &follow->job);
  if (follow->set != NONE) {
    hints_set(hints, follow->set)->follow = NONE;
  } else {
    uint64_t hash = stream_hash(hints, follow->tenant, follow->volume);
    hints_table_remove(&hints->streams, hash, index);
  }
  assert(tenant->follows > 0);
  tenant->follows--;
  hints_give(&hints->follows, index);
}

/* Nothing is left, or something is: then the scheduler is told how much. */
static void update(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct follow *follow = follow_at(hints, index);
  uint64_t rest = rest_of(hints, follow);
  if (rest > 0) {
    follow->job.bytes = rest;
    ps_sched_update_job(hints->volumes[follow->volume].sched, now_ns, &follow->job);
    hints_announce_volume(hints, follow->volume);
    return;
  }
  if (follow->set != NONE) hints_set(hints, follow->set)->flags |= SET_THROUGH;
  hints_end_follow(hints, index);
}

static uint32_t source_of(const struct follow *follow) {
  return follow->set != NONE ? PS_TIER_OF_SET : PS_TIER_OF_STREAM;
}

/* A job in the scheduler like this one, unless there are too many, or the likes of it were in vain
 * too often. */
static void begin(struct ps_hints *hints, uint64_t now_ns, const struct follow *like) {
  struct tenant *tenant = hints_tenant(hints, like->tenant);
  if (rest_of(hints, like) == 0 || tenant->follows >= FOLLOW_TENANT) return;
  if (!hints_may_act(hints, like->tenant, source_of(like))) return;
  uint32_t index = hints_take(&hints->follows);
  if (index == NONE) return;
  struct follow *follow = hints_item(&hints->follows, index);
  *follow = *like;
  follow->is_used = true;
  follow->job = (struct ps_sched_job){.deadline_ns = UINT64_MAX,
                                      .bytes = rest_of(hints, like),
                                      .value = FOLLOW_VALUE,
                                      .sched_class = PS_SCHED_SPECULATIVE,
                                      .priority = PAX_PRIORITIES - 1,
                                      .owner = PS_JOB_OF_HINTS};
  tenant->follows++;
  hints->stats.follows++;
  if (like->set != NONE) {
    hints_set(hints, like->set)->follow = index;
  } else {
    uint64_t hash = stream_hash(hints, like->tenant, like->volume);
    hints_table_add(&hints->streams, hash, index);
  }
  ps_sched_add_job(hints->volumes[like->volume].sched, now_ns, &follow->job);
  hints_announce_volume(hints, like->volume);
}

/* One stream a tenant and volume: a read that goes on moves it, one elsewhere takes it along. */
static void follow_stream(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant,
                          const struct ps_hints_read *read) {
  struct follow like = {.offset = read->offset + read->length,
                        .volume_bytes = read->volume_bytes,
                        .tenant = tenant,
                        .volume = (uint16_t)read->volume};
  if (like.offset > like.volume_bytes) return; /* it has shrunk */
  like.end = hints_min(hints_add(like.offset, hints->config.follow_bytes), like.volume_bytes);
  uint32_t index = find_stream(hints, tenant, read->volume);
  if (index == NONE) {
    begin(hints, now_ns, &like);
    return;
  }
  struct follow *follow = follow_at(hints, index);
  bool is_near = like.offset <= follow->end && follow->offset <= like.end;
  if (!is_near || follow->offset < like.offset) follow->offset = like.offset;
  follow->end = like.end;
  follow->volume_bytes = like.volume_bytes;
  update(hints, now_ns, index);
}

/* Reads may be a little out of order; further back, or from its end back, it is read again. */
static bool is_read_again(const struct set *set, uint32_t ordinal, bool from_start) {
  uint32_t last = set->read_last;
  if (ordinal > last || (ordinal == last && !from_start)) return false;
  return last + 1 == set->range_count || ordinal + STEP_BACK < last;
}

static bool is_ahead(const struct cursor *a, const struct cursor *b) {
  return a->left < b->left || (a->left == b->left && a->done > b->done);
}

/* The range at `at` is read up to `end`: the rest of its set may be next. */
static void follow_set(struct ps_hints *hints, uint64_t now_ns, uint32_t at, uint64_t start,
                       uint64_t end) {
  const struct chunk *chunk = hints_chunk(hints, at);
  struct set *set = hints_set(hints, chunk->owner);
  const struct range *range = hints_range(hints, at);
  uint32_t ordinal = chunk->ordinal + at % CHUNK_RANGES;
  struct follow like = {.set = chunk->owner, .tenant = set->tenant, .volume = set->volume};
  like.walk = (struct cursor){.at = at, .left = set->range_count - ordinal};
  uint64_t length = (uint64_t)range->blocks << set->block_shift;
  hints_cursor_advance(hints, &like.walk, set->block_shift, hints_min(length, end - range->offset));
  bool is_again = is_read_again(set, ordinal, start <= range->offset);
  if (set->follow != NONE) {
    struct follow *follow = follow_at(hints, set->follow);
    if (is_again || is_ahead(&like.walk, &follow->walk)) follow->walk = like.walk;
    update(hints, now_ns, set->follow);
  } else if (is_again || (set->flags & SET_THROUGH) == 0) {
    set->flags &= (uint8_t)~SET_THROUGH;
    begin(hints, now_ns, &like);
  }
  set->read_last = ordinal;
}

/* A read that says something of itself, or of a host that has ordered sets. Apart, and not inlined,
 * because most reads do neither. */
static void __attribute__((noinline)) touch(struct ps_hints *hints, uint64_t now_ns,
                                            const struct ps_hints_scope *scope,
                                            const struct ps_hints_read *read) {
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  if ((read->flags & PS_FACT_ATTRIBUTES) != 0) tenant->read_hints++;
  if ((read->flags & PS_FACT_DATED) != 0) {
    struct pax_counts *counts = &tenant->read_counts[read->priority % PAX_PRIORITIES];
    counts->arrived++;
    counts->pending++;
  }
  if (hints->volumes[read->volume].sched == NULL) return;
  if ((read->flags & (PS_FACT_READAHEAD | PS_FACT_SEQUENTIAL)) != 0) {
    follow_stream(hints, now_ns, scope->tenant, read);
  }
  uint64_t end = read->offset + read->length;
  uint32_t at = hints_region_find(hints, now_ns, scope->tenant, read->volume, end - 1);
  if (at == NONE && read->offset >> LEVEL_SHIFT != (end - 1) >> LEVEL_SHIFT) {
    at = hints_region_find(hints, now_ns, scope->tenant, read->volume, read->offset);
  }
  if (at != NONE) follow_set(hints, now_ns, at, read->offset, end);
}

void ps_hints_touch(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                    const struct ps_hints_read *read) {
  assert(hints != NULL && scope != NULL && read != NULL);
  assert(read->volume < hints->config.volume_count && read->length > 0);
  if (read->flags == 0 && hints_tenant(hints, scope->tenant)->ordered_levels == 0) return;
  touch(hints, now_ns, scope, read);
}

static bool next_span(const struct ps_hints *hints, const struct follow *follow,
                      struct span *span) {
  if (follow->set != NONE) {
    uint32_t shift = hints_set(hints, follow->set)->block_shift;
    return hints_cursor_span(hints, &follow->walk, shift, span);
  }
  uint64_t slot = hints->config.slot_size;
  uint64_t end = hints_min(follow->end, (follow->offset & ~(slot - 1)) + slot);
  *span = (struct span){.offset = follow->offset, .length = (uint32_t)(end - follow->offset)};
  return follow->offset < follow->end;
}

static void advance(struct ps_hints *hints, struct follow *follow, uint32_t bytes) {
  if (follow->set != NONE) {
    uint32_t shift = hints_set(hints, follow->set)->block_shift;
    hints_cursor_advance(hints, &follow->walk, shift, bytes);
  } else {
    follow->offset += bytes;
  }
}

/* The end of the volume: a stream has it from the latest of its reads. */
static bool find_limit(const struct ps_hints *hints, const struct follow *follow,
                       uint64_t *volume_bytes) {
  *volume_bytes = follow->volume_bytes;
  if (follow->set == NONE) return true;
  const struct set *set = hints_set(hints, follow->set);
  struct ps_hints_namespace space;
  if (!hints->resolve(hints->context, set->subsystem, set->nsid, &space)) return false;
  *volume_bytes = space.blocks << space.block_shift;
  return space.volume == follow->volume;
}

void hints_walk_follow(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  struct follow *follow = follow_at(hints, index);
  struct ps_tier_access access = {.deadline_ns = UINT64_MAX,
                                  .tenant = follow->tenant,
                                  .urgency = PS_TIER_SPECULATIVE,
                                  .priority = PAX_PRIORITIES - 1,
                                  .source = (uint8_t)source_of(follow)};
  uint64_t volume_bytes;
  bool goes_on = find_limit(hints, follow, &volume_bytes);
  uint64_t started = 0;
  struct span span;
  for (uint32_t i = 0; goes_on && i < WALK_EXTENTS && started < hints->config.piece_bytes; i++) {
    if (!next_span(hints, follow, &span)) break;
    uint32_t bytes = span.length;
    goes_on = span.offset < volume_bytes;
    if (!goes_on) break;
    hints_round(hints, volume_bytes, &span);
    int result =
        ps_tier_hydrate(hints->tier, now_ns, follow->volume, span.offset, span.length, &access);
    goes_on = result != PS_TIER_NO_ROOM && result != PS_TIER_INVALID;
    if (result == PS_TIER_STARTED) started += bytes;
    advance(hints, follow, bytes);
  }
  if (goes_on) {
    update(hints, now_ns, index);
  } else {
    hints_end_follow(hints, index);
  }
}

/* Those of one volume, or of one tenant (`all` of the other). */
static void end_some(struct ps_hints *hints, uint32_t volume, uint32_t tenant) {
  for (uint32_t index = 1; index <= hints->follows.fresh; index++) {
    const struct follow *follow = hints_item(&hints->follows, index);
    if (!follow->is_used) continue;
    if (follow->volume == volume || follow->tenant == tenant) hints_end_follow(hints, index);
  }
}

void hints_end_follows(struct ps_hints *hints, uint32_t volume) {
  end_some(hints, volume, UINT32_MAX);
}

void hints_end_tenant_follows(struct ps_hints *hints, uint16_t tenant) {
  end_some(hints, UINT32_MAX, tenant);
}
