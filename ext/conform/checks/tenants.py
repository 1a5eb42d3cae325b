"""Tenants, limits and budgets (clause 8)."""

from __future__ import annotations

from ...names import CancelWhat, Carrier, Reason, RecordType, SetOp, State
from ...pages import Status
from ...records import Cancel, Intent, Outcome, Range, SetRecord
from .. import nvme
from ..host import Command
from ..registry import Level, Need, Skipped, check, expect, expect_equal
from ..session import Session

BATCHES = Need.BATCHES
FAR_US = 3_600_000_000
MANY = 20_000
"""The kit fills no budget that is larger."""
BUDGETS = ("sets", "set_ranges", "signatures", "intents", "intent_bytes", "tier_bytes")


@check("8.1", Level.MUST, BATCHES, RecordType.SET, RecordType.INTENT)
async def tenants_do_not_see_each_other(session: Session) -> None:
    """A tenant sees nothing of another's sets and intents."""
    first, second = session.first, await session.second()
    data, number = await session.data(), session.number()
    where = (await session.cold(),)
    intent = Intent(number, FAR_US, data.nsid, where)
    await first.say(SetRecord(number, data.nsid, where), intent)
    found = await second.residency(set_id=number)
    expect_equal((found.reason, found.total_bytes), (Reason.SET, 0), "another's set")
    outcome = await second.outcome(Outcome(number))
    expect_equal((outcome.state, outcome.total_bytes), (State.UNKNOWN, 0), "another's intent")


@check("8.1", Level.MUST, BATCHES, RecordType.SET, RecordType.INTENT)
async def tenants_do_not_act_on_each_other(session: Session) -> None:
    """A tenant cannot act on another's sets and intents."""
    first, second = session.first, await session.second()
    data, number = await session.data(), session.number()
    where = await session.cold()
    await first.say(
        SetRecord(number, data.nsid, (where,)), Intent(number, FAR_US, data.nsid, (where,))
    )
    await second.say(
        SetRecord(number, data.nsid, op=SetOp.DROP),
        Cancel(CancelWhat.INTENT, number),
        Cancel(CancelWhat.EVERYTHING),
    )
    total = (await first.residency(set_id=number)).total_bytes
    expect_equal(total, session.bytes_of(where), "bytes of a set that another tenant dropped")
    state = (await first.outcome(Outcome(number))).state
    expect(state in {State.PENDING, State.MET}, f"another tenant's CANCEL made it {state!r}")


def _own(status: Status) -> tuple[object, ...]:
    used = [getattr(status, name).used for name in BUDGETS[:4]]
    return (*used, status.batches, status.records, status.refused, status.dropped)


@check("8.1", Level.MUST, BATCHES)
async def tenants_have_their_own_status(session: Session) -> None:
    """A tenant's status is not another's."""
    first, second = session.first, await session.second()
    data = await session.data()
    before = _own(await second.status())
    await first.say(
        SetRecord(session.number(), data.nsid, (await session.place(),)),
        SetRecord(session.number(), 0xFFFFFFFE, (Range(0, 1),)),
        Outcome(session.number()),
    )
    await first.submit_bytes(bytes(64))
    after = _own(await second.status())
    expect_equal(after, before, "what the second tenant's status says of its own")


@check("8.1", Level.MUST, BATCHES, RecordType.INTENT, Carrier.LOG_PAGES)
async def tenants_have_their_own_events(session: Session) -> None:
    """A tenant's events are not another's."""
    first, second = session.first, await session.second()
    data, number = await session.data(), session.number()
    await second.events()
    intent = Intent(number, FAR_US, data.nsid, (await session.place(),))
    await first.say(intent, Cancel(CancelWhat.INTENT, number))
    found = [each.intent_id for each in (await second.events()).events]
    expect(number not in found, "another tenant's intent is in the log")
    own = [each.intent_id for each in (await first.events()).events]
    if not own:
        raise Skipped("the tenant's own intent made no event: 5.7.2")


@check("8.2", Level.MUST, BATCHES, RecordType.INTENT)
async def budgets_drop(session: Session) -> None:
    """What is over a budget is accepted, counted and dropped."""
    side, data = session.first, await session.data()
    blocks = min(data.blocks, 0xFFFFFFFF)
    status = await side.status()
    limit = status.intent_bytes.limit
    size = blocks * data.block_bytes
    count = limit // size + 1
    if count > 240:
        raise Skipped(f"intent_bytes is {limit}: more than a batch can ask for")
    before = sum(status.dropped)
    intent = Intent(session.number(), FAR_US, data.nsid, (Range(0, blocks),) * count)
    batch = side.batch([intent])
    if side.uses_pages:
        done = await side.write_page(64, batch)
    else:
        done = await side.submit_by_opcode(batch, 0)
    expect_equal(nvme.text(done.status), nvme.text(0), "status")
    answer = await side.answer()
    expect_equal((answer.accepted, answer.dropped), (0, 1), "accepted and dropped")
    reasons = {Reason.BUDGET, Reason.ROOM, Reason.RATE}
    expect(answer.dropped_reason in reasons, f"dropped for {answer.dropped_reason!r}")
    expect_equal(sum((await side.status()).dropped) - before, 1, "dropped of the status")


@check("8.2", Level.MUST, BATCHES, RecordType.SET)
async def the_budget_of_sets_drops(session: Session) -> None:
    """Sets over the budget are accepted, counted and dropped."""
    side, data = session.first, await session.data()
    limit = (await side.status()).sets.limit
    if limit > MANY:
        raise Skipped(f"the budget is of {limit} sets: that would be many batches")
    where, dropped, reason = (await session.place(),), 0, Reason.NONE
    for _ in range(limit // 80 + 1):
        records = [SetRecord(session.number(), data.nsid, where) for _ in range(80)]
        answer = await side.say(*records)
        if answer.dropped:
            dropped, reason = dropped + answer.dropped, answer.dropped_reason
    expect(dropped > 0, f"no set was dropped, with a budget of {limit}")
    expect(reason in {Reason.BUDGET, Reason.RATE}, f"dropped for {reason!r}")
    used = (await side.status()).sets.used
    expect(used <= limit, f"{used} sets are used of {limit}")


@check("8.2", Level.MUST, BATCHES)
async def floods_fail_nothing(session: Session) -> None:
    """A flood of hints makes no command fail."""
    side = session.first
    plain = await session.read(await session.place())
    for mailbox in range(4):
        records = [Outcome(session.number()) for _ in range(200)]
        if side.uses_pages:
            done = await side.write_page(64 + mailbox % 4, side.batch(records))
        else:
            done = await side.submit_by_opcode(side.batch(records), mailbox % 4)
        expect_equal(nvme.text(done.status), nvme.text(0), "status of a batch")
    found = await session.read(await session.place())
    expect_equal(found.status, plain.status, "status of a Read after it")
    flush = await side.host.io(Command(nvme.Io.FLUSH, nsid=(await session.data()).nsid))
    expect_equal(flush.status, 0, "status of a Flush after it")
