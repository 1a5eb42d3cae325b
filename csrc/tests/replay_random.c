/* The replay core under random events, hints and orders: nothing is lost, all invariants hold, and
 * the same input gives the same output, however it is cut into calls.
 *
 *   replay_random [SEED [ROUNDS]]     each round has the seed after the one before
 */
#include <sys/mman.h>
#include <unistd.h>

#include "../replay.h"
#include "hints_rig.h"

enum {
  SLOTS = 128,
  EVENTS = 400,
  BATCHES = 12,
  ORDERS = 64,
  ORDER_CAPACITY = 256,
  RING_CAPACITY = 1024,
  STEP_NS = 20000000,
  STEPS = 40,
  FRAMES = 24
};

/* Everything that goes in. */
struct input {
  struct ps_replay_config config;
  struct ps_replay_event events[EVENTS];
  struct ps_order orders[ORDERS];
  uint32_t order_step[ORDERS]; /* after which step it is given */
  uint8_t data[BATCHES * PAX_MAX_BATCH_BYTES];
  uint32_t data_bytes;
};

/* Everything that comes out. */
struct output {
  struct ps_replay_result results[EVENTS];
  struct ps_replay_stats stats;
  struct ps_tier_stats tier;
  struct ps_orders_stats orders;
  uint64_t facts; /* a sum over all of them */
};

/* ---- what goes in ---- */

static void make_config(struct rig *rig, struct ps_replay_config *config) {
  *config = (struct ps_replay_config){.frame_count = FRAMES + rig->below(rig, 40),
                                      .slot_size = RIG_SLOT,
                                      .tenant_count = RIG_TENANTS,
                                      .block_size = RIG_BLOCK,
                                      .volume_bytes = (uint64_t)SLOTS * RIG_SLOT,
                                      .flash = {.seed = rig->below(rig, 1000),
                                                .read_median_us = 80,
                                                .read_p99_us = 80 + rig->below(rig, 2000),
                                                .write_median_us = 20,
                                                .write_p99_us = 40,
                                                .bandwidth = 1e6 * (1 + rig->below(rig, 200)),
                                                .scale = 1,
                                                .channels = 1 + rig->below(rig, 16)},
                                      .merge_bytes = rig_chance(rig, 50) ? 262144 : 0,
                                      .starvation_ns = 100000000,
                                      .ring_capacity = rig_chance(rig, 80) ? RING_CAPACITY : 0,
                                      .orders_capacity = ORDER_CAPACITY,
                                      .fetches = 1 + rig->below(rig, ORDERS),
                                      .hints = {.sets = 64,
                                                .set_ranges = 512,
                                                .signatures = 64,
                                                .intents = 32,
                                                .answer_pages = 4,
                                                .max_set_ranges = 64,
                                                .max_ttl_ms = 100000,
                                                .piece_bytes = 65536,
                                                .part_items = 3,
                                                .follow_bytes = 65536,
                                                .grace_ns = 1000000,
                                                .budget = {.sets = 64,
                                                           .set_ranges = 512,
                                                           .signatures = 64,
                                                           .intents = 16,
                                                           .intent_bytes = 1 << 20,
                                                           .tier_bytes = 8 * RIG_SLOT,
                                                           .records_per_s = 1000}}};
}

static void make_access(struct rig *rig, struct ps_replay_event *event) {
  static const uint8_t flags[] = {PS_FACT_READAHEAD,
                                  PS_FACT_ONCE,
                                  PS_FACT_SEQUENTIAL,
                                  PS_FACT_DATED,
                                  PS_FACT_ATTRIBUTES,
                                  0,
                                  0,
                                  0};
  uint32_t per_slot = RIG_SLOT / RIG_BLOCK;
  uint32_t start = rig_chance(rig, 80) ? 0 : rig->below(rig, per_slot);
  uint32_t blocks = rig_chance(rig, 80) ? per_slot - start : 1 + rig->below(rig, per_slot - start);
  event->op = rig_chance(rig, 80) ? PS_REPLAY_READ : PS_REPLAY_WRITE;
  event->offset = (uint64_t)rig->below(rig, SLOTS) * RIG_SLOT + (uint64_t)start * RIG_BLOCK;
  event->length = blocks * RIG_BLOCK;
  if (rig_chance(rig, 1)) event->length += 1 + rig->below(rig, 2 * RIG_SLOT);
  if (rig_chance(rig, 1)) event->offset = (uint64_t)SLOTS * RIG_SLOT - rig->below(rig, RIG_BLOCK);
  if (event->op != PS_REPLAY_READ) return;
  event->flags = flags[rig->below(rig, sizeof flags)];
  event->session = rig->below(rig, 4);
  event->deadline_us = rig->below(rig, 20000);
  event->priority = (uint8_t)rig->below(rig, 5);
}

static void make_batch(struct rig *rig, struct input *input, struct ps_replay_event *event) {
  uint8_t *bytes = input->data + input->data_bytes;
  event->op = PS_REPLAY_BATCH;
  event->offset = input->data_bytes;
  event->length = rig_batch(rig, bytes);
  if (rig_chance(rig, 10)) bytes[rig->below(rig, event->length)] ^= 1;
  input->data_bytes += event->length;
}

static void make_events(struct rig *rig, struct input *input) {
  uint64_t time_ns = 1;
  uint32_t batches = 0;
  for (uint32_t i = 0; i < EVENTS; i++) {
    struct ps_replay_event *event = &input->events[i];
    if (rig_chance(rig, 40)) time_ns += rig->below(rig, 4000000);
    *event = (struct ps_replay_event){.time_ns = time_ns,
                                      .queue = rig->below(rig, 16),
                                      .tenant = (uint16_t)rig->below(rig, RIG_TENANTS)};
    if (rig->below(rig, 400) == 0) event->tenant = RIG_TENANTS;
    if (batches < BATCHES && rig_chance(rig, 3)) {
      batches++;
      make_batch(rig, input, event);
    } else {
      make_access(rig, event);
    }
  }
}

static void make_orders(struct rig *rig, struct input *input) {
  for (uint32_t i = 0; i < ORDERS; i++) {
    input->order_step[i] = rig->below(rig, STEPS);
    input->orders[i] = (struct ps_order){
        .id = 1 + rig->below(rig, ORDERS),
        .offset = (uint64_t)rig->below(rig, SLOTS) * RIG_SLOT,
        .length = (uint64_t)(1 + rig->below(rig, 6)) * RIG_SLOT,
        .age_ns = (uint64_t)rig->below(rig, 1000) * 1000000,
        .expires_ns = (uint64_t)input->order_step[i] * STEP_NS + rig->below(rig, 200000000),
        .value = (float)rig->below(rig, 100),
        .aux = rig->below(rig, 2),
        .tenant = (uint16_t)rig->below(rig, RIG_TENANTS),
        .kind = (uint8_t)(rig_chance(rig, 60) ? PS_ORDER_FETCH : 1 + rig->below(rig, 6)),
        .value_class = (uint8_t)(PS_TIER_OWN_CLASSES + rig->below(rig, 57))};
  }
}

static void make_input(struct rig *rig, struct input *input) {
  memset(input, 0, sizeof *input);
  make_config(rig, &input->config);
  make_events(rig, input);
  make_orders(rig, input);
}

/* ---- the model's side ---- */

struct model {
  struct ps_orders_header *orders;
  struct ps_ring_header *ring; /* NULL: there is none */
  size_t orders_size, ring_size;
};

static void *map_shared(int fd, size_t *size) {
  off_t end = lseek(fd, 0, SEEK_END);
  RIG_CHECK(end > 0);
  *size = (size_t)end;
  void *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  RIG_CHECK(memory != MAP_FAILED);
  return memory;
}

static void model_open(struct model *model, const struct ps_replay *replay) {
  *model = (struct model){.ring = NULL};
  model->orders = map_shared(ps_replay_orders_fd(replay), &model->orders_size);
  if (ps_replay_ring_fd(replay) >= 0)
    model->ring = map_shared(ps_replay_ring_fd(replay), &model->ring_size);
}

static void model_close(struct model *model) {
  munmap(model->orders, model->orders_size);
  if (model->ring != NULL) munmap(model->ring, model->ring_size);
}

static void model_order(struct model *model, const struct ps_order *order) {
  struct ps_orders_header *header = model->orders;
  struct ps_order *orders = (struct ps_order *)((uint8_t *)header + header->orders_offset);
  orders[header->head % header->capacity] = *order;
  header->head++;
}

/* Takes what there is; FNV-1a over all of it, from `sum` on. */
static uint64_t model_take(struct model *model, uint64_t sum) {
  struct ps_ring_header *header = model->ring;
  if (header == NULL) return sum;
  RIG_CHECK(header->lost == 0);
  const uint8_t *facts = (const uint8_t *)header + header->facts_offset;
  for (; header->tail < header->head; header->tail++) {
    const uint8_t *fact = facts + header->tail % header->capacity * sizeof(struct ps_fact);
    for (size_t i = 0; i < sizeof(struct ps_fact); i++)
      sum = (sum ^ fact[i]) * UINT64_C(1099511628211);
  }
  return sum;
}

/* ---- running ---- */

static void check_results(const struct input *input, const struct output *output) {
  uint64_t reads = 0;
  for (uint32_t i = 0; i < EVENTS; i++) {
    const struct ps_replay_event *event = &input->events[i];
    const struct ps_replay_result *result = &output->results[i];
    RIG_CHECK(result->state != PS_REPLAY_PENDING && result->ready_ns >= event->time_ns);
    if (result->state == PS_REPLAY_REFUSED) continue;
    bool is_read = result->state >= PS_REPLAY_HIT && result->state <= PS_REPLAY_MISS;
    RIG_CHECK(is_read == (event->op == PS_REPLAY_READ));
    RIG_CHECK((result->state == PS_REPLAY_WRITTEN) == (event->op == PS_REPLAY_WRITE));
    reads += is_read;
  }
  RIG_CHECK(reads == output->tier.read_hits + output->tier.read_misses);
  RIG_CHECK(output->stats.demand_reads + output->stats.fetch_reads == output->tier.fills);
}

/* `cuts`: further ends of calls in each step. */
static void run(const struct input *input, uint32_t cuts, bool with_orders, struct output *output) {
  char error[256];
  memset(output, 0, sizeof *output);
  struct ps_replay *replay = ps_replay_new(&input->config, error, sizeof error);
  RIG_CHECK(replay != NULL);
  struct model model;
  model_open(&model, replay);
  uint64_t at = 0;
  for (uint32_t step = 0; step < STEPS || ps_replay_pending(replay) > 0 || at < EVENTS; step++) {
    RIG_CHECK(step < 100 * STEPS);
    for (uint32_t i = 0; with_orders && i < ORDERS; i++)
      if (input->order_step[i] == step) model_order(&model, &input->orders[i]);
    for (uint32_t cut = 0; cut <= cuts; cut++) {
      uint64_t until_ns = (uint64_t)step * STEP_NS + (uint64_t)STEP_NS * (cut + 1) / (cuts + 1);
      at = ps_replay_run(replay, input->events, at, EVENTS, input->data, input->data_bytes,
                         until_ns, output->results);
      RIG_CHECK(ps_replay_check(replay) == 0);
    }
    output->facts = model_take(&model, output->facts);
  }
  ps_replay_run(replay, input->events, at, EVENTS, input->data, input->data_bytes, UINT64_MAX,
                output->results); /* until nothing happens any more */
  output->facts = model_take(&model, output->facts);
  ps_replay_get_stats(replay, &output->stats);
  ps_replay_tier_stats(replay, &output->tier);
  ps_replay_orders_stats(replay, &output->orders);
  model_close(&model);
  ps_replay_free(replay);
  check_results(input, output);
}

/* Every byte, for what is between the fields was zeroed and is never written. */
static bool is_same(const struct output *one, const struct output *other) {
  const uint8_t *bytes = (const uint8_t *)one, *others = (const uint8_t *)other;
  for (size_t i = 0; i < sizeof *one; i++)
    if (bytes[i] != others[i]) return false;
  return true;
}

/* Of the runs with orders `one` is left. */
static void compare(const struct input *input, struct output *one, struct output *other) {
  run(input, 0, false, one);
  run(input, 6, false, other);
  RIG_CHECK(is_same(one, other));
  run(input, 0, true, one);
  run(input, 0, true, other);
  RIG_CHECK(is_same(one, other));
}

int main(int argc, char **argv) {
  unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
  unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 20;
  struct input *input = malloc(sizeof *input);
  struct output *outputs = malloc(2 * sizeof *outputs);
  RIG_CHECK(input != NULL && outputs != NULL);
  uint64_t hits = 0, landed = 0;
  for (unsigned long round = 0; round < rounds; round++) {
    struct rig rig = {.below = rig_random, .state = seed + round};
    rig_note_seed("replay_random", seed + round);
    make_input(&rig, input);
    compare(input, &outputs[0], &outputs[1]);
    hits += outputs[0].tier.read_hits;
    landed += outputs[0].orders.landed;
  }
  RIG_CHECK(rounds < 20 || (hits > 0 && landed > 0));
  printf("%lu rounds: %llu hits, %llu orders landed\n", rounds, (unsigned long long)hits,
         (unsigned long long)landed);
  free(input);
  free(outputs);
  return 0;
}
