/* What the hosts of core_stress say and ask by hints: batches, good and damaged, of records on
 * whatever blocks, by the submit opcode and through the extension namespace; queries; and what
 * every Read says of itself. None of it may change what any other command does.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "nvme.h"
#include "pax.h"
#include "stress.h"

enum {
  RECORDS_MOST = 12,
  RANGES_MOST = 6,
  SETS = 8, /* ids that all hosts share */
  INTENTS = 40,
  DEADLINE_MOST_US = 20000,
  PAGES_MOST = TRANSFER / PAX_PAGE_BYTES
};

static void put16(uint8_t *bytes, uint32_t value) {
  uint16_t small = (uint16_t)value;
  memcpy(bytes, &small, sizeof small);
}
static void put32(uint8_t *bytes, uint32_t value) { memcpy(bytes, &value, sizeof value); }
static void put64(uint8_t *bytes, uint64_t value) { memcpy(bytes, &value, sizeof value); }

static uint32_t draw(uint64_t *random, uint32_t below) {
  return (uint32_t)stress_draw(random, below);
}

/* ---- batches ---- */

/* Mostly within the volume, at times beyond its end. */
static uint32_t fill_ranges(uint8_t *at, uint64_t *random, uint32_t most) {
  uint32_t count = 1 + draw(random, most), blocks = VOLUME_BYTES / 4096;
  for (uint32_t i = 0; i < count; i++) {
    uint8_t *range = at + i * sizeof(struct pax_range);
    put64(range, draw(random, blocks + 4));
    put32(range + 8, 1 + draw(random, draw(random, 4) == 0 ? 64 : 4));
  }
  return count;
}

static uint32_t choose_nsid(uint64_t *random) { return 1 + draw(random, VOLUMES); }

/* A record with `ranges` behind its `size` bytes; returns its whole size. */
static uint32_t end_record(uint8_t *at, uint32_t type, uint32_t size, uint32_t ranges,
                           uint64_t *random) {
  uint32_t whole = size + ranges * (uint32_t)sizeof(struct pax_range);
  put16(at, type);
  put16(at + 2, whole);
  put32(at + 4, draw(random, 1000));
  return whole;
}

static uint32_t fill_set(uint8_t *at, uint64_t *random) {
  uint32_t op = 1 + draw(random, 3), count = 0;
  if (op != PAX_SET_OP_DROP) count = fill_ranges(at + sizeof(struct pax_set), random, RANGES_MOST);
  put64(at + 8, 1 + draw(random, SETS));
  at[16] = (uint8_t)op;
  at[17] = (uint8_t)draw(random, 2);
  put16(at + 18, count);
  put32(at + 20, choose_nsid(random));
  put32(at + 24, draw(random, 2) ? 0 : 1 + draw(random, 30));
  return end_record(at, PAX_TYPE_SET, sizeof(struct pax_set), count, random);
}

static uint32_t fill_signature(uint8_t *at, uint64_t *random) {
  put64(at + 8, draw(random, VOLUME_BYTES / 4096));
  put32(at + 16, 1 + draw(random, 16));
  put32(at + 20, choose_nsid(random));
  put16(at + 24, draw(random, 2) ? 64 : 128);
  put32(at + 28, draw(random, 50));
  put64(at + 32, stress_draw(random, UINT64_MAX));
  return end_record(at, PAX_TYPE_SIGNATURE, sizeof(struct pax_signature), 0, random);
}

static uint32_t fill_intent(uint8_t *at, uint64_t *random) {
  bool of_set = draw(random, 3) == 0;
  uint32_t count = 0;
  if (!of_set) count = fill_ranges(at + sizeof(struct pax_intent), random, RANGES_MOST);
  put64(at + 8, 1 + draw(random, INTENTS));
  put64(at + 16, draw(random, 5));
  put64(at + 24, of_set ? 1 + draw(random, SETS) : 0);
  put32(at + 32, draw(random, DEADLINE_MOST_US));
  put32(at + 36, choose_nsid(random));
  put16(at + 40, count);
  at[42] = (uint8_t)draw(random, PAX_PRIORITIES);
  at[43] = (uint8_t)draw(random, 101);
  at[44] = (uint8_t)draw(random, 4);
  return end_record(at, PAX_TYPE_INTENT, sizeof(struct pax_intent), count, random);
}

static uint32_t fill_retain(uint8_t *at, uint64_t *random) {
  bool of_set = draw(random, 3) == 0;
  uint32_t count = 0;
  if (!of_set) count = fill_ranges(at + sizeof(struct pax_retain), random, RANGES_MOST);
  put64(at + 8, of_set ? 1 + draw(random, SETS) : 0);
  put32(at + 16, draw(random, 40));
  put32(at + 20, choose_nsid(random));
  put16(at + 24, count);
  return end_record(at, PAX_TYPE_RETAIN, sizeof(struct pax_retain), count, random);
}

static uint32_t fill_cancel(uint8_t *at, uint64_t *random) {
  put64(at + 8, 1 + draw(random, INTENTS));
  at[16] = (uint8_t)(draw(random, 20) ? PAX_CANCEL_WHAT_INTENT : 1 + draw(random, 4));
  return end_record(at, PAX_TYPE_CANCEL, sizeof(struct pax_cancel), 0, random);
}

static uint32_t fill_query(uint8_t *at, uint64_t *random) {
  if (draw(random, 2)) {
    put64(at + 8, 1 + draw(random, INTENTS));
    return end_record(at, PAX_TYPE_OUTCOME, sizeof(struct pax_outcome), 0, random);
  }
  bool of_set = draw(random, 3) == 0;
  uint32_t count = 0;
  if (!of_set) count = fill_ranges(at + sizeof(struct pax_residency), random, RANGES_MOST);
  put64(at + 8, of_set ? 1 + draw(random, SETS) : 0);
  put32(at + 16, choose_nsid(random));
  put16(at + 20, count);
  return end_record(at, PAX_TYPE_RESIDENCY, sizeof(struct pax_residency), count, random);
}

static uint32_t fill_record(uint8_t *at, uint64_t *random) {
  switch (draw(random, 10)) {
    case 0:
    case 1:
      return fill_set(at, random);
    case 2:
      return fill_signature(at, random);
    case 3:
      return fill_retain(at, random);
    case 4:
      return fill_cancel(at, random);
    case 5:
      return fill_query(at, random);
    case 6:
      return end_record(at, 200, sizeof(struct pax_cancel), 0, random); /* unknown */
    default:
      return fill_intent(at, random);
  }
}

/* A batch of at most a page; returns its size. One in eight is damaged. */
static uint32_t fill_batch(uint8_t *page, uint64_t *random) {
  uint32_t size = sizeof(struct pax_batch), count = draw(random, RECORDS_MOST);
  memset(page, 0, PAX_PAGE_BYTES);
  for (uint32_t i = 0; i < count; i++) size += fill_record(page + size, random);
  assert(size <= PAX_PAGE_BYTES);
  put32(page, PAX_MAGIC_BATCH);
  page[4] = PAX_MAJOR;
  page[5] = PAX_MINOR;
  put16(page + 6, sizeof(struct pax_batch));
  put32(page + 8, size);
  put64(page + 16, stress_draw(random, UINT64_MAX));
  put32(page + 24, draw(random, 1000));
  put16(page + 28, count);
  put32(page + 12, ps_crc32c(page, size));
  if (draw(random, 8) == 0) page[draw(random, size)] ^= (uint8_t)(1u << draw(random, 8));
  return size;
}

/* ---- commands ---- */

static uint32_t extension_of(const struct stress_host *host) {
  return host->subsystem == 1 ? TRASH_EXTENSION_NSID : EXTENSION_NSID;
}

static uint32_t fill_submit(struct stress_command *command, uint8_t *sqe, uint64_t *random) {
  uint32_t size = fill_batch(command->data, random), spare = 8 * draw(random, 4);
  if (size + spare <= PAX_MAX_BATCH_BYTES) size += spare;
  put32(sqe + 40, draw(random, 2) ? UINT32_MAX : draw(random, PAX_MAILBOXES + 1));
  return size;
}

static uint32_t fill_question(uint8_t *sqe, uint64_t *random) {
  put32(sqe + 40, draw(random, 6));
  put32(sqe + 44, draw(random, PAX_MAILBOXES + 1));
  put64(sqe + 48, draw(random, 2) ? 1 + draw(random, INTENTS) : draw(random, SETS));
  put32(sqe + 56, draw(random, 100));
  return 64 + 4 * draw(random, (PAX_PAGE_BYTES - 64) / 4 + 1);
}

static uint32_t fill_pages(struct stress_command *command, uint8_t *sqe, uint64_t *random) {
  uint32_t count = draw(random, 3) ? 1 : 1 + draw(random, PAGES_MOST);
  uint32_t first = PAX_PAGE_MAILBOXES + draw(random, PAX_MAILBOXES);
  if (draw(random, 4) == 0) first = draw(random, PAX_EXTENSION_PAGES);
  if (first + count > PAX_EXTENSION_PAGES) first = PAX_EXTENSION_PAGES - count;
  put64(sqe + 40, first);
  put32(sqe + 48, count - 1);
  command->first = first;
  command->count = count;
  for (uint32_t i = 0; command->opcode == PS_OP_WRITE && i < count; i++)
    fill_batch(command->data + i * (size_t)PAX_PAGE_BYTES, random);
  return count * PAX_PAGE_BYTES;
}

static uint8_t choose_opcode(uint64_t *random) {
  static const uint8_t opcodes[] = {PAX_OPCODE_SUBMIT, PAX_OPCODE_SUBMIT, PAX_OPCODE_QUERY,
                                    PS_OP_WRITE,       PS_OP_WRITE,       PS_OP_READ,
                                    PS_OP_FLUSH,       PS_OP_COMPARE};
  return opcodes[stress_draw(random, sizeof opcodes)];
}

/* The entry of a hint command, with its data; returns how much data moves, and how. */
uint32_t hint_fill(struct stress_host *host, struct stress_command *command, uint8_t *sqe,
                   uint32_t *transfer, uint64_t *random) {
  uint32_t length = 0;
  command->is_hint = true;
  sqe[0] = command->opcode = choose_opcode(random);
  put32(sqe + 4, extension_of(host));
  if ((command->opcode & 0x80) != 0 && draw(random, 2)) put32(sqe + 4, choose_nsid(random));
  if (command->opcode == PAX_OPCODE_SUBMIT) length = fill_submit(command, sqe, random);
  if (command->opcode == PAX_OPCODE_QUERY) length = fill_question(sqe, random);
  if (command->opcode == PS_OP_READ || command->opcode == PS_OP_WRITE)
    length = fill_pages(command, sqe, random);
  *transfer = PS_TRANSFER_FROM_CONTROLLER;
  if (command->opcode == PAX_OPCODE_SUBMIT || command->opcode == PS_OP_WRITE)
    *transfer = length <= IN_CAPSULE && draw(random, 2) ? PS_TRANSFER_IN_CAPSULE
                                                        : PS_TRANSFER_TO_CONTROLLER;
  return length;
}

/* What a Read says of itself, and at times a deadline of its own. */
void hint_read(struct stress_command *command, uint8_t *sqe, uint64_t *random) {
  assert(command->opcode == PS_OP_READ);
  if (draw(random, 3) == 0) sqe[52] = (uint8_t)draw(random, 256);
  if (draw(random, 4) != 0) return;
  sqe[0] = PAX_OPCODE_DATED_READ;
  put64(sqe + 8, draw(random, 5));
  put32(sqe + 56, draw(random, DEADLINE_MOST_US));
  put32(sqe + 60, draw(random, PAX_PRIORITIES));
}

/* ---- judging ---- */

/* A page that nothing can be written to and that is no status page is zeros. */
static void check_pages(const struct stress_command *command) {
  static const uint8_t zeros[PAX_PAGE_BYTES];
  for (uint32_t i = 0; i < command->count; i++) {
    const uint8_t *page = command->data + i * (size_t)PAX_PAGE_BYTES;
    uint32_t number = command->first + i, magic;
    memcpy(&magic, page, sizeof magic);
    bool is_answer = number >= PAX_PAGE_MAILBOXES && number < PAX_PAGE_MAILBOXES + PAX_MAILBOXES;
    if (number == PAX_PAGE_STATUS) {
      if (magic != PAX_MAGIC_CAPABILITY) stress_fail("a status page of another kind", magic);
    } else if (is_answer) {
      if (magic != PAX_MAGIC_ANSWER) stress_fail("an answer page of another kind", magic);
    } else if (memcmp(page, zeros, sizeof zeros) != 0) {
      stress_fail("a page that is not zeros", number);
    }
  }
}

void hint_ended(const struct stress_command *command) {
  uint16_t code = command->status & 0x7ff;
  if (code == 0 && command->opcode == PS_OP_READ) check_pages(command);
  if (code == 0 || code == PS_SC_ABORT_REQUESTED || code == PS_SC_INVALID_NAMESPACE ||
      code == PS_SC_SEQUENCE_ERROR)
    return;
  bool is_vendor = (command->opcode & 0x80) != 0;
  if (code == PS_SC_INVALID_FIELD && is_vendor) return;
  if (code == PS_SC_INVALID_OPCODE && command->opcode == PS_OP_COMPARE) return;
  stress_fail("a status of a hint that nothing explains",
              (uint64_t)command->opcode << 16 | command->status);
}
