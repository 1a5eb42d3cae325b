/* Volumes: adding, resizing, removing, and cutting their bytes into extents and units. */
#include "internal.h"

static bool is_power_of_two(uint32_t number) { return number != 0 && (number & (number - 1)) == 0; }

int ps_tier_volume_add(struct ps_tier *tier, uint32_t number, uint64_t size, uint32_t block_size) {
  assert(tier != NULL);
  uint32_t slot = tier->config.slot_size;
  if (number >= tier->config.volume_count) return -EINVAL;
  if (!is_power_of_two(block_size) || block_size < 512 || block_size > slot) return -EINVAL;
  if (size % block_size != 0 || size > UINT64_MAX / 2) return -EINVAL;
  struct volume *volume = &tier->volumes[number];
  if (volume->is_present) return -EEXIST;
  uint32_t unit = slot / UNITS_MAX > block_size ? slot / UNITS_MAX : block_size;
  *volume = (struct volume){.size = size,
                            .block_size = block_size,
                            .unit_size = unit,
                            .unit_shift = (uint32_t)__builtin_ctz(unit),
                            .is_present = true,
                            .active_links = {NONE, NONE}};
  tier_list_init(&volume->aged, &tier->extents[0].dirty_links, sizeof(struct extent));
  tier_list_init(&volume->urgent, &tier->extents[0].dirty_links, sizeof(struct extent));
  tier_list_init(&volume->failed, &tier->extents[0].dirty_links, sizeof(struct extent));
  tier_list_init(&volume->unsynced, &tier->extents[0].place_links, sizeof(struct extent));
  tier->volumes_present++;
  return 0;
}

uint16_t tier_units(const struct volume *volume, uint32_t start, uint32_t end) {
  if (start >= end) return 0;
  uint32_t first = start >> volume->unit_shift;
  uint32_t last = (end - 1) >> volume->unit_shift;
  assert(last < UNITS_MAX);
  return (uint16_t)((2u << last) - (1u << first));
}

uint32_t tier_bytes_within(const struct volume *volume, uint16_t units, uint32_t start,
                           uint32_t end) {
  uint32_t bytes = 0;
  uint16_t rest = units & tier_units(volume, start, end);
  while (rest != 0) {
    uint16_t run = lowest_run(rest);
    uint32_t from = first_unit(run) << volume->unit_shift;
    uint32_t to = from + (unit_count(run) << volume->unit_shift);
    bytes += (to < end ? to : end) - (from > start ? from : start);
    rest = (uint16_t)(rest & ~run);
  }
  return bytes;
}

int32_t tier_span(const struct ps_tier *tier, uint32_t number, uint64_t offset, uint64_t length,
                  struct span *span) {
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present) return ENODEV;
  const struct volume *volume = &tier->volumes[number];
  uint32_t slot = tier->config.slot_size;
  uint64_t start = offset & (slot - 1);
  if (length == 0 || length > slot - start) return EINVAL;
  if (offset > volume->size || length > volume->size - offset) return ERANGE;
  uint64_t end = start + length;
  span->volume = number;
  span->number = offset >> tier->slot_shift;
  span->start = (uint32_t)start;
  span->end = (uint32_t)end;
  span->touched = tier_units(volume, span->start, span->end);
  return 0;
}

/* A unit that the volume cuts short is whole when everything up to the volume's end is. */
uint16_t tier_whole_units(const struct ps_tier *tier, const struct span *span) {
  const struct volume *volume = &tier->volumes[span->volume];
  uint32_t mask = volume->unit_size - 1;
  uint32_t end = span->end;
  if (end != extent_bytes(tier, volume, span->number)) end &= ~mask;
  return tier_units(volume, (span->start + mask) & ~mask, end);
}

/* The extent loses everything at and beyond the volume's (smaller) size. */
static void cut_extent(struct ps_tier *tier, uint32_t index) {
  struct extent *extent = &tier->extents[index];
  struct volume *volume = volume_of(tier, extent);
  uint32_t bytes = extent_bytes(tier, volume, extent->number);
  uint16_t kept = tier_units(volume, 0, bytes);
  if (extent->frame != NONE) tier_clear_tail(tier, extent->volume, extent->number, extent->frame);
  tier_forget_units(tier, index, (uint16_t)~kept);
}

/* A fill of the unit that the (old) end cuts short brings too little for a volume that grows. */
static void cancel_last_unit(struct ps_tier *tier, uint32_t number) {
  const struct volume *volume = &tier->volumes[number];
  uint64_t last = volume->size >> tier->slot_shift;
  uint32_t index = tier_find(tier, number, last);
  if (index == NONE) return;
  uint32_t bytes = extent_bytes(tier, volume, last);
  tier_cancel_fills(tier, index, tier_units(volume, bytes & ~(volume->unit_size - 1), bytes));
  tier_settle(tier, index);
}

/* Whether somebody reads the frame whose last unit a new end would cut short: its bytes beyond the
 * end are cleared, and they may be on their way out. */
static bool is_cut_in_use(const struct ps_tier *tier, uint32_t number, uint64_t size) {
  if (size % tier->volumes[number].unit_size == 0) return false;
  uint32_t index = tier_find(tier, number, size >> tier->slot_shift);
  if (index == NONE || tier->extents[index].frame == NONE) return false;
  return tier->frames[tier->extents[index].frame].references > 1;
}

int ps_tier_volume_resize(struct ps_tier *tier, uint32_t number, uint64_t size) {
  assert(tier != NULL);
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present) return -ENODEV;
  struct volume *volume = &tier->volumes[number];
  if (size % volume->block_size != 0 || size > UINT64_MAX / 2) return -EINVAL;
  if (volume->fence_end != 0) return -EBUSY;
  bool grows = size >= volume->size;
  if (!grows && is_cut_in_use(tier, number, size)) return -EBUSY;
  if (grows) cancel_last_unit(tier, number);
  volume->size = size;
  if (grows) return 0;
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    struct extent *extent = &tier->extents[i];
    if (!extent->tracked || extent->volume != number) continue;
    if (extent_bytes(tier, volume, extent->number) < tier->config.slot_size) cut_extent(tier, i);
  }
  tier_advance_flushes(tier, number);
  tier_pump(tier);
  return 0;
}

static bool is_pinned(const struct ps_tier *tier, uint32_t number) {
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    const struct extent *extent = &tier->extents[i];
    if (!extent->tracked || extent->volume != number || extent->frame == NONE) continue;
    if (tier->frames[extent->frame].references > 1) return true;
  }
  return false;
}

int ps_tier_volume_remove(struct ps_tier *tier, uint32_t number) {
  assert(tier != NULL);
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present) return -ENODEV;
  struct volume *volume = &tier->volumes[number];
  if (volume->ops != 0 || is_pinned(tier, number)) return -EBUSY;
  for (uint32_t i = 0; i < tier->config.extent_count; i++) {
    struct extent *extent = &tier->extents[i];
    if (extent->tracked && extent->volume == number) tier_forget_units(tier, i, UINT16_MAX);
  }
  assert(volume->unclean_frames == 0 && volume->unflushed_units == 0);
  volume->is_present = false;
  tier->volumes_present--;
  if (volume->is_active) tier_list_remove(&tier->active, number);
  volume->is_active = false;
  /* Whoever still waits for something of the volume looks again, and finds ENODEV. */
  tier_wake_all(tier, &volume->flushes, ENODEV);
  tier_wake_all(tier, &volume->syncs, ENODEV);
  struct ps_tier_waiter *waiter = tier->dirty_queue.first;
  while (waiter != NULL) {
    struct ps_tier_waiter *next = waiter->next;
    if (waiter->volume == number) tier_wake(tier, waiter, 0);
    waiter = next;
  }
  tier_pump(tier);
  return 0;
}

void ps_tier_residency(const struct ps_tier *tier, uint32_t number, uint64_t offset,
                       uint64_t length, uint64_t *warm_bytes, uint64_t *coming_bytes) {
  assert(tier != NULL && warm_bytes != NULL && coming_bytes != NULL);
  *warm_bytes = 0;
  *coming_bytes = 0;
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present) return;
  const struct volume *volume = &tier->volumes[number];
  if (offset >= volume->size || length == 0) return;
  uint64_t end = length < volume->size - offset ? offset + length : volume->size;
  uint64_t first = offset >> tier->slot_shift;
  uint64_t last = (end - 1) >> tier->slot_shift;
  bool scan = last - first >= tier->config.extent_count;
  uint64_t steps = scan ? tier->config.extent_count : last - first + 1;
  for (uint64_t i = 0; i < steps; i++) {
    uint32_t index = scan ? (uint32_t)i : tier_find(tier, number, first + i);
    if (index == NONE) continue;
    const struct extent *extent = &tier->extents[index];
    if (!extent->tracked || extent->volume != number) continue;
    if (extent->number < first || extent->number > last) continue;
    uint64_t base = extent->number << tier->slot_shift;
    uint32_t from = offset > base ? (uint32_t)(offset - base) : 0;
    uint64_t rest = end - base;
    uint32_t to = rest < tier->config.slot_size ? (uint32_t)rest : tier->config.slot_size;
    *warm_bytes += tier_bytes_within(volume, extent->valid, from, to);
    *coming_bytes += tier_bytes_within(volume, extent->fill, from, to);
  }
}

uint64_t ps_tier_unflushed(const struct ps_tier *tier, uint32_t number) {
  assert(tier != NULL);
  if (number >= tier->config.volume_count || !tier->volumes[number].is_present) return 0;
  const struct volume *volume = &tier->volumes[number];
  return volume->unflushed_units << volume->unit_shift;
}
