/* A pool of threads that run blocking operations of a backing file. Requests come and go in the
 * owner's thread: ended ones wait until ps_pool_poll takes them. */
#ifndef PRESTAGE_MEDIA_POOL_H
#define PRESTAGE_MEDIA_POOL_H

#include "backing.h"

struct ps_pool;

/* `event_fd` becomes readable when ended requests wait. NULL, with errno set, on failure. */
struct ps_pool *ps_pool_new(const struct ps_backing_file *file, uint32_t threads, int event_fd);
void ps_pool_submit(struct ps_pool *pool, struct ps_media_request *request);
/* True when ps_pool_take has something; needs no lock. */
bool ps_pool_has_ended(struct ps_pool *pool);
/* Takes what has ended; `error` of each is set. */
void ps_pool_take(struct ps_pool *pool, struct ps_request_list *ended);
/* Joins the threads; or, when `abandon`, leaves those that hang in a system call behind: the last
 * of them frees the pool, should it ever return. */
void ps_pool_close(struct ps_pool *pool, bool abandon);

#endif
