/* Orders, one by one. */
#include "internal.h"

bool ps_orders_waiting(const struct ps_orders *orders) {
  assert(orders != NULL);
  return orders_waiting(orders) != 0;
}

static bool classify(struct ps_orders *orders, uint64_t now_ns, const struct ps_order *order) {
  if (order->volume >= orders->config.volume_count) return false;
  if (order->length == 0 || order->length > PS_ORDER_MAX_BYTES) return false;
  if (order->offset > UINT64_MAX - order->length) return false;
  if (order->value_class < PS_TIER_OWN_CLASSES || order->value_class >= PS_TIER_CLASSES)
    return false;
  ps_tier_classify(orders->tier, now_ns, order->volume, order->offset, order->length,
                   order->value_class, order->age_ns);
  return true;
}

/* It may have ended meanwhile: then there is nothing to do, and nothing was wrong. */
static bool withdraw(struct ps_orders *orders, uint64_t now_ns, const struct ps_order *order) {
  if (order->id == 0 || order->id >> 62 != 0) return false;
  uint32_t index = orders_find(orders, order->id);
  if (index != NONE && orders_fetch(orders, index)->state == FETCH_QUEUED)
    orders_stop_fetch(orders, now_ns, index, PS_ORDER_WITHDRAWN);
  return true;
}

static bool set_values(struct ps_orders *orders, const struct ps_order *order) {
  if (order->aux > 1) return false;
  orders_copy_values(orders, order->aux);
  ps_tier_set_values(orders->tier, orders->values);
  return true;
}

static void set_lru(struct ps_orders *orders) {
  for (uint32_t i = 0; i < VALUES; i++)
    orders->values[i] = (float)(PS_TIER_AGE_BINS - 1 - i % PS_TIER_AGE_BINS);
  ps_tier_set_values(orders->tier, orders->values);
}

/* There may be very many fetches: so some go now, and the others with the next calls. */
static void forget_some(struct ps_orders *orders, uint64_t now_ns) {
  uint32_t left = FORGETS;
  for (uint32_t i = 0; i < orders->present_count && left > 0; i++) {
    const struct order_volume *volume = &orders->volumes[orders->present[i]];
    for (; volume->first != NONE && left > 0; left--)
      orders_end_fetch(orders, now_ns, volume->first, PS_ORDER_WITHDRAWN);
  }
  orders->is_forgetting = orders->stats.pending > 0;
  orders->forgot_ns = now_ns;
}

static void forget_model(struct ps_orders *orders, uint64_t now_ns) {
  set_lru(orders);
  orders->stats.resets++;
  forget_some(orders, now_ns);
}

static bool apply(struct ps_orders *orders, uint64_t now_ns, const struct ps_order *order) {
  switch (order->kind) {
    case PS_ORDER_FETCH:
      return orders_begin_fetch(orders, now_ns, order);
    case PS_ORDER_CLASSIFY:
      return classify(orders, now_ns, order);
    case PS_ORDER_WITHDRAW:
      return withdraw(orders, now_ns, order);
    case PS_ORDER_VALUES:
      return set_values(orders, order);
    case PS_ORDER_RESET:
      forget_model(orders, now_ns);
      return true;
    default:
      return false;
  }
}

/* How much work an order may be, in look-ups of extents. */
static uint64_t looks_of(const struct ps_orders *orders, const struct ps_order *order) {
  if (order->kind == PS_ORDER_CLASSIFY) return order->length / orders->config.slot_size + 1;
  if (order->kind == PS_ORDER_VALUES) return VALUES_LOOKS;
  return order->kind == PS_ORDER_RESET ? LOOKS : 1;
}

/* Orders that came after a reset wait until it is done. */
static bool take_orders(struct ps_orders *orders, uint64_t now_ns, uint32_t most) {
  if (orders->is_forgetting) forget_some(orders, now_ns);
  if (orders->is_forgetting) return false;
  uint64_t waiting = orders_waiting(orders);
  if (waiting > orders->config.capacity) { /* nobody can say which of them were written */
    orders->stats.refused++;
    orders_pass(orders, waiting);
    return true;
  }
  uint64_t looks = 0;
  uint64_t taken = 0;
  for (; taken < waiting && taken < most && looks < LOOKS; taken++) {
    struct ps_order order;
    orders_copy(orders, &order);
    orders_pass(orders, 1);
    looks += looks_of(orders, &order);
    orders->stats.orders++;
    if (!apply(orders, now_ns, &order)) orders->stats.refused++;
  }
  return taken == waiting;
}

static void wake(struct ps_orders *orders, uint64_t now_ns) {
  for (uint32_t i = 0; i < WAKES && orders->heap_size > 0; i++) {
    uint32_t index = orders->heap[1];
    if (orders_fetch(orders, index)->wake_ns > now_ns) return;
    orders_wake_fetch(orders, now_ns, index);
  }
}

bool ps_orders_take(struct ps_orders *orders, uint64_t now_ns, uint32_t most) {
  assert(orders != NULL);
  wake(orders, now_ns);
  bool is_done = take_orders(orders, now_ns, most);
  orders_pass(orders, 0);
  orders_tell_gauges(orders, now_ns);
  return is_done && ps_orders_next_time(orders) > now_ns;
}

uint64_t ps_orders_next_time(const struct ps_orders *orders) {
  assert(orders != NULL);
  uint64_t time_ns = orders->is_forgetting ? orders->forgot_ns : UINT64_MAX;
  if (orders->heap_size == 0) return time_ns;
  return orders_min(time_ns, orders_fetch(orders, orders->heap[1])->wake_ns);
}

void ps_orders_reset(struct ps_orders *orders, uint64_t now_ns) {
  assert(orders != NULL);
  forget_model(orders, now_ns);
  orders_pass(orders, orders_waiting(orders));
  orders_tell_header(orders);
  orders_tell_gauges(orders, now_ns);
}
