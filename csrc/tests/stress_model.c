/* The model of core_stress, on a thread of its own: it orders at random, writes over memory that is
 * not its own, dies and comes back. As a reader of facts it is sound, or mad as well; a sound one
 * that waits is woken when there is something.
 */
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reactor/internal.h"
#include "stress_control.h"

enum { WAIT_MS = 8000, LOOK_MS = 20, MOMENTS = 300, RING_OFFSET = 4096 };

struct model {
  uint8_t *memory;
  struct ps_orders_header *orders;
  struct ps_order *places;
  uint64_t capacity;
  size_t memory_bytes;
  struct ps_ring_header *ring; /* NULL: none */
  size_t ring_bytes;
  uint64_t tail; /* facts taken */
  uint64_t random;
  bool is_mad_reader;
};

static uint64_t draw(struct model *model, uint64_t below) {
  return stress_draw(&model->random, below);
}

static void *map(int fd, size_t *size) {
  *size = (size_t)lseek(fd, 0, SEEK_END);
  void *memory = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) stress_fail("a memory of the model was not mapped", *size);
  return memory;
}

static void open_model(struct model *model, struct ps_core *core) {
  model->memory = map(ps_core_orders_fd(core), &model->memory_bytes);
  model->orders = (struct ps_orders_header *)(void *)model->memory;
  model->places = (struct ps_order *)(void *)(model->memory + model->orders->orders_offset);
  model->capacity = model->orders->capacity;
  if (ps_core_ring_fd(core) < 0) return;
  model->ring = map(ps_core_ring_fd(core), &model->ring_bytes);
  model->tail = model->ring->tail;
}

static void order(struct model *model) {
  static const uint8_t kinds[] = {PS_ORDER_FETCH,    PS_ORDER_FETCH,    PS_ORDER_FETCH,
                                  PS_ORDER_FETCH,    PS_ORDER_FETCH,    PS_ORDER_FETCH,
                                  PS_ORDER_CLASSIFY, PS_ORDER_WITHDRAW, PS_ORDER_VALUES};
  uint64_t head = model->orders->head;
  for (uint64_t count = 1 + draw(model, 12); count > 0; count--, head++) {
    model->places[head & (model->capacity - 1)] = (struct ps_order){
        .id = 1 + draw(model, 2000),
        .offset = draw(model, VOLUME_BYTES),
        .length = 1 + draw(model, 200000),
        .age_ns = draw(model, UINT64_C(1) << 40),
        .expires_ns = draw(model, 2) ? UINT64_MAX : stress_now() + draw(model, 3000000),
        .value = (float)draw(model, 70),
        .aux = (uint32_t)draw(model, 2),
        .volume = (uint16_t)draw(model, VOLUMES + 2),
        .tenant = (uint16_t)draw(model, TENANTS),
        .kind = draw(model, 200) ? kinds[draw(model, sizeof kinds)] : PS_ORDER_RESET,
        .value_class = (uint8_t)(PS_TIER_OWN_CLASSES + draw(model, 56))};
  }
  __atomic_store_n(&model->orders->head, head, __ATOMIC_RELEASE);
}

static void write_values(struct model *model) {
  float *values = (float *)(void *)(model->memory + model->orders->values_offset);
  if (model->orders->values_offset != model->memory_bytes - 2 * sizeof(float) * 64 * 64) return;
  for (uint32_t i = 0; i < 2 * 64 * 64; i++) values[i] = (float)draw(model, 70);
}

/* Anywhere, its own counts among it. */
static void scribble(struct model *model) {
  size_t at =
      draw(model, 2) ? draw(model, sizeof *model->orders) : draw(model, model->memory_bytes);
  for (uint64_t count = 1 + draw(model, 16); count > 0 && at < model->memory_bytes; count--)
    model->memory[at++] = (uint8_t)draw(model, 256);
}

static void wake(int fd) {
  const uint64_t one = 1;
  ssize_t ignored = write(fd, &one, sizeof one);
  (void)ignored;
}

/* ---- facts ---- */

static void take_facts(struct model *model) {
  uint64_t head = __atomic_load_n(&model->ring->head, __ATOMIC_ACQUIRE);
  if (head - model->tail > model->ring->capacity) stress_fail("facts wait", head - model->tail);
  const struct ps_fact *facts = (const void *)((uint8_t *)model->ring + RING_OFFSET);
  for (; model->tail != head; model->tail++) {
    const struct ps_fact *fact = &facts[model->tail & (model->ring->capacity - 1)];
    if (fact->kind < PS_FACT_READ || fact->kind > PS_FACT_EVICTED)
      stress_fail("a fact of no kind", fact->kind);
    if (fact->kind == PS_FACT_FETCHED &&
        (fact->aux > PS_ORDER_EXPIRED || fact->value > fact->length + 2 * 4096))
      stress_fail("a fetch ended as nothing", fact->aux);
  }
  __atomic_store_n(&model->ring->tail, model->tail, __ATOMIC_RELEASE);
}

/* Sleeps until it is woken or is to stop, or was taken for dead since `resets` were counted: then
 * nobody remembers that it waits. False when facts are there and nobody wakes it. */
static bool sleep_for_facts(const struct model *model, const struct control *control,
                            uint64_t resets) {
  struct pollfd wake_fd = {.fd = ps_core_ring_wake_fd(control->core), .events = POLLIN};
  uint64_t since_ns = 0; /* facts are there */
  while (poll(&wake_fd, 1, LOOK_MS) <= 0) {
    bool is_there = __atomic_load_n(&model->ring->head, __ATOMIC_SEQ_CST) != model->tail;
    if (control->core_stops || (control->model_stops && !is_there)) return true;
    if (control->model_resets != resets) return true;
    if (is_there && since_ns == 0) since_ns = stress_now();
    if (is_there && stress_now() - since_ns > WAIT_MS * UINT64_C(1000000)) return false;
  }
  return true;
}

/* As the header says: first that it waits, then a look, then sleep. */
static void read_facts(struct model *model, const struct control *control) {
  uint64_t count;
  ssize_t ignored = read(ps_core_ring_wake_fd(control->core), &count, sizeof count);
  (void)ignored;
  take_facts(model);
  if (draw(model, 2)) return;
  uint64_t resets = control->model_resets;
  __atomic_store_n(&model->ring->waits, PS_RING_WAITS_ALL, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&model->ring->head, __ATOMIC_SEQ_CST) != model->tail) return;
  if (!sleep_for_facts(model, control, resets))
    stress_fail("facts came, and the model was not woken", model->ring->head - model->tail);
}

static void mad_reader(struct model *model) {
  model->ring->tail = draw(model, 3) ? model->ring->head : draw(model, UINT32_MAX) << 20;
  model->ring->waits = draw(model, 4);
}

/* ---- the thread ---- */

static void act(struct model *model, const struct control *control) {
  uint64_t what = draw(model, 20);
  if (what < 10) order(model);
  if (what == 10) write_values(model);
  if (what == 11) scribble(model);
  if (what < 15) wake(ps_core_orders_wake_fd(control->core));
  if (model->ring == NULL) return;
  if (model->is_mad_reader)
    mad_reader(model);
  else
    read_facts(model, control);
}

static void *model_main(void *argument) {
  struct control *control = argument;
  struct model model = {.random = (stress.seed * UINT64_C(0x9E3779B97F4A7C15)) | 1};
  for (int i = 0; i < 8; i++) draw(&model, 2);
  model.is_mad_reader = draw(&model, 3) == 0;
  open_model(&model, control->core);
  while (!control->model_stops) {
    act(&model, control);
    if (draw(&model, 2)) usleep((useconds_t)draw(&model, MOMENTS));
  }
  munmap(model.memory, model.memory_bytes);
  if (model.ring != NULL) munmap(model.ring, model.ring_bytes);
  return NULL;
}

void model_start(struct control *control) {
  control->model_stops = control->core_stops = false;
  control->has_model = ps_core_orders_fd(control->core) >= 0;
  if (!control->has_model) return;
  if (pthread_create(&control->model, NULL, model_main, control) != 0) stress_fail("no thread", 1);
}

void model_stop(struct control *control) {
  if (!control->has_model) return;
  control->model_stops = true;
  pthread_join(control->model, NULL);
  control->has_model = false;
}

/* Fetches go with their volumes, whatever the model does meanwhile. */
void model_check(struct control *control) {
  struct ps_core *core = control->core;
  struct ps_orders_stats stats;
  if (core->orders == NULL) return;
  core_lock(core);
  int broken = ps_orders_check(core->orders);
  core_unlock(core);
  if (broken != 0) stress_fail("an invariant of the orders is broken", (uint64_t)broken);
  ps_core_orders_stats(core, &stats);
  if (stats.pending != 0) stress_fail("fetches outlive their volumes", stats.pending);
}
