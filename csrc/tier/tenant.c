/* Tenants: which frames are charged to whom, their shares, and how their hints turned out.
 *
 * An extent is charged to the tenant that brought it in, until it goes, whoever uses it meanwhile.
 * Against a tenant's hint limit count the extents that its hydrates brought in and nobody has read
 * yet, and those that it keeps; what is both, once. What was brought in for the model is charged to
 * a tenant as any extent, but is none of its hints: the model answers for it, as if it were a
 * tenant beside the others.
 *
 * An extent that a hint brought in for its tenant is owed a read: it comes, or the time for which
 * it was kept runs out before, or it is evicted. Each extent is counted once, by kind of hint: what
 * somebody's hints are worth is known by that. What is withdrawn, or gone with its range, is not
 * counted before it is evicted, or not at all.
 */
#include "keep.h"

static struct ps_tier_tenant *stats_of(struct ps_tier *tier, uint16_t tenant) {
  assert(tenant < tier->config.tenant_count);
  return &tier->tenants[tenant].stats;
}

void tier_charge(struct ps_tier *tier, uint16_t tenant) {
  if (stats_of(tier, tenant)->frames++ == 0) tier->holders++;
}

void tier_discharge(struct ps_tier *tier, uint16_t tenant) {
  struct ps_tier_tenant *stats = stats_of(tier, tenant);
  assert(stats->frames > 0 && tier->holders > 0);
  if (--stats->frames == 0) tier->holders--;
}

uint32_t tier_share(const struct ps_tier *tier, uint16_t tenant) {
  bool is_new = tier->tenants[tenant].stats.frames == 0;
  return tier->config.frame_count / (tier->holders + (is_new ? 1 : 0));
}

bool tier_is_at_hint_limit(const struct ps_tier *tier, uint16_t tenant) {
  const struct tenant *found = &tier->tenants[tenant];
  return found->stats.hint_frames >= found->hint_limit;
}

struct tenant *tier_who_hydrates(struct ps_tier *tier, uint16_t tenant, bool is_model) {
  assert(tenant < tier->config.tenant_count);
  return is_model ? &tier->model : &tier->tenants[tenant];
}

bool tier_is_hinted_for(const struct extent *extent, uint16_t tenant) {
  return extent->prestaged && !is_of_model(extent) && extent->tenant == tenant;
}

/* Who answers for what is unread of the extent. */
static struct ps_tier_tenant *answering(struct ps_tier *tier, const struct extent *extent) {
  return &tier_who_hydrates(tier, extent->tenant, is_of_model(extent))->stats;
}

void tier_set_prestaged(struct ps_tier *tier, uint32_t index, bool is_prestaged) {
  struct extent *extent = &tier->extents[index];
  if (extent->prestaged == is_prestaged) return;
  extent->prestaged = is_prestaged;
  bool is_kept = extent->kept && tier->frames[extent->frame].keeper == extent->tenant;
  if (is_kept && !is_of_model(extent)) return; /* it counts for its tenant already */
  struct ps_tier_tenant *stats = answering(tier, extent);
  assert(is_prestaged || stats->hint_frames > 0);
  stats->hint_frames += is_prestaged ? 1 : UINT32_MAX;
}

/* ---- how hints turn out ---- */

static uint64_t bytes_of(const struct ps_tier *tier, const struct extent *extent, uint16_t units) {
  return (uint64_t)unit_count(units) << tier->volumes[extent->volume].unit_shift;
}

void tier_land_hydrate(struct ps_tier *tier, uint32_t index, uint16_t units) {
  struct extent *extent = &tier->extents[index];
  assert((units & ~extent->valid) == 0);
  extent->unread |= units;
  answering(tier, extent)->hydrated_bytes += bytes_of(tier, extent, units);
  tier->stats.hydrated_bytes += bytes_of(tier, extent, units);
}

void tier_waste(struct ps_tier *tier, uint32_t index, uint16_t units) {
  struct extent *extent = &tier->extents[index];
  uint16_t wasted = extent->unread & units;
  if (wasted == 0) return;
  extent->unread = (uint16_t)(extent->unread & ~wasted);
  answering(tier, extent)->wasted_bytes += bytes_of(tier, extent, wasted);
  tier->stats.wasted_bytes += bytes_of(tier, extent, wasted);
}

void tier_settle_hint(struct ps_tier *tier, uint32_t index, bool is_used) {
  struct extent *extent = &tier->extents[index];
  if (!extent->is_owed) return;
  assert(extent->source < PS_TIER_HINTS);
  struct ps_tier_outcome *outcome = &tier->tenants[extent->tenant].outcomes[extent->source];
  extent->is_owed = 0;
  if (is_used) {
    outcome->used++;
  } else {
    outcome->unused++;
  }
}

void tier_meet(struct ps_tier *tier, uint32_t index, uint16_t units, bool is_seen) {
  struct extent *extent = &tier->extents[index];
  bool is_first = extent->hinted && (extent->unread & units) != 0;
  extent->unread = (uint16_t)(extent->unread & ~units);
  tier_set_prestaged(tier, index, false);
  if (!is_first) return;
  tier_settle_hint(tier, index, true);
  extent->hinted = 0;
  if (is_seen) return; /* other units of it were missing */
  answering(tier, extent)->timely_hits++;
  tier->stats.timely_hits++;
}

void tier_meet_late(struct ps_tier *tier, uint32_t index, uint16_t units) {
  struct extent *extent = &tier->extents[index];
  bool is_late = false;
  if (!extent->hinted) return;
  for (uint32_t i = extent->fills; i != NONE; i = tier->ops[i].next) {
    is_late |= tier->ops[i].is_hydrate && (tier->ops[i].live & units) != 0;
  }
  if (!is_late) return;
  tier_settle_hint(tier, index, true);
  extent->hinted = 0;
  answering(tier, extent)->late_hits++;
  tier->stats.late_hits++;
}

/* ---- the calls ---- */

void ps_tier_set_tenant(struct ps_tier *tier, uint16_t tenant, uint32_t hint_frames) {
  assert(tier != NULL && tenant < tier->config.tenant_count);
  tier->tenants[tenant].hint_limit = hint_frames;
}

uint32_t ps_tier_hint_room(const struct ps_tier *tier, uint16_t tenant) {
  assert(tier != NULL && tenant < tier->config.tenant_count);
  uint32_t limit = tier->tenants[tenant].hint_limit;
  uint32_t share = tier_share(tier, tenant);
  uint32_t reach = tier->tenants[tenant].stats.frames + tier->frames_free;
  uint32_t most = reach > share ? reach : share;
  return limit < most ? limit : most;
}

void ps_tier_get_tenant(const struct ps_tier *tier, uint16_t tenant, struct ps_tier_tenant *stats) {
  assert(tier != NULL && stats != NULL && tenant < tier->config.tenant_count);
  *stats = tier->tenants[tenant].stats;
}

void ps_tier_get_outcome(const struct ps_tier *tier, uint16_t tenant, uint32_t source,
                         struct ps_tier_outcome *outcome) {
  assert(tier != NULL && outcome != NULL);
  assert(tenant < tier->config.tenant_count && source < PS_TIER_HINTS);
  *outcome = tier->tenants[tenant].outcomes[source];
}

void ps_tier_get_model(const struct ps_tier *tier, struct ps_tier_tenant *stats) {
  assert(tier != NULL && stats != NULL);
  *stats = tier->model.stats;
}
