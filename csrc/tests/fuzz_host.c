/* Live mode of the host: a controller that mostly keeps the rules. */
#include "fuzz_support.h"

static void build_c2h_data(struct end *end, struct stream *stream, struct choices *choices,
                           uint32_t slot) {
  struct model *model = &end->slots[slot];
  uint32_t rest = model->length - model->covered;
  uint32_t size = choose(choices, 2) ? rest : choose_length(choices);
  if (size > rest) size = rest;
  if (size == 0) return;
  uint8_t flags = size == rest ? PS_PDU_LAST : 0;
  if (flags && choose(choices, 2)) flags |= PS_PDU_SUCCESS;
  uint32_t header = 24 + (end->digests & PS_DIGEST_HEADER ? 4 : 0);
  uint32_t align = (choose(choices, 4) ? 1 : 8) * 4;
  uint32_t pad = (header + align - 1) / align * align - header;
  build_data(stream, PS_PDU_C2H_DATA, flags, (uint16_t)slot, 0, model->covered, size, size,
             end->digests, pad, choices);
  model->covered += size;
}

static void build_r2t(struct end *end, struct stream *stream, struct choices *choices,
                      uint32_t slot) {
  struct model *model = &end->slots[slot];
  uint32_t rest = model->length - model->covered;
  uint32_t size = choose(choices, 2) ? rest : choose_length(choices);
  if (size > rest) size = rest;
  build_data(stream, PS_PDU_R2T, 0, (uint16_t)slot, (uint16_t)choose(choices, 256), model->covered,
             size, 0, end->digests, 0, choices);
  model->covered += size;
}

static void build_response(struct end *end, struct stream *stream, struct choices *choices,
                           uint32_t slot) {
  uint8_t pdu[24] = {PS_PDU_RESPONSE, 0, 24, 0, 24};
  if (end->digests & PS_DIGEST_HEADER) {
    pdu[1] = PS_PDU_HDGST;
    pdu[4] = 28;
  }
  pdu[20] = (uint8_t)slot;
  build_pdu(stream, pdu, sizeof pdu, 0, 0, end->digests, choices);
}

void host_build(struct end *end, struct stream *stream, struct choices *choices) {
  uint32_t slot = choose(choices, FUZZ_SLOTS);
  uint8_t raw[24];
  switch (choose(choices, 8)) {
    case 0:
      for (size_t i = 0; i < sizeof raw; i++) raw[i] = (uint8_t)choose(choices, 256);
      if (choose(choices, 4) == 0) build_pdu(stream, raw, sizeof raw, 0, 0, 0, choices);
      break;
    case 1:
    case 2:
      build_response(end, stream, choices, slot);
      break;
    default:
      if (end->slots[slot].transfer == PS_TRANSFER_TO_CONTROLLER) {
        build_r2t(end, stream, choices, slot);
      } else {
        build_c2h_data(end, stream, choices, slot);
      }
  }
}

static void see_all(struct end *end) {
  struct ps_engine_event event;
  while (ps_engine_next_event(end->engine, &event)) {
    if (event.kind == PS_EVENT_CONNECTED) end->connected = true;
    if (event.kind == PS_EVENT_TERMINATED) {
      FUZZ_CHECK(!end->terminated);
      end->terminated = true;
    }
    if (event.kind != PS_EVENT_COMPLETION) continue;
    FUZZ_CHECK(event.slot < FUZZ_SLOTS && end->slots[event.slot].state == MODEL_OPEN);
    FUZZ_CHECK(event.data_length <= end->slots[event.slot].length);
    end_ungive(end, event.slot);
    end->slots[event.slot].state = MODEL_FREE;
  }
  FUZZ_CHECK(end->terminated == ps_engine_is_terminated(end->engine));
}

static void submit(struct end *end, struct choices *choices) {
  uint8_t sqe[64] = {2};
  uint32_t transfer = choose(choices, 4);
  uint32_t length = transfer == PS_TRANSFER_NONE ? 0 : choose_length(choices);
  uint32_t free_slot = 0;
  while (free_slot < FUZZ_SLOTS && end->slots[free_slot].state != MODEL_FREE) free_slot++;
  if (free_slot == FUZZ_SLOTS || end->terminated || !end->connected) {
    FUZZ_CHECK(ps_engine_submit(end->engine, sqe, PS_TRANSFER_NONE, NULL, 0, 0) == -1);
    return;
  }
  /* The slot is known only afterwards: make the memory in a spare place and move it. */
  static struct end spare;
  size_t count = length > 0 ? end_give(&spare, 0, length, choices) : 0;
  int32_t slot = ps_engine_submit(end->engine, sqe, transfer, spare.slots[0].iov, count, length);
  FUZZ_CHECK(slot >= 0 && slot < FUZZ_SLOTS && end->slots[slot].state == MODEL_FREE);
  end->slots[slot] = spare.slots[0];
  end->slots[slot].state = MODEL_OPEN;
  end->slots[slot].length = length;
  end->slots[slot].covered = 0;
  end->slots[slot].transfer = transfer;
  memset(&spare, 0, sizeof spare);
}

static void feed(struct end *end, struct stream *stream, struct choices *choices) {
  struct iovec iov[3];
  size_t rest = stream->size - stream->taken;
  size_t most = choose(choices, 3) ? rest : choose(choices, 300);
  if (most > rest) most = rest;
  size_t count = choose(choices, 2) ? ps_engine_destination(end->engine, iov, 3) : 0;
  size_t size = 0;
  if (count > 0) {
    size = iov[0].iov_len < most ? iov[0].iov_len : most;
    memcpy(iov[0].iov_base, stream->bytes + stream->taken, size);
    ps_engine_received(end->engine, size);
  } else {
    size = ps_engine_receive(end->engine, stream->bytes + stream->taken, most);
  }
  stream->taken += size;
  if (stream->taken == stream->size) stream->taken = stream->size = 0;
  see_all(end);
}

void fuzz_host(struct choices *choices) {
  static struct end end;
  static struct stream stream;
  stream.size = stream.taken = 0;
  uint32_t digests = choose(choices, 4);
  end_open(&end, PS_ROLE_HOST, digests, choose(choices, 4) ? 0 : 31, choose(choices, 4));
  struct choices none = {NULL, 0};
  if (choose(choices, 32)) build_ic(&stream, false, digests, 0, &none);
  while (choices->left > 0) {
    switch (choose(choices, 4)) {
      case 0:
        submit(&end, choices);
        break;
      case 1:
        host_build(&end, &stream, choices);
        break;
      case 2:
        feed(&end, &stream, choices);
        break;
      default:
        end_send(&end, choose(choices, 2) ? SIZE_MAX : choose(choices, 200), choose(choices, 64));
        see_all(&end);
    }
  }
  end_close(&end);
}
