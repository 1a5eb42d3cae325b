/* Jobs: work that is kept back, a piece of it started whenever the medium has nothing better to do.
 *
 * Dated jobs are worked on steadily, and in the order in which they came while all of them have
 * slack: then it is known early when each will be ready, and no deadline suffers. When the slack of
 * any runs out, they go by deadline. Those that cannot be in time any more go when others have
 * slack, and have a turn when none has.
 */
#include <string.h>

#include "internal.h"

#define TIGHT 30.0       /* latencies of slack, and jobs go by deadline when there is less */
#define LATE_TURNS 16    /* one piece in so many is of the oldest job when there is no slack */
#define LOOKED_AT 8      /* jobs that may make the first of them critical */
#define CRITICAL 2.0     /* latencies before the latest start at which it becomes so */
#define COST_CHANGE 0.05 /* the tree follows the estimates in steps of this size */

static struct ps_sched_job *job_of(struct ps_sched_node *node) {
  return CONTAINER(node, struct ps_sched_job, node);
}

static void list_add(struct ps_sched *sched, struct ps_sched_job *job) {
  job->next = NULL;
  job->previous = sched->last_job;
  if (sched->last_job != NULL)
    sched->last_job->next = job;
  else
    sched->first_job = job;
  sched->last_job = job;
}

static void list_remove(struct ps_sched *sched, struct ps_sched_job *job) {
  if (job->previous != NULL)
    job->previous->next = job->next;
  else
    sched->first_job = job->next;
  if (job->next != NULL)
    job->next->previous = job->previous;
  else
    sched->last_job = job->previous;
  job->next = NULL;
  job->previous = NULL;
}

/* Larger values become smaller keys: the bits of a positive float are ordered as it is. */
static uint64_t key_of_value(float value) {
  uint32_t bits = 0;
  float positive = value > 0 ? value : 0;
  memcpy(&bits, &positive, sizeof bits);
  return UINT32_MAX - bits;
}

static void enter(struct ps_sched *sched, struct ps_sched_job *job) {
  bool is_dated = job->sched_class == PS_SCHED_DATED;
  job->node.key = is_dated ? job->deadline_ns : key_of_value(job->value);
  job->node.weight = job->bytes;
  tree_insert(is_dated ? &sched->jobs : &sched->guesses, &job->node);
  job->state = WAITING;
}

static void leave(struct ps_sched *sched, struct ps_sched_job *job) {
  if (job->state == LATE)
    sched->late_bytes -= job->node.weight;
  else
    tree_remove(job->sched_class == PS_SCHED_DATED ? &sched->jobs : &sched->guesses, &job->node);
  job->state = IDLE;
}

static void note_overtaking(struct ps_sched *sched, uint64_t now_ns,
                            const struct ps_sched_job *job) {
  double service_ns = (double)job->bytes * 1e9 / meter_left_over(&sched->meter);
  double goes_ns = (double)job->deadline_ns - service_ns - (double)jobs_tight_ns(sched);
  uint64_t slack_ns = goes_ns > (double)now_ns ? (uint64_t)goes_ns - now_ns : 0;
  overtaking_note(&sched->overtaking, now_ns, slack_ns, job->bytes);
}

void ps_sched_add_job(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_job *job) {
  assert(sched != NULL && job != NULL && job->bytes > 0);
  assert(job->sched_class == PS_SCHED_DATED || job->sched_class == PS_SCHED_SPECULATIVE);
  assert(job->priority < PS_SCHED_PRIORITIES);
  now_ns = sched_tick(sched, now_ns);
  job->arrived_ns = now_ns;
  job->node.order = (uint64_t)job->priority << 60 | sched->orders++;
  enter(sched, job);
  if (job->sched_class == PS_SCHED_DATED) {
    list_add(sched, job);
    note_overtaking(sched, now_ns, job);
  }
  sched->stats.jobs++;
  sched->was_offered = false;
  jobs_note_pending(sched, now_ns, 0);
}

/* What was started of a job: what its caller has made it smaller by; or its last piece, when it was
 * given and is gone. */
static uint64_t taken_of(const struct ps_sched *sched, const struct ps_sched_job *job,
                         bool is_gone) {
  if (job->sched_class != PS_SCHED_DATED) return 0;
  if (job->bytes < job->node.weight) return job->node.weight - job->bytes;
  if (!is_gone || job != sched->given) return 0;
  uint64_t piece = sched->config.merge_bytes;
  return job->bytes < piece ? job->bytes : piece;
}

void ps_sched_update_job(struct ps_sched *sched, uint64_t now_ns, struct ps_sched_job *job) {
  assert(sched != NULL && job != NULL && (job->state == WAITING || job->state == LATE));
  now_ns = sched_tick(sched, now_ns);
  meter_job_bytes(&sched->meter, taken_of(sched, job, false));
  leave(sched, job);
  enter(sched, job);
  sched->was_offered = false;
  jobs_note_pending(sched, now_ns, 0);
}

void ps_sched_remove_job(struct ps_sched *sched, struct ps_sched_job *job) {
  assert(sched != NULL && job != NULL && (job->state == WAITING || job->state == LATE));
  assert(sched->stats.jobs > 0);
  uint64_t taken = taken_of(sched, job, true);
  meter_job_bytes(&sched->meter, taken);
  leave(sched, job);
  if (job->sched_class == PS_SCHED_DATED) list_remove(sched, job);
  if (sched->given == job) sched->given = NULL;
  sched->stats.jobs--;
  sched->was_offered = false;
  jobs_note_pending(sched, sched->meter.share_from_ns, taken);
}

void jobs_note_pending(struct ps_sched *sched, uint64_t now_ns, uint64_t taken) {
  assert(sched != NULL);
  /* Its items may be there already. */
  uint64_t rest = tree_sum(&sched->dated);
  meter_pending(&sched->meter, now_ns, sched->first_job != NULL, rest > taken ? rest : taken);
  double cost = 1e9 / meter_left_over(&sched->meter);
  double change = cost / sched->jobs.ns_per_byte;
  if (change > 1 + COST_CHANGE || change < 1 - COST_CHANGE) tree_set_cost(&sched->jobs, cost);
}

/* Jobs that cannot be in time, even with all that the medium has, are in nobody's way. */
static void settle_late(struct ps_sched *sched, uint64_t now_ns) {
  struct ps_sched_node *node = NULL;
  while ((node = tree_first(&sched->jobs)) != NULL) {
    uint64_t least_ns = (uint64_t)meter_transfer_ns(&sched->meter, node->weight);
    if (node->key >= now_ns + least_ns) return;
    tree_remove(&sched->jobs, node);
    sched->late_bytes += node->weight;
    job_of(node)->state = LATE;
  }
}

uint64_t jobs_tight_ns(const struct ps_sched *sched) {
  return (uint64_t)(sched->meter.latency_ns * TIGHT);
}

bool jobs_are_tight(const struct ps_sched *sched, uint64_t now_ns) {
  return tree_slack(&sched->jobs) < (int64_t)(now_ns + jobs_tight_ns(sched));
}

struct ps_sched_job *jobs_pick(struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL);
  settle_late(sched, now_ns);
  struct ps_sched_node *first = tree_first(&sched->jobs);
  if (first == NULL || !jobs_are_tight(sched, now_ns)) return sched->first_job;
  if (sched->late_bytes > 0 && ++sched->turns % LATE_TURNS == 0) return sched->first_job;
  return job_of(first);
}

bool jobs_is_due(const struct ps_sched *sched, uint64_t now_ns, const struct ps_sched_item *item) {
  uint64_t margin = (uint64_t)(sched->meter.latency_ns * CRITICAL);
  return item->node.key <= now_ns + margin;
}

bool jobs_are_critical(struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL);
  if (!jobs_are_tight(sched, now_ns)) return false;
  settle_late(sched, now_ns);
  uint64_t margin = (uint64_t)(sched->meter.latency_ns * (1 + CRITICAL));
  uint64_t bytes = 0;
  struct ps_sched_node *node = tree_first(&sched->jobs);
  for (uint32_t i = 0; i < LOOKED_AT && node != NULL; i++) {
    bytes += node->weight;
    uint64_t least_ns = (uint64_t)meter_transfer_ns(&sched->meter, bytes);
    if (node->key < now_ns + margin + least_ns) return true;
    node = tree_next(node);
  }
  return false;
}

bool jobs_must_go(struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL);
  if (sched->was_offered && sched->offered_ns == now_ns) return false;
  return gate_is_open(sched, now_ns, GATE_URGENT);
}

static struct ps_sched_job *choose(struct ps_sched *sched, uint64_t now_ns) {
  const struct ps_sched_stats *stats = &sched->stats;
  if (sched->in_flight >= meter_window(&sched->meter)) return NULL;
  if (sched_rest_until(sched, now_ns) > now_ns) return NULL;
  if (stats->waiting[PS_SCHED_DATED] > 0) return NULL;
  if (jobs_are_critical(sched, now_ns) && gate_is_open(sched, now_ns, GATE_URGENT))
    return jobs_pick(sched, now_ns);
  if (stats->waiting[PS_SCHED_DEMAND] > 0) return NULL;
  if (sched->first_job != NULL)
    return gate_ask(sched, now_ns, GATE_SLACK) ? jobs_pick(sched, now_ns) : NULL;
  if (stats->waiting[PS_SCHED_SPECULATIVE] > 0 || !gate_is_open(sched, now_ns, GATE_IDLE))
    return NULL;
  struct ps_sched_node *node = tree_first(&sched->guesses);
  return node == NULL ? NULL : job_of(node);
}

struct ps_sched_job *ps_sched_next_job(struct ps_sched *sched, uint64_t now_ns) {
  assert(sched != NULL);
  now_ns = sched_tick(sched, now_ns);
  /* Nothing came of what was offered: there is no memory for it, for now. */
  if (sched->was_offered && sched->offered_ns == now_ns) return NULL;
  struct ps_sched_job *job = choose(sched, now_ns);
  sched->given = job;
  sched->was_offered = job != NULL;
  sched->offered_ns = now_ns;
  return job;
}
