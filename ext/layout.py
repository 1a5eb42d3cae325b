"""PAX 1.0 on the wire: every number and every byte of it, once (ext/SPECIFICATION.md).

The numpy dtypes (`prestage.ext.dtypes`) and the C structs (`csrc/pax.h`, made by
`scripts/generate-pax`) both come from these tables; what the values of fields are called is in
`prestage.ext.names`. All integers are little-endian; every field is aligned to its size; what no
field names is reserved: zero when sent, ignored when received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from . import names

MAJOR: Final = 1
MINOR: Final = 0
PAGE_BYTES: Final = 4096
"""Of a batch page, an answer page and a status page of the extension namespace."""
MAX_BATCH_BYTES: Final = PAGE_BYTES
UUID: Final = "50415831-7072-8573-9074-616765000001"
"""Selects the log pages and the feature (Base 2.0, 8.23, UUID index); also in the UUID list."""
EXTENSION_UUID_PREFIX: Final = "50415831"
"""The UUID of every extension namespace begins so ("PAX1"): how a udev rule knows its node."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: C and numpy type (`u8` to `u64`, `i64`), offset in bytes, and how many of them."""

    name: str
    kind: str
    offset: int
    meaning: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure of fixed size; `trailing` names what follows it, as often as a field says."""

    name: str
    size: int
    meaning: str
    fields: tuple[Field, ...]
    trailing: str = ""


PRIORITIES: Final = 4
"""0 urgent, 1 high, 2 medium, 3 low, as in Connect (Fabrics 1.1, CATTR)."""

OPCODE_SUBMIT: Final = 0x81
OPCODE_QUERY: Final = 0x82
OPCODE_DATED_READ: Final = 0x92
DATED_PRIORITY_MASK: Final = 0x3
"""CDW15 bits 1:0 of a dated read: its priority. CDW14: its deadline_us; CDW2 and 3: its session."""
FEATURE_WARM_EVENTS: Final = 1 << 0
"""CDW11 of the feature: report warm events to this controller."""
AER_TYPE: Final = 7
AER_INFORMATION: Final = 0
"""Vendor specific event (Base 2.0, figure 145): "the warm-event log is not empty"."""

# Pages of the extension namespace, by LBA (4096-byte blocks).
PAGE_STATUS: Final = 0
PAGE_MAILBOXES: Final = 64
"""The first mailbox: a batch is written there, its answer is read there."""
MAILBOXES: Final = 64
EXTENSION_PAGES: Final = 256
"""Size of the namespace; pages that are neither status nor mailbox read as zeros."""

READY_NEVER: Final = 0xFFFFFFFF

BATCH = Struct(
    "batch",
    32,
    "Header of a batch; records follow",
    (
        Field("magic", "u32", 0, "enum magic: batch"),
        Field("major", "u8", 4, "major version: 1"),
        Field("minor", "u8", 5, "minor version: 0"),
        Field("header_size", "u16", 6, "32; more in a later minor version"),
        Field("size", "u32", 8, "bytes of header and records"),
        Field("crc32c", "u32", 12, "of `size` bytes with this field zero"),
        Field("writer", "u64", 16, "whoever writes: a number drawn at random once"),
        Field("sequence", "u32", 24, "of the writer's batches"),
        Field("record_count", "u16", 28, "records that follow"),
    ),
)

RECORD = Struct(
    "record",
    8,
    "How every record and every answer begins",
    (
        Field("type", "u16", 0, "enum type"),
        Field("size", "u16", 2, "bytes with this header and everything that trails; multiple of 8"),
        Field("tag", "u32", 4, "the host's; comes back in the answer"),
    ),
)

_HEAD = RECORD.fields

RANGE = Struct(
    "range",
    16,
    "Blocks of one namespace",
    (
        Field("slba", "u64", 0, "first logical block"),
        Field("nlb", "u32", 8, "how many, not 0-based; never zero"),
    ),
)

SET = Struct(
    "set",
    32,
    "A set of ranges of one namespace",
    (
        *_HEAD,
        Field("set_id", "u64", 8, "the tenant's; never zero; the highest bit is the target's"),
        Field("op", "u8", 16, "enum set_op"),
        Field("flags", "u8", 17, "bits set_flag"),
        Field("range_count", "u16", 18, "ranges that trail"),
        Field("nsid", "u32", 20, "namespace of all ranges; one set has one"),
        Field("ttl_ms", "u32", 24, "forgotten after this; 0: the longest that the target keeps"),
    ),
    trailing="range",
)

SIGNATURE = Struct(
    "signature",
    48,
    "A locality signature: the smaller the Hamming distance, the closer the affinity",
    (
        *_HEAD,
        Field("slba", "u64", 8, "first logical block"),
        Field("nlb", "u32", 16, "how many, not 0-based; never zero"),
        Field("nsid", "u32", 20, "namespace"),
        Field("bits", "u16", 24, "64 or 128 bits of the vector mean something"),
        Field("family", "u16", 26, "distances mean something within one family of hashes"),
        Field("ttl_ms", "u32", 28, "as of a set"),
        Field("vector", "u8", 32, "bits, lowest first", 16),
    ),
)

INTENT = Struct(
    "intent",
    48,
    "Ranges, or a set, are needed by a deadline",
    (
        *_HEAD,
        Field("intent_id", "u64", 8, "the tenant's; never zero"),
        Field("session", "u64", 16, "opaque; 0: none"),
        Field("set_id", "u64", 24, "the set; 0: the ranges that trail"),
        Field("deadline_us", "u32", 32, "from arrival"),
        Field("nsid", "u32", 36, "namespace of the ranges; ignored with a set"),
        Field("range_count", "u16", 40, "ranges that trail; 0 with a set"),
        Field("priority", "u8", 42, "0 urgent to 3 low"),
        Field("confidence", "u8", 43, "percent that it will be read; 0: not said"),
        Field("flags", "u8", 44, "bits intent_flag"),
    ),
    trailing="range",
)

RETAIN = Struct(
    "retain",
    32,
    "Keep what is in the tier now; nothing is read for it",
    (
        *_HEAD,
        Field("set_id", "u64", 8, "the set; 0: the ranges that trail"),
        Field("duration_ms", "u32", 16, "how long"),
        Field("nsid", "u32", 20, "namespace of the ranges; ignored with a set"),
        Field("range_count", "u16", 24, "ranges that trail; 0 with a set"),
    ),
    trailing="range",
)

CANCEL = Struct(
    "cancel",
    24,
    "Withdraw intents or sets; what is being read already is not interrupted",
    (
        *_HEAD,
        Field("id", "u64", 8, "of the intent or the session"),
        Field("what", "u8", 16, "enum cancel_what"),
    ),
)

RESIDENCY = Struct(
    "residency",
    24,
    "Query: how much is warm, evaluated when the answer is read",
    (
        *_HEAD,
        Field("set_id", "u64", 8, "the set; 0: the ranges that trail"),
        Field("nsid", "u32", 16, "namespace of the ranges; ignored with a set"),
        Field("range_count", "u16", 20, "ranges that trail; 0 with a set"),
    ),
    trailing="range",
)

OUTCOME = Struct(
    "outcome",
    16,
    "Query: what became of an intent, evaluated when the answer is read",
    (*_HEAD, Field("intent_id", "u64", 8, "the intent")),
)

ANSWER = Struct(
    "answer",
    64,
    "Header of an answer page; answers follow in the order of their records",
    (
        Field("magic", "u32", 0, "enum magic: answer"),
        Field("major", "u8", 4, "major version: 1"),
        Field("minor", "u8", 5, "minor version: 0"),
        Field("header_size", "u16", 6, "64"),
        Field("size", "u32", 8, "bytes of header and answers"),
        Field("crc32c", "u32", 12, "of `size` bytes with this field zero"),
        Field("writer", "u64", 16, "of the batch"),
        Field("sequence", "u32", 24, "of the batch"),
        Field("state", "u8", 28, "enum answer_state"),
        Field("flags", "u8", 29, "bits answer_flag"),
        Field("fault", "u16", 30, "enum fault"),
        Field("fault_offset", "u32", 32, "byte of the batch where the fault is"),
        Field("accepted", "u16", 36, "records taken"),
        Field("dropped", "u16", 38, "records dropped, for a reason"),
        Field("unknown", "u16", 40, "records of unknown type, skipped"),
        Field("answer_count", "u16", 42, "answers that follow"),
        Field("dropped_tag", "u32", 44, "tag of the first record that was dropped"),
        Field("dropped_reason", "u8", 48, "enum reason: why it was"),
    ),
)

RESIDENCY_ANSWER = Struct(
    "residency_answer",
    40,
    "How much is warm",
    (
        *_HEAD,
        Field("total_bytes", "u64", 8, "of the ranges or the set"),
        Field("warm_bytes", "u64", 16, "of these in the tier"),
        Field("coming_bytes", "u64", 24, "of these being read, or intended"),
        Field("ready_us", "u32", 32, "until what is coming is warm; READY_NEVER: not known"),
        Field("reason", "u8", 36, "enum reason: why there is no answer (all else is zero)"),
    ),
)

OUTCOME_ANSWER = Struct(
    "outcome_answer",
    56,
    "What became of an intent",
    (
        *_HEAD,
        Field("intent_id", "u64", 8, "the intent"),
        Field("total_bytes", "u64", 16, "that it asked for"),
        Field("admitted_bytes", "u64", 24, "that were taken"),
        Field("warm_bytes", "u64", 32, "of these that became warm"),
        Field("predicted_us", "u32", 40, "from arrival until ready, as admission said"),
        Field("ready_us", "u32", 44, "from arrival until ready; READY_NEVER before"),
        Field("state", "u8", 48, "enum state"),
        Field("verdict", "u8", 49, "enum verdict"),
        Field("reason", "u8", 50, "enum reason"),
        Field("flags", "u8", 51, "bits outcome_flag"),
    ),
)

CAPABILITY = Struct(
    "capability",
    128,
    "Identify Controller bytes 3072 to 3199, and the start of the status page",
    (
        Field("magic", "u32", 0, "enum magic: capability"),
        Field("major", "u8", 4, "major version: 1"),
        Field("minor", "u8", 5, "minor version: 0"),
        Field("size", "u16", 6, "128"),
        Field("carriers", "u32", 8, "bits carrier"),
        Field("max_batch_bytes", "u32", 12, "of a batch by the submit opcode; a page elsewhere"),
        Field("record_types", "u32", 16, "bit n: records of type n are taken (n below 32)"),
        Field("query_types", "u32", 20, "bit n: queries of type 0100h + n are taken"),
        Field("extension_nsid", "u32", 24, "0: there is no extension namespace"),
        Field("granularity_bytes", "u32", 28, "what the tier brings in as one"),
        Field("max_set_ranges", "u32", 32, "of one set"),
        Field("max_query_bytes", "u64", 40, "of one residency query; more has no answer"),
        Field("max_ttl_ms", "u32", 48, "of a set or signature"),
        Field("mailboxes", "u16", 52, "of a tenant"),
        Field("status_log", "u8", 54, "log page identifier"),
        Field("event_log", "u8", 55, "log page identifier"),
        Field("feature", "u8", 56, "feature identifier"),
        Field("uuid_index", "u8", 57, "for the two log pages and the feature"),
        Field("submit_opcode", "u8", 58, "0: none"),
        Field("query_opcode", "u8", 59, "0: none"),
        Field("dated_read_opcode", "u8", 60, "0: none"),
    ),
)

BUDGET = Struct(
    "budget",
    16,
    "A limit of the tenant and what is used of it",
    (
        Field("limit", "u64", 0, "at most"),
        Field("used", "u64", 8, "now"),
    ),
)

COUNTS = Struct(
    "counts",
    56,
    "Intents, or dated reads, of one priority; arrived is the sum of the others",
    (
        Field("arrived", "u64", 0, "all"),
        Field("pending", "u64", 8, "not ended"),
        Field("met", "u64", 16, "in time"),
        Field("met_warm", "u64", 24, "of these, warm at arrival"),
        Field("late", "u64", 32, "after the deadline"),
        Field("dropped", "u64", 40, "given up; never a dated read"),
        Field("cancelled", "u64", 48, "withdrawn"),
    ),
)

REFUSAL = Struct(
    "refusal",
    24,
    "A malformed batch",
    (
        Field("writer", "u64", 0, "as far as it could be read"),
        Field("sequence", "u32", 8, "as far as it could be read"),
        Field("fault_offset", "u32", 12, "byte of the batch"),
        Field("fault", "u16", 16, "enum fault"),
        Field("mailbox", "u16", 18, "where it was submitted"),
    ),
)

BENEFIT = Struct(
    "benefit",
    40,
    "What acting on the target's own predictions gained, measured by those it did not act on",
    (
        Field("acted", "u64", 0, "predictions acted on"),
        Field("held", "u64", 8, "predictions drawn by lot and not acted on"),
        Field("hits", "i64", 16, "more reads found their data warm than if none were acted on"),
        Field("low", "i64", 24, "of its 95 % confidence interval: the least"),
        Field("high", "i64", 32, "the most; the least and most of all numbers: not known yet"),
    ),
)

REFUSALS: Final = 16

STATUS = Struct(
    "status",
    1600,
    "Status page and status log: the tenant's own; zeros to 4096 bytes follow",
    (
        Field("capability", "capability", 0, "as in Identify Controller"),
        Field("sets", "budget", 128, "sets"),
        Field("set_ranges", "budget", 144, "ranges of sets"),
        Field("signatures", "budget", 160, "signatures"),
        Field("intents", "budget", 176, "pending intents"),
        Field("intent_bytes", "budget", 192, "bytes of pending intents"),
        Field("tier_bytes", "budget", 208, "tier that hints brought in or keep, not read yet"),
        Field("records_per_s", "budget", 224, "records; used: in the last second"),
        Field("batches", "u64", 240, "well formed"),
        Field("refused", "u64", 248, "malformed batches"),
        Field("records", "u64", 256, "of well-formed batches"),
        Field("unknown", "u64", 264, "records of unknown type"),
        Field("dropped", "u64", 272, "records, by reason", 8),
        Field("read_hints", "u64", 336, "Reads with an access attribute"),
        Field("dataset_sets", "u64", 344, "sets by Dataset Management"),
        Field("timely_hits", "u64", 352, "reads of what a hint had brought in"),
        Field("late_hits", "u64", 360, "reads that waited for what a hint was bringing in"),
        Field("wasted_bytes", "u64", 368, "brought in by hints and evicted unread"),
        Field("hydrated_bytes", "u64", 376, "brought in by hints"),
        Field("event_count", "u64", 384, "warm events so far"),
        Field("events_lost", "u64", 392, "of these, overwritten before they were read"),
        Field("intent_counts", "counts", 400, "by priority", 4),
        Field("read_counts", "counts", 624, "dated reads, by priority", 4),
        Field("refusals", "refusal", 848, "the latest, newest first", 16),
        Field("benefit", "benefit", 1232, "of the target, for all its hosts; zeros: not measured"),
    ),
)

EVENTS = Struct(
    "events",
    32,
    "Header of the warm-event log; events follow, oldest first",
    (
        Field("magic", "u32", 0, "enum magic: events"),
        Field("major", "u8", 4, "major version: 1"),
        Field("minor", "u8", 5, "minor version: 0"),
        Field("header_size", "u16", 6, "32"),
        Field("event_count", "u32", 8, "events that follow"),
        Field("lost", "u32", 12, "events that were overwritten since the log was last read"),
    ),
    trailing="event",
)

EVENT = Struct(
    "event",
    32,
    "An intent has ended",
    (
        Field("intent_id", "u64", 0, "the intent"),
        Field("session", "u64", 8, "its session"),
        Field("ready_us", "u32", 16, "from arrival until its end"),
        Field("state", "u8", 20, "enum state"),
        Field("reason", "u8", 21, "enum reason"),
        Field("priority", "u8", 22, "its priority"),
        Field("flags", "u8", 23, "bits outcome_flag"),
    ),
)

STRUCTS = (
    BATCH, RECORD, RANGE, SET, SIGNATURE, INTENT, RETAIN, CANCEL, RESIDENCY, OUTCOME,
    ANSWER, RESIDENCY_ANSWER, OUTCOME_ANSWER, CAPABILITY, BUDGET, COUNTS, REFUSAL, BENEFIT,
    STATUS, EVENTS, EVENT,
)  # fmt: skip
NAMES: Final[dict[str, type[names.OpenEnum | names.OpenFlag]]] = {
    "magic": names.Magic,
    "type": names.RecordType,
    "set_op": names.SetOp,
    "set_flag": names.SetFlag,
    "intent_flag": names.IntentFlag,
    "cancel_what": names.CancelWhat,
    "state": names.State,
    "verdict": names.Verdict,
    "reason": names.Reason,
    "outcome_flag": names.OutcomeFlag,
    "answer_state": names.AnswerState,
    "answer_flag": names.AnswerFlag,
    "fault": names.Fault,
    "carrier": names.Carrier,
    "query": names.Query,
}
"""The named values by what the meanings above and `csrc/pax.h` call them."""
RECORDS: Final[dict[int, Struct]] = {
    names.RecordType.SET: SET,
    names.RecordType.SIGNATURE: SIGNATURE,
    names.RecordType.INTENT: INTENT,
    names.RecordType.RETAIN: RETAIN,
    names.RecordType.CANCEL: CANCEL,
    names.RecordType.RESIDENCY: RESIDENCY,
    names.RecordType.OUTCOME: OUTCOME,
}
"""Record layout by type."""
