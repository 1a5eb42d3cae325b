/* A fetch on its way: a job of its volume's scheduler, of which pieces are started when there is
 * nothing better to do; then, until nothing that was started is under way any more, a wait. */
#include "internal.h"

static bool is_good(const struct ps_orders *orders, const struct ps_order *order) {
  if (order->id == 0 || order->id >> 62 != 0) return false;
  if (order->volume >= orders->config.volume_count) return false;
  if (order->tenant >= orders->config.tenant_count) return false;
  if (order->length == 0 || order->length > PS_ORDER_MAX_BYTES) return false;
  if (order->offset > UINT64_MAX - order->length) return false;
  uint8_t value_class = order->value_class;
  if (value_class != 0 && value_class < PS_TIER_OWN_CLASSES) return false;
  if (value_class >= PS_TIER_CLASSES) return false;
  return order->value >= 0 && order->value < __builtin_inff(); /* and it is a number */
}

static void count_end(struct ps_orders_stats *stats, uint8_t end_as) {
  uint64_t *const counts[] = {
      [PS_ORDER_LANDED] = &stats->landed,       [PS_ORDER_WARM] = &stats->warm,
      [PS_ORDER_NO_ROOM] = &stats->no_room,     [PS_ORDER_FAILED] = &stats->failed,
      [PS_ORDER_WITHDRAWN] = &stats->withdrawn, [PS_ORDER_EXPIRED] = &stats->expired};
  assert(end_as <= PS_ORDER_EXPIRED);
  (*counts[end_as])++;
}

/* The model hears how a fetch has ended. */
static void tell_end(struct ps_orders *orders, const struct ps_fact *fact) {
  count_end(&orders->stats, (uint8_t)fact->aux);
  if (orders->ring != NULL) ps_ring_put(orders->ring, fact);
}

/* Before it has begun. */
static void end_at_once(struct ps_orders *orders, uint64_t now_ns, const struct ps_order *order,
                        uint8_t end_as) {
  const struct ps_fact fact = {.time_ns = now_ns,
                               .offset = order->offset,
                               .length = order->length,
                               .id = order->id,
                               .aux = end_as,
                               .volume = order->volume,
                               .tenant = order->tenant,
                               .kind = PS_FACT_FETCHED};
  tell_end(orders, &fact);
}

/* ---- the fetches of a volume ---- */

static void join_volume(struct ps_orders *orders, uint32_t index) {
  struct fetch *fetch = orders_fetch(orders, index);
  struct order_volume *volume = &orders->volumes[fetch->volume];
  fetch->previous = volume->last;
  if (volume->last != NONE)
    orders_fetch(orders, volume->last)->next = index;
  else
    volume->first = index;
  volume->last = index;
}

static void leave_volume(struct ps_orders *orders, uint32_t index) {
  const struct fetch *fetch = orders_fetch(orders, index);
  struct order_volume *volume = &orders->volumes[fetch->volume];
  if (fetch->previous != NONE)
    orders_fetch(orders, fetch->previous)->next = fetch->next;
  else
    volume->first = fetch->next;
  if (fetch->next != NONE)
    orders_fetch(orders, fetch->next)->previous = fetch->previous;
  else
    volume->last = fetch->previous;
}

/* ---- its end ---- */

static void leave_queue(struct ps_orders *orders, struct fetch *fetch) {
  if (fetch->state != FETCH_QUEUED) return;
  ps_sched_remove_job(orders->volumes[fetch->volume].sched, &fetch->job);
  assert(orders->waiting_bytes >= fetch->end - fetch->at);
  orders->waiting_bytes -= fetch->end - fetch->at;
  fetch->state = FETCH_SETTLING;
}

void orders_end_fetch(struct ps_orders *orders, uint64_t now_ns, uint32_t index, uint8_t end_as) {
  struct fetch *fetch = orders_fetch(orders, index);
  assert(fetch->state != FETCH_FREE && orders->stats.pending > 0);
  const struct ps_fact fact = {.time_ns = now_ns,
                               .offset = fetch->offset,
                               .length = fetch->end - fetch->offset,
                               .id = fetch->id,
                               .value = fetch->started_bytes,
                               .aux = end_as,
                               .volume = fetch->volume,
                               .tenant = fetch->tenant,
                               .kind = PS_FACT_FETCHED};
  leave_queue(orders, fetch);
  leave_volume(orders, index);
  orders_wake_never(orders, index);
  orders_free_fetch(orders, index);
  orders->stats.pending--;
  tell_end(orders, &fact);
}

void orders_stop_fetch(struct ps_orders *orders, uint64_t now_ns, uint32_t index, uint8_t end_as) {
  struct fetch *fetch = orders_fetch(orders, index);
  assert(fetch->state == FETCH_QUEUED);
  if (fetch->coming_bytes == 0) {
    orders_end_fetch(orders, now_ns, index, end_as);
    return;
  }
  leave_queue(orders, fetch);
  fetch->end_as = end_as;
  fetch->checked = fetch->offset;
  orders_wake_at(orders, index, now_ns + SETTLE_NS);
}

/* What was written before its fill had begun is never told to have ended. So after a time the tier
 * is asked, which knows. */
static void look(struct ps_orders *orders, uint64_t now_ns, uint32_t index) {
  struct fetch *fetch = orders_fetch(orders, index);
  for (uint32_t i = 0; i < SETTLE_EXTENTS && fetch->checked < fetch->at; i++) {
    uint32_t bytes = orders_span(orders, fetch->checked, fetch->at);
    uint64_t warm = 0;
    uint64_t coming = 0;
    ps_tier_residency(orders->tier, fetch->volume, fetch->checked, bytes, &warm, &coming);
    if (coming > 0) {
      orders_wake_at(orders, index, now_ns + SETTLE_NS);
      return;
    }
    fetch->checked += bytes;
  }
  if (fetch->checked < fetch->at)
    orders_wake_at(orders, index, now_ns + 1);
  else
    orders_end_fetch(orders, now_ns, index, fetch->end_as);
}

void orders_wake_fetch(struct ps_orders *orders, uint64_t now_ns, uint32_t index) {
  const struct fetch *fetch = orders_fetch(orders, index);
  assert(fetch->wake_ns <= now_ns);
  if (fetch->state == FETCH_QUEUED)
    orders_stop_fetch(orders, now_ns, index, PS_ORDER_EXPIRED);
  else
    look(orders, now_ns, index);
}

/* ---- its beginning ---- */

/* A fetch for the order, or NONE: it has ended already. */
static uint32_t admit(struct ps_orders *orders, uint64_t now_ns, const struct ps_order *order) {
  const struct order_volume *volume = &orders->volumes[order->volume];
  bool is_within = order->offset + order->length <= volume->size;
  uint8_t end_as = PS_ORDER_NO_ROOM;
  uint32_t index = NONE;
  if (volume->sched == NULL || !is_within)
    end_as = PS_ORDER_FAILED;
  else if (order->expires_ns < now_ns)
    end_as = PS_ORDER_EXPIRED;
  else
    index = orders_new_fetch(orders, order->id);
  orders->stats.fetches++;
  if (index == NONE) end_at_once(orders, now_ns, order, end_as);
  return index;
}

bool orders_begin_fetch(struct ps_orders *orders, uint64_t now_ns, const struct ps_order *order) {
  assert(orders != NULL && order != NULL);
  if (!is_good(orders, order) || orders_find(orders, order->id) != NONE) return false;
  uint32_t index = admit(orders, now_ns, order);
  if (index == NONE) return true;
  struct fetch *fetch = orders_fetch(orders, index);
  fetch->offset = order->offset;
  fetch->at = order->offset;
  fetch->end = order->offset + order->length;
  fetch->expires_ns = order->expires_ns;
  fetch->value = order->value;
  fetch->volume = order->volume;
  fetch->tenant = order->tenant;
  fetch->value_class = order->value_class;
  fetch->state = FETCH_QUEUED;
  fetch->job = (struct ps_sched_job){.deadline_ns = UINT64_MAX,
                                     .bytes = order->length,
                                     .value = order->value,
                                     .sched_class = PS_SCHED_SPECULATIVE,
                                     .priority = PS_SCHED_PRIORITIES - 1,
                                     .owner = PS_JOB_OF_ORDERS};
  join_volume(orders, index);
  orders->stats.pending++;
  orders->waiting_bytes += order->length;
  if (order->expires_ns < UINT64_MAX) orders_wake_at(orders, index, order->expires_ns + 1);
  ps_sched_add_job(orders->volumes[order->volume].sched, now_ns, &fetch->job);
  orders_announce_volume(orders, order->volume);
  return true;
}

/* ---- on its way ---- */

/* Of the whole extent: what media are asked for is rounded to units, and so are its ends. */
static uint64_t coming_of(const struct ps_orders *orders, const struct fetch *fetch) {
  uint64_t slot = orders->config.slot_size;
  uint64_t warm = 0;
  uint64_t coming = 0;
  ps_tier_residency(orders->tier, fetch->volume, fetch->at & ~(slot - 1), slot, &warm, &coming);
  return coming;
}

/* Starts what is missing of one extent: the result of the hydrate. */
static int walk_one(struct ps_orders *orders, uint64_t now_ns, uint32_t index, uint32_t bytes) {
  struct fetch *fetch = orders_fetch(orders, index);
  const struct ps_tier_access access = {
      .deadline_ns = UINT64_MAX,
      .cookie = PS_COOKIE_OF_ORDERS | (uint64_t)fetch->generation << 32 | index,
      .tenant = fetch->tenant,
      .urgency = PS_TIER_SPECULATIVE,
      .priority = PS_SCHED_PRIORITIES - 1,
      .value_class = fetch->value_class,
      .value = fetch->value,
      .source = PS_TIER_OF_MODEL};
  uint64_t before = coming_of(orders, fetch);
  int result = ps_tier_hydrate(orders->tier, now_ns, fetch->volume, fetch->at, bytes, &access);
  if (result == PS_TIER_STARTED) {
    uint64_t started = coming_of(orders, fetch) - before;
    fetch->coming_bytes += started;
    fetch->started_bytes += started;
    orders->stats.fetched_bytes += started;
  }
  return result;
}

void ps_orders_start_job(struct ps_orders *orders, uint64_t now_ns, struct ps_sched_job *job) {
  assert(orders != NULL && job != NULL && job->owner == PS_JOB_OF_ORDERS);
  struct fetch *fetch = (struct fetch *)(void *)((uint8_t *)job - offsetof(struct fetch, job));
  uint32_t index = (uint32_t)(fetch - orders->fetches);
  assert(orders_fetch(orders, index)->state == FETCH_QUEUED);
  if (orders->is_forgetting) {
    orders_end_fetch(orders, now_ns, index, PS_ORDER_WITHDRAWN);
    return;
  }
  if (now_ns > fetch->expires_ns) {
    orders_stop_fetch(orders, now_ns, index, PS_ORDER_EXPIRED);
    return;
  }
  uint64_t before = fetch->started_bytes;
  for (uint32_t i = 0; i < WALK_EXTENTS && fetch->at < fetch->end; i++) {
    if (fetch->started_bytes - before >= orders->config.piece_bytes) break;
    uint32_t bytes = orders_span(orders, fetch->at, fetch->end);
    int result = walk_one(orders, now_ns, index, bytes);
    if (result == PS_TIER_NO_ROOM || result == PS_TIER_INVALID) {
      bool lacks_room = result == PS_TIER_NO_ROOM;
      orders_stop_fetch(orders, now_ns, index, lacks_room ? PS_ORDER_NO_ROOM : PS_ORDER_FAILED);
      return;
    }
    /* BUSY: what is written there, or read from there, just now stays warm as far as it is. */
    fetch->at += bytes;
    orders->waiting_bytes -= bytes;
  }
  if (fetch->at == fetch->end) {
    bool has_read = fetch->started_bytes > 0;
    orders_stop_fetch(orders, now_ns, index, has_read ? PS_ORDER_LANDED : PS_ORDER_WARM);
    return;
  }
  fetch->job.bytes = fetch->end - fetch->at;
  ps_sched_update_job(orders->volumes[fetch->volume].sched, now_ns, &fetch->job);
  orders_announce_volume(orders, fetch->volume);
}

void ps_orders_fill_ended(struct ps_orders *orders, uint64_t now_ns, uint64_t cookie,
                          uint32_t bytes, int32_t error) {
  assert(orders != NULL && (cookie & PS_COOKIE_OF_ORDERS) != 0);
  uint32_t index = (uint32_t)cookie;
  if (index == NONE || index > orders->fresh) return;
  struct fetch *fetch = orders_fetch(orders, index);
  bool is_it = fetch->generation == ((cookie & ~PS_COOKIE_OF_ORDERS) >> 32);
  if (!is_it || fetch->state == FETCH_FREE) return;
  fetch->coming_bytes -= orders_min(bytes, fetch->coming_bytes);
  if (error != 0 && fetch->state == FETCH_QUEUED) {
    orders_stop_fetch(orders, now_ns, index, PS_ORDER_FAILED);
    return;
  }
  if (error != 0) fetch->end_as = PS_ORDER_FAILED;
  if (fetch->state == FETCH_SETTLING && fetch->coming_bytes == 0)
    orders_end_fetch(orders, now_ns, index, fetch->end_as);
}
