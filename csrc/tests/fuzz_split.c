/* Differential mode: the same bytes, PDU by PDU and cut anywhere, give the same events, the same
 * output and the same data.
 */
#include "fuzz_support.h"

static void answer(struct end *end, uint32_t slot, uint32_t length) {
  struct choices none = {NULL, 0};
  size_t count = 0;
  end_ungive(end, slot);
  if (length > 0) {
    count = end_give(end, slot, length, &none);
    memset(end->slots[slot].memory, 0x5a, length);
  }
  ps_engine_respond(end->engine, slot, 0, length % 3, 0, end->slots[slot].iov, count, length);
}

static void take(struct end *end, uint32_t slot, uint32_t length) {
  struct choices none = {NULL, 0};
  size_t count = end_give(end, slot, length, &none);
  ps_engine_take(end->engine, slot, end->slots[slot].iov, count, length);
}

/* One fixed answer to each event, so that the stream alone decides what happens. */
static void react(struct end *end, const struct ps_engine_event *event) {
  uint32_t cid = event->entry[2];
  end_trace(end, event, offsetof(struct ps_engine_event, entry));
  if (event->kind == PS_EVENT_CONNECTED) end->digests = ps_engine_digests(end->engine);
  if (event->kind == PS_EVENT_DATA) {
    end_trace(end, end->slots[event->slot].memory, end->slots[event->slot].memory_size);
    answer(end, event->slot, 0);
  }
  if (event->kind == PS_EVENT_SENT) end_ungive(end, event->slot);
  if (event->kind != PS_EVENT_COMMAND) return;
  end_trace(end, event->entry, sizeof event->entry);
  if (event->data_length > 0) {
    if (cid % 3 > 0) {
      take(end, event->slot, event->data_length);
    } else if (cid == 3) {
      answer(end, event->slot, 0);
    } else {
      ps_engine_skip(end->engine, event->slot);
      answer(end, event->slot, cid);
    }
  } else if (event->entry[39] == PS_SGL_TRANSPORT && cid % 4 > 0) {
    take(end, event->slot, 1000 * cid);
    if (cid % 4 == 3) {
      end_send(end, SIZE_MAX, 64);
      answer(end, event->slot, 0); /* its data is still to come */
    }
  } else {
    answer(end, event->slot, 100 * cid);
  }
}

static void run(struct end *end, const uint8_t *bytes, size_t size) {
  struct ps_engine_event event;
  for (;;) {
    size_t used = ps_engine_receive(end->engine, bytes, size);
    bool had_event = false;
    bytes += used;
    size -= used;
    while (ps_engine_next_event(end->engine, &event)) {
      had_event = true;
      react(end, &event);
      while (end_send(end, SIZE_MAX, 64) > 0) continue;
    }
    if (!had_event && (used == 0 || size == 0)) return;
  }
}

void fuzz_split(struct choices *choices) {
  static struct end whole, cut;
  static struct stream stream, part;
  struct choices none = {NULL, 0};
  uint32_t digests = choose(choices, 4);
  uint32_t alignment = choose(choices, 32);
  uint32_t seed = choose(choices, 1 << 16);
  uint32_t pieces = 1 + choose(choices, 40);
  end_open(&whole, PS_ROLE_TARGET, digests, 0, 0);
  end_open(&cut, PS_ROLE_TARGET, digests, 0, 0);
  stream.size = part.size = 0;
  build_ic(&stream, true, digests, alignment, &none);
  run(&whole, stream.bytes, stream.size);
  while (choices->left > 0 && stream.size < FUZZ_STREAM_SIZE / 2) {
    part.size = 0;
    target_build(&whole, &part, choices);
    memcpy(stream.bytes + stream.size, part.bytes, part.size);
    stream.size += part.size;
    run(&whole, part.bytes, part.size);
  }
  for (size_t from = 0; from < stream.size;) {
    seed = seed * 1103515245u + 12345;
    size_t size = 1 + (seed >> 16) % (pieces * 8);
    if (size > stream.size - from) size = stream.size - from;
    run(&cut, stream.bytes + from, size);
    from += size;
  }
  FUZZ_CHECK(whole.trace == cut.trace);
  FUZZ_CHECK(ps_engine_is_terminated(whole.engine) == ps_engine_is_terminated(cut.engine));
  end_close(&whole);
  end_close(&cut);
}
