"""PAX 1.0 batches, answers and status pages, and the commands that carry them.

Written from the specification of the contract with `struct`, and from nothing else: a fault in the
repository's own codec must not hide here.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable

from . import commands as nvme
from .crc32c import crc32c

PAGE = 4096
MAX_BATCH = 4096
PAGES, MAILBOX_PAGE, MAILBOXES = 256, 64, 64
SUBMIT, QUERY, DATED_READ = 0x81, 0x82, 0x92
NO_MAILBOX = 0xFFFFFFFF

SET, SIGNATURE, INTENT, RETAIN, CANCEL, RESIDENCY, OUTCOME = 1, 2, 3, 4, 5, 0x101, 0x102
RESIDENCY_ANSWER, OUTCOME_ANSWER = 0x8101, 0x8102
DEFINE, EXTEND, DROP = 1, 2, 3
ORDERED, LATE_OK, PREFIX = 1, 1, 2
CANCEL_INTENT, CANCEL_SESSION, CANCEL_ALL, CANCEL_EVERYTHING = 1, 2, 3, 4
UNKNOWN, PENDING, MET, LATE, DROPPED, CANCELLED = range(6)
EMPTY, APPLIED, REFUSED = range(3)
FAULTS = dict(
    enumerate(("none", "magic", "version", "size", "checksum", "count", "record_size", "field"))
)
REASONS = dict(
    enumerate(("none", "budget", "rate", "namespace", "set", "deadline", "media", "room"))
)
ASK_MAILBOX, ASK_RANGE, ASK_SET, ASK_OUTCOME, ASK_STATUS = range(5)

Ranges = Iterable[tuple[int, int]]
"""(SLBA, number of blocks) pairs."""


# ---- records ----


def _record(kind: int, tag: int, body: bytes) -> bytes:
    return struct.pack("<HHI", kind, 8 + len(body), tag) + body


def _ranges(ranges: Ranges) -> tuple[int, bytes]:
    packed = [struct.pack("<QII", slba, nlb, 0) for slba, nlb in ranges]
    return len(packed), b"".join(packed)


def set_(
    set_id: int,
    ranges: Ranges = (),
    *,
    nsid: int = 1,
    op: int = DEFINE,
    flags: int = 0,
    ttl_ms: int = 0,
    tag: int = 0,
) -> bytes:
    """A SET record."""
    count, tail = _ranges(ranges)
    head = struct.pack("<QBBHIII", set_id, op, flags, count, nsid, ttl_ms, 0)
    return _record(SET, tag, head + tail)


def signature(
    slba: int, nlb: int, vector: bytes, *, nsid: int = 1, family: int = 1, tag: int = 0
) -> bytes:
    """A SIGNATURE record with an 8 or 16 byte vector."""
    head = struct.pack("<QIIHHI", slba, nlb, nsid, len(vector) * 8, family, 0)
    return _record(SIGNATURE, tag, head + vector.ljust(16, b"\0"))


def intent(
    intent_id: int,
    ranges: Ranges = (),
    *,
    set_id: int = 0,
    deadline_us: int = 1_000_000,
    nsid: int = 1,
    session: int = 0,
    priority: int = 1,
    confidence: int = 0,
    flags: int = LATE_OK,
    tag: int = 0,
) -> bytes:
    """An INTENT record over ranges, or over a set."""
    count, tail = _ranges(ranges)
    head = struct.pack(
        "<QQQIIHBBB3x",
        intent_id,
        session,
        set_id,
        deadline_us,
        nsid,
        count,
        priority,
        confidence,
        flags,
    )
    return _record(INTENT, tag, head + tail)


def retain(
    ranges: Ranges = (), *, set_id: int = 0, duration_ms: int = 1000, nsid: int = 1, tag: int = 0
) -> bytes:
    """A RETAIN record over ranges, or over a set."""
    count, tail = _ranges(ranges)
    return _record(RETAIN, tag, struct.pack("<QIIH6x", set_id, duration_ms, nsid, count) + tail)


def cancel(what: int, number: int = 0, *, tag: int = 0) -> bytes:
    """A CANCEL record."""
    return _record(CANCEL, tag, struct.pack("<QB7x", number, what))


def residency(ranges: Ranges = (), *, set_id: int = 0, nsid: int = 1, tag: int = 0) -> bytes:
    """A RESIDENCY query over ranges, or over a set."""
    count, tail = _ranges(ranges)
    return _record(RESIDENCY, tag, struct.pack("<QIHH", set_id, nsid, count, 0) + tail)


def outcome(intent_id: int, *, tag: int = 0) -> bytes:
    """An OUTCOME query."""
    return _record(OUTCOME, tag, struct.pack("<Q", intent_id))


def batch(
    *records: bytes,
    writer: int = 0x7772697465720001,
    sequence: int = 0,
    major: int = 1,
    minor: int = 0,
    magic: bytes = b"PAXB",
    size: int | None = None,
    count: int | None = None,
    checksum: int | None = None,
) -> bytes:
    """A batch; the named fields replace the right value (the checksum is right for them)."""
    body = b"".join(records)
    header = struct.pack(
        "<4sBBHIIQIHH",
        magic,
        major,
        minor,
        32,
        32 + len(body) if size is None else size,
        0,
        writer,
        sequence,
        len(records) if count is None else count,
        0,
    )
    whole = header + body
    value = crc32c(whole) if checksum is None else checksum
    return whole[:12] + struct.pack("<I", value) + whole[16:]


def page(data: bytes) -> bytes:
    """`data` with zeros up to a page."""
    assert len(data) <= PAGE
    return data.ljust(PAGE, b"\0")


# ---- commands ----


def submit(mailbox: int = NO_MAILBOX, nsid: int = 1) -> bytes:
    """The submit opcode; the batch is the command's data."""
    return nvme.sqe(SUBMIT, nsid, cdw10=mailbox)


def query(kind: int, number: int = 0, *, nsid: int = 1, mailbox: int = 0, blocks: int = 0) -> bytes:
    """The query opcode; `number` is an LBA, a set or an intent."""
    low, high = number & 0xFFFFFFFF, number >> 32
    return nvme.sqe(QUERY, nsid, cdw10=kind, cdw11=mailbox, cdw12=low, cdw13=high, cdw14=blocks)


def dated_read(
    slba: int,
    blocks: int,
    *,
    deadline_us: int,
    priority: int = 1,
    session: int = 0,
    nsid: int = 1,
    dsm: int = 0,
) -> bytes:
    """The dated read opcode."""
    return nvme.sqe(
        DATED_READ,
        nsid,
        cdw2=session & 0xFFFFFFFF,
        cdw3=session >> 32,
        cdw10=slba & 0xFFFFFFFF,
        cdw11=slba >> 32,
        cdw12=blocks - 1,
        cdw13=dsm,
        cdw14=deadline_us,
        cdw15=priority,
    )


# ---- answers ----


@dataclasses.dataclass(frozen=True)
class Residency:
    """A residency answer."""

    tag: int
    total_bytes: int
    warm_bytes: int
    coming_bytes: int
    ready_us: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    """An outcome answer."""

    tag: int
    intent_id: int
    total_bytes: int
    admitted_bytes: int
    warm_bytes: int
    predicted_us: int
    ready_us: int
    state: int
    verdict: int
    reason: str
    was_warm: bool


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer page."""

    writer: int
    sequence: int
    state: int
    is_truncated: bool
    fault: str
    fault_offset: int
    accepted: int
    dropped: int
    unknown: int
    dropped_tag: int
    dropped_reason: str
    answers: tuple[Residency | Outcome, ...]


def _answer(raw: bytes) -> Residency | Outcome:
    kind, size, tag = struct.unpack_from("<HHI", raw)
    if kind == RESIDENCY_ANSWER:
        assert size == 40, size
        total, warm, coming, ready, reason = struct.unpack_from("<QQQIB", raw, 8)
        return Residency(tag, total, warm, coming, ready, REASONS[reason])
    assert (kind, size) == (OUTCOME_ANSWER, 56), (hex(kind), size)
    fields = struct.unpack_from("<QQQQIIBBBB", raw, 8)
    intent_id, total, admitted, warm, predicted, ready, state, verdict, reason, flags = fields
    return Outcome(
        tag,
        intent_id,
        total,
        admitted,
        warm,
        predicted,
        ready,
        state,
        verdict,
        REASONS[reason],
        bool(flags & 1),
    )


def parse_answer(raw: bytes) -> Answer:
    """The answer page in `raw`, its checksum verified. Raises AssertionError on a fault."""
    magic, major, _, header, size, checksum = struct.unpack_from("<4sBBHII", raw)
    assert (magic, major, header) == (b"PAXA", 1, 64), raw[:64].hex()
    assert size <= len(raw), (size, len(raw))
    assert crc32c(raw[:12] + bytes(4) + raw[16:size]) == checksum
    fields = struct.unpack_from("<QIBBHIHHHHIB", raw, 16)
    writer, sequence, state, flags, fault, offset = fields[:6]
    accepted, dropped, unknown, count, dropped_tag, reason = fields[6:]
    answers, at = [], header
    for _ in range(count):
        answers.append(_answer(raw[at:size]))
        at += int.from_bytes(raw[at + 2 : at + 4], "little")
    assert at == size, (at, size)
    return Answer(
        writer,
        sequence,
        state,
        bool(flags & 1),
        FAULTS[fault],
        offset,
        accepted,
        dropped,
        unknown,
        dropped_tag,
        REASONS[reason],
        tuple(answers),
    )


COUNTS = ("arrived", "pending", "met", "met_warm", "late", "dropped", "cancelled")


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A malformed batch on the status page."""

    writer: int
    sequence: int
    fault_offset: int
    fault: str
    mailbox: int


@dataclasses.dataclass(frozen=True)
class Status:
    """The parts of a status page that tests look at."""

    carriers: int
    extension_nsid: int
    limits: dict[str, int]
    used: dict[str, int]
    batches: int
    refused: int
    records: int
    unknown: int
    dropped: dict[str, int]
    read_hints: int
    dataset_sets: int
    timely_hits: int
    late_hits: int
    events: int
    intents: tuple[dict[str, int], ...]
    """By priority."""
    reads: tuple[dict[str, int], ...]
    """Dated reads, by priority."""
    refusals: tuple[Refusal, ...]
    """The latest, newest first."""


BUDGETS = (
    "sets",
    "set_ranges",
    "signatures",
    "intents",
    "intent_bytes",
    "tier_bytes",
    "records_per_s",
)


def _counts(raw: bytes, start: int) -> tuple[dict[str, int], ...]:
    return tuple(
        dict(zip(COUNTS, struct.unpack_from("<7Q", raw, start + 56 * priority), strict=True))
        for priority in range(4)
    )


def _refusals(raw: bytes) -> tuple[Refusal, ...]:
    found = []
    for at in range(848, 848 + 16 * 24, 24):
        writer, sequence, offset, fault, mailbox = struct.unpack_from("<QIIHH", raw, at)
        if fault:
            found.append(Refusal(writer, sequence, offset, FAULTS[fault], mailbox))
    return tuple(found)


def parse_status(raw: bytes) -> Status:
    """The status page in `raw`. Raises AssertionError when it is none."""
    assert raw[:5] == b"PAXC\x01", raw[:8].hex()
    pairs = [struct.unpack_from("<QQ", raw, 128 + 16 * index) for index in range(len(BUDGETS))]
    batches, refused, records, unknown = struct.unpack_from("<4Q", raw, 240)
    read_hints, dataset_sets, timely, late = struct.unpack_from("<4Q", raw, 336)
    return Status(
        carriers=int.from_bytes(raw[8:12], "little"),
        extension_nsid=int.from_bytes(raw[24:28], "little"),
        limits={name: pair[0] for name, pair in zip(BUDGETS, pairs, strict=True)},
        used={name: pair[1] for name, pair in zip(BUDGETS, pairs, strict=True)},
        batches=batches,
        refused=refused,
        records=records,
        unknown=unknown,
        dropped=dict(zip(REASONS.values(), struct.unpack_from("<8Q", raw, 272), strict=True)),
        read_hints=read_hints,
        dataset_sets=dataset_sets,
        timely_hits=timely,
        late_hits=late,
        events=int.from_bytes(raw[384:392], "little"),
        intents=_counts(raw, 400),
        reads=_counts(raw, 624),
        refusals=_refusals(raw),
    )
