/* The thread pool below media whose system calls block. */
#include "pool.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_THREADS 16
#define STACK_BYTES (256 * 1024)

struct ps_pool {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  struct ps_request_list waiting; /* all below: under the lock */
  struct ps_request_list ended;
  uint32_t references; /* the owner and each thread */
  bool stopping;
  bool abandoned;
  atomic_bool has_ended;
  struct ps_backing_file file; /* its descriptor is the pool's own */
  int event_fd;                /* the pool's own */
  uint32_t thread_count;
  pthread_t threads[MOST_THREADS];
};

/* Drops one reference; frees the pool with the last. Called with the lock held. */
static void release(struct ps_pool *pool) {
  assert(pool->references > 0);
  bool last = --pool->references == 0;
  pthread_mutex_unlock(&pool->lock);
  if (!last) return;
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->lock);
  if (pool->file.fd >= 0) close(pool->file.fd);
  if (pool->event_fd >= 0) close(pool->event_fd);
  free(pool);
}

/* Runs one request. Called with the lock held, and returns so. The request is not looked at after
 * the system call of an abandoned pool: its memory may be gone. */
static void run_one(struct ps_pool *pool, struct ps_media_request *request) {
  assert(pool != NULL && request != NULL);
  struct ps_media_request copy = *request;
  struct iovec parts[PS_MEDIA_PARTS];
  assert(copy.part_count <= PS_MEDIA_PARTS);
  for (uint32_t i = 0; i < copy.part_count; i++) parts[i] = request->parts[i];
  copy.parts = parts;
  pthread_mutex_unlock(&pool->lock);
  int error = ps_blocking_run(&pool->file, &copy);
  pthread_mutex_lock(&pool->lock);
  if (pool->abandoned) return;
  request->error = error;
  bool was_empty = pool->ended.head == NULL;
  ps_list_push(&pool->ended, request);
  atomic_store_explicit(&pool->has_ended, true, memory_order_release);
  if (was_empty) ps_event_set(pool->event_fd);
}

static void *work(void *argument) {
  struct ps_pool *pool = argument;
  pthread_setname_np(pthread_self(), "ps-media");
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (pool->waiting.head == NULL && !pool->stopping) {
      pthread_cond_wait(&pool->wake, &pool->lock);
    }
    if (pool->abandoned || pool->waiting.head == NULL) break;
    run_one(pool, ps_list_pop(&pool->waiting));
  }
  release(pool);
  return NULL;
}

/* Signals are for the process's own threads; blocked here, and so in the new threads. */
static int start_threads(struct ps_pool *pool, uint32_t threads) {
  assert(threads >= 1 && threads <= MOST_THREADS);
  sigset_t all;
  sigset_t before;
  pthread_attr_t attributes;
  int error = pthread_attr_init(&attributes);
  if (error != 0) return error;
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_mutex_lock(&pool->lock);
  while (pool->thread_count < threads) {
    error = pthread_create(&pool->threads[pool->thread_count], &attributes, work, pool);
    if (error != 0) break;
    pool->thread_count++;
    pool->references++;
  }
  pthread_mutex_unlock(&pool->lock);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return pool->thread_count > 0 ? 0 : error; /* fewer threads are enough */
}

struct ps_pool *ps_pool_new(const struct ps_backing_file *file, uint32_t threads, int event_fd) {
  assert(file != NULL && event_fd >= 0);
  struct ps_pool *pool = calloc(1, sizeof *pool);
  if (pool == NULL) return NULL;
  pool->references = 1;
  pool->file = *file;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pool->file.fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
  pool->event_fd = fcntl(event_fd, F_DUPFD_CLOEXEC, 0);
  int error = pool->file.fd < 0 || pool->event_fd < 0 ? errno : start_threads(pool, threads);
  if (error == 0) return pool;
  pthread_mutex_lock(&pool->lock);
  release(pool);
  errno = error;
  return NULL;
}

void ps_pool_submit(struct ps_pool *pool, struct ps_media_request *request) {
  assert(pool != NULL && request != NULL);
  pthread_mutex_lock(&pool->lock);
  assert(!pool->stopping);
  ps_list_push(&pool->waiting, request);
  pthread_cond_signal(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
}

bool ps_pool_has_ended(struct ps_pool *pool) {
  assert(pool != NULL);
  return atomic_load_explicit(&pool->has_ended, memory_order_acquire);
}

void ps_pool_take(struct ps_pool *pool, struct ps_request_list *ended) {
  assert(pool != NULL && ended != NULL);
  pthread_mutex_lock(&pool->lock);
  ps_list_move(ended, &pool->ended);
  atomic_store_explicit(&pool->has_ended, false, memory_order_relaxed);
  pthread_mutex_unlock(&pool->lock);
}

void ps_pool_close(struct ps_pool *pool, bool abandon) {
  assert(pool != NULL);
  uint32_t count = pool->thread_count;
  pthread_t threads[MOST_THREADS];
  for (uint32_t i = 0; i < count; i++) threads[i] = pool->threads[i];
  pthread_mutex_lock(&pool->lock);
  pool->stopping = true;
  pool->abandoned = abandon;
  pthread_cond_broadcast(&pool->wake);
  if (abandon) {
    release(pool);
    for (uint32_t i = 0; i < count; i++) pthread_detach(threads[i]);
    return;
  }
  pthread_mutex_unlock(&pool->lock);
  for (uint32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
  pthread_mutex_lock(&pool->lock);
  release(pool);
}
