"""Intents until they end (clauses 1.2, 7.1 and 7.4)."""

from __future__ import annotations

from ...layout import READY_NEVER
from ...names import CancelWhat, IntentFlag, OutcomeFlag, Reason, RecordType, State, Verdict
from ...records import Cancel, Intent, Outcome, OutcomeAnswer, Range, Retain, SetRecord, Signature
from ..registry import Level, Need, Skipped, check, expect, expect_equal
from ..session import Session

NEEDS = (Need.BATCHES, RecordType.INTENT)
EASY_US = 5_000_000
FAR_US = 3_600_000_000


@check("1.2.1", Level.MUST, *NEEDS)
async def hints_change_no_data(session: Session) -> None:
    """No hint changes the data or the status of a Read."""
    side, data = session.first, await session.data()
    places = [await session.place() for _ in range(4)] + [await session.beyond()]
    before = [await session.read(each) for each in places]
    number = session.number()
    where = tuple(places[:4])
    await side.say(
        SetRecord(number, data.nsid, where),
        Signature(data.nsid, where[0].slba, where[0].nlb, b"\xff" * 16),
        Intent(number, 0, data.nsid, where),
        Intent(session.number(), FAR_US, set_id=number, flags=IntentFlag.LATE_OK),
        Retain(1, data.nsid, where),
        Cancel(CancelWhat.EVERYTHING),
    )
    after = [await session.read(each) for each in places]
    statuses = [each.status for each in after]
    expect_equal(statuses, [each.status for each in before], "statuses of Reads")
    expect([e.data for e in after] == [e.data for e in before], "other data after hints")


@check("7.4.1", Level.SHOULD, *NEEDS, RecordType.RESIDENCY)
async def intents_warm(session: Session) -> None:
    """An intent makes what is cold warm."""
    side, data, where = session.first, await session.data(), await session.cold(4)
    answer = await side.say(Intent(session.number(), EASY_US, data.nsid, (where,)))
    if answer.dropped_reason in {Reason.BUDGET, Reason.ROOM, Reason.RATE}:
        raise Skipped(f"dropped for reason {answer.dropped_reason.name.lower()}")
    await session.until(
        lambda: side.residency(where, nsid=data.nsid),
        lambda found: found.warm_bytes == found.total_bytes,
        "warm",
    )


@check("7.4.2", Level.MUST, *NEEDS)
async def impossible_deadlines(session: Session) -> None:
    """What cannot be ready in time is dropped, or taken late if that is allowed."""
    side, data, where = session.first, await session.data(), await session.cold(8)
    found = await side.outcome(Intent(session.number(), 0, data.nsid, (where,)))
    if not found.flags & OutcomeFlag.WAS_WARM:
        expect_equal(
            (found.verdict, found.state, found.reason),
            (Verdict.DROPPED, State.DROPPED, Reason.DEADLINE),
            "verdict, state and reason with a deadline of 0",
        )
    late = Intent(session.number(), 0, data.nsid, (where,), flags=IntentFlag.LATE_OK)
    found = await side.outcome(late)
    if not found.flags & OutcomeFlag.WAS_WARM and found.verdict != Verdict.DROPPED:
        expect_equal(found.verdict, Verdict.LATE, "verdict with late_ok")
        expect_equal(found.admitted_bytes, found.total_bytes, "admitted_bytes with late_ok")


async def _warm(session: Session) -> Range:
    """Return a range that a Read has made warm. Skips the check when it does not stay so."""
    data, where = await session.data(), await session.place()
    await session.read(where)
    found = await session.first.residency(where, nsid=data.nsid)
    if found.warm_bytes < found.total_bytes:
        raise Skipped("what was read does not stay warm")
    return where


@check("7.4.4", Level.MUST, *NEEDS, RecordType.RESIDENCY)
async def warm_intents_are_met_at_once(session: Session) -> None:
    """An intent of what is warm is met at once."""
    data, where = await session.data(), await _warm(session)
    found = await session.first.outcome(Intent(session.number(), 0, data.nsid, (where,)))
    flag = bool(found.flags & OutcomeFlag.WAS_WARM)
    expect_equal((found.state, flag, found.ready_us), (State.MET, True, 0), "state, flag, ready_us")


@check("7.4.5", Level.MUST, *NEEDS, RecordType.OUTCOME)
async def numbers_are_used_again(session: Session) -> None:
    """A number that is used again is the new intent's."""
    side, data, number = session.first, await session.data(), session.number()
    one, two = await session.cold(), await session.cold(2)
    before = (await side.status()).intent_counts
    await side.say(
        Intent(number, FAR_US, data.nsid, (one,), priority=3),
        Intent(number, FAR_US, data.nsid, (two,), priority=1),
    )
    found = await side.outcome(Outcome(number))
    expect_equal(found.total_bytes, session.bytes_of(two), "total_bytes of the later intent")
    after = (await side.status()).intent_counts
    ended = after[3].cancelled + after[3].met - before[3].cancelled - before[3].met
    expect_equal(ended, 1, "the earlier intent is cancelled")


@check("7.4.7", Level.MUST, *NEEDS, RecordType.OUTCOME)
async def intents_outlive_connections(session: Session) -> None:
    """An intent outlives the connection that brought it."""
    side, data, number = session.first, await session.data(), session.number()
    await side.say(Intent(number, FAR_US, data.nsid, (await session.cold(),)))
    before = await side.outcome(Outcome(number))
    await side.reconnect()
    after = await side.outcome(Outcome(number))
    if before.state in {State.PENDING, State.MET}:
        expect(
            after.state in {State.PENDING, State.MET}, f"{before.state!r} became {after.state!r}"
        )


@check("7.5.4", Level.MUST, *NEEDS, RecordType.OUTCOME)
async def ready_times(session: Session) -> None:
    """The ready_us of an intent is known when the intent has ended."""
    side, data, number = session.first, await session.data(), session.number()
    where = await session.cold(4)
    first = await side.outcome(Intent(number, EASY_US, data.nsid, (where,)))

    def check_one(found: OutcomeAnswer) -> None:
        is_ready = found.state in {State.MET, State.LATE}
        expect_equal(found.ready_us != READY_NEVER, is_ready, f"ready_us {found.ready_us} is known")
        expect(found.warm_bytes <= found.admitted_bytes <= found.total_bytes, f"bytes of {found}")
        if is_ready:
            expect_equal(found.warm_bytes, found.admitted_bytes, "warm_bytes of what is ready")

    check_one(first)
    last = await session.until(
        lambda: side.outcome(Outcome(number)), lambda found: found.state != State.PENDING, "ended"
    )
    check_one(last)
    if last.state == State.MET:
        expect(last.ready_us <= EASY_US, f"met after {last.ready_us} us of {EASY_US}")
