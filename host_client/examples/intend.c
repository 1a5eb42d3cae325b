/* Say from C that blocks are needed by a deadline, and wait until they are warm.
 *
 *   intend NODE NSID SLBA NLB DEADLINE_MS
 *
 * NODE is the block device of the extension namespace; NSID, SLBA and NLB (not 0-based) name the
 * blocks of another namespace of the same subsystem. Needs csrc/pax.h and the C library:
 *   cc -std=c11 -D_GNU_SOURCE -I csrc -o intend host_client/examples/intend.c
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "pax.h"

struct batch {
  struct pax_batch head;
  struct pax_intent intent;
  struct pax_range range;
};

static uint32_t crc32c(const uint8_t *bytes, size_t size) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < size; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

static void fill(struct batch *batch, char **words, uint64_t writer) {
  *batch =
      (struct batch){.head = {.magic = PAX_MAGIC_BATCH,
                              .major = PAX_MAJOR,
                              .minor = PAX_MINOR,
                              .header_size = sizeof batch->head,
                              .size = sizeof *batch,
                              .writer = writer,
                              .sequence = 1,
                              .record_count = 1},
                     .intent = {.type = PAX_TYPE_INTENT,
                                .size = sizeof batch->intent + sizeof batch->range,
                                .intent_id = writer,
                                .deadline_us = (uint32_t)atol(words[5]) * 1000,
                                .nsid = (uint32_t)atol(words[2]),
                                .range_count = 1,
                                .priority = 1,
                                .flags = PAX_INTENT_FLAG_LATE_OK},
                     .range = {.slba = (uint64_t)atoll(words[3]), .nlb = (uint32_t)atol(words[4])}};
  batch->head.crc32c = crc32c((const uint8_t *)batch, sizeof *batch);
}

int main(int count, char **words) {
  uint8_t *page = aligned_alloc(PAX_PAGE_BYTES, PAX_PAGE_BYTES); /* as O_DIRECT wants it */
  uint64_t writer;
  if (count != 6 || !page || getrandom(&writer, sizeof writer, 0) != sizeof writer) return 2;
  writer |= 1; /* the intent has the same number, which is not 0 */
  int node = open(words[1], O_RDWR | O_DIRECT);
  off_t mailbox = (off_t)(PAX_PAGE_MAILBOXES + writer % PAX_MAILBOXES) * PAX_PAGE_BYTES;
  memset(page, 0, PAX_PAGE_BYTES);
  fill((struct batch *)page, words, writer);
  bool sent = node >= 0 && pwrite(node, page, PAX_PAGE_BYTES, mailbox) == PAX_PAGE_BYTES;
  const struct pax_answer *answer = (const struct pax_answer *)page;
  const struct pax_outcome_answer *outcome = (const struct pax_outcome_answer *)(answer + 1);
  for (int tries = 0; sent && tries < 10000; tries++) { /* every read answers anew */
    if (pread(node, page, PAX_PAGE_BYTES, mailbox) != PAX_PAGE_BYTES) break;
    bool ours = answer->magic == PAX_MAGIC_ANSWER && answer->writer == writer;
    if (ours && (answer->state != PAX_ANSWER_STATE_APPLIED || answer->answer_count != 1)) {
      fprintf(stderr, "refused: fault %u at byte %u\n", answer->fault, answer->fault_offset);
      return 1;
    }
    if (ours && outcome->state != PAX_STATE_PENDING) {
      printf("state %u, warm %llu of %llu bytes after %u us\n", outcome->state,
             (unsigned long long)outcome->warm_bytes, (unsigned long long)outcome->total_bytes,
             outcome->ready_us);
      return outcome->state == PAX_STATE_MET || outcome->state == PAX_STATE_LATE ? 0 : 3;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  perror(words[1]);
  return 1;
}
