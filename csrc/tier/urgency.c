/* How urgent fills are: the order in which pending ones are handed out, and news of those that
 * become more urgent afterwards. */
#include "internal.h"

/* Of one deadline, by priority and then in the order in which they came. */
static uint32_t next_rank(struct ps_tier *tier, uint32_t priority) {
  return (priority & 3) << 30 | (tier->dated_count++ & ((1u << 30) - 1));
}

void tier_list_fill(struct ps_tier *tier, uint32_t number) {
  struct op *op = &tier->ops[number];
  assert(op->kind == PS_TIER_READ && op->state == OP_PENDING && !op->is_promoted);
  if (op->urgency == PS_TIER_DEMAND) {
    tier_list_append(&tier->demand_fills, number);
  } else if (op->urgency == PS_TIER_DATED) {
    tier_heap_add(&tier->dated_fills, number, op->deadline_ns, next_rank(tier, op->priority));
  } else {
    tier_list_append(&tier->speculative_fills, number);
  }
}

static void unlist(struct ps_tier *tier, uint32_t number) {
  const struct op *op = &tier->ops[number];
  assert(op->state == OP_PENDING);
  if (op->urgency == PS_TIER_DEMAND) {
    tier_list_remove(&tier->demand_fills, number);
  } else if (op->urgency == PS_TIER_DATED) {
    tier_heap_remove(&tier->dated_fills, number);
  } else {
    tier_list_remove(&tier->speculative_fills, number);
  }
}

uint32_t tier_next_fill(struct ps_tier *tier, uint32_t least) {
  uint32_t number = tier->demand_fills.first;
  bool has_dated = tier->dated_fills.length > 0;
  assert(least <= PS_TIER_SPECULATIVE);
  if (number == NONE && least >= PS_TIER_DATED && has_dated)
    number = tier->dated_fills.entries[0].item;
  if (number == NONE && least == PS_TIER_SPECULATIVE) number = tier->speculative_fills.first;
  if (number != NONE) unlist(tier, number);
  return number;
}

static bool is_sooner(const struct ps_tier_access *access, const struct op *op) {
  if (access->urgency != op->urgency) return access->urgency < op->urgency;
  return access->urgency == PS_TIER_DATED && access->deadline_ns < op->deadline_ns;
}

void tier_promote(struct ps_tier *tier, const struct extent *extent, uint16_t units,
                  const struct ps_tier_access *access) {
  for (uint32_t i = extent->fills; i != NONE; i = tier->ops[i].next) {
    struct op *op = &tier->ops[i];
    /* Also one that may not land any more: its end may be waited for. */
    if ((op->units & units) == 0 || !is_sooner(access, op)) continue;
    bool is_pending = op->state == OP_PENDING;
    if (is_pending) unlist(tier, i);
    op->urgency = access->urgency;
    op->deadline_ns = access->urgency == PS_TIER_DATED ? access->deadline_ns : UINT64_MAX;
    op->priority = access->priority;
    if (is_pending) tier_list_fill(tier, i);
    if (is_pending || op->is_promoted) continue;
    op->is_promoted = true;
    tier_list_append(&tier->promotions, i);
  }
}

void tier_drop_promotion(struct ps_tier *tier, uint32_t number) {
  struct op *op = &tier->ops[number];
  if (!op->is_promoted) return;
  op->is_promoted = false;
  tier_list_remove(&tier->promotions, number);
}

bool ps_tier_next_promotion(struct ps_tier *tier, struct ps_tier_promotion *promotion) {
  assert(tier != NULL && promotion != NULL);
  uint32_t number = tier->promotions.first;
  if (number == NONE) return false;
  const struct op *op = &tier->ops[number];
  assert(op->state == OP_ISSUED && op->kind == PS_TIER_READ);
  *promotion = (struct ps_tier_promotion){
      .deadline_ns = op->deadline_ns, .ticket = number, .urgency = op->urgency};
  tier_drop_promotion(tier, number);
  return true;
}
