/* Fabrics and admin commands: up to the control plane as notices, and back as answers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { FCTYPE = 4, FCTYPE_CONNECT = 0x01, FCTYPE_AUTH_SEND = 0x05, SGL_LENGTH = 32, SGL_TYPE = 39 };

/* Whether the host sends data: bits 1:0 of the opcode, or of FCTYPE (Base 2.0, figure 86 and
 * 6.3). */
static bool has_host_data(const uint8_t *sqe) {
  uint8_t kind = sqe[0] == PS_OP_FABRICS ? sqe[FCTYPE] : sqe[0];
  return (kind & 0x03) == 0x01 && le32(sqe + SGL_LENGTH) > 0;
}

static void post(struct connection *connection, uint32_t slot) {
  notice_post(connection->reactor->core, &connection->admin[slot].node);
}

static bool take_buffer(struct ps_core *core, struct admin_command *admin) {
  if (atomic_fetch_sub(&core->admin_buffers, 1) <= 0) {
    atomic_fetch_add(&core->admin_buffers, 1);
    return false;
  }
  admin->data = malloc(ADMIN_DATA);
  if (admin->data != NULL) return true;
  atomic_fetch_add(&core->admin_buffers, 1);
  return false;
}

static void give_buffer(struct ps_core *core, struct admin_command *admin) {
  if (admin->data == NULL) return;
  free(admin->data);
  admin->data = NULL;
  atomic_fetch_add(&core->admin_buffers, 1);
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
  if (le32(event->entry + SGL_LENGTH) > ADMIN_DATA) return PS_SC_SGL_LENGTH;
  return 0;
}

/* False when there is no buffer for its data now; call again with the same event. */
bool admin_start(struct connection *connection, const struct ps_engine_event *event) {
  struct admin_command *admin = &connection->admin[event->slot];
  assert(!admin->is_used && admin->data == NULL);
  bool wants_data = has_host_data(event->entry);
  uint16_t status = wants_data || event->data_length > 0 ? check_data(event) : 0;
  if (status != 0) return refuse(connection, event, status);
  if (wants_data && !take_buffer(connection->reactor->core, admin)) return false;
  struct ps_notice *notice = &admin->node.notice;
  memset(notice, 0, sizeof *notice);
  notice->kind = PS_NOTICE_COMMAND;
  notice->connection = connection->id;
  notice->slot = event->slot;
  notice->qid = (uint16_t)connection->queue.qid;
  memcpy(notice->entry, event->entry, sizeof notice->entry);
  admin->is_used = true;
  if (!wants_data) {
    if (event->data_length > 0) ps_engine_skip(connection->engine, event->slot);
    post(connection, event->slot);
    return true;
  }
  admin->length = le32(event->entry + SGL_LENGTH);
  admin->iov = (struct iovec){.iov_base = admin->data, .iov_len = admin->length};
  ps_engine_take(connection->engine, event->slot, &admin->iov, 1, admin->length);
  connection_wants_output(connection);
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

/* The answer's data moves into the command, to stay until it is sent. */
void admin_answer(struct connection *connection, const struct message *message) {
  struct admin_command *admin = &connection->admin[message->slot];
  if (message->slot >= connection->reactor->core->config.queue_depth || !admin->is_used) return;
  give_buffer(connection->reactor->core, admin);
  if (message->length > 0) {
    admin->answer = malloc(message->length);
    if (admin->answer == NULL) {
      connection_end(connection);
      return;
    }
    memcpy(admin->answer, message->data, message->length);
    admin->answer_iov = (struct iovec){.iov_base = admin->answer, .iov_len = message->length};
  }
  ps_engine_respond(connection->engine, message->slot, message->status, message->dw0, message->dw1,
                    &admin->answer_iov, message->length > 0 ? 1 : 0, message->length);
  connection_wants_output(connection);
}

void admin_sent(struct connection *connection, uint32_t slot) {
  struct admin_command *admin = &connection->admin[slot];
  assert(admin->is_used);
  free(admin->answer);
  admin->answer = NULL;
  admin->is_used = false;
}

/* Runs in the control thread, with the connection unreachable. */
void admin_free(struct connection *connection) {
  struct ps_core *core = connection->reactor->core;
  for (uint32_t slot = 0; slot < core->config.queue_depth; slot++) {
    give_buffer(core, &connection->admin[slot]);
    free(connection->admin[slot].answer);
  }
}
