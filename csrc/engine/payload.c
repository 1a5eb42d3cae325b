/* What stands behind a header: padding, data, data digest. */
#include "internal.h"

void ps_payload_begin(struct ps_engine *engine, uint32_t slot, uint32_t length) {
  struct receiver *receiver = &engine->receiver;
  const struct pdu_common *common = (const struct pdu_common *)(const void *)receiver->header;
  assert(length > 0);
  assert(common->pdo >= receiver->need);
  receiver->slot = (uint16_t)slot;
  receiver->left = length;
  receiver->crc = PS_CRC_BEGIN;
  receiver->data_digest = engine->digests & PS_DIGEST_DATA;
  receiver->pad = (uint8_t)(common->pdo - receiver->need);
  receiver->state = slot == NO_SLOT ? RECEIVE_DISCARD : RECEIVE_PAYLOAD;
  if (receiver->pad > 0) receiver->state = RECEIVE_PAD;
}

/* The last byte of the PDU is here. */
static void end(struct ps_engine *engine) {
  uint16_t slot = engine->receiver.slot;
  engine->receiver.slot = NO_SLOT;
  ps_receive_next(engine);
  if (slot == NO_SLOT) return;
  if (ps_is_target(engine)) {
    ps_h2c_data_arrived(engine, slot);
  } else {
    ps_c2h_data_arrived(engine, slot);
  }
}

static void count(struct ps_engine *engine, size_t size) {
  struct receiver *receiver = &engine->receiver;
  assert(size <= receiver->left);
  receiver->left -= (uint32_t)size;
  if (receiver->left > 0) return;
  if (receiver->data_digest) {
    receiver->state = RECEIVE_DIGEST;
    receiver->have = 0;
  } else {
    end(engine);
  }
}

/* A wrong data digest does not end the connection: the command is told (TCP 1.0, 3.3.1.1). */
static size_t receive_digest(struct ps_engine *engine, const uint8_t *bytes, size_t size) {
  struct receiver *receiver = &engine->receiver;
  assert(receiver->have < PS_DIGEST_SIZE);
  size_t step = PS_DIGEST_SIZE - (size_t)receiver->have;
  if (step > size) step = size;
  memcpy(receiver->digest + receiver->have, bytes, step);
  receiver->have = (uint8_t)(receiver->have + step);
  if (receiver->have < PS_DIGEST_SIZE) return step;
  uint8_t right[PS_DIGEST_SIZE];
  ps_digest_put(right, receiver->crc);
  if (receiver->slot != NO_SLOT && memcmp(right, receiver->digest, sizeof right) != 0) {
    ps_slot(engine, receiver->slot)->digest_error = 1;
  }
  end(engine);
  return step;
}

static size_t receive_pad(struct receiver *receiver, size_t size) {
  size_t step = size < receiver->pad ? size : receiver->pad;
  receiver->pad = (uint8_t)(receiver->pad - step);
  if (receiver->pad > 0) return step;
  receiver->state = receiver->slot == NO_SLOT ? RECEIVE_DISCARD : RECEIVE_PAYLOAD;
  return step;
}

size_t ps_payload_receive(struct ps_engine *engine, const uint8_t *bytes, size_t size) {
  struct receiver *receiver = &engine->receiver;
  assert(size > 0);
  if (receiver->state == RECEIVE_DIGEST) return receive_digest(engine, bytes, size);
  if (receiver->state == RECEIVE_PAD) return receive_pad(receiver, size);
  size_t step = size < receiver->left ? size : receiver->left;
  if (receiver->state == RECEIVE_PAYLOAD) {
    ps_cursor_write(&ps_slot(engine, receiver->slot)->data, bytes, step);
    if (receiver->data_digest) receiver->crc = ps_crc_extend(receiver->crc, bytes, step);
  }
  count(engine, step);
  return step;
}

void ps_payload_detach(struct ps_engine *engine, uint32_t slot) {
  struct receiver *receiver = &engine->receiver;
  if (receiver->slot != slot) return;
  receiver->slot = NO_SLOT;
  if (receiver->state == RECEIVE_HOLD || receiver->state == RECEIVE_PAYLOAD) {
    receiver->state = RECEIVE_DISCARD;
  }
}

size_t ps_engine_destination(struct ps_engine *engine, struct iovec *iov, size_t most) {
  assert(iov != NULL || most == 0);
  const struct receiver *receiver = &engine->receiver;
  if (receiver->state != RECEIVE_PAYLOAD || engine->state == ENGINE_TERMINATED) return 0;
  const struct slot *slot = ps_slot(engine, receiver->slot);
  return ps_cursor_list(&slot->data, receiver->left, iov, most);
}

void ps_engine_received(struct ps_engine *engine, size_t size) {
  struct receiver *receiver = &engine->receiver;
  if (size == 0) return;
  assert(receiver->state == RECEIVE_PAYLOAD || receiver->state == RECEIVE_DISCARD);
  if (receiver->state == RECEIVE_PAYLOAD) {
    struct cursor *data = &ps_slot(engine, receiver->slot)->data;
    if (receiver->data_digest) receiver->crc = ps_cursor_crc(data, size, receiver->crc);
    ps_cursor_advance(data, size);
  }
  count(engine, size);
}
