/* The loop: a reactor's, on a clock that stands still while there is something to do. */
#include "internal.h"

/* What a pass takes at least when it is the clock alone that asks for the next one. A live reactor
 * is never asked twice in the same nanosecond. */
#define PASS_NS 1000
#define NEVER_NS UINT64_MAX

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bool has_work(const struct ps_replay *replay) {
  return replay->tasks.first != NULL || replay->tier_changed || replay->is_wanted ||
         replay_has_orders(replay);
}

static uint64_t event_time(const struct stream *stream) {
  return stream->at < stream->count ? stream->events[stream->at].time_ns : NEVER_NS;
}

/* When something happens next. */
static uint64_t next_time(const struct ps_replay *replay) {
  uint64_t happens_ns = least(event_time(&replay->stream), replay->flash_ns);
  uint64_t asks_ns = most(replay_pump_time(replay), replay->passed_ns + PASS_NS);
  return most(least(happens_ns, asks_ns), replay->now_ns);
}

/* All events of this time, in their order, before anything that they want done is begun. */
static void begin_events(struct ps_replay *replay) {
  struct stream *stream = &replay->stream;
  while (event_time(stream) <= replay->now_ns) {
    replay_begin(replay, &stream->events[stream->at], &stream->results[stream->at]);
    stream->at++;
  }
}

static void pass(struct ps_replay *replay) {
  replay->took_hints = false;
  replay->passed_ns = replay->now_ns;
  begin_events(replay);
  replay_op_reap(replay);
  replay_pump(replay);
  replay_run_tasks(replay);
  replay_pump(replay);
}

static void run(struct ps_replay *replay, uint64_t until_ns) {
  bool is_fresh = true; /* what is waiting for the reader when this begins is no news to it */
  for (;;) {
    if (!has_work(replay)) {
      if (!is_fresh && replay->ring != NULL && ps_ring_must_wake(replay->ring)) return;
      uint64_t next_ns = next_time(replay);
      if (next_ns > until_ns || next_ns == NEVER_NS) break;
      replay->now_ns = next_ns;
    }
    is_fresh = false;
    pass(replay);
  }
  if (until_ns != NEVER_NS) replay->now_ns = most(replay->now_ns, until_ns);
}

uint64_t ps_replay_run(struct ps_replay *replay, const struct ps_replay_event *events,
                       uint64_t from, uint64_t count, const uint8_t *data, uint64_t data_bytes,
                       uint64_t until_ns, struct ps_replay_result *results) {
  assert(replay != NULL && from <= count);
  assert(count == 0 || (events != NULL && results != NULL));
  replay->stream = (struct stream){.events = events,
                                   .data = data,
                                   .results = results,
                                   .at = from,
                                   .count = count,
                                   .data_bytes = data_bytes};
  run(replay, until_ns);
  if (replay->orders != NULL) ps_orders_take(replay->orders, replay->now_ns, 0); /* the gauges */
  return replay->stream.at;
}
