/* Notices: from the reactors to the control thread, in order, never lost but for I/O errors; those
 * of warm events come after all others. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

enum { WORD_BITS = 64 };

static uint32_t tenant_words(const struct ps_core *core) {
  return (core->config.tenant_count + WORD_BITS - 1) / WORD_BITS;
}

/* False when memory is short. */
bool notice_init(struct ps_core *core) {
  pthread_mutex_init(&core->notice_lock, NULL);
  list_init(&core->notices);
  list_init(&core->consumed);
  core->warm_tenants = calloc(tenant_words(core), sizeof *core->warm_tenants);
  return core->warm_tenants != NULL;
}

static bool is_empty(const struct ps_core *core) {
  return list_is_empty(&core->notices) && core->error_count == 0 && core->warm_count == 0;
}

void notice_wake(struct ps_core *core) {
  const uint64_t one = 1;
  /* A full counter is readable all the same, so a failed write loses nothing. */
  ssize_t ignored = write(core->wake_fd, &one, sizeof one);
  (void)ignored;
}

/* A reactor may hold the core's lock: it wakes at the end of its pass (signal_others). */
static void wake_control(struct ps_core *core) {
  struct reactor *reactor = reactor_current();
  if (reactor != NULL)
    reactor->must_wake_control = true;
  else
    notice_wake(core);
}

/* The node belongs to the queue until the control thread took it. */
void notice_post(struct ps_core *core, struct notice_node *node) {
  assert(core != NULL && node != NULL);
  assert(node->notice.kind != 0);
  pthread_mutex_lock(&core->notice_lock);
  bool was_empty = is_empty(core);
  list_append(&core->notices, &node->link);
  pthread_mutex_unlock(&core->notice_lock);
  if (was_empty) wake_control(core);
}

/* A notice that stands in no longer-lived structure: control-path only, so it may allocate. */
void notice_send(struct ps_core *core, const struct ps_notice *notice) {
  assert(core != NULL && notice != NULL);
  struct notice_node *node = calloc(1, sizeof *node);
  if (node == NULL) abort(); /* Forty bytes on the control path: nothing sensible is left to do. */
  node->notice = *notice;
  node->is_allocated = true;
  notice_post(core, node);
}

/* Data path: a bounded ring, the newest is dropped when the control thread is behind. */
void notice_io_error(struct ps_core *core, const struct ps_notice *notice) {
  assert(core != NULL && notice->kind == PS_NOTICE_IO_ERROR);
  bool was_empty = false;
  pthread_mutex_lock(&core->notice_lock);
  if (core->error_count < ERROR_NOTICES) {
    was_empty = is_empty(core);
    uint32_t at = (core->error_head + core->error_count++) % ERROR_NOTICES;
    core->error_notices[at] = *notice;
  } else {
    core->notices_lost++;
  }
  pthread_mutex_unlock(&core->notice_lock);
  if (was_empty) wake_control(core);
}

/* Data path: one is outstanding of each tenant at most, so none is lost. */
void notice_warm_event(struct ps_core *core, uint16_t tenant) {
  assert(core != NULL && tenant < core->config.tenant_count);
  uint64_t *word = &core->warm_tenants[tenant / WORD_BITS];
  uint64_t bit = UINT64_C(1) << tenant % WORD_BITS;
  pthread_mutex_lock(&core->notice_lock);
  bool was_empty = is_empty(core);
  if ((*word & bit) == 0) core->warm_count++;
  *word |= bit;
  pthread_mutex_unlock(&core->notice_lock);
  if (was_empty) wake_control(core);
}

/* The notice of a tenant whose log is not empty; there is one. */
static void take_warm_event(struct ps_core *core, struct ps_notice *notice) {
  uint32_t word = 0;
  while (core->warm_tenants[word] == 0) word++;
  assert(word < tenant_words(core) && core->warm_count > 0);
  uint32_t bit = (uint32_t)__builtin_ctzll(core->warm_tenants[word]);
  core->warm_tenants[word] &= core->warm_tenants[word] - 1;
  core->warm_count--;
  *notice =
      (struct ps_notice){.kind = PS_NOTICE_WARM_EVENT, .result = (int32_t)(word * WORD_BITS + bit)};
}

/* Free what the control thread has seen in its previous batch: until now it could still read the
 * data of a COMMAND whose connection was reported CLOSED right after it. */
void notice_release(struct ps_core *core) {
  assert(core != NULL);
  for (struct link *link; (link = list_pop(&core->consumed)) != NULL;) {
    struct notice_node *node = CONTAINER(link, struct notice_node, link);
    if (node->is_allocated)
      free(node);
    else
      connection_free(CONTAINER(node, struct connection, closed));
  }
}

/* Notices that nobody will read: those that stand in connections go before these do. */
void notice_end(struct ps_core *core) {
  assert(core != NULL);
  notice_release(core);
  struct link *end = &core->notices;
  for (struct link *link = end->next, *next; link != end; link = next) {
    next = link->next;
    struct notice_node *node = CONTAINER(link, struct notice_node, link);
    if (node->is_allocated) free(node);
  }
  list_init(end);
  free(core->warm_tenants);
}

/* Take one notice; true when there was one. */
static bool take(struct ps_core *core, struct ps_notice *notice) {
  pthread_mutex_lock(&core->notice_lock);
  struct notice_node *node = NULL;
  bool found = true;
  if (core->error_count > 0) {
    *notice = core->error_notices[core->error_head];
    core->error_head = (core->error_head + 1) % ERROR_NOTICES;
    core->error_count--;
  } else if (!list_is_empty(&core->notices)) {
    node = CONTAINER(core->notices.next, struct notice_node, link);
    list_remove(&node->link);
    *notice = node->notice;
  } else if (core->warm_count > 0) {
    take_warm_event(core, notice);
  } else {
    found = false;
  }
  pthread_mutex_unlock(&core->notice_lock);
  if (node == NULL) return found;
  if (notice->kind == PS_NOTICE_CLOSED) {
    struct connection *connection = CONTAINER(node, struct connection, closed);
    core->connections[(connection->id & 0xffff) - 1] = NULL;
    core->connection_count--;
    list_append(&core->consumed, &node->link);
  } else if (node->is_allocated) {
    list_append(&core->consumed, &node->link);
  }
  return true;
}

int ps_core_notices(struct ps_core *core, struct ps_notice *notices, int most) {
  assert(core != NULL && notices != NULL);
  assert(most > 0);
  uint64_t count;
  ssize_t ignored = read(core->wake_fd, &count, sizeof count);
  (void)ignored;
  notice_release(core);
  int taken = 0;
  while (taken < most && take(core, &notices[taken])) taken++;
  if (taken == most) notice_wake(core);
  return taken;
}

uint64_t notice_lost(struct ps_core *core) {
  assert(core != NULL);
  pthread_mutex_lock(&core->notice_lock);
  uint64_t lost = core->notices_lost;
  pthread_mutex_unlock(&core->notice_lock);
  return lost;
}

int ps_core_wake_fd(struct ps_core *core) {
  assert(core != NULL && core->wake_fd >= 0);
  return core->wake_fd;
}
