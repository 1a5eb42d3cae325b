"""Malformed batches are refused whole, with the fault and where it is (clause 5.5)."""

from __future__ import annotations

from ...codec import seal
from ...names import AnswerState, CancelWhat, Fault, Reason, RecordType
from ...records import (
    Cancel,
    Intent,
    Outcome,
    Range,
    Record,
    Residency,
    Retain,
    SetRecord,
    Signature,
    Unknown,
)
from ..registry import Level, Need, check, expect, expect_equal
from ..session import Session

BATCHES = Need.BATCHES
NOWHERE = 0xFFFFFFFE
AT = 32
"""Of the first record."""


def changed(data: bytes, offset: int, value: bytes) -> bytes:
    """Return a batch with other bytes at an offset and a good checksum."""
    return seal(data[:offset] + value + data[offset + len(value) :])


async def _expect_fault(session: Session, data: bytes, fault: Fault, offset: int) -> None:
    await session.first.submit_bytes(data, 10)
    answer = await session.first.answer(10)
    what = f"fault and offset, expected {fault.name.lower()} at {offset}"
    expect_equal((answer.fault, answer.fault_offset), (fault, offset), what)


def _good(session: Session) -> bytes:
    """Return a batch of two records: OUTCOME at 32, an unknown one at 48."""
    return session.first.batch([Outcome(session.number()), Unknown(0x7001, bytes(8))])


@check("5.5.2", Level.MUST, BATCHES)
async def fault_magic(session: Session) -> None:
    """Fault magic: what is no batch."""
    await _expect_fault(session, changed(_good(session), 0, b"NAXB"), Fault.MAGIC, 0)


@check("5.5.2", Level.MUST, BATCHES)
async def fault_version(session: Session) -> None:
    """Fault version: another major version."""
    for major in (0, 2):
        data = changed(_good(session), 4, bytes([major]))
        await _expect_fault(session, data, Fault.VERSION, 4)


@check("5.5.2", Level.MUST, BATCHES)
async def fault_size(session: Session) -> None:
    """Fault size: of the header or the batch."""
    good = _good(session)
    for size in (0, 24, 36):
        data = changed(good, 6, size.to_bytes(2, "little"))
        await _expect_fault(session, data, Fault.SIZE, 6)
    for size in (0, 31, 4104, 0xFFFFFFFF):
        data = good[:8] + size.to_bytes(4, "little") + good[12:]
        await _expect_fault(session, data, Fault.SIZE, 8)


@check("5.5.2", Level.MUST, BATCHES)
async def fault_checksum(session: Session) -> None:
    """Fault checksum: any byte."""
    good = _good(session)
    for at in (5, 12, 20, 31, len(good) - 1):
        data = good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :]
        await _expect_fault(session, data, Fault.CHECKSUM, 12)


@check("5.5.2", Level.MUST, BATCHES)
async def fault_count(session: Session) -> None:
    """Fault count: more or fewer records than the header says."""
    good = _good(session)
    await _expect_fault(session, changed(good, 28, b"\1"), Fault.COUNT, AT + 16)
    await _expect_fault(session, changed(good, 28, b"\3"), Fault.COUNT, len(good))


@check("5.5.2", Level.MUST, BATCHES)
async def fault_record_size(session: Session) -> None:
    """Fault record_size: of a record, known or not."""
    good = _good(session)
    for at, size in ((AT, 0), (AT, 4), (AT, 12), (AT, 8), (AT, 24), (AT + 16, 24), (AT + 16, 7)):
        data = changed(good, at + 2, size.to_bytes(2, "little"))
        await _expect_fault(session, data, Fault.RECORD_SIZE, at + 2)
    with_range = session.first.batch([Residency(1, (Range(0, 1),))])
    data = changed(with_range, AT + 20, b"\2")
    await _expect_fault(session, data, Fault.RECORD_SIZE, AT + 2)


WHERE = (Range(0, 1),)
ID = 0x1234567
FIELDS: list[tuple[Record, int, bytes]] = [
    (SetRecord(ID, 1, WHERE), 8, bytes(8)),
    (SetRecord(ID, 1, WHERE), 8, b"\xff" * 8),
    (SetRecord(ID, 1, WHERE), 16, b"\0"),
    (SetRecord(ID, 1, WHERE), 16, b"\4"),
    (SetRecord(ID, 1, WHERE), 18, b"\0"),
    (Signature(1, 0, 1, bytes(16)), 16, bytes(4)),
    (Signature(1, 0, 1, bytes(16)), 24, b"\x20"),
    (Intent(ID, 1, 1, WHERE), 8, bytes(8)),
    (Intent(ID, 1, set_id=ID), 24, bytes(8)),
    (Intent(ID, 1, 1, WHERE), 42, b"\4"),
    (Intent(ID, 1, 1, WHERE), 43, b"\x65"),
    (Intent(ID, 1, 1, WHERE), 48 + 8, bytes(4)),
    (Retain(1, set_id=ID), 8, bytes(8)),
    (Cancel(CancelWhat.ALL), 16, b"\0"),
    (Cancel(CancelWhat.ALL), 16, b"\5"),
    (Residency(set_id=ID), 8, bytes(8)),
    (Residency(1, WHERE), 24 + 8, bytes(4)),
    (Outcome(ID), 8, bytes(8)),
]
"""Records that become malformed by bytes at an offset."""
ELSEWHERE = {
    (RecordType.INTENT, 24): 40,
    (RecordType.RETAIN, 8): 24,
    (RecordType.RESIDENCY, 8): 20,
}
"""Where the fault is when it is another field's: neither a set nor ranges are given."""


@check("5.5.3", Level.MUST, BATCHES)
async def fault_field(session: Session) -> None:
    """Fault field: every field that not all values are allowed for."""
    for record, offset, value in FIELDS:
        good = session.first.batch([Unknown(0x7001), record])
        kind = RecordType(good[AT + 8] | good[AT + 9] << 8)
        # A SET without ranges must also be as short as one.
        if kind == RecordType.SET and offset == 18:
            short = good[: len(good) - 16]
            size = len(short).to_bytes(4, "little")
            good = short[:8] + size + short[12 : AT + 10] + b"\x20\0" + short[AT + 12 :]
        data = changed(good, AT + 8 + offset, value)
        where = AT + 8 + ELSEWHERE.get((kind, offset), offset)
        await _expect_fault(session, data, Fault.FIELD, where)


@check("5.5.1", Level.MUST, BATCHES, RecordType.SET, RecordType.RESIDENCY)
async def nothing_is_applied(session: Session) -> None:
    """Nothing of a malformed batch is applied."""
    side, data = session.first, await session.data()
    set_id, number = session.number(), session.number()
    where = (await session.place(),)
    good = side.batch(
        [
            SetRecord(set_id, data.nsid, where),
            Intent(number, 10_000_000, data.nsid, where),
            Outcome(session.number()),
        ]
    )
    await side.submit_bytes(changed(good, len(good) - 8, bytes(8)))
    expect_equal((await side.residency(set_id=set_id)).reason, Reason.SET, "reason of the set")
    outcome = await side.outcome(Outcome(number))
    expect_equal(outcome.state, 0, "state of the intent")


@check("5.5.4", Level.MUST, BATCHES, Need.RECORDS)
async def records_are_dropped_for_a_reason(session: Session) -> None:
    """What depends on the state of the target is dropped for a reason."""
    data, beyond = await session.data(), await session.beyond()
    number = session.number
    cases: list[tuple[Record, Reason]] = [
        (SetRecord(number(), NOWHERE, WHERE), Reason.NAMESPACE),
        (SetRecord(number(), data.nsid, (beyond,)), Reason.NAMESPACE),
        (Signature(data.nsid, beyond.slba - 1, 2, bytes(8)), Reason.NAMESPACE),
        (Intent(number(), 1000, data.nsid, (Range(2**64 - 1, 2**32 - 1),)), Reason.NAMESPACE),
        (Intent(number(), 1000, set_id=number()), Reason.SET),
        (Retain(1000, set_id=number()), Reason.SET),
    ]
    before = (await session.first.status()).dropped
    for record, reason in cases:
        answer = await session.first.say(record)
        found = (answer.state, answer.dropped, answer.dropped_reason)
        expect_equal(found, (AnswerState.APPLIED, 1, reason), f"what became of {record}")
    after = (await session.first.status()).dropped
    more = {Reason(at): new - old for at, (old, new) in enumerate(zip(before, after, strict=True))}
    expect_equal((more[Reason.NAMESPACE], more[Reason.SET]), (4, 2), "dropped by reason")


@check("5.5.5", Level.MUST, BATCHES)
async def refusals_are_reported(session: Session) -> None:
    """A refused batch is reported."""
    side = session.first
    before = (await side.status()).refused
    good = _good(session)
    await side.submit_bytes(good[:-1] + b"\xee", 11)
    answer, status = await side.answer(11), await side.status()
    expect_equal(answer.state, AnswerState.REFUSED, "state of the answer page")
    expect_equal(status.refused - before, 1, "refused")
    expect(status.refusals, "there is no refusal on the status page")
    last = status.refusals[0]
    found = (last.writer, last.sequence, last.fault, last.fault_offset, last.mailbox)
    wanted = (side.writer, side.sequence, Fault.CHECKSUM, 12, 11)
    expect_equal(found, wanted, "writer, sequence, fault, offset and mailbox of the latest refusal")
