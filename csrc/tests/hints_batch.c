/* Random batches for the tests of the hints, and a host that looks at everything. */
#include "hints_rig.h"

/* Few ids and few places, so that records meet each other. */
static uint64_t some_id(struct rig *rig) { return 1 + rig->below(rig, 12); }

static struct pax_range some_range(struct rig *rig) {
  uint32_t slots = (2 << 20) / RIG_SLOT;
  uint32_t per_slot = RIG_SLOT / RIG_BLOCK;
  uint64_t slba = (uint64_t)rig->below(rig, slots - 4) * per_slot;
  if (rig_chance(rig, 50)) slba += rig->below(rig, per_slot);
  uint32_t nlb = 1 + rig->below(rig, 3 * per_slot);
  if (rig_chance(rig, 2)) nlb *= 8;
  if (rig->below(rig, 400) == 0) nlb = UINT32_MAX;
  if (rig->below(rig, 400) == 0) slba = UINT64_MAX - rig->below(rig, 5);
  return (struct pax_range){.slba = slba, .nlb = nlb};
}

static uint32_t add_ranges(struct rig *rig, uint8_t *at, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    struct pax_range range = some_range(rig);
    memcpy(at + i * sizeof range, &range, sizeof range);
  }
  return count * (uint32_t)sizeof(struct pax_range);
}

static uint32_t add_set(struct rig *rig, uint8_t *at) {
  struct pax_set record = {.type = PAX_TYPE_SET,
                           .set_id = some_id(rig),
                           .op = rig_chance(rig, 70) ? PAX_SET_OP_DEFINE : PAX_SET_OP_EXTEND,
                           .flags = (uint8_t)rig->below(rig, 2),
                           .nsid = 1 + rig->below(rig, RIG_VOLUMES),
                           .ttl_ms = rig->below(rig, 3) * rig->below(rig, 500)};
  if (rig_chance(rig, 10)) record.op = PAX_SET_OP_DROP;
  if (rig_chance(rig, 2)) record.nsid = RIG_VOLUMES + 1;
  if (record.op != PAX_SET_OP_DROP) record.range_count = (uint16_t)(1 + rig->below(rig, 9));
  uint32_t size = add_ranges(rig, at + sizeof record, record.range_count);
  record.size = (uint16_t)(sizeof record + size);
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_signature(struct rig *rig, uint8_t *at) {
  struct pax_range range = some_range(rig);
  struct pax_signature record = {.type = PAX_TYPE_SIGNATURE,
                                 .size = sizeof record,
                                 .slba = range.slba,
                                 .nlb = range.nlb,
                                 .nsid = 1 + rig->below(rig, RIG_VOLUMES),
                                 .bits = rig_chance(rig, 50) ? 64 : 128,
                                 .ttl_ms = rig->below(rig, 200)};
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_intent(struct rig *rig, uint8_t *at) {
  struct pax_intent record = {.type = PAX_TYPE_INTENT,
                              .intent_id = some_id(rig),
                              .session = rig->below(rig, 4),
                              .deadline_us = rig->below(rig, 4) * rig->below(rig, 20000),
                              .nsid = 1 + rig->below(rig, RIG_VOLUMES),
                              .priority = (uint8_t)rig->below(rig, PAX_PRIORITIES),
                              .confidence = (uint8_t)rig->below(rig, 101),
                              .flags = (uint8_t)rig->below(rig, 4)};
  if (rig_chance(rig, 50)) {
    record.set_id = some_id(rig);
  } else {
    record.range_count = (uint16_t)(1 + rig->below(rig, 5));
  }
  uint32_t size = add_ranges(rig, at + sizeof record, record.range_count);
  record.size = (uint16_t)(sizeof record + size);
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_retain(struct rig *rig, uint8_t *at) {
  struct pax_retain record = {.type = PAX_TYPE_RETAIN,
                              .duration_ms = rig->below(rig, 100),
                              .nsid = 1 + rig->below(rig, RIG_VOLUMES)};
  if (rig_chance(rig, 50)) {
    record.set_id = some_id(rig);
  } else {
    record.range_count = (uint16_t)(1 + rig->below(rig, 3));
  }
  uint32_t size = add_ranges(rig, at + sizeof record, record.range_count);
  record.size = (uint16_t)(sizeof record + size);
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_cancel(struct rig *rig, uint8_t *at) {
  uint8_t what = PAX_CANCEL_WHAT_INTENT;
  if (rig_chance(rig, 30)) what = PAX_CANCEL_WHAT_SESSION;
  if (rig_chance(rig, 5)) what = PAX_CANCEL_WHAT_ALL;
  if (rig_chance(rig, 3)) what = PAX_CANCEL_WHAT_EVERYTHING;
  struct pax_cancel record = {
      .type = PAX_TYPE_CANCEL, .size = sizeof record, .id = some_id(rig), .what = what};
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_residency(struct rig *rig, uint8_t *at) {
  struct pax_residency record = {.type = PAX_TYPE_RESIDENCY,
                                 .nsid = 1 + rig->below(rig, RIG_VOLUMES)};
  if (rig_chance(rig, 50)) {
    record.set_id = some_id(rig);
  } else {
    record.range_count = (uint16_t)(1 + rig->below(rig, 3));
  }
  uint32_t size = add_ranges(rig, at + sizeof record, record.range_count);
  record.size = (uint16_t)(sizeof record + size);
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_outcome(struct rig *rig, uint8_t *at) {
  struct pax_outcome record = {
      .type = PAX_TYPE_OUTCOME, .size = sizeof record, .intent_id = some_id(rig)};
  memcpy(at, &record, sizeof record);
  return record.size;
}

static uint32_t add_unknown(struct rig *rig, uint8_t *at) {
  struct pax_record record = {.type = (uint16_t)(6 + rig->below(rig, 200)), .size = 24};
  memset(at, 0xA5, record.size);
  memcpy(at, &record, sizeof record);
  return record.size;
}

uint32_t rig_batch(struct rig *rig, uint8_t *bytes) {
  static uint32_t (*const adders[])(struct rig *, uint8_t *) = {
      add_set,    add_set,    add_signature, add_intent,  add_intent, add_intent,
      add_retain, add_cancel, add_residency, add_outcome, add_unknown};
  struct pax_batch header = {.magic = PAX_MAGIC_BATCH,
                             .major = PAX_MAJOR,
                             .minor = (uint8_t)rig->below(rig, 3),
                             .header_size = sizeof header,
                             .writer = some_id(rig),
                             .sequence = rig->below(rig, UINT32_MAX)};
  memset(bytes, 0, PAX_PAGE_BYTES);
  if (rig_chance(rig, 10)) header.header_size += 8;
  uint32_t at = header.header_size;
  uint32_t records = rig->below(rig, 8);
  for (uint32_t i = 0; i < records && at < PAX_PAGE_BYTES - 512; i++) {
    uint32_t size = adders[rig->below(rig, sizeof adders / sizeof adders[0])](rig, bytes + at);
    struct pax_record head;
    memcpy(&head, bytes + at, sizeof head);
    head.tag = rig->below(rig, UINT32_MAX);
    memcpy(bytes + at, &head, sizeof head);
    at += size;
    header.record_count++;
  }
  header.size = at;
  memcpy(bytes, &header, sizeof header);
  rig_seal(bytes);
  return at;
}

void rig_seal(uint8_t *bytes) {
  struct pax_batch header;
  memcpy(&header, bytes, sizeof header);
  if (header.size < sizeof header || header.size > PAX_PAGE_BYTES) return;
  header.crc32c = 0;
  memcpy(bytes, &header, sizeof header);
  header.crc32c = ps_crc32c(bytes, header.size);
  memcpy(bytes, &header, sizeof header);
}

static void check_outcome(const uint8_t *bytes) {
  struct pax_outcome_answer answer;
  memcpy(&answer, bytes, sizeof answer);
  bool is_ready = answer.state == PAX_STATE_MET || answer.state == PAX_STATE_LATE;
  RIG_CHECK(answer.state <= PAX_STATE_CANCELLED && answer.verdict <= PAX_VERDICT_DROPPED);
  RIG_CHECK((answer.ready_us != PAX_READY_NEVER) == is_ready);
  RIG_CHECK((answer.state == PAX_STATE_DROPPED) == (answer.reason != PAX_REASON_NONE) ||
            answer.reason == PAX_REASON_RATE);
  RIG_CHECK(answer.admitted_bytes <= answer.total_bytes);
  RIG_CHECK(answer.warm_bytes <= answer.total_bytes);
  if (is_ready) RIG_CHECK(answer.warm_bytes == answer.admitted_bytes);
  if (answer.flags != 0) RIG_CHECK(answer.state == PAX_STATE_MET && answer.ready_us == 0);
}

static void check_residency(const uint8_t *bytes) {
  struct pax_residency_answer answer;
  memcpy(&answer, bytes, sizeof answer);
  if (answer.reason != PAX_REASON_NONE) {
    RIG_CHECK(answer.total_bytes == 0 && answer.warm_bytes == 0 && answer.ready_us == 0);
    return;
  }
  RIG_CHECK(answer.total_bytes > 0 && answer.total_bytes <= PS_HINTS_QUERY_BYTES);
  RIG_CHECK(answer.warm_bytes + answer.coming_bytes <= answer.total_bytes);
}

static void check_answer(uint8_t *page) {
  struct pax_answer header;
  memcpy(&header, page, sizeof header);
  uint32_t at = header.header_size;
  RIG_CHECK(header.magic == PAX_MAGIC_ANSWER && header.size <= PAX_PAGE_BYTES);
  RIG_CHECK((header.state == PAX_ANSWER_STATE_REFUSED) == (header.fault != 0));
  for (uint32_t i = 0; i < header.answer_count; i++) {
    struct pax_record record;
    memcpy(&record, page + at, sizeof record);
    if (record.type == PAX_TYPE_OUTCOME_ANSWER) {
      check_outcome(page + at);
    } else {
      RIG_CHECK(record.type == PAX_TYPE_RESIDENCY_ANSWER);
      check_residency(page + at);
    }
    at += record.size;
  }
  RIG_CHECK(at == header.size);
  memset(page + offsetof(struct pax_answer, crc32c), 0, sizeof header.crc32c);
  RIG_CHECK(ps_crc32c(page, header.size) == header.crc32c);
}

static void check_counts(const struct pax_counts *counts, bool is_intent) {
  for (uint32_t i = 0; i < PAX_PRIORITIES; i++) {
    uint64_t ended = counts[i].met + counts[i].late + counts[i].dropped + counts[i].cancelled;
    RIG_CHECK(counts[i].arrived == counts[i].pending + ended);
    RIG_CHECK(is_intent || counts[i].dropped == 0);
  }
}

void rig_look(struct rig *rig, const struct ps_hints_scope *scope) {
  static uint8_t page[PAX_PAGE_BYTES];
  ps_hints_answer(rig->hints, rig->now_ns, scope, rig->below(rig, RIG_MAILBOXES), page);
  check_answer(page);
  uint32_t cdw[6] = {rig->below(rig, 6),
                     rig->below(rig, 70),
                     rig->below(rig, 5000),
                     0,
                     rig->below(rig, 3) * rig->below(rig, 1000),
                     9};
  if (cdw[0] == PAX_QUERY_OUTCOME) cdw[2] %= 13;
  uint32_t nsid = 1 + rig->below(rig, RIG_VOLUMES + 1);
  uint16_t status = ps_hints_query(rig->hints, rig->now_ns, scope, nsid, cdw, page);
  RIG_CHECK(status == 0 || status == (PS_SC_INVALID_FIELD | PS_DNR));
  if (status == 0 && cdw[0] != PAX_QUERY_STATUS) check_answer(page);
  struct pax_status own;
  ps_hints_status(rig->hints, rig->now_ns, scope, page);
  memcpy(&own, page, sizeof own);
  check_counts(own.intent_counts, true);
  check_counts(own.read_counts, false);
  RIG_CHECK(own.intents.used <= own.intents.limit && own.sets.used <= own.sets.limit);
  RIG_CHECK(own.set_ranges.used <= own.set_ranges.limit);
  RIG_CHECK(own.signatures.used <= own.signatures.limit);
  RIG_CHECK(own.intent_bytes.used <= own.intent_bytes.limit);
  ps_hints_events(rig->hints, scope->tenant, rig_chance(rig, 20), page);
  while (ps_hints_next_event(rig->hints) >= 0) {
  }
}
