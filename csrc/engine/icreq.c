/* The target's side of the negotiation (TCP 1.0, 3.3.1 and 3.6.2.2): ICReq in, ICResp out. */
#include "internal.h"

/* ICResp (TCP 1.0, 3.6.2.3). CPDA is 0: hosts refuse anything else, and nothing here needs it. */
static void icresp_write(struct ps_engine *engine) {
  struct pdu_ic response = {
      .common = {.type = PS_PDU_ICRESP, .hlen = sizeof response, .plen = ps_put32(sizeof response)},
      .digests = engine->digests,
      .limit = ps_put32(engine->max_h2c_data),
  };
  assert(engine->ic_size == 0);
  memcpy(engine->ic, &response, sizeof response);
  engine->ic_size = sizeof response;
}

/* The common headers of command capsules that pass every check. */
static void plain_write(struct ps_engine *engine) {
  bool header = engine->digests & PS_DIGEST_HEADER, data = engine->digests & PS_DIGEST_DATA;
  uint32_t need = (uint32_t)sizeof(struct pdu_command) + (header ? PS_DIGEST_SIZE : 0);
  engine->plain = (struct pdu_common){.type = PS_PDU_COMMAND,
                                      .flags = header ? PS_PDU_HDGST : 0,
                                      .hlen = sizeof(struct pdu_command),
                                      .plen = ps_put32(need)};
  engine->plain_data = engine->plain;
  engine->plain_data.pdo = (uint8_t)need;
  if (data) engine->plain_data.flags |= PS_PDU_DDGST;
}

/* What all C2HData headers of the connection have: PDO is a multiple of what HPDA asks, the digest
 * stands before the padding. */
static void c2h_data_prepare(struct ps_engine *engine) {
  bool header = engine->digests & PS_DIGEST_HEADER, data = engine->digests & PS_DIGEST_DATA;
  uint32_t header_end = (uint32_t)sizeof(struct pdu_data) + (header ? PS_DIGEST_SIZE : 0);
  uint32_t pdo = (header_end + engine->alignment - 1) / engine->alignment * engine->alignment;
  engine->c2h_data.common = (struct pdu_common){
      .type = PS_PDU_C2H_DATA,
      .flags = (uint8_t)(PS_PDU_LAST | (header ? PS_PDU_HDGST : 0) | (data ? PS_PDU_DDGST : 0)),
      .hlen = sizeof(struct pdu_data),
      .pdo = (uint8_t)pdo};
}

void ps_icreq_read(struct ps_engine *engine) {
  const struct pdu_ic *request = (const struct pdu_ic *)(const void *)engine->receiver.header;
  assert(engine->state == ENGINE_NEGOTIATING);
  if (ps_get16(request->pfv) != 0) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_PFV);
    return;
  }
  if (request->alignment > PS_ALIGNMENT_MAX) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_ALIGNMENT);
    return;
  }
  /* A digest is in force when the host asks for it and the controller agrees. MAXR2T needs no
   * memory: one R2T asks for all the data of a command. */
  engine->digests = (uint8_t)(request->digests & engine->config.digests);
  engine->alignment = (request->alignment + 1u) * 4;
  engine->state = ENGINE_OPEN;
  plain_write(engine);
  c2h_data_prepare(engine);
  icresp_write(engine);
  ps_event_push_received(engine, PS_EVENT_CONNECTED, 0);
}
