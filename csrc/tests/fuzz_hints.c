/* Fuzzing the hints: a target for libFuzzer (make -C csrc VARIANT=fuzz fuzzers). Without libFuzzer,
 * with -DFUZZ_STANDALONE, it runs seeded random inputs: fuzz_hints [FIRST_SEED [COUNT]].
 *
 * The first byte picks a mode. Raw: what follows is a batch, as it is and with its checksum made
 * right, in memory of exactly its size. Script: what follows are choices, by which batches are made
 * and damaged, submitted, read back and worked on, with time going by.
 */
#include "hints_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct choices {
  const uint8_t *bytes;
  size_t left;
};

/* Zeros once they are used up. */
static uint32_t choose(struct rig *rig, uint32_t bound) {
  struct choices *choices = rig->source;
  uint32_t value = 0;
  for (uint32_t most = 1; most < bound && choices->left > 0; most <<= 8) {
    value = value << 8 | *choices->bytes++;
    choices->left--;
    if (most > UINT32_MAX >> 8) break;
  }
  return value % bound;
}

static void submit(struct rig *rig, const struct ps_hints_scope *scope, const uint8_t *bytes,
                   uint32_t size) {
  struct ps_hints_result checked;
  struct ps_hints_result result;
  uint32_t mailbox = rig->below(rig, RIG_MAILBOXES);
  ps_hints_check(bytes, size, PAX_MAX_BATCH_BYTES, &checked);
  ps_hints_submit(rig->hints, rig->now_ns, scope, mailbox, bytes, size, &result);
  RIG_CHECK(result.fault == checked.fault && result.fault_offset == checked.fault_offset);
  RIG_CHECK(result.fault == 0 || result.fault_offset <= size);
}

static void check(struct rig *rig) {
  RIG_CHECK(ps_hints_check_all(rig->hints) == 0);
  RIG_CHECK(ps_tier_check(rig->tier) == 0);
}

static void fuzz_raw(struct rig *rig, const uint8_t *bytes, size_t size) {
  struct ps_hints_scope scope = rig_scope(0, 0);
  size_t most = size < PAX_PAGE_BYTES ? size : PAX_PAGE_BYTES;
  uint8_t *copy = malloc(most > 0 ? most : 1);
  RIG_CHECK(copy != NULL);
  memcpy(copy, bytes, most);
  submit(rig, &scope, copy, (uint32_t)most);
  struct pax_batch header;
  if (most >= sizeof header) {
    memcpy(&header, copy, sizeof header);
    header = (struct pax_batch){.magic = PAX_MAGIC_BATCH,
                                .major = PAX_MAJOR,
                                .header_size = sizeof header,
                                .size = (uint32_t)most,
                                .record_count = header.record_count};
    memcpy(copy, &header, sizeof header);
    rig_seal(copy);
    submit(rig, &scope, copy, (uint32_t)most);
  }
  free(copy);
  rig_look(rig, &scope);
  check(rig);
}

static void fuzz_script(struct rig *rig) {
  const struct choices *choices = rig->source;
  uint8_t bytes[PAX_PAGE_BYTES];
  for (uint32_t i = 0; i < 64 && choices->left > 0; i++) {
    struct ps_hints_scope scope =
        rig_scope((uint16_t)rig->below(rig, RIG_TENANTS), (uint16_t)rig->below(rig, 2));
    uint32_t size = rig_batch(rig, bytes);
    uint32_t damage = rig->below(rig, 4);
    for (uint32_t j = 1; j < damage; j++) {
      bytes[rig->below(rig, size)] = (uint8_t)rig->below(rig, 256);
    }
    if (damage != 3) rig_seal(bytes);
    submit(rig, &scope, bytes, rig_chance(rig, 90) ? size : rig->below(rig, sizeof bytes + 1));
    if (rig_chance(rig, 5)) rig_turn_volume(rig, rig->below(rig, RIG_VOLUMES));
    if (rig_chance(rig, 30)) rig_look(rig, &scope);
    rig_advance(rig, 1 + rig->below(rig, 1 << 24));
    check(rig);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static struct rig rig;
  struct choices choices = {bytes, size};
  rig.below = choose;
  rig.source = &choices;
  rig_open(&rig);
  if (rig.below(&rig, 2) == 0) {
    fuzz_raw(&rig, choices.bytes, choices.left);
  } else {
    fuzz_script(&rig);
  }
  rig_close(&rig);
  return 0;
}

#ifdef FUZZ_STANDALONE
int main(int count, char **arguments) {
  static uint8_t bytes[4096];
  unsigned long first = count > 1 ? strtoul(arguments[1], NULL, 0) : 1;
  unsigned long runs = count > 2 ? strtoul(arguments[2], NULL, 0) : 500;
  for (unsigned long i = 0; i < runs; i++) {
    static struct rig source;
    source.state = first + i;
    rig_note_seed("fuzz_hints", first + i);
    for (size_t at = 0; at < sizeof bytes; at++) bytes[at] = (uint8_t)rig_random(&source, 256);
    bytes[0] = (uint8_t)(i % 8 == 0 ? 0 : 1);
    LLVMFuzzerTestOneInput(bytes, 256 + rig_random(&source, sizeof bytes - 256));
  }
  printf("%lu inputs from seed %lu: ok\n", runs, first);
  return 0;
}
#endif
