/* Answer pages: a batch that was kept is evaluated when its answer is read. */
#include "../engine.h"
#include "../nvme.h"
#include "internal.h"

/* An answer page that is being written. */
struct answer_page {
  uint8_t *bytes;
  struct pax_answer header;
};

static void begin(struct answer_page *page, uint8_t *bytes) {
  assert(bytes != NULL);
  memset(bytes, 0, PAX_PAGE_BYTES);
  *page = (struct answer_page){.bytes = bytes,
                               .header = {.magic = PAX_MAGIC_ANSWER,
                                          .major = PAX_MAJOR,
                                          .minor = PAX_MINOR,
                                          .header_size = sizeof page->header,
                                          .size = sizeof page->header}};
}

static bool has_room(struct answer_page *page, uint32_t size) {
  if (size <= PAX_PAGE_BYTES - page->header.size) return true;
  page->header.flags |= PAX_ANSWER_FLAG_TRUNCATED;
  return false;
}

/* False when there is no room for it. */
static bool add(struct answer_page *page, const void *answer, uint32_t size) {
  if (!has_room(page, size)) return false;
  memcpy(page->bytes + page->header.size, answer, size);
  page->header.size += size;
  page->header.answer_count++;
  return true;
}

static void end(struct answer_page *page) {
  memcpy(page->bytes, &page->header, sizeof page->header);
  page->header.crc32c = ps_crc32c(page->bytes, page->header.size);
  memcpy(page->bytes, &page->header, sizeof page->header);
}

void hints_outcome(const struct ps_hints *hints, uint16_t tenant, uint64_t id, uint32_t tag,
                   struct pax_outcome_answer *answer) {
  assert(hints != NULL && answer != NULL);
  *answer = (struct pax_outcome_answer){.type = PAX_TYPE_OUTCOME_ANSWER,
                                        .size = sizeof *answer,
                                        .tag = tag,
                                        .intent_id = id,
                                        .ready_us = PAX_READY_NEVER};
  uint32_t index = hints_find_intent(hints, tenant, id);
  if (index == NONE) return;
  const struct intent *intent = hints_intent(hints, index);
  answer->total_bytes = intent->total_bytes;
  answer->admitted_bytes = intent->admitted_bytes;
  answer->warm_bytes = intent->warm_bytes;
  answer->predicted_us = intent->predicted_us;
  answer->state = intent->state;
  answer->verdict = intent->verdict;
  answer->reason = intent->reason;
  answer->flags = intent->flags;
  bool is_ready = intent->state == PAX_STATE_MET || intent->state == PAX_STATE_LATE;
  if (is_ready) answer->ready_us = intent->ended_us;
}

/* The answer to a record that was dropped because too many came. */
static bool answer_limited(struct answer_page *page, const uint8_t *bytes,
                           const struct pax_record *record) {
  if (record->type == PAX_TYPE_RESIDENCY) {
    struct pax_residency_answer answer = {.type = PAX_TYPE_RESIDENCY_ANSWER,
                                          .size = sizeof answer,
                                          .tag = record->tag,
                                          .reason = PAX_REASON_RATE};
    return add(page, &answer, sizeof answer);
  }
  bool is_intent = record->type == PAX_TYPE_INTENT;
  struct pax_outcome_answer answer = {
      .type = PAX_TYPE_OUTCOME_ANSWER,
      .size = sizeof answer,
      .tag = record->tag,
      .ready_us = PAX_READY_NEVER,
      .state = is_intent ? PAX_STATE_DROPPED : PAX_STATE_UNKNOWN,
      .verdict = is_intent ? PAX_VERDICT_DROPPED : PAX_VERDICT_NONE,
      .reason = PAX_REASON_RATE,
  };
  _Static_assert(offsetof(struct pax_intent, intent_id) == offsetof(struct pax_outcome, intent_id),
                 "an intent and a query of its outcome have its id in one place");
  memcpy(&answer.intent_id, bytes + offsetof(struct pax_outcome, intent_id),
         sizeof answer.intent_id);
  return add(page, &answer, sizeof answer);
}

/* False when the page is full. */
static bool answer_one(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                       struct answer_page *page, const uint8_t *bytes, bool is_limited) {
  struct pax_record record;
  memcpy(&record, bytes, sizeof record);
  bool is_outcome = record.type == PAX_TYPE_INTENT || record.type == PAX_TYPE_OUTCOME;
  if (!is_outcome && record.type != PAX_TYPE_RESIDENCY) return true;
  if (is_limited) return answer_limited(page, bytes, &record);
  if (is_outcome) {
    struct pax_outcome_answer answer;
    uint64_t id;
    memcpy(&id, bytes + offsetof(struct pax_outcome, intent_id), sizeof id);
    hints_outcome(hints, scope->tenant, id, record.tag, &answer);
    return add(page, &answer, sizeof answer);
  }
  struct pax_residency_answer answer;
  if (!has_room(page, sizeof answer)) return false;
  hints_residency(hints, now_ns, scope, bytes, &answer);
  return add(page, &answer, sizeof answer);
}

static void answer_all(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                       struct answer_page *page, const struct page *kept) {
  struct pax_batch header;
  memcpy(&header, kept->bytes, sizeof header);
  uint32_t at = header.header_size;
  for (uint32_t i = 0; i < header.record_count; i++) {
    struct pax_record record;
    memcpy(&record, kept->bytes + at, sizeof record);
    bool is_limited = (kept->limited[i / 64] >> i % 64 & 1) != 0;
    if (!answer_one(hints, now_ns, scope, page, kept->bytes + at, is_limited)) return;
    at += record.size;
  }
}

void ps_hints_answer(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint32_t mailbox, uint8_t *bytes) {
  assert(hints != NULL && scope != NULL && mailbox < PAX_MAILBOXES);
  struct answer_page page;
  hints->looks = 0;
  begin(&page, bytes);
  uint32_t index = hints_tenant(hints, scope->tenant)->mailboxes[mailbox];
  if (index != NONE) {
    const struct page *kept = hints_page(hints, index);
    struct pax_answer *header = &page.header;
    header->writer = kept->writer;
    header->sequence = kept->sequence;
    header->state = kept->size > 0 ? PAX_ANSWER_STATE_APPLIED : PAX_ANSWER_STATE_REFUSED;
    header->fault = (uint16_t)kept->result.fault;
    header->fault_offset = kept->result.fault_offset;
    header->accepted = kept->result.accepted;
    header->dropped = kept->result.dropped;
    header->unknown = kept->result.unknown;
    header->dropped_tag = kept->dropped_tag;
    header->dropped_reason = kept->dropped_reason;
    if (kept->size > 0) answer_all(hints, now_ns, scope, &page, kept);
  }
  end(&page);
}

enum { QUERY_KIND_MASK = 0xff };

/* CDW10 to CDW15 as a residency record; false: no set, or no blocks of the namespace. */
static bool ask_residency(struct ps_hints *hints, const struct ps_hints_scope *scope, uint32_t nsid,
                          const uint32_t *cdw, uint8_t *record) {
  struct ps_hints_namespace space;
  uint64_t number = (uint64_t)cdw[3] << 32 | cdw[2];
  struct pax_residency head = {.type = PAX_TYPE_RESIDENCY, .size = sizeof head, .nsid = nsid};
  if ((cdw[0] & QUERY_KIND_MASK) == PAX_QUERY_RESIDENCY_SET) {
    head.set_id = number;
    memcpy(record, &head, sizeof head);
    return number != 0;
  }
  if (cdw[4] == 0 || !hints->resolve(hints->context, scope->subsystem, nsid, &space)) return false;
  if (number > space.blocks || cdw[4] > space.blocks - number) return false;
  struct pax_range range = {.slba = number, .nlb = cdw[4]};
  head.range_count = 1;
  head.size += sizeof range;
  memcpy(record, &head, sizeof head);
  memcpy(record + sizeof head, &range, sizeof range);
  return true;
}

static void put_one(uint8_t *bytes, const void *answer, uint32_t size) {
  struct answer_page page;
  begin(&page, bytes);
  page.header.state = PAX_ANSWER_STATE_APPLIED;
  page.header.accepted = 1;
  add(&page, answer, size);
  end(&page);
}

uint16_t ps_hints_query(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                        uint32_t nsid, const uint32_t cdw10_to_15[6], uint8_t *page) {
  assert(hints != NULL && scope != NULL && cdw10_to_15 != NULL && page != NULL);
  const uint32_t *cdw = cdw10_to_15;
  uint64_t number = (uint64_t)cdw[3] << 32 | cdw[2];
  uint8_t record[sizeof(struct pax_residency) + sizeof(struct pax_range)];
  struct pax_residency_answer residency;
  struct pax_outcome_answer outcome;
  hints->looks = 0;
  memset(page, 0, PAX_PAGE_BYTES);
  switch (cdw[0] & QUERY_KIND_MASK) {
    case PAX_QUERY_MAILBOX:
      if (cdw[1] >= PAX_MAILBOXES) break;
      ps_hints_answer(hints, now_ns, scope, cdw[1], page);
      return PS_SC_SUCCESS;
    case PAX_QUERY_RESIDENCY_RANGE:
    case PAX_QUERY_RESIDENCY_SET:
      if (!ask_residency(hints, scope, nsid, cdw, record)) break;
      hints_residency(hints, now_ns, scope, record, &residency);
      put_one(page, &residency, sizeof residency);
      return PS_SC_SUCCESS;
    case PAX_QUERY_OUTCOME:
      if (number == 0) break;
      hints_outcome(hints, scope->tenant, number, 0, &outcome);
      put_one(page, &outcome, sizeof outcome);
      return PS_SC_SUCCESS;
    case PAX_QUERY_STATUS:
      ps_hints_status(hints, now_ns, scope, page);
      return PS_SC_SUCCESS;
    default:
      break;
  }
  return PS_SC_INVALID_FIELD | PS_DNR;
}
