/* Making a queue; its commands in flight. */
#include "internal.h"

enum { ALIGNMENT = 64, NO_PLACE = 0xffff };

static size_t rounded(size_t size) { return (size + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

static struct ps_engine_config engine_config(const struct ps_host_config *config) {
  return (struct ps_engine_config){
      .role = PS_ROLE_HOST, .slot_count = config->slot_count, .digests = config->digests};
}

size_t ps_host_size(const struct ps_host_config *config) {
  assert(config != NULL);
  struct ps_engine_config inner = engine_config(config);
  size_t engine_size = ps_engine_size(&inner);
  if (engine_size == 0 || config->timeout_us == 0) return 0;
  size_t count = config->slot_count;
  return rounded(sizeof(struct ps_host)) + rounded(count * sizeof(struct command)) +
         rounded(count * sizeof(struct ps_host_completion)) + rounded(count * sizeof(uint16_t)) +
         engine_size + PS_SCRATCH_SIZE;
}

/* The next part of the memory. */
static void *part(uint8_t **at, size_t size) {
  void *found = *at;
  *at += rounded(size);
  return found;
}

struct ps_host *ps_host_init(void *memory, const struct ps_host_config *config, int32_t socket) {
  assert(memory != NULL);
  assert((uintptr_t)memory % ALIGNMENT == 0);
  assert(socket >= 0);
  size_t size = ps_host_size(config);
  if (size == 0) return NULL;
  struct ps_engine_config inner = engine_config(config);
  memset(memory, 0, size - PS_SCRATCH_SIZE - ps_engine_size(&inner));
  size_t count = config->slot_count;
  uint8_t *at = memory;
  struct ps_host *host = part(&at, sizeof *host);
  host->config = *config;
  host->socket = socket;
  host->low_water = 1;
  host->commands = part(&at, count * sizeof *host->commands);
  host->completions = part(&at, count * sizeof *host->completions);
  host->places = part(&at, count * sizeof *host->places);
  host->engine = ps_engine_init(part(&at, ps_engine_size(&inner)), &inner);
  host->scratch = at;
  host->state.completions = host->completions;
  for (size_t i = 0; i < count; i++) {
    host->commands[i].next = (uint16_t)(i + 1 < count ? i + 1 : NO_PLACE);
  }
  assert(host->engine != NULL);
  assert((uint8_t *)memory + size == host->scratch + PS_SCRATCH_SIZE);
  return host;
}

struct ps_host_state *ps_host_state(struct ps_host *host) {
  assert(host != NULL);
  return &host->state;
}

void ps_host_attach(struct ps_host *host, struct ps_host_work *work, uint32_t in_capsule_size) {
  assert(work != NULL);
  assert(host->work == NULL);
  host->work = work;
  host->in_capsule_size = in_capsule_size;
}

struct command *ps_command_start(struct ps_host *host, const uint8_t *sqe, uint32_t transfer,
                                 void *address, uint32_t length, uint64_t deadline_us) {
  assert(address != NULL || length == 0);
  if (host->first_free == NO_PLACE || host->state.end != 0) return NULL;
  struct command *command = &host->commands[host->first_free];
  assert(command->kind == COMMAND_FREE);
  command->iov = (struct iovec){address, length};
  int32_t slot = ps_engine_submit(host->engine, sqe, transfer, &command->iov, 1, length);
  if (slot < 0) return NULL;
  host->places[slot] = host->first_free;
  host->first_free = command->next;
  host->state.in_flight++;
  command->slot = (uint16_t)slot;
  command->deadline_us = deadline_us;
  command->is_overdue = false;
  command->is_kept = false;
  return command;
}

void ps_command_end(struct ps_host *host, struct command *command) {
  assert(command->kind != COMMAND_FREE);
  assert(host->state.in_flight > 0);
  if (command->kind == COMMAND_BATCH) host->batch_commands--;
  command->batch = NULL;
  command->deadline_us = 0;
  if (command->is_kept) {
    command->kind = COMMAND_KEPT;
    return;
  }
  host->state.in_flight--;
  command->kind = COMMAND_FREE;
  command->next = host->first_free;
  host->first_free = (uint16_t)(command - host->commands);
}

int32_t ps_host_submit(struct ps_host *host, const uint8_t *sqe, uint32_t transfer, void *address,
                       uint32_t length, uint64_t deadline_us) {
  struct command *command = ps_command_start(host, sqe, transfer, address, length, deadline_us);
  if (command == NULL) return -1;
  command->kind = COMMAND_SINGLE;
  host->was_batch = false;
  return command->slot;
}

void ps_host_redirect(struct ps_host *host, uint32_t slot, void *address) {
  assert(slot < host->config.slot_count);
  assert(address != NULL);
  struct command *command = &host->commands[host->places[slot]];
  assert(command->kind == COMMAND_SINGLE && command->slot == slot);
  command->iov.iov_base = address;
}

void ps_host_keep(struct ps_host *host, uint32_t slot) {
  assert(slot < host->config.slot_count);
  struct command *command = &host->commands[host->places[slot]];
  assert(command->slot == slot);
  assert(command->kind == COMMAND_SINGLE || command->kind == COMMAND_BATCH);
  command->is_kept = true;
  ps_engine_keep(host->engine, slot);
}

bool ps_host_let_go(struct ps_host *host, uint32_t slot) {
  assert(slot < host->config.slot_count);
  struct command *command = &host->commands[host->places[slot]];
  assert(command->slot == slot && command->is_kept);
  command->is_kept = false;
  ps_engine_let_go(host->engine, slot);
  if (command->kind != COMMAND_KEPT) return false;
  ps_command_end(host, command);
  return true;
}
