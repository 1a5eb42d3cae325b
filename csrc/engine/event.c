/* Events: a ring with room for one of each slot and the few of the connection itself. */
#include "internal.h"

enum { KIND_MASK = 0x7f, SLOT_SHIFT = 8 };

void ps_event_push(struct ps_engine *engine, uint32_t kind, uint32_t slot) {
  assert(engine->event_tail - engine->event_head <= engine->event_mask);
  assert((kind & KIND_MASK) != PS_EVENT_NONE);
  engine->events[engine->event_tail & engine->event_mask] = kind | slot << SLOT_SHIFT;
  engine->event_tail++;
}

void ps_event_push_received(struct ps_engine *engine, uint32_t kind, uint32_t slot) {
  assert(!engine->blocked);
  ps_event_push(engine, kind | EVENT_BLOCKS, slot);
  engine->blocked = true;
}

/* The fields that only some kinds have. A command's entry is still in the receiver: receiving is
 * blocked until its event was taken. */
static void fill(struct ps_engine *engine, struct ps_engine_event *event) {
  switch (event->kind) {
    case PS_EVENT_COMMAND:
      event->data_length = engine->receiver.left;
      memcpy(event->entry, engine->receiver.header + sizeof(struct pdu_common),
             sizeof event->entry);
      break;
    case PS_EVENT_DATA:
      event->digest_error = ps_slot(engine, event->slot)->digest_error;
      break;
    case PS_EVENT_COMPLETION: {
      struct slot *slot = ps_slot(engine, event->slot);
      event->data_length = slot->transfer == PS_TRANSFER_IN_CAPSULE ? slot->length : slot->covered;
      event->digest_error = slot->digest_error;
      memcpy(event->entry, slot->u.host.cqe, sizeof slot->u.host.cqe);
      if (slot->kept) {
        slot->state = SLOT_KEPT;
      } else {
        ps_slot_free(engine, event->slot);
      }
      break;
    }
    case PS_EVENT_TERMINATED:
      event->fes = engine->fes;
      event->fei = engine->fei;
      event->from_peer = engine->from_peer;
      break;
    default:
      break;
  }
}

bool ps_engine_next_event(struct ps_engine *engine, struct ps_engine_event *event) {
  assert(event != NULL);
  if (engine->event_head == engine->event_tail) return false;
  uint32_t entry = engine->events[engine->event_head & engine->event_mask];
  engine->event_head++;
  event->kind = entry & KIND_MASK;
  event->slot = entry >> SLOT_SHIFT;
  event->data_length = 0;
  event->digest_error = 0;
  event->fes = 0;
  event->from_peer = 0;
  event->fei = 0;
  fill(engine, event);
  if (entry & EVENT_BLOCKS) engine->blocked = false;
  return true;
}
