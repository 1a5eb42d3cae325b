/* How far a tenant's hints are trusted, by kind: by the share of what they brought in that was read
 * while it was there for them. A tenant begins with a credit of extents that count as read, so that
 * a few that were not say little. What was seen fades as more is seen, and the credit does not.
 *
 * Only what was brought in counts, for that is what a hint costs: who names what is warm anyway
 * gains no trust by it. Whoever has lost it is listened to now and then, and gets it back when what
 * is brought in then is read. */
#include "internal.h"

enum {
  CREDIT_SHARE = 4,   /* one extent of so many that the tenant's hints may hold in the tier ... */
  CREDIT_LEAST = 256, /* ... or so many are its credit */
  MEMORY = 8,         /* credits of extents that are remembered */
  LOST = 4,           /* trust is lost when less than one of so many extents was read ... */
  REGAINED = 3,       /* ... and comes back when one of so many is */
  PROBES = 20         /* one of so many hints is listened to without trust */
};

static uint64_t credit_of(const struct ps_hints *hints, const struct tenant *tenant) {
  uint64_t extents = hints_budget(hints, tenant)->tier_bytes >> hints->slot_shift;
  uint64_t credit = extents / CREDIT_SHARE;
  if (credit < CREDIT_LEAST) return CREDIT_LEAST;
  return hints_min(credit, UINT32_MAX / (2 * MEMORY));
}

/* Half of what is more than it remembers is forgotten. */
static void fade(struct trust *trust, uint64_t used, uint64_t unused, uint64_t most) {
  while (used + unused > most) {
    used /= 2;
    unused /= 2;
  }
  trust->used = (uint32_t)used;
  trust->unused = (uint32_t)unused;
}

static void learn(const struct ps_hints *hints, uint16_t tenant, uint32_t source) {
  struct tenant *who = hints_tenant(hints, tenant);
  struct trust *trust = &who->trusts[source];
  struct ps_tier_outcome now;
  ps_tier_get_outcome(hints->tier, tenant, source, &now);
  uint64_t used = trust->used + (now.used - trust->seen.used);
  uint64_t unused = trust->unused + (now.unused - trust->seen.unused);
  uint64_t credit = credit_of(hints, who);
  trust->seen = now;
  fade(trust, used, unused, credit * MEMORY);
  uint64_t good = credit + trust->used;
  uint64_t all = good + trust->unused;
  trust->is_lost = good * (trust->is_lost ? REGAINED : LOST) < all;
}

bool hints_is_trusted(const struct ps_hints *hints, uint16_t tenant, uint32_t source) {
  assert(hints != NULL && source < PS_TIER_HINTS);
  learn(hints, tenant, source);
  return !hints_tenant(hints, tenant)->trusts[source].is_lost;
}

bool hints_may_act(struct ps_hints *hints, uint16_t tenant, uint32_t source) {
  if (hints_is_trusted(hints, tenant, source)) return true;
  struct trust *trust = &hints_tenant(hints, tenant)->trusts[source];
  bool is_probe = ++trust->untrusted % PROBES == 0;
  if (!is_probe) trust->left_out++;
  return is_probe;
}

void ps_hints_get_trust(struct ps_hints *hints, uint16_t tenant, uint32_t source,
                        struct ps_hints_trust *trust) {
  assert(trust != NULL);
  bool is_trusted = hints_is_trusted(hints, tenant, source);
  const struct trust *known = &hints_tenant(hints, tenant)->trusts[source];
  *trust = (struct ps_hints_trust){.used = known->seen.used,
                                   .unused = known->seen.unused,
                                   .left_out = known->left_out,
                                   .is_trusted = is_trusted};
}
