/* Framing: which PDU may come when, and what its common header must say (TCP 1.0, 3.6.1).
 *
 * The table below is the whole protocol seen from the receiver: type x role -> the state of the
 * connection it belongs to, its header length, what may stand behind the header, and its reader.
 * Checks run in the order type, state, HLEN, FLAGS, PDO, PLEN; the first fault is told.
 */
#include "internal.h"

enum data_rule {
  DATA_NONE = 0, /* PLEN is the header and its digest; PDO and DDGSTF are reserved */
  DATA_MAY,      /* in-capsule data */
  DATA_MUST      /* data PDUs */
};

struct rule {
  void (*read)(struct ps_engine *engine); /* NULL: no such PDU in this direction */
  uint8_t state;                          /* enum engine_state it is legal in */
  uint8_t hlen;
  uint8_t digests; /* 1: carries a header digest when they are in force */
  uint8_t data;    /* enum data_rule */
};

enum { TYPE_COUNT = PS_PDU_R2T + 1 };

static const struct rule rules[2][TYPE_COUNT] = {
    [PS_ROLE_TARGET] =
        {
            [PS_PDU_ICREQ] = {ps_icreq_read, ENGINE_NEGOTIATING, 128, 0, DATA_NONE},
            [PS_PDU_COMMAND] = {ps_command_read, ENGINE_OPEN, 72, 1, DATA_MAY},
            [PS_PDU_H2C_DATA] = {ps_h2c_data_read, ENGINE_OPEN, 24, 1, DATA_MUST},
        },
    [PS_ROLE_HOST] =
        {
            [PS_PDU_ICRESP] = {ps_icresp_read, ENGINE_NEGOTIATING, 128, 0, DATA_NONE},
            [PS_PDU_RESPONSE] = {ps_response_read, ENGINE_OPEN, 24, 1, DATA_NONE},
            [PS_PDU_C2H_DATA] = {ps_c2h_data_read, ENGINE_OPEN, 24, 1, DATA_MUST},
            [PS_PDU_R2T] = {ps_r2t_read, ENGINE_OPEN, 24, 1, DATA_NONE},
        },
};

/* TermReqs stand outside: they are legal in every state and never answered by a TermReq. */
static const struct rule term_rule = {ps_term_read, ENGINE_OPEN, 24, 0, DATA_NONE};

static const struct pdu_common *common(const struct ps_engine *engine) {
  return (const struct pdu_common *)(const void *)engine->receiver.header;
}

uint32_t ps_received_plen(const struct ps_engine *engine) { return ps_get32(common(engine)->plen); }

static bool is_term(const struct ps_engine *engine) {
  return common(engine)->type == (ps_is_target(engine) ? PS_PDU_H2C_TERM : PS_PDU_C2H_TERM);
}

static const struct rule *rule_of(const struct ps_engine *engine) {
  if (is_term(engine)) return &term_rule;
  uint8_t type = common(engine)->type;
  if (type >= TYPE_COUNT) return NULL;
  const struct rule *rule = &rules[engine->config.role][type];
  return rule->read == NULL ? NULL : rule;
}

/* Type and state. Before the negotiation every other PDU is out of sequence, known or not. */
static const struct rule *check_sequence(struct ps_engine *engine) {
  const struct rule *rule = rule_of(engine);
  if (rule == &term_rule) return rule;
  if (rule == NULL && engine->state == ENGINE_OPEN) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_TYPE);
    return NULL;
  }
  if (rule == NULL || rule->state != engine->state) {
    ps_term_fault(engine, PS_FES_SEQUENCE, 0);
    return NULL;
  }
  return rule;
}

/* HDGSTF and DDGSTF say what was negotiated (TCP 1.0, 3.6.2.6 to 3.6.2.10). A DDGSTF on a capsule
 * without data is harmless and passed over. */
static bool flags_fit(const struct ps_engine *engine, const struct rule *rule, bool has_data) {
  uint8_t flags = common(engine)->flags;
  if (!rule->digests) return true;
  bool header = engine->digests & PS_DIGEST_HEADER;
  bool data = engine->digests & PS_DIGEST_DATA;
  if (header != !!(flags & PS_PDU_HDGST)) return false;
  if (rule->data == DATA_NONE) return true;
  if (!data) return !(flags & PS_PDU_DDGST);
  return !has_data || flags & PS_PDU_DDGST;
}

/* CPDA is 0 here, so to a target data follows the header at once; to a host it is aligned to HPDA
 * (TCP 1.0, 3.6.2.9: PDO is a multiple of (HPDA + 1) dwords). */
static bool pdo_fits(const struct ps_engine *engine, const struct rule *rule, bool has_data) {
  uint32_t pdo = common(engine)->pdo;
  uint32_t header_end = engine->receiver.need;
  if (rule->data == DATA_NONE) return true;
  if (!has_data) return pdo == 0 || pdo == header_end;
  if (ps_is_target(engine)) return pdo == header_end;
  return pdo >= header_end && pdo % engine->alignment == 0;
}

static bool plen_fits(const struct ps_engine *engine, const struct rule *rule) {
  uint32_t plen = ps_received_plen(engine);
  if (rule->data == DATA_NONE) return plen == engine->receiver.need;
  return plen >= engine->receiver.need && (!ps_is_target(engine) || plen <= PS_PLEN_MAX);
}

static void check_common(struct ps_engine *engine) {
  struct receiver *receiver = &engine->receiver;
  receiver->seen = sizeof(struct pdu_common);
  const struct rule *rule = check_sequence(engine);
  if (rule == NULL) return;
  if (rule == &term_rule) {
    uint32_t plen = ps_received_plen(engine);
    bool sane = common(engine)->hlen == rule->hlen && plen >= rule->hlen;
    if (!sane || plen > PS_TERM_SIZE_MAX) {
      ps_term_peer(engine, 0, 0);
      return;
    }
  }
  receiver->digest_size = 0;
  if (rule->digests && engine->digests & PS_DIGEST_HEADER) receiver->digest_size = PS_DIGEST_SIZE;
  receiver->need = (uint8_t)(rule->hlen + receiver->digest_size);
  receiver->state = RECEIVE_HEADER;
  if (rule == &term_rule) return;
  bool has_data = rule->data == DATA_MUST || ps_received_plen(engine) > receiver->need;
  if (common(engine)->hlen != rule->hlen) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_HLEN);
  } else if (!flags_fit(engine, rule, has_data)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_FLAGS);
  } else if (!pdo_fits(engine, rule, has_data)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_PDO);
  } else if (!plen_fits(engine, rule)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_PLEN);
  }
}

/* A whole header is there. A wrong header digest is fatal; FEI is the digest that came (TCP 1.0,
 * 3.3.1.1 and 3.6.2.5). */
static void check_header(struct ps_engine *engine) {
  struct receiver *receiver = &engine->receiver;
  const struct rule *rule = rule_of(engine);
  assert(rule != NULL);
  receiver->seen = rule->hlen;
  if (receiver->digest_size > 0) {
    ps_le32 came;
    memcpy(&came, receiver->header + rule->hlen, sizeof came);
    if (ps_get32(came) != ps_crc32c(receiver->header, rule->hlen)) {
      ps_term_fault(engine, PS_FES_HEADER_DIGEST, ps_get32(came));
      return;
    }
  }
  ps_receive_next(engine);
  rule->read(engine);
}

/* The PDU at hand needs no more bytes, unless its reader says otherwise. */
void ps_receive_next(struct ps_engine *engine) {
  engine->receiver.state = RECEIVE_COMMON;
  engine->receiver.have = 0;
}

static size_t receive_header(struct ps_engine *engine, const uint8_t *bytes, size_t size) {
  struct receiver *receiver = &engine->receiver;
  bool is_common = receiver->state == RECEIVE_COMMON;
  size_t need = is_common ? sizeof(struct pdu_common) : receiver->need;
  assert(receiver->have < need);
  assert(need <= sizeof receiver->header);
  size_t step = need - receiver->have;
  if (step > size) step = size;
  memcpy(receiver->header + receiver->have, bytes, step);
  receiver->have = (uint8_t)(receiver->have + step);
  if (receiver->have < need) return step;
  if (is_common) {
    check_common(engine);
  } else {
    check_header(engine);
  }
  return step;
}

static uint32_t plen_of(const uint8_t *bytes) {
  return ps_get32(((const struct pdu_common *)(const void *)bytes)->plen);
}

static bool is_plain(const struct ps_engine *engine, const uint8_t *bytes, size_t need) {
  if (memcmp(bytes, &engine->plain, sizeof engine->plain) == 0) return true;
  if (memcmp(bytes, &engine->plain_data, offsetof(struct pdu_common, plen)) != 0) return false;
  uint32_t plen = plen_of(bytes);
  return plen > need && plen <= PS_PLEN_MAX;
}

/* Bytes of the header of a plain capsule, where one may come next; else 0: also before the
 * negotiation, and at a host. */
static size_t plain_size(const struct ps_engine *engine) {
  const struct receiver *receiver = &engine->receiver;
  if (receiver->state != RECEIVE_COMMON || receiver->have > 0) return 0;
  return engine->plain_data.pdo;
}

/* Most of what a target receives is command capsules, whole: their common headers are all alike and
 * were checked once. 0: it is something else, or not all there. */
static size_t receive_plain(struct ps_engine *engine, const uint8_t *bytes, size_t size) {
  struct receiver *receiver = &engine->receiver;
  size_t need = plain_size(engine);
  if (need == 0 || size < need || !is_plain(engine, bytes, need)) return 0;
  memcpy(receiver->header, bytes, sizeof(struct pdu_command));
  receiver->need = (uint8_t)need;
  receiver->digest_size = (uint8_t)(need - sizeof(struct pdu_command));
  if (receiver->digest_size > 0)
    memcpy(receiver->header + sizeof(struct pdu_command), bytes + sizeof(struct pdu_command),
           PS_DIGEST_SIZE);
  check_header(engine);
  return need;
}

size_t ps_engine_receive(struct ps_engine *engine, const uint8_t *bytes, size_t size) {
  assert(bytes != NULL || size == 0);
  const struct receiver *receiver = &engine->receiver;
  size_t consumed = 0;
  while (consumed < size && !engine->blocked && engine->state != ENGINE_TERMINATED &&
         receiver->state != RECEIVE_HOLD) {
    const uint8_t *from = bytes + consumed;
    size_t rest = size - consumed;
    size_t step = receive_plain(engine, from, rest);
    if (step == 0)
      step = receiver->state <= RECEIVE_HEADER ? receive_header(engine, from, rest)
                                               : ps_payload_receive(engine, from, rest);
    assert(step > 0 && step <= rest);
    consumed += step;
  }
  return consumed;
}

uint32_t ps_engine_peek(const struct ps_engine *engine, const uint8_t *bytes, size_t size,
                        const uint8_t **entries, uint32_t most) {
  assert(engine != NULL && (bytes != NULL || size == 0) && entries != NULL);
  size_t need = plain_size(engine);
  uint32_t count = 0;
  while (count < most && need > 0 && size >= need && is_plain(engine, bytes, need)) {
    entries[count++] = bytes + sizeof(struct pdu_common);
    size_t plen = plen_of(bytes);
    if (plen > size) plen = size; /* data that has not come yet */
    bytes += plen;
    size -= plen;
  }
  return count;
}
