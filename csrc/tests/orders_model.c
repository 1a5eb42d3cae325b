/* A model test of the orders: random orders, right and wrong ones, memory that is damaged while
 * they wait, demand and announced work beside them, media that end in any order and fail, volumes
 * that go, come back and change their size. After every step all invariants hold; each fetch that
 * was taken is told of once, as what it was; what is wrong is refused and counted, and nothing
 * else; speculation never goes before anything else.
 *
 *   orders_model SEED RUNS
 */
#include <math.h>

#include "orders_rig.h"

enum { STEPS = 400, IDS = SHOP_FETCHES + SHOP_CAPACITY };

static struct shop shop;
static struct ps_order pending[IDS]; /* fetches that were taken and have not ended; id 0: none */
static uint64_t head, tail;          /* orders written, and taken */
static uint64_t next_id;
static uint64_t refused;                    /* so far, in this run */
static uint64_t ends[PS_ORDER_EXPIRED + 1]; /* so far, in this run */
static uint64_t all_ends[PS_ORDER_EXPIRED + 1], all_refused, all_taken;

static struct ps_order *find(uint64_t id) {
  for (uint32_t i = 0; i < IDS; i++)
    if (pending[i].id == id) return &pending[i];
  return NULL;
}

static void hear(struct shop *of, const struct ps_fact *fact) {
  struct ps_order *order = fact->id != 0 ? find(fact->id) : NULL;
  SHOP_CHECK(of == &shop && order != NULL && fact->aux <= PS_ORDER_EXPIRED);
  SHOP_CHECK(fact->offset == order->offset && fact->length == order->length);
  SHOP_CHECK(fact->volume == order->volume && fact->tenant == order->tenant);
  SHOP_CHECK(fact->time_ns <= shop.now_ns && fact->value <= fact->length + 2 * SHOP_BLOCK);
  if (fact->aux == PS_ORDER_LANDED) SHOP_CHECK(fact->value > 0);
  if (fact->aux == PS_ORDER_WARM) SHOP_CHECK(fact->value == 0);
  if (fact->aux == PS_ORDER_EXPIRED) SHOP_CHECK(fact->time_ns > order->expires_ns);
  bool is_at_once = fact->aux == PS_ORDER_FAILED || fact->aux == PS_ORDER_WITHDRAWN;
  SHOP_CHECK(is_at_once || !shop_has_ops(&shop, fact->id));
  shop_forget_ops(&shop, fact->id); /* the id is free for another fetch */
  ends[fact->aux]++;
  order->id = 0;
}

/* ---- what is wrong with an order, as the header has it ---- */

static bool is_range_wrong(const struct ps_order *order) {
  return order->volume >= SHOP_VOLUMES || order->length == 0 ||
         order->length > PS_ORDER_MAX_BYTES || order->offset + order->length < order->offset;
}

static bool is_fetch_wrong(const struct ps_order *order) {
  if (order->id == 0 || order->id >= UINT64_C(1) << 62 || find(order->id) != NULL) return true;
  if (is_range_wrong(order) || order->tenant >= SHOP_TENANTS) return true;
  if (order->value_class != 0 && order->value_class < PS_TIER_OWN_CLASSES) return true;
  return order->value_class >= PS_TIER_CLASSES || !isfinite(order->value) || order->value < 0;
}

static bool is_wrong(const struct ps_order *order) {
  bool is_models =
      order->value_class >= PS_TIER_OWN_CLASSES && order->value_class < PS_TIER_CLASSES;
  switch (order->kind) {
    case PS_ORDER_FETCH:
      return is_fetch_wrong(order);
    case PS_ORDER_CLASSIFY:
      return is_range_wrong(order) || !is_models;
    case PS_ORDER_WITHDRAW:
      return order->id == 0 || order->id >= UINT64_C(1) << 62;
    case PS_ORDER_VALUES:
      return order->aux > 1;
    default:
      return order->kind != PS_ORDER_RESET;
  }
}

/* ---- what the model writes ---- */

static uint64_t random64(void) {
  return (uint64_t)shop_random(&shop, UINT32_MAX) << 32 | shop_random(&shop, UINT32_MAX);
}

static uint64_t draw_id(void) {
  const struct ps_order *other = &pending[shop_random(&shop, IDS)];
  if (shop_chance(&shop, 10) && other->id != 0) return other->id;
  if (shop_chance(&shop, 3)) return random64() >> shop_random(&shop, 64);
  return ++next_id;
}

static void draw_order(struct ps_order *order) {
  static const uint8_t kinds[] = {PS_ORDER_FETCH,    PS_ORDER_FETCH,    PS_ORDER_FETCH,
                                  PS_ORDER_FETCH,    PS_ORDER_FETCH,    PS_ORDER_CLASSIFY,
                                  PS_ORDER_WITHDRAW, PS_ORDER_WITHDRAW, PS_ORDER_VALUES};
  uint32_t extents = 1 + shop_random(&shop, shop_chance(&shop, 50) ? 1 : 8);
  uint64_t lives_ns = shop_random(&shop, 20000000);
  *order =
      (struct ps_order){.id = draw_id(),
                        .offset = (uint64_t)shop_random(&shop, 66) * SHOP_SLOT,
                        .length = (uint64_t)extents * SHOP_SLOT,
                        .age_ns = random64() >> shop_random(&shop, 64),
                        .expires_ns = shop_chance(&shop, 50) ? UINT64_MAX : shop.now_ns + lives_ns,
                        .value = (float)shop_random(&shop, 80),
                        .aux = shop_random(&shop, 2),
                        .volume = (uint16_t)shop_random(&shop, SHOP_VOLUMES),
                        .tenant = (uint16_t)shop_random(&shop, SHOP_TENANTS),
                        .kind = kinds[shop_random(&shop, sizeof kinds)],
                        .value_class = (uint8_t)(PS_TIER_OWN_CLASSES + shop_random(&shop, 56))};
  if (shop_chance(&shop, 30)) {
    order->offset += shop_random(&shop, SHOP_SLOT);
    order->length -= shop_random(&shop, SHOP_SLOT);
  }
  if (shop_chance(&shop, 1)) order->kind = PS_ORDER_RESET;
}

static void write_some(void) {
  uint32_t count = 1 + shop_random(&shop, 8);
  for (uint32_t i = 0; i < count && head - tail < SHOP_CAPACITY; i++)
    draw_order(shop_order(&shop, head++));
  __atomic_store_n(&shop_header(&shop)->head, head, __ATOMIC_RELEASE);
}

static void write_values(void) {
  float *values = (float *)(void *)(shop.memory + shop.values_offset);
  for (uint32_t i = 0; i < 2 * PS_TIER_CLASSES * PS_TIER_AGE_BINS; i++) {
    uint32_t bits = shop_random(&shop, UINT32_MAX);
    values[i] = (float)shop_random(&shop, 80);
    if (shop_chance(&shop, 2)) memcpy(&values[i], &bits, sizeof bits);
  }
}

/* Bytes of orders that wait, or of a header that nobody is to believe. */
static void damage(void) {
  struct ps_orders_header *header = shop_header(&shop);
  if (shop_chance(&shop, 50) && head > tail) {
    uint8_t *bytes =
        (uint8_t *)shop_order(&shop, tail + shop_random(&shop, (uint32_t)(head - tail)));
    uint32_t count = 1 + shop_random(&shop, 8);
    for (uint32_t i = 0; i < count; i++)
      bytes[shop_random(&shop, sizeof(struct ps_order))] = (uint8_t)shop_random(&shop, 256);
    return;
  }
  uint8_t *bytes = (uint8_t *)header;
  for (uint32_t i = 0; i < sizeof *header; i++) {
    bool is_head = i >= offsetof(struct ps_orders_header, head) &&
                   i < offsetof(struct ps_orders_header, head) + sizeof header->head;
    if (!is_head) bytes[i] = (uint8_t)shop_random(&shop, 256);
  }
}

/* ---- the target takes it ---- */

static void check_told(void) {
  struct ps_orders_stats stats;
  ps_orders_get_stats(shop.orders, &stats);
  const struct ps_orders_header *header = shop_header(&shop);
  SHOP_CHECK(header->tail == tail && header->refused == refused);
  SHOP_CHECK(stats.refused == refused && header->fetches == stats.pending);
  SHOP_CHECK(header->now_ns == shop.now_ns && header->bandwidth < UINT64_C(1) << 40);
  uint32_t count = 0;
  for (uint32_t i = 0; i < IDS; i++) count += pending[i].id != 0;
  SHOP_CHECK(count == stats.pending && count <= SHOP_FETCHES);
}

/* It says that there are more orders than there is room for, or that some were taken back. */
static void write_nonsense(void) {
  head = tail + SHOP_CAPACITY + 1 + (random64() >> (1 + shop_random(&shop, 62)));
  shop_header(&shop)->head = head;
  SHOP_CHECK(ps_orders_waiting(shop.orders));
  SHOP_CHECK(ps_orders_take(shop.orders, shop.now_ns, 1 + shop_random(&shop, 9)) ||
             ps_orders_next_time(shop.orders) <= shop.now_ns);
  tail = head;
  refused++;
  shop_take_facts(&shop);
  check_told();
}

static void expect(const struct ps_order *order) {
  bool wrong = is_wrong(order);
  refused += wrong;
  all_taken++;
  if (wrong || order->kind != PS_ORDER_FETCH) return;
  struct ps_order *place = find(0);
  SHOP_CHECK(place != NULL);
  *place = *order;
}

/* Whether one of those that wait says an id that another fetch has, or which may end on the way. */
static bool are_tangled(uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    const struct ps_order *order = shop_order(&shop, tail + i);
    if (order->kind == PS_ORDER_RESET || order->kind == PS_ORDER_WITHDRAW) return true;
    if (order->kind != PS_ORDER_FETCH) continue;
    if (find(order->id) != NULL) return true;
    for (uint64_t j = 0; j < i; j++)
      if (shop_order(&shop, tail + j)->id == order->id) return true;
  }
  return false;
}

static uint64_t taken_so_far(void) {
  struct ps_orders_stats stats;
  ps_orders_get_stats(shop.orders, &stats);
  return stats.orders;
}

static void take_some(void) {
  uint64_t waiting = head - tail;
  uint32_t most = shop_random(&shop, SHOP_CAPACITY + 2);
  uint64_t count = waiting < most ? waiting : most;
  if (count > 1 && are_tangled(count)) count = most = 1;
  while (ps_orders_next_time(shop.orders) <= shop.now_ns)
    (void)ps_orders_take(shop.orders, shop.now_ns, 0);
  shop_take_facts(&shop);
  SHOP_CHECK(ps_orders_waiting(shop.orders) == (waiting > 0));
  struct ps_order taken[SHOP_CAPACITY];
  for (uint64_t i = 0; i < count; i++) taken[i] = *shop_order(&shop, tail + i);
  uint64_t before = taken_so_far();
  bool is_done = ps_orders_take(shop.orders, shop.now_ns, most);
  uint64_t done = taken_so_far() - before;
  /* Fewer when they are much work. */
  SHOP_CHECK(done <= count && (done > 0) == (count > 0));
  for (uint64_t i = 0; i < done; i++) expect(&taken[i]);
  tail += done;
  shop_take_facts(&shop);
  SHOP_CHECK(is_done == (tail == head) || ps_orders_next_time(shop.orders) <= shop.now_ns);
  check_told();
}

static void lose_model(void) {
  ps_orders_reset(shop.orders, shop.now_ns);
  tail = head;
  shop_take_facts(&shop);
  check_told();
  const struct ps_orders_header *header = shop_header(&shop);
  SHOP_CHECK(header->magic == PS_ORDERS_MAGIC && header->capacity == SHOP_CAPACITY);
  SHOP_CHECK(header->fetches == 0 && header->fetch_bytes == 0);
}

static void step(void) {
  uint32_t what = shop_random(&shop, 100);
  if (what < 25) {
    write_some();
  } else if (what < 50) {
    take_some();
  } else if (what < 53) {
    write_values();
  } else if (what < 58) {
    damage();
  } else if (what < 59) {
    if (shop_chance(&shop, 50)) write_nonsense();
  } else if (what < 60) {
    if (shop_chance(&shop, 30)) lose_model();
  } else if (what < 72) {
    shop_disturb(&shop);
  } else {
    shop_advance(&shop, 1 + shop_random(&shop, 5000000));
  }
  if (shop_chance(&shop, 2))
    shop.error_percent = shop_chance(&shop, 70) ? 0 : shop_random(&shop, 30);
  shop_pump(&shop);
  shop_check(&shop);
}

/* Everything ends by itself, but for what nobody serves; then nothing is left. */
static void finish(void) {
  for (uint32_t i = 0; i < SHOP_VOLUMES; i++)
    while (!shop_is_up(&shop, i)) {
      shop_turn_volume(&shop, i);
      shop_advance(&shop, 1000000);
    }
  for (uint32_t i = 0; i < 3000; i++) shop_advance(&shop, 1000000);
  struct ps_orders_stats stats;
  ps_orders_get_stats(shop.orders, &stats);
  SHOP_CHECK(stats.pending == 0 && ps_orders_next_time(shop.orders) == UINT64_MAX);
  const uint64_t told[] = {stats.landed, stats.warm,      stats.no_room,
                           stats.failed, stats.withdrawn, stats.expired};
  for (uint32_t i = 0; i <= PS_ORDER_EXPIRED; i++) {
    SHOP_CHECK(ends[i] == told[i]);
    all_ends[i] += ends[i];
  }
  all_refused += refused;
}

static void run(uint64_t seed) {
  shop.state = seed;
  memset(pending, 0, sizeof pending);
  memset(ends, 0, sizeof ends);
  head = tail = refused = 0;
  shop_open(&shop);
  for (uint32_t i = 0; i < STEPS; i++) step();
  finish();
  shop_close(&shop);
}

int main(int count, char **arguments) {
  char *end[2] = {NULL, NULL};
  unsigned long seed = count == 3 ? strtoul(arguments[1], &end[0], 0) : 0;
  unsigned long runs = count == 3 ? strtoul(arguments[2], &end[1], 0) : 0;
  if (count != 3 || *end[0] != '\0' || *end[1] != '\0' || runs == 0) {
    fprintf(stderr, "usage: %s SEED RUNS (two numbers)\n", arguments[0]);
    return 2;
  }
  shop.below = shop_random;
  shop.tell = hear;
  for (unsigned long i = 0; i < runs; i++) {
    shop_note_seed("orders_model", seed + i);
    run(seed + i);
  }
  static const char *const names[] = {"landed", "warm",      "no_room",
                                      "failed", "withdrawn", "expired"};
  printf("%lu runs from seed %lu:", runs, seed);
  for (uint32_t i = 0; i <= PS_ORDER_EXPIRED; i++)
    printf(" %llu %s,", (unsigned long long)all_ends[i], names[i]);
  printf(" %llu of %llu refused, %llu pieces, %llu held back\n", (unsigned long long)all_refused,
         (unsigned long long)all_taken, (unsigned long long)shop.speculated,
         (unsigned long long)shop.held_back);
  return 0;
}
