/* H2CData from the host (TCP 1.0, 3.3.2.2 and 3.6.2.8): R2Ts are noted as they come and honoured
 * in order, split by MAXH2CDATA. One PDU of a slot is queued at a time, so slots take turns.
 *
 * A controller may ask again as soon as it has the last byte, which can be before this end was told
 * that the byte was sent. So one R2T more than MAXR2T allows is noted before it is a fault.
 */
#include "internal.h"

void ps_r2t_read(struct ps_engine *engine) {
  const struct pdu_data *pdu = (const struct pdu_data *)(const void *)engine->receiver.header;
  uint32_t index = ps_get16(pdu->cccid);
  uint32_t length = ps_get32(pdu->length);
  if (index >= engine->slots_used || ps_slot(engine, index)->state != SLOT_OPEN) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_CCCID);
    return;
  }
  struct slot *slot = ps_slot(engine, index);
  if (length == 0) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_LENGTH);
  } else if (slot->transfer != PS_TRANSFER_TO_CONTROLLER) {
    ps_term_fault(engine, PS_FES_SEQUENCE, 0);
  } else if (ps_get32(pdu->offset) != slot->u.host.asked ||
             length > slot->length - slot->u.host.asked) {
    ps_term_fault(engine, PS_FES_OUT_OF_RANGE, 0);
  } else if (slot->r2t_count >= engine->config.max_r2t + 2) {
    ps_term_fault(engine, PS_FES_LIMIT, 0);
  } else {
    slot->u.host.r2t_ttag[slot->r2t_count] = ps_get16(pdu->ttag);
    slot->u.host.r2t_length[slot->r2t_count] = length;
    if (slot->r2t_count++ == 0) slot->u.host.r2t_left = length;
    slot->u.host.asked += length;
    if (!slot->queued) ps_h2c_data_write(engine, index);
  }
}

/* The first R2T was honoured in full, to the last byte sent: the next moves up. */
static void next_r2t(struct slot *slot) {
  assert(slot->r2t_count > 0 && slot->u.host.r2t_left == 0);
  slot->r2t_count--;
  for (uint32_t i = 0; i < slot->r2t_count; i++) {
    slot->u.host.r2t_ttag[i] = slot->u.host.r2t_ttag[i + 1];
    slot->u.host.r2t_length[i] = slot->u.host.r2t_length[i + 1];
  }
  if (slot->r2t_count > 0) slot->u.host.r2t_left = slot->u.host.r2t_length[0];
}

void ps_h2c_data_sent(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(!slot->queued);
  if (slot->r2t_count > 0 && slot->u.host.r2t_left == 0) next_r2t(slot);
  if (engine->state == ENGINE_OPEN) ps_h2c_data_write(engine, index);
}

void ps_h2c_data_write(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(!slot->queued);
  if (slot->state != SLOT_OPEN || slot->r2t_count == 0) return;
  uint32_t header_digest = engine->digests & PS_DIGEST_HEADER ? PS_DIGEST_SIZE : 0;
  uint32_t data_digest = engine->digests & PS_DIGEST_DATA ? PS_DIGEST_SIZE : 0;
  uint32_t left = slot->u.host.r2t_left;
  uint32_t length = left < engine->max_h2c_data ? left : engine->max_h2c_data;
  uint32_t pdo = (uint32_t)sizeof(struct pdu_data) + header_digest;
  assert(length > 0 && length <= slot->data.left);
  struct pdu_data pdu = {
      .common = {.type = PS_PDU_H2C_DATA,
                 .flags = (uint8_t)((length == left ? PS_PDU_LAST : 0) |
                                    (header_digest ? PS_PDU_HDGST : 0) |
                                    (data_digest ? PS_PDU_DDGST : 0)),
                 .hlen = sizeof pdu,
                 .pdo = (uint8_t)pdo,
                 .plen = ps_put32(pdo + length + data_digest)},
      .cccid = ps_put16(index),
      .ttag = ps_put16(slot->u.host.r2t_ttag[0]),
      .offset = ps_put32(slot->covered),
      .length = ps_put32(length),
  };
  memcpy(slot->u.host.head, &pdu, sizeof pdu);
  slot->sizes[PART_HEAD] = ps_header_end(engine, slot->u.host.head, sizeof pdu);
  slot->sizes[PART_PAD] = 0;
  slot->sizes[PART_TAIL] = (uint8_t)data_digest;
  slot->data_left = length;
  if (data_digest > 0) {
    ps_digest_put(slot->u.host.tail, ps_cursor_crc(&slot->data, length, PS_CRC_BEGIN));
  }
  slot->covered += length;
  slot->u.host.r2t_left = left - length;
  ps_output_queue(engine, index, PART_HEAD, PART_END);
}
