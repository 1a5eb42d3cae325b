/* Fuzzing the PDU engine, for libFuzzer:
 *
 *   clang -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
 *     -std=c11 -D_GNU_SOURCE csrc/tests/fuzz_*.c csrc/engine/<all>.c -lisal -o fuzz_engine
 *   mkdir -p corpus && python3 csrc/tests/fuzz_corpus.py corpus
 *   ./fuzz_engine -max_total_time=600 -max_len=4096 corpus
 *
 * (write csrc/engine/<all>.c as the shell pattern of every C file there). Without libFuzzer, with
 * -DFUZZ_STANDALONE, the program runs seeded random inputs: fuzz_engine [FIRST_SEED [COUNT]]; it
 * prints the seed of the input at hand when it fails.
 *
 * The first byte picks a mode: target or host live, differential (whole against cut), or both
 * roles against each other. The rest is a script of choices, read by choose().
 */
#include "fuzz_support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static void (*const modes[])(struct choices *) = {fuzz_target, fuzz_host, fuzz_split, fuzz_pair};
  struct choices choices = {bytes, size};
  modes[choose(&choices, 4)](&choices);
  return 0;
}

#ifdef FUZZ_STANDALONE
#include <signal.h>
#include <unistd.h>

static volatile unsigned long seed_at_hand;

static void tell(int number) {
  char text[64];
  int size = snprintf(text, sizeof text, "failed at seed %lu\n", seed_at_hand);
  if (write(2, text, (size_t)size) < 0) _exit(3);
  signal(number, SIG_DFL);
  raise(number);
}

int main(int count, char **arguments) {
  static uint8_t bytes[4096];
  unsigned long first = count > 1 ? strtoul(arguments[1], NULL, 0) : 1;
  unsigned long runs = count > 2 ? strtoul(arguments[2], NULL, 0) : 2000;
  signal(SIGABRT, tell);
  for (unsigned long i = 0; i < runs; i++) {
    seed_at_hand = first + i;
    uint64_t state = seed_at_hand * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (size_t at = 0; at < sizeof bytes; at++) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      bytes[at] = (uint8_t)(state >> 32);
    }
    bytes[0] = (uint8_t)i;
    LLVMFuzzerTestOneInput(bytes, 256 + (size_t)(state % (sizeof bytes - 256)));
  }
  printf("%lu inputs from seed %lu: ok\n", runs, first);
  return 0;
}
#endif
