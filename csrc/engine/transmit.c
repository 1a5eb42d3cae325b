/* Output: the negotiation first, then the queued slots in order, a TermReq of ours last.
 *
 * Slots hold the bytes of their headers and digests themselves, so listing copies nothing. What
 * was listed once stays as it is until it was sent.
 */
#include "internal.h"

static const uint8_t zeros[(PS_ALIGNMENT_MAX + 1) * 4];

void ps_output_queue(struct ps_engine *engine, uint32_t index, enum part first, enum part end) {
  struct slot *slot = ps_slot(engine, index);
  assert(!slot->queued);
  assert(engine->state == ENGINE_OPEN);
  slot->queued = true;
  slot->exposed = false;
  slot->part = (uint8_t)first;
  slot->part_end = (uint8_t)end;
  slot->part_offset = 0;
  slot->next = NO_SLOT;
  if (engine->output_head == NO_SLOT) {
    engine->output_head = (uint16_t)index;
  } else {
    ps_slot(engine, engine->output_tail)->next = (uint16_t)index;
  }
  engine->output_tail = (uint16_t)index;
}

static const uint8_t *bytes_of(const struct ps_engine *engine, const struct slot *slot,
                               uint32_t part) {
  bool is_target = ps_is_target(engine);
  switch (part) {
    case PART_R2T:
      assert(is_target);
      return slot->u.target.r2t;
    case PART_HEAD:
      return is_target ? slot->u.target.head : slot->u.host.head;
    case PART_PAD:
      return zeros;
    default:
      assert(part == PART_TAIL);
      return is_target ? slot->u.target.tail : slot->u.host.tail;
  }
}

static void put(struct iovec *iov, const uint8_t *bytes, size_t size) {
  iov->iov_base = (void *)(uintptr_t)bytes; /* sendmsg's iovecs have no const */
  iov->iov_len = size;
}

/* Most of what a target sends is a header and data in one row, nothing of which has gone yet. 0: it
 * is something else. */
static size_t list_answer(struct slot *slot, struct iovec *iov, size_t most) {
  if (slot->part != PART_HEAD || slot->part_offset > 0 || slot->part_end != PART_END) return 0;
  if (slot->sizes[PART_PAD] > 0 || slot->sizes[PART_TAIL] > 0 || most < 2) return 0;
  if (slot->data_left == 0 || slot->data.iov->iov_len < slot->data_left) return 0;
  assert(slot->sizes[PART_HEAD] > 0 && slot->data.offset == 0);
  put(&iov[0], slot->u.target.head, slot->sizes[PART_HEAD]);
  put(&iov[1], slot->data.iov->iov_base, slot->data_left);
  slot->exposed = true;
  return 2;
}

static size_t list_slot(const struct ps_engine *engine, struct slot *slot, struct iovec *iov,
                        size_t most) {
  size_t count = 0;
  uint32_t offset = slot->part_offset;
  uint32_t end = slot->part_end;
  assert(end <= PART_END);
  for (uint32_t part = slot->part; part < end && count < most; part++) {
    if (part == PART_DATA) {
      if (slot->data_left > 0) {
        count += ps_cursor_list(&slot->data, slot->data_left, iov + count, most - count);
      }
    } else if (slot->sizes[part] > offset) {
      put(&iov[count++], bytes_of(engine, slot, part) + offset, slot->sizes[part] - offset);
    }
    offset = 0;
  }
  if (count > 0) slot->exposed = true;
  return count;
}

size_t ps_engine_output(struct ps_engine *engine, struct iovec *iov, size_t most) {
  assert(iov != NULL || most == 0);
  size_t count = 0;
  if (engine->ic_sent < engine->ic_size && count < most) {
    put(&iov[count++], engine->ic + engine->ic_sent, (size_t)engine->ic_size - engine->ic_sent);
  }
  for (uint32_t index = engine->output_head; index != NO_SLOT && count < most;) {
    struct slot *slot = ps_slot(engine, index);
    size_t listed = 0;
    if (slot->state == SLOT_RESPONDING) listed = list_answer(slot, iov + count, most - count);
    if (listed == 0) listed = list_slot(engine, slot, iov + count, most - count);
    count += listed;
    index = slot->next;
  }
  if (engine->term_sent < engine->term_size && count < most) {
    put(&iov[count++], engine->term + engine->term_sent,
        (size_t)engine->term_size - engine->term_sent);
  }
  return count;
}

static size_t pass_fixed(uint8_t *sent, uint8_t size, size_t most) {
  size_t step = (size_t)size - *sent;
  if (step > most) step = most;
  *sent = (uint8_t)(*sent + step);
  return step;
}

/* A whole answer of a target: nothing looks at where its data was any more. */
static size_t pass_answer(struct slot *slot, size_t size) {
  size_t whole = (size_t)slot->sizes[PART_HEAD] + slot->sizes[PART_PAD] + slot->data_left +
                 slot->sizes[PART_TAIL];
  if (slot->part != PART_HEAD || slot->part_offset > 0 || size < whole) return 0;
  assert(whole > 0);
  slot->part = PART_END;
  slot->data_left = 0;
  return whole;
}

/* Passes up to `size` bytes of the slot and any parts that are empty by then. */
static size_t pass_slot(struct slot *slot, size_t size) {
  size_t passed = 0;
  assert(slot->part_end <= PART_END);
  while (slot->part < slot->part_end) {
    size_t rest = size - passed;
    if (slot->part == PART_DATA) {
      size_t step = slot->data_left < rest ? slot->data_left : rest;
      if (step > 0) ps_cursor_advance(&slot->data, step);
      slot->data_left -= (uint32_t)step;
      passed += step;
      if (slot->data_left > 0) break;
    } else {
      passed += pass_fixed(&slot->part_offset, slot->sizes[slot->part], rest);
      if (slot->part_offset < slot->sizes[slot->part]) break;
    }
    slot->part++;
    slot->part_offset = 0;
  }
  return passed;
}

/* All of a slot's queued bytes are gone. */
static void slot_sent(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(index == engine->output_head);
  engine->output_head = slot->next;
  if (engine->output_head == NO_SLOT) engine->output_tail = NO_SLOT;
  slot->queued = false;
  if (!ps_is_target(engine)) {
    ps_host_sent(engine, index);
  } else if (slot->state == SLOT_RESPONDING && slot->part_end != PART_END &&
             engine->state == ENGINE_OPEN) {
    ps_output_queue(engine, index, PART_HEAD, PART_END); /* answered while its R2T was going out */
  } else if (slot->state == SLOT_RESPONDING) {
    ps_slot_free(engine, index);
    ps_event_push(engine, PS_EVENT_SENT, index);
  }
}

void ps_engine_sent(struct ps_engine *engine, size_t size) {
  size -= pass_fixed(&engine->ic_sent, engine->ic_size, size);
  while (size > 0 && engine->output_head != NO_SLOT) {
    uint32_t index = engine->output_head;
    struct slot *slot = ps_slot(engine, index);
    size_t passed = slot->state == SLOT_RESPONDING ? pass_answer(slot, size) : 0;
    size -= passed > 0 ? passed : pass_slot(slot, size);
    if (slot->part == slot->part_end) slot_sent(engine, index);
  }
  size -= pass_fixed(&engine->term_sent, engine->term_size, size);
  assert(size == 0); /* more than ps_engine_output listed */
}
