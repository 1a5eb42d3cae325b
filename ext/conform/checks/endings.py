"""How intents end, and that the counters say so (clauses 5.6, 5.7, 7.5 and 7.6)."""

from __future__ import annotations

import asyncio

from ...names import CancelWhat, Carrier, Reason, RecordType, State
from ...pages import Counts, Status
from ...records import Cancel, Intent, Outcome, Range, SetRecord, Signature, Unknown
from ..registry import Level, Need, Skipped, check, expect, expect_equal
from ..session import Session

NEEDS = (Need.BATCHES, RecordType.INTENT, RecordType.OUTCOME)
FAR_US = 3_600_000_000
SHORT_US = 50_000
ENDED = {State.MET, State.LATE, State.DROPPED, State.CANCELLED}


def _sum(counts: Counts) -> int:
    return counts.pending + counts.met + counts.late + counts.dropped + counts.cancelled


async def _some_intents(session: Session, deadline_us: int, count: int = 4) -> list[int]:
    """Submit intents of every priority; return their numbers."""
    data = await session.data()
    numbers = [session.number() for _ in range(count)]
    records = [
        Intent(number, deadline_us, data.nsid, (await session.place(),), priority=at % 4)
        for at, number in enumerate(numbers)
    ]
    await session.first.say(*records)
    return numbers


async def _ended(session: Session, number: int) -> State:
    found = await session.until(
        lambda: session.first.outcome(Outcome(number)),
        lambda outcome: outcome.state != State.PENDING,
        "ended",
    )
    return found.state


@check("5.6.1", Level.MUST, Need.BATCHES)
async def the_status_ends_in_zeros(session: Session) -> None:
    """The status page ends in zeros."""
    data = await session.first.status_bytes()
    expect_equal(
        (len(data), any(data[1600:])), (4096, False), "size, and anything after 1600 bytes"
    )


@check("5.6.3", Level.MUST, Need.BATCHES)
async def counts_add_up(session: Session) -> None:
    """What arrived is the sum of what became of it."""
    await _some_intents(session, SHORT_US)
    for _ in range(5):
        status = await session.first.status()
        for kind, counts in (("intent", status.intent_counts), ("read", status.read_counts)):
            for priority, each in enumerate(counts):
                expect_equal(_sum(each), each.arrived, f"sum of {kind}_counts[{priority}]")
                expect(each.met_warm <= each.met, f"{kind}_counts[{priority}]: {each}")
        await asyncio.sleep(SHORT_US / 1e6 / 4)
    dropped = [each.dropped for each in status.read_counts]
    expect_equal(dropped, [0] * 4, "dated reads that were dropped")


@check("5.6.4", Level.MUST, Need.BATCHES)
async def records_are_counted(session: Session) -> None:
    """Batches and records are counted."""
    side = session.first
    before = await side.status()
    answer = await side.say(
        Outcome(session.number()),
        Unknown(0x7001),
        SetRecord(session.number(), 0xFFFFFFFE, (Range(0, 1),)),
    )
    after = await side.status()
    expect_equal(after.batches - before.batches, 1, "batches")
    expect_equal(after.records - before.records, 3, "records")
    dropped = sum(after.dropped) - sum(before.dropped)
    expect_equal(dropped, answer.dropped, "dropped, over all reasons")


def _counters(status: Status) -> list[int]:
    single = ("batches", "refused", "records", "unknown", "read_hints", "dataset_sets")
    more = ("timely_hits", "late_hits", "wasted_bytes", "hydrated_bytes", "event_count")
    values = [getattr(status, name) for name in (*single, *more)]
    counts = [each.arrived for each in (*status.intent_counts, *status.read_counts)]
    return [*values, *status.dropped, *counts]


@check("5.6.5", Level.MUST, Need.BATCHES)
async def counters_do_not_go_back(session: Session) -> None:
    """Counters do not go back."""
    await _some_intents(session, SHORT_US)
    before = _counters(await session.first.status())
    await _some_intents(session, SHORT_US)
    await session.first.forget()
    await session.first.reconnect()
    after = _counters(await session.first.status())
    expect(all(new >= old for old, new in zip(before, after, strict=True)), f"{before} to {after}")


@check("5.7.2", Level.MUST, *NEEDS, Carrier.LOG_PAGES)
async def every_end_makes_an_event(session: Session) -> None:
    """Every intent that ends makes one event."""
    data = await session.data()
    cancelled = [session.number() for _ in range(2)]
    intents = [Intent(each, FAR_US, data.nsid, (await session.cold(),)) for each in cancelled]
    await session.first.say(*intents, *(Cancel(CancelWhat.INTENT, each) for each in cancelled))
    numbers = [*await _some_intents(session, SHORT_US, 2), *cancelled]
    states = {number: await _ended(session, number) for number in numbers}
    events = (await session.first.events()).events
    for number, state in states.items():
        found = [each.state for each in events if each.intent_id == number]
        expect_equal(found, [state], f"states of the events of intent {number}")


@check("7.5.1", Level.MUST, *NEEDS)
async def intents_end_once(session: Session) -> None:
    """An intent ends exactly once."""
    side = session.first
    before = (await side.status()).intent_counts
    numbers = await _some_intents(session, SHORT_US, 8)
    states = [await _ended(session, number) for number in numbers]
    await side.say(*(Cancel(CancelWhat.INTENT, number) for number in numbers))
    after = (await side.status()).intent_counts
    for priority, (old, new) in enumerate(zip(before, after, strict=True)):
        ended = _sum(new) - new.pending - _sum(old) + old.pending
        expect_equal(ended, 2, f"ends of priority {priority}")
        expect_equal(new.arrived - old.arrived, 2, f"arrived of priority {priority}")
    again = [(await side.outcome(Outcome(number))).state for number in numbers]
    expect_equal(again, states, "states after a CANCEL of what has ended")


@check("7.5.2", Level.MUST, *NEEDS)
async def intents_end_as_one_of_four(session: Session) -> None:
    """An intent ends as met, late, dropped or cancelled."""
    for deadline_us in (0, SHORT_US, 1_000_000):
        for number in await _some_intents(session, deadline_us):
            state = await _ended(session, number)
            expect(state in ENDED, f"an intent with {deadline_us} us ended as {state!r}")


async def _pending(session: Session, record: Intent, cancel: Cancel) -> State:
    """Submit an intent and what withdraws it in one batch; return how it ended."""
    await session.first.say(record, cancel)
    return await _ended(session, record.intent_id)


@check("7.6.1", Level.MUST, *NEEDS, RecordType.CANCEL)
async def cancel_withdraws(session: Session) -> None:
    """CANCEL withdraws an intent, a session's, or all."""
    data, tag = await session.data(), session.number()
    whats = [
        (CancelWhat.INTENT, None),
        (CancelWhat.SESSION, tag),
        (CancelWhat.ALL, 0),
        (CancelWhat.EVERYTHING, 0),
    ]
    for what, number in whats:
        intent = Intent(session.number(), FAR_US, data.nsid, (await session.cold(),), session=tag)
        chosen = intent.intent_id if number is None else number
        state = await _pending(session, intent, Cancel(what, chosen))
        if state == State.MET:
            raise Skipped("intents are met as soon as they arrive")
        expect_equal(state, State.CANCELLED, f"state after CANCEL {what.name.lower()}")
    missing = await session.first.say(Cancel(CancelWhat.INTENT, session.number()))
    expect_equal(missing.accepted, 1, "accepted to cancel what there is not")


@check("7.6.1", Level.MUST, *NEEDS, RecordType.CANCEL)
async def cancel_withdraws_nothing_else(session: Session) -> None:
    """CANCEL withdraws nothing else."""
    data, tag = await session.data(), session.number()
    intent = Intent(session.number(), FAR_US, data.nsid, (await session.cold(),), session=tag)
    for cancel in (
        Cancel(CancelWhat.INTENT, session.number()),
        Cancel(CancelWhat.SESSION, session.number()),
    ):
        await session.first.say(intent, cancel)
        found = await session.first.outcome(Outcome(intent.intent_id))
        expect(found.state != State.CANCELLED, f"{cancel} has cancelled another's intent")


@check("7.6.1", Level.MUST, Need.BATCHES, RecordType.CANCEL)
async def cancel_forgets(session: Session) -> None:
    """CANCEL everything forgets sets and signatures."""
    side, data, where = session.first, await session.data(), await session.place()
    set_id = session.number()
    await side.say(
        SetRecord(set_id, data.nsid, (where,)),
        Signature(data.nsid, where.slba, where.nlb, bytes(8)),
    )
    await side.say(Cancel(CancelWhat.EVERYTHING))
    expect_equal((await side.residency(set_id=set_id)).reason, Reason.SET, "reason of the set")
    status = await side.status()
    used = (status.sets.used, status.set_ranges.used, status.signatures.used)
    expect_equal(used, (0, 0, 0), "sets, ranges and signatures that are used")
