/* The host's side of the negotiation (TCP 1.0, 3.3.1 and 3.6.2.3): ICReq out, ICResp in. */
#include "internal.h"

void ps_icreq_write(struct ps_engine *engine) {
  const struct ps_engine_config *config = &engine->config;
  struct pdu_ic request = {
      .common = {.type = PS_PDU_ICREQ, .hlen = sizeof request, .plen = ps_put32(sizeof request)},
      .alignment = (uint8_t)config->data_alignment,
      .digests = (uint8_t)config->digests,
      .limit = ps_put32(config->max_r2t),
  };
  assert(config->role == PS_ROLE_HOST);
  assert(engine->ic_size == 0);
  memcpy(engine->ic, &request, sizeof request);
  engine->ic_size = sizeof request;
}

/* The offset of the first field that this host cannot live with, or -1. As strict as the Linux
 * host: digests exactly as asked, no padding asked of the host. */
static int fault_of(const struct ps_engine *engine, const struct pdu_ic *response) {
  uint32_t max_h2c_data = ps_get32(response->limit);
  if (ps_get16(response->pfv) != 0) return PS_FIELD_PFV;
  if (response->alignment != 0) return PS_FIELD_ALIGNMENT;
  if (response->digests != engine->config.digests) return PS_FIELD_DIGESTS;
  if (max_h2c_data < PS_H2C_DATA_MIN || max_h2c_data % 4 != 0) return PS_FIELD_MAXH2CDATA;
  return -1;
}

void ps_icresp_read(struct ps_engine *engine) {
  const struct pdu_ic *response = (const struct pdu_ic *)(const void *)engine->receiver.header;
  assert(engine->state == ENGINE_NEGOTIATING);
  int fault = fault_of(engine, response);
  if (fault >= 0) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, (uint32_t)fault);
    return;
  }
  engine->digests = response->digests;
  engine->max_h2c_data = ps_get32(response->limit);
  engine->alignment = (engine->config.data_alignment + 1) * 4;
  engine->state = ENGINE_OPEN;
  ps_event_push_received(engine, PS_EVENT_CONNECTED, 0);
}
