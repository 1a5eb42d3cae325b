/* A batch: looked at as a whole, then applied record by record, in parts if asked to. What could be
 * asked about is kept in the tenant's mailbox. */
#include "internal.h"

#define NONE_LIMITED UINT32_MAX

/* A record, or a part of one that goes on. Queries are answered when the answer is read. */
static uint8_t apply(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     const uint8_t *bytes, uint32_t type, struct ps_hints_progress *progress) {
  switch (type) {
    case PAX_TYPE_SET:
      return hints_apply_set(hints, now_ns, scope, bytes);
    case PAX_TYPE_SIGNATURE:
      return hints_apply_signature(hints, now_ns, scope, bytes);
    case PAX_TYPE_INTENT:
      return hints_apply_intent(hints, now_ns, scope, bytes, progress);
    case PAX_TYPE_RETAIN:
      return hints_apply_retain(hints, now_ns, scope, bytes, progress);
    case PAX_TYPE_CANCEL:
      return hints_apply_cancel(hints, now_ns, scope, bytes, progress);
    default:
      assert(type == PAX_TYPE_RESIDENCY || type == PAX_TYPE_OUTCOME);
      return PAX_REASON_NONE;
  }
}

static void note(struct ps_hints *hints, struct tenant *tenant, uint32_t tag, uint8_t reason,
                 struct ps_hints_progress *progress) {
  if (reason == PAX_REASON_NONE) {
    progress->result.accepted++;
    return;
  }
  if (progress->result.dropped++ == 0) {
    progress->dropped_tag = tag;
    progress->dropped_reason = reason;
  }
  tenant->dropped[reason]++;
  hints->stats.dropped++;
}

static bool is_in_budget(struct ps_hints *hints, uint64_t now_ns, struct tenant *tenant,
                         uint32_t ranges, const struct ps_hints_progress *progress) {
  if (progress->goes_on) return true;
  return progress->limited_from == NONE_LIMITED && hints_take_record(hints, tenant, now_ns, ranges);
}

/* When one record comes too fast, so do all that follow it in its batch. False: it goes on. */
static bool apply_one(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      const uint8_t *bytes, struct ps_hints_progress *progress) {
  struct pax_record record;
  memcpy(&record, bytes, sizeof record);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  uint32_t head = hints_record_size(record.type);
  if (head == 0) {
    progress->result.unknown++;
    return true;
  }
  uint8_t reason = PAX_REASON_RATE;
  uint32_t ranges = (record.size - head) / sizeof(struct pax_range);
  if (!is_in_budget(hints, now_ns, tenant, ranges, progress)) {
    if (record.type == PAX_TYPE_INTENT) hints_limit_intent(hints, now_ns, scope, bytes);
    if (progress->limited_from == NONE_LIMITED) progress->limited_from = progress->number;
  } else {
    reason = apply(hints, now_ns, scope, bytes, record.type, progress);
    if (progress->goes_on) return false;
  }
  note(hints, tenant, record.tag, reason, progress);
  return true;
}

static void refuse(struct ps_hints *hints, struct tenant *tenant, uint32_t mailbox,
                   const uint8_t *bytes, uint32_t size, const struct ps_hints_result *result,
                   struct page *page) {
  struct pax_batch header = {0};
  memcpy(&header, bytes, size < sizeof header ? size : sizeof header);
  uint64_t number = tenant->refused++;
  hints->stats.refused++;
  if (hints_is_shared(tenant)) return;
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

/* The memory for the next records, more of them than one part has: they wait for it together. */
static void ask_ahead(const struct ps_hints *hints, uint64_t now_ns,
                      const struct ps_hints_scope *scope, const uint8_t *bytes, uint32_t records,
                      struct ps_hints_progress *progress) {
  uint32_t left = records - progress->number;
  uint32_t count = left < PREFETCH_RECORDS ? left : PREFETCH_RECORDS;
  hints_prefetch(hints, now_ns, scope, bytes + progress->at, count);
  progress->asked_until += count;
}

/* Some records more, fewer when they look at much; false when there are others left. */
static bool take_some(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                      const uint8_t *bytes, uint32_t records, struct ps_hints_progress *progress) {
  struct pax_batch header;
  memcpy(&header, bytes, sizeof header);
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  bool is_whole = records == UINT32_MAX;
  uint64_t enough = tenant->extents_looked + PART_EXTENTS;
  uint32_t left = header.record_count - progress->number;
  uint32_t most = records < left ? records : left;
  uint32_t count = 0;
  while (count < most && (is_whole || tenant->extents_looked < enough)) {
    struct pax_record record;
    memcpy(&record, bytes + progress->at, sizeof record);
    if (progress->number == progress->asked_until)
      ask_ahead(hints, now_ns, scope, bytes, header.record_count, progress);
    if (!apply_one(hints, now_ns, scope, bytes + progress->at, progress)) {
      if (is_whole) continue;
      break;
    }
    progress->at += record.size;
    progress->number++;
    count++;
  }
  hints_count_records(tenant, now_ns, count);
  hints->stats.records += count;
  return progress->number == header.record_count;
}

static void keep(struct page *page, const uint8_t *bytes,
                 const struct ps_hints_progress *progress) {
  struct pax_batch header;
  memcpy(&header, bytes, sizeof header);
  page->writer = header.writer;
  page->sequence = header.sequence;
  page->size = header.size;
  page->result = progress->result;
  page->dropped_tag = progress->dropped_tag;
  page->dropped_reason = progress->dropped_reason;
  for (uint32_t i = progress->limited_from; i < header.record_count; i++)
    page->limited[i / 64] |= UINT64_C(1) << i % 64;
  memcpy(page->bytes, bytes, header.size);
}

static struct page *open_page(struct ps_hints *hints, const struct ps_hints_scope *scope,
                              uint32_t mailbox) {
  if (mailbox >= PAX_MAILBOXES || hints_is_shared(hints_tenant(hints, scope->tenant))) return NULL;
  return hints_page(hints, hints_open_page(hints, scope->tenant, mailbox));
}

/* False: it was refused. */
static bool begin(struct ps_hints *hints, const struct ps_hints_scope *scope, uint32_t mailbox,
                  const uint8_t *bytes, uint32_t size, struct ps_hints_progress *progress) {
  struct ps_hints_result *result = &progress->result;
  ps_hints_check(bytes, size, PAX_MAX_BATCH_BYTES, result);
  result->unknown = 0;
  if (result->fault != PAX_FAULT_NONE) {
    struct tenant *tenant = hints_tenant(hints, scope->tenant);
    refuse(hints, tenant, mailbox, bytes, size, result, open_page(hints, scope, mailbox));
    return false;
  }
  struct pax_batch header;
  memcpy(&header, bytes, sizeof header);
  progress->at = header.header_size;
  progress->limited_from = NONE_LIMITED;
  return true;
}

bool ps_hints_submit_some(struct ps_hints *hints, uint64_t now_ns,
                          const struct ps_hints_scope *scope, uint32_t mailbox,
                          const uint8_t *bytes, uint32_t size, uint32_t records,
                          struct ps_hints_progress *progress) {
  assert(hints != NULL && scope != NULL && progress != NULL);
  assert(bytes != NULL || size == 0);
  assert(records > 0);
  if (progress->at == 0 && !begin(hints, scope, mailbox, bytes, size, progress)) return true;
  hints->looks = progress->looks;
  bool is_done = take_some(hints, now_ns, scope, bytes, records, progress);
  progress->looks = hints->looks;
  if (!is_done) return false;
  struct tenant *tenant = hints_tenant(hints, scope->tenant);
  tenant->batches++;
  tenant->unknown += progress->result.unknown;
  hints->stats.batches++;
  hints->stats.unknown += progress->result.unknown;
  struct page *page = open_page(hints, scope, mailbox);
  if (page != NULL) keep(page, bytes, progress);
  return true;
}

void ps_hints_submit(struct ps_hints *hints, uint64_t now_ns, const struct ps_hints_scope *scope,
                     uint32_t mailbox, const uint8_t *bytes, uint32_t size,
                     struct ps_hints_result *result) {
  assert(result != NULL);
  struct ps_hints_progress progress = {.at = 0};
  bool is_done =
      ps_hints_submit_some(hints, now_ns, scope, mailbox, bytes, size, UINT32_MAX, &progress);
  assert(is_done);
  *result = progress.result;
}
