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

static void drop(struct ps_hints *hints, uint32_t index) {
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

static bool is_stale(const struct ps_hints *hints, uint64_t now_ns,
                     const struct signature *signature) {
  return signature->expires_ns <= now_ns ||
         signature->epoch != hints_tenant(hints, signature->tenant)->epoch ||
         signature->volume_epoch != hints->volumes[signature->volume].epoch;
}

bool hints_expire_signature(struct ps_hints *hints, uint64_t now_ns, uint32_t index) {
  if (!is_stale(hints, now_ns, signature_at(hints, index))) return false;
  drop(hints, index);
  return true;
}

/* A fresh one for this place; NONE: over budget. */
static uint32_t add(struct ps_hints *hints, uint64_t now_ns, uint16_t tenant, uint16_t volume,
                    uint64_t slba) {
  struct tenant *who = hints_tenant(hints, tenant);
  if (!make_room(hints, now_ns, who)) return NONE;
  uint32_t index = hints_take(&hints->signatures);
  assert(index != NONE);
  struct signature *signature = signature_at(hints, index);
  *signature = (struct signature){.slba = slba,
                                  .epoch = who->epoch,
                                  .volume_epoch = hints->volumes[volume].epoch,
                                  .tenant = tenant,
                                  .volume = volume};
  hints_table_add(&hints->signatures_by_slba, hints_signature_hash(hints, tenant, volume, slba),
                  index);
  who->signatures++;
  hints->live_signatures++;
  return index;
}

static void keep(struct ps_hints *hints, uint64_t now_ns, const struct pax_signature *record,
                 uint32_t index) {
  struct signature *signature = signature_at(hints, index);
  signature->expires_ns = hints_expiry(hints, now_ns, record->ttl_ms);
  signature->nlb = record->nlb;
  signature->bits = record->bits;
  signature->family = record->family;
  memcpy(signature->vector, record->vector, sizeof signature->vector);
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
  uint32_t index = find(hints, scope->tenant, volume, record.slba);
  if (index != NONE && hints_expire_signature(hints, now_ns, index)) index = NONE;
  if (index == NONE) index = add(hints, now_ns, scope->tenant, volume, record.slba);
  if (index == NONE) return PAX_REASON_BUDGET;
  keep(hints, now_ns, &record, index);
  tell(hints, now_ns, scope, &record, &space);
  return PAX_REASON_NONE;
}
