/* Signatures by tenant, volume and first block. They are for the model: kept, and replaced. */
#include "internal.h"

uint64_t hints_signature_hash(const struct ps_hints *hints, uint16_t tenant, uint16_t volume,
                              uint64_t slba) {
  assert(hints != NULL);
  return hints_hash(hints, (uint64_t)tenant << 16 | volume, slba);
}

static struct signature *signature_at(const struct ps_hints *hints, uint32_t index) {
  return hints_item(&hints->signatures, index);
}

void hints_drop_signature(struct ps_hints *hints, uint32_t index) {
  struct signature *signature = signature_at(hints, index);
  assert(signature->bits != 0);
  struct tenant *tenant = hints_tenant(hints, signature->tenant);
  uint64_t hash =
      hints_signature_hash(hints, signature->tenant, signature->volume, signature->slba);
  hints_table_remove(&hints->signatures_by_slba, hash, index);
  if (signature->epoch == tenant->epoch) tenant->signatures--;
  hints->live_signatures--;
  hints_give(&hints->signatures, index);
}

static uint32_t find(const struct ps_hints *hints, uint16_t tenant, uint16_t volume,
                     uint64_t slba) {
  uint64_t hash = hints_signature_hash(hints, tenant, volume, slba);
  uint32_t index = hints_table_first(&hints->signatures_by_slba, hash);
  while (index != NONE) {
    const struct signature *signature = signature_at(hints, index);
    bool is_same = signature->slba == slba && signature->tenant == tenant;
    if (is_same && signature->volume == volume) return index;
    index = signature->hash_next;
  }
  return NONE;
}

static bool make_room(struct ps_hints *hints, uint64_t now_ns, const struct tenant *tenant) {
  for (uint32_t i = 0; i < 2; i++) {
    if (i > 0) hints_sweep_signatures(hints, now_ns, LOOK_MOST);
    if (tenant->signatures < hints_budget(hints, tenant)->signatures &&
        hints->live_signatures < hints->config.signatures) {
      return true;
    }
  }
  return false;
}

static void keep(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                 const struct pax_signature *record, uint16_t volume) {
  uint32_t index = hints_take(&hints->signatures);
  assert(index != NONE);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  struct signature *signature = signature_at(hints, index);
  *signature = (struct signature){.slba = record->slba,
                                  .expires_ns = hints_expiry(hints, now_ns, record->ttl_ms),
                                  .nlb = record->nlb,
                                  .epoch = tenant->epoch,
                                  .volume_epoch = hints->volumes[volume].epoch,
                                  .tenant = scope->tenant,
                                  .volume = volume,
                                  .bits = record->bits,
                                  .family = record->family};
  memcpy(signature->vector, record->vector, sizeof signature->vector);
  hints_table_add(&hints->signatures_by_slba,
                  hints_signature_hash(hints, scope->tenant, volume, record->slba), index);
  tenant->signatures++;
  hints->live_signatures++;
  hints_sweep_soon(&hints->signature_sweep, signature->expires_ns);
}

static void tell(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                 const struct pax_signature *record, const struct ps_hints_namespace *space) {
  struct ps_fact fact = {.time_ns = now_ns,
                         .offset = record->slba << space->block_shift,
                         .length = (uint64_t)record->nlb << space->block_shift,
                         .aux = (uint32_t)record->bits << 16 | record->family,
                         .volume = (uint16_t)space->volume,
                         .tenant = scope->tenant,
                         .kind = PS_FACT_SIGNATURE,
                         .queue = scope->queue};
  memcpy(&fact.id, record->vector, sizeof fact.id);
  if (record->bits == 128) memcpy(&fact.value, record->vector + 8, sizeof fact.value);
  hints_fact(hints, &fact);
}

uint8_t hints_apply_signature(struct ps_hints *hints, uint64_t now_ns,
                              const struct ps_hints_scope *scope, const uint8_t *bytes) {
  assert(hints != NULL && scope != NULL && bytes != NULL);
  struct pax_signature record;
  memcpy(&record, bytes, sizeof record);
  struct ps_hints_namespace space;
  if (!hints_find_space(hints, scope, record.nsid, &space, NULL, 0) ||
      !hints_is_within(&space, record.slba, record.nlb)) {
    return PAX_REASON_NAMESPACE;
  }
  uint16_t volume = (uint16_t)space.volume;
  uint32_t old = find(hints, scope->tenant, volume, record.slba);
  if (old != NONE) hints_drop_signature(hints, old);
  if (!make_room(hints, now_ns, hints_tenant(hints, scope->tenant))) return PAX_REASON_BUDGET;
  keep(hints, now_ns, scope, &record, volume);
  tell(hints, now_ns, scope, &record, &space);
  return PAX_REASON_NONE;
}
