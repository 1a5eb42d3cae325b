/* What the medium is found to do: its bandwidth, its latency, and how much of it dated work gets.
 *
 * A medium is taken for one path that moves the bytes of all operations one after the other, and a
 * latency that each operation has for itself. From the operations that were started follows when
 * the path is free again, and for each read how long its transfer should take, with those before
 * it. Reads that have ended tell how far that was right:
 *  - one that was alone in the medium tells the latency. When none has been for long, whatever can
 *    wait is held back for a moment, so that one is;
 *  - the others tell, as in a phase-locked loop, whether the path is really free when it is
 *    expected to be, and, by the drift of that, the bandwidth;
 *    Two of different sizes also tell the least that the bandwidth can be;
 *  - the first ones tell sooner how far off the bandwidth is at the start, as the slope of the
 *    regression of their times on the expected transfers. (Later, when it is nearly right, that
 *    slope is too small, for what is expected has errors of its own.)
 * A bandwidth that is far off makes all that is expected wrong, and the loop then cannot hold. So
 * what ends while operations queue, in how much time, is looked at beside it (and what single reads
 * of different sizes take), and the estimate is set to that when it is far from it.
 * So all of it is known at any load, and not only when the medium has all it can do.
 */
#include <math.h>

#include "internal.h"

#define START_BANDWIDTH 4e9      /* it is found sooner from above */
#define CAUTIOUS_BANDWIDTH 500e6 /* what is promised by one too large is not kept */
#define LEAST_BANDWIDTH 1e6
#define MOST_BANDWIDTH 1e12
#define START_LATENCY_NS 100e3
#define LEAST_LATENCY_NS 1e3
#define OFF_MOST 4.0 /* latencies that a read may take longer than expected, at most */

#define ALONE_MEMORY_NS 8e9 /* they fade in this time */
#define ALONE_LEAST 4.0     /* with fewer, those that somebody waits for rest as often */
#define ALONE_FEW 32.0      /* with fewer, there should be more soon */
#define REST_FEW_NS (3 * MS_NS)
#define REST_NS (50 * MS_NS)
#define REST_DEMAND_NS SECOND_NS
#define REST_APART 40.0 /* times of a read between two rests, at least */
#define REST_TIMES 4.0  /* a rest takes at most so many times of a read */

#define BATCH 32 /* reads between two looks at what they say */
#define TIME_GAIN (1.0 / 64)
#define PHASE_GAIN (1.0 / 64) /* of a read's deviation corrects when the path is free */
#define DRIFT_GAIN 0.25       /* of the drift in a batch corrects the bandwidth */
#define DRIFT_UP 0.0005       /* a bandwidth too small shows least: it grows a little, always */
#define DRIFT_MOST 0.2

#define FIRST_READS 1024.0 /* from which the regression is made */
#define FIRST_MEMORY 256.0
#define FAR_OFF 0.1 /* of its slope, beyond its error: it counts from here on */
#define SIZES_MEMORY 64.0
#define SIZES_LEAST 16.0    /* single reads */
#define SIZES_VARIED 4096.0 /* bytes: the deviation of their sizes */
#define SIZES_ERRORS 3.0
#define LEAST_VARIED 0.05 /* the deviation of transfers, of reads' times, from which it counts */

#define WINDOW_COUNT 8 /* operations that a window of the throughput has, at least */
#define WINDOW_NS (5 * MS_NS)
#define WINDOWS 3     /* in a row that say the same */
#define QUEUED 2.5    /* times of single operations, from which on they wait for the path */
#define STEP_LESS 1.5 /* times that the bandwidth is off, from which on they count */
#define STEP_MORE 1.25
#define OUTRUN 1.1      /* times that single reads are quicker than their transfers should be */
#define OUTRUN_STEP 2.0 /* of what they show: some of their time is latency */

#define START_WINDOW 32.0
#define LEAST_WINDOW 4.0
#define QUEUEING 4.0 /* the window shrinks when reads take longer than so many latencies */

#define LATE_MOST 1.0 /* latencies */
#define LATE_GAIN (1.0 / 16)

#define START_SHARE 0.8
#define SHARE_SAMPLE_NS MS_NS
#define SHARE_MEMORY_NS 200e6

double meter_transfer_ns(const struct meter *meter, uint64_t bytes) {
  return (double)bytes * 1e9 / meter->bandwidth;
}

/* Transfers still to come of what was started. */
static uint64_t backlog_ns(const struct meter *meter, uint64_t now_ns) {
  return meter->free_ns > now_ns ? meter->free_ns - now_ns : 0;
}

uint64_t meter_rest_until(const struct meter *meter, uint64_t now_ns, bool is_demand) {
  uint64_t every_ns = meter->sizes.count >= ALONE_FEW ? REST_NS : REST_FEW_NS;
  uint64_t least_ns = (uint64_t)(REST_APART * meter->time_ns);
  if (is_demand) every_ns = meter->sizes.count < ALONE_LEAST ? REST_NS : REST_DEMAND_NS;
  if (every_ns < least_ns) every_ns = least_ns;
  uint64_t since_ns = now_ns - meter->alone_ns;
  if (since_ns < every_ns) return 0;
  /* When one rest was not enough, another one follows as long after it. */
  return now_ns - since_ns % every_ns + (uint64_t)(REST_TIMES * meter->time_ns);
}

void meter_late(struct meter *meter, double late_ns) {
  assert(meter != NULL && late_ns >= 0);
  double most_ns = LATE_MOST * meter->latency_ns;
  meter->late_ns += (fmin(late_ns, most_ns) - meter->late_ns) * LATE_GAIN;
}

uint32_t meter_window(const struct meter *meter) { return (uint32_t)meter->window; }

void meter_start(struct meter *meter, uint64_t now_ns, struct ps_sched_item *item, uint32_t bytes,
                 uint32_t in_flight) {
  assert(meter != NULL && item != NULL);
  uint64_t begin = meter->free_ns > now_ns ? meter->free_ns : now_ns;
  item->is_alone = in_flight == 0 && bytes > 0 && item->sched_class != PS_SCHED_WRITE;
  if (meter->alone_ns == 0) meter->alone_ns = now_ns;
  if (item->is_alone) {
    meter->sizes.count *= exp(-(double)(now_ns - meter->alone_ns) / ALONE_MEMORY_NS);
    meter->alone_ns = now_ns;
  }
  meter->free_ns = begin + (uint64_t)meter_transfer_ns(meter, bytes);
  meter->started_bytes += bytes;
  item->transfer_ns = meter->free_ns - now_ns;
  item->transfer_end = meter->started_bytes;
}

static double between(double value, double least, double most) {
  return fmin(fmax(value, least), most);
}

void meter_init(struct meter *meter, const struct ps_sched_config *config) {
  assert(meter != NULL && config != NULL && config->window > 0);
  double bandwidth = config->bandwidth > 0 ? (double)config->bandwidth : START_BANDWIDTH;
  double latency_ns = config->latency_ns > 0 ? (double)config->latency_ns : START_LATENCY_NS;
  latency_ns = fmax(latency_ns, LEAST_LATENCY_NS);
  *meter = (struct meter){.bandwidth = between(bandwidth, LEAST_BANDWIDTH, MOST_BANDWIDTH),
                          .latency_ns = latency_ns,
                          .spread_ns = latency_ns / 8,
                          .time_ns = latency_ns,
                          .most_window = config->window,
                          .window = fmin(START_WINDOW, config->window),
                          .share = START_SHARE,
                          .is_stated = config->bandwidth > 0};
}

/* One more point; of `memory` points, those before fade. */
static void regress(struct regression *regression, double x, double y, double memory) {
  regression->count++;
  double weight = fmax(1 / regression->count, 1 / memory);
  double off_x = x - regression->mean_x;
  double off_y = y - regression->mean_y;
  regression->mean_x += weight * off_x;
  regression->mean_y += weight * off_y;
  regression->var_x = (1 - weight) * (regression->var_x + weight * off_x * off_x);
  regression->var_y = (1 - weight) * (regression->var_y + weight * off_y * off_y);
  regression->cov_xy = (1 - weight) * (regression->cov_xy + weight * off_x * off_y);
}

static double slope_of(const struct regression *regression) {
  return regression->cov_xy / regression->var_x;
}

/* The standard error of the slope. */
static double error_of(const struct regression *regression, double memory) {
  double rest = fmax(regression->var_y - slope_of(regression) * regression->cov_xy, 0);
  return sqrt(rest / (fmin(regression->count, memory) * regression->var_x));
}

/* The slope of the first reads is 1 when the bandwidth is right. It counts as far as it is beyond
 * its own standard error. */
static void find_bandwidth(struct meter *meter) {
  struct regression *first = &meter->first;
  double least = LEAST_VARIED * first->mean_y;
  /* Transfers that are all alike tell nothing. */
  if (first->count >= FIRST_READS || first->var_x < least * least) return;
  double slope = slope_of(first);
  double excess = fabs(slope - 1) - error_of(first, FIRST_MEMORY) - FAR_OFF;
  if (excess <= 0) return;
  double factor = between(slope > 1 ? 1 + excess : 1 - excess, 0.5, 2);
  double bandwidth = between(meter->bandwidth / factor, LEAST_BANDWIDTH, MOST_BANDWIDTH);
  factor = meter->bandwidth / bandwidth;
  meter->bandwidth = bandwidth;
  first->mean_x *= factor;
  first->var_x *= factor * factor;
  first->cov_xy *= factor;
}

/* Sets a bandwidth that was far off. What was expected by the old one says nothing any more; nor do
 * single reads that were quicker than is possible now. */
static void step_bandwidth(struct meter *meter, uint64_t now_ns, double bandwidth) {
  meter->bandwidth = between(bandwidth, LEAST_BANDWIDTH, MOST_BANDWIDTH);
  double transfer_ns = meter_transfer_ns(meter, (uint64_t)meter->sizes.mean_x);
  if (transfer_ns + LEAST_LATENCY_NS < meter->sizes.mean_y)
    meter->latency_ns = meter->sizes.mean_y - transfer_ns;
  else
    meter->sizes = (struct regression){.count = 0};
  meter->first.count = FIRST_READS;
  meter->drift_ns = 0;
  meter->looked_ns = now_ns;
  meter->looked_bytes = meter->started_bytes;
  meter->throughput.windows = 0;
  meter->free_ns =
      now_ns + (uint64_t)meter_transfer_ns(meter, meter->started_bytes - meter->moved_bytes);
  meter->stepped_ns = now_ns;
}

/* Single reads take less than their transfers alone should. */
static bool is_outrun(const struct meter *meter) {
  const struct regression *sizes = &meter->sizes;
  return sizes->count >= SIZES_LEAST &&
         meter_transfer_ns(meter, (uint64_t)sizes->mean_x) > OUTRUN * sizes->mean_y;
}

/* What single reads take for their bytes, the medium can do at least; and not much more. */
static void bound_bandwidth(struct meter *meter, uint64_t now_ns) {
  const struct regression *sizes = &meter->sizes;
  if (is_outrun(meter))
    step_bandwidth(meter, now_ns, OUTRUN_STEP * 1e9 * sizes->mean_x / sizes->mean_y);
  if (sizes->count < SIZES_LEAST || sizes->var_x < SIZES_VARIED * SIZES_VARIED) return;
  double slope = slope_of(sizes);
  double error = SIZES_ERRORS * error_of(sizes, SIZES_MEMORY);
  if (slope + error > 0)
    meter->bandwidth = fmax(meter->bandwidth, fmin(1e9 / (slope + error), MOST_BANDWIDTH));
  if (slope - error > STEP_LESS * meter_transfer_ns(meter, 1))
    step_bandwidth(meter, now_ns, 1e9 / (slope - error / SIZES_ERRORS));
}

/* A window of the throughput is full: what it moved, operations that queued say, is all that the
 * medium can do; and in any case it can do that. Windows in a row that say the same count, the one
 * that says it least. */
static void close_window(struct meter *meter, uint64_t now_ns) {
  struct throughput *seen = &meter->throughput;
  double rate = (double)seen->bytes * 1e9 / (double)seen->time_ns;
  bool is_queued = seen->elapsed_ns > QUEUED * seen->alone_ns && meter->sizes.count > 0;
  bool is_more = rate > STEP_MORE * meter->bandwidth;
  bool is_less = is_queued && rate * STEP_LESS < meter->bandwidth;
  if ((!is_more && !is_less) || is_more != seen->is_more) seen->windows = 0;
  seen->is_more = is_more;
  if (is_more || is_less) {
    seen->least = seen->windows == 0 ? rate : fmin(seen->least, rate);
    seen->most = seen->windows == 0 ? rate : fmax(seen->most, rate);
    seen->windows++;
  }
  seen->bytes = seen->time_ns = 0;
  seen->elapsed_ns = seen->alone_ns = 0;
  seen->count = 0;
  if (seen->windows == WINDOWS) step_bandwidth(meter, now_ns, is_more ? seen->least : seen->most);
}

/* An operation has ended. From one end to the next, while something is under way, the path has
 * moved it. Whether the path is what holds them only reads tell: the rest has its own latency. */
static void note_throughput(struct meter *meter, uint64_t now_ns, const struct ps_sched_item *item,
                            uint32_t bytes, uint32_t left_in_flight) {
  struct throughput *seen = &meter->throughput;
  uint64_t last_ns = seen->ended_ns;
  seen->ended_ns = left_in_flight > 0 && bytes > 0 ? now_ns : 0;
  if (last_ns == 0 || bytes == 0) return;
  seen->bytes += bytes;
  seen->time_ns += now_ns - last_ns;
  if (item->sched_class != PS_SCHED_WRITE) {
    seen->elapsed_ns += (double)(now_ns - item->started_ns);
    seen->alone_ns += meter->latency_ns + meter_transfer_ns(meter, bytes);
  }
  seen->count++;
  if (seen->count >= WINDOW_COUNT && seen->time_ns >= WINDOW_NS) close_window(meter, now_ns);
}

/* Fewer operations under way when reads wait in the medium; more when it was the window that held
 * them back. */
static void correct_window(struct meter *meter) {
  double ratio = meter->excess_ns / meter->samples / meter->latency_ns;
  bool is_known = meter->sizes.count > 0;
  if (ratio > QUEUEING && is_known)
    meter->window *= fmax(0.7, sqrt(QUEUEING / ratio));
  else if (meter->was_full)
    meter->window += fmax(1, meter->window / 8);
  meter->window =
      between(meter->window, fmin(LEAST_WINDOW, meter->most_window), meter->most_window);
}

/* While transfers follow one another, a bandwidth that is a little off makes them drift away from
 * when they are expected. How much of the time they did counts. */
static void follow_drift(struct meter *meter, uint64_t now_ns) {
  double busy_ns = meter_transfer_ns(meter, meter->started_bytes - meter->looked_bytes);
  double time_ns = fmax((double)(now_ns - meter->looked_ns), fmax(busy_ns, 1));
  double drift = between(meter->drift_ns / time_ns, -DRIFT_MOST, DRIFT_MOST);
  double change = DRIFT_UP * busy_ns / time_ns - DRIFT_GAIN * drift;
  meter->bandwidth = between(meter->bandwidth * (1 + change), LEAST_BANDWIDTH, MOST_BANDWIDTH);
  meter->drift_ns = 0;
  meter->looked_ns = now_ns;
  meter->looked_bytes = meter->started_bytes;
}

/* What reads that were alone take, without their own transfers. */
static void correct_latency(struct meter *meter) {
  const struct regression *sizes = &meter->sizes;
  if (sizes->count == 0) return;
  double latency_ns = sizes->mean_y - meter_transfer_ns(meter, (uint64_t)sizes->mean_x);
  meter->latency_ns = fmax(latency_ns, LEAST_LATENCY_NS);
}

/* A read has ended `off_ns` after it was expected. If it was alone, that is due to the latency;
 * else to those before it, and so to those after it. */
static void track(struct meter *meter, uint64_t now_ns, const struct ps_sched_item *item,
                  uint32_t bytes, double off_ns) {
  if (item->is_alone) {
    double expected_ns = (double)item->transfer_ns + meter->latency_ns;
    regress(&meter->sizes, bytes, expected_ns + off_ns, SIZES_MEMORY);
    /* The first ones deviate from a latency that was only assumed. */
    double count = fmin(meter->sizes.count, SIZES_MEMORY);
    if (count >= ALONE_LEAST) meter->spread_ns += (fabs(off_ns) - meter->spread_ns) / count;
    correct_latency(meter);
    return;
  }
  double step_ns = off_ns * PHASE_GAIN;
  meter->drift_ns += step_ns;
  if ((double)meter->free_ns + meter->latency_ns > (double)now_ns)
    meter->free_ns = (uint64_t)((double)meter->free_ns + step_ns);
}

/* A number of reads has ended: what they say together. */
static void look(struct meter *meter, uint64_t now_ns) {
  find_bandwidth(meter);
  bound_bandwidth(meter, now_ns);
  follow_drift(meter, now_ns);
  correct_latency(meter);
  correct_window(meter);
  meter->samples = 0;
  meter->excess_ns = 0;
  meter->was_full = false;
}

void meter_end(struct meter *meter, uint64_t now_ns, const struct ps_sched_item *item,
               uint32_t bytes, uint32_t left_in_flight) {
  assert(meter != NULL && item != NULL && now_ns >= item->started_ns);
  /* What was started before it has been moved as well. */
  uint64_t rest = (uint64_t)meter_transfer_ns(meter, meter->started_bytes - item->transfer_end);
  rest = left_in_flight > 0 ? rest + (uint64_t)meter->latency_ns : 0;
  if (meter->free_ns > now_ns + rest) meter->free_ns = now_ns + rest;
  if (item->transfer_end > meter->moved_bytes) meter->moved_bytes = item->transfer_end;
  note_throughput(meter, now_ns, item, bytes, left_in_flight);
  if (item->sched_class == PS_SCHED_WRITE || bytes == 0) return;
  /* What was expected of it before the last step says nothing. */
  if (item->started_ns <= meter->stepped_ns) return;
  double expected_ns = (double)item->transfer_ns + meter->latency_ns;
  double off_ns = (double)(now_ns - item->started_ns) - expected_ns;
  /* One that is held up by something else does not say much. */
  if (meter->sizes.count > 0) off_ns = fmin(off_ns, OFF_MOST * meter->latency_ns);
  double elapsed_ns = expected_ns + off_ns;
  meter->time_ns += (elapsed_ns - meter->time_ns) * TIME_GAIN;
  meter->excess_ns += elapsed_ns - meter_transfer_ns(meter, bytes);
  if (meter->first.count < FIRST_READS)
    regress(&meter->first, (double)item->transfer_ns, elapsed_ns, FIRST_MEMORY);
  track(meter, now_ns, item, bytes, off_ns);
  if (++meter->samples == BATCH) look(meter, now_ns);
}

void meter_pending(struct meter *meter, uint64_t now_ns, bool is_pending, uint64_t rest_bytes) {
  assert(meter != NULL);
  if (meter->is_pending) meter->share_ns += now_ns - meter->share_from_ns;
  /* What was taken of the last job has yet to be moved. */
  if (meter->is_pending && !is_pending)
    meter->share_ns += backlog_ns(meter, now_ns) + (uint64_t)meter_transfer_ns(meter, rest_bytes);
  meter->share_from_ns = now_ns;
  meter->is_pending = is_pending;
  /* What is taken in one go is moved afterwards: a sample is no shorter than that. */
  double moved_ns = meter_transfer_ns(meter, meter->share_bytes);
  if (meter->share_ns < SHARE_SAMPLE_NS) return;
  if ((double)meter->share_ns < fmin(moved_ns, SHARE_MEMORY_NS)) return;
  double got = moved_ns / (double)meter->share_ns;
  double weight = 1 - exp(-(double)meter->share_ns / SHARE_MEMORY_NS);
  meter->share += (between(got, 0.01, 1) - meter->share) * weight;
  meter->share_ns = 0;
  meter->share_bytes = 0;
}

void meter_job_bytes(struct meter *meter, uint64_t bytes) { meter->share_bytes += bytes; }

double meter_left_over(const struct meter *meter) { return meter->bandwidth * meter->share; }

double meter_promised(const struct meter *meter) {
  assert(meter != NULL);
  bool is_known = meter->is_stated || meter->first.count >= FIRST_READS;
  return is_known ? meter_left_over(meter)
                  : fmin(meter->bandwidth, CAUTIOUS_BANDWIDTH) * meter->share;
}
