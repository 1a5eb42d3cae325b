/* Command capsules at the target (TCP 1.0, 3.6.2.6): a slot for each, and its in-capsule data. */
#include "internal.h"

enum { PSDT_SHIFT = 6 };

/* Whether the capsule's data is what SGL1 says (Base 2.0, 4.1.2; TCP 1.0, 3.3.2.1). Descriptors
 * that are neither of the two that this transport has, a wrong offset, and PRPs are left to the
 * caller: those end the command and not the connection. */
static bool data_fits(const struct pdu_command *capsule, uint32_t data_length) {
  if (capsule->flags >> PSDT_SHIFT == 0) return true;
  uint32_t described = ps_get32(capsule->sgl_length);
  if (capsule->sgl_type == PS_SGL_IN_CAPSULE) return described == data_length;
  if (capsule->sgl_type == PS_SGL_TRANSPORT) return data_length == 0;
  return true;
}

/* Bytes of in-capsule data that PLEN leaves; false when it leaves no sense. */
static bool data_length_of(const struct ps_engine *engine, uint32_t *data_length) {
  uint32_t rest = ps_received_plen(engine) - engine->receiver.need;
  uint32_t digest = engine->digests & PS_DIGEST_DATA ? PS_DIGEST_SIZE : 0;
  *data_length = 0;
  if (rest == 0) return true;
  if (rest <= digest) return false;
  *data_length = rest - digest;
  /* Data over the queue's limit is the caller's to refuse, but it is not read for ever. */
  uint32_t most =
      engine->in_capsule_size > PS_SKIP_MAX ? engine->in_capsule_size : (uint32_t)PS_SKIP_MAX;
  return *data_length <= most;
}

static void count_entry(struct ps_engine *engine) {
  engine->sq_head = engine->sq_head + 1 == engine->sq_size ? 0 : engine->sq_head + 1;
  assert(engine->sq_head < engine->sq_size);
}

void ps_command_read(struct ps_engine *engine) {
  const struct pdu_command *capsule =
      (const struct pdu_command *)(const void *)engine->receiver.header;
  uint32_t data_length;
  if (!data_length_of(engine, &data_length) || !data_fits(capsule, data_length)) {
    ps_term_fault(engine, PS_FES_INVALID_FIELD, PS_FIELD_PLEN);
    return;
  }
  uint16_t index = ps_slot_allocate(engine);
  if (index == NO_SLOT) { /* more commands than the queue has entries */
    ps_term_fault(engine, PS_FES_SEQUENCE, 0);
    return;
  }
  struct slot *slot = ps_slot(engine, index);
  slot->cid = ps_get16(capsule->cid);
  slot->sequence = engine->sequence++;
  count_entry(engine);
  engine->receiver.left = 0;
  if (data_length > 0) {
    ps_payload_begin(engine, index, data_length);
    assert(engine->receiver.state == RECEIVE_PAYLOAD);
    engine->receiver.state = RECEIVE_HOLD;
    slot->state = SLOT_HELD;
  }
  ps_event_push_received(engine, PS_EVENT_COMMAND, index);
}

void ps_engine_take(struct ps_engine *engine, uint32_t slot_index, const struct iovec *iov,
                    size_t iov_count, uint32_t length) {
  struct slot *slot = ps_slot(engine, slot_index);
  struct receiver *receiver = &engine->receiver;
  assert(ps_is_target(engine));
  assert(slot->state == SLOT_HELD || slot->state == SLOT_OPEN);
  assert(length > 0 && slot->length == 0);
  ps_cursor_set(&slot->data, iov, iov_count, length);
  slot->length = length;
  if (slot->state == SLOT_HELD) {
    assert(receiver->slot == slot_index && receiver->state == RECEIVE_HOLD);
    assert(length == receiver->left);
    slot->covered = length;
    slot->state = SLOT_CAPSULE;
    receiver->state = RECEIVE_PAYLOAD;
    return;
  }
  slot->state = SLOT_TRANSFER;
  if (engine->state == ENGINE_OPEN) ps_r2t_write(engine, slot_index);
}

void ps_engine_skip(struct ps_engine *engine, uint32_t slot_index) {
  struct slot *slot = ps_slot(engine, slot_index);
  assert(ps_is_target(engine));
  assert(slot->state == SLOT_HELD);
  slot->state = SLOT_OPEN;
  ps_payload_detach(engine, slot_index);
}
