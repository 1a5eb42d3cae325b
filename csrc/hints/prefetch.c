/* What the records of a batch will touch is asked of the memory before the first of them is
 * applied: tables of a million entries are in no cache, and a page's worth of look-ups can wait
 * together instead of one after the other. Nothing is changed, and nothing depends on it. */
#include "../prefetch.h"

#include "internal.h"

/* What is asked for in one pass over the batch; each needs what the one before has brought. */
enum pass { PASS_BUCKETS, PASS_HEADS, PASS_CHUNKS, PASS_NODES, PASSES };

struct reader {
  const struct ps_hints *hints;
  const struct ps_hints_scope *scope;
  struct ps_hints_namespace space; /* of `nsid` */
  uint32_t nsid;
  bool has_space;
  enum pass pass;
  /* Jobs that come and go: of what, and by when. */
  const struct ps_sched *sched;
  uint64_t now_ns;
  uint64_t deadlines_ns[PS_SCHED_PREFETCHED];
  uint32_t deadlines;
};

/* An item with all of its cache lines. */
static void ask_item(const struct pool *pool, uint32_t index) {
  if (index == NONE) return;
  const uint8_t *item = pool->items + pool->stride * index;
  for (size_t at = 0; at < pool->stride; at += PS_CACHE_LINE) ps_prefetch(item + at);
  ps_prefetch(item + pool->stride - 1);
}

static void ask_table(const struct reader *reader, const struct table *table, uint64_t hash) {
  const uint32_t *bucket = &table->buckets[hash & table->mask];
  if (reader->pass == PASS_BUCKETS) ps_prefetch(bucket);
  if (reader->pass == PASS_HEADS) ask_item(table->pool, *bucket);
}

static void ask_nodes(const struct reader *reader, const struct set *set) {
  const struct ps_hints *hints = reader->hints;
  const struct chunk *chunk = hints_item(&hints->chunks, set->first);
  for (uint32_t i = 0; i < CHUNK_RANGES && i < set->range_count; i++) {
    ask_item(&hints->nodes, chunk->ranges[i].node);
  }
}

/* What had the id of the set will have to go. */
static void ask_set(const struct reader *reader, uint64_t id) {
  const struct ps_hints *hints = reader->hints;
  uint64_t hash = hints_hash(hints, reader->scope->tenant, id);
  ask_table(reader, &hints->sets_by_id, hash);
  if (reader->pass < PASS_CHUNKS) return;
  uint32_t index = hints_table_first(&hints->sets_by_id, hash);
  if (index == NONE) return;
  const struct set *set = hints_set(hints, index);
  if (set->id != id) return;
  if (reader->pass == PASS_CHUNKS) ask_item(&hints->chunks, set->first);
  if (reader->pass == PASS_NODES && (set->flags & SET_ORDERED) != 0) ask_nodes(reader, set);
}

static bool find_space(struct reader *reader, uint32_t nsid) {
  const struct ps_hints *hints = reader->hints;
  if (nsid != reader->nsid || !reader->has_space) {
    reader->nsid = nsid;
    reader->has_space =
        hints->resolve(hints->context, reader->scope->subsystem, nsid, &reader->space) &&
        reader->space.volume < hints->config.volume_count;
  }
  return reader->has_space;
}

static void ask_regions(struct reader *reader, const struct pax_set *record,
                        const uint8_t *ranges) {
  const struct ps_hints *hints = reader->hints;
  if (reader->pass > PASS_HEADS || (record->flags & PAX_SET_FLAG_ORDERED) == 0) return;
  if (!find_space(reader, record->nsid)) return;
  for (uint32_t i = 0; i < record->range_count; i++) {
    struct pax_range range;
    memcpy(&range, ranges + i * sizeof range, sizeof range);
    const uint32_t *bucket =
        hints_region_bucket(hints, reader->scope->tenant, &reader->space, range.slba, range.nlb);
    if (reader->pass == PASS_BUCKETS) {
      ps_prefetch(bucket);
    } else {
      ask_item(&hints->nodes, *bucket);
    }
  }
}

/* Where they stand, or would, among the jobs of their volume. */
static void ask_jobs(struct reader *reader) {
  if (reader->deadlines == 0) return;
  ps_sched_prefetch(reader->sched, reader->deadlines_ns, reader->deadlines);
  reader->deadlines = 0;
}

static void note_job(struct reader *reader, uint32_t volume, uint64_t deadline_ns) {
  const struct ps_sched *sched = reader->hints->volumes[volume].sched;
  if (sched == NULL) return;
  if (sched != reader->sched || reader->deadlines == PS_SCHED_PREFETCHED) ask_jobs(reader);
  reader->sched = sched;
  reader->deadlines_ns[reader->deadlines++] = deadline_ns;
}

static void ask_links(const struct pool *pool, struct links links) {
  ask_item(pool, links.previous);
  ask_item(pool, links.next);
}

/* The pending intent with the id that another takes will have to go. */
static void ask_old_intent(struct reader *reader, uint64_t id) {
  const struct ps_hints *hints = reader->hints;
  uint32_t index = hints_find_intent(hints, reader->scope->tenant, id);
  if (index == NONE) return;
  const struct intent *intent = hints_intent(hints, index);
  if (intent->set == NONE) return;
  if (reader->pass == PASS_NODES) {
    ask_item(&hints->chunks, hints_set(hints, intent->set)->first);
    return;
  }
  if (intent->has_job) note_job(reader, intent->volume, intent->job.deadline_ns);
  ask_item(&hints->sets, intent->set);
  ask_links(&hints->intents, intent->session_links);
  ask_links(&hints->intents, intent->tenant_links);
  ask_links(&hints->intents, intent->volume_links);
}

static void ask_intent(struct reader *reader, const struct pax_intent *record) {
  const struct ps_hints *hints = reader->hints;
  uint16_t tenant = reader->scope->tenant;
  ask_table(reader, &hints->intents_by_id, hints_hash(hints, tenant, record->intent_id));
  ask_table(reader, &hints->intents_by_session, hints_session_hash(hints, tenant, record->session));
  if (reader->pass >= PASS_CHUNKS) ask_old_intent(reader, record->intent_id);
  if (record->set_id != 0) {
    ask_set(reader, record->set_id);
  } else if (reader->pass == PASS_BUCKETS && find_space(reader, record->nsid)) {
    note_job(reader, reader->space.volume,
             hints_add(reader->now_ns, record->deadline_us * UINT64_C(1000)));
  }
}

static void ask_record(struct reader *reader, uint32_t type, const uint8_t *bytes) {
  const struct ps_hints *hints = reader->hints;
  uint16_t tenant = reader->scope->tenant;
  if (type == PAX_TYPE_SET) {
    struct pax_set record;
    memcpy(&record, bytes, sizeof record);
    ask_set(reader, record.set_id);
    ask_regions(reader, &record, bytes + sizeof record);
  } else if (type == PAX_TYPE_SIGNATURE) {
    struct pax_signature record;
    memcpy(&record, bytes, sizeof record);
    if (!find_space(reader, record.nsid)) return;
    uint64_t hash =
        hints_signature_hash(hints, tenant, (uint16_t)reader->space.volume, record.slba);
    ask_table(reader, &hints->signatures_by_slba, hash);
  } else if (type == PAX_TYPE_INTENT) {
    struct pax_intent record;
    memcpy(&record, bytes, sizeof record);
    ask_intent(reader, &record);
  }
}

void hints_prefetch(const struct ps_hints *hints, uint64_t now_ns,
                    const struct ps_hints_scope *scope, const uint8_t *records, uint32_t count) {
  assert(hints != NULL && scope != NULL && records != NULL);
  struct reader reader = {.hints = hints, .scope = scope, .now_ns = now_ns};
  for (reader.pass = PASS_BUCKETS; reader.pass < PASSES; reader.pass++) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
      struct pax_record record;
      memcpy(&record, records + at, sizeof record);
      ask_record(&reader, record.type, records + at);
      at += record.size;
    }
  }
  ask_jobs(&reader);
}
