/* Answers of the target: C2HData and the response capsule (TCP 1.0, 3.3.2.1, 3.6.2.7, 3.6.2.9). */
#include "internal.h"

enum { SQHD_DISABLED = 0xffff };

/* Where the slot's data of the host is still expected, and no longer wanted. */
static void end_receiving(struct ps_engine *engine, struct slot *slot, uint32_t index) {
  ps_payload_detach(engine, index);
  if (slot->state != SLOT_TRANSFER) return;
  if (slot->queued && !slot->exposed) return; /* the host has not seen the R2T and never will */
  assert(slot->covered <= slot->length);
  uint32_t owed = slot->length - slot->covered;
  slot->ghost = owed > UINT32_MAX - slot->ghost ? UINT32_MAX : slot->ghost + owed;
}

/* One C2HData for all data. Its digest is made once, here, over bytes that must stay unchanged. */
static void c2h_data_write(struct ps_engine *engine, struct slot *slot, uint32_t length,
                           bool is_success) {
  uint32_t data_digest = engine->digests & PS_DIGEST_DATA ? PS_DIGEST_SIZE : 0;
  struct pdu_data *header = (struct pdu_data *)(void *)slot->u.target.head;
  *header = engine->c2h_data;
  if (is_success) header->common.flags |= PS_PDU_SUCCESS;
  header->common.plen = ps_put32(header->common.pdo + length + data_digest);
  header->cccid = ps_put16(slot->cid);
  header->length = ps_put32(length);
  slot->sizes[PART_HEAD] = ps_header_end(engine, slot->u.target.head, sizeof(struct pdu_data));
  slot->sizes[PART_PAD] = (uint8_t)(header->common.pdo - slot->sizes[PART_HEAD]);
  slot->data_left = length;
  if (data_digest == 0) return;
  ps_digest_put(slot->u.target.tail, ps_cursor_crc(&slot->data, length, PS_CRC_BEGIN));
  slot->sizes[PART_TAIL] = PS_DIGEST_SIZE;
}

static void response_write(struct ps_engine *engine, struct slot *slot, uint16_t status,
                           uint32_t dw0, uint32_t dw1) {
  uint32_t header_digest = engine->digests & PS_DIGEST_HEADER ? PS_DIGEST_SIZE : 0;
  uint32_t sqhd = engine->flow_control_disabled ? SQHD_DISABLED : engine->sq_head;
  uint8_t *at = slot->u.target.tail + slot->sizes[PART_TAIL];
  *(struct pdu_response *)(void *)at = (struct pdu_response){
      .common = {.type = PS_PDU_RESPONSE,
                 .flags = header_digest ? PS_PDU_HDGST : 0,
                 .hlen = sizeof(struct pdu_response),
                 .plen = ps_put32((uint32_t)sizeof(struct pdu_response) + header_digest)},
      .dw0 = ps_put32(dw0),
      .dw1 = ps_put32(dw1),
      .sqhd = ps_put16(sqhd),
      .cid = ps_put16(slot->cid),
      .status = ps_put16((uint32_t)status << 1),
  };
  uint8_t size = ps_header_end(engine, at, sizeof(struct pdu_response));
  slot->sizes[PART_TAIL] = (uint8_t)(slot->sizes[PART_TAIL] + size);
}

/* After termination nothing more is said: the slot ends once what it had queued is gone. */
static void respond_terminated(struct ps_engine *engine, struct slot *slot, uint32_t index) {
  ps_payload_detach(engine, index);
  slot->state = SLOT_RESPONDING;
  if (slot->queued) return;
  ps_slot_free(engine, index);
  ps_event_push(engine, PS_EVENT_SENT, index);
}

/* An R2T that is listed already goes out first, unchanged; one that is not is left out. */
static void queue(struct ps_engine *engine, struct slot *slot, uint32_t index) {
  if (!slot->queued) {
    ps_output_queue(engine, index, PART_HEAD, PART_END);
  } else if (!slot->exposed) {
    slot->part = PART_HEAD;
    slot->part_end = PART_END;
  }
}

void ps_engine_respond(struct ps_engine *engine, uint32_t index, uint16_t status, uint32_t dw0,
                       uint32_t dw1, const struct iovec *iov, size_t iov_count,
                       uint32_t data_length) {
  struct slot *slot = ps_slot(engine, index);
  assert(ps_is_target(engine));
  assert(slot->state != SLOT_FREE && slot->state != SLOT_RESPONDING);
  assert(status >> 15 == 0);
  if (engine->state == ENGINE_TERMINATED) {
    respond_terminated(engine, slot, index);
    return;
  }
  assert(engine->state == ENGINE_OPEN);
  end_receiving(engine, slot, index);
  slot->state = SLOT_RESPONDING;
  slot->sizes[PART_HEAD] = slot->sizes[PART_PAD] = slot->sizes[PART_TAIL] = 0;
  slot->data_left = 0;
  bool is_success = engine->success_allowed && status == 0 && dw0 == 0 && dw1 == 0;
  if (data_length > 0) {
    assert(data_length <= UINT32_MAX - PS_HEADER_SIZE_MAX - PS_DIGEST_SIZE);
    ps_cursor_set(&slot->data, iov, iov_count, data_length);
    c2h_data_write(engine, slot, data_length, is_success);
  }
  if (data_length == 0 || !is_success) response_write(engine, slot, status, dw0, dw1);
  queue(engine, slot, index);
}
