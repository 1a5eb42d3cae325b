/* Fabrics and admin commands: up to the control plane as notices, and back as answers.
 *
 * A host that sends no data for its commands, or takes no answers, holds a bounded part of memory:
 * few commands of a connection may wait for data by R2T, and the answers that it was promised are
 * few bytes or one answer. Further commands wait; those that move no data never do.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum {
  FCTYPE = 4,
  SGL_LENGTH = 32,
  SGL_TYPE = 39,
  RECEIVING_MAX = 2,       /* commands that wait for data by R2T, of a connection */
  ANSWERS_MAX = 128 << 10, /* bytes promised to a connection, unless one alone is more */
  ZEROS = 64 << 10
};

/* How an opcode, or FCTYPE, says which way its data goes (Base 2.0, figure 86 and 6.3). */
enum { FROM_HOST = 0x01, TO_HOST = 0x02, DIRECTION = 0x03 };

static const uint8_t zeros[ZEROS];

static uint8_t direction(const uint8_t *sqe) {
  uint8_t kind = sqe[0] == PS_OP_FABRICS ? sqe[FCTYPE] : sqe[0];
  return le32(sqe + SGL_LENGTH) > 0 ? kind & DIRECTION : 0;
}

static void post(struct connection *connection, uint32_t slot) {
  notice_post(connection->reactor->core, &connection->admin[slot].node);
}

static bool take_pooled(struct ps_core *core, struct admin_command *admin) {
  if (atomic_fetch_sub(&core->admin_buffers, 1) <= 0) {
    atomic_fetch_add(&core->admin_buffers, 1);
    return false;
  }
  admin->data = malloc(ADMIN_DATA);
  admin->is_pooled = admin->data != NULL;
  if (!admin->is_pooled) atomic_fetch_add(&core->admin_buffers, 1);
  return admin->is_pooled;
}

static void give_buffer(struct ps_core *core, struct admin_command *admin) {
  if (admin->is_pooled) atomic_fetch_add(&core->admin_buffers, 1);
  admin->is_pooled = false;
  free(admin->data);
  admin->data = NULL;
}

/* Refuse what cannot go up: data in a place or of a size that no admin command has. */
static bool refuse(struct connection *connection, const struct ps_engine_event *event,
                   uint16_t status) {
  struct admin_command *admin = &connection->admin[event->slot];
  admin->is_used = true;
  if (event->data_length > 0) ps_engine_skip(connection->engine, event->slot);
  ps_engine_respond(connection->engine, event->slot, status | PS_DNR, 0, 0, NULL, 0, 0);
  connection_wants_output(connection);
  return true;
}

static uint16_t check_data(const struct ps_engine_event *event) {
  uint8_t type = event->entry[SGL_TYPE];
  if (type != PS_SGL_IN_CAPSULE && type != PS_SGL_TRANSPORT) return PS_SC_SGL_TYPE;
  if (type == PS_SGL_IN_CAPSULE && le64(event->entry + 24) != 0) return PS_SC_SGL_OFFSET;
  /* The engine has compared them only where PSDT says that this is an SGL. */
  uint32_t length = le32(event->entry + SGL_LENGTH);
  uint32_t in_capsule = type == PS_SGL_IN_CAPSULE ? length : 0;
  if (length > ADMIN_DATA || event->data_length != in_capsule) return PS_SC_SGL_LENGTH;
  return 0;
}

static void prepare(struct connection *connection, const struct ps_engine_event *event) {
  struct admin_command *admin = &connection->admin[event->slot];
  struct ps_notice *notice = &admin->node.notice;
  memset(notice, 0, sizeof *notice);
  notice->kind = PS_NOTICE_COMMAND;
  notice->connection = connection->id;
  notice->slot = event->slot;
  notice->qid = (uint16_t)connection->queue.qid;
  memcpy(notice->entry, event->entry, sizeof notice->entry);
  admin->is_used = true;
  admin->by_r2t = false;
  admin->length = admin->wanted = 0;
}

static void receive(struct connection *connection, uint32_t slot) {
  struct admin_command *admin = &connection->admin[slot];
  admin->iov = (struct iovec){.iov_base = admin->data, .iov_len = admin->length};
  ps_engine_take(connection->engine, slot, &admin->iov, 1, admin->length);
  connection_wants_output(connection);
}

static bool fits(const struct connection *connection, const struct admin_command *admin) {
  if (admin->by_r2t && connection->admin_receiving >= RECEIVING_MAX) return false;
  return connection->admin_answers == 0 || admin->wanted <= ANSWERS_MAX - connection->admin_answers;
}

static void begin(struct connection *connection, uint32_t slot) {
  struct admin_command *admin = &connection->admin[slot];
  connection->admin_answers += admin->wanted;
  if (!admin->by_r2t) {
    post(connection, slot);
    return;
  }
  connection->admin_receiving++;
  admin->data = malloc(ADMIN_DATA);
  if (admin->data == NULL) {
    connection_end(connection);
    return;
  }
  receive(connection, slot);
}

/* Begin what waits, in order. */
static void resume(struct connection *connection) {
  while (connection->state == CONNECTION_OPEN && !list_is_empty(&connection->admin_waiters)) {
    struct link *link = connection->admin_waiters.next;
    struct admin_command *admin = CONTAINER(link, struct admin_command, waiting);
    if (!fits(connection, admin)) return;
    list_pop(&connection->admin_waiters);
    begin(connection, (uint32_t)(admin - connection->admin));
  }
}

/* False when there is no buffer for its data now; call again with the same event. */
bool admin_start(struct connection *connection, const struct ps_engine_event *event) {
  struct admin_command *admin = &connection->admin[event->slot];
  assert(!admin->is_used && admin->data == NULL);
  uint8_t way = direction(event->entry);
  uint32_t length = le32(event->entry + SGL_LENGTH);
  bool is_inline = event->data_length > 0;
  uint16_t status = way == FROM_HOST || is_inline ? check_data(event) : 0;
  if (status != 0) return refuse(connection, event, status);
  if (way == FROM_HOST && is_inline) {
    if (!take_pooled(connection->reactor->core, admin)) return false;
    prepare(connection, event);
    admin->length = length;
    receive(connection, event->slot);
    return true;
  }
  prepare(connection, event);
  if (is_inline) ps_engine_skip(connection->engine, event->slot);
  admin->by_r2t = way == FROM_HOST;
  if (admin->by_r2t) admin->length = length;
  /* Nobody is answered with more than MDTS. */
  if (way == TO_HOST && length <= connection->reactor->core->config.max_transfer)
    admin->wanted = length;
  if (!admin->by_r2t && admin->wanted == 0) {
    post(connection, event->slot);
  } else {
    list_append(&connection->admin_waiters, &admin->waiting);
    resume(connection);
  }
  return true;
}

void admin_data(struct connection *connection, const struct ps_engine_event *event) {
  struct admin_command *admin = &connection->admin[event->slot];
  assert(admin->is_used && admin->data != NULL);
  admin->node.notice.data = admin->data;
  admin->node.notice.data_length = admin->length;
  admin->node.notice.digest_error = event->digest_error;
  post(connection, event->slot);
}

/* The answer's data for as long as it takes to send it: iovecs, then the bytes. Zeros at the end,
 * which most of a long log page is, are not kept. Returns the number of iovecs; 0: no memory. */
static uint32_t keep_answer(struct admin_command *admin, const struct message *message) {
  uint32_t kept = message->length;
  while (kept > 0 && message->data[kept - 1] == 0) kept--;
  uint32_t count = 1 + (message->length - kept + ZEROS - 1) / ZEROS;
  struct iovec *iov = malloc(count * sizeof *iov + kept);
  admin->answer = iov;
  if (iov == NULL) return 0;
  memcpy(iov + count, message->data, kept);
  iov[0] = (struct iovec){.iov_base = iov + count, .iov_len = kept};
  uint32_t left = message->length - kept;
  for (uint32_t i = 1; i < count; i++) {
    uint32_t size = left < ZEROS ? left : ZEROS;
    iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)zeros, .iov_len = size};
    left -= size;
  }
  assert(left == 0);
  return count;
}

void admin_answer(struct connection *connection, const struct message *message) {
  struct admin_command *admin = &connection->admin[message->slot];
  if (message->slot >= connection->reactor->core->config.queue_depth || !admin->is_used) return;
  give_buffer(connection->reactor->core, admin);
  uint32_t count = message->length > 0 ? keep_answer(admin, message) : 0;
  if (message->length > 0 && count == 0) {
    connection_end(connection);
    return;
  }
  ps_engine_respond(connection->engine, message->slot, message->status, message->dw0, message->dw1,
                    admin->answer, count, message->length);
  connection_wants_output(connection);
  if (!admin->by_r2t) return;
  admin->by_r2t = false;
  connection->admin_receiving--;
  resume(connection);
}

void admin_sent(struct connection *connection, uint32_t slot) {
  struct admin_command *admin = &connection->admin[slot];
  assert(admin->is_used && !link_is_in(&admin->waiting));
  assert(connection->admin_answers >= admin->wanted);
  free(admin->answer);
  admin->answer = NULL;
  admin->is_used = false;
  connection->admin_answers -= admin->wanted;
  admin->wanted = 0;
  resume(connection);
}

/* Runs in the control thread, with the connection unreachable. */
void admin_free(struct connection *connection) {
  struct ps_core *core = connection->reactor->core;
  for (uint32_t slot = 0; slot < core->config.queue_depth; slot++) {
    give_buffer(core, &connection->admin[slot]);
    free(connection->admin[slot].answer);
  }
}
