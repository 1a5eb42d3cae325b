/* Making and unmaking the core: tier memory, reactors, pools. */
#include "core.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "internal.h"

enum { ORDERS_MOST = 1 << 20 };

static bool refuse(char *error, size_t error_size, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error, error_size, format, arguments);
  va_end(arguments);
  return false;
}

static bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

static bool check_config(const struct ps_core_config *config, char *error, size_t size) {
  if (config->reactor_count < 1 || config->reactor_count > PS_MAX_REACTORS)
    return refuse(error, size, "reactor_count is %u, expected 1 to %d", config->reactor_count,
                  PS_MAX_REACTORS);
  if (config->max_connections < 1 || config->max_connections > 65535)
    return refuse(error, size, "max_connections is %u, expected 1 to 65535",
                  config->max_connections);
  if (config->queue_depth < 16 || config->queue_depth > 4096)
    return refuse(error, size, "queue_depth is %u, expected 16 to 4096", config->queue_depth);
  if (!is_power_of_two(config->slot_size) || config->slot_size < 16384 ||
      config->slot_size > 2097152)
    return refuse(error, size, "slot_size is %u, expected a power of two, 16384 to 2097152",
                  config->slot_size);
  if (!is_power_of_two(config->max_transfer) || config->max_transfer < 4096 ||
      config->max_transfer > 32u << 20)
    return refuse(error, size, "max_transfer is %u, expected a power of two, 4096 to 33554432",
                  config->max_transfer);
  if (config->dirty_percent < 1 || config->dirty_percent > 80)
    return refuse(error, size, "dirty_percent is %u, expected 1 to 80", config->dirty_percent);
  if (config->tenant_count < 1 || config->tenant_count > 65536)
    return refuse(error, size, "tenant_count is %u, expected 1 to 65536", config->tenant_count);
  if (config->ring_capacity != 0 && !is_power_of_two(config->ring_capacity))
    return refuse(error, size, "ring_capacity is %llu, expected a power of two, or 0",
                  (unsigned long long)config->ring_capacity);
  if (config->orders_capacity != 0 &&
      (!is_power_of_two(config->orders_capacity) || config->orders_capacity > ORDERS_MOST))
    return refuse(error, size, "orders_capacity is %llu, expected a power of two up to %d, or 0",
                  (unsigned long long)config->orders_capacity, ORDERS_MOST);
  if (config->max_h2c_data < 4096 || config->max_h2c_data % 4 != 0)
    return refuse(error, size, "max_h2c_data is %u, expected a multiple of 4, 4096 or more",
                  config->max_h2c_data);
  if (config->in_capsule_size > config->max_transfer || config->in_capsule_size % 16 != 0)
    return refuse(error, size, "in_capsule_size is %u, expected a multiple of 16 up to %u",
                  config->in_capsule_size, config->max_transfer);
  return true;
}

/* ---- the tier's memory ---- */

enum { HUGE_PAGE = 2 << 20 };

static uint8_t *map_frames(size_t size, bool huge) {
  const int protection = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
  void *memory = MAP_FAILED;
  /* It fails when too few pages are set aside for all of it, for they are reserved here. */
  if (huge) memory = mmap(NULL, size, protection, flags | MAP_HUGETLB, -1, 0);
  if (memory != MAP_FAILED && madvise(memory, HUGE_PAGE, MADV_POPULATE_WRITE) != 0) {
    /* A limit of the control group stands before them: the mapping would end in SIGBUS. */
    munmap(memory, size);
    memory = MAP_FAILED;
  }
  if (memory == MAP_FAILED) {
    memory = mmap(NULL, size, protection, flags, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (huge) madvise(memory, size, MADV_HUGEPAGE);
  }
  return memory;
}

/* Frames that may be held for data that hosts are asked for, out of `frames`. Such data may stand
 * behind a capsule with data of its own, at most a Compare's, which is to find the rest free. */
static uint32_t receive_limit(const struct ps_core *core, uint32_t frames) {
  uint32_t slot_size = core->config.slot_size;
  uint32_t in_capsule = (core->config.in_capsule_size + slot_size - 1) / slot_size + 1;
  uint32_t budget = ps_tier_budget(core->tier);
  uint32_t limit = frames / 4 > 2 * core->segments ? frames / 4 : 2 * core->segments;
  if (limit + 2 * in_capsule <= budget) return limit;
  return budget > 2 * in_capsule ? budget - 2 * in_capsule : 1;
}

static bool make_tier(struct ps_core *core, char *error, size_t size) {
  const struct ps_core_config *config = &core->config;
  core->frame_count = (uint32_t)(config->dram_bytes / config->slot_size);
  core->slot_shift = (uint32_t)__builtin_ctz(config->slot_size);
  core->segments = config->max_transfer / config->slot_size + 1;
  if (core->segments < 4) core->segments = 4;
  core->frames_size = (size_t)core->frame_count * config->slot_size;
  core->frames = map_frames(core->frames_size, config->huge_pages != 0);
  if (core->frames == NULL)
    return refuse(error, size, "no memory for a tier of %llu bytes: %s",
                  (unsigned long long)config->dram_bytes, strerror(errno));
  struct ps_tier_config tier = {
      .frame_count = core->frame_count,
      .slot_size = config->slot_size,
      .extent_count = core->frame_count + core->frame_count / 2 + 64,
      .dirty_limit = (uint32_t)((uint64_t)core->frame_count * config->dirty_percent / 100),
      .volume_count = PS_MAX_VOLUMES,
      .tenant_count = config->tenant_count,
      .unsynced_age_ns = 4 * config->writeback_age_ns,
      .writeback_age_ns = config->writeback_age_ns,
      .retry_ns = 10 * 1000 * 1000,
      .frames = core->frames,
      .ring = core->ring};
  /* A Compare holds two frames an extent: a command must never need more than there are. */
  if (core->frame_count < tier.dirty_limit + 2 * core->segments + 2)
    return refuse(error, size, "dirty_percent %u of %u slots leaves too few, expected %u or more",
                  config->dirty_percent, core->frame_count, 2 * core->segments + 2);
  core->tier = ps_tier_new(&tier);
  if (core->tier == NULL)
    return refuse(error, size, "a tier of %u slots with dirty_percent %u cannot work",
                  core->frame_count, config->dirty_percent);
  core->receive_limit = receive_limit(core, core->frame_count - tier.dirty_limit);
  share_init(core);
  return true;
}

/* ---- hints, and the model ---- */

static bool make_ring(struct ps_core *core, char *error, size_t size) {
  uint64_t capacity = core->config.ring_capacity;
  if (capacity > 0) core->ring = ps_ring_new(capacity);
  return capacity == 0 || core->ring != NULL ||
         refuse(error, size, "no memory for a ring of %llu facts", (unsigned long long)capacity);
}

static bool make_hints(struct ps_core *core, char *error, size_t size) {
  const struct ps_core_config *config = &core->config;
  struct ps_hints_config hints = config->hints;
  hints.tenant_count = config->tenant_count;
  hints.volume_count = PS_MAX_VOLUMES;
  hints.subsystem_count = PS_MAX_SUBSYSTEMS;
  hints.slot_size = config->slot_size;
  core->hints = ps_hints_new(&hints, core->tier, core->ring, namespace_resolve, core);
  return core->hints != NULL || refuse(error, size, "hints: no memory, or a limit is out of range");
}

/* ---- pools ---- */

static size_t align(size_t size) { return (size + 63) & ~(size_t)63; }

static bool make_pools(struct ps_core *core) {
  const struct ps_core_config *config = &core->config;
  core->command_size = align(sizeof(struct command)) +
                       align(core->segments * (2 * sizeof(uint32_t) + sizeof(struct iovec)));
  core->ops = calloc(MEDIA_OPS, sizeof *core->ops);
  core->volumes = calloc(PS_MAX_VOLUMES, sizeof *core->volumes);
  core->maps = calloc(PS_MAX_SUBSYSTEMS, sizeof *core->maps);
  core->connections = calloc(config->max_connections, sizeof(struct connection *));
  core->generations = calloc(config->max_connections, sizeof *core->generations);
  core->reactors = calloc(config->reactor_count, sizeof *core->reactors);
  atomic_store(&core->admin_buffers, (int32_t)config->max_connections + 1024);
  if (core->ops == NULL || core->volumes == NULL || core->maps == NULL ||
      core->connections == NULL || core->generations == NULL || core->reactors == NULL)
    return false;
  for (uint32_t i = 0; i < MEDIA_OPS; i++) {
    core->ops[i].next = core->free_ops;
    core->free_ops = &core->ops[i];
  }
  core->free_op_count = MEDIA_OPS;
  return true;
}

/* The arrays of a command stand behind it. */
void command_prepare(struct connection *connection, uint32_t slot) {
  const struct ps_core *core = connection->reactor->core;
  struct command *command = command_at(connection, slot);
  uint8_t *behind = (uint8_t *)command + align(sizeof *command);
  command->connection = connection;
  command->slot = slot;
  command->iov = (struct iovec *)behind;
  command->fresh = (uint32_t *)(behind + core->segments * sizeof(struct iovec));
  command->pins = command->fresh + core->segments;
}

static int make_reactor(struct ps_core *core, uint32_t number) {
  struct reactor *reactor = &core->reactors[number];
  reactor->core = core;
  reactor->number = number;
  list_init(&reactor->connections);
  list_init(&reactor->finished);
  list_init(&reactor->ready);
  list_init(&reactor->output);
  list_init(&reactor->starved);
  list_init(&reactor->tasks);
  list_init(&reactor->patient);
  list_init(&reactor->finished);
  list_init(&reactor->serving);
  reactor->by_index = calloc(core->config.max_connections, sizeof(struct connection *));
  reactor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (reactor->epoll_fd < 0) return -errno;
  reactor->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (reactor->timer_fd < 0) return -errno;
  if (reactor->by_index == NULL) return -ENOMEM;
  return mailbox_init(&reactor->mailbox);
}

/* It is held for moments: whoever finds it taken looks again a few times before sleeping. */
static void init_lock(struct ps_core *core) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
  pthread_mutex_init(&core->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

static bool make_reactors(struct ps_core *core, char *error, size_t size) {
  core->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int result = core->wake_fd < 0 ? -errno : 0;
  for (uint32_t i = 0; result == 0 && i < core->config.reactor_count; i++)
    result = make_reactor(core, i);
  return result == 0 || refuse(error, size, "cannot make reactors: %s", strerror(-result));
}

struct ps_core *ps_core_new(const struct ps_core_config *config, char *error, size_t error_size) {
  assert(config != NULL && error != NULL);
  if (!check_config(config, error, error_size)) return NULL;
  struct ps_core *core = calloc(1, sizeof *core);
  if (core == NULL) {
    refuse(error, error_size, "no memory");
    return NULL;
  }
  core->config = *config;
  core->wake_fd = core->orders_wake_fd = core->ring_wake_fd = -1;
  init_lock(core);
  list_init(&core->receive_waiters);
  bool is_good = notice_init(core) || refuse(error, error_size, "no memory");
  is_good = is_good && make_ring(core, error, error_size) && make_tier(core, error, error_size) &&
            make_hints(core, error, error_size);
  if (is_good && !orders_init(core))
    is_good = refuse(error, error_size, "orders: no memory, or no descriptors");
  if (is_good && !make_pools(core)) is_good = refuse(error, error_size, "no memory");
  if (is_good && make_reactors(core, error, error_size)) return core;
  ps_core_free(core);
  return NULL;
}

/* ---- threads ---- */

/* Returns 0, or a positive errno when it may not run there. */
static int pin(struct reactor *reactor) {
  int32_t cpu = reactor->core->config.cpus[reactor->number];
  if (cpu < 0) return 0;
  if (cpu >= CPU_SETSIZE) return EINVAL;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(reactor->thread, sizeof set, &set);
}

int ps_core_reactor_cpu(struct ps_core *core, uint32_t number) {
  assert(core != NULL && core->is_started);
  if (number >= core->config.reactor_count) return -EINVAL;
  int32_t cpu = core->config.cpus[number];
  cpu_set_t set;
  CPU_ZERO(&set);
  bool is_known = pthread_getaffinity_np(core->reactors[number].thread, sizeof set, &set) == 0;
  bool is_there = is_known && cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, &set);
  return is_there && CPU_COUNT(&set) == 1 ? cpu : -1;
}

/* Reactors take no signals: they are the control thread's. */
int ps_core_start(struct ps_core *core) {
  assert(core != NULL && !core->is_started);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  for (uint32_t i = 0; error == 0 && i < core->config.reactor_count; i++) {
    struct reactor *reactor = &core->reactors[i];
    error = pthread_create(&reactor->thread, NULL, reactor_main, reactor);
    reactor->has_thread = error == 0;
    if (reactor->has_thread) error = pin(reactor);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  core->is_started = true;
  if (error != 0) ps_core_stop(core);
  return -error;
}

void ps_core_stop(struct ps_core *core) {
  assert(core != NULL);
  if (!core->is_started) return;
  uint32_t threads = 0;
  for (uint32_t i = 0; i < core->config.reactor_count; i++) threads += core->reactors[i].has_thread;
  if (threads > 0) pthread_barrier_init(&core->connections_are_gone, NULL, threads);
  for (uint32_t i = 0; i < core->config.reactor_count; i++) {
    struct message *message = calloc(1, sizeof *message);
    if (message == NULL) abort();
    message->kind = MESSAGE_STOP;
    mailbox_post(&core->reactors[i].mailbox, message);
  }
  for (uint32_t i = 0; i < core->config.reactor_count; i++)
    if (core->reactors[i].has_thread) pthread_join(core->reactors[i].thread, NULL);
  if (threads > 0) pthread_barrier_destroy(&core->connections_are_gone);
  core->is_started = false;
}

static void free_reactor(struct reactor *reactor) {
  if (reactor->core == NULL) return;
  if (reactor->mailbox.event_fd > 0) mailbox_end(&reactor->mailbox);
  if (reactor->epoll_fd > 0) close(reactor->epoll_fd);
  if (reactor->timer_fd > 0) close(reactor->timer_fd);
  free(reactor->by_index);
}

/* Connections that nobody was told about any more. */
static void free_connections(struct ps_core *core) {
  notice_end(core);
  for (uint32_t i = 0; core->connections != NULL && i < core->config.max_connections; i++)
    if (core->connections[i] != NULL) connection_free(core->connections[i]);
}

void ps_core_free(struct ps_core *core) {
  assert(core != NULL);
  ps_core_stop(core);
  for (uint32_t i = 0; core->reactors != NULL && i < core->config.reactor_count; i++)
    free_reactor(&core->reactors[i]);
  free_connections(core);
  for (uint32_t i = 0; core->maps != NULL && i < PS_MAX_SUBSYSTEMS; i++) free(core->maps[i].slots);
  if (core->hints != NULL) ps_hints_free(core->hints);
  orders_end(core);
  if (core->tier != NULL) ps_tier_free(core->tier);
  if (core->ring != NULL) ps_ring_free(core->ring);
  if (core->frames != NULL && !core->keeps_frames) munmap(core->frames, core->frames_size);
  if (core->wake_fd >= 0) close(core->wake_fd);
  free(core->ops);
  free(core->volumes);
  free(core->maps);
  free(core->connections);
  free(core->generations);
  free(core->reactors);
  pthread_mutex_destroy(&core->lock);
  pthread_mutex_destroy(&core->notice_lock);
  free(core);
}
