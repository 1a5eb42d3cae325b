/* Counts what memcpy and memmove copy: for a module that is linked with --wrap of both
 * (`scripts/bench copies`). Copies of a fixed small size, which the compiler makes itself, are not
 * among them. */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

_Atomic uint64_t ps_bytes_copied;

void *__real_memcpy(void *restrict to, const void *restrict from, size_t size);
void *__real_memmove(void *to, const void *from, size_t size);
void *__wrap_memcpy(void *restrict to, const void *restrict from, size_t size);
void *__wrap_memmove(void *to, const void *from, size_t size);

void *__wrap_memcpy(void *restrict to, const void *restrict from, size_t size) {
  atomic_fetch_add_explicit(&ps_bytes_copied, size, memory_order_relaxed);
  return __real_memcpy(to, from, size);
}

void *__wrap_memmove(void *to, const void *from, size_t size) {
  atomic_fetch_add_explicit(&ps_bytes_copied, size, memory_order_relaxed);
  return __real_memmove(to, from, size);
}
