/* A whole batch is looked at before anything of it is applied (PAX 1.0, clause 5.5). */
#include "../engine.h"
#include "internal.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are read as they lie");

enum { ALIGNMENT = 8, MOST_CONFIDENCE = 100 };

static bool refuse(struct ps_hints_result *result, uint32_t fault, size_t offset) {
  assert(fault != PAX_FAULT_NONE && offset <= UINT32_MAX);
  result->fault = fault;
  result->fault_offset = (uint32_t)offset;
  return false;
}

static uint32_t checksum_of(const uint8_t *bytes, uint32_t size) {
  struct pax_batch header;
  uint8_t copy[PAX_MAX_BATCH_BYTES];
  assert(size >= sizeof header && size <= sizeof copy);
  memcpy(copy, bytes, size);
  memset(copy + offsetof(struct pax_batch, crc32c), 0, sizeof header.crc32c);
  return ps_crc32c(copy, size);
}

static bool check_header(const uint8_t *bytes, uint32_t size, uint32_t max_size,
                         struct pax_batch *header, struct ps_hints_result *result) {
  if (size < sizeof *header) return refuse(result, PAX_FAULT_SIZE, 0);
  memcpy(header, bytes, sizeof *header);
  if (header->magic != PAX_MAGIC_BATCH) return refuse(result, PAX_FAULT_MAGIC, 0);
  if (header->major != PAX_MAJOR) {
    return refuse(result, PAX_FAULT_VERSION, offsetof(struct pax_batch, major));
  }
  if (header->header_size < sizeof *header || header->header_size % ALIGNMENT != 0) {
    return refuse(result, PAX_FAULT_SIZE, offsetof(struct pax_batch, header_size));
  }
  uint32_t most = size < max_size ? size : max_size;
  if (most > PAX_MAX_BATCH_BYTES) most = PAX_MAX_BATCH_BYTES;
  if (header->size < header->header_size || header->size > most) {
    return refuse(result, PAX_FAULT_SIZE, offsetof(struct pax_batch, size));
  }
  if (checksum_of(bytes, header->size) != header->crc32c) {
    return refuse(result, PAX_FAULT_CHECKSUM, offsetof(struct pax_batch, crc32c));
  }
  return true;
}

/* What the types have in common: how large they are, and where they count their ranges. */
static const struct shape {
  uint16_t type, size, range_count; /* 0: no ranges trail */
} shapes[] = {
    {PAX_TYPE_SET, sizeof(struct pax_set), offsetof(struct pax_set, range_count)},
    {PAX_TYPE_SIGNATURE, sizeof(struct pax_signature), 0},
    {PAX_TYPE_INTENT, sizeof(struct pax_intent), offsetof(struct pax_intent, range_count)},
    {PAX_TYPE_RETAIN, sizeof(struct pax_retain), offsetof(struct pax_retain, range_count)},
    {PAX_TYPE_CANCEL, sizeof(struct pax_cancel), 0},
    {PAX_TYPE_RESIDENCY, sizeof(struct pax_residency), offsetof(struct pax_residency, range_count)},
    {PAX_TYPE_OUTCOME, sizeof(struct pax_outcome), 0},
};

static const struct shape *shape_of(uint32_t type) {
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
    if (shapes[i].type == type) return &shapes[i];
  }
  return NULL;
}

uint32_t hints_record_size(uint32_t type) {
  const struct shape *shape = shape_of(type);
  return shape == NULL ? 0 : shape->size;
}

/* Each of these says where the first field is whose value is not allowed; 0: there is none. */

static size_t fault_in_set(const uint8_t *bytes) {
  struct pax_set record;
  memcpy(&record, bytes, sizeof record);
  if (record.set_id == 0 || record.set_id >= TARGET_SET) return offsetof(struct pax_set, set_id);
  if (record.op < PAX_SET_OP_DEFINE || record.op > PAX_SET_OP_DROP) {
    return offsetof(struct pax_set, op);
  }
  bool is_drop = record.op == PAX_SET_OP_DROP;
  return is_drop == (record.range_count == 0) ? 0 : offsetof(struct pax_set, range_count);
}

static size_t fault_in_signature(const uint8_t *bytes) {
  struct pax_signature record;
  memcpy(&record, bytes, sizeof record);
  if (record.nlb == 0) return offsetof(struct pax_signature, nlb);
  return record.bits == 64 || record.bits == 128 ? 0 : offsetof(struct pax_signature, bits);
}

static size_t fault_in_intent(const uint8_t *bytes) {
  struct pax_intent record;
  memcpy(&record, bytes, sizeof record);
  if (record.intent_id == 0) return offsetof(struct pax_intent, intent_id);
  if ((record.range_count == 0) != (record.set_id != 0)) {
    return offsetof(struct pax_intent, range_count);
  }
  if (record.priority >= PAX_PRIORITIES) return offsetof(struct pax_intent, priority);
  return record.confidence <= MOST_CONFIDENCE ? 0 : offsetof(struct pax_intent, confidence);
}

static size_t fault_in_retain(const uint8_t *bytes) {
  struct pax_retain record;
  memcpy(&record, bytes, sizeof record);
  bool is_good = (record.range_count == 0) == (record.set_id != 0);
  return is_good ? 0 : offsetof(struct pax_retain, range_count);
}

static size_t fault_in_residency(const uint8_t *bytes) {
  struct pax_residency record;
  memcpy(&record, bytes, sizeof record);
  bool is_good = (record.range_count == 0) == (record.set_id != 0);
  return is_good ? 0 : offsetof(struct pax_residency, range_count);
}

static size_t fault_in_cancel(const uint8_t *bytes) {
  struct pax_cancel record;
  memcpy(&record, bytes, sizeof record);
  bool is_good = record.what >= PAX_CANCEL_WHAT_INTENT && record.what <= PAX_CANCEL_WHAT_EVERYTHING;
  return is_good ? 0 : offsetof(struct pax_cancel, what);
}

static size_t fault_in_outcome(const uint8_t *bytes) {
  struct pax_outcome record;
  memcpy(&record, bytes, sizeof record);
  return record.intent_id != 0 ? 0 : offsetof(struct pax_outcome, intent_id);
}

static size_t fault_in(uint32_t type, const uint8_t *bytes) {
  switch (type) {
    case PAX_TYPE_SET:
      return fault_in_set(bytes);
    case PAX_TYPE_SIGNATURE:
      return fault_in_signature(bytes);
    case PAX_TYPE_INTENT:
      return fault_in_intent(bytes);
    case PAX_TYPE_RETAIN:
      return fault_in_retain(bytes);
    case PAX_TYPE_CANCEL:
      return fault_in_cancel(bytes);
    case PAX_TYPE_RESIDENCY:
      return fault_in_residency(bytes);
    default:
      assert(type == PAX_TYPE_OUTCOME);
      return fault_in_outcome(bytes);
  }
}

static bool check_ranges(const uint8_t *bytes, size_t at, size_t end,
                         struct ps_hints_result *result) {
  struct pax_range range;
  for (; at < end; at += sizeof range) {
    memcpy(&range, bytes + at, sizeof range);
    if (range.nlb == 0) {
      return refuse(result, PAX_FAULT_FIELD, at + offsetof(struct pax_range, nlb));
    }
  }
  return true;
}

/* The record at `at`, whose first 8 bytes are within the batch. */
static bool check_record(const uint8_t *bytes, uint32_t at, uint32_t end,
                         const struct pax_record *record, struct ps_hints_result *result) {
  size_t size_at = at + offsetof(struct pax_record, size);
  uint32_t size = record->size;
  if (size < sizeof *record || size % ALIGNMENT != 0 || size > end - at) {
    return refuse(result, PAX_FAULT_RECORD_SIZE, size_at);
  }
  const struct shape *shape = shape_of(record->type);
  if (shape == NULL) {
    result->unknown++;
    return true;
  }
  if (size < shape->size) return refuse(result, PAX_FAULT_RECORD_SIZE, size_at);
  uint16_t ranges = 0;
  if (shape->range_count != 0) memcpy(&ranges, bytes + at + shape->range_count, sizeof ranges);
  if (size != shape->size + ranges * sizeof(struct pax_range)) {
    return refuse(result, PAX_FAULT_RECORD_SIZE, size_at);
  }
  size_t field = fault_in(record->type, bytes + at);
  if (field != 0) return refuse(result, PAX_FAULT_FIELD, at + field);
  return check_ranges(bytes, at + shape->size, at + size, result);
}

void ps_hints_check(const uint8_t *bytes, uint32_t size, uint32_t max_size,
                    struct ps_hints_result *result) {
  assert(bytes != NULL || size == 0);
  assert(result != NULL);
  memset(result, 0, sizeof *result);
  struct pax_batch header;
  if (!check_header(bytes, size, max_size, &header, result)) return;
  uint32_t at = header.header_size;
  for (uint32_t i = 0; i < header.record_count; i++) {
    struct pax_record record;
    if (header.size - at < sizeof record) {
      refuse(result, PAX_FAULT_COUNT, at);
      return;
    }
    memcpy(&record, bytes + at, sizeof record);
    if (!check_record(bytes, at, header.size, &record, result)) return;
    at += record.size;
  }
  if (at != header.size) refuse(result, PAX_FAULT_COUNT, at);
}
