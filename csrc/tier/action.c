/* What is to be done now: reads that somebody waits for, or is to come for by a time; writes;
 * syncs; reads that nobody asked for. */
#include "internal.h"

void tier_describe(const struct ps_tier *tier, uint32_t number, struct ps_tier_action *action) {
  const struct op *op = &tier->ops[number];
  const struct volume *volume = &tier->volumes[op->volume];
  *action = (struct ps_tier_action){.op = op->kind,
                                    .volume = op->volume,
                                    .frame = NONE,
                                    .ticket = number,
                                    .deadline_ns = UINT64_MAX,
                                    .urgency = op->urgency};
  if (op->kind == PS_TIER_SYNC) return;
  action->tenant = op->tenant;
  if (op->kind == PS_TIER_READ) {
    action->deadline_ns = op->deadline_ns;
    action->cookie = op->cookie;
    action->priority = op->priority;
  }
  const struct extent *extent = &tier->extents[op->extent];
  uint32_t start = first_unit(op->units) * volume->unit_size;
  uint32_t end = start + unit_count(op->units) * volume->unit_size;
  uint32_t bytes = extent_bytes(tier, volume, extent->number);
  if (end > bytes) end = bytes;
  assert(start < end); /* units beyond the end are neither filled nor written */
  action->offset = (extent->number << tier->slot_shift) + start;
  action->length = end - start;
  action->frame = op->frame;
  action->frame_offset = start;
}

bool ps_tier_next_action(struct ps_tier *tier, uint64_t now_ns, uint32_t least,
                         struct ps_tier_action *action) {
  assert(action != NULL && least <= PS_TIER_SPECULATIVE);
  uint32_t before_writes = least < PS_TIER_DATED ? least : PS_TIER_DATED;
  tier_enter(tier, now_ns, NULL);
  tier_pump(tier);
  return tier_issue_fill(tier, before_writes, action) || tier_issue_write(tier, action) ||
         tier_issue_sync(tier, action) || tier_issue_fill(tier, least, action);
}

void ps_tier_complete(struct ps_tier *tier, uint64_t now_ns, uint32_t ticket, int32_t error) {
  assert(tier != NULL && ticket < tier->op_count && error >= 0);
  assert(tier->ops[ticket].state == OP_ISSUED);
  tier_enter(tier, now_ns, NULL);
  switch (tier->ops[ticket].kind) {
    case PS_TIER_READ:
      tier_end_fill(tier, ticket, error);
      break;
    case PS_TIER_WRITE:
      tier_end_write(tier, ticket, error);
      break;
    default:
      tier_end_sync(tier, ticket, error);
      break;
  }
  tier_pump(tier);
}

uint64_t ps_tier_next_time(const struct ps_tier *tier) {
  assert(tier != NULL);
  uint64_t time = UINT64_MAX;
  uint32_t number = tier->active.first;
  while (number != NONE) {
    deadline_min(&time, tier_writeback_time(tier, &tier->volumes[number]));
    number = tier_list_next(&tier->active, number);
  }
  if (tier->frame_queue.first != NULL && tier->promised.first != NONE) {
    uint32_t last_use = tier->extents[tier->promised.first].last_use;
    deadline_min(&time, tier_tick_ns(tier, last_use) + ((uint64_t)PROMISE_TICKS << TICK_SHIFT));
  }
  return time;
}
