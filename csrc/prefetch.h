/* Asking the memory for what will be needed. GCC 12 takes a function that does nothing else for one
 * without effect, and drops the calls of it: the empty instruction says that there is one. */
#ifndef PRESTAGE_PREFETCH_H
#define PRESTAGE_PREFETCH_H

#define PS_CACHE_LINE 64

static inline void ps_prefetch(const void *at) {
  __builtin_prefetch(at);
  __asm__ volatile("" : : "r"(at));
}

#endif
