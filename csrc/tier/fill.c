/* Fills: one is a media read of a run of missing units.
 *
 * A fill lands only in its live units. A write, zero or drop of a unit takes it out of the live
 * units of every fill under way, for good: a later fill of the same unit is another operation. So
 * old bytes never land over newer ones, however late they come.
 */
#include "internal.h"

static void make_fill(struct ps_tier *tier, uint32_t index, uint16_t run,
                      const struct ps_tier_access *access, bool is_hydrate) {
  struct extent *extent = &tier->extents[index];
  uint32_t number = tier->fill_free != NONE ? tier->fill_free : tier->fills_used;
  /* FILLS_PER_FRAME runs of 16 units in every frame: they cannot run out, for the units of a run
   * are filled into a frame once. */
  assert(number < tier->fill_count && run != 0 && extent->frame != NONE);
  struct op *op = &tier->ops[number];
  assert(op->state == OP_FREE && op->waiters.first == NULL);
  if (tier->fill_free == NONE) {
    tier->fills_used++; /* never used before: memory that was not touched either */
  } else {
    tier->fill_free = op->next;
  }
  op->kind = PS_TIER_READ;
  op->state = OP_PENDING;
  op->urgency = access->urgency;
  op->deadline_ns = access->urgency == PS_TIER_DATED ? access->deadline_ns : UINT64_MAX;
  op->priority = access->priority;
  op->tenant = access->tenant;
  op->is_hydrate = is_hydrate;
  op->is_promoted = false;
  op->cookie = is_hydrate ? access->cookie : 0;
  op->extent = index;
  op->volume = extent->volume;
  op->frame = extent->frame;
  op->units = run;
  op->live = run;
  op->next = extent->fills;
  extent->fills = number;
  extent->fill |= run;
  tier_hold(tier, op->frame);
  volume_of(tier, extent)->ops++;
  tier_list_fill(tier, number);
}

void tier_start_fills(struct ps_tier *tier, uint32_t index, uint16_t missing,
                      const struct ps_tier_access *access, bool is_hydrate) {
  assert((missing & (tier->extents[index].valid | tier->extents[index].fill)) == 0);
  while (missing != 0) {
    uint16_t run = lowest_run(missing);
    make_fill(tier, index, run, access, is_hydrate);
    missing = (uint16_t)(missing & ~run);
  }
  tier_settle(tier, index);
}

static void wait_for_fill(struct ps_tier *tier, const struct extent *extent, uint16_t units,
                          struct ps_tier_waiter *waiter) {
  for (uint32_t i = extent->fills; i != NONE; i = tier->ops[i].next) {
    if ((tier->ops[i].live & units) == 0) continue;
    tier_wait(tier, waiter, WAIT_FILL, i);
    return;
  }
  assert(false); /* units were missing, and nothing fills them */
}

/* Media work that was under way to or from these units when they were dropped (the volume shrank):
 * a write, so what a fill would read is not settled; or a fill, which still owns these bytes of the
 * frame. A new fill waits for its end. Returns the operation, or NONE. */
uint32_t tier_unsettled(struct ps_tier *tier, const struct extent *extent, uint16_t units) {
  if (extent->write != NO_WRITE) {
    const struct op *op = write_of(tier, extent);
    uint16_t dropped = (uint16_t)(op->units & ~extent->flushing);
    if (op->state == OP_ISSUED && (dropped & units) != 0) return write_base(tier) + extent->write;
  }
  for (uint32_t i = extent->fills; i != NONE; i = tier->ops[i].next) {
    const struct op *op = &tier->ops[i];
    if (op->frame == extent->frame && (op->units & ~op->live & units) != 0) return i;
  }
  return NONE;
}

bool tier_is_exposed(const struct ps_tier *tier, const struct extent *extent, uint16_t units) {
  if (extent->frame == NONE || (extent->exposed & units) == 0) return false;
  return tier->frames[extent->frame].references > 1;
}

/* The extent goes on in another frame, with what it has; who reads the old one keeps that. */
static bool move_out(struct ps_tier *tier, uint32_t index, struct ps_tier_waiter *waiter) {
  uint32_t frame = tier_get_frame(tier, waiter);
  if (frame == NONE) return false;
  const struct extent *extent = &tier->extents[index];
  uint32_t unit = volume_of(tier, extent)->unit_size;
  for (uint16_t rest = extent->valid; rest != 0;) {
    uint16_t run = lowest_run(rest);
    uint32_t start = first_unit(run) * unit;
    tier_copy(tier, frame, extent->frame, start, start + unit_count(run) * unit);
    rest = (uint16_t)(rest & ~run);
  }
  tier_set_frame(tier, index, frame);
  return true;
}

/* The class of what an access brings in. */
static uint32_t class_of(const struct ps_tier_access *access, const struct ps_tier_waiter *waiter) {
  if (access->once) return CLASS_ONCE;
  return waiter == NULL ? CLASS_HYDRATED : CLASS_READ;
}

bool tier_need(struct ps_tier *tier, const struct span *span, uint16_t units,
               const struct ps_tier_access *access, struct ps_tier_waiter *waiter) {
  uint32_t index = tier_find(tier, span->volume, span->number);
  uint16_t missing = units;
  if (index != NONE) {
    struct extent *extent = &tier->extents[index];
    if ((units & ~extent->valid) == 0) return true;
    missing = (uint16_t)(units & ~extent->valid & ~extent->fill);
    tier_promote(tier, extent, (uint16_t)(units & ~extent->valid), access);
    uint32_t op = tier_unsettled(tier, extent, missing);
    if (op != NONE) {
      if (waiter != NULL) tier_wait(tier, waiter, WAIT_FILL, op);
      return false;
    }
    if (tier_is_exposed(tier, extent, missing) && !move_out(tier, index, waiter)) return false;
  }
  if (missing != 0 && (index == NONE || tier->extents[index].frame == NONE)) {
    uint32_t frame = tier_get_frame(tier, waiter);
    if (frame == NONE) return false;
    index = tier_bring_in(tier, index, span, access->tenant, class_of(access, waiter), frame);
  }
  if (missing != 0) tier_start_fills(tier, index, missing, access, false);
  if (waiter != NULL) wait_for_fill(tier, &tier->extents[index], units, waiter);
  return false;
}

void tier_cancel_fills(struct ps_tier *tier, uint32_t index, uint16_t units) {
  struct extent *extent = &tier->extents[index];
  if ((extent->fill & units) == 0) return;
  for (uint32_t i = extent->fills; i != NONE; i = tier->ops[i].next) {
    struct op *op = &tier->ops[i];
    op->live = (uint16_t)(op->live & ~units);
    if (op->live == 0) tier_wake_all(tier, &op->waiters, 0);
  }
  extent->fill = (uint16_t)(extent->fill & ~units);
}

/* ---- the operation ---- */

static void free_fill(struct ps_tier *tier, uint32_t number) {
  struct op *op = &tier->ops[number];
  struct extent *extent = &tier->extents[op->extent];
  uint32_t *link = &extent->fills;
  while (*link != number) link = &tier->ops[*link].next;
  *link = op->next;
  assert(volume_of(tier, extent)->ops > 0);
  volume_of(tier, extent)->ops--;
  tier_drop_promotion(tier, number);
  op->state = OP_FREE;
  op->next = tier->fill_free;
  tier->fill_free = number;
  tier_unhold(tier, op->frame);
}

static uint32_t last_unit(uint16_t units) {
  assert(units != 0);
  return 31 - (uint32_t)__builtin_clz(units);
}

static void land(struct ps_tier *tier, struct extent *extent, const struct op *op) {
  uint32_t unit = volume_of(tier, extent)->unit_size;
  uint16_t rest = op->live;
  assert(extent->frame != NONE && (extent->valid & op->live) == 0);
  while (rest != 0 && extent->frame != op->frame) {
    uint16_t run = lowest_run(rest);
    uint32_t start = first_unit(run) * unit;
    tier_copy(tier, extent->frame, op->frame, start, start + unit_count(run) * unit);
    rest = (uint16_t)(rest & ~run);
  }
  extent->valid |= op->live;
  /* Writes may have taken units out of the middle. */
  uint32_t end = (last_unit(op->live) + 1) * unit;
  if (end > extent_bytes(tier, volume_of(tier, extent), extent->number)) {
    tier_clear_tail(tier, extent->volume, extent->number, extent->frame);
  }
}

void tier_end_fill(struct ps_tier *tier, uint32_t number, int32_t error) {
  struct op *op = &tier->ops[number];
  uint32_t index = op->extent;
  struct extent *extent = &tier->extents[index];
  assert(op->kind == PS_TIER_READ && (op->live & ~extent->fill) == 0);
  extent->fill = (uint16_t)(extent->fill & ~op->live);
  if (error != 0) {
    tier->stats.fill_errors++;
  } else if (op->live != 0) {
    land(tier, extent, op);
    if (op->is_hydrate) tier_land_hydrate(tier, index, op->live);
    extent->last_use = tier_ticks(tier->now_ns);
    if (op->waiters.first != NULL) extent->promised = 1;
  }
  tier_wake_all(tier, &op->waiters, op->live != 0 ? error : 0);
  free_fill(tier, number);
  tier_settle(tier, index);
}

bool tier_issue_fill(struct ps_tier *tier, uint32_t least, struct ps_tier_action *action) {
  uint32_t number;
  while ((number = tier_next_fill(tier, least)) != NONE) {
    struct op *op = &tier->ops[number];
    assert(op->state == OP_PENDING);
    if (op->live == 0) { /* written or dropped before the read began */
      tier_end_fill(tier, number, 0);
      tier_pump(tier);
      continue;
    }
    op->state = OP_ISSUED;
    tier->stats.fills++;
    tier_describe(tier, number, action);
    return true;
  }
  return false;
}
