/* The model's side of the data path: the memory of its orders, the descriptors by which each wakes
 * the other, and what the control thread asks of them. */
#include <assert.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "internal.h"

enum {
  FETCHES = 16384, /* that are pending at most */
  PARTS = 1024     /* of a reset, at most */
};

static int new_event(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

bool orders_init(struct ps_core *core) {
  assert(core != NULL && core->tier != NULL && core->orders == NULL);
  const struct ps_core_config *config = &core->config;
  if (core->ring != NULL && (core->ring_wake_fd = new_event()) < 0) return false;
  if (config->orders_capacity == 0) return true;
  const struct ps_orders_config orders = {.capacity = config->orders_capacity,
                                          .fetches = FETCHES,
                                          .volume_count = PS_MAX_VOLUMES,
                                          .tenant_count = config->tenant_count,
                                          .slot_size = config->slot_size,
                                          .piece_bytes = config->hints.piece_bytes};
  core->orders = ps_orders_new(&orders, core->tier, core->ring);
  core->orders_wake_fd = new_event();
  return core->orders != NULL && core->orders_wake_fd >= 0;
}

void orders_end(struct ps_core *core) {
  assert(core != NULL);
  ps_orders_free(core->orders);
  if (core->orders_wake_fd >= 0) close(core->orders_wake_fd);
  if (core->ring_wake_fd >= 0) close(core->ring_wake_fd);
}

/* Without the lock, in any thread. */
void orders_wake_model(struct ps_core *core) {
  assert(core != NULL && core->ring_wake_fd >= 0);
  const uint64_t one = 1;
  ssize_t ignored = write(core->ring_wake_fd, &one, sizeof one);
  (void)ignored;
}

int ps_core_orders_fd(struct ps_core *core) {
  assert(core != NULL);
  return core->orders == NULL ? -1 : ps_orders_fd(core->orders);
}

int ps_core_orders_wake_fd(struct ps_core *core) {
  assert(core != NULL);
  return core->orders_wake_fd;
}

int ps_core_ring_wake_fd(struct ps_core *core) {
  assert(core != NULL);
  return core->ring_wake_fd;
}

void ps_core_orders_reset(struct ps_core *core) {
  assert(core != NULL);
  if (core->orders == NULL) return;
  core_lock(core);
  ps_orders_reset(core->orders, monotonic_ns());
  if (core->ring != NULL) ps_ring_renew(core->ring);
  core_unlock(core);
  /* In parts, so that reactors need not wait for all of it. */
  bool is_done = false;
  for (uint32_t i = 0; i < PARTS && !is_done; i++) {
    core_lock(core);
    is_done = ps_orders_take(core->orders, monotonic_ns(), 0);
    core_unlock(core);
  }
}

void ps_core_orders_stats(struct ps_core *core, struct ps_orders_stats *stats) {
  assert(core != NULL && stats != NULL);
  *stats = (struct ps_orders_stats){0};
  if (core->orders == NULL) return;
  core_lock(core);
  ps_orders_get_stats(core->orders, stats);
  core_unlock(core);
}

void ps_core_model_stats(struct ps_core *core, struct ps_tier_tenant *stats) {
  assert(core != NULL && stats != NULL);
  core_lock(core);
  ps_tier_get_model(core->tier, stats);
  core_unlock(core);
}
