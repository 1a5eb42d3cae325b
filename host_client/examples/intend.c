/* Say from C that blocks are needed by a deadline, and wait until they are warm.
 *
 *   intend NODE NSID SLBA NLB DEADLINE_MS
 *
 * NODE is the block device of the extension namespace; NSID, SLBA and NLB (not 0-based) name the
 * blocks of another namespace of the same subsystem. Needs csrc/pax.h and the C library. */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pax.h"

static uint32_t crc32c(const uint8_t *bytes, size_t size) {
  uint32_t crc = UINT32_MAX;
  for (size_t bit = 0; bit < 8 * size; bit++) /* the lowest of each byte first */
    crc = crc >> 1 ^ ((crc ^ bytes[bit / 8] >> bit % 8) & 1 ? 0x82f63b78u : 0);
  return ~crc;
}

int main(int count, char **words) {
  const int access = PROT_READ | PROT_WRITE;
  void *page = mmap(NULL, PAX_PAGE_BYTES, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  uint64_t writer;
  if (count != 6) errx(2, "usage: intend NODE NSID SLBA NLB DEADLINE_MS");
  if (page == MAP_FAILED || getentropy(&writer, sizeof writer) != 0) err(1, "no page");
  int node = open(words[1], O_RDWR | O_DIRECT); /* which is why the page is aligned to a page */
  if (node < 0 || pread(node, page, PAX_PAGE_BYTES, 0) < 0) err(1, "%s", words[1]);
  if (*(uint32_t *)page != PAX_MAGIC_CAPABILITY) errx(1, "%s has no status page", words[1]);
  struct pax_batch *batch = page;
  struct pax_intent *intent = (struct pax_intent *)(batch + 1);
  struct pax_range *range = (struct pax_range *)(intent + 1);
  *range = (struct pax_range){.slba = strtoull(words[3], 0, 10), .nlb = strtoul(words[4], 0, 10)};
  *intent = (struct pax_intent){.type = PAX_TYPE_INTENT,
                                .size = sizeof *intent + sizeof *range,
                                .intent_id = writer | 1, /* it is not 0 */
                                .deadline_us = strtoul(words[5], 0, 10) * 1000,
                                .nsid = strtoul(words[2], 0, 10),
                                .range_count = 1,
                                .flags = PAX_INTENT_FLAG_LATE_OK};
  *batch = (struct pax_batch){.magic = PAX_MAGIC_BATCH,
                              .major = PAX_MAJOR,
                              .header_size = sizeof *batch,
                              .size = sizeof *batch + intent->size,
                              .writer = writer,
                              .record_count = 1};
  batch->crc32c = crc32c(page, batch->size);
  off_t mailbox = (off_t)(PAX_PAGE_MAILBOXES + writer % PAX_MAILBOXES) * PAX_PAGE_BYTES;
  ssize_t moved = pwrite(node, page, PAX_PAGE_BYTES, mailbox);
  const struct pax_answer *answer = page;
  const struct pax_outcome_answer *outcome = (const struct pax_outcome_answer *)(answer + 1);
  for (int tries = 0; moved == PAX_PAGE_BYTES && tries < 10000; tries++) {
    usleep(1000);
    moved = pread(node, page, PAX_PAGE_BYTES, mailbox); /* every read answers anew */
    if (answer->magic != PAX_MAGIC_ANSWER || answer->writer != writer) continue;
    if (answer->answer_count != 1)
      errx(1, "refused: fault %u at byte %u", answer->fault, answer->fault_offset);
    if (outcome->state == PAX_STATE_PENDING) continue;
    printf("state %u, warm %llu of %llu bytes after %u us\n", outcome->state,
           (unsigned long long)outcome->warm_bytes, (unsigned long long)outcome->total_bytes,
           outcome->ready_us);
    return outcome->state == PAX_STATE_MET || outcome->state == PAX_STATE_LATE ? 0 : 3;
  }
  err(1, "%s", words[1]);
}
