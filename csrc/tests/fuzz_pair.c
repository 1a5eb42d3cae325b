/* Pair mode: both roles against each other, every call in any order, the data exact. Neither end
 * may ever find a fault in the other.
 */
#include "fuzz_support.h"

struct pair {
  struct end host;
  struct end target;
  struct stream to_target;
  struct stream to_host;
};

static uint8_t pattern(uint32_t tag, uint32_t at) {
  return (uint8_t)(tag * 31 + at * 7 + (at >> 8));
}

static void draw(struct model *model, uint32_t tag) {
  for (uint32_t i = 0; i < model->memory_size; i++) model->memory[i] = pattern(tag, i);
}

static void check(const struct model *model, uint32_t tag) {
  for (uint32_t i = 0; i < model->memory_size; i++) {
    FUZZ_CHECK(model->memory[i] == pattern(tag, i));
  }
}

static void host_submit(struct pair *pair, struct choices *choices, uint32_t tag) {
  static struct end spare;
  uint8_t sqe[64] = {2};
  uint32_t transfer = choose(choices, 4);
  uint32_t length = transfer == PS_TRANSFER_NONE ? 0 : choose_length(choices);
  size_t count = length > 0 ? end_give(&spare, 0, length, choices) : 0;
  if (transfer > PS_TRANSFER_FROM_CONTROLLER) draw(&spare.slots[0], tag);
  memcpy(sqe + 40, &tag, 4);
  memcpy(sqe + 44, &length, 4);
  sqe[48] = (uint8_t)transfer;
  int32_t slot =
      ps_engine_submit(pair->host.engine, sqe, transfer, spare.slots[0].iov, count, length);
  if (slot < 0) {
    end_ungive(&spare, 0);
    return;
  }
  struct model *model = &pair->host.slots[slot];
  FUZZ_CHECK(model->state == MODEL_FREE);
  *model = spare.slots[0];
  memset(&spare, 0, sizeof spare);
  model->state = MODEL_OPEN;
  model->length = length;
  model->transfer = transfer;
  model->tag = tag;
}

static void host_events(struct pair *pair) {
  struct ps_engine_event event;
  while (ps_engine_next_event(pair->host.engine, &event)) {
    FUZZ_CHECK(event.kind != PS_EVENT_TERMINATED);
    if (event.kind != PS_EVENT_COMPLETION) continue;
    struct model *model = &pair->host.slots[event.slot];
    FUZZ_CHECK(model->state == MODEL_OPEN && !event.digest_error);
    bool good = event.entry[14] == 0 && event.entry[15] == 0;
    if (model->transfer == PS_TRANSFER_FROM_CONTROLLER && good) {
      FUZZ_CHECK(event.data_length == model->length);
      check(model, model->tag);
    }
    end_ungive(&pair->host, event.slot);
    model->state = MODEL_FREE;
  }
}

static void target_events(struct pair *pair) {
  struct ps_engine_event event;
  while (ps_engine_next_event(pair->target.engine, &event)) {
    FUZZ_CHECK(event.kind != PS_EVENT_TERMINATED);
    struct model *model = &pair->target.slots[event.slot];
    if (event.kind == PS_EVENT_COMMAND) {
      FUZZ_CHECK(model->state == MODEL_FREE);
      memcpy(&model->tag, event.entry + 40, 4);
      memcpy(&model->length, event.entry + 44, 4);
      model->transfer = event.entry[48];
      model->state = event.data_length > 0 ? MODEL_HELD : MODEL_OPEN;
      model->taken = false;
    } else if (event.kind == PS_EVENT_DATA) {
      FUZZ_CHECK(!event.digest_error);
      check(model, model->tag);
      model->state = MODEL_OPEN;
    } else if (event.kind == PS_EVENT_SENT) {
      end_ungive(&pair->target, event.slot);
      model->state = MODEL_FREE;
    }
  }
}

static void target_act(struct pair *pair, struct choices *choices) {
  uint32_t slot = choose(choices, FUZZ_SLOTS);
  struct model *model = &pair->target.slots[slot];
  struct ps_engine *engine = pair->target.engine;
  if (model->state == MODEL_FREE || model->state == MODEL_ENDED) return;
  bool ends_early = choose(choices, 8) == 0;
  bool has_host_data = model->transfer > PS_TRANSFER_FROM_CONTROLLER;
  if (has_host_data && !model->taken && !ends_early) {
    size_t count = end_give(&pair->target, slot, model->length, choices);
    ps_engine_take(engine, slot, model->iov, count, model->length);
    model->taken = true;
    model->state = MODEL_RECEIVING;
    return;
  }
  if (model->state == MODEL_RECEIVING && !ends_early) return;
  end_ungive(&pair->target, slot);
  size_t count = 0;
  bool reads = model->transfer == PS_TRANSFER_FROM_CONTROLLER && !ends_early;
  if (reads) {
    count = end_give(&pair->target, slot, model->length, choices);
    draw(model, model->tag);
  }
  uint16_t status = ends_early ? 7 : 0;
  ps_engine_respond(engine, slot, status, 0, 0, model->iov, count, reads ? model->length : 0);
  model->state = MODEL_ENDED;
}

/* Some bytes from the wire into an end. */
static void feed(struct end *end, struct stream *stream, struct choices *choices) {
  struct iovec iov;
  size_t rest = stream->size - stream->taken;
  size_t most = choose(choices, 2) ? rest : choose(choices, 600);
  if (most > rest) most = rest;
  size_t size;
  if (choose(choices, 2) && ps_engine_destination(end->engine, &iov, 1) > 0) {
    size = iov.iov_len < most ? iov.iov_len : most;
    memcpy(iov.iov_base, stream->bytes + stream->taken, size);
    ps_engine_received(end->engine, size);
  } else {
    size = ps_engine_receive(end->engine, stream->bytes + stream->taken, most);
  }
  stream->taken += size;
  if (stream->taken == stream->size) stream->taken = stream->size = 0;
}

/* What an end sent goes onto the wire. */
static void pump(struct end *end, struct stream *wire, struct choices *choices) {
  struct stream *out = &end->out;
  size_t room = FUZZ_STREAM_SIZE - wire->size;
  size_t most = choose(choices, 2) ? room : choose(choices, 600);
  if (most > room) most = room;
  size_t before = out->taken == out->size ? 0 : out->size;
  if (most > FUZZ_STREAM_SIZE - before) most = FUZZ_STREAM_SIZE - before;
  size_t passed = end_send(end, most, 1 + choose(choices, 63));
  memcpy(wire->bytes + wire->size, out->bytes + before, passed);
  wire->size += passed;
}

void fuzz_pair(struct choices *choices) {
  static struct pair pair;
  uint32_t digests = choose(choices, 4);
  end_open(&pair.host, PS_ROLE_HOST, digests, choose(choices, 32), choose(choices, 4));
  end_open(&pair.target, PS_ROLE_TARGET, digests, 0, 0);
  pair.to_host.size = pair.to_host.taken = pair.to_target.size = pair.to_target.taken = 0;
  ps_engine_bind(pair.target.engine, 64, choose(choices, 2), 8192, choose(choices, 2));
  for (uint32_t tag = 1; choices->left > 0; tag++) {
    switch (choose(choices, 8)) {
      case 0:
      case 1:
        host_submit(&pair, choices, tag);
        break;
      case 2:
        pump(&pair.host, &pair.to_target, choices);
        host_events(&pair);
        break;
      case 3:
        feed(&pair.target, &pair.to_target, choices);
        target_events(&pair);
        break;
      case 4:
        pump(&pair.target, &pair.to_host, choices);
        target_events(&pair);
        break;
      case 5:
        feed(&pair.host, &pair.to_host, choices);
        host_events(&pair);
        break;
      default:
        target_act(&pair, choices);
        target_events(&pair);
    }
  }
  end_close(&pair.host);
  end_close(&pair.target);
}
