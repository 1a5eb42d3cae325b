/* Termination: H2CTermReq and C2HTermReq, ours and the peer's (TCP 1.0, 3.5, 3.6.2.4, 3.6.2.5).
 *
 * A connection ends once. After that nothing is parsed; what was queued may still be sent, with
 * our TermReq behind it. A TermReq is never answered by another.
 */
#include "internal.h"

static void set(struct ps_engine *engine, uint16_t fes, uint32_t fei, bool from_peer) {
  assert(engine->state != ENGINE_TERMINATED);
  engine->state = ENGINE_TERMINATED;
  engine->fes = fes;
  engine->fei = fei;
  engine->from_peer = from_peer;
  ps_event_push(engine, PS_EVENT_TERMINATED, 0);
}

static void term_write(struct ps_engine *engine, uint16_t fes, uint32_t fei, size_t shown) {
  assert(shown <= PS_HEADER_SIZE_MAX);
  assert(engine->term_size == 0);
  uint32_t size = (uint32_t)(sizeof(struct pdu_term) + shown);
  struct pdu_term request = {
      .common = {.type = ps_is_target(engine) ? PS_PDU_C2H_TERM : PS_PDU_H2C_TERM,
                 .hlen = sizeof request,
                 .plen = ps_put32(size)},
      .fes = ps_put16(fes),
      .fei = ps_put32(fei),
  };
  memcpy(engine->term, &request, sizeof request);
  memcpy(engine->term + sizeof request, engine->receiver.header, shown);
  engine->term_size = (uint8_t)size;
}

void ps_term_fault(struct ps_engine *engine, uint16_t fes, uint32_t fei) {
  /* The header as far as it was looked at, so the answer does not depend on how bytes came. */
  term_write(engine, fes, fei, engine->receiver.seen);
  set(engine, fes, fei, false);
}

void ps_term_peer(struct ps_engine *engine, uint16_t fes, uint32_t fei) {
  set(engine, fes, fei, true);
}

void ps_term_read(struct ps_engine *engine) {
  const struct pdu_term *request = (const struct pdu_term *)(const void *)engine->receiver.header;
  ps_term_peer(engine, ps_get16(request->fes), ps_get32(request->fei));
}

void ps_engine_terminate(struct ps_engine *engine, uint16_t fes, uint32_t fei) {
  if (engine->state == ENGINE_TERMINATED) return;
  term_write(engine, fes, fei, 0);
  set(engine, fes, fei, false);
}
