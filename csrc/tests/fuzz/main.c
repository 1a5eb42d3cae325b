/* A main() for a libFuzzer target where libFuzzer is not: under qemu-user and the sanitizers of
 * gcc.
 *
 *   PROGRAM [SEED [RUNS]]     feeds RUNS inputs made from SEED
 *   PROGRAM FILE...           feeds the contents of the files, to repeat a finding
 *
 * An input is random bytes of random length, or a mutation of the one before it.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES 16384U
#define DEFAULT_RUNS 5000UL

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* splitmix64: any seed is as good as any other. */
static uint64_t next_random(uint64_t *state) {
  assert(state != NULL);
  uint64_t value = (*state += 0x9e3779b97f4a7c15U);
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

static size_t fill(uint8_t *bytes, uint64_t *state) {
  assert(bytes != NULL);
  size_t size = next_random(state) % (next_random(state) % 4 == 0 ? MOST_BYTES : 512U);
  for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)next_random(state);
  return size;
}

static void mutate(uint8_t *bytes, size_t size, uint64_t *state) {
  assert(bytes != NULL);
  assert(size <= MOST_BYTES);
  uint64_t count = size == 0 ? 0 : next_random(state) % 8 + 1;
  for (uint64_t i = 0; i < count; i++) {
    /* Half of the mutations hit what is parsed first. */
    size_t span = next_random(state) % 2 == 0 && size > 128 ? 128 : size;
    bytes[next_random(state) % span] = (uint8_t)next_random(state);
  }
}

static void feed(const uint8_t *bytes, size_t size) {
  /* Exactly as large as the input, so that a read beyond its end is seen. */
  uint8_t *copy = malloc(size > 0 ? size : 1);
  assert(copy != NULL);
  memcpy(copy, bytes, size);
  LLVMFuzzerTestOneInput(copy, size);
  free(copy);
}

static void run_seeded(uint64_t seed, unsigned long runs) {
  static uint8_t bytes[MOST_BYTES];
  uint64_t state = seed;
  size_t size = 0;
  printf("seed %llu, %lu runs\n", (unsigned long long)seed, runs);
  fflush(stdout); /* the seed must be out before anything goes wrong */
  for (unsigned long run = 0; run < runs; run++) {
    if (next_random(&state) % 3 == 0) {
      size = fill(bytes, &state);
    } else {
      mutate(bytes, size, &state);
    }
    feed(bytes, size);
  }
}

static int run_file(const char *path) {
  assert(path != NULL);
  static uint8_t bytes[1U << 20];
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return 1;
  }
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  feed(bytes, size);
  return 0;
}

int main(int argc, char **argv) {
  char *end = NULL;
  uint64_t seed = argc > 1 ? strtoull(argv[1], &end, 0) : 1;
  if (argc > 1 && (*argv[1] == '\0' || *end != '\0')) {
    int failed = 0;
    for (int i = 1; i < argc; i++) failed |= run_file(argv[i]);
    return failed;
  }
  unsigned long runs = argc > 2 ? strtoul(argv[2], &end, 0) : DEFAULT_RUNS;
  if (argc > 3 || (argc > 2 && *end != '\0')) {
    fprintf(stderr, "usage: %s [SEED [RUNS]] | FILE...\n", argv[0]);
    return 2;
  }
  run_seeded(seed, runs);
  return 0;
}
