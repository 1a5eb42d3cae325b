/* The reactor's loop: one thread, one wait point for its sockets, its media and its mailbox. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { EVENTS = 128, SECOND_NS = 1000000000, MOMENT_NS = 1000000 };
enum { TURNS_SHARE = 8 }; /* of the time of a pass, one part for what is patient */

/* What an epoll tag points at, in its low bits (all are at least 8-aligned). */
enum {
  TAG_CONNECTION = 0,
  TAG_MAILBOX = 1,
  TAG_VOLUME = 2,
  TAG_ORDERS = 3,
  TAG_TIMER = 4,
  TAG_MASK = 7
};

uint64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Look at the clock in the midst of a pass. */
void reactor_tell_time(struct reactor *reactor) {
  assert(reactor != NULL);
  uint64_t before = reactor->now_ns;
  reactor->now_ns = monotonic_ns();
  reactor->stats.busy_ns += reactor->now_ns - before;
}

int reactor_watch(struct reactor *reactor, int fd, void *tag, uint32_t events) {
  assert(reactor != NULL && fd >= 0);
  struct epoll_event event = {.events = events, .data.ptr = tag};
  return epoll_ctl(reactor->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

int volume_watch(struct reactor *reactor, struct volume *volume, int fd) {
  assert(volume != NULL && volume->reactor == reactor);
  return reactor_watch(reactor, fd, (char *)volume + TAG_VOLUME, EPOLLIN);
}

void task_ready(struct reactor *reactor, struct task *task) {
  assert(reactor != NULL && task != NULL);
  assert(task->waiter.owner == reactor->number);
  if (!link_is_in(&task->ready)) list_append(&reactor->tasks, &task->ready);
}

void task_later(struct reactor *reactor, struct task *task) {
  assert(reactor != NULL && task != NULL);
  assert(task->waiter.owner == reactor->number);
  if (!link_is_in(&task->ready)) list_append(&reactor->patient, &task->ready);
}

static bool has_work(const struct reactor *reactor) {
  return !list_is_empty(&reactor->ready) || !list_is_empty(&reactor->tasks) ||
         !list_is_empty(&reactor->patient) || !list_is_empty(&reactor->output) ||
         reactor->tier_changed || reactor->ended != NULL || reactor->must_signal != 0 ||
         pump_is_wanted(reactor) || pump_has_orders(reactor);
}

/* When the reactor has something to do although nothing happens. */
static uint64_t next_time(struct reactor *reactor) {
  uint64_t next = reactor->next_second_ns;
  for (uint32_t i = 0; i < reactor->volume_count; i++) {
    uint64_t time = ps_media_next_time(reactor->volumes[i]->media);
    if (time < next) next = time;
  }
  uint64_t pump_time = pump_next_time(reactor);
  if (pump_time < next) next = pump_time;
  if (!list_is_empty(&reactor->starved) && reactor->now_ns + MOMENT_NS < next)
    next = reactor->now_ns + MOMENT_NS;
  return next;
}

static void note_event(struct reactor *reactor, const struct epoll_event *event) {
  uintptr_t tagged = (uintptr_t)event->data.ptr;
  uint64_t count;
  if ((tagged & TAG_MASK) == TAG_MAILBOX) {
    ssize_t ignored = read(reactor->mailbox.event_fd, &count, sizeof count);
    (void)ignored;
  } else if ((tagged & TAG_MASK) == TAG_CONNECTION) {
    struct connection *connection = event->data.ptr;
    if (event->events & EPOLLOUT) connection->is_writable = true;
    if (event->events & ~(uint32_t)EPOLLOUT) connection->is_readable = true;
    if (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) connection->is_hanging_up = true;
    connection_resume(connection);
  }
}

/* Have the timer ring at `next` at the latest. It is told only when it would ring too late: each
 * time costs more than a wait, and most waits end before their time. */
static void set_timer(struct reactor *reactor, uint64_t next) {
  bool is_set = reactor->timer_ns > reactor->now_ns;
  if (is_set && reactor->timer_ns <= next) return;
  const struct itimerspec time = {
      .it_value = {.tv_sec = (time_t)(next / SECOND_NS), .tv_nsec = (long)(next % SECOND_NS)}};
  reactor->timer_ns = next;
  int result = timerfd_settime(reactor->timer_fd, TFD_TIMER_ABSTIME, &time, NULL);
  assert(result == 0);
  (void)result;
}

/* Note what has happened, or happens within the time (milliseconds; -1: until the timer rings). */
static int wait_events(struct reactor *reactor, int timeout_ms) {
  struct epoll_event events[EVENTS];
  int count = epoll_wait(reactor->epoll_fd, events, EVENTS, timeout_ms);
  reactor->stats.wait_calls++;
  reactor->now_ns = monotonic_ns();
  for (int i = 0; i < count; i++) note_event(reactor, &events[i]);
  return count;
}

/* Sleep, or poll within the configured bound first. */
static void wait_for_work(struct reactor *reactor) {
  reactor_tell_time(reactor);
  if (has_work(reactor)) {
    wait_events(reactor, 0);
    return;
  }
  uint64_t next = next_time(reactor);
  uint64_t poll_until = reactor->now_ns + reactor->core->config.poll_ns;
  while (reactor->now_ns < poll_until && reactor->now_ns < next)
    if (wait_events(reactor, 0) > 0) return;
  if (reactor->now_ns >= next) {
    wait_events(reactor, 0);
    return;
  }
  set_timer(reactor, next);
  wait_events(reactor, -1);
}

static void serve_connections(struct reactor *reactor) {
  list_move(&reactor->serving, &reactor->ready);
  for (struct link *link; (link = list_pop(&reactor->serving)) != NULL;) {
    connection_receive(CONTAINER(link, struct connection, ready));
  }
}

static void serve_media(struct reactor *reactor) {
  for (uint32_t i = 0; i < reactor->volume_count; i++)
    ps_media_poll(reactor->volumes[i]->media, reactor->now_ns);
  media_ended(reactor);
  volume_retry(reactor);
}

/* Run what was woken; what these wake in turn waits for the next pass. */
static void run_tasks(struct reactor *reactor) {
  list_move(&reactor->serving, &reactor->tasks);
  for (struct link *link; (link = list_pop(&reactor->serving)) != NULL;) {
    struct task *task = CONTAINER(link, struct task, ready);
    task->run(reactor, task);
  }
}

/* Those that wait for others have a turn when these have their answers, one of them; more when the
 * pass took long, so that they get some share of it. What comes of it goes out with the next pass,
 * which is at once. */
static void give_turns(struct reactor *reactor, uint64_t pass_ns) {
  if (list_is_empty(&reactor->patient)) return;
  uint64_t now_ns = monotonic_ns();
  uint64_t until_ns = now_ns + (now_ns - pass_ns) / TURNS_SHARE;
  reactor->has_turn = true;
  do {
    struct task *task = CONTAINER(list_pop(&reactor->patient), struct task, ready);
    task->run(reactor, task);
  } while (!list_is_empty(&reactor->patient) && monotonic_ns() < until_ns);
  reactor->has_turn = false;
}

static void send_outputs(struct reactor *reactor) {
  list_move(&reactor->serving, &reactor->output);
  for (struct link *link; (link = list_pop(&reactor->serving)) != NULL;) {
    connection_send(CONTAINER(link, struct connection, output));
  }
}

/* Once a second: connections that have not said who they are, or do not go; waiting for memory. */
static void look_after(struct reactor *reactor) {
  uint64_t limit = reactor->core->config.handshake_timeout_ns;
  bool is_short = share_is_short(reactor->core);
  struct link *next;
  for (struct link *link = reactor->connections.next; link != &reactor->connections; link = next) {
    next = link->next;
    struct connection *connection = CONTAINER(link, struct connection, all);
    share_check(connection, is_short);
    connection_check_time(connection, limit);
  }
  volume_bury(reactor);
  reactor->next_second_ns = reactor->now_ns + SECOND_NS;
}

static void retry_starved(struct reactor *reactor) {
  for (struct link *link; (link = list_pop(&reactor->starved)) != NULL;)
    connection_resume(CONTAINER(link, struct connection, starved));
}

static void pass(struct reactor *reactor) {
  uint64_t pass_ns = reactor->now_ns;
  mailbox_drain(reactor);
  retry_starved(reactor);
  serve_connections(reactor);
  serve_media(reactor);
  if (pump_has_orders(reactor)) reactor->tier_changed = true; /* once a pass, for the pump */
  pump(reactor);
  run_tasks(reactor);
  pump(reactor);
  send_outputs(reactor);
  give_turns(reactor, pass_ns);
  if (reactor->now_ns >= reactor->next_second_ns) look_after(reactor);
  connections_tell_finished(reactor);
  signal_others(reactor);
}

static _Thread_local struct reactor *current;

struct reactor *reactor_current(void) { return current; }

void *reactor_main(void *argument) {
  struct reactor *reactor = argument;
  assert(reactor != NULL && reactor->core != NULL);
  current = reactor;
  char name[16];
  snprintf(name, sizeof name, "reactor-%u", reactor->number);
  pthread_setname_np(pthread_self(), name);
  reactor->now_ns = monotonic_ns();
  reactor->next_second_ns = reactor->now_ns + SECOND_NS;
  reactor_watch(reactor, reactor->mailbox.event_fd, (char *)reactor + TAG_MAILBOX, EPOLLIN);
  /* It only ends a wait: that it has rung need not be read. */
  reactor_watch(reactor, reactor->timer_fd, (char *)reactor + TAG_TIMER, EPOLLIN | EPOLLET);
  /* Each signal of the model is an event, and none is read: the description is the model's as well,
   * which may read it first, or make reads block. The pump looks whether there are orders. */
  if (reactor->number == 0 && reactor->core->orders_wake_fd >= 0)
    reactor_watch(reactor, reactor->core->orders_wake_fd, (char *)reactor + TAG_ORDERS,
                  EPOLLIN | EPOLLET);
  while (!reactor->stop) {
    wait_for_work(reactor);
    pass(reactor);
  }
  while (!list_is_empty(&reactor->connections))
    connection_abandon(CONTAINER(reactor->connections.next, struct connection, all));
  connections_tell_finished(reactor);
  /* No host is told of errors that only the end of a medium makes. */
  pthread_barrier_wait(&reactor->core->connections_are_gone);
  while (reactor->volume_count > 0) volume_abandon(reactor, reactor->volumes[0]);
  signal_others(reactor);
  return NULL;
}
