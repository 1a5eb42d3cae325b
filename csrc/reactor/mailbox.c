/* Mailboxes: messages of the control thread, and wakes of other reactors. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "internal.h"

int mailbox_init(struct mailbox *mailbox) {
  assert(mailbox != NULL);
  mailbox->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (mailbox->event_fd < 0) return -errno;
  pthread_mutex_init(&mailbox->lock, NULL);
  list_init(&mailbox->messages);
  mailbox->woken = NULL;
  mailbox->is_signalled = false;
  return 0;
}

void mailbox_end(struct mailbox *mailbox) {
  assert(mailbox != NULL && mailbox->event_fd >= 0);
  for (struct link *link; (link = list_pop(&mailbox->messages)) != NULL;)
    free(CONTAINER(link, struct message, link));
  close(mailbox->event_fd);
  pthread_mutex_destroy(&mailbox->lock);
}

static void signal_event(struct mailbox *mailbox) {
  const uint64_t one = 1;
  ssize_t ignored = write(mailbox->event_fd, &one, sizeof one);
  (void)ignored;
}

void mailbox_signal(struct mailbox *mailbox) {
  assert(mailbox != NULL);
  pthread_mutex_lock(&mailbox->lock);
  bool must_signal = !mailbox->is_signalled;
  mailbox->is_signalled = true;
  pthread_mutex_unlock(&mailbox->lock);
  if (must_signal) signal_event(mailbox);
}

/* The message is the mailbox's from here on. */
void mailbox_post(struct mailbox *mailbox, struct message *message) {
  assert(mailbox != NULL && message != NULL);
  pthread_mutex_lock(&mailbox->lock);
  list_append(&mailbox->messages, &message->link);
  bool must_signal = !mailbox->is_signalled;
  mailbox->is_signalled = true;
  pthread_mutex_unlock(&mailbox->lock);
  if (must_signal) signal_event(mailbox);
}

/* The task is in no queue of the tier any more. No signal: see signal_others in pump.c. A task that
 * is here already stays here once. */
void mailbox_wake(struct mailbox *mailbox, struct task *task) {
  assert(mailbox != NULL && task != NULL);
  pthread_mutex_lock(&mailbox->lock);
  if (!task->is_posted) {
    task->is_posted = true;
    task->waiter.next = mailbox->woken;
    mailbox->woken = &task->waiter;
  }
  pthread_mutex_unlock(&mailbox->lock);
}

/* A task that ends: it may have been woken without having been run. */
void mailbox_forget(struct mailbox *mailbox, struct task *task) {
  assert(mailbox != NULL && task != NULL);
  pthread_mutex_lock(&mailbox->lock);
  struct ps_tier_waiter **place = &mailbox->woken;
  while (task->is_posted && *place != NULL && *place != &task->waiter) place = &(*place)->next;
  if (task->is_posted && *place != NULL) *place = task->waiter.next;
  task->is_posted = false;
  pthread_mutex_unlock(&mailbox->lock);
}

/* Empty the mailbox: the woken become ready tasks, the messages are carried out in order. */
void mailbox_drain(struct reactor *reactor) {
  assert(reactor != NULL);
  struct mailbox *mailbox = &reactor->mailbox;
  struct link messages;
  list_init(&messages);
  pthread_mutex_lock(&mailbox->lock);
  while (mailbox->woken != NULL) {
    struct task *task = CONTAINER(mailbox->woken, struct task, waiter);
    mailbox->woken = task->waiter.next;
    task->waiter.next = NULL;
    task->is_posted = false;
    task_ready(reactor, task);
  }
  list_move(&messages, &mailbox->messages);
  mailbox->is_signalled = false;
  pthread_mutex_unlock(&mailbox->lock);
  for (struct link *link; (link = list_pop(&messages)) != NULL;) {
    struct message *message = CONTAINER(link, struct message, link);
    message_handle(reactor, message);
    free(message);
  }
}
