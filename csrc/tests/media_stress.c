/* Random operations on media against a model of their blocks, while another thread gives orders and
 * asks for limits: what the sanitizers are for.
 *
 *   media_stress [SEED]
 *
 * Prints the seed; exit status 1 and a line to standard error on the first difference. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "media.h"

#define BLOCK 4096U
#define BLOCKS 512U
#define MOST_BLOCKS 32U
#define SLOTS 24U
#define OPERATIONS 2500
#define STUCK_NS UINT64_C(60000000000)

/* What a block holds: zeros, a pattern of its version, or nobody knows (after an error). */
#define ZEROS 0U
#define UNKNOWN UINT32_MAX

struct slot {
  struct ps_media_request request;
  struct iovec parts[PS_MEDIA_PARTS];
  uint32_t first;
  uint32_t count;
  uint32_t version;
  bool is_busy;
};

struct chain {
  const char *spec;         /* %s: the path of a file */
  const char *orders[3][2]; /* kind and verb of what the other thread does */
  bool loses;               /* completed writes may vanish */
  bool is_held;             /* only "release" ends everything */
};

static const struct chain chains[] = {
    {.spec = "file:%s,engine=threads"},
    {.spec = "file:%s,engine=threads,direct=0,depth=24"},
    {.spec = "file:%s,engine=auto"},
    {.spec = "ram:size=2M"},
    {.spec = "model:%s,seed=3,read_us=40,read_p99_us=90,write_us=20,bandwidth=4G,channels=8"},
    {.spec = "delay:read_us=30,write_us=20,seed=9|file:%s,engine=threads",
     .orders = {{"delay", "set read_us=5"}, {"delay", "set read_us=60"}}},
    {.spec = "error:rate=0.1,seed=1|file:%s,engine=threads",
     .orders = {{"error", "arm"}, {"error", "set rate=0.3"}, {"error", "set errno=SHORT"}}},
    {.spec = "stall:after=10|file:%s,engine=threads",
     .orders = {{"stall", "arm"}, {"stall", "release"}},
     .is_held = true},
    {.spec = "powercut:limit=256K|file:%s,engine=threads"},
    {.spec = "powercut:limit=1M|file:%s,engine=auto",
     .orders = {{"powercut", "cut"}, {"powercut", "set seed=4"}},
     .loses = true},
    {.spec = "delay|error:rate=0.05|stall:after=50|powercut:limit=128K|file:%s,engine=threads",
     .orders = {{"stall", "release"}, {"powercut", "cut"}, {"stall", "arm"}},
     .loses = true,
     .is_held = true},
};

static struct slot slots[SLOTS];
static uint8_t *buffers;
static uint8_t *left[sizeof chains / sizeof chains[0]]; /* of abandoned requests */
static uint32_t versions[BLOCKS];
static bool is_touched[BLOCKS];
static uint32_t last_version;
static uint32_t busy;
static uint64_t random_state;
static const struct chain *chain;
static atomic_bool stop_orders;
static char folder[] = "/tmp/media_stress.XXXXXX";
static char path[64];

static uint64_t draw(uint64_t below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state % below;
}

static void fail(const char *what, uint64_t number) {
  fprintf(stderr, "media_stress: \"%s\": %s (%llu)\n", chain->spec, what,
          (unsigned long long)number);
  exit(1);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

static void fill(uint8_t *data, uint32_t block, uint32_t version) {
  uint64_t word = version == ZEROS ? 0 : ((uint64_t)block << 32 | version) * 0x9e3779b97f4a7c15U;
  for (uint32_t i = 0; i < BLOCK; i += 8) memcpy(data + i, &word, 8);
}

static void check_block(const uint8_t *data, uint32_t block) {
  uint8_t expected[BLOCK];
  if (versions[block] == UNKNOWN || chain->loses) return;
  fill(expected, block, versions[block]);
  if (memcmp(data, expected, BLOCK) != 0) fail("other bytes in block", block);
}

/* Where block `i` of a read is. */
static const uint8_t *block_of(const struct ps_media_request *request, uint32_t i) {
  size_t at = (size_t)i * BLOCK;
  if (request->part_count == 0) return request->buffer + at;
  const struct iovec *part = request->parts;
  for (; at >= part->iov_len; part++) at -= part->iov_len;
  return (const uint8_t *)part->iov_base + at;
}

/* Cuts the read of a slot into parts that stand in its memory from the last to the first. */
static void cut_read(struct slot *slot) {
  struct ps_media_request *request = &slot->request;
  uint32_t left = slot->count;
  uint8_t *end = request->buffer + request->length;
  while (left > 0) {
    uint32_t count = request->part_count == PS_MEDIA_PARTS - 1 ? left : 1 + (uint32_t)draw(left);
    end -= (size_t)count * BLOCK;
    slot->parts[request->part_count++] =
        (struct iovec){.iov_base = end, .iov_len = (size_t)count * BLOCK};
    left -= count;
  }
  request->buffer = NULL;
  request->parts = slot->parts;
}

/* Runs in the owner's thread: all media here deliver by poll. */
static void done(struct ps_media_request *request) {
  struct slot *slot = request->owner;
  if (!slot->is_busy) fail("a request ended twice", slot->first);
  slot->is_busy = false;
  busy--;
  bool changes = request->op == PS_MEDIA_WRITE || request->op == PS_MEDIA_ZERO;
  for (uint32_t i = 0; i < slot->count; i++) {
    uint32_t block = slot->first + i;
    is_touched[block] = false;
    if (changes) versions[block] = request->error == 0 ? slot->version : UNKNOWN;
    if (request->op == PS_MEDIA_DISCARD) versions[block] = UNKNOWN;
    if (request->op == PS_MEDIA_READ && request->error == 0) {
      check_block(block_of(request, i), block);
    }
  }
  bool may_fail = strstr(chain->spec, "error") != NULL || chain->loses;
  if (request->error != 0 && !may_fail) fail("error of a request", (uint64_t)request->error);
}

static bool choose_range(struct slot *slot) {
  slot->count = 1 + (uint32_t)draw(MOST_BLOCKS);
  slot->first = (uint32_t)draw(BLOCKS - slot->count + 1);
  for (uint32_t i = 0; i < slot->count; i++) {
    if (is_touched[slot->first + i]) return false;
  }
  return true;
}

static void submit_one(struct ps_media *media) {
  static const uint32_t ops[] = {PS_MEDIA_READ, PS_MEDIA_READ, PS_MEDIA_WRITE,   PS_MEDIA_WRITE,
                                 PS_MEDIA_SYNC, PS_MEDIA_ZERO, PS_MEDIA_DISCARD, PS_MEDIA_PREFETCH};
  uint32_t index = 0;
  while (index < SLOTS && slots[index].is_busy) index++;
  if (index == SLOTS) return;
  struct slot *slot = &slots[index];
  uint32_t op = ops[draw(sizeof ops / sizeof ops[0])];
  if (op == PS_MEDIA_SYNC) {
    slot->count = 0;
  } else if (!choose_range(slot)) {
    return;
  }
  slot->version = op == PS_MEDIA_WRITE ? ++last_version : ZEROS;
  slot->is_busy = true;
  busy++;
  slot->request = (struct ps_media_request){.op = op,
                                            .length = slot->count * BLOCK,
                                            .offset = (uint64_t)slot->first * BLOCK,
                                            .buffer = buffers + (size_t)index * MOST_BLOCKS * BLOCK,
                                            .owner = slot,
                                            .done = done};
  for (uint32_t i = 0; i < slot->count; i++) {
    is_touched[slot->first + i] = true;
    uint8_t *data = slot->request.buffer + (size_t)i * BLOCK;
    if (op == PS_MEDIA_WRITE) fill(data, slot->first + i, slot->version);
  }
  bool reads = op == PS_MEDIA_READ || op == PS_MEDIA_PREFETCH;
  if (reads && draw(2) == 0) cut_read(slot);
  ps_media_submit(media, &slot->request);
}

/* Sleeps as a reactor does. */
static void pause_owner(struct ps_media *media) {
  uint64_t next = ps_media_next_time(media);
  uint64_t time = now();
  if (next <= time) return;
  uint64_t most = 2000000;
  uint64_t wait = next - time < most ? next - time : most;
  struct timespec timeout = {.tv_nsec = (long)wait};
  struct pollfd event = {.fd = ps_media_wait_fd(media), .events = POLLIN};
  ppoll(&event, event.fd >= 0 ? 1 : 0, &timeout, NULL);
}

static void drain(struct ps_media *media) {
  uint64_t end = now() + STUCK_NS;
  ps_media_kick(media);
  while (busy > 0) {
    char error[256];
    if (chain->is_held) ps_media_control(media, "stall", "release", error, sizeof error);
    if (now() > end) fail("requests that do not end", busy);
    pause_owner(media);
    ps_media_poll(media, now());
  }
}

static void *give_orders(void *argument) {
  struct ps_media *media = argument;
  uint32_t turn = 0;
  while (!atomic_load(&stop_orders)) {
    struct ps_media_limits limits;
    char error[256];
    ps_media_get_limits(media, &limits);
    if (limits.size != (uint64_t)BLOCKS * BLOCK) fail("size", limits.size);
    const char *const *order = chain->orders[turn++ % 3];
    if (order[0] != NULL && ps_media_control(media, order[0], order[1], error, sizeof error) != 0) {
      fail(error, turn);
    }
    struct timespec rest = {.tv_nsec = 100000};
    nanosleep(&rest, NULL);
  }
  return NULL;
}

static struct ps_media *open_chain(void) {
  char spec[512];
  char error[512];
  snprintf(spec, sizeof spec, chain->spec, path);
  struct ps_media *media = ps_media_open(spec, error, sizeof error);
  if (media == NULL) fail(error, 0);
  int result = ps_media_start(media);
  if (result != 0) fail("start", (uint64_t)result);
  return media;
}

static void run_chain(void) {
  pthread_t orders;
  struct ps_media *media = open_chain();
  for (uint32_t i = 0; i < BLOCKS; i++) versions[i] = UNKNOWN;
  atomic_store(&stop_orders, false);
  if (pthread_create(&orders, NULL, give_orders, media) != 0) fail("pthread_create", 0);
  for (int i = 0; i < OPERATIONS; i++) {
    submit_one(media);
    if (draw(4) == 0) ps_media_kick(media);
    if (draw(8) == 0 || busy == SLOTS) {
      ps_media_kick(media);
      pause_owner(media);
      ps_media_poll(media, now());
    }
  }
  atomic_store(&stop_orders, true);
  pthread_join(orders, NULL);
  drain(media);
  ps_media_close(media, false);
}

static uint8_t *new_buffers(void) {
  uint8_t *memory = aligned_alloc(BLOCK, (size_t)SLOTS * MOST_BLOCKS * BLOCK);
  if (memory == NULL) fail("no memory", SLOTS);
  return memory;
}

/* Closes with work under way. The kernel may still use the buffers of such requests, so these are
 * left to the end of the process, as the interface demands. */
static void abandon_chain(uint8_t **place) {
  struct ps_media *media = open_chain();
  for (uint32_t i = 0; i < BLOCKS; i++) versions[i] = UNKNOWN;
  for (uint32_t i = 0; i < SLOTS; i++) submit_one(media);
  ps_media_kick(media);
  if (draw(2) == 0) ps_media_poll(media, now());
  ps_media_close(media, true);
  memset(is_touched, 0, sizeof is_touched);
  for (uint32_t i = 0; i < SLOTS; i++) slots[i].is_busy = false;
  busy = 0;
  *place = buffers;
  buffers = new_buffers();
}

static void remove_files(void) {
  unlink(path);
  rmdir(folder);
}

int main(int argc, char **argv) {
  uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : now();
  printf("media_stress: seed %llu\n", (unsigned long long)seed);
  fflush(stdout);
  random_state = seed * 2 + 1;
  chain = &chains[0];
  buffers = new_buffers();
  if (mkdtemp(folder) == NULL) return 2;
  snprintf(path, sizeof path, "%s/medium", folder);
  atexit(remove_files);
  int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return 2;
  int result = ftruncate(file, (off_t)BLOCKS * BLOCK);
  close(file);
  if (result != 0) return 2;
  for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
    chain = &chains[i];
    run_chain();
  }
  for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
    chain = &chains[i];
    abandon_chain(&left[i]);
  }
  free(buffers);
  return 0;
}
