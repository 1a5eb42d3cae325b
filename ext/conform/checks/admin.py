"""Log pages, the feature, and warm events (clauses 4.7 to 4.9)."""

from __future__ import annotations

from ...names import CancelWhat, Carrier, RecordType
from ...pages import Event, decode_events, decode_status
from ...records import Cancel, Intent
from ..registry import Level, Need, check, expect, expect_equal
from ..session import Session

FAR_US = 3_600_000_000
QUIET_S = 0.3
"""An event that comes although it must not has come by then."""
STEADY = ("capability", "batches", "refused", "records", "unknown", "dropped", "dataset_sets")
"""Of the status: what only the kit itself changes. The rest may move between two looks at it."""
LOG = Carrier.LOG_PAGES
FEATURE = Carrier.FEATURE
NEEDS = (Need.BATCHES, RecordType.INTENT, RecordType.CANCEL)


async def _end_an_intent(session: Session) -> int:
    """Make an intent that has ended (met, or cancelled at once); return its number."""
    data = await session.data()
    number = session.number()
    intent = Intent(number, FAR_US, data.nsid, (await session.place(),))
    await session.first.say(intent, Cancel(CancelWhat.INTENT, number))
    return number


@check("4.7.1", Level.MUST, LOG, Need.BATCHES)
async def the_status_log_is_the_status_page(session: Session) -> None:
    """The status log is the status page."""
    side = session.first
    log = await side.log(side.capability.status_log)
    expect_equal(log.status, 0, "status")
    found, page = decode_status(log.data), await side.status()
    for name in STEADY:
        expect_equal(getattr(found, name), getattr(page, name), name)


@check("4.7.2", Level.MUST, LOG, *NEEDS)
async def reading_forgets(session: Session) -> None:
    """Reading the event log forgets it, unless it is retained."""
    side, number = session.first, await _end_an_intent(session)
    for _ in range(2):
        retained = await side.events(retain=True)
        expect(number in _ids(retained.events), f"intent {number} is not in the log")
    expect(number in _ids((await side.events()).events), "it is gone after a retaining read")
    expect(number not in _ids((await side.events()).events), "it is there after it was read")


def _ids(events: tuple[Event, ...]) -> set[int]:
    return {each.intent_id for each in events}


@check("4.7.3", Level.MUST, LOG)
async def logs_are_read_in_parts(session: Session) -> None:
    """The log pages can be read in parts."""
    side = session.first
    for lid in (side.capability.status_log, side.capability.event_log):
        done = await side.log(lid, retain=True, size=64)
        expect_equal((done.status, len(done.data)), (0, 64), f"status and size of {lid:02X}h")
    expect_equal(decode_events(done.data).events, (), "events of a log that was read")


@check("4.8.1", Level.MUST, FEATURE)
async def the_feature_is_of_the_controller(session: Session) -> None:
    """The feature can be set, and a new controller has it clear."""
    side = session.first
    for value in (1, 0, 1):
        expect_equal((await side.set_feature(value)).status, 0, "status of Set Features")
        found = await side.get_feature()
        expect_equal((found.status, found.dw0), (0, value), "status and value")
    await side.reconnect()
    expect_equal((await side.get_feature()).dw0, 0, "value of a new controller")


async def _ask_for_events(session: Session) -> None:
    """Begin with an empty log on a controller that reports warm events."""
    await session.first.reconnect()
    await session.first.events()
    await session.first.set_feature(1)


@check("4.9.1", Level.MUST, FEATURE, LOG, *NEEDS)
async def an_end_makes_an_event(session: Session) -> None:
    """An intent that ends makes a warm event."""
    await session.first.reconnect()
    await session.first.set_feature(0)
    await session.first.events()
    await _end_an_intent(session)
    expect(not await session.first.warm_event(QUIET_S), "an event that nobody asked for")
    await _ask_for_events(session)
    expect(not await session.first.warm_event(QUIET_S), "an event though no intent has ended")
    await _end_an_intent(session)
    expect(await session.first.warm_event(session.patience_s), "there is no event")


@check("4.9.2", Level.MUST, FEATURE, LOG, *NEEDS)
async def events_are_masked(session: Session) -> None:
    """Warm events are masked until the log is read."""
    await _ask_for_events(session)
    await _end_an_intent(session)
    if not await session.first.warm_event(session.patience_s):
        return  # 4.9.1 says so
    await _end_an_intent(session)
    expect(not await session.first.warm_event(QUIET_S), "a second event before the log was read")
    await session.first.events(retain=True)
    expect(not await session.first.warm_event(QUIET_S), "a second event though it was retained")
    await session.first.events()
    await _end_an_intent(session)
    expect(await session.first.warm_event(session.patience_s), "no event after the log was read")


@check("4.9.3", Level.MUST, FEATURE, LOG, *NEEDS)
async def old_events_are_reported(session: Session) -> None:
    """What is in the log is reported when the feature is set."""
    await session.first.reconnect()
    await session.first.events()
    await _end_an_intent(session)
    await session.first.set_feature(1)
    expect(await session.first.warm_event(session.patience_s), "there is no event")
