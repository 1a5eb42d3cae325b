/* The scheduler: what starts next. */
#include <stdlib.h>

#include "../media.h"
#include "internal.h"

#define WRITE_SHARE 4        /* one in so many operations under way may be a write ... */
#define READ_NS (10 * MS_NS) /* ... when a read was wanted within this time */

struct ps_sched *ps_sched_new(const struct ps_sched_config *config) {
  assert(config != NULL);
  if (config->window == 0 || config->starvation_ns == 0) return NULL;
  struct ps_sched *sched = calloc(1, sizeof(*sched));
  if (sched == NULL) return NULL;
  sched->config = *config;
  meter_init(&sched->meter, config);
  tree_set_cost(&sched->dated, 1);
  tree_set_cost(&sched->guesses, 1);
  tree_set_cost(&sched->jobs, 1e9 / meter_left_over(&sched->meter));
  return sched;
}

void ps_sched_free(struct ps_sched *sched) { free(sched); }

void ps_sched_push(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item) {
  assert(sched != NULL && item != NULL);
  now_ns = sched_tick(sched, now_ns);
  item->arrived_ns = now_ns;
  item->started_ns = 0;
  item->merged = NULL;
  queue_add(sched, item);
  if (item->sched_class == PS_SCHED_DEMAND || item->sched_class == PS_SCHED_DATED)
    sched->read_ns = now_ns;
  sched->was_offered = false;
}

void ps_sched_promote(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item,
                      uint32_t sched_class, uint64_t deadline_ns) {
  assert(sched != NULL && item != NULL && sched_class < PS_SCHED_CLASSES);
  if (item->state != WAITING) return;
  sched_tick(sched, now_ns);
  queue_remove(sched, item);
  item->sched_class = (uint8_t)sched_class;
  item->deadline_ns = deadline_ns;
  queue_add(sched, item);
}

/* An undated read or a write that has waited for too long. */
static struct ps_sched_item *starving(const struct ps_sched *sched, uint64_t now_ns) {
  static const uint32_t classes[] = {PS_SCHED_DEMAND, PS_SCHED_WRITE};
  struct ps_sched_item *oldest = NULL;
  for (uint32_t i = 0; i < 2; i++) {
    struct ps_sched_item *item = queue_oldest(sched, classes[i]);
    if (item == NULL || now_ns - item->arrived_ns < sched->config.starvation_ns) continue;
    if (oldest == NULL || item->arrived_ns < oldest->arrived_ns) oldest = item;
  }
  return oldest;
}

/* When the next of them will have: a medium that ends nothing must not make them wait for ever. */
static uint64_t starving_time(const struct ps_sched *sched) {
  const struct ps_sched_item *read = queue_oldest(sched, PS_SCHED_DEMAND);
  const struct ps_sched_item *write = queue_oldest(sched, PS_SCHED_WRITE);
  uint64_t arrived_ns = UINT64_MAX - sched->config.starvation_ns;
  if (read != NULL && read->arrived_ns < arrived_ns) arrived_ns = read->arrived_ns;
  if (write != NULL && write->arrived_ns < arrived_ns) arrived_ns = write->arrived_ns;
  return arrived_ns + sched->config.starvation_ns;
}

/* Writes are bounded, and paced, for the sake of reads. */
static bool writes_are_alone(const struct ps_sched *sched, uint64_t now_ns) {
  return now_ns - sched->read_ns >= READ_NS && sched->first_job == NULL &&
         sched->stats.waiting[PS_SCHED_DATED] == 0;
}

static bool may_write(const struct ps_sched *sched) {
  uint32_t under_way = sched->stats.in_flight[PS_SCHED_WRITE];
  return under_way == 0 || under_way < meter_window(&sched->meter) / WRITE_SHARE;
}

/* What starts when the medium has run out of transfers and no demand read waits. */
static struct ps_sched_item *choose_paced(struct ps_sched *sched, uint64_t now_ns) {
  struct ps_sched_item *write = queue_first(sched, PS_SCHED_WRITE);
  if (write != NULL && writes_are_alone(sched, now_ns)) return write;
  struct ps_sched_item *item = may_write(sched) ? write : NULL;
  if (item == NULL) item = queue_first_dated(sched);
  if (item != NULL) return gate_ask(sched, now_ns, GATE_SLACK) ? item : NULL;
  if (sched->first_job != NULL) return NULL;
  item = queue_first(sched, PS_SCHED_SPECULATIVE);
  return item != NULL && gate_is_open(sched, now_ns, GATE_IDLE) ? item : NULL;
}

static struct ps_sched_item *choose(struct ps_sched *sched, uint64_t now_ns) {
  struct ps_sched_item *starved = starving(sched, now_ns);
  if (starved != NULL) {
    sched->stats.starved++;
    return starved;
  }
  struct ps_sched_item *dated = queue_first_dated(sched);
  bool is_critical = jobs_are_critical(sched, now_ns);
  if (dated != NULL && (is_critical || jobs_is_due(sched, now_ns, dated)) &&
      gate_is_open(sched, now_ns, GATE_URGENT))
    return dated;
  if (dated == NULL && is_critical && jobs_must_go(sched, now_ns)) return NULL;
  struct ps_sched_item *demand = queue_first(sched, PS_SCHED_DEMAND);
  if (demand != NULL) return demand;
  return choose_paced(sched, now_ns);
}

static uint32_t merge_limit(const struct ps_sched *sched, const struct ps_sched_item *item) {
  if (item->sched_class == PS_SCHED_DEMAND) return sched->config.merge_bytes;
  return gate_quantum(sched);
}

static void take(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item) {
  queue_remove(sched, item);
  item->state = STARTED;
  item->started_ns = now_ns;
  item->merged = NULL;
  sched->stats.waited_ns[item->sched_class] += now_ns - item->arrived_ns;
}

/* Takes `item` and the neighbours that go with it; returns the bytes of all. */
static uint32_t take_all(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item) {
  uint32_t bytes = item->length;
  uint32_t limit = merge_limit(sched, item);
  struct ps_sched_item *last = item;
  struct ps_sched_item *next = queue_neighbour(sched, last);
  take(sched, now_ns, item);
  for (uint32_t count = 1; count < PS_MEDIA_PARTS && next != NULL; count++) {
    if (bytes + next->length > limit) break;
    last->merged = next;
    last = next;
    bytes += next->length;
    next = queue_neighbour(sched, last);
    take(sched, now_ns, last);
    sched->stats.merges++;
  }
  return bytes;
}

static bool has_bytes(const struct ps_sched_item *item) {
  return item->op == PS_MEDIA_READ || item->op == PS_MEDIA_WRITE || item->op == PS_MEDIA_PREFETCH;
}

uint64_t sched_rest_until(const struct ps_sched *sched, uint64_t now_ns) {
  if (sched->in_flight == 0 || writes_are_alone(sched, now_ns)) return 0;
  return meter_rest_until(&sched->meter, now_ns, true);
}

struct ps_sched_item *ps_sched_pop(struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL);
  if (ps_sched_waiting(sched) == 0) return NULL;
  now_ns = sched_tick(sched, now_ns);
  if (sched->in_flight >= meter_window(&sched->meter)) {
    sched->meter.was_full = true;
    return NULL;
  }
  if (sched_rest_until(sched, now_ns) > now_ns) return NULL;
  struct ps_sched_item *item = choose(sched, now_ns);
  if (item == NULL) return NULL;
  uint32_t bytes = take_all(sched, now_ns, item);
  meter_start(&sched->meter, now_ns, item, has_bytes(item) ? bytes : 0, sched->in_flight);
  sched->in_flight++;
  sched->stats.in_flight[item->sched_class]++;
  sched->stats.started[item->sched_class]++;
  sched->stats.started_bytes[item->sched_class] += bytes;
  if (item->sched_class != PS_SCHED_DEMAND) {
    sched->paced_ops++;
    sched->paced_bytes += bytes;
  }
  jobs_note_pending(sched, now_ns, 0);
  return item;
}

void ps_sched_done(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_item *item) {
  assert(sched != NULL && item != NULL && sched->in_flight > 0);
  assert(item->state == STARTED);
  now_ns = sched_tick(sched, now_ns);
  uint32_t bytes = 0;
  for (struct ps_sched_item *each = item; each != NULL; each = each->merged) {
    bytes += each->length;
    each->state = IDLE;
    if (each->sched_class != PS_SCHED_DATED || each->deadline_ns == UINT64_MAX) continue;
    if (now_ns <= each->deadline_ns)
      sched->stats.dated_met++;
    else
      sched->stats.dated_late++;
  }
  sched->in_flight--;
  sched->stats.in_flight[item->sched_class]--;
  sched->stats.ended[item->sched_class]++;
  if (item->sched_class != PS_SCHED_DEMAND) {
    sched->paced_ops--;
    sched->paced_bytes -= bytes;
  }
  sched->was_offered = false;
  meter_end(&sched->meter, now_ns, item, has_bytes(item) ? bytes : 0, sched->in_flight);
}

/* When work that nobody waits for may start. */
static uint64_t paced_time(const struct ps_sched *sched, uint64_t now_ns) {
  const struct ps_sched_stats *stats = &sched->stats;
  bool writes = stats->waiting[PS_SCHED_WRITE] > 0;
  if (writes && writes_are_alone(sched, now_ns)) return now_ns;
  uint64_t time = UINT64_MAX;
  bool has_slack = stats->waiting[PS_SCHED_DATED] > 0 || sched->first_job != NULL ||
                   (writes && may_write(sched));
  bool has_guesses = stats->waiting[PS_SCHED_SPECULATIVE] > 0 || sched->guesses.root != NULL;
  if (has_slack)
    time = gate_time(sched, now_ns, GATE_SLACK);
  else if (has_guesses)
    time = gate_time(sched, now_ns, GATE_IDLE);
  /* When no read comes any more, writes are free to go. */
  uint64_t free_ns = sched->read_ns + READ_NS;
  if (writes && free_ns > now_ns && free_ns < time) time = free_ns;
  return time;
}

uint64_t ps_sched_next_time(const struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL);
  if (sched->in_flight >= meter_window(&sched->meter)) return UINT64_MAX;
  now_ns = sched_time(sched, now_ns);
  uint64_t time = paced_time(sched, now_ns);
  uint64_t starving_ns = starving_time(sched);
  if (starving_ns < time) time = starving_ns;
  uint64_t rest_ns = sched_rest_until(sched, now_ns);
  if (rest_ns > now_ns && (sched->stats.waiting[PS_SCHED_DEMAND] > 0 || time < rest_ns))
    return rest_ns;
  /* What was offered and not taken is offered again when something has ended, or a little later. */
  if (time <= now_ns && sched->was_offered) return now_ns + MS_NS;
  return time > now_ns ? time : now_ns;
}

uint32_t ps_sched_waiting(const struct ps_sched *sched) {
  assert(sched != NULL);
  uint32_t waiting = 0;
  for (uint32_t i = 0; i < PS_SCHED_CLASSES; i++) waiting += sched->stats.waiting[i];
  return waiting;
}

uint32_t ps_sched_in_flight(const struct ps_sched *sched) {
  assert(sched != NULL);
  return sched->in_flight;
}

void ps_sched_get_stats(const struct ps_sched *sched, struct ps_sched_stats *stats) {
  assert(sched != NULL && stats != NULL);
  const struct meter *meter = &sched->meter;
  *stats = sched->stats;
  stats->job_bytes = tree_sum(&sched->jobs) + sched->late_bytes;
  stats->window = meter_window(meter);
  stats->bandwidth = (uint64_t)meter->bandwidth;
  stats->service_ns = (uint64_t)(meter->latency_ns + meter_transfer_ns(meter, 65536));
}
