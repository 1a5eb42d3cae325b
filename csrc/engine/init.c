/* Making an engine from its configuration; what it says of itself. */
#include "internal.h"

enum { ALIGNMENT = 64 };

static size_t rounded(size_t size) { return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

/* Room for SENT or COMPLETION of each slot, an event of the receiver, TERMINATED. */
static uint32_t event_room(uint32_t slot_count) {
  uint32_t room = 4;
  while (room < slot_count + 4) room *= 2;
  return room;
}

static bool is_valid(const struct ps_engine_config *config) {
  if (config->slot_count < 1 || config->slot_count > PS_SLOT_COUNT_MAX) return false;
  if (config->digests & ~(uint32_t)(PS_DIGEST_HEADER | PS_DIGEST_DATA)) return false;
  if (config->role == PS_ROLE_HOST) {
    return config->max_r2t <= PS_R2T_MAX && config->data_alignment <= PS_ALIGNMENT_MAX;
  }
  return config->role == PS_ROLE_TARGET && config->max_h2c_data % 4 == 0 &&
         config->max_h2c_data >= PS_H2C_DATA_MIN && config->max_h2c_data <= PS_H2C_DATA_MAX;
}

size_t ps_engine_size(const struct ps_engine_config *config) {
  assert(config != NULL);
  if (!is_valid(config)) return 0;
  return rounded(sizeof(struct ps_engine)) + rounded(config->slot_count * sizeof(struct slot)) +
         rounded(event_room(config->slot_count) * sizeof(uint32_t));
}

/* Slots are made when they are used for the first time: what is not touched costs no memory. */
static void init_slots(struct ps_engine *engine) {
  engine->free_head = engine->free_tail = NO_SLOT;
  engine->output_head = engine->output_tail = NO_SLOT;
  while (1u << engine->tag_bits < engine->config.slot_count) engine->tag_bits++;
}

struct ps_engine *ps_engine_init(void *memory, const struct ps_engine_config *config) {
  assert(memory != NULL);
  assert((uintptr_t)memory % _Alignof(struct ps_engine) == 0);
  size_t size = ps_engine_size(config);
  if (size == 0) return NULL;
  struct ps_engine *engine = memory;
  memset(engine, 0, sizeof *engine);
  uint8_t *behind = (uint8_t *)memory + rounded(sizeof *engine);
  engine->config = *config;
  engine->slots = (struct slot *)(void *)behind;
  behind += rounded(config->slot_count * sizeof(struct slot));
  engine->events = (uint32_t *)(void *)behind;
  engine->event_mask = event_room(config->slot_count) - 1;
  engine->sq_size = 1 << 16; /* no wrap before ps_engine_bind */
  engine->in_capsule_size = config->in_capsule_size;
  engine->max_h2c_data = config->max_h2c_data;
  engine->alignment = 4;
  engine->receiver.slot = NO_SLOT;
  init_slots(engine);
  if (config->role == PS_ROLE_HOST) ps_icreq_write(engine);
  return engine;
}

void ps_engine_bind(struct ps_engine *engine, uint32_t sq_size, bool flow_control_disabled,
                    uint32_t in_capsule_size, bool success_allowed) {
  assert(ps_is_target(engine));
  assert(sq_size >= 1 && sq_size <= 1 << 16);
  engine->sq_size = sq_size;
  engine->sq_head %= sq_size;
  engine->flow_control_disabled = flow_control_disabled;
  engine->in_capsule_size = in_capsule_size;
  engine->success_allowed = success_allowed;
}

bool ps_engine_is_terminated(const struct ps_engine *engine) {
  return engine->state == ENGINE_TERMINATED;
}

uint32_t ps_engine_digests(const struct ps_engine *engine) { return engine->digests; }
