/* Commands of the host: submission, and the responses that end them (TCP 1.0, 3.3.2). */
#include "internal.h"

enum { PSDT_SGL = 0x40, PSDT_MASK = 0xc0 };

/* The capsule's header in the slot; SGL1 as this transport has it (TCP 1.0, 3.3.2.1). */
static void capsule_write(struct ps_engine *engine, struct slot *slot, uint32_t index,
                          const uint8_t *sqe) {
  uint32_t header_digest = engine->digests & PS_DIGEST_HEADER ? PS_DIGEST_SIZE : 0;
  bool has_data = slot->transfer == PS_TRANSFER_IN_CAPSULE;
  uint32_t data_digest = has_data && engine->digests & PS_DIGEST_DATA ? PS_DIGEST_SIZE : 0;
  struct pdu_command *pdu = (struct pdu_command *)(void *)slot->u.host.head;
  uint32_t header_end = (uint32_t)sizeof *pdu + header_digest;
  memcpy((uint8_t *)pdu + sizeof pdu->common, sqe, sizeof *pdu - sizeof pdu->common);
  pdu->common.type = PS_PDU_COMMAND;
  pdu->common.flags =
      (uint8_t)((header_digest ? PS_PDU_HDGST : 0) | (data_digest ? PS_PDU_DDGST : 0));
  pdu->common.hlen = sizeof *pdu;
  pdu->common.pdo = (uint8_t)(has_data ? header_end : 0);
  pdu->common.plen = ps_put32(header_end + (has_data ? slot->length : 0) + data_digest);
  pdu->flags = (uint8_t)((pdu->flags & ~PSDT_MASK) | PSDT_SGL);
  pdu->cid = ps_put16(index);
  memset(pdu->sgl_address, 0, sizeof pdu->sgl_address);
  memset(pdu->sgl_reserved, 0, sizeof pdu->sgl_reserved);
  pdu->sgl_length = ps_put32(slot->length);
  pdu->sgl_type = has_data ? PS_SGL_IN_CAPSULE : PS_SGL_TRANSPORT;
  slot->sizes[PART_HEAD] = ps_header_end(engine, slot->u.host.head, sizeof *pdu);
  slot->sizes[PART_PAD] = 0;
  slot->sizes[PART_TAIL] = (uint8_t)data_digest;
  slot->data_left = has_data ? slot->length : 0;
  if (data_digest > 0) {
    ps_digest_put(slot->u.host.tail, ps_cursor_crc(&slot->data, slot->length, PS_CRC_BEGIN));
  }
}

int32_t ps_engine_submit(struct ps_engine *engine, const uint8_t *sqe, uint32_t transfer,
                         const struct iovec *iov, size_t iov_count, uint32_t length) {
  assert(!ps_is_target(engine));
  assert(sqe != NULL);
  assert(transfer <= PS_TRANSFER_IN_CAPSULE);
  assert((transfer == PS_TRANSFER_NONE) == (length == 0));
  assert(length <= UINT32_MAX - PS_HEADER_SIZE_MAX - PS_DIGEST_SIZE);
  if (engine->state != ENGINE_OPEN) return -1;
  uint16_t index = ps_slot_allocate(engine);
  if (index == NO_SLOT) return -1;
  struct slot *slot = ps_slot(engine, index);
  ps_cursor_set(&slot->data, iov, iov_count, length);
  slot->length = length;
  slot->transfer = (uint8_t)transfer;
  slot->last = false;
  slot->complete = false;
  slot->kept = false;
  slot->r2t_count = 0;
  slot->u.host.r2t_left = 0;
  slot->u.host.asked = 0;
  capsule_write(engine, slot, index, sqe);
  ps_output_queue(engine, index, PART_HEAD, PART_END);
  return index;
}

void ps_engine_keep(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(!ps_is_target(engine));
  assert(slot->state == SLOT_OPEN || slot->state == SLOT_COMPLETED);
  assert(!slot->kept);
  slot->kept = true;
}

void ps_engine_let_go(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(!ps_is_target(engine));
  assert(slot->kept);
  slot->kept = false;
  if (slot->state == SLOT_KEPT) ps_slot_free(engine, index);
}

void ps_host_complete(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(slot->state == SLOT_OPEN);
  slot->state = SLOT_COMPLETED;
  slot->complete = slot->queued; /* its PDU must leave whole: the stream would break */
  if (!slot->queued) ps_event_push_received(engine, PS_EVENT_COMPLETION, index);
}

void ps_response_read(struct ps_engine *engine) {
  const struct pdu_response *pdu =
      (const struct pdu_response *)(const void *)engine->receiver.header;
  uint32_t index = ps_get16(pdu->cid);
  if (index >= engine->slots_used || ps_slot(engine, index)->state != SLOT_OPEN) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_CQE_CID);
    return;
  }
  memcpy(ps_slot(engine, index)->u.host.cqe, &pdu->dw0, sizeof ps_slot(engine, index)->u.host.cqe);
  ps_host_complete(engine, index);
}

void ps_host_sent(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(!slot->queued);
  if (slot->complete) {
    slot->complete = false;
    ps_event_push(engine, PS_EVENT_COMPLETION, index);
  } else {
    ps_h2c_data_sent(engine, index);
  }
}
