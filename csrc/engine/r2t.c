/* R2T (TCP 1.0, 3.3.2.2 and 3.6.2.10): asked by the target, checked and noted by the host. */
#include "internal.h"

/* Ask for all data of the slot's command at once; the host splits it by MAXH2CDATA. */
void ps_r2t_write(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(ps_is_target(engine));
  assert(slot->state == SLOT_TRANSFER && !slot->queued);
  ps_slot_set_ttag(engine, index);
  struct pdu_data pdu = {
      .common = {.type = PS_PDU_R2T,
                 .flags = engine->digests & PS_DIGEST_HEADER ? PS_PDU_HDGST : 0,
                 .hlen = sizeof pdu},
      .cccid = ps_put16(slot->cid),
      .ttag = ps_put16(slot->ttag),
      .length = ps_put32(slot->length),
  };
  uint32_t digest = engine->digests & PS_DIGEST_HEADER ? PS_DIGEST_SIZE : 0;
  pdu.common.plen = ps_put32((uint32_t)sizeof pdu + digest);
  memcpy(slot->u.target.r2t, &pdu, sizeof pdu);
  slot->sizes[PART_R2T] = ps_header_end(engine, slot->u.target.r2t, sizeof pdu);
  ps_output_queue(engine, index, PART_R2T, PART_HEAD);
}
