/* Volumes: opening, and the flush and close that the control plane asks for. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define LEAVE_INTENTS 64 /* of a volume that goes, cancelled while the lock is held once */

/* ---- in the owner's thread ---- */

/* What the medium says of itself now. */
static void take_limits(struct volume *volume) {
  struct ps_media_limits limits;
  ps_media_get_limits(volume->media, &limits);
  core_lock(volume->core);
  volume->limits = limits;
  core_unlock(volume->core);
}

int volume_start(struct reactor *reactor, struct volume *volume) {
  assert(volume->reactor == reactor && !volume->is_started);
  int error = ps_media_start(volume->media);
  if (error != 0) return error > 0 ? -error : error;
  take_limits(volume);
  int fd = ps_media_wait_fd(volume->media);
  if (fd >= 0 && (error = volume_watch(reactor, volume, fd)) != 0) return error;
  reactor->volumes[reactor->volume_count++] = volume;
  core_lock(volume->core);
  volume->is_started = true;
  volume->has_jobs = true; /* whoever opened it told them */
  volume_want(reactor, volume);
  core_unlock(volume->core);
  return 0;
}

/* Hints and orders know the volume's scheduler; NULL: they forget it, and it has no jobs any more.
 * The lock is held. */
void volume_tell(struct volume *volume, uint64_t now_ns, struct ps_sched *sched) {
  assert(volume != NULL);
  struct ps_core *core = volume->core;
  ps_hints_volume(core->hints, now_ns, volume->number, sched);
  if (core->orders != NULL)
    ps_orders_volume(core->orders, now_ns, volume->number, sched, sched == NULL ? 0 : volume->size);
}

static int set_size(struct ps_core *core, struct volume *volume, uint64_t size) {
  int error = ps_tier_volume_resize(core->tier, volume->number, size);
  if (error != 0) return error;
  volume->size = size;
  if (volume->has_jobs) volume_tell(volume, volume->reactor->now_ns, volume->sched);
  return 0;
}

/* Media operations that were handed out and have not ended; with `beyond`, those alone that reach
 * past it. The lock is held. */
uint32_t volume_work(const struct ps_core *core, const struct volume *volume, uint64_t beyond) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < MEDIA_OPS; i++) {
    const struct media_op *op = &core->ops[i];
    if (op->volume != volume) continue;
    bool reaches = op->item.op != PS_MEDIA_SYNC && op->item.offset + op->item.length > beyond;
    if (beyond == 0 || reaches) count++;
  }
  return count;
}

/* The volume ends at `size` for its commands and for the tier; -EBUSY while its medium still works
 * beyond: a write that ends after the cut would bring the old bytes back. */
static int cut(struct ps_core *core, struct volume *volume, uint64_t size) {
  if (volume->limits.size_is_fixed) return -EINVAL;
  core_lock(core);
  int error = volume->size > size ? set_size(core, volume, size) : 0;
  if (error == 0 && volume_work(core, volume, size) > 0) error = -EBUSY;
  core_unlock(core);
  return error;
}

int volume_resize(struct reactor *reactor, struct volume *volume, uint64_t size) {
  struct ps_core *core = reactor->core;
  assert(volume->reactor == reactor);
  if (!volume->is_started) return -ENOENT;
  int error = 0;
  if (size != 0 && size < volume->limits.size) error = cut(core, volume, size);
  reactor->tier_changed = true;
  if (error != 0) return error;
  error = ps_media_resize(volume->media, size);
  if (error == 0) take_limits(volume);
  core_lock(core);
  int tier_error = set_size(core, volume, volume->limits.size);
  core_unlock(core);
  if (error == 0) error = tier_error;
  return error > 0 ? -error : error;
}

int volume_control(struct volume *volume, const struct message *message) {
  if (!volume->is_started) return -ENOENT;
  return ps_media_control(volume->media, message->text[0], message->text[1], message->error,
                          message->error_size);
}

/* The operations of an abandoned volume end here. The kernel may still use the frames of those that
 * the medium has: nobody gets these any more. */
static void abandon_ops(struct reactor *reactor, struct volume *volume) {
  struct ps_core *core = reactor->core;
  core_lock(core);
  ps_tier_volume_resize(core->tier, volume->number, 0);
  volume->size = 0;
  for (uint32_t i = 0; i < MEDIA_OPS; i++) {
    struct media_op *op = &core->ops[i];
    if (op->volume != volume) continue;
    if (op->is_submitted && op->buffer != NULL) {
      size_t inside = (size_t)(op->buffer - core->frames);
      ps_tier_reference(core->tier, (uint32_t)(inside / core->config.slot_size));
      core->keeps_frames = true;
    }
    op_cancel(reactor, op);
  }
  core_unlock(core);
  reactor->tier_changed = true;
}

/* Takes a dead volume out of the tier; false while commands or frames of it are left. Lock held. */
static bool is_gone(const struct volume *volume) {
  if (volume->stats.in_flight > 0) return false;
  return ps_tier_volume_remove(volume->core->tier, volume->number) == 0;
}

/* The lock is held. */
static void forget_jobs(struct reactor *reactor, struct volume *volume) {
  if (!volume->has_jobs) return;
  volume->has_jobs = false;
  volume_tell(volume, reactor->now_ns, NULL);
  reactor->tier_changed = true;
}

/* The same, a few intents each time that it is called; true when it is done. The lock is held. */
static bool forget_some_jobs(struct reactor *reactor, struct volume *volume) {
  volume->is_leaving = true;
  reactor->tier_changed = true;
  if (!ps_hints_leave(volume->core->hints, reactor->now_ns, volume->number, LEAVE_INTENTS))
    return false;
  forget_jobs(reactor, volume);
  return true;
}

/* The medium is closed and the volume's number free again. */
static void close_volume(struct reactor *reactor, struct volume *volume, bool abandon) {
  struct ps_core *core = reactor->core;
  uint32_t at = 0;
  while (at < reactor->volume_count && reactor->volumes[at] != volume) at++;
  assert(at < reactor->volume_count);
  reactor->volumes[at] = reactor->volumes[--reactor->volume_count];
  media_ended(reactor);
  core_lock(core);
  volume->is_dead = abandon;
  forget_jobs(reactor, volume);
  core_unlock(core);
  ps_media_close(volume->media, abandon);
  if (abandon) abandon_ops(reactor, volume);
  struct ps_sched *sched = volume->sched;
  core_lock(core);
  volume->media = NULL;
  volume->sched = NULL;
  volume->is_started = false;
  /* Said before it is closed: whoever opens one takes no lock to find a free number. What somebody
   * still reads from or sends keeps the number from being used again. */
  if (abandon) volume->is_dead = !is_gone(volume);
  if (volume->is_dead) {
    volume->next_dead = reactor->dead;
    reactor->dead = volume;
  }
  volume->is_open = false;
  core_unlock(core);
  ps_sched_free(sched);
}

/* The task that runs waits for nothing any more. */
static void forget_task(struct reactor *reactor, struct volume *volume) {
  struct volume_task *task = volume->task;
  if (task == NULL) return;
  core_lock(reactor->core);
  ps_tier_forget(reactor->core->tier, &task->task.waiter);
  core_unlock(reactor->core);
  if (link_is_in(&task->task.ready)) list_remove(&task->task.ready);
  mailbox_forget(&reactor->mailbox, &task->task);
}

/* At the reactor's end. A medium that has nothing under way is closed like any other. */
void volume_abandon(struct reactor *reactor, struct volume *volume) {
  assert(volume->reactor == reactor);
  forget_task(reactor, volume);
  while (volume->task != NULL) {
    struct volume_task *task = volume->task;
    volume->task = task->next;
    free(task);
  }
  core_lock(reactor->core);
  bool is_busy = volume_work(reactor->core, volume, 0) > 0;
  core_unlock(reactor->core);
  close_volume(reactor, volume, is_busy);
}

/* ---- flush and close ---- */

static void task_end(struct reactor *reactor, struct volume_task *task, int result) {
  struct volume *volume = task->volume;
  struct ps_core *core = reactor->core;
  struct ps_notice notice = {.kind = task->is_close ? PS_NOTICE_VOLUME_CLOSED : PS_NOTICE_FLUSHED,
                             .volume = volume->number,
                             .cookie = task->cookie,
                             .result = result};
  if (task->is_close) {
    core_lock(core);
    notice.lba = ps_tier_unflushed(core->tier, volume->number);
    core_unlock(core);
  }
  notice_send(core, &notice);
}

/* While it waits, hosts that hold frames of it are watched (share.c). Lock held. */
static void count_removal(struct ps_core *core, struct volume_task *task, bool waits) {
  if (waits && !task->is_counted) core->removals++;
  if (!waits && task->is_counted) core->removals--;
  task->is_counted = waits;
}

/* Take the volume out of the tier and close it; tried again later while media work is under way.
 * Once it is closed its number may be opened again in another thread: nothing of it is touched
 * after that. */
static void remove_volume(struct reactor *reactor, struct volume_task *task, int result) {
  struct ps_core *core = reactor->core;
  struct volume *volume = task->volume;
  const uint32_t number = volume->number, cookie = task->cookie;
  core_lock(core);
  if (!forget_some_jobs(reactor, volume)) { /* else their fills would keep it busy */
    core_unlock(core);
    task_ready(reactor, &task->task);
    return;
  }
  uint64_t lost = ps_tier_unflushed(core->tier, volume->number);
  /* Also what commands have the medium do themselves: an abandoned volume may still be mapped. */
  bool is_busy = volume_work(core, volume, 0) > 0 || volume->stats.in_flight > 0;
  int error = is_busy ? -EBUSY : ps_tier_volume_remove(core->tier, volume->number);
  count_removal(core, task, error == -EBUSY && !task->abandon);
  core_unlock(core);
  if (error == -EBUSY && !task->abandon) return;
  while (task->next != NULL) {
    struct volume_task *behind = task->next;
    task_end(reactor, behind, ENODEV);
    task->next = behind->next;
    free(behind);
  }
  volume->task = NULL;
  close_volume(reactor, volume, task->abandon && error != 0);
  free(task);
  notice_send(core, &(struct ps_notice){.kind = PS_NOTICE_VOLUME_CLOSED,
                                        .volume = number,
                                        .cookie = cookie,
                                        .result = result,
                                        .lba = lost});
}

static void next_task(struct reactor *reactor, struct volume *volume) {
  struct volume_task *task = volume->task;
  volume->task = task->next;
  free(task);
  if (volume->task != NULL) task_ready(reactor, &volume->task->task);
}

static void task_run(struct reactor *reactor, struct task *base) {
  struct volume_task *task = CONTAINER(base, struct volume_task, task);
  struct volume *volume = task->volume;
  struct ps_core *core = reactor->core;
  int result = PS_TIER_DONE, error = 0;
  if (volume->task != task) return;
  if (!task->is_flushed && !task->abandon) {
    core_lock(core);
    result = ps_tier_flush(core->tier, reactor->now_ns, volume->number, 0, UINT64_MAX, true,
                           &base->waiter);
    core_unlock(core);
    reactor->tier_changed = true;
    if (result == PS_TIER_WAIT) return;
    if (result == PS_TIER_ERROR) error = base->waiter.error;
  }
  task->is_flushed = true;
  if (error != 0) task->error = error;
  if (!task->is_close) {
    task_end(reactor, task, task->error);
    next_task(reactor, volume);
  } else if (task->error != 0 && !task->abandon) {
    /* Not closed: the data is still here, and the control plane decides. */
    task_end(reactor, task, task->error);
    next_task(reactor, volume);
  } else {
    remove_volume(reactor, task, task->error);
  }
}

/* A close that abandons does not wait for what is before it. */
static void abandon_tasks(struct reactor *reactor, struct volume *volume) {
  forget_task(reactor, volume);
  while (volume->task != NULL) {
    struct volume_task *task = volume->task;
    core_lock(reactor->core);
    count_removal(reactor->core, task, false);
    core_unlock(reactor->core);
    task_end(reactor, task, ECANCELED);
    volume->task = task->next;
    free(task);
  }
}

void volume_task_start(struct reactor *reactor, struct message *message) {
  struct volume *volume = message->volume;
  assert(volume->reactor == reactor);
  struct volume_task *task = calloc(1, sizeof *task);
  if (task == NULL) abort(); /* A few bytes on the control path: nothing sensible is left to do. */
  task->volume = volume;
  task->cookie = message->cookie;
  task->is_close = message->kind == MESSAGE_VOLUME_CLOSE;
  task->abandon = message->flag != 0;
  task->task.run = task_run;
  task->task.waiter.owner = reactor->number;
  if (!volume->is_started) {
    task_end(reactor, task, ENODEV);
    free(task);
    return;
  }
  if (task->abandon) abandon_tasks(reactor, volume);
  struct volume_task **place = &volume->task;
  while (*place != NULL) place = &(*place)->next;
  *place = task;
  if (volume->task == task) task_ready(reactor, &task->task);
}

/* Dead volumes leave the tier once nobody reads, sends or clears anything of them any more; then
 * their numbers are free. */
void volume_bury(struct reactor *reactor) {
  struct ps_core *core = reactor->core;
  struct volume **place = &reactor->dead;
  while (*place != NULL) {
    struct volume *volume = *place, *next = volume->next_dead;
    core_lock(core);
    bool goes = is_gone(volume);
    if (goes) volume->is_dead = false; /* from here on it may be opened again */
    core_unlock(core);
    if (goes)
      *place = next;
    else
      place = &volume->next_dead;
  }
  reactor->tier_changed = true;
}

/* Closes that wait for media work to end are tried again each pass. */
void volume_retry(struct reactor *reactor) {
  for (uint32_t i = 0; i < reactor->volume_count; i++) {
    struct volume_task *task = reactor->volumes[i]->task;
    if (task != NULL && task->is_close && task->is_flushed) task_ready(reactor, &task->task);
  }
}
