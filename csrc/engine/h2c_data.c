/* H2CData at the target (TCP 1.0, 3.3.2.2 and 3.6.2.8): the data that an R2T asked for, in order.
 *
 * One R2T asks for all data of a command, so its H2CData covers the command's bytes from 0 to the
 * end without gap, and LAST stands on exactly the one that reaches the end: LAST too early, or
 * missing there, is an invalid field (FES 01h at FLAGS). Data over MAXH2CDATA breaks a limit that
 * was announced (FES 05h, Data Transfer Limit Exceeded).
 */
#include "internal.h"

/* The slot that waits for data under this tag. A tag not shown to the host yet is unknown to it. */
static struct slot *expecting(const struct ps_engine *engine, uint16_t ttag) {
  uint32_t index = ttag & ((1u << engine->tag_bits) - 1);
  if (index >= engine->slots_used) return NULL;
  struct slot *slot = ps_slot(engine, index);
  if (slot->state != SLOT_TRANSFER || slot->ttag != ttag) return NULL;
  return slot->queued && !slot->exposed ? NULL : slot;
}

/* Data for a command that was ended before all of it had come: owed, and thrown away. */
static bool is_owed(struct ps_engine *engine, uint16_t ttag, uint32_t length) {
  uint32_t index = ttag & ((1u << engine->tag_bits) - 1);
  if (index >= engine->slots_used) return false;
  struct slot *slot = ps_slot(engine, index);
  if (length > slot->ghost) return false;
  slot->ghost -= length;
  return true;
}

/* True when the PDU continues the transfer as asked; else the fault was told. */
static bool continues(struct ps_engine *engine, const struct slot *slot,
                      const struct pdu_data *pdu) {
  uint32_t length = ps_get32(pdu->length);
  uint32_t rest = slot->length - slot->covered;
  assert(slot->covered <= slot->length);
  if (ps_get16(pdu->cccid) != slot->cid) {
    ps_term_fault(engine, PS_FES_SEQUENCE, 0);
  } else if (ps_get32(pdu->offset) != slot->covered || length > rest) {
    ps_term_fault(engine, PS_FES_OUT_OF_RANGE, 0);
  } else if (length > engine->max_h2c_data) {
    ps_term_fault(engine, PS_FES_LIMIT, 0);
  } else if (!!(pdu->common.flags & PS_PDU_LAST) != (length == rest)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_FLAGS);
  } else {
    return true;
  }
  return false;
}

void ps_h2c_data_read(struct ps_engine *engine) {
  const struct pdu_data *pdu = (const struct pdu_data *)(const void *)engine->receiver.header;
  uint16_t ttag = ps_get16(pdu->ttag);
  uint32_t length = ps_get32(pdu->length);
  uint64_t digest = engine->digests & PS_DIGEST_DATA ? PS_DIGEST_SIZE : 0;
  if (length == 0 || pdu->common.pdo + (uint64_t)length + digest != ps_received_plen(engine)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_LENGTH);
    return;
  }
  struct slot *slot = expecting(engine, ttag);
  if (slot == NULL) {
    if (is_owed(engine, ttag, length)) {
      ps_payload_begin(engine, NO_SLOT, length);
    } else {
      ps_term_fault(engine, PS_FES_SEQUENCE, 0);
    }
    return;
  }
  if (!continues(engine, slot, pdu)) return;
  slot->covered += length;
  ps_payload_begin(engine, (uint32_t)(slot - engine->slots), length);
}

/* The payload of a PDU is complete: of an H2CData, or of a capsule. */
void ps_h2c_data_arrived(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(slot->state == SLOT_CAPSULE || slot->state == SLOT_TRANSFER);
  if (slot->covered < slot->length) return;
  assert(slot->data.left == 0);
  slot->state = SLOT_OPEN;
  ps_event_push_received(engine, PS_EVENT_DATA, index);
}
