/* PAX 1.0 on the wire. Made from ext/layout.py by scripts/generate-pax: change that, not this.
 *
 * Little-endian; every struct is laid out as it stands on the wire (no padding but what is named).
 */
/* clang-format off */
#ifndef PRESTAGE_PAX_H
#define PRESTAGE_PAX_H

#include <stddef.h>
#include <stdint.h>

/* cffi: begin */
#define PAX_MAJOR 1
#define PAX_MINOR 0
#define PAX_PAGE_BYTES 4096
#define PAX_MAX_BATCH_BYTES 4096
#define PAX_PRIORITIES 4
#define PAX_OPCODE_SUBMIT 129
#define PAX_OPCODE_QUERY 130
#define PAX_OPCODE_DATED_READ 146
#define PAX_DATED_PRIORITY_MASK 3
#define PAX_FEATURE_WARM_EVENTS 1
#define PAX_PAGE_STATUS 0
#define PAX_PAGE_MAILBOXES 64
#define PAX_MAILBOXES 64
#define PAX_EXTENSION_PAGES 256
#define PAX_REFUSALS 16
#define PAX_READY_NEVER 0xffffffff

/* First four bytes of a structure, as a little-endian integer. */
enum pax_magic {
  PAX_MAGIC_BATCH = 1113080144, /* 'PAXB': records from a host */
  PAX_MAGIC_ANSWER = 1096302928, /* 'PAXA': what became of a batch */
  PAX_MAGIC_CAPABILITY = 1129857360, /* 'PAXC': what a controller offers */
  PAX_MAGIC_EVENTS = 1163411792, /* 'PAXE': the warm-event log */
};

/* Type of a record or of an answer. */
enum pax_type {
  PAX_TYPE_SET = 1, /* define, extend or drop a set of ranges */
  PAX_TYPE_SIGNATURE = 2, /* a locality signature of a range */
  PAX_TYPE_INTENT = 3, /* ranges or a set are needed by a deadline */
  PAX_TYPE_RETAIN = 4, /* keep what is in the tier for a while */
  PAX_TYPE_CANCEL = 5, /* withdraw intents or sets */
  PAX_TYPE_RESIDENCY = 257, /* query: how much of ranges or of a set is warm */
  PAX_TYPE_OUTCOME = 258, /* query: what became of an intent */
  PAX_TYPE_RESIDENCY_ANSWER = 33025, /* answer to a residency query */
  PAX_TYPE_OUTCOME_ANSWER = 33026, /* answer to an outcome query, and to every intent of a batch */
};

/* What a SET record does. */
enum pax_set_op {
  PAX_SET_OP_DEFINE = 1, /* the set has these ranges and no others */
  PAX_SET_OP_EXTEND = 2, /* these ranges are appended; defines the set when there is none */
  PAX_SET_OP_DROP = 3, /* the set is forgotten; it has no ranges */
};

/* Flags of a SET record. */
enum pax_set_flag {
  /* the ranges are read in this order: a read of one predicts those after it */
  PAX_SET_FLAG_ORDERED = 1,
};

/* Flags of an INTENT record. */
enum pax_intent_flag {
  PAX_INTENT_FLAG_LATE_OK = 1, /* what misses the deadline is still wanted */
  /* when not all can be ready in time, the first part that can is wanted */
  PAX_INTENT_FLAG_PREFIX = 2,
};

/* What a CANCEL record withdraws. */
enum pax_cancel_what {
  PAX_CANCEL_WHAT_INTENT = 1, /* the intent with this id */
  PAX_CANCEL_WHAT_SESSION = 2, /* all intents of this session */
  PAX_CANCEL_WHAT_ALL = 3, /* all intents of the tenant */
  PAX_CANCEL_WHAT_EVERYTHING = 4, /* all intents, sets and signatures of the tenant */
};

/* State of an intent. */
enum pax_state {
  PAX_STATE_UNKNOWN = 0, /* there is no such intent, or it is forgotten */
  PAX_STATE_PENDING = 1, /* not ended */
  PAX_STATE_MET = 2, /* all that was admitted was warm at the deadline or before */
  PAX_STATE_LATE = 3, /* all that was admitted became warm after the deadline */
  PAX_STATE_DROPPED = 4, /* given up: over budget, cannot make it, or its media read failed */
  /* withdrawn by CANCEL, by a new intent of the same id, or with its namespace */
  PAX_STATE_CANCELLED = 5,
};

/* What admission said of an intent. */
enum pax_verdict {
  PAX_VERDICT_NONE = 0, /* nothing yet */
  PAX_VERDICT_ACCEPTED = 1, /* all of it is expected in time */
  PAX_VERDICT_PARTIAL = 2, /* `admitted_bytes` of it are expected in time */
  PAX_VERDICT_LATE = 3, /* all of it is taken, and expected after the deadline (late_ok) */
  PAX_VERDICT_DROPPED = 4, /* it was not taken: `reason` */
};

/* Why something was dropped. */
enum pax_reason {
  PAX_REASON_NONE = 0, /* it was not */
  PAX_REASON_BUDGET = 1, /* the tenant's budget for it is used up */
  PAX_REASON_RATE = 2, /* the tenant's records per second are used up */
  PAX_REASON_NAMESPACE = 3, /* no such namespace, or a range beyond its end */
  PAX_REASON_SET = 4, /* no such set */
  PAX_REASON_DEADLINE = 5, /* it could not be ready in time */
  PAX_REASON_MEDIA = 6, /* reading the medium failed */
  PAX_REASON_ROOM = 7, /* the tier has no room that the tenant may take */
};

/* Flags of an outcome answer or an event. */
enum pax_outcome_flag {
  PAX_OUTCOME_FLAG_WAS_WARM = 1, /* everything was warm when the intent arrived */
};

/* State of an answer page. */
enum pax_answer_state {
  PAX_ANSWER_STATE_EMPTY = 0, /* nothing was submitted here, or the answer is forgotten */
  PAX_ANSWER_STATE_APPLIED = 1, /* the batch was well formed */
  PAX_ANSWER_STATE_REFUSED = 2, /* the batch was malformed and nothing of it was applied */
};

/* Flags of an answer page. */
enum pax_answer_flag {
  PAX_ANSWER_FLAG_TRUNCATED = 1, /* there are more answers than the page has room for */
};

/* What was wrong with a malformed batch. */
enum pax_fault {
  PAX_FAULT_NONE = 0, /* nothing */
  PAX_FAULT_MAGIC = 1, /* not a batch */
  PAX_FAULT_VERSION = 2, /* another major version */
  PAX_FAULT_SIZE = 3, /* the batch's size, or its header's */
  PAX_FAULT_CHECKSUM = 4, /* the CRC32C does not match */
  PAX_FAULT_COUNT = 5, /* more or fewer records than the header says */
  /* a record's size does not fit its type, or reaches beyond the batch */
  PAX_FAULT_RECORD_SIZE = 6,
  PAX_FAULT_FIELD = 7, /* a field has a value that its record does not allow */
};

/* Carriers that a controller takes hints by. */
enum pax_carrier {
  PAX_CARRIER_READ_ATTRIBUTES = 1, /* Read, CDW13 Dataset Management byte */
  PAX_CARRIER_DATASET_MANAGEMENT = 2, /* Dataset Management with Integral Dataset for Read */
  PAX_CARRIER_EXTENSION_NAMESPACE = 4, /* batches written to, answers read from, a namespace */
  PAX_CARRIER_SUBMIT_QUERY = 8, /* vendor opcodes for batches and queries */
  PAX_CARRIER_DATED_READ = 16, /* vendor opcode for a Read with a deadline */
  PAX_CARRIER_LOG_PAGES = 32, /* status log and warm-event log */
  PAX_CARRIER_FEATURE = 64, /* the feature that asks for warm events */
};

/* CDW10 bits 7:0 of the query opcode. */
enum pax_query {
  PAX_QUERY_MAILBOX = 0, /* the answer page of mailbox CDW11 */
  PAX_QUERY_RESIDENCY_RANGE = 1, /* residency of CDW14 blocks from the LBA in CDW12 and 13 on */
  PAX_QUERY_RESIDENCY_SET = 2, /* residency of the set whose id is in CDW12 and 13 */
  PAX_QUERY_OUTCOME = 3, /* outcome of the intent whose id is in CDW12 and 13 */
  PAX_QUERY_STATUS = 4, /* the status page */
};

/* Header of a batch; records follow. */
struct pax_batch {
  uint32_t magic; /* 0: enum magic: batch */
  uint8_t major; /* 4: major version: 1 */
  uint8_t minor; /* 5: minor version: 0 */
  uint16_t header_size; /* 6: 32; more in a later minor version */
  uint32_t size; /* 8: bytes of header and records */
  uint32_t crc32c; /* 12: of `size` bytes with this field zero */
  uint64_t writer; /* 16: whoever writes: a number drawn at random once */
  uint32_t sequence; /* 24: of the writer's batches */
  uint16_t record_count; /* 28: records that follow */
  uint8_t reserved[2];
};

/* How every record and every answer begins. */
struct pax_record {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
};

/* Blocks of one namespace. */
struct pax_range {
  uint64_t slba; /* 0: first logical block */
  uint32_t nlb; /* 8: how many, not 0-based; never zero */
  uint8_t reserved[4];
};

/* A set of ranges of one namespace. */
struct pax_set {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t set_id; /* 8: the tenant's; never zero; the highest bit is the target's */
  uint8_t op; /* 16: enum set_op */
  uint8_t flags; /* 17: bits set_flag */
  uint16_t range_count; /* 18: ranges that trail */
  uint32_t nsid; /* 20: namespace of all ranges; one set has one */
  uint32_t ttl_ms; /* 24: forgotten after this; 0: the longest that the target keeps */
  uint8_t reserved[4];
};

/* A locality signature: the smaller the Hamming distance, the closer the affinity. */
struct pax_signature {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t slba; /* 8: first logical block */
  uint32_t nlb; /* 16: how many, not 0-based; never zero */
  uint32_t nsid; /* 20: namespace */
  uint16_t bits; /* 24: 64 or 128 bits of the vector mean something */
  uint16_t family; /* 26: distances mean something within one family of hashes */
  uint32_t ttl_ms; /* 28: as of a set */
  uint8_t vector[16]; /* 32: bits, lowest first */
};

/* Ranges, or a set, are needed by a deadline. */
struct pax_intent {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t intent_id; /* 8: the tenant's; never zero */
  uint64_t session; /* 16: opaque; 0: none */
  uint64_t set_id; /* 24: the set; 0: the ranges that trail */
  uint32_t deadline_us; /* 32: from arrival */
  uint32_t nsid; /* 36: namespace of the ranges; ignored with a set */
  uint16_t range_count; /* 40: ranges that trail; 0 with a set */
  uint8_t priority; /* 42: 0 urgent to 3 low */
  uint8_t confidence; /* 43: percent that it will be read; 0: not said */
  uint8_t flags; /* 44: bits intent_flag */
  uint8_t reserved[3];
};

/* Keep what is in the tier now; nothing is read for it. */
struct pax_retain {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t set_id; /* 8: the set; 0: the ranges that trail */
  uint32_t duration_ms; /* 16: how long */
  uint32_t nsid; /* 20: namespace of the ranges; ignored with a set */
  uint16_t range_count; /* 24: ranges that trail; 0 with a set */
  uint8_t reserved[6];
};

/* Withdraw intents or sets; what is being read already is not interrupted. */
struct pax_cancel {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t id; /* 8: of the intent or the session */
  uint8_t what; /* 16: enum cancel_what */
  uint8_t reserved[7];
};

/* Query: how much is warm, evaluated when the answer is read. */
struct pax_residency {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t set_id; /* 8: the set; 0: the ranges that trail */
  uint32_t nsid; /* 16: namespace of the ranges; ignored with a set */
  uint16_t range_count; /* 20: ranges that trail; 0 with a set */
  uint8_t reserved[2];
};

/* Query: what became of an intent, evaluated when the answer is read. */
struct pax_outcome {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t intent_id; /* 8: the intent */
};

/* Header of an answer page; answers follow in the order of their records. */
struct pax_answer {
  uint32_t magic; /* 0: enum magic: answer */
  uint8_t major; /* 4: major version: 1 */
  uint8_t minor; /* 5: minor version: 0 */
  uint16_t header_size; /* 6: 64 */
  uint32_t size; /* 8: bytes of header and answers */
  uint32_t crc32c; /* 12: of `size` bytes with this field zero */
  uint64_t writer; /* 16: of the batch */
  uint32_t sequence; /* 24: of the batch */
  uint8_t state; /* 28: enum answer_state */
  uint8_t flags; /* 29: bits answer_flag */
  uint16_t fault; /* 30: enum fault */
  uint32_t fault_offset; /* 32: byte of the batch where the fault is */
  uint16_t accepted; /* 36: records taken */
  uint16_t dropped; /* 38: records dropped, for a reason */
  uint16_t unknown; /* 40: records of unknown type, skipped */
  uint16_t answer_count; /* 42: answers that follow */
  uint32_t dropped_tag; /* 44: tag of the first record that was dropped */
  uint8_t dropped_reason; /* 48: enum reason: why it was */
  uint8_t reserved[15];
};

/* How much is warm. */
struct pax_residency_answer {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t total_bytes; /* 8: of the ranges or the set */
  uint64_t warm_bytes; /* 16: of these in the tier */
  uint64_t coming_bytes; /* 24: of these being read, or intended */
  uint32_t ready_us; /* 32: until what is coming is warm; READY_NEVER: not known */
  uint8_t reason; /* 36: enum reason: why there is no answer (all else is zero) */
  uint8_t reserved[3];
};

/* What became of an intent. */
struct pax_outcome_answer {
  uint16_t type; /* 0: enum type */
  uint16_t size; /* 2: bytes with this header and everything that trails; multiple of 8 */
  uint32_t tag; /* 4: the host's; comes back in the answer */
  uint64_t intent_id; /* 8: the intent */
  uint64_t total_bytes; /* 16: that it asked for */
  uint64_t admitted_bytes; /* 24: that were taken */
  uint64_t warm_bytes; /* 32: of these that became warm */
  uint32_t predicted_us; /* 40: from arrival until ready, as admission said */
  uint32_t ready_us; /* 44: from arrival until ready; READY_NEVER before */
  uint8_t state; /* 48: enum state */
  uint8_t verdict; /* 49: enum verdict */
  uint8_t reason; /* 50: enum reason */
  uint8_t flags; /* 51: bits outcome_flag */
  uint8_t reserved[4];
};

/* Identify Controller bytes 3072 to 3199, and the start of the status page. */
struct pax_capability {
  uint32_t magic; /* 0: enum magic: capability */
  uint8_t major; /* 4: major version: 1 */
  uint8_t minor; /* 5: minor version: 0 */
  uint16_t size; /* 6: 128 */
  uint32_t carriers; /* 8: bits carrier */
  uint32_t max_batch_bytes; /* 12: of a batch by the submit opcode; a page elsewhere */
  uint32_t record_types; /* 16: bit n: records of type n are taken (n below 32) */
  uint32_t query_types; /* 20: bit n: queries of type 0100h + n are taken */
  uint32_t extension_nsid; /* 24: 0: there is no extension namespace */
  uint32_t granularity_bytes; /* 28: what the tier brings in as one */
  uint32_t max_set_ranges; /* 32: of one set */
  uint8_t reserved[4];
  uint64_t max_query_bytes; /* 40: of one residency query; more has no answer */
  uint32_t max_ttl_ms; /* 48: of a set or signature */
  uint16_t mailboxes; /* 52: of a tenant */
  uint8_t status_log; /* 54: log page identifier */
  uint8_t event_log; /* 55: log page identifier */
  uint8_t feature; /* 56: feature identifier */
  uint8_t uuid_index; /* 57: for the two log pages and the feature */
  uint8_t submit_opcode; /* 58: 0: none */
  uint8_t query_opcode; /* 59: 0: none */
  uint8_t dated_read_opcode; /* 60: 0: none */
  uint8_t reserved1[67];
};

/* A limit of the tenant and what is used of it. */
struct pax_budget {
  uint64_t limit; /* 0: at most */
  uint64_t used; /* 8: now */
};

/* Intents, or dated reads, of one priority; arrived is the sum of the others. */
struct pax_counts {
  uint64_t arrived; /* 0: all */
  uint64_t pending; /* 8: not ended */
  uint64_t met; /* 16: in time */
  uint64_t met_warm; /* 24: of these, warm at arrival */
  uint64_t late; /* 32: after the deadline */
  uint64_t dropped; /* 40: given up; never a dated read */
  uint64_t cancelled; /* 48: withdrawn */
};

/* A malformed batch. */
struct pax_refusal {
  uint64_t writer; /* 0: as far as it could be read */
  uint32_t sequence; /* 8: as far as it could be read */
  uint32_t fault_offset; /* 12: byte of the batch */
  uint16_t fault; /* 16: enum fault */
  uint16_t mailbox; /* 18: where it was submitted */
  uint8_t reserved[4];
};

/* What acting on the target's own predictions gained, measured by those it did not act on. */
struct pax_benefit {
  uint64_t acted; /* 0: predictions acted on */
  uint64_t held; /* 8: predictions drawn by lot and not acted on */
  int64_t hits; /* 16: more reads found their data warm than if none were acted on */
  int64_t low; /* 24: of its 95 % confidence interval: the least */
  int64_t high; /* 32: the most; the least and most of all numbers: not known yet */
};

/* Status page and status log: the tenant's own; zeros to 4096 bytes follow. */
struct pax_status {
  struct pax_capability capability; /* 0: as in Identify Controller */
  struct pax_budget sets; /* 128: sets */
  struct pax_budget set_ranges; /* 144: ranges of sets */
  struct pax_budget signatures; /* 160: signatures */
  struct pax_budget intents; /* 176: pending intents */
  struct pax_budget intent_bytes; /* 192: bytes of pending intents */
  struct pax_budget tier_bytes; /* 208: tier that hints brought in or keep, not read yet */
  struct pax_budget records_per_s; /* 224: records; used: in the last second */
  uint64_t batches; /* 240: well formed */
  uint64_t refused; /* 248: malformed batches */
  uint64_t records; /* 256: of well-formed batches */
  uint64_t unknown; /* 264: records of unknown type */
  uint64_t dropped[8]; /* 272: records, by reason */
  uint64_t read_hints; /* 336: Reads with an access attribute */
  uint64_t dataset_sets; /* 344: sets by Dataset Management */
  uint64_t timely_hits; /* 352: reads of what a hint had brought in */
  uint64_t late_hits; /* 360: reads that waited for what a hint was bringing in */
  uint64_t wasted_bytes; /* 368: brought in by hints and evicted unread */
  uint64_t hydrated_bytes; /* 376: brought in by hints */
  uint64_t event_count; /* 384: warm events so far */
  uint64_t events_lost; /* 392: of these, overwritten before they were read */
  struct pax_counts intent_counts[4]; /* 400: by priority */
  struct pax_counts read_counts[4]; /* 624: dated reads, by priority */
  struct pax_refusal refusals[16]; /* 848: the latest, newest first */
  struct pax_benefit benefit; /* 1232: of the target, for all its hosts; zeros: not measured */
  uint8_t reserved[328];
};

/* Header of the warm-event log; events follow, oldest first. */
struct pax_events {
  uint32_t magic; /* 0: enum magic: events */
  uint8_t major; /* 4: major version: 1 */
  uint8_t minor; /* 5: minor version: 0 */
  uint16_t header_size; /* 6: 32 */
  uint32_t event_count; /* 8: events that follow */
  uint32_t lost; /* 12: events that were overwritten since the log was last read */
  uint8_t reserved[16];
};

/* An intent has ended. */
struct pax_event {
  uint64_t intent_id; /* 0: the intent */
  uint64_t session; /* 8: its session */
  uint32_t ready_us; /* 16: from arrival until its end */
  uint8_t state; /* 20: enum state */
  uint8_t reason; /* 21: enum reason */
  uint8_t priority; /* 22: its priority */
  uint8_t flags; /* 23: bits outcome_flag */
  uint8_t reserved[8];
};
/* cffi: end */

_Static_assert(sizeof(struct pax_batch) == 32, "batch");
_Static_assert(sizeof(struct pax_record) == 8, "record");
_Static_assert(sizeof(struct pax_range) == 16, "range");
_Static_assert(sizeof(struct pax_set) == 32, "set");
_Static_assert(sizeof(struct pax_signature) == 48, "signature");
_Static_assert(sizeof(struct pax_intent) == 48, "intent");
_Static_assert(sizeof(struct pax_retain) == 32, "retain");
_Static_assert(sizeof(struct pax_cancel) == 24, "cancel");
_Static_assert(sizeof(struct pax_residency) == 24, "residency");
_Static_assert(sizeof(struct pax_outcome) == 16, "outcome");
_Static_assert(sizeof(struct pax_answer) == 64, "answer");
_Static_assert(sizeof(struct pax_residency_answer) == 40, "residency_answer");
_Static_assert(sizeof(struct pax_outcome_answer) == 56, "outcome_answer");
_Static_assert(sizeof(struct pax_capability) == 128, "capability");
_Static_assert(sizeof(struct pax_budget) == 16, "budget");
_Static_assert(sizeof(struct pax_counts) == 56, "counts");
_Static_assert(sizeof(struct pax_refusal) == 24, "refusal");
_Static_assert(sizeof(struct pax_benefit) == 40, "benefit");
_Static_assert(sizeof(struct pax_status) == 1600, "status");
_Static_assert(sizeof(struct pax_events) == 32, "events");
_Static_assert(sizeof(struct pax_event) == 32, "event");

#endif
