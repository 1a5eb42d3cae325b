/* Memory of what has lived its time comes back: steps over a pool, a bounded number of items each.
 * A pass remembers when the first of what it leaves behind will expire; nothing is done before. */
#include "internal.h"

void hints_sweep_soon(struct sweep *sweep, uint64_t when_ns) {
  assert(sweep != NULL);
  if (when_ns < sweep->earliest_ns) sweep->earliest_ns = when_ns;
  if (when_ns < sweep->step_ns) sweep->step_ns = when_ns;
}

/* A pass over everything begins now: epochs have changed. */
void hints_sweep_now(struct ps_hints *hints, uint64_t now_ns) {
  assert(hints != NULL);
  struct sweep *both[] = {&hints->set_sweep, &hints->signature_sweep};
  for (uint32_t i = 0; i < 2; i++) {
    both[i]->earliest_ns = hints_min(both[i]->earliest_ns, now_ns);
    both[i]->step_ns = hints_min(both[i]->step_ns, now_ns);
  }
}

/* Looks at one set, and frees it when it is stale; returns the work that was done. */
static uint32_t look_at_set(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  const struct set *set = hints_set(hints, index);
  if ((set->flags & (SET_USED | SET_DEAD | SET_OF_INTENT)) != SET_USED) return 1;
  if (hints_is_stale(hints, set, now_ns)) {
    uint32_t work = 1 + (set->range_count < BURY_RANGES ? set->range_count : BURY_RANGES);
    hints_drop_set(hints, index);
    return work;
  }
  struct sweep *sweep = &hints->set_sweep;
  sweep->earliest_ns = hints_min(sweep->earliest_ns, set->expires_ns);
  return 1;
}

static uint32_t look_at_signature(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  const struct signature *signature = hints_item(&hints->signatures, index);
  if (signature->bits == 0) return 1;
  if (hints_expire_signature(hints, now_ns, index)) return 1;
  struct sweep *sweep = &hints->signature_sweep;
  sweep->earliest_ns = hints_min(sweep->earliest_ns, signature->expires_ns);
  return 1;
}

typedef uint32_t (*look)(struct ps_hints *hints, uint64_t now_ns, uint32_t index);

/* True at the end of a pass. */
static bool step(struct ps_hints *hints, uint64_t now_ns, struct sweep *sweep,
                 const struct pool *pool, look look_at, uint32_t items) {
  if (sweep->at >= pool->fresh) sweep->at = 0;
  if (sweep->at == 0) sweep->earliest_ns = UINT64_MAX;
  for (uint32_t work = 0; work < items && sweep->at < pool->fresh;) {
    work += look_at(hints, now_ns, ++sweep->at);
  }
  return sweep->at >= pool->fresh;
}

static void run(struct ps_hints *hints, uint64_t now_ns, struct sweep *sweep,
                const struct pool *pool, look look_at) {
  if (sweep->step_ns > now_ns) return;
  if (!step(hints, now_ns, sweep, pool, look_at, SWEEP_ITEMS)) {
    sweep->step_ns = now_ns + SWEEP_STEP_NS;
    return;
  }
  sweep->at = 0;
  sweep->step_ns = sweep->earliest_ns;
  if (sweep->step_ns < now_ns + SWEEP_STEP_NS) sweep->step_ns = now_ns + SWEEP_STEP_NS;
}

static void bury(struct ps_hints *hints, uint64_t now_ns) {
  if (hints->bury_ns > now_ns) return;
  hints_bury(hints, SWEEP_ITEMS);
  hints->bury_ns = hints->graves == NONE ? UINT64_MAX : now_ns + SWEEP_STEP_NS;
}

void hints_sweep(struct ps_hints *hints, uint64_t now_ns) {
  assert(hints != NULL);
  bury(hints, now_ns);
  run(hints, now_ns, &hints->set_sweep, &hints->sets, look_at_set);
  run(hints, now_ns, &hints->signature_sweep, &hints->signatures, look_at_signature);
}

void hints_sweep_sets(struct ps_hints *hints, uint64_t now_ns, uint32_t items) {
  step(hints, now_ns, &hints->set_sweep, &hints->sets, look_at_set, items);
}

void hints_sweep_signatures(struct ps_hints *hints, uint64_t now_ns, uint32_t items) {
  step(hints, now_ns, &hints->signature_sweep, &hints->signatures, look_at_signature, items);
}
