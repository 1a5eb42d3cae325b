"""Sets, signatures, retain and residency (clauses 7.2, 7.3, 7.7 and 7.8)."""

from __future__ import annotations

import asyncio

from ...layout import READY_NEVER
from ...names import AnswerState, Reason, RecordType, SetFlag, SetOp
from ...records import Outcome, Range, Residency, Retain, SetRecord, Signature
from ..registry import Level, Need, Skipped, check, expect, expect_equal
from ..session import Session

NEEDS = (Need.BATCHES, RecordType.SET, RecordType.RESIDENCY)
QUERY = (Need.BATCHES, RecordType.RESIDENCY)
MANY_PAGES = 200
TTL_MS = 100


@check("7.2.1", Level.MUST, *NEEDS)
async def sets_are_defined(session: Session) -> None:
    """Sets are defined, extended, replaced and dropped."""
    side, data = session.first, await session.data()
    set_id, size = session.number(), await session.granule()
    if data.blocks < 6 * size:
        raise Skipped("the namespace is too small")
    unit = size * data.block_bytes
    ranges = [Range(number * size, size) for number in range(6)]
    steps = [
        (SetOp.EXTEND, ranges[:1], 1),
        (SetOp.EXTEND, ranges[1:3], 3),
        (SetOp.DEFINE, ranges[3:5], 2),
        (SetOp.EXTEND, ranges[5:], 3),
    ]
    for op, given, total in steps:
        await side.say(SetRecord(set_id, data.nsid, tuple(given), op=op))
        found = (await side.residency(set_id=set_id)).total_bytes
        expect_equal(found, total * unit, f"bytes after {op.name.lower()}")
    drop = SetRecord(set_id, data.nsid, op=SetOp.DROP)
    expect_equal((await side.say(drop)).accepted, 1, "accepted to drop")
    again = (await side.say(drop)).dropped_reason
    expect_equal(again, Reason.SET, "reason to drop what there is not")
    expect_equal(
        (await side.residency(set_id=set_id)).reason, Reason.SET, "reason of a dropped set"
    )


@check("7.2.2", Level.MUST, *NEEDS)
async def sets_are_of_one_namespace(session: Session) -> None:
    """A set is of one namespace."""
    side, data, set_id = session.first, await session.data(), session.number()
    where = await session.place()
    await side.say(SetRecord(set_id, data.nsid, (where,)))
    answer = await side.say(SetRecord(set_id, data.nsid + 1, (Range(0, 1),), op=SetOp.EXTEND))
    found = (answer.dropped, answer.dropped_reason)
    expect_equal(found, (1, Reason.NAMESPACE), "dropped, and reason, of an extension elsewhere")


@check("7.2.3", Level.MUST, *NEEDS)
async def sets_are_forgotten(session: Session) -> None:
    """A set is forgotten after its time."""
    side, data, where = session.first, await session.data(), await session.place()
    short, long = session.number(), session.number()
    await side.say(
        SetRecord(short, data.nsid, (where,), ttl_ms=TTL_MS),
        SetRecord(long, data.nsid, (where,), ttl_ms=0),
    )
    await asyncio.sleep(TTL_MS / 1000)
    expect_equal((await side.residency(set_id=short)).reason, Reason.SET, "reason after its time")
    expect_equal((await side.residency(set_id=long)).reason, Reason.NONE, "reason of another set")


@check("7.2.4", Level.SHOULD, *NEEDS)
async def ordered_sets_are_followed(session: Session) -> None:
    """A Read of an ordered set warms what follows in it."""
    side, data, set_id = session.first, await session.data(), session.number()
    one, two = await session.cold(), await session.cold()
    if one == two:
        raise Skipped("only one range is cold")
    record = SetRecord(set_id, data.nsid, (one, two), flags=SetFlag.ORDERED)
    await side.say(record)
    await session.read(one)
    await session.until(
        lambda: side.residency(two, nsid=data.nsid),
        lambda answer: answer.warm_bytes == answer.total_bytes,
        "warm",
    )


@check("7.2.5", Level.MUST, *NEEDS)
async def sets_have_a_size(session: Session) -> None:
    """A set of too many ranges is dropped for reason budget."""
    side, data, set_id = session.first, await session.data(), session.number()
    most = side.capability.max_set_ranges
    size = 200
    if most > size * MANY_PAGES:
        raise Skipped(f"max_set_ranges is {most}: that would be many batches")
    if (limit := (await side.status()).set_ranges.limit) < most:
        raise Skipped(f"the budget of set_ranges is {limit}, max_set_ranges is {most}")
    where = (Range(0, 1),)
    left = most
    while left:
        part = where * min(left, size)
        await side.say(SetRecord(set_id, data.nsid, part, op=SetOp.EXTEND))
        left -= len(part)
    whole = await side.residency(set_id=set_id)
    expect_equal(whole.reason, Reason.NONE, f"reason of a set of {most} ranges")
    answer = await side.say(SetRecord(set_id, data.nsid, where, op=SetOp.EXTEND))
    found = (answer.dropped, answer.dropped_reason)
    expect_equal(found, (1, Reason.BUDGET), "dropped, and reason, of one range more")


@check("7.3.2", Level.MUST, Need.BATCHES, RecordType.SIGNATURE)
async def signatures_are_replaced(session: Session) -> None:
    """A signature of the same range replaces the earlier."""
    side, data, where = session.first, await session.data(), await session.place()
    before = (await side.status()).signatures.used
    for _ in range(3):
        vector = session.random.randbytes(8)
        await side.say(Signature(data.nsid, where.slba, where.nlb, vector))
    expect_equal((await side.status()).signatures.used - before, 1, "signatures used")


@check("7.7.1", Level.MUST, Need.BATCHES, RecordType.RETAIN, RecordType.RESIDENCY)
async def retain_reads_nothing(session: Session) -> None:
    """RETAIN reads nothing."""
    side, data, where = session.first, await session.data(), await session.cold()
    await side.say(Retain(1000, data.nsid, (where,)))
    await asyncio.sleep(TTL_MS / 1000)
    found = await side.residency(where, nsid=data.nsid)
    expect_equal((found.warm_bytes, found.coming_bytes), (0, 0), "warm and coming bytes")


@check("7.8.1", Level.MUST, *QUERY)
async def residency_counts_bytes(session: Session) -> None:
    """Residency counts bytes of what was asked about."""
    side, data = session.first, await session.data()
    where = await session.place(2)
    await session.read(Range(where.slba, where.nlb // 2))
    half = Range(where.slba + where.nlb // 2, where.nlb - where.nlb // 2)
    for _ in range(2):
        found = await side.residency(where, nsid=data.nsid)
        expect_equal(found.total_bytes, session.bytes_of(where), "total_bytes")
        parts = found.warm_bytes + found.coming_bytes
        expect(parts <= found.total_bytes, f"warm and coming overlap: {found}")
        await session.read(half)
    twice = await side.residency(where, where, nsid=data.nsid)
    expect_equal(twice.total_bytes, 2 * found.total_bytes, "total_bytes of two ranges")


@check("7.8.2", Level.MUST, *QUERY)
async def ready_times_are_known(session: Session) -> None:
    """What is warm is ready, what is not coming never is."""
    side, data, where = session.first, await session.data(), await session.cold()
    found = await side.residency(where, nsid=data.nsid)
    if not found.coming_bytes:
        expect_equal(found.ready_us, READY_NEVER, "ready_us of what is not coming")
    await session.read(where)
    found = await side.residency(where, nsid=data.nsid)
    if found.warm_bytes == found.total_bytes:
        expect_equal(found.ready_us, 0, "ready_us of what is warm")


@check("7.8.3", Level.MUST, *QUERY)
async def residency_says_why(session: Session) -> None:
    """Residency says why there is no answer."""
    side, data, beyond = session.first, await session.data(), await session.beyond()
    blocks = min(data.blocks, 0xFFFFFFFF)
    many = side.capability.max_query_bytes // (blocks * data.block_bytes) + 1
    cases = [
        (Residency(set_id=session.number()), Reason.SET),
        (Residency(0xFFFFFFFE, (Range(0, 1),)), Reason.NAMESPACE),
        (Residency(data.nsid, (beyond,)), Reason.NAMESPACE),
    ]
    if many <= 200:
        cases.append((Residency(data.nsid, (Range(0, blocks),) * many), Reason.BUDGET))
    for record, reason in cases:
        page = await side.say(record, mailbox=1)
        expect_equal((page.state, len(page.answers)), (AnswerState.APPLIED, 1), "state and answers")
        (found,) = page.answers
        expect_equal(getattr(found, "reason", None), reason, "reason")
        sums = (getattr(found, "total_bytes", 0), getattr(found, "warm_bytes", 0))
        expect_equal(sums, (0, 0), "total_bytes and warm_bytes")


@check("7.8.4", Level.MUST, *QUERY)
async def queries_warm_nothing(session: Session) -> None:
    """A query warms nothing."""
    side, data, where = session.first, await session.data(), await session.cold(2)
    for _ in range(5):
        await side.say(Residency(data.nsid, (where,)), Outcome(session.number()), mailbox=1)
        await asyncio.sleep(0.02)
    found = await side.residency(where, nsid=data.nsid)
    expect_equal((found.warm_bytes, found.coming_bytes), (0, 0), "warm and coming bytes")
