/* Batches of made-up hints: always full, with a right checksum, all by seed. */
#include "flood.h"

#include <string.h>

#include "engine.h"

#define NO_MAILBOX UINT32_MAX /* CDW10 of the submit opcode */

enum {
  SLOT = 65536,
  MOST_BYTES = 1 << 28, /* max_query_bytes */
  SET_RANGES = 4,
  MOST_RANGES = 60,
  LARGEST = 96,      /* bytes of a record: a set of four ranges ... */
  LARGE_SET = 1024,  /* ... or more than that of a large set */
  INTENT_IDS = 2048, /* an intent replaces the one that had its number */
};

static uint64_t draw(struct flood *flood, uint64_t below) {
  return random_next(&flood->seed) % below;
}

static struct pax_range slot_at(const struct flood *flood, uint64_t slot) {
  uint32_t blocks = SLOT / flood->config.block_size;
  return (struct pax_range){.slba = slot * blocks, .nlb = blocks};
}

static struct pax_range some_slot(struct flood *flood) {
  return slot_at(flood, draw(flood, flood->config.span / SLOT));
}

/* As much as one record may speak of. */
static struct pax_range most(struct flood *flood) {
  uint64_t bytes = flood->config.span < MOST_BYTES ? flood->config.span : MOST_BYTES;
  uint32_t blocks = (uint32_t)(bytes / flood->config.block_size);
  uint64_t others = flood->config.span / flood->config.block_size - blocks;
  return (struct pax_range){.slba = draw(flood, others + 1), .nlb = blocks};
}

static uint32_t put(uint8_t *at, const void *record, uint32_t size) {
  memcpy(at, record, size);
  return size;
}

static uint32_t put_ranges(struct flood *flood, uint8_t *at, uint16_t count) {
  struct pax_set record = {.type = PAX_TYPE_SET,
                           .size = (uint16_t)(sizeof record + count * sizeof(struct pax_range)),
                           .set_id = 1 + flood->number % flood->config.ids,
                           .op = PAX_SET_OP_DEFINE,
                           .flags = PAX_SET_FLAG_ORDERED,
                           .range_count = count,
                           .nsid = flood->config.nsid};
  uint32_t size = put(at, &record, sizeof record);
  for (uint32_t i = 0; i < count; i++) {
    struct pax_range range = some_slot(flood);
    size += put(at + size, &range, sizeof range);
  }
  return size;
}

static uint32_t put_set(struct flood *flood, uint8_t *at) {
  return put_ranges(flood, at, SET_RANGES);
}

static uint32_t put_large_set(struct flood *flood, uint8_t *at) {
  return put_ranges(flood, at, MOST_RANGES);
}

/* All that was intended is to be forgotten again. */
static uint32_t put_cancel(struct flood *flood, uint8_t *at) {
  struct pax_cancel record = {
      .type = PAX_TYPE_CANCEL, .size = sizeof record, .what = PAX_CANCEL_WHAT_ALL};
  return put(at, &record, sizeof record);
}

/* Slots in no order, each once where there are enough: an odd factor permutes a power of two. */
static uint32_t put_signature(struct flood *flood, uint8_t *at) {
  uint64_t place = flood->number % flood->config.ids * 0x9E3779B97F4A7C15u;
  struct pax_range range = slot_at(flood, place % (flood->config.span / SLOT));
  struct pax_signature record = {.type = PAX_TYPE_SIGNATURE,
                                 .size = sizeof record,
                                 .slba = range.slba,
                                 .nlb = range.nlb,
                                 .nsid = flood->config.nsid,
                                 .bits = 128};
  uint64_t vector[2] = {random_next(&flood->seed), random_next(&flood->seed)};
  memcpy(record.vector, vector, sizeof record.vector);
  return put(at, &record, sizeof record);
}

static uint32_t put_intent(struct flood *flood, uint8_t *at) {
  struct pax_intent record = {.type = PAX_TYPE_INTENT,
                              .size = sizeof record + sizeof(struct pax_range),
                              .intent_id = 1 + flood->number % INTENT_IDS,
                              .session = 1 + flood->number % 64,
                              .deadline_us = 1000000 + (uint32_t)draw(flood, 1000000000),
                              .nsid = 1,
                              .range_count = 1,
                              .priority = (uint8_t)draw(flood, PAX_PRIORITIES),
                              .flags = PAX_INTENT_FLAG_LATE_OK};
  struct pax_range range = slot_at(flood, draw(flood, flood->config.warm_span / SLOT));
  uint32_t size = put(at, &record, sizeof record);
  return size + put(at + size, &range, sizeof range);
}

/* As much as can be, now, before everybody else; or a piece, and another, and another. */
static uint32_t put_hostile_intent(struct flood *flood, uint8_t *at) {
  struct pax_intent record = {.type = PAX_TYPE_INTENT,
                              .size = sizeof record + sizeof(struct pax_range),
                              .intent_id = 1 + flood->number,
                              .deadline_us = 1 + (uint32_t)draw(flood, 100000),
                              .nsid = flood->config.nsid,
                              .range_count = 1,
                              .flags = PAX_INTENT_FLAG_LATE_OK};
  struct pax_range range = draw(flood, 2) == 0 ? most(flood) : some_slot(flood);
  uint32_t size = put(at, &record, sizeof record);
  return size + put(at + size, &range, sizeof range);
}

static uint32_t put_hostile_retain(struct flood *flood, uint8_t *at) {
  struct pax_retain record = {.type = PAX_TYPE_RETAIN,
                              .size = sizeof record + sizeof(struct pax_range),
                              .duration_ms = UINT32_MAX,
                              .nsid = flood->config.nsid,
                              .range_count = 1};
  struct pax_range range = draw(flood, 2) == 0 ? most(flood) : some_slot(flood);
  uint32_t size = put(at, &record, sizeof record);
  return size + put(at + size, &range, sizeof range);
}

/* In each 256 one that withdraws, and three that are long. */
static uint32_t put_hostile(struct flood *flood, uint8_t *at) {
  static uint32_t (*const most[])(struct flood *, uint8_t *) = {put_hostile_intent,
                                                                put_hostile_retain, put_set};
  uint64_t rare = draw(flood, 256);
  if (rare == 0) return put_cancel(flood, at);
  if (rare < 4) return put_large_set(flood, at);
  return most[draw(flood, 3)](flood, at);
}

static uint32_t put_record(struct flood *flood, uint8_t *at) {
  static uint32_t (*const mixed[])(struct flood *, uint8_t *) = {put_set, put_signature,
                                                                 put_intent};
  flood->number++;
  switch (flood->config.mix) {
    case FLOOD_SETS:
      return put_set(flood, at);
    case FLOOD_SIGNATURES:
      return put_signature(flood, at);
    case FLOOD_INTENTS:
      return put_intent(flood, at);
    case FLOOD_MIX:
      return mixed[draw(flood, 3)](flood, at);
    default:
      return put_hostile(flood, at);
  }
}

/* Fill a page with a batch; returns how many records. */
static uint16_t make_batch(struct flood *flood, uint8_t *page) {
  struct pax_batch header = {.magic = PAX_MAGIC_BATCH,
                             .major = PAX_MAJOR,
                             .header_size = sizeof header,
                             .writer = flood->writer,
                             .sequence = (uint32_t)flood->batches};
  uint32_t size = sizeof header;
  uint64_t left = flood->config.records > 0 ? flood->config.records - flood->sent : UINT64_MAX;
  uint32_t largest = flood->config.mix == FLOOD_HOSTILE ? LARGE_SET : LARGEST;
  memset(page, 0, PAX_PAGE_BYTES);
  while (size + largest <= PAX_PAGE_BYTES && header.record_count < left) {
    size += put_record(flood, page + size);
    header.record_count++;
  }
  header.size = size;
  put(page, &header, sizeof header);
  header.crc32c = ps_crc32c(page, size);
  put(page, &header, sizeof header);
  return header.record_count;
}

static void send_batch(struct flood *flood) {
  uint16_t cid = flood->idle[--flood->idle_count];
  uint16_t count = make_batch(flood, flood->pages[cid]);
  struct capsule sqe = {.opcode = PAX_OPCODE_SUBMIT, .nsid = 1, .cdw10 = NO_MAILBOX};
  if (flood->config.by_pages)
    sqe = (struct capsule){.opcode = PS_OP_WRITE,
                           .nsid = flood->config.extension,
                           .cdw10 = PAX_PAGE_MAILBOXES + cid % PAX_MAILBOXES};
  flood->counts[cid] = count;
  flood->sent += count;
  if (flood->config.rate > 0) flood->due_ns += count * UINT64_C(1000000000) / flood->config.rate;
  queue_command(flood->queue, &sqe, cid, flood->pages[cid], PAX_PAGE_BYTES,
                flood->config.in_capsule);
}

static bool is_all_sent(const struct flood *flood) {
  return flood->config.records > 0 && flood->sent >= flood->config.records;
}

void flood_send(struct flood *flood, uint64_t now_ns) {
  while (flood->idle_count > 0 && flood->due_ns <= now_ns && !is_all_sent(flood)) send_batch(flood);
}

static void batch_ended(struct queue *queue, uint16_t cid, uint64_t now_ns) {
  struct flood *flood = queue->owner;
  flood->batches++;
  flood->records += flood->counts[cid];
  flood->accepted += queue->result & 0xffff;
  flood->dropped += queue->result >> 16 & 0xffff;
  flood->idle[flood->idle_count++] = cid;
  flood_send(flood, now_ns);
}

uint64_t flood_next_ns(const struct flood *flood) {
  return flood->idle_count == 0 || is_all_sent(flood) ? UINT64_MAX : flood->due_ns;
}

bool flood_is_over(const struct flood *flood) {
  return is_all_sent(flood) && flood->records == flood->sent;
}

void flood_init(struct flood *flood, const struct flood_config *config, struct queue *queue,
                uint64_t now_ns) {
  flood->config = *config;
  flood->queue = queue;
  flood->seed = 0x2545F4914F6CDD1Du;
  flood->writer = random_next(&flood->seed);
  flood->due_ns = now_ns;
  for (uint32_t cid = 0; cid < config->depth; cid++)
    flood->idle[flood->idle_count++] = (uint16_t)cid;
  queue->owner = flood;
  queue->ended = batch_ended;
}
