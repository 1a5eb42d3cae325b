/* C2HData at the host (TCP 1.0, 3.3.2.1 and 3.6.2.9): in order from 0, ended by LAST; SUCCESS on
 * the last one stands for the response.
 */
#include "internal.h"

enum { LAST_AND_SUCCESS = PS_PDU_LAST | PS_PDU_SUCCESS };

/* True when the PDU continues the slot's transfer; else the fault was told. */
static bool continues(struct ps_engine *engine, const struct slot *slot,
                      const struct pdu_data *pdu) {
  uint8_t flags = pdu->common.flags;
  assert(slot->covered <= slot->length);
  if (slot->transfer != PS_TRANSFER_FROM_CONTROLLER || slot->last) {
    ps_term_fault(engine, PS_FES_SEQUENCE, 0);
  } else if (ps_get32(pdu->offset) != slot->covered ||
             ps_get32(pdu->length) > slot->length - slot->covered) {
    ps_term_fault(engine, PS_FES_OUT_OF_RANGE, 0);
  } else if (flags & PS_PDU_SUCCESS && !(flags & PS_PDU_LAST)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_FLAGS);
  } else {
    return true;
  }
  return false;
}

void ps_c2h_data_read(struct ps_engine *engine) {
  const struct pdu_data *pdu = (const struct pdu_data *)(const void *)engine->receiver.header;
  uint32_t index = ps_get16(pdu->cccid);
  uint32_t length = ps_get32(pdu->length);
  uint64_t digest = engine->digests & PS_DIGEST_DATA ? PS_DIGEST_SIZE : 0;
  if (length == 0 || pdu->common.pdo + (uint64_t)length + digest != ps_received_plen(engine)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_LENGTH);
    return;
  }
  if (index >= engine->slots_used || ps_slot(engine, index)->state != SLOT_OPEN) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_CCCID);
    return;
  }
  struct slot *slot = ps_slot(engine, index);
  if (!continues(engine, slot, pdu)) return;
  slot->covered += length;
  slot->last = pdu->common.flags & PS_PDU_LAST;
  ps_payload_begin(engine, index, length);
}

void ps_c2h_data_arrived(struct ps_engine *engine, uint32_t index) {
  const struct pdu_data *pdu = (const struct pdu_data *)(const void *)engine->receiver.header;
  if ((pdu->common.flags & LAST_AND_SUCCESS) != LAST_AND_SUCCESS) return;
  struct slot *slot = ps_slot(engine, index);
  assert(slot->state == SLOT_OPEN);
  /* The response that SUCCESS stands for: all zero but the CID; it carries no SQHD. */
  memset(slot->u.host.cqe, 0, sizeof slot->u.host.cqe);
  ps_le16 cid = ps_put16(index);
  memcpy(slot->u.host.cqe + 12, &cid, sizeof cid);
  ps_host_complete(engine, index);
}
