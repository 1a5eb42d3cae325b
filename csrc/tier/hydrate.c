/* Hydrates: bringing extents in before anybody reads them, in frames that hints may take.
 *
 * What a hint may evict is looked for first at the cold ends of the runs, which is where what is
 * worth least is. The tenant's own extents may all be warmer than that: then a hand that goes round
 * the frames finds some of them, a few looks at a time.
 */
#include "keep.h"
#include "order.h"

/* Whose frame a hint would take. What the tenant's own hydrates brought in and nobody has read goes
 * before its other extents only when it is worth less: else its hints would undo one another. */
enum source { SOURCE_OWN, SOURCE_OTHER, SOURCE_UNREAD, SOURCE_COUNT, SOURCE_NONE };

/* A search for a frame: the one worth least of each source. */
struct hunt {
  uint16_t tenant;
  bool is_model;    /* it is for the model, which takes nothing that hints have brought in */
  bool is_at_limit; /* only what its own hydrates hold can make room */
  float ceiling;
  bool is_below; /* the ceiling itself is too dear */
  uint32_t share;
  uint32_t found[SOURCE_COUNT];
  float values[SOURCE_COUNT];
};

static enum source source_of(const struct ps_tier *tier, const struct hunt *hunt,
                             const struct extent *extent) {
  bool is_own = extent->tenant == hunt->tenant;
  if (extent->prestaged && !is_of_model(extent) && hunt->is_model) return SOURCE_NONE;
  if (is_own && extent->prestaged && is_of_model(extent) == hunt->is_model) return SOURCE_UNREAD;
  if (hunt->is_at_limit) return SOURCE_NONE;
  if (is_own) return SOURCE_OWN;
  return tier->tenants[extent->tenant].stats.frames > hunt->share ? SOURCE_OTHER : SOURCE_NONE;
}

static bool is_too_dear(const struct hunt *hunt, float value) {
  return hunt->is_below ? value >= hunt->ceiling : value > hunt->ceiling;
}

/* The extent may be evicted: is it this hint's to take? True when there is no need to look at
 * warmer ones of its run. */
static bool consider(const struct ps_tier *tier, struct hunt *hunt, uint32_t index) {
  const struct extent *extent = &tier->extents[index];
  enum source source = source_of(tier, hunt, extent);
  float value = tier_value(tier, extent);
  assert(extent->place == PLACE_EVICTABLE && !extent->kept);
  if (source == SOURCE_NONE || is_too_dear(hunt, value)) return false;
  if (hunt->found[source] == NONE || value < hunt->values[source]) {
    hunt->found[source] = index;
    hunt->values[source] = value;
  }
  return source == SOURCE_OWN || hunt->is_at_limit;
}

/* None of the runs from here on has anything better: what is worth more is of no use. */
static bool is_done(const struct hunt *hunt, float value) {
  enum source first = hunt->is_at_limit ? SOURCE_UNREAD : SOURCE_OWN;
  if (hunt->found[first] != NONE && value >= hunt->values[first]) return true;
  return is_too_dear(hunt, value);
}

/* What is unread has the class that its hydrate gave it. */
static bool may_be_unread(uint32_t cell) {
  uint32_t value_class = cell / AGE_BINS;
  return value_class == CLASS_HYDRATED || value_class >= OWN_CLASSES;
}

static void search_runs(const struct ps_tier *tier, struct hunt *hunt) {
  const struct order *order = tier->order;
  uint32_t most = HUNT_MOST;
  for (uint32_t rank = tier_order_next(tier, 0); rank != NONE && most > 0;
       rank = tier_order_next(tier, rank + 1)) {
    uint32_t cell = order->cells[rank];
    if (is_done(hunt, order->values[cell])) return;
    if (hunt->is_at_limit && !may_be_unread(cell)) continue;
    uint32_t index = tier_order_coldest(tier, rank);
    for (uint32_t looks = 0; index != NONE && looks < HUNT_LENGTH && most > 0; looks++) {
      most--;
      if (consider(tier, hunt, index)) break;
      index = tier_order_warmer(tier, index);
    }
  }
}

static void search_frames(struct ps_tier *tier, struct hunt *hunt) {
  uint32_t *hand = &tier->tenants[hunt->tenant].hand;
  uint32_t looks = tier->config.frame_count < HUNT_LENGTH ? tier->config.frame_count : HUNT_LENGTH;
  for (; looks > 0; looks--) {
    uint32_t index = tier->frames[*hand].extent;
    *hand = *hand + 1 < tier->config.frame_count ? *hand + 1 : 0;
    if (index == NONE || tier->extents[index].place != PLACE_EVICTABLE) continue;
    if (!tier->extents[index].kept) (void)consider(tier, hunt, index);
  }
}

static uint32_t choose(const struct hunt *hunt) {
  const uint32_t *found = hunt->found;
  bool has_both = found[SOURCE_OWN] != NONE && found[SOURCE_UNREAD] != NONE;
  if (has_both && hunt->values[SOURCE_UNREAD] < hunt->values[SOURCE_OWN])
    return found[SOURCE_UNREAD];
  if (found[SOURCE_OWN] != NONE) return found[SOURCE_OWN];
  return found[SOURCE_OTHER] != NONE ? found[SOURCE_OTHER] : found[SOURCE_UNREAD];
}

/* What is free now was another's a moment ago where there is little of it, for commands take frames
 * and give them back: with its share a tenant's hints take what nobody has used, and no more. */
static bool may_take_free(const struct ps_tier *tier, const struct hunt *hunt) {
  if (tier->frame_free == NONE || hunt->is_at_limit) return false;
  if (tier->tenants[hunt->tenant].stats.frames < hunt->share) return true;
  return tier->frames_free > tier->config.frame_count / SPARE_SHARE;
}

/* Speculation is worth a frame only when what it evicts is worth less. */
static void set_ceiling(const struct ps_tier *tier, struct hunt *hunt, float value) {
  hunt->is_below = value > 0;
  hunt->ceiling = value > 0 ? value : tier->order->values[CLASS_HYDRATED * AGE_BINS];
}

static uint32_t hint_frame(struct ps_tier *tier, const struct ps_tier_access *access) {
  bool is_model = access->source == PS_TIER_OF_MODEL;
  const struct tenant *who = tier_who_hydrates(tier, access->tenant, is_model);
  struct hunt hunt = {.tenant = access->tenant,
                      .is_model = is_model,
                      .is_at_limit = who->stats.hint_frames >= who->hint_limit,
                      .ceiling = __builtin_inff(),
                      .share = tier_share(tier, access->tenant),
                      .found = {NONE, NONE, NONE}};
  if (tier->frame_queue.first != NULL || who->hint_limit == 0) return NONE;
  if (may_take_free(tier, &hunt)) return tier_take_free(tier);
  if (access->urgency == PS_TIER_SPECULATIVE) set_ceiling(tier, &hunt, access->value);
  tier_expire_promises(tier);
  tier_order_age(tier);
  search_runs(tier, &hunt);
  if (hunt.found[SOURCE_OWN] == NONE) search_frames(tier, &hunt);
  uint32_t index = choose(&hunt);
  return index == NONE ? NONE : tier_evict(tier, index);
}

/* A time that has passed says nothing here: it does not end a keep. */
static void keep(struct ps_tier *tier, uint32_t index, const struct ps_tier_access *access) {
  if (access->keep_until_ns > tier->now_ns)
    (void)tier_keep(tier, index, access->tenant, access->cookie, access->keep_until_ns);
}

/* Nothing is missing that is not being filled already. */
static int hydrate_nothing(struct ps_tier *tier, uint32_t index, uint16_t units,
                           const struct ps_tier_access *access) {
  uint16_t coming = tier->extents[index].fill & units;
  tier_promote(tier, &tier->extents[index], coming, access);
  keep(tier, index, access);
  return coming != 0 ? PS_TIER_COMING : PS_TIER_WARM;
}

/* Another kind of hint, or the model, has nothing to answer for that was brought in before: it has
 * been overwritten since. */
static void set_source(struct extent *extent, const struct ps_tier_access *access) {
  if (extent->source != access->source) extent->is_owed = 0;
  extent->source = access->source & 3;
}

/* Somebody is to read what is brought in; for a hint about its own extent, its tenant answers. */
static void note_hint(struct extent *extent, const struct ps_tier_access *access) {
  bool is_own = extent->tenant == access->tenant && extent->source == access->source;
  extent->hinted = 1;
  if (is_own && !is_of_model(extent)) extent->is_owed = 1;
}

static int hydrate(struct ps_tier *tier, const struct span *span,
                   const struct ps_tier_access *access) {
  uint32_t index = tier_find(tier, span->volume, span->number);
  uint16_t missing = span->touched;
  if (index != NONE) {
    const struct extent *extent = &tier->extents[index];
    missing = (uint16_t)(missing & ~extent->valid & ~extent->fill);
    if (missing == 0) return hydrate_nothing(tier, index, span->touched, access);
    if (tier_unsettled(tier, extent, missing) != NONE) return PS_TIER_BUSY;
    if (tier_is_exposed(tier, extent, missing)) return PS_TIER_BUSY;
    tier_promote(tier, extent, extent->fill & span->touched, access);
  }
  if (index == NONE || tier->extents[index].frame == NONE) {
    uint32_t frame = hint_frame(tier, access);
    if (frame == NONE) return PS_TIER_NO_ROOM;
    index = tier_bring_in(tier, index, span, access->tenant, access->value_class, frame);
    set_source(&tier->extents[index], access);
    tier_set_prestaged(tier, index, true);
  } else if (tier->extents[index].unread == 0 && !tier->extents[index].prestaged) {
    set_source(&tier->extents[index], access);
  }
  note_hint(&tier->extents[index], access);
  tier_start_fills(tier, index, missing, access, true);
  keep(tier, index, access);
  return PS_TIER_STARTED;
}

int ps_tier_hydrate(struct ps_tier *tier, uint64_t now_ns, uint32_t volume, uint64_t offset,
                    uint32_t length, const struct ps_tier_access *access) {
  struct span span;
  assert(tier != NULL && access != NULL && access->tenant < tier->config.tenant_count);
  assert(access->urgency <= PS_TIER_SPECULATIVE && access->value_class < CLASS_COUNT);
  assert(access->source <= PS_TIER_OF_MODEL);
  assert(access->value_class == CLASS_HYDRATED || access->value_class >= OWN_CLASSES);
  tier_enter(tier, now_ns, NULL);
  if (tier_span(tier, volume, offset, length, &span) != 0) return PS_TIER_INVALID;
  return hydrate(tier, &span, access);
}
