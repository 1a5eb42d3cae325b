/* The control plane of core_stress: answers what hosts ask, and does everything else at random. */
#include "stress_control.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nvme.h"
#include "reactor/internal.h"

enum { NOTICES = 16, ANSWER_MOST = 4096, STALL_TURNS = 60 };

static uint64_t draw(struct control *control, uint64_t below) {
  return stress_draw(&control->random, below);
}

static void check(int result, const char *what) {
  if (result < 0) stress_fail(what, (uint64_t)-result);
}

/* The low bits of a cookie say which volume it is about. */
uint32_t control_cookie(struct control *control, uint32_t index) {
  control->cookie += COOKIE_INDEX + 1;
  return control->cookie | index;
}

void control_reset(struct control *control) {
  memset(control->volumes, 0, sizeof control->volumes);
  control->connections = control->stalls = 0;
  control->has_abandoned = false;
}

/* ---- connections ---- */

static void make_pair(struct control *control, int fds[2]) {
  if (draw(control, 3) == 0) {
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "socketpair");
    return;
  }
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr *name = (struct sockaddr *)(void *)&address;
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || fds[0] < 0) stress_fail("no socket", (uint64_t)errno);
  check(bind(listener, name, sizeof address), "bind");
  check(listen(listener, 1), "listen");
  check(getsockname(listener, name, &size), "getsockname");
  check(connect(fds[0], name, sizeof address), "connect");
  fds[1] = accept(listener, NULL, NULL);
  check(fds[1], "accept");
  close(listener);
}

static void start_host(struct control *control, struct stress_host *host) {
  int fds[2];
  make_pair(control, fds);
  fcntl(fds[0], F_SETFL, O_NONBLOCK);
  fcntl(fds[1], F_SETFL, O_NONBLOCK);
  if (draw(control, 2)) {
    int small = 4096 << draw(control, 4);
    setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  }
  int64_t id = ps_core_adopt(control->core, fds[1], (uint32_t)draw(control, control->reactors));
  if (id <= 0) stress_fail("a connection was refused", (uint64_t)-id);
  control->connections++;
  host->connection = (uint32_t)id;
  host->is_slow = draw(control, 5) == 0;
  host->is_mute = draw(control, 12) == 0;
  host->life = draw(control, 3) == 0 || host->is_mute ? 1 + (uint32_t)draw(control, 400) : 0;
  host_start(host, fds[0], (uint32_t)draw(control, 4));
  stress.moved_ns = stress_now();
  atomic_store(&host->state, HOST_STARTED);
}

static void closed(struct control *control, uint32_t connection) {
  assert(control->connections > 0);
  control->connections--;
  stress.moved_ns = stress_now();
  for (uint32_t i = 0; i < HOSTS; i++)
    if (stress.hosts[i].connection == connection) stress.hosts[i].connection = 0;
}

/* ---- volumes ---- */

void control_open(struct control *control, uint32_t index) {
  struct control_volume *volume = &control->volumes[index];
  struct ps_volume_config config = {.spec = stress.volumes[index].spec,
                                    .block_size = stress.volumes[index].block_size,
                                    .write_through = draw(control, 4) == 0,
                                    .reactor = (uint32_t)draw(control, control->reactors)};
  char error[400];
  volume->number = ps_core_volume_open(control->core, &config, error, sizeof error);
  if (volume->number < 0) stress_fail(error, (uint64_t)-volume->number);
  volume->state = VOLUME_CLOSED;
  volume->is_unmapped = volume->is_closed = false;
}

void control_map(struct control *control, uint32_t index) {
  struct control_volume *volume = &control->volumes[index];
  bool is_trash = index == TRASH_VOLUME;
  check(ps_core_map(control->core, is_trash ? 1 : 0, is_trash ? 1 : index + 1,
                    (uint32_t)volume->number),
        "map");
  volume->state = VOLUME_MAPPED;
}

static void unmap(struct control *control, uint32_t index) {
  bool is_trash = index == TRASH_VOLUME;
  check(ps_core_unmap(control->core, is_trash ? 1 : 0, is_trash ? 1 : index + 1,
                      control_cookie(control, index)),
        "unmap");
  control->volumes[index].state = VOLUME_UNMAPPING;
}

static void close_volume(struct control *control, uint32_t index) {
  struct control_volume *volume = &control->volumes[index];
  check(ps_core_volume_close(control->core, (uint32_t)volume->number, false,
                             control_cookie(control, index)),
        "close");
  if (draw(control, 4) == 0)
    ps_core_volume_flush(control->core, (uint32_t)volume->number,
                         control_cookie(control, COOKIE_INDEX));
  volume->state = VOLUME_CLOSING;
}

static void order(struct control *control, uint32_t index, const char *kind, const char *verb) {
  char error[200];
  int result = ps_core_volume_control(control->core, (uint32_t)control->volumes[index].number, kind,
                                      verb, error, sizeof error);
  if (result != 0 && result != -ENOENT) stress_fail(error, (uint64_t)-result);
}

static void release_stall(struct control *control) {
  control->stalls = 0;
  if (control->can_stall) order(control, 2, "stall", "release");
}

/* What was not written is lost; nothing of the volume is known any more in this round. */
static void abandon(struct control *control, uint32_t index) {
  struct control_volume *volume = &control->volumes[index];
  stress.volumes[index].is_unsure = true;
  control->has_abandoned = true;
  unmap(control, index);
  check(ps_core_volume_close(control->core, (uint32_t)volume->number, true,
                             control_cookie(control, index)),
        "abandon");
  volume->state = VOLUME_ABANDONED;
  if (index == 2) control->stalls = 0;
}

static void go_on(struct control *control, uint32_t index) {
  struct control_volume *volume = &control->volumes[index];
  if (volume->stays_closed) {
    volume->state = VOLUME_CLOSED;
    return;
  }
  control_open(control, index);
  control_map(control, index);
}

static void unmapped(struct control *control, uint32_t index) {
  struct control_volume *volume = &control->volumes[index];
  if (volume->state == VOLUME_ABANDONED) {
    volume->is_unmapped = true;
    if (volume->is_closed) go_on(control, index);
    return;
  }
  assert(volume->state == VOLUME_UNMAPPING);
  if (volume->stays_closed || (volume->reopens && index != 0))
    close_volume(control, index);
  else
    control_map(control, index);
}

static void volume_closed(struct control *control, uint32_t index, int32_t result) {
  struct control_volume *volume = &control->volumes[index];
  if (volume->state == VOLUME_ABANDONED) {
    volume->is_closed = true;
    if (volume->is_unmapped) go_on(control, index);
    return;
  }
  assert(volume->state == VOLUME_CLOSING);
  if (result == 0) {
    go_on(control, index);
  } else if (!stress.volumes[index].is_faulty) {
    stress_fail("a volume was not closed", (uint64_t)result);
  } else if (volume->stays_closed) {
    close_volume(control, index); /* until it succeeds */
  } else {
    control_map(control, index);
  }
}

/* ---- notices ---- */

static void answer(struct control *control, const struct ps_notice *notice) {
  static uint8_t data[ANSWER_MOST];
  struct ps_queue_config queue = {.qid = 1,
                                  .sq_size = DEPTH,
                                  .flow_control_disabled = (uint32_t)draw(control, 2),
                                  .controller = 1,
                                  .tenant = (uint16_t)draw(control, TENANTS),
                                  .enabled = 1};
  bool is_connect = notice->entry[0] == PS_OP_FABRICS && notice->entry[4] == 1 && notice->qid == 0;
  uint32_t length = 0;
  for (uint32_t i = 0; i < HOSTS && is_connect; i++) {
    const struct stress_host *host = &stress.hosts[i];
    if (host->connection != notice->connection) continue;
    queue.subsystem = host->subsystem;
    if (host->is_admin) queue.qid = 0;
    ps_core_bind(control->core, notice->connection, &queue);
  }
  if (notice->entry[0] == 0x06) {
    memcpy(&length, notice->entry + 32, sizeof length);
    if (length > ANSWER_MOST) length = 0;
  }
  uint16_t status = is_connect || draw(control, 4) ? 0 : PS_SC_INVALID_FIELD;
  if (status != 0) length = 0;
  ps_core_answer(control->core, notice->connection, notice->slot, status, 0, 0, data, length);
}

static void handle(struct control *control, const struct ps_notice *notice) {
  uint32_t index = notice->cookie & COOKIE_INDEX;
  switch (notice->kind) {
    case PS_NOTICE_COMMAND:
      answer(control, notice);
      break;
    case PS_NOTICE_CLOSED:
      closed(control, notice->connection);
      break;
    case PS_NOTICE_UNMAPPED:
      if (index >= EXTENSION_INDEX)
        control_map_extension(control, index - EXTENSION_INDEX);
      else
        unmapped(control, index);
      break;
    case PS_NOTICE_WARM_EVENT:
      control_warm_event(control, (uint32_t)notice->result);
      break;
    case PS_NOTICE_VOLUME_CLOSED:
      volume_closed(control, index, notice->result);
      break;
    case PS_NOTICE_QUIET:
      ps_core_enable(control->core, notice->connection, true);
      break;
    default:
      break;
  }
}

void control_notices(struct control *control) {
  struct ps_notice notices[NOTICES];
  int count;
  do {
    count = ps_core_notices(control->core, notices, NOTICES);
    for (int i = 0; i < count; i++) handle(control, &notices[i]);
  } while (count == NOTICES);
  if (control->stalls == 0) return;
  control->stalls--;
  if (control->stalls == 0) release_stall(control);
}

/* ---- at random ---- */

static void resize(struct control *control) {
  uint32_t index = (uint32_t)draw(control, VOLUMES);
  const struct control_volume *volume = &control->volumes[index];
  uint32_t block = stress.volumes[index].block_size;
  uint64_t size = HOSTS * LANE_BYTES + block * draw(control, SHARED_BYTES / block + 1);
  if (volume->state != VOLUME_MAPPED || (index == 2 && control->stalls > 0)) return;
  int result = ps_core_volume_resize(control->core, (uint32_t)volume->number, size);
  if (result != 0 && result != -EBUSY) stress_fail("a volume was not resized", (uint64_t)-result);
}

static void change_volume(struct control *control) {
  uint32_t index = (uint32_t)draw(control, VOLUMES);
  struct control_volume *volume = &control->volumes[index];
  if (volume->state != VOLUME_MAPPED) return;
  volume->reopens = draw(control, 2);
  unmap(control, index);
}

static void look(struct control *control) {
  struct ps_core_stats stats;
  struct ps_tier_stats tier;
  struct ps_volume_stats volume;
  struct ps_connection_info info;
  uint32_t number = (uint32_t)control->volumes[draw(control, VOLUMES)].number;
  ps_core_get_stats(control->core, &stats);
  ps_core_tier_stats(control->core, &tier);
  ps_core_volume_get_stats(control->core, number, &volume);
  control_look_at_hints(control);
  ps_core_connection_info(control->core, stress.hosts[draw(control, HOSTS)].connection, &info);
  if (stats.connections != control->connections) stress_fail("connections", stats.connections);
}

/* A host that is new, or one that exists and is to feel something. */
static void touch_host(struct control *control) {
  struct stress_host *host = &stress.hosts[draw(control, HOSTS)];
  uint32_t connection = host->connection;
  if (connection == 0) {
    if (atomic_load(&host->state) != HOST_STARTED) start_host(control, host);
    return;
  }
  switch (draw(control, 12)) {
    case 0:
      ps_core_close(control->core, connection, draw(control, 2));
      break;
    case 1:
      ps_core_enable(control->core, connection, false);
      ps_core_quiesce(control->core, connection, control_cookie(control, 0));
      break;
    default:
      ps_core_abort(control->core, connection, (uint16_t)draw(control, DEPTH),
                    control_cookie(control, 0));
      break;
  }
}

void control_act(struct control *control) {
  touch_host(control);
  uint64_t what = draw(control, 200);
  if (what < 8) change_volume(control);
  if (what >= 10 && what < 16) resize(control);
  if (what >= 20 && what < 40) look(control);
  if (what >= 40 && what < 44)
    ps_core_volume_flush(control->core, (uint32_t)control->volumes[draw(control, VOLUMES)].number,
                         control_cookie(control, COOKIE_INDEX));
  if (what == 45) control_change_extension(control);
  if (what == 46) {
    ps_core_orders_reset(control->core); /* as if it had died */
    control->model_resets++;
  }
  if (what >= 50 && what < 54 && control->can_stall && control->stalls == 0 &&
      control->volumes[2].state == VOLUME_MAPPED) {
    order(control, 2, "stall", "set after=0");
    order(control, 2, "stall", "arm");
    control->stalls = 1 + (uint32_t)draw(control, STALL_TURNS);
  }
  uint32_t index = 1 + (uint32_t)draw(control, VOLUMES - 1);
  if (what == 60 && draw(control, 4) == 0 && control->volumes[index].state == VOLUME_MAPPED)
    abandon(control, index);
}

/* ---- the end ---- */

bool control_commands_left(struct control *control) {
  if (control->stalls > 0) release_stall(control);
  bool are_left = false;
  for (uint32_t i = 0; i < HOSTS; i++)
    if (atomic_load(&stress.hosts[i].state) == HOST_STARTED) {
      struct ps_connection_info info;
      uint32_t connection = stress.hosts[i].connection;
      if (ps_core_connection_info(control->core, connection, &info) == 0 && info.in_flight > 0)
        are_left = true;
    }
  return are_left;
}

void control_close_volumes(struct control *control) {
  for (uint32_t i = 0; i < VOLUMES; i++) {
    struct control_volume *volume = &control->volumes[i];
    volume->stays_closed = true;
    if (volume->state == VOLUME_MAPPED) unmap(control, i);
  }
}

bool control_volumes_left(struct control *control) {
  for (uint32_t i = 0; i < VOLUMES; i++)
    if (control->volumes[i].state != VOLUME_CLOSED) return true;
  return false;
}

/* Nothing is held any more. */
void control_check_rest(struct control *control) {
  struct ps_core *core = control->core;
  struct ps_tier_stats tier;
  struct ps_core_stats stats;
  ps_core_tier_stats(core, &tier);
  ps_core_get_stats(core, &stats);
  core_lock(core);
  int broken = ps_tier_check(core->tier);
  uint32_t free_ops = 0, waits = !list_is_empty(&core->receive_waiters);
  for (const struct media_op *op = core->free_ops; op != NULL; op = op->next) free_ops++;
  core_unlock(core);
  if (broken != 0) stress_fail("an invariant of the tier is broken", (uint64_t)broken);
  if (free_ops != MEDIA_OPS) stress_fail("media operations were not given back", free_ops);
  if (core->receive_frames != 0 || waits) stress_fail("host data is waited for", waits);
  if (stats.connections != 0 || stats.connections_opened != stats.connections_closed)
    stress_fail("connections are left", stats.connections);
  if (core->admin_buffers != (int32_t)core->config.max_connections + 1024)
    stress_fail("admin buffers were not given back", (uint64_t)core->admin_buffers);
  control_check_hints(control);
  model_check(control);
  if (control->has_abandoned) return;
  if (tier.frames_pinned != 0) stress_fail("frames are pinned", tier.frames_pinned);
  if (tier.frames_free != core->frame_count) stress_fail("frames are missing", tier.frames_free);
  struct ps_tier_waiter waiter = {0};
  uint32_t budget = ps_tier_budget(core->tier);
  core_lock(core);
  int result = ps_tier_reserve(core->tier, budget, &waiter);
  if (result == PS_TIER_DONE) ps_tier_unreserve(core->tier, budget);
  core_unlock(core);
  if (result != PS_TIER_DONE) stress_fail("the budget is not whole", budget);
}
