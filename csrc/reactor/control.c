/* What the control thread asks of connections and volumes: each call is a message to a reactor. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static struct message *message_new(enum message_kind kind, uint32_t data_length) {
  struct message *message = calloc(1, sizeof *message + data_length);
  if (message == NULL) abort(); /* Control path; the machine has no memory at all. */
  message->kind = kind;
  return message;
}

static struct connection *find(struct ps_core *core, uint32_t id) {
  uint32_t index = (id & 0xffff) - 1;
  if (index >= core->config.max_connections) return NULL;
  struct connection *connection = core->connections[index];
  return connection != NULL && connection->id == id ? connection : NULL;
}

/* Send `message` to the reactor of a connection; it is freed when there is none. */
static int send_to(struct ps_core *core, uint32_t id, struct message *message) {
  struct connection *connection = find(core, id);
  if (connection == NULL) {
    free(message);
    return -ENOENT;
  }
  message->connection = id;
  mailbox_post(&connection->reactor->mailbox, message);
  return 0;
}

/* ---- connections ---- */

int64_t ps_core_adopt(struct ps_core *core, int fd, uint32_t reactor) {
  assert(core != NULL && core->is_started && fd >= 0);
  if (reactor >= core->config.reactor_count) return -EINVAL;
  uint32_t index = 0;
  while (index < core->config.max_connections && core->connections[index] != NULL) index++;
  if (index == core->config.max_connections) {
    core->connections_refused++;
    return -EMFILE;
  }
  uint32_t id = (uint32_t)++core->generations[index] << 16 | (index + 1);
  struct connection *connection = connection_new(core, fd, id, &core->reactors[reactor]);
  if (connection == NULL) return -ENOMEM;
  core->connections[index] = connection;
  core->connection_count++;
  struct message *message = message_new(MESSAGE_ADOPT, 0);
  message->opened = connection;
  mailbox_post(&core->reactors[reactor].mailbox, message);
  return id;
}

int ps_core_bind(struct ps_core *core, uint32_t connection, const struct ps_queue_config *queue) {
  assert(core != NULL && queue != NULL);
  if (queue->subsystem >= PS_MAX_SUBSYSTEMS || queue->sq_size < 2 ||
      queue->sq_size > core->config.queue_depth || queue->tenant >= core->config.tenant_count)
    return -EINVAL;
  struct message *message = message_new(MESSAGE_BIND, 0);
  message->queue = *queue;
  return send_to(core, connection, message);
}

int ps_core_enable(struct ps_core *core, uint32_t connection, bool enabled) {
  assert(core != NULL);
  struct message *message = message_new(MESSAGE_ENABLE, 0);
  message->flag = enabled;
  return send_to(core, connection, message);
}

int ps_core_answer(struct ps_core *core, uint32_t connection, uint32_t slot, uint16_t status,
                   uint32_t dw0, uint32_t dw1, const uint8_t *data, uint32_t length) {
  assert(core != NULL && (length == 0 || data != NULL));
  if (slot >= core->config.queue_depth) return -EINVAL;
  struct message *message = message_new(MESSAGE_ANSWER, length);
  message->slot = slot;
  message->status = status;
  message->dw0 = dw0;
  message->dw1 = dw1;
  message->length = length;
  if (length > 0) memcpy(message->data, data, length);
  return send_to(core, connection, message);
}

int ps_core_quiesce(struct ps_core *core, uint32_t connection, uint32_t cookie) {
  assert(core != NULL);
  struct message *message = message_new(MESSAGE_QUIESCE, 0);
  message->cookie = cookie;
  return send_to(core, connection, message);
}

int ps_core_abort(struct ps_core *core, uint32_t connection, uint16_t cid, uint32_t cookie) {
  assert(core != NULL);
  struct message *message = message_new(MESSAGE_ABORT, 0);
  message->cid = cid;
  message->cookie = cookie;
  return send_to(core, connection, message);
}

int ps_core_close(struct ps_core *core, uint32_t connection, bool after_output) {
  assert(core != NULL);
  struct message *message = message_new(MESSAGE_CLOSE, 0);
  message->flag = after_output;
  return send_to(core, connection, message);
}

int ps_core_connection_info(struct ps_core *core, uint32_t id, struct ps_connection_info *info) {
  assert(core != NULL && info != NULL);
  struct connection *connection = find(core, id);
  if (connection == NULL) return -ENOENT;
  *info = (struct ps_connection_info){
      .last_command_ns = atomic_load_explicit(&connection->last_command_ns, memory_order_relaxed),
      .bytes_in = atomic_load_explicit(&connection->bytes_in, memory_order_relaxed),
      .bytes_out = atomic_load_explicit(&connection->bytes_out, memory_order_relaxed),
      .commands = atomic_load_explicit(&connection->command_count, memory_order_relaxed),
      .in_flight = atomic_load_explicit(&connection->in_flight, memory_order_relaxed),
      .digests = atomic_load_explicit(&connection->digests, memory_order_relaxed),
      .reactor = connection->reactor->number};
  return 0;
}

/* ---- volumes ---- */

static struct volume *volume_at(struct ps_core *core, uint32_t number) {
  if (number >= PS_MAX_VOLUMES || !core->volumes[number].is_open) return NULL;
  return &core->volumes[number];
}

/* Post, and wait until the reactor has replied. */
static int call(struct reactor *reactor, struct message *message) {
  struct reply reply;
  sem_init(&reply.done, 0, 0);
  message->reply = &reply;
  mailbox_post(&reactor->mailbox, message);
  while (sem_wait(&reply.done) != 0) assert(errno == EINTR);
  sem_destroy(&reply.done);
  return reply.result;
}

static int call_volume(struct volume *volume, struct message *message) {
  message->volume = volume;
  return call(volume->reactor, message);
}

static struct volume *free_volume(struct ps_core *core) {
  for (uint32_t i = 0; i < PS_MAX_VOLUMES; i++)
    if (!core->volumes[i].is_open && !core->volumes[i].is_dead && core->volumes[i].messages == 0)
      return &core->volumes[i];
  return NULL;
}

static void volume_init(struct ps_core *core, struct volume *volume,
                        const struct ps_volume_config *config) {
  core_lock(core); /* whoever moves hints or orders may look whether it is started */
  memset(volume, 0, sizeof *volume);
  volume->core = core;
  volume->number = (uint32_t)(volume - core->volumes);
  volume->reactor = &core->reactors[config->reactor];
  volume->block_size = config->block_size;
  volume->block_shift = config->block_size == 512 ? 9 : 12;
  volume->write_through = config->write_through != 0;
  volume->read_only = config->read_only != 0;
  list_init(&volume->active);
  list_init(&volume->gated);
  core_unlock(core);
}

/* The medium's size and blocks must suit the namespace's. */
static const char *check_limits(const struct volume *volume) {
  if (volume->limits.block_size > volume->block_size)
    return "its block size is larger than the namespace's; give block=4096";
  if (volume->limits.size == 0) return "it has no size; give size=";
  if (volume->limits.size % volume->block_size != 0)
    return "its size is not a multiple of the block size";
  return NULL;
}

/* Undo what `attach` did before it failed. */
static void detach(struct ps_core *core, struct volume *volume) {
  core_lock(core);
  if (volume->sched != NULL) volume_tell(volume, monotonic_ns(), NULL);
  ps_tier_volume_remove(core->tier, volume->number);
  core_unlock(core);
  if (volume->sched != NULL) ps_sched_free(volume->sched);
  ps_media_close(volume->media, false);
}

static int attach(struct ps_core *core, struct volume *volume) {
  const struct ps_sched_config sched = {.window = volume->limits.queue_depth,
                                        .merge_bytes = core->config.merge_bytes,
                                        .starvation_ns = core->config.starvation_ns,
                                        .bandwidth = volume->limits.bandwidth,
                                        .latency_ns = volume->limits.read_ns};
  volume->size = volume->limits.size;
  volume->sched = ps_sched_new(&sched);
  if (volume->sched == NULL) return -ENOMEM;
  core_lock(core);
  int result = ps_tier_volume_add(core->tier, volume->number, volume->size, volume->block_size);
  if (result == 0) volume_tell(volume, monotonic_ns(), volume->sched);
  core_unlock(core);
  if (result == 0) result = call_volume(volume, message_new(MESSAGE_VOLUME_START, 0));
  return result;
}

int ps_core_volume_open(struct ps_core *core, const struct ps_volume_config *config, char *error,
                        size_t error_size) {
  assert(core != NULL && core->is_started && config != NULL);
  struct volume *volume = free_volume(core);
  const char *reason = NULL;
  if (config->block_size != 512 && config->block_size != 4096)
    reason = "block_size: expected 512 or 4096";
  else if (config->reactor >= core->config.reactor_count)
    reason = "reactor: there are fewer";
  else if (volume == NULL)
    reason = "too many volumes are open";
  if (reason != NULL) {
    snprintf(error, error_size, "%s", reason);
    return -EINVAL;
  }
  volume_init(core, volume, config);
  volume->media = ps_media_open(config->spec, error, error_size);
  if (volume->media == NULL) return -EINVAL;
  ps_media_get_limits(volume->media, &volume->limits);
  reason = check_limits(volume);
  int result = reason == NULL ? attach(core, volume) : -EINVAL;
  if (result == 0) {
    volume->is_open = true;
    return (int)volume->number;
  }
  snprintf(error, error_size, "%s: %s", config->spec, reason != NULL ? reason : strerror(-result));
  detach(core, volume);
  return result;
}

int ps_core_volume_limits(struct ps_core *core, uint32_t number, struct ps_media_limits *limits) {
  struct volume *volume = volume_at(core, number);
  if (volume == NULL) return -ENOENT;
  *limits = volume->limits;
  return 0;
}

int ps_core_volume_resize(struct ps_core *core, uint32_t number, uint64_t size) {
  struct volume *volume = volume_at(core, number);
  if (volume == NULL) return -ENOENT;
  if (size % volume->block_size != 0) return -EINVAL;
  struct message *message = message_new(MESSAGE_VOLUME_RESIZE, 0);
  message->size = size;
  return call_volume(volume, message);
}

static int volume_task(struct ps_core *core, uint32_t number, enum message_kind kind, bool abandon,
                       uint32_t cookie) {
  struct volume *volume = volume_at(core, number);
  if (volume == NULL) return -ENOENT;
  struct message *message = message_new(kind, 0);
  message->volume = volume;
  message->flag = abandon;
  message->cookie = cookie;
  volume->messages++;
  mailbox_post(&volume->reactor->mailbox, message);
  return 0;
}

int ps_core_volume_flush(struct ps_core *core, uint32_t volume, uint32_t cookie) {
  return volume_task(core, volume, MESSAGE_VOLUME_FLUSH, false, cookie);
}

int ps_core_volume_close(struct ps_core *core, uint32_t volume, bool abandon, uint32_t cookie) {
  return volume_task(core, volume, MESSAGE_VOLUME_CLOSE, abandon, cookie);
}

int ps_core_volume_control(struct ps_core *core, uint32_t number, const char *kind,
                           const char *verb, char *error, size_t error_size) {
  assert(kind != NULL && verb != NULL && (error != NULL || error_size == 0));
  struct volume *volume = volume_at(core, number);
  if (error_size > 0) error[0] = '\0';
  if (volume == NULL) {
    snprintf(error, error_size, "there is no volume %u", number);
    return -ENOENT;
  }
  struct message *message = message_new(MESSAGE_VOLUME_CONTROL, 0);
  message->text[0] = kind;
  message->text[1] = verb;
  message->error = error;
  message->error_size = error_size;
  int result = call_volume(volume, message);
  if (result == -ENOENT && error_size > 0 && error[0] == '\0')
    snprintf(error, error_size, "volume %u is closed", number);
  return result;
}

int ps_core_volume_get_stats(struct ps_core *core, uint32_t number, struct ps_volume_stats *stats) {
  struct volume *volume = volume_at(core, number);
  if (volume == NULL) return -ENOENT;
  core_lock(core);
  *stats = volume->stats;
  stats->size = volume->size;
  stats->unflushed_bytes = ps_tier_unflushed(core->tier, number);
  core_unlock(core);
  return 0;
}

int ps_core_volume_latency(struct ps_core *core, uint32_t number, bool writes, uint64_t *bins) {
  assert(core != NULL && bins != NULL);
  struct volume *volume = volume_at(core, number);
  if (volume == NULL) return -ENOENT;
  core_lock(core);
  memcpy(bins, writes ? volume->write_latency : volume->read_latency, sizeof volume->read_latency);
  core_unlock(core);
  return 0;
}

/* ---- statistics ---- */

int ps_core_reactor_stats(struct ps_core *core, uint32_t number, struct ps_core_stats *stats) {
  assert(core != NULL && core->is_started && stats != NULL);
  if (number >= core->config.reactor_count) return -EINVAL;
  struct message *message = message_new(MESSAGE_STATS, 0);
  message->stats = stats;
  return call(&core->reactors[number], message);
}

/* All fields but the last two of ps_core_stats are 64-bit counters, so they add up as an array. */
void ps_core_get_stats(struct ps_core *core, struct ps_core_stats *stats) {
  assert(core != NULL && stats != NULL);
  memset(stats, 0, sizeof *stats);
  const size_t counters = offsetof(struct ps_core_stats, connections) / sizeof(uint64_t);
  struct ps_core_stats part;
  for (uint32_t i = 0; i < core->config.reactor_count; i++) {
    ps_core_reactor_stats(core, i, &part);
    for (size_t field = 0; field < counters; field++)
      ((uint64_t *)stats)[field] += ((const uint64_t *)&part)[field];
  }
  stats->connections = core->connection_count;
  core_lock(core);
  stats->transfers_in_use = core->transfers;
  core_unlock(core);
  stats->connections_refused = core->connections_refused;
  stats->notices_lost = notice_lost(core);
}

void ps_core_tier_stats(struct ps_core *core, struct ps_tier_stats *stats) {
  assert(core != NULL && stats != NULL);
  core_lock(core);
  ps_tier_get_stats(core->tier, stats);
  core_unlock(core);
}
