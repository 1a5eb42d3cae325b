/* A volume that hints or orders want looked at while it is being opened is looked at: the main
 * thread stands in for the reactor, so that what comes first is settled.
 *
 *   volume_opens
 *
 * Exit status 1 and a line to standard error when it is not. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "reactor/internal.h"

static void check(bool is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "volume_opens: expected %s\n", what);
  exit(1);
}

static struct ps_core *make_core(void) {
  const struct ps_core_config config = {.reactor_count = 1,
                                        .max_connections = 1,
                                        .queue_depth = 16,
                                        .max_transfer = 65536,
                                        .max_h2c_data = 65536,
                                        .slot_size = 65536,
                                        .dram_bytes = 4 << 20,
                                        .dirty_percent = 20,
                                        .starvation_ns = 1000000,
                                        .tenant_count = 1,
                                        .hints = {.sets = 1,
                                                  .set_ranges = 1,
                                                  .signatures = 1,
                                                  .intents = 1,
                                                  .answer_pages = 1,
                                                  .max_set_ranges = 1,
                                                  .max_ttl_ms = 1000,
                                                  .piece_bytes = 65536,
                                                  .part_items = 1,
                                                  .follow_bytes = 65536}};
  char error[200] = "";
  struct ps_core *core = ps_core_new(&config, error, sizeof error);
  check(core != NULL, error);
  core->is_started = true; /* with no thread: see above */
  return core;
}

static void *open_volume(void *core) {
  const struct ps_volume_config config = {.spec = "ram:size=1M", .block_size = 4096};
  char error[200] = "";
  check(ps_core_volume_open(core, &config, error, sizeof error) == 0, error);
  return NULL;
}

/* The control thread has told hints and orders of the volume, and its message is under way. */
static void await_message(struct reactor *reactor) {
  struct pollfd posted = {.fd = reactor->mailbox.event_fd, .events = POLLIN};
  check(poll(&posted, 1, 10000) == 1, "a message to the reactor within 10 s");
}

int main(void) {
  struct ps_core *core = make_core();
  struct reactor *reactor = &core->reactors[0];
  struct volume *volume = &core->volumes[0];
  pthread_t control;
  check(pthread_create(&control, NULL, open_volume, core) == 0, "a thread");
  await_message(reactor);
  reactor->now_ns = monotonic_ns();
  core_lock(core);
  volume_want(reactor, volume);
  core_unlock(core);
  pump(reactor); /* takes note of what is wanted before it reads its mailbox */
  mailbox_drain(reactor);
  check(pthread_join(control, NULL) == 0, "the thread's end");
  check(volume->is_started && pump_is_wanted(reactor), "a look at the new volume");
  pump(reactor);
  check(!pump_is_wanted(reactor), "one look");
  core_lock(core);
  volume_want(reactor, volume);
  core_unlock(core);
  check(pump_is_wanted(reactor), "another look when it is wanted again");
  volume_abandon(reactor, volume);
  core->is_started = false;
  ps_core_free(core);
  printf("volume_opens: right\n");
  return 0;
}
