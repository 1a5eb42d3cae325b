/* Which ranges of ordered sets a read may be part of: hashed by tenant, volume and region.
 *
 * Regions come in nine sizes, and a range is found in those of the smallest size that is not
 * smaller than it is, which are two at most. A look-up asks each size that the tenant uses, which
 * is one or two as a rule, and looks at LOOK_MOST ranges of a region at most.
 */
#include "internal.h"

static uint32_t level_of(uint64_t length) {
  uint32_t level = 0;
  while (level + 1 < LEVELS && length > UINT64_C(1) << (LEVEL_SHIFT + level * LEVEL_STEP)) level++;
  return level;
}

static uint32_t bucket_of(const struct ps_hints *hints, uint16_t tenant, uint32_t volume,
                          uint32_t level, uint64_t region) {
  uint64_t who = (uint64_t)tenant << 48 | (uint64_t)level << 32 | volume;
  return (uint32_t)hints_hash(hints, who, region) & hints->region_mask;
}

const uint32_t *hints_region_bucket(const struct ps_hints *hints, uint16_t tenant,
                                    const struct ps_hints_namespace *space, uint64_t slba,
                                    uint32_t nlb) {
  assert(hints != NULL && space != NULL);
  uint32_t level = level_of((uint64_t)nlb << space->block_shift);
  uint64_t region = slba << space->block_shift >> (LEVEL_SHIFT + level * LEVEL_STEP);
  return &hints->regions[bucket_of(hints, tenant, space->volume, level, region)];
}

static struct node *node_of(const struct ps_hints *hints, uint32_t index) {
  return hints_item(&hints->nodes, index);
}

static void add_node(struct ps_hints *hints, uint32_t bucket, uint32_t at) {
  uint32_t index = hints_take(&hints->nodes);
  assert(index != NONE); /* there are RANGE_NODES for each range */
  struct range *range = hints_range(hints, at);
  uint32_t head = hints->regions[bucket];
  *node_of(hints, index) = (struct node){
      .next = head, .previous = bucket | NODE_HEAD, .range = at, .sibling = range->node};
  if (head != NONE) node_of(hints, head)->previous = index;
  hints->regions[bucket] = index;
  range->node = index;
}

void hints_region_add(struct ps_hints *hints, const struct set *set, uint32_t at) {
  assert(set != NULL && (set->flags & SET_ORDERED) != 0);
  const struct range *range = hints_range(hints, at);
  uint64_t length = (uint64_t)range->blocks << set->block_shift;
  uint32_t level = level_of(length);
  uint32_t shift = LEVEL_SHIFT + level * LEVEL_STEP;
  uint64_t first = range->offset >> shift;
  uint64_t last = (range->offset + length - 1) >> shift;
  struct tenant *tenant = hints_tenant(hints, set->tenant);
  for (uint32_t i = 0; i < RANGE_NODES && first + i <= last; i++) {
    add_node(hints, bucket_of(hints, set->tenant, set->volume, level, first + i), at);
    tenant->ordered[level]++;
    tenant->ordered_levels |= 1u << level;
  }
}

void hints_region_remove(struct ps_hints *hints, const struct set *set, uint32_t at) {
  struct range *range = hints_range(hints, at);
  struct tenant *tenant = hints_tenant(hints, set->tenant);
  uint32_t level = level_of((uint64_t)range->blocks << set->block_shift);
  while (range->node != NONE) {
    uint32_t index = range->node;
    struct node *node = node_of(hints, index);
    if ((node->previous & NODE_HEAD) != 0) {
      hints->regions[node->previous & ~NODE_HEAD] = node->next;
    } else {
      node_of(hints, node->previous)->next = node->next;
    }
    if (node->next != NONE) node_of(hints, node->next)->previous = node->previous;
    range->node = node->sibling;
    hints_give(&hints->nodes, index);
    assert(tenant->ordered[level] > 0);
    if (--tenant->ordered[level] == 0) tenant->ordered_levels &= ~(1u << level);
  }
}

static bool is_match(const struct ps_hints *hints, uint64_t now_ns, uint32_t at, uint16_t tenant,
                     uint32_t volume, uint64_t offset) {
  const struct chunk *chunk = hints_chunk(hints, at);
  const struct range *range = &chunk->ranges[at % CHUNK_RANGES];
  if (offset < range->offset) return false;
  const struct set *set = hints_set(hints, chunk->owner);
  if (set->tenant != tenant || set->volume != volume) return false;
  if (offset - range->offset >= (uint64_t)range->blocks << set->block_shift) return false;
  return !hints_is_stale(hints, set, now_ns);
}

uint32_t hints_region_find(const struct ps_hints *hints, uint64_t now_ns, uint16_t tenant,
                           uint32_t volume, uint64_t offset) {
  const struct tenant *who = hints_tenant(hints, tenant);
  for (uint32_t levels = who->ordered_levels; levels != 0; levels &= levels - 1) {
    uint32_t level = (uint32_t)__builtin_ctz(levels);
    uint64_t region = offset >> (LEVEL_SHIFT + level * LEVEL_STEP);
    uint32_t index = hints->regions[bucket_of(hints, tenant, volume, level, region)];
    for (uint32_t i = 0; i < LOOK_MOST && index != NONE; i++) {
      const struct node *node = node_of(hints, index);
      if (is_match(hints, now_ns, node->range, tenant, volume, offset)) return node->range;
      index = node->next;
    }
  }
  return NONE;
}
