/* Slots: the free list, and transfer tags.
 *
 * A TTAG names a slot and a generation of it, so that data for a command that was ended early is
 * told apart from data for the command that has the slot now. Such data is owed by the host until
 * it has come (`ghost` bytes): it is thrown away. The slot itself is free as soon as its response
 * has left; slots that are owed nothing are preferred.
 */
#include "internal.h"

/* A slot that was never used; NO_SLOT when there is none. */
static uint16_t make_slot(struct ps_engine *engine) {
  if (engine->slots_used == engine->config.slot_count) return NO_SLOT;
  memset(&engine->slots[engine->slots_used], 0, sizeof *engine->slots);
  return (uint16_t)engine->slots_used++;
}

static uint16_t take_free(struct ps_engine *engine) {
  uint16_t index = engine->free_head;
  engine->free_head = ps_slot(engine, index)->next;
  if (engine->free_head == NO_SLOT) engine->free_tail = NO_SLOT;
  return index;
}

uint16_t ps_slot_allocate(struct ps_engine *engine) {
  bool has_good = engine->free_head != NO_SLOT && ps_slot(engine, engine->free_head)->ghost == 0;
  uint16_t index = has_good ? NO_SLOT : make_slot(engine);
  if (index == NO_SLOT && engine->free_head == NO_SLOT) return NO_SLOT;
  if (index == NO_SLOT) index = take_free(engine);
  struct slot *slot = ps_slot(engine, index);
  assert(slot->state == SLOT_FREE);
  assert(!slot->queued);
  slot->state = SLOT_OPEN;
  slot->length = 0;
  slot->covered = 0;
  slot->digest_error = 0;
  slot->part = PART_END;
  slot->exposed = false;
  return index;
}

void ps_slot_free(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  assert(slot->state != SLOT_FREE);
  assert(!slot->queued);
  slot->state = SLOT_FREE;
  if (engine->free_head == NO_SLOT) {
    slot->next = NO_SLOT;
    engine->free_head = engine->free_tail = (uint16_t)index;
  } else if (slot->ghost > 0) {
    slot->next = NO_SLOT;
    ps_slot(engine, engine->free_tail)->next = (uint16_t)index;
    engine->free_tail = (uint16_t)index;
  } else {
    slot->next = engine->free_head;
    engine->free_head = (uint16_t)index;
  }
}

void ps_slot_set_ttag(struct ps_engine *engine, uint32_t index) {
  struct slot *slot = ps_slot(engine, index);
  uint32_t generation = ((uint32_t)slot->ttag >> engine->tag_bits) + 1;
  slot->ttag = (uint16_t)(generation << engine->tag_bits | index);
  assert((slot->ttag & ((1u << engine->tag_bits) - 1)) == index);
}

int32_t ps_engine_find(const struct ps_engine *engine, uint16_t cid) {
  assert(ps_is_target(engine));
  int32_t found = -1;
  uint32_t age = 0;
  for (uint32_t i = 0; i < engine->slots_used; i++) {
    const struct slot *slot = &engine->slots[i];
    if (slot->state == SLOT_FREE || slot->state == SLOT_RESPONDING || slot->cid != cid) continue;
    uint32_t its_age = engine->sequence - slot->sequence; /* right across a wrap */
    if (found >= 0 && its_age <= age) continue;
    found = (int32_t)i;
    age = its_age;
  }
  return found;
}

bool ps_engine_is_receiving(const struct ps_engine *engine, uint32_t slot) {
  assert(slot < engine->config.slot_count);
  if (slot >= engine->slots_used) return false;
  uint8_t state = ps_slot(engine, slot)->state;
  return state == SLOT_CAPSULE || state == SLOT_TRANSFER;
}
