/* Live mode of the target: a host that mostly keeps the rules, and a caller that takes, skips,
 * answers, aborts and sends in any order.
 */
#include "fuzz_support.h"

static void build_command(struct end *end, struct stream *stream, struct choices *choices) {
  static const uint8_t types[] = {0x5a, 0x01, 0x01, 0x30, 0x5a};
  uint8_t pdu[72] = {PS_PDU_COMMAND, 0, 72};
  uint32_t digest = end->digests & PS_DIGEST_HEADER ? 4 : 0;
  uint32_t plen = 72 + digest;
  uint8_t type = types[choose(choices, sizeof types)];
  uint32_t length = choose_length(choices);
  uint32_t data_size = type == 0x01 ? length : 0;
  pdu[1] = digest ? PS_PDU_HDGST : 0;
  if (data_size > 0) {
    pdu[3] = (uint8_t)plen;
    if (end->digests & PS_DIGEST_DATA) pdu[1] |= PS_PDU_DDGST;
    plen += data_size + (end->digests & PS_DIGEST_DATA ? 4 : 0);
  }
  memcpy(pdu + 4, &plen, 4);
  pdu[8] = 1;
  pdu[9] = choose(choices, 16) == 0 ? 0 : 0x40;
  pdu[10] = (uint8_t)choose(choices, 8);
  memcpy(pdu + 8 + 32, &length, 4);
  pdu[8 + 39] = type;
  build_pdu(stream, pdu, sizeof pdu, 0, data_size, end->digests, choices);
}

static void build_h2c_data(struct end *end, struct stream *stream, struct choices *choices) {
  uint32_t known = end->r2t_count < FUZZ_R2TS ? end->r2t_count : FUZZ_R2TS;
  if (known == 0 || choose(choices, 16) == 0) {
    build_data(stream, PS_PDU_H2C_DATA, PS_PDU_LAST, (uint16_t)choose(choices, 8),
               (uint16_t)choose(choices, 64), 0, 512, 512, end->digests, 0, choices);
    return;
  }
  struct r2t_note *note = &end->r2ts[choose(choices, known)];
  uint32_t rest = note->length - note->done;
  uint32_t size = choose(choices, 2) ? choose_length(choices) : rest;
  if (size > rest) size = rest;
  if (size > 8192) size = 8192;
  if (size == 0) return;
  uint8_t flags = size == rest ? PS_PDU_LAST : 0;
  build_data(stream, PS_PDU_H2C_DATA, flags, note->cid, note->ttag, note->done, size, size,
             end->digests, 0, choices);
  note->done += size;
}

void target_build(struct end *end, struct stream *stream, struct choices *choices) {
  uint8_t raw[24];
  switch (choose(choices, 12)) {
    case 0:
      for (size_t i = 0; i < sizeof raw; i++) raw[i] = (uint8_t)choose(choices, 256);
      build_pdu(stream, raw, 1 + choose(choices, sizeof raw), 0, 0, 0, choices);
      break;
    case 1: {
      uint8_t term[24] = {PS_PDU_H2C_TERM, 0, 24, 0, 24, 0, 0, 0, 1};
      if (choose(choices, 8) == 0) build_pdu(stream, term, sizeof term, 0, 0, 0, choices);
      break;
    }
    case 2:
      if (choose(choices, 8) == 0) build_ic(stream, true, end->digests, 0, choices);
      break;
    case 3:
    case 4:
    case 5:
    case 6:
      build_command(end, stream, choices);
      break;
    default:
      build_h2c_data(end, stream, choices);
  }
}

static void see(struct end *end, const struct ps_engine_event *event) {
  FUZZ_CHECK(event->slot < FUZZ_SLOTS);
  struct model *model = &end->slots[event->slot];
  switch (event->kind) {
    case PS_EVENT_CONNECTED:
      end->connected = true;
      end->digests = ps_engine_digests(end->engine);
      break;
    case PS_EVENT_COMMAND:
      FUZZ_CHECK(model->state == MODEL_FREE);
      model->state = event->data_length > 0 ? MODEL_HELD : MODEL_OPEN;
      model->length = event->data_length;
      model->taken = false;
      memcpy(&model->cid, event->entry + 2, 2);
      break;
    case PS_EVENT_DATA:
      FUZZ_CHECK(model->state == MODEL_RECEIVING);
      model->state = MODEL_OPEN;
      break;
    case PS_EVENT_SENT:
      FUZZ_CHECK(model->state == MODEL_ENDED);
      end_ungive(end, event->slot);
      model->state = MODEL_FREE;
      break;
    default:
      FUZZ_CHECK(event->kind == PS_EVENT_TERMINATED && !end->terminated);
      end->terminated = true;
  }
}

static void see_all(struct end *end) {
  struct ps_engine_event event;
  while (ps_engine_next_event(end->engine, &event)) see(end, &event);
  FUZZ_CHECK(end->terminated == ps_engine_is_terminated(end->engine));
  for (uint32_t i = 0; i < FUZZ_SLOTS; i++) {
    bool receiving = end->slots[i].state == MODEL_RECEIVING;
    FUZZ_CHECK(receiving == ps_engine_is_receiving(end->engine, i));
  }
}

static void answer(struct end *end, uint32_t slot, struct choices *choices) {
  struct model *model = &end->slots[slot];
  uint32_t length = choose(choices, 2) ? choose_length(choices) : 0;
  size_t count = 0;
  int32_t found = ps_engine_find(end->engine, model->cid);
  FUZZ_CHECK(found >= 0 && end->slots[found].cid == model->cid);
  end_ungive(end, slot); /* what an abort leaves under way must not land here */
  if (length > 0) count = end_give(end, slot, length, choices);
  ps_engine_respond(end->engine, slot, choose(choices, 2) ? 0 : 0x4002, choose(choices, 2), 0,
                    model->iov, count, length);
  model->state = MODEL_ENDED;
}

static void act(struct end *end, struct choices *choices) {
  uint32_t slot = choose(choices, FUZZ_SLOTS);
  struct model *model = &end->slots[slot];
  uint32_t action = choose(choices, 4);
  if (model->state == MODEL_FREE || model->state == MODEL_ENDED) return;
  if (model->state == MODEL_HELD && action == 0) {
    ps_engine_skip(end->engine, slot);
    model->state = MODEL_OPEN;
    model->taken = true;
  } else if (model->state == MODEL_HELD && action < 3) {
    size_t count = end_give(end, slot, model->length, choices);
    ps_engine_take(end->engine, slot, model->iov, count, model->length);
    model->state = MODEL_RECEIVING;
    model->taken = true;
  } else if (model->state == MODEL_OPEN && !model->taken && action < 3) {
    uint32_t length = choose_length(choices);
    size_t count = end_give(end, slot, length, choices);
    ps_engine_take(end->engine, slot, model->iov, count, length);
    model->state = MODEL_RECEIVING;
    model->taken = true;
  } else if (model->state != MODEL_RECEIVING || action == 3) {
    answer(end, slot, choices);
  }
}

static void look_ahead(const struct end *end, const uint8_t *bytes, size_t size) {
  const uint8_t *entries[3];
  uint32_t count = ps_engine_peek(end->engine, bytes, size, entries, 3);
  FUZZ_CHECK(count <= 3);
  for (uint32_t i = 0; i < count; i++)
    FUZZ_CHECK(entries[i] >= bytes && entries[i] + 64 <= bytes + size);
}

/* Some of the stream, by the call or straight into the destination. */
static void feed(struct end *end, struct stream *stream, struct choices *choices) {
  struct iovec iov[3];
  size_t rest = stream->size - stream->taken;
  size_t most = choose(choices, 3) ? rest : choose(choices, 300);
  if (most > rest) most = rest;
  size_t count = choose(choices, 2) ? ps_engine_destination(end->engine, iov, 3) : 0;
  size_t direct = 0;
  for (size_t i = 0; i < count && direct < most; i++) {
    size_t size = iov[i].iov_len < most - direct ? iov[i].iov_len : most - direct;
    memcpy(iov[i].iov_base, stream->bytes + stream->taken + direct, size);
    direct += size;
  }
  if (count > 0) ps_engine_received(end->engine, direct);
  if (count == 0) {
    look_ahead(end, stream->bytes + stream->taken, most);
    direct = ps_engine_receive(end->engine, stream->bytes + stream->taken, most);
    FUZZ_CHECK(direct <= most);
  }
  stream->taken += direct;
  if (stream->taken == stream->size) stream->taken = stream->size = 0;
  see_all(end);
}

void fuzz_target(struct choices *choices) {
  static struct end end;
  static struct stream stream;
  stream.size = stream.taken = 0;
  uint32_t digests = choose(choices, 4);
  end_open(&end, PS_ROLE_TARGET, digests, 0, 0);
  if (choose(choices, 32)) {
    struct choices none = {NULL, 0};
    build_ic(&stream, true, digests, choose(choices, 32), &none);
  }
  ps_engine_bind(end.engine, 4, choose(choices, 2), 8192, choose(choices, 2));
  while (choices->left > 0) {
    switch (choose(choices, 8)) {
      case 0:
      case 1:
        target_build(&end, &stream, choices);
        break;
      case 2:
      case 3:
      case 4:
        feed(&end, &stream, choices);
        break;
      case 5:
        end_send(&end, choose(choices, 2) ? SIZE_MAX : choose(choices, 200), choose(choices, 64));
        see_all(&end);
        break;
      case 6:
        if (choose(choices, 64) == 0) ps_engine_terminate(end.engine, 1, 2);
        see_all(&end);
        break;
      default:
        act(&end, choices);
        see_all(&end);
    }
  }
  end_close(&end);
}
