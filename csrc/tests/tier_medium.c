/* The model medium of tier_model.c; see tier_medium.h. */
#include "tier_medium.h"

#include <assert.h>
#include <string.h>

uint32_t random_below(struct random *random, uint32_t bound) {
  assert(bound > 0);
  random->state += 0x9E3779B97F4A7C15u; /* splitmix64 */
  uint64_t z = random->state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ (z >> 31)) % bound);
}

bool random_chance(struct random *random, uint32_t percent) {
  return random_below(random, 100) < percent;
}

enum { BAD_DATA = 0x7FFFFFFF };

static uint64_t word(uint32_t data, uint32_t index) {
  if (data == 0) return 0;
  return ((uint64_t)data << 32 | data) ^ (uint64_t)index * 0x9E3779B97F4A7C15u;
}

void block_write(uint8_t *bytes, uint32_t size, uint32_t data) {
  for (uint32_t i = 0; i < size / 8; i++) {
    uint64_t value = word(data, i);
    memcpy(bytes + (size_t)i * 8, &value, 8);
  }
}

uint32_t block_read(const uint8_t *bytes, uint32_t size) {
  uint32_t data;
  memcpy(&data, bytes, sizeof(data));
  for (uint32_t i = 0; i < size / 8; i++) {
    uint64_t value;
    memcpy(&value, bytes + (size_t)i * 8, 8);
    if (value != word(data, i)) return UINT32_MAX;
  }
  return data;
}

void medium_init(struct medium *medium, uint64_t size, uint32_t block_size) {
  assert(size / block_size <= MEDIUM_BLOCKS);
  memset(medium, 0, sizeof(*medium));
  medium->size = size;
  medium->block_size = block_size;
}

static uint32_t first_block(const struct medium *medium, const struct flying *flying) {
  return (uint32_t)(flying->action.offset / medium->block_size);
}

static uint32_t block_count(const struct medium *medium, const struct flying *flying) {
  return flying->action.length / medium->block_size;
}

static void log_block(struct medium *medium, uint32_t block, uint32_t data, bool is_clear) {
  if (medium->log_length >= MEDIUM_LOG) model_fail("the model's log is full", block, data);
  medium->log[medium->log_length++] =
      (struct medium_entry){.block = block, .data = data, .is_clear = is_clear};
}

/* The operation takes effect: a read takes what is there, a write puts what it has. */
static void happen(struct medium *medium, struct random *random, struct flying *flying,
                   bool in_part) {
  uint32_t first = first_block(medium, flying);
  uint32_t count = flying->action.op == PS_TIER_SYNC ? 0 : block_count(medium, flying);
  flying->has_happened = true;
  bool is_clear = flying->action.op == MEDIUM_CLEAR;
  for (uint32_t i = 0; i < count; i++) {
    if (flying->action.op == PS_TIER_READ) {
      flying->data[i] = medium->current[first + i];
    } else if (!in_part || random_chance(random, 50)) {
      medium->current[first + i] = is_clear ? 0 : flying->data[i];
      log_block(medium, first + i, medium->current[first + i], is_clear);
    }
  }
}

void medium_issue(struct medium *medium, struct random *random, struct flying *flying,
                  const uint8_t *frame) {
  const struct ps_tier_action *action = &flying->action;
  uint64_t limit = medium->is_shrinking ? medium->cut_size : medium->size;
  flying->has_happened = false;
  if (action->op == PS_TIER_SYNC) {
    for (uint32_t i = 0; i < medium->log_length; i++) {
      medium->log[i].is_covered = medium->log[i].is_complete;
    }
    return;
  }
  if (action->length == 0 || action->length % medium->block_size != 0 ||
      action->offset % medium->block_size != 0 || action->offset + action->length > limit) {
    model_fail("an action is out of the volume or of its blocks", action->offset, action->length);
  }
  for (uint32_t i = 0; action->op == PS_TIER_WRITE && i < block_count(medium, flying); i++) {
    const uint8_t *bytes = frame + action->frame_offset + (size_t)i * medium->block_size;
    flying->data[i] = block_read(bytes, medium->block_size);
    if (flying->data[i] == UINT32_MAX) {
      model_fail("a media write brings a torn block", action->offset, i);
    }
  }
  if (random_chance(random, 50)) happen(medium, random, flying, false);
}

static void complete_entries(struct medium *medium, const struct flying *flying) {
  uint32_t first = first_block(medium, flying);
  uint32_t count = block_count(medium, flying);
  for (uint32_t i = medium->log_length; i > 0; i--) {
    struct medium_entry *entry = &medium->log[i - 1];
    if (entry->block >= first && entry->block < first + count) entry->is_complete = true;
  }
}

static void end_transfer(struct medium *medium, struct random *random, struct flying *flying,
                         uint8_t *frame, int32_t error) {
  const struct ps_tier_action *action = &flying->action;
  if (!flying->has_happened) happen(medium, random, flying, error != 0);
  if (action->op == MEDIUM_CLEAR) complete_entries(medium, flying);
  for (uint32_t i = 0; action->op != MEDIUM_CLEAR && i < block_count(medium, flying); i++) {
    uint8_t *bytes = frame + action->frame_offset + (size_t)i * medium->block_size;
    bool is_cut = medium->is_shrinking &&
                  action->offset + (uint64_t)(i + 1) * medium->block_size > medium->cut_size;
    if (action->op == PS_TIER_READ) {
      /* A failed read leaves whatever it likes in the buffer. */
      block_write(bytes, medium->block_size, error == 0 ? flying->data[i] : BAD_DATA);
    } else if (!is_cut && block_read(bytes, medium->block_size) != flying->data[i]) {
      model_fail("a frame changed during its media write", action->offset, i);
    }
  }
  if (action->op == PS_TIER_WRITE) complete_entries(medium, flying);
}

/* A failed sync makes some blocks durable, leaves some, and silently gives up the rest. */
static uint32_t fate_of(uint32_t salt, uint32_t block) {
  return ((block + 1) * 0x9E3779B9u ^ salt) * 0x85EBCA6Bu >> 16;
}

static void end_sync(struct medium *medium, struct random *random, int32_t error) {
  uint32_t kept = 0;
  uint32_t salt = random_below(random, UINT32_MAX);
#ifdef PS_BREAK_NO_SYNC
  return;
#endif
  for (uint32_t i = 0; i < medium->log_length; i++) {
    struct medium_entry entry = medium->log[i];
    uint32_t fate = error != 0 ? fate_of(salt, entry.block) % 3 : (entry.is_covered ? 0 : 1);
    if (fate == 2 && entry.is_clear) fate = 1;
    if (fate == 0) medium->durable[entry.block] = entry.data;
    entry.is_covered = false;
    if (fate == 1 || !entry.is_complete) medium->log[kept++] = entry;
  }
  medium->log_length = kept;
}

void medium_end(struct medium *medium, struct random *random, struct flying *flying, uint8_t *frame,
                int32_t error) {
  if (flying->action.op == PS_TIER_SYNC) {
    end_sync(medium, random, error);
  } else {
    end_transfer(medium, random, flying, frame, error);
  }
}

void medium_power_cut(struct medium *medium, struct random *random) {
  for (uint32_t i = 0; i < medium->log_length; i++) {
    const struct medium_entry *entry = &medium->log[i];
    if (random_chance(random, 40)) medium->durable[entry->block] = entry->data;
  }
  medium->log_length = 0;
  memcpy(medium->current, medium->durable, sizeof(medium->current));
}

static void apply_shrink(struct medium *medium) {
  uint32_t from = (uint32_t)(medium->cut_size / medium->block_size);
  uint32_t kept = 0;
  memset(&medium->current[from], 0, sizeof(medium->current[0]) * (MEDIUM_BLOCKS - from));
  memset(&medium->durable[from], 0, sizeof(medium->durable[0]) * (MEDIUM_BLOCKS - from));
  for (uint32_t i = 0; i < medium->log_length; i++) {
    if (medium->log[i].block < from) medium->log[kept++] = medium->log[i];
  }
  medium->log_length = kept;
  medium->size = medium->cut_size;
  medium->is_shrinking = false;
}

void medium_resize(struct medium *medium, uint64_t size) {
  assert(!medium->is_shrinking && size / medium->block_size <= MEDIUM_BLOCKS);
  medium->is_shrinking = size < medium->size;
  medium->cut_size = size;
  if (!medium->is_shrinking) medium->size = size;
}

void medium_settle(struct medium *medium, const struct flying *flying, uint32_t count,
                   uint32_t volume) {
  if (!medium->is_shrinking) return;
  for (uint32_t i = 0; i < count; i++) {
    const struct ps_tier_action *action = &flying[i].action;
    if (action->volume != volume) continue;
    if (action->offset + action->length > medium->cut_size) return;
  }
  apply_shrink(medium);
}
