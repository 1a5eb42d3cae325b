#include "fuzz_support.h"

uint32_t choose(struct choices *choices, uint32_t below) {
  uint32_t value = 0;
  for (uint32_t most = 1; most < below && choices->left > 0; most *= 256) {
    value = value << 8 | *choices->bytes++;
    choices->left--;
    if (most > below / 256) break;
  }
  return below == 0 ? 0 : value % below;
}

uint32_t choose_length(struct choices *choices) {
  static const uint32_t usual[] = {1, 4, 512, 4096, 8192};
  uint32_t kind = choose(choices, 8);
  if (kind < 5) return usual[kind];
  if (kind == 5) return 1 + choose(choices, 200);
  return 1 + choose(choices, FUZZ_DATA_MOST);
}

void end_trace(struct end *end, const void *bytes, size_t size) {
  const uint8_t *from = bytes;
  for (size_t i = 0; i < size; i++) end->trace = (end->trace ^ from[i]) * UINT64_C(0x100000001b3);
}

void end_open(struct end *end, uint32_t role, uint32_t digests, uint32_t alignment,
              uint32_t max_r2t) {
  struct ps_engine_config config = {.role = role,
                                    .slot_count = FUZZ_SLOTS,
                                    .max_h2c_data = 8192,
                                    .in_capsule_size = 8192,
                                    .digests = role == PS_ROLE_HOST ? digests : 3,
                                    .max_r2t = max_r2t,
                                    .data_alignment = alignment};
  memset(end, 0, sizeof *end);
  size_t size = ps_engine_size(&config);
  FUZZ_CHECK(size > 0);
  end->memory = aligned_alloc(64, size);
  end->engine = ps_engine_init(end->memory, &config);
  FUZZ_CHECK(end->engine != NULL);
  end->is_target = role == PS_ROLE_TARGET;
  end->digests = digests;
}

void end_ungive(struct end *end, uint32_t slot) {
  free(end->slots[slot].memory);
  free(end->slots[slot].iov);
  end->slots[slot].memory = NULL;
  end->slots[slot].iov = NULL;
}

void end_close(struct end *end) {
  for (uint32_t i = 0; i < FUZZ_SLOTS; i++) end_ungive(end, i);
  free(end->memory);
}

size_t end_give(struct end *end, uint32_t slot, uint32_t length, struct choices *choices) {
  struct model *model = &end->slots[slot];
  size_t count = 1 + choose(choices, FUZZ_IOVECS);
  end_ungive(end, slot);
  model->memory = malloc(length);
  model->memory_size = length;
  model->iov = malloc(count * sizeof *model->iov);
  uint32_t from = 0;
  for (size_t i = 0; i < count; i++) {
    uint32_t size = i + 1 == count ? length - from : choose(choices, length - from + 1);
    model->iov[i] = (struct iovec){model->memory + from, size};
    from += size;
  }
  memset(model->memory, (int)(slot * 37 + length), length);
  return count;
}

/* Every PDU sent is whole, of a type that this end may send, and its header digest is right. */
static void parse_output(struct end *end) {
  struct stream *out = &end->out;
  while (out->size - out->taken >= 8) {
    const uint8_t *pdu = out->bytes + out->taken;
    uint32_t plen;
    memcpy(&plen, pdu + 4, 4);
    FUZZ_CHECK(plen >= pdu[2] && plen <= FUZZ_STREAM_SIZE);
    if (out->size - out->taken < plen) return;
    FUZZ_CHECK(end->is_target == (pdu[0] % 2 == 1));
    if (pdu[1] & PS_PDU_HDGST) {
      uint32_t digest;
      memcpy(&digest, pdu + pdu[2], 4);
      FUZZ_CHECK(digest == ps_crc32c(pdu, pdu[2]));
    }
    if (pdu[0] == PS_PDU_R2T) {
      struct r2t_note *note = &end->r2ts[end->r2t_count++ % FUZZ_R2TS];
      memcpy(&note->cid, pdu + 8, 2);
      memcpy(&note->ttag, pdu + 10, 2);
      memcpy(&note->length, pdu + 16, 4);
      note->done = 0;
    }
    out->taken += plen;
  }
}

size_t end_send(struct end *end, size_t most, size_t iovecs) {
  struct iovec iov[64];
  struct stream *out = &end->out;
  size_t passed = 0;
  if (out->taken == out->size) out->taken = out->size = 0;
  size_t count = ps_engine_output(end->engine, iov, iovecs < 64 ? iovecs : 64);
  for (size_t i = 0; i < count && passed < most; i++) {
    size_t size = iov[i].iov_len < most - passed ? iov[i].iov_len : most - passed;
    FUZZ_CHECK(iov[i].iov_len > 0);
    if (size > FUZZ_STREAM_SIZE - out->size) size = FUZZ_STREAM_SIZE - out->size;
    memcpy(out->bytes + out->size, iov[i].iov_base, size);
    end_trace(end, iov[i].iov_base, size);
    out->size += size;
    passed += size;
    if (size < iov[i].iov_len) break;
  }
  ps_engine_sent(end->engine, passed);
  parse_output(end);
  return passed;
}

static void append(struct stream *stream, const void *bytes, size_t size) {
  if (size > FUZZ_STREAM_SIZE - stream->size) return;
  memcpy(stream->bytes + stream->size, bytes, size);
  stream->size += size;
}

void build_pdu(struct stream *stream, const uint8_t *header, size_t header_size, uint32_t pad,
               uint32_t data_size, uint32_t digests, struct choices *mutate) {
  static uint8_t data[FUZZ_DATA_MOST + 64];
  uint8_t copy[128 + 4 + 128];
  size_t size = header_size;
  uint32_t fault = choose(mutate, 16);
  memset(copy, 0, sizeof copy);
  memcpy(copy, header, header_size);
  if (fault == 1) copy[choose(mutate, (uint32_t)header_size)] ^= (uint8_t)(1 + choose(mutate, 255));
  if (digests & PS_DIGEST_HEADER) {
    uint32_t digest = ps_crc32c(copy, header_size);
    memcpy(copy + size, &digest, 4);
    size += 4;
  }
  if (data_size > 0) size += pad;
  if (fault == 2) copy[choose(mutate, (uint32_t)size)] ^= (uint8_t)(1 + choose(mutate, 255));
  append(stream, copy, size);
  if (data_size == 0) return;
  memset(data, (int)choose(mutate, 256), data_size);
  append(stream, data, data_size);
  if (!(digests & PS_DIGEST_DATA)) return;
  uint32_t digest = ps_crc32c(data, data_size) ^ (fault == 3 ? 1 : 0);
  append(stream, &digest, 4);
}

void build_ic(struct stream *stream, bool is_request, uint32_t digests, uint32_t alignment,
              struct choices *mutate) {
  uint8_t pdu[128] = {is_request ? PS_PDU_ICREQ : PS_PDU_ICRESP, 0, 128, 0, 128};
  uint32_t limit = is_request ? 0 : 4096;
  pdu[10] = (uint8_t)alignment;
  pdu[11] = (uint8_t)digests;
  memcpy(pdu + 12, &limit, 4);
  build_pdu(stream, pdu, sizeof pdu, 0, 0, 0, mutate);
}

void build_data(struct stream *stream, uint8_t type, uint8_t flags, uint16_t cid, uint16_t ttag,
                uint32_t offset, uint32_t length, uint32_t data_size, uint32_t digests,
                uint32_t pad, struct choices *mutate) {
  uint8_t pdu[24] = {type, flags, 24};
  uint32_t digest = digests & PS_DIGEST_HEADER ? 4 : 0;
  uint32_t plen = 24 + digest;
  if (digest) pdu[1] |= PS_PDU_HDGST;
  if (data_size > 0) {
    if (digests & PS_DIGEST_DATA) pdu[1] |= PS_PDU_DDGST;
    plen += pad;
    pdu[3] = (uint8_t)plen;
    plen += data_size + (digests & PS_DIGEST_DATA ? 4 : 0);
  }
  memcpy(pdu + 4, &plen, 4);
  memcpy(pdu + 8, &cid, 2);
  memcpy(pdu + 10, &ttag, 2);
  memcpy(pdu + 12, &offset, 4);
  memcpy(pdu + 16, &length, 4);
  build_pdu(stream, pdu, sizeof pdu, pad, data_size, digests, mutate);
}
