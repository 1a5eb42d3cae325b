/* The two ends of each lane, and what goes wrong between them. */
#include "host_rig.h"

#include <sys/socket.h>
#include <unistd.h>

#include "fuzz_support.h"

enum { CAPSULE_DATA = 4096, TARGET_SLOTS = RIG_SLOTS_MOST, SOCKET_BUFFER = 8192 };

uint32_t rig_pick(struct rig *rig, uint32_t below) {
  rig->seed ^= rig->seed << 13;
  rig->seed ^= rig->seed >> 7;
  rig->seed ^= rig->seed << 17;
  return (uint32_t)((rig->seed * UINT64_C(0x2545f4914f6cdd1d)) >> 32) % below;
}

uint64_t rig_place(struct rig *rig, bool is_read, uint32_t nlb) {
  return rig_pick(rig, RIG_BLOCKS / 2 - nlb) + (is_read ? 0 : RIG_BLOCKS / 2);
}

static uint8_t byte_at(uint64_t slba, uint32_t i) {
  return (uint8_t)(slba * 31 + (slba >> 8) * 7 + i * 3);
}

void rig_content(uint8_t *bytes, uint64_t slba, uint32_t nlb) {
  for (uint32_t i = 0; i < nlb * RIG_BLOCK; i++) {
    bytes[i] = byte_at(slba + i / RIG_BLOCK, i % RIG_BLOCK);
  }
}

void rig_check(const uint8_t *bytes, uint64_t slba, uint32_t nlb) {
  for (uint32_t i = 0; i < nlb * RIG_BLOCK; i++) {
    FUZZ_CHECK(bytes[i] == byte_at(slba + i / RIG_BLOCK, i % RIG_BLOCK));
  }
}

/* ---- the target's end ---- */

static void respond(struct lane *lane, struct pending *one) {
  struct rig *rig = lane->rig;
  uint32_t length = one->is_read ? one->nlb * RIG_BLOCK : 0;
  uint16_t status = 0;
  uint32_t lie = rig->is_rough ? rig_pick(rig, 60) : UINT32_MAX;
  if (lie == 0) status = 0x281;
  if (lie == 1 && one->is_read && length > RIG_BLOCK) length -= RIG_BLOCK;
  if (lie <= 1) rig->lies++;
  if (status != 0) length = 0;
  one->iov = (struct iovec){rig->store + one->slba * RIG_BLOCK, length};
  ps_engine_respond(lane->target, one->slot, status, 0, 0, &one->iov, 1, length);
}

static struct pending *pending_of(struct lane *lane, uint32_t slot) {
  for (uint32_t i = 0; i < TARGET_SLOTS; i++) {
    if (lane->pending[i].is_used && lane->pending[i].slot == slot) return &lane->pending[i];
  }
  abort();
}

static void command_came(struct lane *lane, const struct ps_engine_event *event) {
  struct pending *one = lane->pending;
  while (one->is_used) one++;
  uint64_t slba = 0;
  memcpy(&slba, event->entry + 40, sizeof slba);
  *one = (struct pending){.slba = slba,
                          .nlb = (uint32_t)(event->entry[48] | event->entry[49] << 8) + 1,
                          .slot = event->slot,
                          .cid = (uint16_t)(event->entry[2] | event->entry[3] << 8),
                          .is_used = true,
                          .is_read = event->entry[0] == PS_OP_READ};
  FUZZ_CHECK(one->slba + one->nlb <= RIG_BLOCKS);
  if (lane->is_kept[one->cid]) FUZZ_CHECK(lane->may_come[one->cid]-- > 0);
  if (one->is_read) {
    one->has_data = true;
    return;
  }
  uint32_t length = one->nlb * RIG_BLOCK;
  FUZZ_CHECK((event->data_length == length) == (length <= CAPSULE_DATA));
  one->data = malloc(length);
  FUZZ_CHECK(one->data != NULL);
  one->iov = (struct iovec){one->data, length};
  ps_engine_take(lane->target, one->slot, &one->iov, 1, length);
}

static void data_came(struct lane *lane, uint32_t slot, bool is_damaged) {
  struct pending *one = pending_of(lane, slot);
  FUZZ_CHECK(!is_damaged);
  rig_check(one->data, one->slba, one->nlb);
  memcpy(lane->rig->store + one->slba * RIG_BLOCK, one->data, (size_t)one->nlb * RIG_BLOCK);
  one->has_data = true;
}

static void forget_pending(struct pending *one) {
  free(one->data);
  *one = (struct pending){0};
}

static void target_events(struct lane *lane) {
  struct ps_engine_event event;
  while (ps_engine_next_event(lane->target, &event)) {
    if (event.kind == PS_EVENT_COMMAND) command_came(lane, &event);
    if (event.kind == PS_EVENT_DATA) data_came(lane, event.slot, event.digest_error != 0);
    if (event.kind == PS_EVENT_SENT) forget_pending(pending_of(lane, event.slot));
    if (event.kind == PS_EVENT_CONNECTED) {
      ps_engine_bind(lane->target, lane->slots + 1, true, CAPSULE_DATA, rig_pick(lane->rig, 2));
    }
  }
}

static void target_receive(struct lane *lane) {
  uint8_t bytes[4096];
  size_t most = rig_pick(lane->rig, 3) ? sizeof bytes : 1 + rig_pick(lane->rig, 100);
  ssize_t size = recv(lane->target_fd, bytes, most, MSG_DONTWAIT);
  for (ssize_t taken = 0; taken < size;) {
    size_t step = ps_engine_receive(lane->target, bytes + taken, (size_t)(size - taken));
    taken += (ssize_t)step;
    target_events(lane);
    if (step == 0) return; /* it was told that the host ends the connection */
  }
}

static void target_answer(struct lane *lane) {
  struct rig *rig = lane->rig;
  struct pending *one = &lane->pending[rig_pick(rig, TARGET_SLOTS)];
  if (!one->is_used || !one->has_data) return;
  if (rig->is_rough && rig_pick(rig, 4) == 0) return;
  one->has_data = false;
  respond(lane, one);
  target_events(lane);
}

static void target_send(struct lane *lane) {
  struct iovec iov[16];
  size_t count = ps_engine_output(lane->target, iov, 1 + rig_pick(lane->rig, 16));
  if (count == 0) return;
  if (rig_pick(lane->rig, 3) == 0) {
    count = 1;
    iov[0].iov_len = 1 + rig_pick(lane->rig, (uint32_t)iov[0].iov_len);
  }
  struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
  ssize_t size = sendmsg(lane->target_fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size > 0) ps_engine_sent(lane->target, (size_t)size);
  target_events(lane);
}

/* ---- the host's end ---- */

static void lane_open(struct lane *lane) {
  struct rig *rig = lane->rig;
  int fds[2];
  int size = SOCKET_BUFFER;
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  for (int i = 0; i < 2; i++) setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  *lane = (struct lane){.rig = rig, .fd = fds[0], .target_fd = fds[1]};
  lane->slots = 1 + rig_pick(rig, RIG_SLOTS_MOST);
  struct ps_host_config config = {
      .slot_count = lane->slots, .digests = rig->digests, .timeout_us = RIG_TIMEOUT_US};
  struct ps_engine_config target = {.role = PS_ROLE_TARGET,
                                    .slot_count = TARGET_SLOTS,
                                    .max_h2c_data = 4096,
                                    .in_capsule_size = CAPSULE_DATA,
                                    .digests = PS_DIGEST_HEADER | PS_DIGEST_DATA};
  lane->memory = aligned_alloc(64, (ps_host_size(&config) + 63) / 64 * 64);
  lane->target_memory = aligned_alloc(64, (ps_engine_size(&target) + 63) / 64 * 64);
  FUZZ_CHECK(lane->memory != NULL && lane->target_memory != NULL);
  lane->host = ps_host_init(lane->memory, &config, lane->fd);
  lane->state = ps_host_state(lane->host);
  lane->target = ps_engine_init(lane->target_memory, &target);
}

static void forget_single(struct single *one) {
  free(one->memory);
  *one = (struct single){0};
}

static void lane_close(struct lane *lane) {
  for (uint32_t i = 0; i < RIG_SLOTS_MOST; i++) {
    forget_single(&lane->singles[i]);
    forget_pending(&lane->pending[i]);
  }
  close(lane->fd);
  close(lane->target_fd);
  free(lane->memory);
  free(lane->target_memory);
}

/* The connection is over: another one takes its place. */
static void lane_again(struct lane *lane) {
  lane->rig->breaks++;
  lane->rig->all_breaks++;
  ps_host_send_last(lane->host);
  bool may_repeat = rig_pick(lane->rig, 4) > 0;
  uint64_t waiting = lane->rig->work.waiting;
  ps_host_lose(lane->host, may_repeat);
  FUZZ_CHECK(may_repeat || lane->rig->work.waiting <= waiting);
  FUZZ_CHECK(lane->state->in_flight == 0);
  lane_close(lane);
  lane_open(lane);
}

static void single_ended(struct lane *lane, const struct ps_host_completion *completion) {
  struct single *one = &lane->singles[completion->slot];
  FUZZ_CHECK(one->memory != NULL);
  bool is_good = completion->cqe[14] == 0 && completion->cqe[15] == 0;
  bool is_whole = completion->transferred == one->nlb * RIG_BLOCK;
  FUZZ_CHECK(!completion->digest_error || lane->rig->lies > 0);
  if (one->is_read && !one->is_detached && is_good && is_whole && !completion->digest_error) {
    rig_check(one->memory, one->slba, one->nlb);
  }
  forget_single(one);
}

static void hear(struct lane *lane, uint32_t news) {
  FUZZ_CHECK(!(news & PS_HOST_COMPLETIONS) == (lane->state->completion_count == 0));
  for (uint32_t i = 0; i < lane->state->completion_count; i++) {
    single_ended(lane, &lane->state->completions[i]);
  }
  if (news & PS_HOST_CONNECTED) {
    lane->is_connected = true;
    ps_host_attach(lane->host, &lane->rig->work, CAPSULE_DATA);
  }
  FUZZ_CHECK(!(news & PS_HOST_OVER) == (lane->state->end == 0));
  if (news & PS_HOST_OVER) lane_again(lane);
}

void lane_turn(struct lane *lane) {
  switch (rig_pick(lane->rig, 6)) {
    case 0:
      target_receive(lane);
      break;
    case 1:
      target_answer(lane);
      break;
    case 2:
    case 3:
      target_send(lane);
      break;
    case 4:
      hear(lane, ps_host_receive(lane->host, lane->rig->now_us));
      break;
    default:
      hear(lane, ps_host_send(lane->host, lane->rig->now_us));
  }
}

void lane_fill(struct lane *lane, uint32_t most) {
  uint32_t before = lane->state->in_flight;
  uint32_t started = ps_host_fill(lane->host, most, lane->rig->now_us);
  FUZZ_CHECK(started <= most && lane->state->in_flight == before + started);
  FUZZ_CHECK(started == 0 || lane->state->in_flight + lane->state->reserved <= lane->slots);
}

void lane_single(struct lane *lane) {
  struct rig *rig = lane->rig;
  bool is_read = rig_pick(rig, 2);
  uint32_t nlb = 1 + rig_pick(rig, 16);
  uint32_t length = nlb * RIG_BLOCK;
  uint64_t slba = rig_place(rig, is_read, nlb);
  uint8_t sqe[64] = {is_read ? PS_OP_READ : PS_OP_WRITE};
  memcpy(sqe + 40, &slba, sizeof slba);
  sqe[48] = (uint8_t)(nlb - 1);
  uint32_t transfer = is_read                  ? PS_TRANSFER_FROM_CONTROLLER
                      : length <= CAPSULE_DATA ? PS_TRANSFER_IN_CAPSULE
                                               : PS_TRANSFER_TO_CONTROLLER;
  uint8_t *memory = calloc(1, length);
  FUZZ_CHECK(memory != NULL);
  if (!is_read) rig_content(memory, slba, nlb);
  uint64_t deadline_us = rig_pick(rig, 4) ? rig->now_us + RIG_TIMEOUT_US : 0;
  int32_t slot = ps_host_submit(lane->host, sqe, transfer, memory, length, deadline_us);
  if (slot < 0) {
    FUZZ_CHECK(!lane->is_connected || lane->state->in_flight == lane->slots);
    free(memory);
    return;
  }
  FUZZ_CHECK(lane->singles[slot].memory == NULL && !lane->is_kept[slot]);
  lane->singles[slot] =
      (struct single){.memory = memory, .slba = slba, .nlb = nlb, .is_read = is_read};
  rig->all_singles++;
}

void lane_reserve(struct lane *lane, uint32_t slots) {
  lane->state->reserved = slots < lane->slots ? slots : lane->slots - 1;
}

/* The command is overdue: an Abort means its CID from now on. */
static void keep(struct lane *lane, uint32_t slot) {
  FUZZ_CHECK(!lane->is_kept[slot]);
  lane->is_kept[slot] = true;
  lane->may_come[slot] = 1;
  for (uint32_t i = 0; i < TARGET_SLOTS; i++) {
    const struct pending *one = &lane->pending[i];
    if (one->is_used && one->cid == slot) lane->may_come[slot] = 0;
  }
  ps_host_keep(lane->host, slot);
  lane->rig->all_kept++;
}

void lane_let_go(struct lane *lane) {
  for (uint32_t i = 0; i < lane->slots; i++) {
    if (!lane->is_kept[i] || (lane->rig->is_rough && rig_pick(lane->rig, 2))) continue;
    uint32_t before = lane->state->in_flight;
    bool is_free = ps_host_let_go(lane->host, i);
    FUZZ_CHECK(lane->state->in_flight + is_free == before);
    lane->is_kept[i] = false;
  }
}

void lane_keep_time(struct lane *lane) {
  uint64_t now_us = lane->rig->now_us;
  int32_t slot = 0;
  for (uint32_t i = 0; i <= lane->slots && slot >= 0; i++) {
    slot = ps_host_overdue(lane->host, now_us);
    FUZZ_CHECK(slot < (int32_t)lane->slots);
    if (slot >= 0 && rig_pick(lane->rig, 2)) keep(lane, (uint32_t)slot);
  }
  FUZZ_CHECK(slot < 0);
  uint64_t deadline_us = ps_host_deadline(lane->host);
  FUZZ_CHECK(slot == -2 || deadline_us == 0 || deadline_us > now_us);
  if (slot == -2) lane_again(lane);
}

void lane_break(struct lane *lane) {
  if (rig_pick(lane->rig, 2) == 0) {
    uint8_t nonsense[32];
    for (size_t i = 0; i < sizeof nonsense; i++) nonsense[i] = (uint8_t)rig_pick(lane->rig, 256);
    /* Only digests can tell that data was damaged. */
    if (lane->rig->digests == (PS_DIGEST_HEADER | PS_DIGEST_DATA)) {
      ssize_t size = send(lane->target_fd, nonsense, sizeof nonsense, MSG_DONTWAIT | MSG_NOSIGNAL);
      FUZZ_CHECK(size <= (ssize_t)sizeof nonsense);
      lane->rig->lies++;
      return;
    }
  }
  shutdown(lane->target_fd, SHUT_RDWR);
}

void lane_detach(struct lane *lane, const struct ps_host_batch *batch) {
  struct iovec place;
  for (uint32_t i = 0; i <= lane->slots; i++) {
    int32_t slot = ps_host_detach(lane->host, batch, &place);
    if (slot < 0) return;
    struct single *one = &lane->singles[slot];
    FUZZ_CHECK(one->memory == NULL);
    *one = (struct single){.memory = malloc(place.iov_len), .is_detached = true};
    FUZZ_CHECK(one->memory != NULL);
    if (!batch->is_read) memcpy(one->memory, place.iov_base, place.iov_len);
    ps_host_redirect(lane->host, (uint32_t)slot, one->memory);
  }
  FUZZ_CHECK(!"a batch has no more commands in flight than there are slots");
}

void lane_check(const struct lane *lane) {
  uint32_t singles = 0;
  for (uint32_t i = 0; i < RIG_SLOTS_MOST; i++) singles += lane->singles[i].memory != NULL;
  FUZZ_CHECK(singles <= lane->state->in_flight && lane->state->in_flight <= lane->slots);
}

bool lane_is_quiet(const struct lane *lane) { return lane->state->in_flight == 0; }

void lanes_open(struct rig *rig, uint64_t seed) {
  uint64_t singles = rig->all_singles, breaks = rig->all_breaks, kept = rig->all_kept;
  memset(rig, 0, sizeof *rig);
  rig->all_singles = singles;
  rig->all_breaks = breaks;
  rig->all_kept = kept;
  rig->seed = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
  rig->now_us = 1000;
  rig->digests = rig_pick(rig, 4);
  rig->is_rough = rig_pick(rig, 4) > 0;
  rig->lane_count = 1 + rig_pick(rig, RIG_LANES);
  rig_content(rig->store, 0, RIG_BLOCKS / 2);
  for (uint32_t i = 0; i < rig->lane_count; i++) {
    rig->lanes[i].rig = rig;
    lane_open(&rig->lanes[i]);
  }
}

void lanes_close(struct rig *rig) {
  for (uint32_t i = 0; i < rig->lane_count; i++) lane_close(&rig->lanes[i]);
}
