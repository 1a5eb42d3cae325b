/* The model's hints: hydrates, keeps and promotions, and what they must never do. */
#include <string.h>

#include "tier_model.h"

uint64_t random_time(void) {
  return model.now_ns + (uint64_t)below(chance(30) ? 2000 : 50) * 1000000;
}

struct ps_tier_access random_access(void) {
  uint32_t urgency = chance(50) ? PS_TIER_DEMAND : chance(60) ? PS_TIER_DATED : PS_TIER_SPECULATIVE;
  return (struct ps_tier_access){
      .deadline_ns = urgency == PS_TIER_DATED ? random_time() : UINT64_MAX,
      .tenant = (uint16_t)below(TENANTS),
      .urgency = (uint8_t)urgency,
      .priority = (uint8_t)below(4)};
}

void start_hints(void) {
  memset(&model.hints, 0, sizeof(model.hints));
  for (uint32_t i = 0; i < TENANTS; i++) {
    model.hints.limits[i] = model.config.frame_count / 4;
    if (chance(50)) continue;
    model.hints.limits[i] = below(model.config.frame_count + 1);
    ps_tier_set_tenant(model.tier, (uint16_t)i, model.hints.limits[i]);
  }
}

static uint64_t warm_bytes(uint32_t volume, uint64_t offset, uint64_t length, uint64_t *coming) {
  uint64_t warm;
  ps_tier_residency(model.tier, volume, offset, length, &warm, coming);
  return warm;
}

/* ---- keeps ---- */

static void drop_keep(uint32_t number) {
  struct keep *keeps = model.hints.keeps;
  keeps[number] = keeps[--model.hints.keep_count];
}

/* What is over, or gone for any reason, is not kept when it comes back. */
void prune_keeps(void) {
  for (uint32_t i = model.hints.keep_count; i > 0; i--) {
    const struct keep *keep = &model.hints.keeps[i - 1];
    uint64_t coming, warm = warm_bytes(keep->volume, keep->number * SLOT, SLOT, &coming);
    if (warm == 0 || keep->until_ns <= model.now_ns) drop_keep(i - 1);
  }
}

static void check_limit(uint16_t tenant, uint32_t before) {
  struct ps_tier_tenant stats;
  ps_tier_get_tenant(model.tier, tenant, &stats);
  uint32_t limit = model.hints.limits[tenant];
  if (stats.hint_frames > (before > limit ? before : limit))
    model_fail("hints hold more than their limit", tenant, stats.hint_frames);
}

static void keep(void) {
  struct command range = {.volume = below(model.volume_count)};
  struct ps_tier_tenant before;
  uint16_t tenant = (uint16_t)below(TENANTS);
  uint64_t until_ns = chance(10) ? model.now_ns : random_time(), coming;
  if (!pick_range(&range)) return;
  ps_tier_get_tenant(model.tier, tenant, &before);
  uint32_t kept = ps_tier_keep(model.tier, model.now_ns, range.volume, range.offset,
                               (uint32_t)range.length, tenant, 0, until_ns);
  if (kept != 0 && kept != warm_bytes(range.volume, range.offset, range.length, &coming))
    model_fail("a keep told wrong bytes", kept, range.length);
  check_limit(tenant, before.hint_frames);
  for (uint32_t i = model.hints.keep_count; i > 0; i--) {
    const struct keep *keep = &model.hints.keeps[i - 1];
    bool is_same = keep->volume == range.volume && keep->number == range.offset / SLOT;
    if (is_same && kept == 0) drop_keep(i - 1); /* it may have been ended */
  }
  if (kept == 0 || model.hints.keep_count == KEEPS) return;
  model.hints.keeps[model.hints.keep_count++] =
      (struct keep){.volume = range.volume, .number = range.offset / SLOT, .until_ns = until_ns};
}

/* ---- hydrates ---- */

struct holdings {
  struct ps_tier_tenant tenants[TENANTS], model;
  uint32_t holders;
  struct ps_tier_stats stats;
};

static void look(struct holdings *holdings) {
  holdings->holders = 0;
  for (uint32_t i = 0; i < TENANTS; i++) {
    ps_tier_get_tenant(model.tier, (uint16_t)i, &holdings->tenants[i]);
    holdings->holders += holdings->tenants[i].frames > 0;
  }
  ps_tier_get_model(model.tier, &holdings->model);
  ps_tier_get_stats(model.tier, &holdings->stats);
}

static uint32_t model_limit(void) {
  return model.config.frame_count - model.config.frame_count / 8;
}

static bool is_models(const struct ps_tier_access *access) {
  return access->source == PS_TIER_OF_MODEL;
}

/* Who hydrates may hold no more, and could take only what it holds already. */
static bool is_at_limit(const struct holdings *holdings, const struct ps_tier_access *access) {
  if (is_models(access)) return holdings->model.hint_frames >= model_limit();
  return holdings->tenants[access->tenant].hint_frames >= model.hints.limits[access->tenant];
}

/* What the model brings in is held by its own limit, and is none of the tenant's hints. */
static void check_model_apart(const struct holdings *before, const struct holdings *after,
                              const struct ps_tier_access *access) {
  uint32_t limit = model_limit(), had = before->model.hint_frames;
  if (after->model.hint_frames > (had > limit ? had : limit))
    model_fail("the model holds more than its limit", after->model.hint_frames, limit);
  bool is_more =
      after->tenants[access->tenant].hint_frames > before->tenants[access->tenant].hint_frames;
  if (is_models(access) && access->keep_until_ns <= model.now_ns && is_more)
    model_fail("the model's counts as a hint", access->tenant, had);
}

/* Nobody but who asked lost a frame out of its share; nothing that is kept went. */
static void check_taken(const struct holdings *before, const struct ps_tier_access *access) {
  uint16_t tenant = access->tenant;
  struct holdings after;
  look(&after);
  check_model_apart(before, &after, access);
  uint32_t holders = before->holders + (before->tenants[tenant].frames == 0);
  for (uint32_t i = 0; i < TENANTS; i++) {
    uint32_t had = before->tenants[i].frames;
    if (i == tenant || after.tenants[i].frames >= had) continue;
    if (had - after.tenants[i].frames > 1) model_fail("a hydrate took several frames", i, had);
    if (had <= model.config.frame_count / holders)
      model_fail("a hydrate took a frame of another's share", i, had);
    bool has_share = before->tenants[tenant].frames >= model.config.frame_count / holders;
    if (before->stats.frames_free > (has_share ? model.config.frame_count / 16 : 0) &&
        !is_at_limit(before, access))
      model_fail("a hydrate evicted although a frame was free", i, had);
  }
  check_limit(tenant, before->tenants[tenant].hint_frames);
  for (uint32_t i = 0; i < model.hints.keep_count; i++) {
    const struct keep *keep = &model.hints.keeps[i];
    uint64_t coming;
    if (warm_bytes(keep->volume, keep->number * SLOT, SLOT, &coming) == 0)
      model_fail("a hydrate evicted what is kept", keep->volume, keep->number);
  }
}

static void check_result(int result, const struct command *range) {
  uint64_t coming, warm = warm_bytes(range->volume, range->offset, range->length, &coming);
  bool is_all = warm + coming == range->length;
  bool is_right = true;
  if (result == PS_TIER_WARM) is_right = warm == range->length;
  if (result == PS_TIER_COMING || result == PS_TIER_STARTED) is_right = is_all && coming > 0;
  if (result == PS_TIER_NO_ROOM) is_right = warm + coming == 0;
  if (result == PS_TIER_INVALID || !is_right)
    model_fail("a hydrate told a wrong result", (uint64_t)result, range->offset);
}

static void hydrate(const struct command *range) {
  struct hints *hints = &model.hints;
  struct holdings before;
  struct ps_tier_access access = random_access();
  access.keep_until_ns = chance(50) ? random_time() : 0;
  access.cookie = 1 + hints->cookies++ % COOKIES;
  access.value_class = (uint8_t)(chance(50) ? 8 + below(4) : 0);
  access.value = chance(50) ? some_worth() : 0;
  access.source = (uint8_t)(chance(40) ? PS_TIER_OF_MODEL : hints->cookies % PS_TIER_HINTS);
  prune_keeps();
  look(&before);
  int result = ps_tier_hydrate(model.tier, model.now_ns, range->volume, range->offset,
                               (uint32_t)range->length, &access);
  check_hint_evictions(&access);
  check_result(result, range);
  check_taken(&before, &access);
  hints->asked[access.cookie - 1] = (struct asked){.volume = range->volume,
                                                   .number = range->offset / SLOT,
                                                   .tenant = access.tenant,
                                                   .urgency = access.urgency,
                                                   .is_started = result == PS_TIER_STARTED};
}

void hint(void) {
  struct command range = {.volume = below(model.volume_count)};
  struct ps_tier_access access = random_access();
  uint32_t frame;
  if (!pick_range(&range)) return;
  if (chance(5)) {
    change_values();
  } else if (chance(10)) {
    classify();
  } else if (chance(5)) {
    ps_tier_end_keeps(model.tier, model.now_ns, 1 + below(COOKIES));
  } else if (chance(60)) {
    hydrate(&range);
  } else if (chance(50)) {
    keep();
  } else if (ps_tier_read(model.tier, model.now_ns, range.volume, range.offset,
                          (uint32_t)range.length, &access, NULL, &frame) == PS_TIER_DONE) {
    ps_tier_release(model.tier, model.now_ns, frame);
  }
}

/* ---- what comes of them ---- */

void check_hint_action(const struct ps_tier_action *action) {
  bool is_dated = action->urgency == PS_TIER_DATED;
  if (action->urgency > PS_TIER_SPECULATIVE || is_dated != (action->deadline_ns != UINT64_MAX))
    model_fail("an action without an urgency", action->urgency, action->deadline_ns);
  if (action->cookie == 0) return;
  const struct asked *asked = &model.hints.asked[(action->cookie - 1) % COOKIES];
  bool is_its = asked->volume == action->volume && asked->number == action->offset / SLOT &&
                asked->tenant == action->tenant && asked->urgency >= action->urgency;
  if (!asked->is_started || !is_its || action->op != PS_TIER_READ)
    model_fail("an action with a wrong cookie", action->cookie, action->offset);
}

static struct ps_tier_action *flying_fill(uint32_t ticket) {
  for (uint32_t i = 0; i < model.flying_count; i++) {
    struct ps_tier_action *action = &model.flying[i].action;
    if (action->op == PS_TIER_READ && action->ticket == ticket) return action;
  }
  return NULL;
}

void take_promotions(void) {
  struct ps_tier_promotion promotion;
  while (ps_tier_next_promotion(model.tier, &promotion)) {
    struct ps_tier_action *action = flying_fill(promotion.ticket);
    if (action == NULL) model_fail("a promotion of what is not under way", promotion.ticket, 0);
    bool is_sooner = promotion.urgency < action->urgency ||
                     (promotion.urgency == PS_TIER_DATED && action->urgency == PS_TIER_DATED &&
                      promotion.deadline_ns < action->deadline_ns);
    if (!is_sooner) model_fail("a promotion that makes nothing sooner", promotion.ticket, 0);
    action->urgency = (uint8_t)promotion.urgency;
    action->deadline_ns = promotion.deadline_ns;
    model.promotions++;
  }
}
