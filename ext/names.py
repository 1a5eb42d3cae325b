"""PAX 1.0: the named values of fields, each with its meaning (specification, clause 6).

`csrc/pax.h` has the same names, made from these classes. A value that has no name here may come
from a later minor version: it is kept as it is, and its name is `value_N`.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Self


class OpenEnum(IntEnum):
    """Named values of which a later minor version may have more."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        """Make a member of a number and what it means."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int) or value < 0:
            return None
        member = int.__new__(cls, value)
        member._value_ = value
        member._name_ = f"value_{value}"
        member.meaning = "not defined by this version"
        return member


class OpenFlag(IntFlag):
    """Bits, of which a later minor version may have more.

    Python 3.11.2 leaves bits out of `~flags`: `^` and `~int(flags)` are right everywhere.
    """

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Self:
        """Make a member of a bit and what it means."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class Magic(OpenEnum):
    """First four bytes of a structure, as a little-endian integer."""

    BATCH = 0x42584150, "'PAXB': records from a host"
    ANSWER = 0x41584150, "'PAXA': what became of a batch"
    CAPABILITY = 0x43584150, "'PAXC': what a controller offers"
    EVENTS = 0x45584150, "'PAXE': the warm-event log"


class RecordType(OpenEnum):
    """Type of a record or of an answer."""

    SET = 0x0001, "define, extend or drop a set of ranges"
    SIGNATURE = 0x0002, "a locality signature of a range"
    INTENT = 0x0003, "ranges or a set are needed by a deadline"
    RETAIN = 0x0004, "keep what is in the tier for a while"
    CANCEL = 0x0005, "withdraw intents or sets"
    RESIDENCY = 0x0101, "query: how much of ranges or of a set is warm"
    OUTCOME = 0x0102, "query: what became of an intent"
    RESIDENCY_ANSWER = 0x8101, "answer to a residency query"
    OUTCOME_ANSWER = 0x8102, "answer to an outcome query, and to every intent of a batch"


class SetOp(OpenEnum):
    """What a SET record does."""

    DEFINE = 1, "the set has these ranges and no others"
    EXTEND = 2, "these ranges are appended; defines the set when there is none"
    DROP = 3, "the set is forgotten; it has no ranges"


class SetFlag(OpenFlag):
    """Flags of a SET record."""

    NONE = 0
    ORDERED = 1, "the ranges are read in this order: a read of one predicts those after it"


class IntentFlag(OpenFlag):
    """Flags of an INTENT record."""

    NONE = 0
    LATE_OK = 1, "what misses the deadline is still wanted"
    PREFIX = 2, "when not all can be ready in time, the first part that can is wanted"


class CancelWhat(OpenEnum):
    """What a CANCEL record withdraws."""

    INTENT = 1, "the intent with this id"
    SESSION = 2, "all intents of this session"
    ALL = 3, "all intents of the tenant"
    EVERYTHING = 4, "all intents, sets and signatures of the tenant"


class State(OpenEnum):
    """State of an intent."""

    UNKNOWN = 0, "there is no such intent, or it is forgotten"
    PENDING = 1, "not ended"
    MET = 2, "all that was admitted was warm at the deadline or before"
    LATE = 3, "all that was admitted became warm after the deadline"
    DROPPED = 4, "given up: over budget, cannot make it, or its media read failed"
    CANCELLED = 5, "withdrawn by CANCEL, by a new intent of the same id, or with its namespace"


class Verdict(OpenEnum):
    """What admission said of an intent."""

    NONE = 0, "nothing yet"
    ACCEPTED = 1, "all of it is expected in time"
    PARTIAL = 2, "`admitted_bytes` of it are expected in time"
    LATE = 3, "all of it is taken, and expected after the deadline (late_ok)"
    DROPPED = 4, "it was not taken: `reason`"


class Reason(OpenEnum):
    """Why something was dropped."""

    NONE = 0, "it was not"
    BUDGET = 1, "the tenant's budget for it is used up"
    RATE = 2, "the tenant's records per second are used up"
    NAMESPACE = 3, "no such namespace, or a range beyond its end"
    SET = 4, "no such set"
    DEADLINE = 5, "it could not be ready in time"
    MEDIA = 6, "reading the medium failed"
    ROOM = 7, "the tier has no room that the tenant may take"


class OutcomeFlag(OpenFlag):
    """Flags of an outcome answer or an event."""

    NONE = 0
    WAS_WARM = 1, "everything was warm when the intent arrived"


class AnswerState(OpenEnum):
    """State of an answer page."""

    EMPTY = 0, "nothing was submitted here, or the answer is forgotten"
    APPLIED = 1, "the batch was well formed"
    REFUSED = 2, "the batch was malformed and nothing of it was applied"


class AnswerFlag(OpenFlag):
    """Flags of an answer page."""

    NONE = 0
    TRUNCATED = 1, "there are more answers than the page has room for"


class Fault(OpenEnum):
    """What was wrong with a malformed batch."""

    NONE = 0, "nothing"
    MAGIC = 1, "not a batch"
    VERSION = 2, "another major version"
    SIZE = 3, "the batch's size, or its header's"
    CHECKSUM = 4, "the CRC32C does not match"
    COUNT = 5, "more or fewer records than the header says"
    RECORD_SIZE = 6, "a record's size does not fit its type, or reaches beyond the batch"
    FIELD = 7, "a field has a value that its record does not allow"


class Carrier(OpenFlag):
    """Carriers that a controller takes hints by."""

    NONE = 0
    READ_ATTRIBUTES = 1 << 0, "Read, CDW13 Dataset Management byte"
    DATASET_MANAGEMENT = 1 << 1, "Dataset Management with Integral Dataset for Read"
    EXTENSION_NAMESPACE = 1 << 2, "batches written to, answers read from, a namespace"
    SUBMIT_QUERY = 1 << 3, "vendor opcodes for batches and queries"
    DATED_READ = 1 << 4, "vendor opcode for a Read with a deadline"
    LOG_PAGES = 1 << 5, "status log and warm-event log"
    FEATURE = 1 << 6, "the feature that asks for warm events"


class Query(OpenEnum):
    """CDW10 bits 7:0 of the query opcode."""

    MAILBOX = 0, "the answer page of mailbox CDW11"
    RESIDENCY_RANGE = 1, "residency of CDW14 blocks from the LBA in CDW12 and 13 on"
    RESIDENCY_SET = 2, "residency of the set whose id is in CDW12 and 13"
    OUTCOME = 3, "outcome of the intent whose id is in CDW12 and 13"
    STATUS = 4, "the status page"
