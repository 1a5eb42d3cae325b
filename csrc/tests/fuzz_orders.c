/* Fuzzing the orders: a target for libFuzzer (make -C csrc VARIANT=fuzz fuzzers). Without
 * libFuzzer, with -DFUZZ_STANDALONE, it runs seeded random inputs: fuzz_orders [FIRST_SEED
 * [COUNT]].
 *
 * The input is what a model writes into the shared memory, wherever it likes, and when: pieces of
 * bytes anywhere, orders where they belong, value tables, any head; with time going by, volumes
 * that come and go, and orders taken between.
 */
#include "orders_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct choices {
  const uint8_t *bytes;
  size_t left;
};

enum { STEPS = 200 };

/* Zeros once they are used up. */
static uint32_t choose(struct shop *shop, uint32_t bound) {
  struct choices *choices = shop->source;
  uint32_t value = 0;
  for (uint32_t most = 1; most < bound && choices->left > 0; most <<= 8) {
    value = value << 8 | *choices->bytes++;
    choices->left--;
    if (most > UINT32_MAX >> 8) break;
  }
  return value % bound;
}

static size_t copy(struct choices *choices, void *to, size_t size) {
  size_t count = size < choices->left ? size : choices->left;
  memcpy(to, choices->bytes, count);
  choices->bytes += count;
  choices->left -= count;
  return count;
}

/* Bytes anywhere in the memory. */
static void scribble(struct shop *shop) {
  size_t at = shop->below(shop, (uint32_t)shop->memory_bytes);
  size_t most = 1 + shop->below(shop, 64);
  if (most > shop->memory_bytes - at) most = shop->memory_bytes - at;
  (void)copy(shop->source, shop->memory + at, most);
}

/* An order where the next one belongs; small numbers are likely to be right ones. */
static void order(struct shop *shop) {
  struct ps_orders_header *header = shop_header(shop);
  struct ps_order *place = shop_order(shop, header->head);
  *place = (struct ps_order){.id = 1 + shop->below(shop, 64),
                             .offset = (uint64_t)shop->below(shop, 300) * SHOP_BLOCK,
                             .length = (uint64_t)shop->below(shop, 100) * SHOP_BLOCK,
                             .expires_ns = shop->now_ns + shop->below(shop, 1 << 24),
                             .value = (float)shop->below(shop, 256),
                             .aux = shop->below(shop, 3),
                             .volume = (uint16_t)shop->below(shop, SHOP_VOLUMES + 1),
                             .tenant = (uint16_t)shop->below(shop, SHOP_TENANTS + 1),
                             .kind = (uint8_t)shop->below(shop, 7),
                             .value_class = (uint8_t)(8 + shop->below(shop, 57))};
  header->head++;
}

/* The bytes of an order as they come. */
static void raw_order(struct shop *shop) {
  struct ps_orders_header *header = shop_header(shop);
  (void)copy(shop->source, shop_order(shop, header->head), sizeof(struct ps_order));
  header->head++;
}

static void set_head(struct shop *shop) {
  uint64_t head = 0;
  (void)copy(shop->source, &head, sizeof head);
  shop_header(shop)->head = head;
}

/* The gauges are the target's own, whatever was written over them. */
static void take(struct shop *shop) {
  struct ps_orders_stats stats;
  (void)ps_orders_take(shop->orders, shop->now_ns, shop->below(shop, SHOP_CAPACITY + 1));
  ps_orders_get_stats(shop->orders, &stats);
  const struct ps_orders_header *header = shop_header(shop);
  SHOP_CHECK(header->refused == stats.refused && header->fetches == stats.pending);
  SHOP_CHECK(stats.pending <= SHOP_FETCHES && header->now_ns == shop->now_ns);
}

static void step(struct shop *shop) {
  static void (*const steps[])(struct shop *) = {order,     order,    order,    take,        take,
                                                 raw_order, scribble, set_head, shop_disturb};
  uint32_t what = shop->below(shop, 13);
  if (what < sizeof steps / sizeof *steps)
    steps[what](shop);
  else if (what < 12)
    shop_advance(shop, 1 + shop->below(shop, 1 << 24));
  else
    ps_orders_reset(shop->orders, shop->now_ns);
  shop_pump(shop);
  shop_check(shop);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static struct shop shop;
  struct choices choices = {bytes, size};
  shop.below = choose;
  shop.source = &choices;
  shop_open(&shop);
  for (uint32_t i = 0; i < STEPS && choices.left > 0; i++) step(&shop);
  shop_close(&shop);
  return 0;
}

#ifdef FUZZ_STANDALONE
int main(int count, char **arguments) {
  static uint8_t bytes[2048];
  unsigned long first = count > 1 ? strtoul(arguments[1], NULL, 0) : 1;
  unsigned long runs = count > 2 ? strtoul(arguments[2], NULL, 0) : 500;
  for (unsigned long i = 0; i < runs; i++) {
    static struct shop source;
    source.state = first + i;
    shop_note_seed("fuzz_orders", first + i);
    for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (uint8_t)shop_random(&source, 256);
    LLVMFuzzerTestOneInput(bytes, 128 + shop_random(&source, sizeof bytes - 128));
  }
  printf("%lu inputs from seed %lu: ok\n", runs, first);
  return 0;
}
#endif
