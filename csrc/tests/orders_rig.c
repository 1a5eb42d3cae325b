/* See orders_rig.h. */
#include "orders_rig.h"

#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RING_OFFSET = 4096 };

static char seed_text[80];
static size_t seed_size;

static void tell(int number) {
  if (write(2, seed_text, seed_size) < 0) _exit(3);
  signal(number, SIG_DFL);
  raise(number);
}

void shop_note_seed(const char *program, unsigned long seed) {
  int size = snprintf(seed_text, sizeof seed_text, "%s: failed at seed %lu\n", program, seed);
  seed_size = (size_t)size;
  signal(SIGABRT, tell);
}

uint32_t shop_random(struct shop *shop, uint32_t bound) {
  SHOP_CHECK(bound > 0);
  shop->state += 0x9E3779B97F4A7C15u;
  uint64_t z = shop->state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ (z >> 31)) % bound);
}

/* ---- making it ---- */

static void add_volume(struct shop *shop, uint32_t volume) {
  struct ps_sched_config config = {.window = 4, .merge_bytes = 65536, .starvation_ns = 50000000};
  /* The last extent of some volumes is not whole. */
  shop->sizes[volume] = (UINT64_C(1) << 20) + (volume == 1 ? 3 * SHOP_BLOCK : 0);
  shop->scheds[volume] = ps_sched_new(&config);
  SHOP_CHECK(shop->scheds[volume] != NULL);
  SHOP_CHECK(ps_tier_volume_add(shop->tier, volume, shop->sizes[volume], SHOP_BLOCK) == 0);
  ps_orders_volume(shop->orders, shop->now_ns, volume, shop->scheds[volume], shop->sizes[volume]);
}

static void open_parts(struct shop *shop) {
  struct ps_tier_config tier = {.frame_count = SHOP_FRAMES,
                                .slot_size = SHOP_SLOT,
                                .extent_count = SHOP_FRAMES * 2,
                                .dirty_limit = SHOP_FRAMES / 2,
                                .volume_count = SHOP_VOLUMES,
                                .tenant_count = SHOP_TENANTS,
                                .unsynced_age_ns = 50000000,
                                .writeback_age_ns = 5000000,
                                .retry_ns = 1000000};
  struct ps_orders_config orders = {.capacity = SHOP_CAPACITY,
                                    .fetches = SHOP_FETCHES,
                                    .volume_count = SHOP_VOLUMES,
                                    .tenant_count = SHOP_TENANTS,
                                    .slot_size = SHOP_SLOT,
                                    .piece_bytes = 2 * SHOP_SLOT};
  shop->ring = ps_ring_new(SHOP_FACTS);
  SHOP_CHECK(shop->ring != NULL);
  tier.ring = shop->ring;
  shop->tier = ps_tier_new(&tier);
  SHOP_CHECK(shop->tier != NULL);
  shop->orders = ps_orders_new(&orders, shop->tier, shop->ring);
  SHOP_CHECK(shop->orders != NULL);
}

/* As a process that was given the descriptors would. */
static void map_memories(struct shop *shop) {
  int protection = PROT_READ | PROT_WRITE;
  size_t ring_bytes = RING_OFFSET + SHOP_FACTS * sizeof(struct ps_fact);
  shop->memory_bytes = (size_t)lseek(ps_orders_fd(shop->orders), 0, SEEK_END);
  shop->memory =
      mmap(NULL, shop->memory_bytes, protection, MAP_SHARED, ps_orders_fd(shop->orders), 0);
  SHOP_CHECK((void *)shop->memory != MAP_FAILED);
  shop->ring_header = mmap(NULL, ring_bytes, protection, MAP_SHARED, ps_ring_fd(shop->ring), 0);
  SHOP_CHECK((void *)shop->ring_header != MAP_FAILED);
  shop->orders_offset = shop_header(shop)->orders_offset;
  shop->values_offset = shop_header(shop)->values_offset;
}

void shop_open(struct shop *shop) {
  shop->now_ns = 1000000000;
  shop->free_op = NULL;
  shop->error_percent = 0;
  for (uint32_t i = 0; i < SHOP_OPS; i++) {
    shop->ops[i] = (struct shop_op){.next_free = shop->free_op};
    shop->free_op = &shop->ops[i];
  }
  memset(shop->dated, 0, sizeof shop->dated);
  memset(shop->is_leaving, 0, sizeof shop->is_leaving);
  open_parts(shop);
  map_memories(shop);
  for (uint32_t i = 0; i < SHOP_VOLUMES; i++) add_volume(shop, i);
}

void shop_close(struct shop *shop) {
  munmap(shop->memory, shop->memory_bytes);
  munmap(shop->ring_header, RING_OFFSET + SHOP_FACTS * sizeof(struct ps_fact));
  ps_orders_free(shop->orders);
  ps_tier_free(shop->tier);
  ps_ring_free(shop->ring);
  for (uint32_t i = 0; i < SHOP_VOLUMES; i++)
    if (shop->sizes[i] != 0) ps_sched_free(shop->scheds[i]);
}

/* ---- media work ---- */

static void push_actions(struct shop *shop) {
  static const uint8_t classes[] = {PS_SCHED_DEMAND, PS_SCHED_DATED, PS_SCHED_SPECULATIVE};
  struct ps_tier_action action;
  while (shop->free_op != NULL &&
         ps_tier_next_action(shop->tier, shop->now_ns, PS_TIER_SPECULATIVE, &action)) {
    struct shop_op *op = shop->free_op;
    shop->free_op = op->next_free;
    bool is_read = action.op == PS_TIER_READ;
    *op = (struct shop_op){
        .cookie = action.cookie,
        .fetch_id = (action.cookie & PS_COOKIE_OF_ORDERS) != 0 ? shop->starting : 0,
        .ticket = action.ticket,
        .volume = action.volume,
        .is_used = true,
        .item = {.deadline_ns = action.deadline_ns,
                 .offset = action.offset,
                 .length = action.length,
                 .op = action.op,
                 .sched_class = is_read ? classes[action.urgency] : PS_SCHED_WRITE,
                 .priority = action.priority,
                 .is_mergeable = is_read}};
    ps_sched_push(shop->scheds[action.volume], shop->now_ns, &op->item);
  }
}

static struct shop_op *op_of(struct ps_sched_item *item) {
  return (struct shop_op *)(void *)((uint8_t *)item - offsetof(struct shop_op, item));
}

static bool has_dated(const struct shop *shop, uint32_t volume) {
  for (uint32_t i = 0; i < SHOP_DATED; i++)
    if (shop->dated[i].is_used && shop->dated[i].volume == volume) return true;
  return false;
}

/* Nothing that somebody waits for, or has announced, waits for this medium. */
static bool is_idle(const struct shop *shop, uint32_t volume) {
  struct ps_sched_stats stats;
  ps_sched_get_stats(shop->scheds[volume], &stats);
  return stats.waiting[PS_SCHED_DEMAND] == 0 && stats.waiting[PS_SCHED_DATED] == 0 &&
         !has_dated(shop, volume);
}

/* A piece of a dated job, or what is left of it. */
static void start_dated(struct shop *shop, struct ps_sched_job *job) {
  struct shop_dated *dated = (struct shop_dated *)(void *)job;
  struct ps_sched *sched = shop->scheds[dated->volume];
  struct ps_tier_access access = {.deadline_ns = job->deadline_ns, .urgency = PS_TIER_DATED};
  int result = PS_TIER_INVALID;
  if (dated->offset + SHOP_SLOT <= shop->sizes[dated->volume])
    result =
        ps_tier_hydrate(shop->tier, shop->now_ns, dated->volume, dated->offset, SHOP_SLOT, &access);
  dated->offset += SHOP_SLOT;
  job->bytes -= SHOP_SLOT;
  if (job->bytes > 0 && result != PS_TIER_INVALID && result != PS_TIER_NO_ROOM) {
    ps_sched_update_job(sched, shop->now_ns, job);
  } else {
    ps_sched_remove_job(sched, job);
    dated->is_used = false;
  }
}

static void start_job(struct shop *shop, uint32_t volume, struct ps_sched_job *job) {
  if (job->owner == PS_JOB_OF_HINTS) {
    start_dated(shop, job);
    shop->held_back += shop_header(shop)->fetch_bytes > 0;
  } else {
    SHOP_CHECK(job->owner == PS_JOB_OF_ORDERS && is_idle(shop, volume));
    shop->starting = ((struct fetch *)(void *)job)->id;
    ps_orders_start_job(shop->orders, shop->now_ns, job);
    shop->speculated++;
  }
  push_actions(shop);
  shop->starting = 0;
}

static void start_volume(struct shop *shop, uint32_t volume) {
  struct ps_sched *sched = shop->scheds[volume];
  for (uint32_t i = 0; i < 64; i++) {
    bool was_idle = is_idle(shop, volume);
    struct ps_sched_item *item = ps_sched_pop(sched, shop->now_ns);
    if (item != NULL) {
      SHOP_CHECK(item->sched_class != PS_SCHED_SPECULATIVE || was_idle);
      op_of(item)->done_ns = shop->now_ns + 20000 + shop->below(shop, 500000);
      continue;
    }
    struct ps_sched_job *job = ps_sched_next_job(sched, shop->now_ns);
    if (job == NULL) return;
    start_job(shop, volume, job);
  }
}

static void end_op(struct shop *shop, struct shop_op *first) {
  struct ps_sched_item *item = &first->item;
  ps_sched_done(shop->scheds[first->volume], shop->now_ns, item);
  while (item != NULL) {
    struct shop_op *op = op_of(item);
    item = item->merged;
    int32_t error = op->item.op == PS_TIER_READ && shop_chance(shop, shop->error_percent) ? 5 : 0;
    ps_tier_complete(shop->tier, shop->now_ns, op->ticket, error);
    if ((op->cookie & PS_COOKIE_OF_ORDERS) != 0)
      ps_orders_fill_ended(shop->orders, shop->now_ns, op->cookie, op->item.length, error);
    *op = (struct shop_op){.next_free = shop->free_op};
    shop->free_op = op;
  }
}

static void end_due(struct shop *shop) {
  for (uint32_t i = 0; i < SHOP_OPS; i++) {
    struct shop_op *op = &shop->ops[i];
    if (op->is_used && op->done_ns != 0 && op->done_ns <= shop->now_ns) end_op(shop, op);
  }
}

static bool has_ops(const struct shop *shop, uint32_t volume) {
  for (uint32_t i = 0; i < SHOP_OPS; i++)
    if (shop->ops[i].is_used && shop->ops[i].volume == volume) return true;
  return false;
}

bool shop_has_ops(const struct shop *shop, uint64_t fetch_id) {
  for (uint32_t i = 0; i < SHOP_OPS; i++)
    if (shop->ops[i].is_used && shop->ops[i].fetch_id == fetch_id) return true;
  return false;
}

void shop_forget_ops(struct shop *shop, uint64_t fetch_id) {
  for (uint32_t i = 0; i < SHOP_OPS; i++)
    if (shop->ops[i].fetch_id == fetch_id) shop->ops[i].fetch_id = 0;
}

void shop_take_facts(struct shop *shop) {
  struct ps_ring_header *header = shop->ring_header;
  const struct ps_fact *facts = (const void *)((uint8_t *)header + header->facts_offset);
  SHOP_CHECK(header->lost == 0);
  for (; header->tail < header->head; header->tail++) {
    const struct ps_fact *fact = &facts[header->tail % SHOP_FACTS];
    if (fact->kind == PS_FACT_FETCHED && shop->tell != NULL) shop->tell(shop, fact);
  }
}

void shop_pump(struct shop *shop) {
  struct ps_tier_promotion promotion;
  end_due(shop);
  push_actions(shop);
  while (ps_tier_next_promotion(shop->tier, &promotion)) {
  }
  while (ps_tier_next_woken(shop->tier) != NULL) {
  }
  while (ps_orders_next_volume(shop->orders) >= 0) {
  }
  for (uint32_t i = 0; i < SHOP_VOLUMES; i++) {
    if (shop->sizes[i] == 0) continue;
    start_volume(shop, i);
    if (!shop->is_leaving[i] || has_ops(shop, i)) continue;
    SHOP_CHECK(ps_tier_volume_remove(shop->tier, i) == 0);
    ps_sched_free(shop->scheds[i]);
    shop->sizes[i] = 0;
    shop->is_leaving[i] = false;
  }
  shop_take_facts(shop);
}

void shop_advance(struct shop *shop, uint64_t most_ns) {
  uint64_t next_ns = shop->now_ns + most_ns;
  uint64_t time_ns = ps_orders_next_time(shop->orders);
  if (time_ns < next_ns) next_ns = time_ns;
  for (uint32_t i = 0; i < SHOP_VOLUMES; i++) {
    if (shop->sizes[i] == 0) continue;
    time_ns = ps_sched_next_time(shop->scheds[i], shop->now_ns);
    if (time_ns < next_ns) next_ns = time_ns;
  }
  for (uint32_t i = 0; i < SHOP_OPS; i++) {
    const struct shop_op *op = &shop->ops[i];
    if (op->is_used && op->done_ns != 0 && op->done_ns < next_ns) next_ns = op->done_ns;
  }
  shop->now_ns = next_ns > shop->now_ns ? next_ns : shop->now_ns + 1;
  if (ps_orders_next_time(shop->orders) <= shop->now_ns)
    (void)ps_orders_take(shop->orders, shop->now_ns, 0);
  shop_pump(shop);
}

void shop_check(const struct shop *shop) {
  int bad = ps_orders_check(shop->orders);
  if (bad != 0) fprintf(stderr, "invariant %d of the orders does not hold\n", bad);
  SHOP_CHECK(bad == 0);
  SHOP_CHECK(ps_tier_check(shop->tier) == 0);
}

/* ---- what else goes on ---- */

void shop_turn_volume(struct shop *shop, uint32_t volume) {
  if (shop->sizes[volume] == 0) {
    add_volume(shop, volume);
    return;
  }
  if (shop->is_leaving[volume]) return;
  shop->is_leaving[volume] = true;
  ps_orders_volume(shop->orders, shop->now_ns, volume, NULL, 0);
  for (uint32_t i = 0; i < SHOP_DATED; i++) {
    struct shop_dated *dated = &shop->dated[i];
    if (!dated->is_used || dated->volume != volume) continue;
    ps_sched_remove_job(shop->scheds[volume], &dated->job);
    dated->is_used = false;
  }
}

static void resize(struct shop *shop, uint32_t volume) {
  uint64_t size = (uint64_t)SHOP_BLOCK * (1 + shop->below(shop, 300));
  if (ps_tier_volume_resize(shop->tier, volume, size) != 0) return;
  shop->sizes[volume] = size;
  ps_orders_volume(shop->orders, shop->now_ns, volume, shop->scheds[volume], size);
}

static void read_or_write(struct shop *shop, uint32_t volume, bool writes) {
  uint64_t slots = shop->sizes[volume] / SHOP_SLOT;
  if (slots == 0) return;
  uint64_t offset = shop->below(shop, (uint32_t)slots) * (uint64_t)SHOP_SLOT;
  struct ps_tier_access access = {.deadline_ns = UINT64_MAX};
  struct ps_tier_waiter waiter = {.owner = 0};
  uint32_t frame = 0;
  if (writes) {
    (void)ps_tier_zero(shop->tier, shop->now_ns, volume, offset, SHOP_SLOT, 0, &waiter);
    ps_tier_forget(shop->tier, &waiter);
  } else if (ps_tier_read(shop->tier, shop->now_ns, volume, offset, SHOP_BLOCK, &access, NULL,
                          &frame) == PS_TIER_DONE) {
    ps_tier_release(shop->tier, shop->now_ns, frame);
  }
}

static void add_dated(struct shop *shop, uint32_t volume) {
  struct shop_dated *dated = &shop->dated[shop->below(shop, SHOP_DATED)];
  if (dated->is_used) return;
  uint32_t extents = 1 + shop->below(shop, 6);
  *dated = (struct shop_dated){.job = {.deadline_ns = shop->now_ns + shop->below(shop, 100000000),
                                       .bytes = (uint64_t)extents * SHOP_SLOT,
                                       .sched_class = PS_SCHED_DATED,
                                       .priority = (uint8_t)shop->below(shop, PS_SCHED_PRIORITIES),
                                       .owner = PS_JOB_OF_HINTS},
                               .offset = (uint64_t)shop->below(shop, 60) * SHOP_SLOT,
                               .volume = volume,
                               .is_used = true};
  ps_sched_add_job(shop->scheds[volume], shop->now_ns, &dated->job);
}

void shop_disturb(struct shop *shop) {
  uint32_t volume = shop->below(shop, SHOP_VOLUMES);
  uint32_t what = shop->below(shop, 100);
  if (!shop_is_up(shop, volume)) {
    if (shop->sizes[volume] == 0 && what < 50) shop_turn_volume(shop, volume);
  } else if (what < 8) {
    shop_turn_volume(shop, volume);
  } else if (what < 14) {
    resize(shop, volume);
  } else if (what < 24) {
    add_dated(shop, volume);
  } else {
    read_or_write(shop, volume, what < 54);
  }
}
