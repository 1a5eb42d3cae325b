"""Batches, records, answers and versions (clauses 1.4, 5.1, 5.2, 5.4 and 9)."""

from __future__ import annotations

from ...answers import decode_answer
from ...codec import seal
from ...names import AnswerFlag, AnswerState, CancelWhat, RecordType
from ...records import (
    Cancel,
    Intent,
    Outcome,
    OutcomeAnswer,
    Range,
    Record,
    Residency,
    ResidencyAnswer,
    Retain,
    SetRecord,
    Signature,
    Unknown,
)
from ..registry import Level, Need, check, expect, expect_equal
from ..session import Session
from ..side import Side

BATCHES = Need.BATCHES
EASY_US = 10_000_000
UNKNOWN_TYPE = 0x7001
NOWHERE = 0xFFFFFFFE


async def _expect_accepted(side: Side, record: Record) -> None:
    answer = await side.say(record)
    found = (answer.state, answer.accepted, answer.dropped, answer.unknown)
    wanted = (AnswerState.APPLIED, 1, 0, 0)
    expect_equal(found, wanted, f"state, accepted, dropped, unknown ({answer.dropped_reason.name})")


@check("1.4.2", Level.MUST, BATCHES, RecordType.SET)
async def reserved_bytes_are_ignored(session: Session) -> None:
    """Reserved bytes and unknown flags are ignored."""
    side, data = session.first, await session.data()
    set_id, where = session.number(), await session.place()
    batch = side.batch([SetRecord(set_id, data.nsid, (where,)), Outcome(session.number())])
    dirty = bytearray(batch)
    dirty[30:32] = b"\xff\xff"  # of the header
    dirty[32 + 17] |= 0xFE  # flags of the SET
    dirty[32 + 28 : 32 + 32] = b"\xff" * 4
    dirty[32 + 32 + 12 : 32 + 32 + 16] = b"\xff" * 4  # of its range
    await side.submit_bytes(seal(bytes(dirty)))
    expect_equal((await side.answer()).accepted, 2, "accepted")


@check("5.1.3", Level.MUST, BATCHES, RecordType.SET, RecordType.RESIDENCY)
async def records_are_applied_in_order(session: Session) -> None:
    """Records are applied in their order."""
    side, data = session.first, await session.data()
    set_id, where = session.number(), await session.place()
    answer = await side.say(
        SetRecord(set_id, data.nsid, (where,)),
        Retain(1, set_id=set_id),
        Residency(set_id=set_id),
        mailbox=1,
    )
    found = [each.total_bytes for each in answer.answers if isinstance(each, ResidencyAnswer)]
    expect_equal(found, [session.bytes_of(where)], "bytes of a set that the batch itself defines")
    expect_equal(answer.dropped, 0, "dropped")


@check("5.1.5", Level.MUST, BATCHES)
async def writer_and_sequence_come_back(session: Session) -> None:
    """Writer and sequence come back."""
    side = session.first
    answer = await side.say(Unknown(UNKNOWN_TYPE))
    found = (answer.writer, answer.sequence)
    expect_equal(found, (side.writer, side.sequence), "writer and sequence")


@check("5.2.3", Level.MUST, BATCHES, RecordType.SET)
async def set_is_accepted(session: Session) -> None:
    """SET is accepted."""
    ranges = tuple([await session.place() for _ in range(3)])
    record = SetRecord(session.number(), (await session.data()).nsid, ranges)
    await _expect_accepted(session.first, record)


@check("5.2.4", Level.MUST, BATCHES, RecordType.SIGNATURE)
async def signature_is_accepted(session: Session) -> None:
    """SIGNATURE is accepted."""
    data = await session.data()
    for size in (8, 16):
        where = await session.place()
        vector = session.random.randbytes(size)
        record = Signature(data.nsid, where.slba, where.nlb, vector, family=7)
        await _expect_accepted(session.first, record)


@check("5.2.5", Level.MUST, BATCHES, RecordType.INTENT)
async def intent_is_accepted(session: Session) -> None:
    """INTENT is accepted."""
    data = await session.data()
    record = Intent(session.number(), EASY_US, data.nsid, (await session.place(),), confidence=100)
    await _expect_accepted(session.first, record)


@check("5.2.6", Level.MUST, BATCHES, RecordType.RETAIN)
async def retain_is_accepted(session: Session) -> None:
    """RETAIN is accepted."""
    record = Retain(10, (await session.data()).nsid, (await session.place(),))
    await _expect_accepted(session.first, record)


@check("5.2.7", Level.MUST, BATCHES, RecordType.CANCEL)
async def cancel_is_accepted(session: Session) -> None:
    """CANCEL is accepted."""
    for what in (CancelWhat.SESSION, CancelWhat.ALL, CancelWhat.EVERYTHING):
        await _expect_accepted(session.first, Cancel(what, session.number()))


@check("5.2.8", Level.MUST, BATCHES, RecordType.RESIDENCY)
async def residency_is_accepted(session: Session) -> None:
    """RESIDENCY is accepted."""
    record = Residency((await session.data()).nsid, (await session.place(),))
    await _expect_accepted(session.first, record)


@check("5.2.9", Level.MUST, BATCHES, RecordType.OUTCOME)
async def outcome_is_accepted(session: Session) -> None:
    """OUTCOME is accepted."""
    await _expect_accepted(session.first, Outcome(session.number()))


@check("5.4.1", Level.MUST, BATCHES)
async def answers_stand_in_order(session: Session) -> None:
    """Answers stand in the order of their records, with their tags."""
    data, place = await session.data(), await session.place()
    records: list[Record] = [
        Outcome(session.number(), tag=31),
        Residency(data.nsid, (place,), tag=77),
        Unknown(UNKNOWN_TYPE, tag=5),
        Intent(session.number(), EASY_US, data.nsid, (place,), tag=0xFFFFFFFF),
        SetRecord(session.number(), data.nsid, (place,), tag=8),
        Outcome(session.number(), tag=0),
    ]
    answers = (await session.first.say(*records)).answers
    found = [(type(each), each.tag) for each in answers]
    wanted = [
        (OutcomeAnswer, 31),
        (ResidencyAnswer, 77),
        (OutcomeAnswer, 2**32 - 1),
        (OutcomeAnswer, 0),
    ]
    expect_equal(found, wanted, "answers")


@check("5.4.1", Level.MUST, BATCHES)
async def truncated_pages_say_so(session: Session) -> None:
    """A page that has not all answers says so."""
    records = [Outcome(session.number(), tag=number) for number in range(100)]
    answer = await session.first.say(*records)
    found = (len(answer.answers), bool(answer.flags & AnswerFlag.TRUNCATED))
    expect_equal(found, (72, True), "answers, and whether it says that there are more")
    expect_equal([each.tag for each in answer.answers], list(range(72)), "tags")
    few = await session.first.say(*records[:72])
    expect(not few.flags & AnswerFlag.TRUNCATED, "72 answers are said to be truncated")


@check("5.4.2", Level.MUST, BATCHES)
async def answer_pages_have_checksums(session: Session) -> None:
    """The checksum of an answer page is right."""
    decode_answer(await session.first.answer_bytes(40))
    await session.first.say(Outcome(session.number()), Unknown(UNKNOWN_TYPE))
    decode_answer(await session.first.answer_bytes())


@check("5.4.3", Level.MUST, BATCHES, RecordType.SET)
async def records_add_up(session: Session) -> None:
    """Each record is accepted, dropped or unknown."""
    data = await session.data()
    records: list[Record] = [
        SetRecord(session.number(), data.nsid, (await session.place(),)),
        SetRecord(session.number(), NOWHERE, (Range(0, 1),), tag=91),
        Unknown(UNKNOWN_TYPE),
        Intent(session.number(), EASY_US, set_id=session.number(), tag=92),
        Outcome(session.number()),
        Unknown(UNKNOWN_TYPE + 1, bytes(64)),
    ]
    answer = await session.first.say(*records)
    total = answer.accepted + answer.dropped + answer.unknown
    expect_equal(total, len(records), "accepted + dropped + unknown")
    expect_equal((answer.state, answer.fault), (AnswerState.APPLIED, 0), "state and fault")
    expect_equal(answer.dropped_tag, 91, "tag of the first that was dropped")


@check("9.1", Level.MUST, BATCHES)
async def later_minor_versions_are_taken(session: Session) -> None:
    """A later minor version is taken."""
    side = session.first
    for minor in (1, 255):
        batch = bytearray(side.batch([Outcome(session.number())]))
        batch[5] = minor
        await side.submit_bytes(seal(bytes(batch)))
        expect_equal((await side.answer()).state, AnswerState.APPLIED, f"state of 1.{minor}")


@check("9.2", Level.MUST, BATCHES)
async def longer_headers_are_passed_over(session: Session) -> None:
    """Records begin where the header says."""
    side = session.first
    batch = side.batch([Outcome(session.number())])
    longer = bytearray(batch[:32] + b"\xff" * 16 + batch[32:])
    longer[6] = 48
    longer[8:12] = len(longer).to_bytes(4, "little")
    await side.submit_bytes(seal(bytes(longer)))
    answer = await side.answer()
    expect_equal((answer.state, answer.accepted), (AnswerState.APPLIED, 1), "state and accepted")


@check("9.3", Level.MUST, BATCHES)
async def unknown_records_are_skipped(session: Session) -> None:
    """Records of unknown type are skipped and counted."""
    side = session.first
    before = (await side.status()).unknown
    answer = await side.say(
        Unknown(UNKNOWN_TYPE, bytes(72)),
        Outcome(session.number(), tag=3),
        Unknown(0x8101, bytes(32)),
    )
    found = (answer.state, answer.accepted, len(answer.answers))
    expect_equal(found, (AnswerState.APPLIED, 1, 1), "state, accepted, answers")
    expect(answer.unknown > 0, "unknown is zero")
    expect_equal((await side.status()).unknown - before, 2, "unknown of the status")
