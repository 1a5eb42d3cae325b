/* Fuzzing a host's queue: PDUs that are right, almost right or nonsense come over a socket while
 * single commands and a batch are under way, are stopped or are late. Only the memory of a command
 * under way is touched (each is a block of the heap, freed as early as the contract allows), every
 * command ends once, and a batch says that it is done only when all of it was answered.
 *
 * For libFuzzer, or with -DFUZZ_STANDALONE: fuzz_queue [FIRST_SEED [COUNT]].
 */
#include <sys/socket.h>
#include <unistd.h>

#include "../host.h"
#include "fuzz_support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { SLOTS = 6, PIECES = 12, BLOCK = 512, TIMEOUT_US = 1000, IN_CAPSULE = 4096 };

/* A command that the peer has heard of and did not end. */
struct heard {
  bool is_open, is_read, has_data;
  uint32_t length, covered;
};

struct queue {
  struct ps_host *host;
  struct ps_host_state *state;
  void *memory;
  int fd, peer_fd;
  uint32_t digests;
  uint64_t now_us;
  bool is_over;
  struct ps_host_work work;
  struct ps_host_batch *batch; /* NULL: there is none */
  struct ps_host_piece pieces[PIECES];
  uint8_t *data;           /* of the batch */
  uint8_t *singles[SLOTS]; /* memory of single commands, by slot */
  struct heard heard[SLOTS];
  struct stream said; /* by the host */
};

static void open_queue(struct queue *queue, struct choices *choices) {
  int fds[2];
  FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  memset(queue, 0, offsetof(struct queue, said));
  queue->said.size = queue->said.taken = 0;
  queue->fd = fds[0];
  queue->peer_fd = fds[1];
  queue->digests = choose(choices, 4);
  struct ps_host_config config = {
      .slot_count = SLOTS, .digests = queue->digests, .timeout_us = TIMEOUT_US};
  queue->memory = aligned_alloc(64, (ps_host_size(&config) + 63) / 64 * 64);
  FUZZ_CHECK(queue->memory != NULL);
  queue->host = ps_host_init(queue->memory, &config, queue->fd);
  queue->state = ps_host_state(queue->host);
  ps_host_attach(queue->host, &queue->work, IN_CAPSULE);
}

/* What may be in flight of the batch gets memory of its own; the batch's is freed. */
static void drop_batch(struct queue *queue) {
  struct iovec place;
  for (int i = 0; i <= SLOTS && !queue->is_over; i++) {
    int32_t slot = ps_host_detach(queue->host, queue->batch, &place);
    if (slot < 0) break;
    FUZZ_CHECK(i < SLOTS && queue->singles[slot] == NULL);
    queue->singles[slot] = malloc(place.iov_len);
    memcpy(queue->singles[slot], place.iov_base, place.iov_len);
    ps_host_redirect(queue->host, (uint32_t)slot, queue->singles[slot]);
  }
  free(queue->data);
  free(queue->batch);
  queue->data = NULL;
  queue->batch = NULL;
}

static void take_ended(struct queue *queue) {
  struct ps_host_batch *batch = ps_host_next_ended(&queue->work);
  if (batch == NULL) return;
  FUZZ_CHECK(batch == queue->batch && batch->waiting == 0 && queue->work.first == NULL);
  FUZZ_CHECK((batch->end == PS_BATCH_DONE) == (batch->done == batch->count));
  drop_batch(queue);
  FUZZ_CHECK(ps_host_next_ended(&queue->work) == NULL);
}

static void lose(struct queue *queue) {
  ps_host_send_last(queue->host);
  queue->is_over = true;
  ps_host_lose(queue->host, false);
  FUZZ_CHECK(queue->state->in_flight == 0);
}

static void hear(struct queue *queue, uint32_t news) {
  for (uint32_t i = 0; i < queue->state->completion_count; i++) {
    uint32_t slot = queue->state->completions[i].slot;
    FUZZ_CHECK(slot < SLOTS && queue->singles[slot] != NULL);
    free(queue->singles[slot]);
    queue->singles[slot] = NULL;
  }
  take_ended(queue);
  if (news & PS_HOST_OVER) {
    lose(queue);
    take_ended(queue);
  }
}

static void begin_batch(struct queue *queue, struct choices *choices) {
  if (queue->batch != NULL) return;
  struct ps_host_batch *batch = calloc(1, sizeof *batch);
  FUZZ_CHECK(batch != NULL);
  batch->is_read = choose(choices, 2);
  batch->is_repeatable = choose(choices, 2);
  batch->count = 1 + choose(choices, PIECES);
  batch->block_size = BLOCK;
  batch->pieces = queue->pieces;
  batch->sqe[0] = batch->is_read ? PS_OP_READ : PS_OP_WRITE;
  size_t blocks = 0;
  for (uint32_t i = 0; i < batch->count; i++) {
    queue->pieces[i] = (struct ps_host_piece){.slba = i, .nlb = 1 + choose(choices, 40)};
    blocks += queue->pieces[i].nlb;
  }
  FUZZ_CHECK(blocks > 0);
  queue->data = calloc(blocks, BLOCK);
  FUZZ_CHECK(queue->data != NULL);
  uint8_t *at = queue->data;
  for (uint32_t i = 0; i < batch->count; i++) {
    queue->pieces[i].address = (uint64_t)(uintptr_t)at;
    at += (size_t)queue->pieces[i].nlb * BLOCK;
  }
  queue->batch = batch;
  ps_host_add(&queue->work, batch);
  ps_host_fill(queue->host, UINT32_MAX, queue->now_us);
}

static void begin_single(struct queue *queue, struct choices *choices) {
  uint32_t transfer = 1 + choose(choices, 3);
  uint8_t sqe[64] = {transfer == PS_TRANSFER_FROM_CONTROLLER ? PS_OP_READ : PS_OP_WRITE};
  uint32_t length = choose_length(choices);
  uint8_t *memory = calloc(1, length);
  int32_t slot = ps_host_submit(queue->host, sqe, transfer, memory, length,
                                choose(choices, 2) ? queue->now_us + TIMEOUT_US : 0);
  if (slot < 0) {
    free(memory);
    return;
  }
  FUZZ_CHECK(slot < SLOTS && queue->singles[slot] == NULL);
  queue->singles[slot] = memory;
}

static void build_response(struct queue *queue, struct stream *stream, struct choices *choices,
                           uint32_t slot) {
  uint8_t pdu[24] = {PS_PDU_RESPONSE, 0, 24, 0, 24};
  if (queue->digests & PS_DIGEST_HEADER) {
    pdu[1] = PS_PDU_HDGST;
    pdu[4] = 28;
  }
  pdu[20] = (uint8_t)slot;
  pdu[22] = (uint8_t)(choose(choices, 8) ? 0 : 4);
  build_pdu(stream, pdu, sizeof pdu, 0, 0, queue->digests, choices);
  queue->heard[slot].is_open = false;
}

/* Data of a read; mostly what is still to come, now and then more than that. */
static void build_read(struct queue *queue, struct stream *stream, struct choices *choices,
                       uint32_t slot) {
  struct heard *heard = &queue->heard[slot];
  uint32_t rest = heard->length - heard->covered;
  uint32_t size = choose(choices, 2) ? rest : choose_length(choices);
  if (size > rest && choose(choices, 32)) size = rest;
  if (size == 0 || size > FUZZ_DATA_MOST) return;
  uint8_t flags = size == rest ? PS_PDU_LAST : 0;
  if (flags && choose(choices, 2)) flags |= PS_PDU_SUCCESS;
  build_data(stream, PS_PDU_C2H_DATA, flags, (uint16_t)slot, 0, heard->covered, size, size,
             queue->digests, 0, choices);
  heard->covered += size;
  if (flags & PS_PDU_SUCCESS) heard->is_open = false;
}

static void build_one(struct queue *queue, struct stream *stream, struct choices *choices) {
  uint32_t slot = choose(choices, SLOTS);
  struct heard *heard = &queue->heard[slot];
  uint8_t raw[24];
  if (choose(choices, 64) == 0) {
    for (size_t i = 0; i < sizeof raw; i++) raw[i] = (uint8_t)choose(choices, 256);
    build_pdu(stream, raw, sizeof raw, 0, 0, 0, choices);
    return;
  }
  if (!heard->is_open && choose(choices, 64)) return;
  if (heard->is_read && heard->covered < heard->length && choose(choices, 8)) {
    build_read(queue, stream, choices, slot);
  } else if (!heard->is_read && !heard->has_data && choose(choices, 2)) {
    uint32_t rest = heard->length - heard->covered;
    if (rest == 0) return;
    uint32_t size = 1 + choose(choices, rest);
    build_data(stream, PS_PDU_R2T, 0, (uint16_t)slot, 1, heard->covered, size, 0, queue->digests, 0,
               choices);
    heard->covered += size;
  } else {
    build_response(queue, stream, choices, slot);
  }
}

/* What the host says: its commands are noted, the rest is passed over. */
static void hear_host(struct queue *queue) {
  struct stream *said = &queue->said;
  ssize_t got =
      recv(queue->peer_fd, said->bytes + said->size, sizeof said->bytes - said->size, MSG_DONTWAIT);
  if (got > 0) said->size += (size_t)got;
  while (said->size - said->taken >= 8) {
    const uint8_t *pdu = said->bytes + said->taken;
    uint32_t plen;
    memcpy(&plen, pdu + 4, sizeof plen);
    FUZZ_CHECK(plen >= 8);
    if (said->size - said->taken < plen) break;
    if (pdu[0] == PS_PDU_COMMAND) {
      struct heard heard = {.is_open = true, .is_read = pdu[8] == PS_OP_READ, .has_data = pdu[3]};
      memcpy(&heard.length, pdu + 8 + 32, sizeof heard.length);
      FUZZ_CHECK(pdu[10] < SLOTS && pdu[11] == 0);
      queue->heard[pdu[10]] = heard;
    }
    said->taken += plen;
  }
  memmove(said->bytes, said->bytes + said->taken, said->size - said->taken);
  said->size -= said->taken;
  said->taken = 0;
}

/* The peer listens, and says something of what it has to say. */
static void say(struct queue *queue, struct stream *stream, struct choices *choices) {
  hear_host(queue);
  size_t rest = stream->size - stream->taken;
  size_t most = choose(choices, 3) ? rest : choose(choices, 300);
  size_t size = most < rest ? most : rest;
  const uint8_t *from = stream->bytes + stream->taken;
  ssize_t sent = send(queue->peer_fd, from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) stream->taken += (size_t)sent;
  if (stream->taken == stream->size) stream->taken = stream->size = 0;
}

static void keep_time(struct queue *queue, struct choices *choices) {
  queue->now_us += choose(choices, TIMEOUT_US);
  int32_t slot = 0;
  for (int i = 0; i <= SLOTS && slot >= 0; i++) slot = ps_host_overdue(queue->host, queue->now_us);
  FUZZ_CHECK(slot < 0);
  take_ended(queue);
  if (slot == -2) lose(queue);
  take_ended(queue);
}

static void step(struct queue *queue, struct stream *stream, struct choices *choices) {
  switch (choose(choices, 12)) {
    case 0:
      begin_batch(queue, choices);
      break;
    case 1:
      begin_single(queue, choices);
      break;
    case 2:
      keep_time(queue, choices);
      break;
    case 3:
      if (queue->batch == NULL || choose(choices, 4) != 0) break;
      ps_host_stop(&queue->work, queue->batch);
      drop_batch(queue);
      break;
    case 4:
      hear(queue, ps_host_send(queue->host, queue->now_us));
      break;
    case 5:
    case 6:
      hear(queue, ps_host_receive(queue->host, queue->now_us));
      break;
    case 7:
    case 8:
      say(queue, stream, choices);
      break;
    default:
      if (stream->size < sizeof stream->bytes / 2) build_one(queue, stream, choices);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static struct queue queue;
  static struct stream stream;
  struct choices choices = {bytes, size}, none = {NULL, 0};
  stream.size = stream.taken = 0;
  open_queue(&queue, &choices);
  if (choose(&choices, 32)) build_ic(&stream, false, queue.digests, 0, &none);
  while (choices.left > 0 && !queue.is_over) step(&queue, &stream, &choices);
  if (!queue.is_over) lose(&queue);
  take_ended(&queue);
  if (queue.batch != NULL) {
    ps_host_stop(&queue.work, queue.batch);
    drop_batch(&queue);
  }
  FUZZ_CHECK(queue.work.first == NULL && queue.work.waiting == 0);
  for (int i = 0; i < SLOTS; i++) free(queue.singles[i]);
  free(queue.memory);
  close(queue.fd);
  close(queue.peer_fd);
  return 0;
}

#ifdef FUZZ_STANDALONE
#include <signal.h>

static char seed_text[64];
static size_t seed_size;

static void tell(int number) {
  if (write(STDERR_FILENO, seed_text, seed_size) < 0) _exit(3);
  signal(number, SIG_DFL);
  raise(number);
}

int main(int count, char **arguments) {
  static uint8_t bytes[2048];
  unsigned long first = count > 1 ? strtoul(arguments[1], NULL, 0) : 1;
  unsigned long runs = count > 2 ? strtoul(arguments[2], NULL, 0) : 2000;
  signal(SIGABRT, tell);
  for (unsigned long i = 0; i < runs; i++) {
    int size = snprintf(seed_text, sizeof seed_text, "fuzz_queue: failed at seed %lu\n", first + i);
    seed_size = (size_t)size;
    uint64_t state = (first + i) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t at = 0; at < sizeof bytes; at++) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      bytes[at] = (uint8_t)(state >> 32);
    }
    LLVMFuzzerTestOneInput(bytes, 128 + (size_t)(state % (sizeof bytes - 128)));
  }
  printf("%lu inputs from seed %lu: ok\n", runs, first);
  return 0;
}
#endif
