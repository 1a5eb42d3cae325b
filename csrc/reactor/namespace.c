/* The namespace maps: which volume, or the extension namespace, an NSID of a subsystem is. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

static struct namespace_slot *slot_of(struct ps_core *core, uint32_t subsystem, uint32_t nsid) {
  if (subsystem >= PS_MAX_SUBSYSTEMS || nsid == 0 || nsid > PS_MAX_NSID) return NULL;
  struct namespace_slot *slots = core->maps[subsystem].slots;
  return slots == NULL ? NULL : &slots[nsid];
}

static bool is_taken(const struct namespace_slot *slot) {
  return slot->volume != NULL || slot->is_extension;
}

/* The slot of a namespace, with the caller counted as its user; NULL when there is none. */
const struct namespace_slot *namespace_enter(struct ps_core *core, uint32_t subsystem,
                                             uint32_t nsid) {
  assert(core != NULL);
  struct namespace_slot *slot = slot_of(core, subsystem, nsid);
  if (slot == NULL || !is_taken(slot) || slot->is_unmapping) return NULL;
  slot->users++;
  return slot;
}

static void say_unmapped(struct ps_core *core, uint32_t cookie) {
  notice_send(core, &(struct ps_notice){.kind = PS_NOTICE_UNMAPPED, .cookie = cookie});
}

static void clear_slot(struct ps_core *core, uint32_t subsystem, struct namespace_slot *slot) {
  assert(core->removals > 0);
  core->removals--;
  if (slot->is_extension) core->maps[subsystem].extension_nsid = 0;
  slot->volume = NULL;
  slot->is_extension = slot->is_unmapping = false;
}

void namespace_leave(struct ps_core *core, uint32_t subsystem, uint32_t nsid) {
  struct namespace_slot *slot = slot_of(core, subsystem, nsid);
  assert(slot != NULL && slot->users > 0);
  if (--slot->users > 0 || !slot->is_unmapping) return;
  clear_slot(core, subsystem, slot);
  say_unmapped(core, slot->cookie);
}

/* As ps_hints_resolve: hints may name what commands may still be started on. What is unmapped, or
 * whose volume was abandoned or is about to close, has no name any more. */
bool namespace_resolve(void *context, uint32_t subsystem, uint32_t nsid,
                       struct ps_hints_namespace *result) {
  struct ps_core *core = context;
  assert(core != NULL && result != NULL);
  const struct namespace_slot *slot = slot_of(core, subsystem, nsid);
  if (slot == NULL || slot->volume == NULL || slot->is_unmapping) return false;
  const struct volume *volume = slot->volume;
  if (!volume->is_open || volume->is_dead || volume->is_leaving) return false;
  *result = (struct ps_hints_namespace){.volume = volume->number,
                                        .block_shift = volume->block_shift,
                                        .blocks = volume->size >> volume->block_shift};
  return true;
}

/* A free slot, or NULL with the reason in `error`. */
static struct namespace_slot *take_slot(struct ps_core *core, uint32_t subsystem, uint32_t nsid,
                                        int *error) {
  struct namespace_map *map = &core->maps[subsystem];
  if (map->slots == NULL) map->slots = calloc(PS_MAX_NSID + 1, sizeof *map->slots);
  *error = map->slots == NULL ? -ENOMEM : is_taken(&map->slots[nsid]) ? -EEXIST : 0;
  return *error == 0 ? &map->slots[nsid] : NULL;
}

int ps_core_map(struct ps_core *core, uint32_t subsystem, uint32_t nsid, uint32_t number) {
  assert(core != NULL);
  if (subsystem >= PS_MAX_SUBSYSTEMS || nsid == 0 || nsid > PS_MAX_NSID) return -EINVAL;
  if (number >= PS_MAX_VOLUMES || !core->volumes[number].is_open) return -ENOENT;
  int result;
  core_lock(core);
  struct namespace_slot *slot = take_slot(core, subsystem, nsid, &result);
  if (slot != NULL) slot->volume = &core->volumes[number];
  core_unlock(core);
  return result;
}

int ps_core_map_extension(struct ps_core *core, uint32_t subsystem, uint32_t nsid) {
  assert(core != NULL);
  if (subsystem >= PS_MAX_SUBSYSTEMS || nsid == 0 || nsid > PS_MAX_NSID) return -EINVAL;
  int result = -EEXIST;
  core_lock(core);
  struct namespace_slot *slot = NULL;
  if (core->maps[subsystem].extension_nsid == 0) slot = take_slot(core, subsystem, nsid, &result);
  if (slot != NULL) {
    slot->is_extension = true;
    core->maps[subsystem].extension_nsid = nsid;
  }
  core_unlock(core);
  return result;
}

int ps_core_unmap(struct ps_core *core, uint32_t subsystem, uint32_t nsid, uint32_t cookie) {
  assert(core != NULL);
  bool found = false, is_unused = false;
  core_lock(core);
  struct namespace_slot *slot = slot_of(core, subsystem, nsid);
  if (slot != NULL && is_taken(slot) && !slot->is_unmapping) {
    found = true;
    is_unused = slot->users == 0;
    slot->is_unmapping = true;
    slot->cookie = cookie;
    core->removals++;
    if (is_unused) clear_slot(core, subsystem, slot);
  }
  core_unlock(core);
  if (is_unused) say_unmapped(core, cookie);
  return found ? 0 : -ENOENT;
}
