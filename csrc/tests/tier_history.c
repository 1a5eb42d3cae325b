/* What each block was made to hold, in order, and which of that it may hold now. */
#include <string.h>

#include "tier_model.h"

uint32_t history_latest(uint32_t volume, uint32_t block) {
  const struct history *history = &model.history[volume][block];
  return history->data[history->length - 1];
}

void history_restart(uint32_t volume, uint32_t block, uint32_t data) {
  struct history *history = &model.history[volume][block];
  history->length = 1;
  history->data[0] = data;
  history->sequence[0] = model.sequence;
}

void history_push(uint32_t volume, uint32_t block, uint32_t data) {
  struct history *history = &model.history[volume][block];
  if (history->length == HISTORY) model_fail("the model's history is full", volume, block);
  history->data[history->length] = data;
  history->sequence[history->length++] = model.sequence;
}

bool history_is_long(uint32_t volume, uint64_t offset, uint64_t length) {
  uint32_t size = model.media[volume].block_size;
  for (uint64_t at = offset / size; at < (offset + length) / size; at++) {
    if (model.history[volume][at].length > HISTORY - COMMANDS - 1) return true;
  }
  return false;
}

bool history_allows(uint32_t volume, uint32_t block, uint32_t data, uint64_t sequence) {
  const struct history *history = &model.history[volume][block];
  for (uint32_t i = history->length; i > 0; i--) {
    if (history->data[i - 1] == data) return true;
    if (history->sequence[i - 1] <= sequence) return false;
  }
  return false;
}

/* A flush that began at `sequence` has completed: older values must not come back. */
void history_raise_floor(uint32_t volume, uint32_t block, uint64_t sequence) {
  struct history *history = &model.history[volume][block];
  uint32_t first = 0;
  while (first + 1 < history->length && history->sequence[first + 1] <= sequence) first++;
  history->length -= first;
  memmove(history->data, history->data + first, history->length * sizeof(history->data[0]));
  memmove(history->sequence, history->sequence + first,
          history->length * sizeof(history->sequence[0]));
}
