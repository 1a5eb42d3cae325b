/* SET records, and Dataset Management as one. */
#include "internal.h"

/* Ranges of a record: all of them within the namespace. */
static bool are_within(const struct ps_hints_namespace *space, const uint8_t *ranges,
                       uint32_t count) {
  struct pax_range range;
  for (uint32_t i = 0; i < count; i++) {
    memcpy(&range, ranges + i * sizeof range, sizeof range);
    if (!hints_is_within(space, range.slba, range.nlb)) return false;
  }
  return true;
}

void hints_append_all(struct ps_hints *hints, uint32_t set, const uint8_t *ranges, uint32_t count) {
  struct pax_range range;
  for (uint32_t i = 0; i < count; i++) {
    memcpy(&range, ranges + i * sizeof range, sizeof range);
    hints_append(hints, set, range.slba << hints_set(hints, set)->block_shift, range.nlb);
  }
}

bool hints_find_space(const struct ps_hints *hints, const struct ps_hints_scope *scope,
                      uint32_t nsid, struct ps_hints_namespace *space, const uint8_t *ranges,
                      uint32_t count) {
  assert(scope != NULL && space != NULL);
  if (!hints->resolve(hints->context, scope->subsystem, nsid, space)) return false;
  if (space->volume >= hints->config.volume_count) return false;
  if (hints->volumes[space->volume].sched == NULL) return false;
  return are_within(space, ranges, count);
}

static uint8_t drop(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                    uint64_t id) {
  uint32_t index = hints_find_set(hints, now_ns, scope->tenant, id);
  if (index == NONE) return PAX_REASON_SET;
  hints_drop_set(hints, index);
  return PAX_REASON_NONE;
}

static uint8_t extend(struct ps_hints *hints, uint64_t now_ns, uint32_t index,
                      const struct pax_set *record, const uint8_t *ranges) {
  if (!hints_extend(hints, now_ns, index, record->range_count)) return PAX_REASON_BUDGET;
  hints_append_all(hints, index, ranges, record->range_count);
  struct set *set = hints_set(hints, index);
  set->expires_ns = hints_expiry(hints, now_ns, record->ttl_ms);
  set->flags &= (uint8_t)~SET_THROUGH;
  hints_sweep_soon(&hints->set_sweep, set->expires_ns);
  return PAX_REASON_NONE;
}

static uint8_t define(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      const struct pax_set *record, const struct ps_hints_namespace *space,
                      const uint8_t *ranges) {
  bool is_ordered = (record->flags & PAX_SET_FLAG_ORDERED) != 0;
  struct set like = {.id = record->set_id,
                     .expires_ns = hints_expiry(hints, now_ns, record->ttl_ms),
                     .nsid = record->nsid,
                     .tenant = scope->tenant,
                     .volume = (uint16_t)space->volume,
                     .subsystem = scope->subsystem,
                     .flags = is_ordered ? SET_ORDERED : 0,
                     .block_shift = (uint8_t)space->block_shift};
  uint32_t index = hints_define(hints, now_ns, &like, record->range_count);
  if (index == NONE) return PAX_REASON_BUDGET;
  hints_append_all(hints, index, ranges, record->range_count);
  return PAX_REASON_NONE;
}

static void tell(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                 const struct pax_set *record, const struct ps_hints_namespace *space,
                 const uint8_t *ranges) {
  struct ps_fact fact = {.time_ns = now_ns,
                         .id = record->set_id,
                         .value = (uint64_t)record->op << 32 | record->ttl_ms,
                         .aux = record->range_count,
                         .volume = (uint16_t)space->volume,
                         .tenant = scope->tenant,
                         .kind = PS_FACT_SET,
                         .flags = record->flags,
                         .queue = scope->queue};
  hints_facts(hints, &fact, ranges, record->range_count, space->block_shift);
}

static uint8_t apply(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     const struct pax_set *record, const uint8_t *ranges) {
  struct ps_hints_namespace space = {0};
  uint8_t reason;
  if (record->op == PAX_SET_OP_DROP) {
    reason = drop(hints, now_ns, scope, record->set_id);
  } else if (!hints_find_space(hints, scope, record->nsid, &space, ranges, record->range_count)) {
    return PAX_REASON_NAMESPACE;
  } else {
    uint32_t old = NONE;
    if (record->op == PAX_SET_OP_EXTEND) {
      struct ps_hints_namespace own;
      old = hints_use_set(hints, now_ns, scope, record->set_id, &own, &reason);
      bool is_same =
          old == NONE ? reason == PAX_REASON_SET : hints_set(hints, old)->nsid == record->nsid;
      if (!is_same) return PAX_REASON_NAMESPACE;
    }
    reason = old != NONE ? extend(hints, now_ns, old, record, ranges)
                         : define(hints, now_ns, scope, record, &space, ranges);
  }
  if (reason == PAX_REASON_NONE) tell(hints, now_ns, scope, record, &space, ranges);
  return reason;
}

uint8_t hints_apply_set(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                        const uint8_t *bytes) {
  assert(hints != NULL && scope != NULL && bytes != NULL);
  struct pax_set record;
  memcpy(&record, bytes, sizeof record);
  return apply(hints, now_ns, scope, &record, bytes + sizeof record);
}

/* A range as Dataset Management has it (NVM 1.0, figure 41). */
struct dataset_range {
  uint32_t attributes;
  uint32_t nlb;
  uint64_t slba;
};
enum { DATASET_RANGES = 256 };

void ps_hints_dataset(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      uint32_t nsid, const uint8_t *bytes, uint32_t count) {
  assert(hints != NULL && scope != NULL && bytes != NULL);
  assert(count <= DATASET_RANGES);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  struct pax_range ranges[DATASET_RANGES];
  struct pax_set record = {.op = PAX_SET_OP_DEFINE, .flags = PAX_SET_FLAG_ORDERED, .nsid = nsid};
  for (uint32_t i = 0; i < count; i++) {
    struct dataset_range range;
    memcpy(&range, bytes + i * sizeof range, sizeof range);
    if (range.nlb == 0) continue;
    ranges[record.range_count++] = (struct pax_range){.slba = range.slba, .nlb = range.nlb};
  }
  if (record.range_count == 0) return;
  uint8_t reason = PAX_REASON_RATE;
  if (hints_take_record(hints, tenant, now_ns, record.range_count)) {
    record.set_id = TARGET_SET | tenant->implicit_next++;
    reason = apply(hints, now_ns, scope, &record, (const uint8_t *)ranges);
  }
  hints_count_records(tenant, now_ns, 1);
  hints->stats.records++;
  if (reason == PAX_REASON_NONE) {
    tenant->dataset_sets++;
  } else {
    tenant->dropped[reason]++;
    hints->stats.dropped++;
  }
}
