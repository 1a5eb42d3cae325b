/* What a reactor does with each message of the control thread. */
#include <assert.h>
#include <errno.h>

#include "internal.h"

/* The connection a message is for, or NULL when it is gone or going. */
static struct connection *find(struct reactor *reactor, uint32_t id) {
  struct connection *connection = reactor->by_index[(id & 0xffff) - 1];
  if (connection == NULL || connection->id != id) return NULL;
  return connection->state == CONNECTION_OPEN ? connection : NULL;
}

static void reply(struct message *message, int result) {
  assert(message->reply != NULL);
  message->reply->result = result;
  sem_post(&message->reply->done);
}

static void abort_command(struct reactor *reactor, struct connection *connection,
                          const struct message *message) {
  int32_t slot = -1;
  if (connection != NULL && connection->queue.qid != 0)
    slot = ps_engine_find(connection->engine, message->cid);
  bool ended = slot >= 0 && command_abort(connection, (uint32_t)slot);
  notice_send(reactor->core, &(struct ps_notice){.kind = PS_NOTICE_ABORTED,
                                                 .connection = message->connection,
                                                 .cookie = message->cookie,
                                                 .result = ended ? 1 : 0});
}

static void quiesce(struct connection *connection, const struct message *message) {
  connection->wants_quiet = true;
  connection->quiet_cookie = message->cookie;
  connection_check_quiet(connection);
}

static void for_connection(struct connection *connection, const struct message *message) {
  switch (message->kind) {
    case MESSAGE_BIND:
      connection_bind(connection, &message->queue);
      break;
    case MESSAGE_ENABLE:
      connection->queue.enabled = message->flag != 0;
      break;
    case MESSAGE_ANSWER:
      admin_answer(connection, message);
      break;
    case MESSAGE_QUIESCE:
      quiesce(connection, message);
      break;
    case MESSAGE_CLOSE:
      if (message->flag == 0) {
        connection_end(connection);
      } else {
        connection->close_after_output = true;
        connection_wants_output(connection);
      }
      break;
    default:
      assert(false);
  }
}

void message_handle(struct reactor *reactor, struct message *message) {
  assert(reactor != NULL && message != NULL);
  struct connection *connection;
  switch (message->kind) {
    case MESSAGE_ADOPT:
      connection_open(reactor, message->opened);
      break;
    case MESSAGE_VOLUME_START:
      reply(message, volume_start(reactor, message->volume));
      break;
    case MESSAGE_VOLUME_RESIZE:
      reply(message, volume_resize(reactor, message->volume, message->size));
      break;
    case MESSAGE_VOLUME_CONTROL:
      reply(message, volume_control(message->volume, message));
      break;
    case MESSAGE_VOLUME_FLUSH:
    case MESSAGE_VOLUME_CLOSE:
      volume_task_start(reactor, message);
      message->volume->messages--;
      break;
    case MESSAGE_ABORT:
      abort_command(reactor, find(reactor, message->connection), message);
      break;
    case MESSAGE_STATS:
      *message->stats = reactor->stats;
      reply(message, 0);
      break;
    case MESSAGE_STOP:
      reactor->stop = true;
      break;
    default:
      connection = find(reactor, message->connection);
      if (connection != NULL) for_connection(connection, message);
  }
}
