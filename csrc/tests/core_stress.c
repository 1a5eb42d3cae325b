/* The whole data path with everything at once: reactors, hosts on real sockets that check every
 * byte they know, a control plane that maps, resizes, closes, aborts and disconnects meanwhile, and
 * a mad model that orders what comes to its mind.
 *
 *   core_stress [SEED [ROUNDS [REACTORS]]]
 *
 * Prints the seed; exit status 1 and a line to standard error on the first thing that is wrong. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "stress_control.h"

enum { STUCK_S = 10, SECOND_NS = 1000000000, DONE_PER_ROUND = 4000 };

struct stress stress;

uint64_t stress_draw(uint64_t *state, uint64_t below) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state % below;
}

uint64_t stress_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

_Noreturn void stress_fail(const char *what, uint64_t number) {
  fprintf(stderr, "core_stress: seed %llu: %s (%llu = %llxh)\n", (unsigned long long)stress.seed,
          what, (unsigned long long)number, (unsigned long long)number);
  abort();
}

static void check_moves(struct control *control) {
  uint64_t moved_ns = stress.moved_ns, now_ns = stress_now();
  if (now_ns < moved_ns || now_ns - moved_ns < STUCK_S * UINT64_C(1000000000)) return;
  control_describe(control);
  stress_fail("nothing goes on", now_ns - moved_ns);
}

/* ---- a round ---- */

static void make_volumes(struct control *control) {
  static const char *const faults[] = {"delay:read_us=300,write_us=500,sync_us=200,seed=%u|",
                                       "stall:after=1000000|", "error:op=write,rate=0.02,seed=%u|",
                                       "error:op=read,rate=0.02,seed=%u|stall:after=1000000|",
                                       "error:op=sync,rate=0.2,seed=%u|"};
  uint32_t fault = (uint32_t)stress_draw(&control->random, sizeof faults / sizeof *faults);
  char wrapper[96];
  const char *engine = stress_draw(&control->random, 2) ? "auto" : "threads";
  snprintf(wrapper, sizeof wrapper, faults[fault], (unsigned)stress_draw(&control->random, 1000));
  snprintf(control->specs[0], sizeof control->specs[0], "ram:size=%u", VOLUME_BYTES);
  snprintf(control->specs[1], sizeof control->specs[1], "file:%s.1,size=%u,create=1,engine=%s",
           control->path, VOLUME_BYTES, engine);
  snprintf(control->specs[2], sizeof control->specs[2], "%sfile:%s.2,size=%u,create=1,engine=%s",
           wrapper, control->path, VOLUME_BYTES, engine);
  snprintf(control->specs[3], sizeof control->specs[3], "ram:size=%u", VOLUME_BYTES);
  control->can_stall = strstr(wrapper, "stall") != NULL;
  for (uint32_t i = 0; i < VOLUMES; i++) {
    struct stress_volume *volume = &stress.volumes[i];
    volume->spec = control->specs[i];
    volume->block_size = stress_draw(&control->random, 3) == 0 ? 512 : 4096;
    volume->is_faulty = i == 2 && strstr(wrapper, "error") != NULL;
    volume->is_unsure = false;
    control_open(control, i);
    control_map(control, i);
  }
  for (uint32_t i = 0; i < EXTENSIONS; i++) control_map_extension(control, i);
}

static void make_core(struct control *control, uint32_t reactors) {
  struct ps_core_config config = {
      .reactor_count = reactors,
      .max_connections = HOSTS + 2,
      .queue_depth = DEPTH,
      .max_transfer = TRANSFER,
      .in_capsule_size = IN_CAPSULE,
      .max_h2c_data = 4096u << stress_draw(&control->random, 6),
      .digests = PS_DIGEST_HEADER | PS_DIGEST_DATA,
      .success = (uint32_t)stress_draw(&control->random, 2),
      .slot_size = 16384u << stress_draw(&control->random, 2),
      .dirty_percent = 20 + (uint32_t)stress_draw(&control->random, 30),
      .writeback_age_ns = 1000000 + stress_draw(&control->random, 50000000),
      .handshake_timeout_ns = SECOND_NS,
      .poll_ns = stress_draw(&control->random, 2) ? 20000 : 0,
      .starvation_ns = 1000000 + stress_draw(&control->random, 100000000),
      .merge_bytes = stress_draw(&control->random, 3) == 0 ? 0 : 262144,
      .tenant_count = TENANTS,
      .ring_capacity = stress_draw(&control->random, 3) == 0 ? 0 : 256,
      .orders_capacity = stress_draw(&control->random, 4) == 0 ? 0 : 64};
  control_configure_hints(&config.hints);
  for (uint32_t i = 0; i < PS_MAX_REACTORS; i++) config.cpus[i] = -1;
  config.dram_bytes = (uint64_t)config.slot_size * (50 + stress_draw(&control->random, 80));
  char error[200];
  control->core = ps_core_new(&config, error, sizeof error);
  if (control->core == NULL) stress_fail(error, 0);
  control->reactors = reactors;
  int result = ps_core_start(control->core);
  if (result != 0) stress_fail("the core did not start", (uint64_t)-result);
}

static void make_hosts(void) {
  for (uint32_t i = 0; i < HOSTS; i++) {
    struct stress_host *host = &stress.hosts[i];
    host->number = i;
    host->subsystem = i == TRASH_HOST ? 1 : 0;
    host->is_admin = i == HOSTS - 2;
    host->fd = -1;
    host->connection = 0;
    atomic_store(&host->state, HOST_IDLE);
    memset(host->lanes, 0, sizeof host->lanes);
    for (uint32_t j = 0; j < DEPTH && host->commands[j].data == NULL; j++)
      host->commands[j].data = malloc(TRANSFER);
  }
}

/* Once around: notices, and then something of its own. */
static void turn(struct control *control) {
  struct pollfd wake = {.fd = ps_core_wake_fd(control->core), .events = POLLIN};
  poll(&wake, 1, 1);
  control_notices(control);
  check_moves(control);
}

/* Everything ends well, and everything is given back. */
static void end_in_order(struct control *control) {
  stress.drains = true;
  while (control_commands_left(control)) turn(control);
  for (uint32_t i = 0; i < HOSTS; i++)
    if (stress.hosts[i].connection != 0)
      ps_core_close(control->core, stress.hosts[i].connection, stress_draw(&control->random, 2));
  while (control->connections > 0) turn(control);
  control_close_volumes(control);
  while (control_volumes_left(control)) turn(control);
  while (control_hints_left(control)) turn(control);
  control_check_rest(control);
}

static void run_round(struct control *control, uint64_t seed, uint32_t reactors, uint64_t target) {
  stress.seed = seed;
  control->random = seed * 2 + 1;
  uint64_t host_random = seed * 2 + 0x9e3779b9;
  stress.drains = stress.stops = false;
  stress.done = 0;
  stress.moved_ns = stress_now();
  for (int i = 0; i < 8; i++) stress_draw(&control->random, 2);
  control_reset(control);
  make_core(control, reactors);
  make_hosts();
  make_volumes(control);
  model_start(control);
  pthread_t thread;
  if (pthread_create(&thread, NULL, host_main, &host_random) != 0) stress_fail("no thread", 0);
  while (stress.done < target) {
    turn(control);
    control_act(control);
  }
  if (stress_draw(&control->random, 3) != 0) end_in_order(control);
  /* Or in the midst of everything. */
  if (stress_draw(&control->random, 2)) {
    control->core_stops = true;
    ps_core_stop(control->core);
  }
  model_stop(control);
  ps_core_free(control->core);
  stress.stops = true;
  pthread_join(thread, NULL);
  for (uint32_t i = 1; i < 3; i++) {
    char path[96];
    snprintf(path, sizeof path, "%s.%u", control->path, i);
    unlink(path);
  }
}

int main(int count, char **arguments) {
  static struct control control;
  const char *variant = getenv("PRESTAGE_TEST_VARIANT");
  bool is_slow = variant != NULL && strcmp(variant, "native") != 0;
  uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 10) : (uint64_t)time(NULL);
  uint64_t rounds = count > 2 ? strtoull(arguments[2], NULL, 10) : is_slow ? 6 : 12;
  uint32_t reactors = count > 3 ? (uint32_t)strtoul(arguments[3], NULL, 10) : 0;
  uint64_t target = is_slow ? DONE_PER_ROUND / 4 : DONE_PER_ROUND;
  signal(SIGPIPE, SIG_IGN);
  setvbuf(stdout, NULL, _IOLBF, 0);
  snprintf(control.path, sizeof control.path, "%s/core_stress.%d",
           getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp", (int)getpid());
  printf("core_stress: seed %llu\n", (unsigned long long)seed);
  for (uint64_t round = 0; round < rounds; round++) {
    uint32_t used = reactors != 0 ? reactors : 1 + (uint32_t)(round & 1) * 2;
    run_round(&control, seed + round, used, target);
  }
  for (uint32_t i = 0; i < HOSTS; i++) {
    free(stress.hosts[i].memory);
    for (uint32_t j = 0; j < DEPTH; j++) free(stress.hosts[i].commands[j].data);
  }
  printf("core_stress: %llu rounds are right\n", (unsigned long long)rounds);
  return 0;
}
