/* Where items wait: lists by class and priority, a tree for those with a deadline, and a table of
 * offsets by which neighbours find each other. */
#include "internal.h"

static uint32_t bucket_of(uint64_t offset, uint32_t sched_class) {
  uint64_t mixed = (offset >> 9) * 0x9e3779b97f4a7c15ull + sched_class * 0xc2b2ae3d27d4eb4full;
  return (uint32_t)(mixed >> 54) % PS_SCHED_BUCKETS;
}

static struct item_list *list_of(struct ps_sched *sched, const struct ps_sched_item *item) {
  assert(item->sched_class != PS_SCHED_DATED);
  return &sched->lists[item->sched_class][item->priority];
}

static void list_add(struct item_list *list, struct ps_sched_item *item) {
  /* A promoted item came long before the others: it goes first. */
  bool goes_first = list->first != NULL && item->arrived_ns < list->first->arrived_ns;
  item->previous = goes_first ? NULL : list->last;
  item->next = goes_first ? list->first : NULL;
  if (item->previous != NULL)
    item->previous->next = item;
  else
    list->first = item;
  if (item->next != NULL)
    item->next->previous = item;
  else
    list->last = item;
}

static void list_remove(struct item_list *list, struct ps_sched_item *item) {
  if (item->previous != NULL)
    item->previous->next = item->next;
  else
    list->first = item->next;
  if (item->next != NULL)
    item->next->previous = item->previous;
  else
    list->last = item->previous;
  item->next = NULL;
  item->previous = NULL;
}

static void table_add(struct ps_sched *sched, struct ps_sched_item *item) {
  struct ps_sched_item **bucket = &sched->buckets[bucket_of(item->offset, item->sched_class)];
  item->chain = *bucket;
  *bucket = item;
}

static void table_remove(struct ps_sched *sched, struct ps_sched_item *item) {
  struct ps_sched_item **link = &sched->buckets[bucket_of(item->offset, item->sched_class)];
  while (*link != item) {
    assert(*link != NULL);
    link = &(*link)->chain;
  }
  *link = item->chain;
  item->chain = NULL;
}

static bool is_in_table(const struct ps_sched *sched, const struct ps_sched_item *item) {
  return item->is_mergeable && sched->config.merge_bytes > 0;
}

/* When it must start at the latest to end by its deadline. */
static uint64_t latest_start(const struct ps_sched *sched, const struct ps_sched_item *item) {
  double service_ns = sched->meter.latency_ns + meter_transfer_ns(&sched->meter, item->length);
  if (item->deadline_ns == UINT64_MAX) return UINT64_MAX;
  return item->deadline_ns > (uint64_t)service_ns ? item->deadline_ns - (uint64_t)service_ns : 0;
}

void queue_add(struct ps_sched *sched, struct ps_sched_item *item) {
  assert(item->sched_class < PS_SCHED_CLASSES && item->priority < PS_SCHED_PRIORITIES);
  if (item->sched_class == PS_SCHED_DATED) {
    item->node.key = latest_start(sched, item);
    item->node.order = (uint64_t)item->priority << 60 | sched->orders++;
    item->node.weight = item->length;
    tree_insert(&sched->dated, &item->node);
  } else {
    list_add(list_of(sched, item), item);
  }
  if (is_in_table(sched, item)) table_add(sched, item);
  sched->stats.waiting[item->sched_class]++;
  item->state = WAITING;
}

void queue_remove(struct ps_sched *sched, struct ps_sched_item *item) {
  assert(item->state == WAITING && sched->stats.waiting[item->sched_class] > 0);
  if (item->sched_class == PS_SCHED_DATED)
    tree_remove(&sched->dated, &item->node);
  else
    list_remove(list_of(sched, item), item);
  if (is_in_table(sched, item)) table_remove(sched, item);
  sched->stats.waiting[item->sched_class]--;
  item->state = IDLE;
}

struct ps_sched_item *queue_first(const struct ps_sched *sched, uint32_t sched_class) {
  assert(sched_class < PS_SCHED_CLASSES && sched_class != PS_SCHED_DATED);
  for (uint32_t priority = 0; priority < PS_SCHED_PRIORITIES; priority++) {
    struct ps_sched_item *item = sched->lists[sched_class][priority].first;
    if (item != NULL) return item;
  }
  return NULL;
}

struct ps_sched_item *queue_oldest(const struct ps_sched *sched, uint32_t sched_class) {
  assert(sched_class < PS_SCHED_CLASSES && sched_class != PS_SCHED_DATED);
  struct ps_sched_item *oldest = NULL;
  for (uint32_t priority = 0; priority < PS_SCHED_PRIORITIES; priority++) {
    struct ps_sched_item *item = sched->lists[sched_class][priority].first;
    if (item == NULL) continue;
    if (oldest == NULL || item->arrived_ns < oldest->arrived_ns) oldest = item;
  }
  return oldest;
}

struct ps_sched_item *queue_first_dated(const struct ps_sched *sched) {
  struct ps_sched_node *node = tree_first(&sched->dated);
  return node == NULL ? NULL : CONTAINER(node, struct ps_sched_item, node);
}

struct ps_sched_item *queue_neighbour(const struct ps_sched *sched,
                                      const struct ps_sched_item *item) {
  assert(item != NULL);
  if (!is_in_table(sched, item)) return NULL;
  uint64_t offset = item->offset + item->length;
  struct ps_sched_item *found = sched->buckets[bucket_of(offset, item->sched_class)];
  for (; found != NULL; found = found->chain) {
    if (found->offset == offset && found->sched_class == item->sched_class && found->op == item->op)
      return found;
  }
  return NULL;
}
