/* A batch: looked at as a whole, then applied record by record. What could be asked about is kept
 * in the tenant's mailbox. */
#include "internal.h"

typedef uint8_t (*apply)(struct ps_hints *hints, uint64_t now_ns,
                         const struct ps_hints_scope *scope, const uint8_t *record);

/* Queries are answered when the answer is read. */
static uint8_t apply_query(struct ps_hints *hints, uint64_t now_ns,
                           const struct ps_hints_scope *scope, const uint8_t *record) {
  assert(hints != NULL && scope != NULL && record != NULL);
  return PAX_REASON_NONE;
}

static apply apply_of(uint32_t type) {
  switch (type) {
    case PAX_TYPE_SET:
      return hints_apply_set;
    case PAX_TYPE_SIGNATURE:
      return hints_apply_signature;
    case PAX_TYPE_INTENT:
      return hints_apply_intent;
    case PAX_TYPE_RETAIN:
      return hints_apply_retain;
    case PAX_TYPE_CANCEL:
      return hints_apply_cancel;
    default:
      assert(type == PAX_TYPE_RESIDENCY || type == PAX_TYPE_OUTCOME);
      return apply_query;
  }
}

/* What came out of a batch so far. */
struct outcome {
  struct ps_hints_result *result;
  struct page *page; /* or NULL */
  uint32_t dropped_tag;
  uint8_t dropped_reason;
};

static void note(struct ps_hints *hints, struct tenant *tenant, struct outcome *outcome,
                 uint32_t tag, uint8_t reason) {
  if (reason == PAX_REASON_NONE) {
    outcome->result->accepted++;
    return;
  }
  if (outcome->result->dropped++ == 0) {
    outcome->dropped_tag = tag;
    outcome->dropped_reason = reason;
  }
  tenant->dropped[reason]++;
  hints->stats.dropped++;
}

static void apply_one(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      const uint8_t *bytes, uint32_t number, struct outcome *outcome) {
  struct pax_record record;
  memcpy(&record, bytes, sizeof record);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  uint32_t head = hints_record_size(record.type);
  if (head == 0) {
    outcome->result->unknown++;
    return;
  }
  uint8_t reason = PAX_REASON_RATE;
  uint32_t ranges = (record.size - head) / sizeof(struct pax_range);
  if (hints_take_record(hints, tenant, now_ns, ranges)) {
    reason = apply_of(record.type)(hints, now_ns, scope, bytes);
  } else {
    if (record.type == PAX_TYPE_INTENT) hints_limit_intent(hints, now_ns, scope, bytes);
    if (outcome->page != NULL) outcome->page->limited[number / 64] |= UINT64_C(1) << number % 64;
  }
  note(hints, tenant, outcome, record.tag, reason);
}

static void refuse(struct ps_hints *hints, struct tenant *tenant, uint32_t mailbox,
                   const uint8_t *bytes, uint32_t size, const struct ps_hints_result *result,
                   struct page *page) {
  struct pax_batch header = {0};
  memcpy(&header, bytes, size < sizeof header ? size : sizeof header);
  uint64_t number = tenant->refused++;
  hints->stats.refused++;
  tenant->refusals[number % PAX_REFUSALS] =
      (struct pax_refusal){.writer = header.writer,
                           .sequence = header.sequence,
                           .fault_offset = result->fault_offset,
                           .fault = (uint16_t)result->fault,
                           .mailbox = (uint16_t)(mailbox < PAX_MAILBOXES ? mailbox : UINT16_MAX)};
  if (page == NULL) return;
  page->writer = header.writer;
  page->sequence = header.sequence;
  page->result = *result;
}

static void take(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                 const uint8_t *bytes, struct outcome *outcome) {
  struct pax_batch header;
  memcpy(&header, bytes, sizeof header);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  uint32_t at = header.header_size;
  outcome->result->unknown = 0;
  hints_prefetch(hints, scope, bytes);
  for (uint32_t i = 0; i < header.record_count; i++) {
    struct pax_record record;
    memcpy(&record, bytes + at, sizeof record);
    apply_one(hints, now_ns, scope, bytes + at, i, outcome);
    at += record.size;
  }
  assert(at == header.size);
  hints_count_records(tenant, now_ns, header.record_count);
  tenant->batches++;
  tenant->unknown += outcome->result->unknown;
  hints->stats.batches++;
  hints->stats.records += header.record_count;
  hints->stats.unknown += outcome->result->unknown;
  struct page *page = outcome->page;
  if (page == NULL) return;
  page->writer = header.writer;
  page->sequence = header.sequence;
  page->size = header.size;
  page->result = *outcome->result;
  page->dropped_tag = outcome->dropped_tag;
  page->dropped_reason = outcome->dropped_reason;
  memcpy(page->bytes, bytes, header.size);
}

void ps_hints_submit(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint32_t mailbox, const uint8_t *bytes, uint32_t size,
                     struct ps_hints_result *result) {
  assert(hints != NULL && scope != NULL && result != NULL);
  assert(bytes != NULL || size == 0);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  struct outcome outcome = {.result = result};
  hints->looks = 0;
  ps_hints_check(bytes, size, PAX_MAX_BATCH_BYTES, result);
  if (mailbox < PAX_MAILBOXES) {
    outcome.page = hints_page(hints, hints_open_page(hints, scope->tenant, mailbox));
  }
  if (result->fault != PAX_FAULT_NONE) {
    result->unknown = 0;
    refuse(hints, tenant, mailbox, bytes, size, result, outcome.page);
  } else {
    take(hints, now_ns, scope, bytes, &outcome);
  }
}
