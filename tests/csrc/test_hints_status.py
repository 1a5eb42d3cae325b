"""The rate of records, the status page and the warm-event log."""

from __future__ import annotations

from hints_media import MS, SECOND, SLOT, slots
from hints_support import BUDGET, CAPABILITY, Rig
from hints_words import SOON_US, intent, resident

from prestage._core import ffi, lib
from prestage.ext import pages
from prestage.ext.names import (
    OutcomeFlag,
    Reason,
    State,
    Verdict,
)
from prestage.ext.records import (
    Intent,
    Outcome,
    OutcomeAnswer,
    Range,
    ResidencyAnswer,
    SetRecord,
    Signature,
    Unknown,
)

INVALID_FIELD = 0x4002
DATED: int = lib.PS_FACT_DATED
HIT: int = lib.PS_FACT_HIT
ATTRIBUTES: int = lib.PS_FACT_ATTRIBUTES


def test_records_beyond_the_rate_are_dropped_and_said_so() -> None:
    rig = Rig(budget={"records_per_s": 4})
    rig.submit(intent(1, 1, tag=1), resident(1, tag=2), Outcome(1, tag=3), mailbox=1)
    result = rig.submit(
        SetRecord(1, 1, (Range(0, 1),)),
        intent(2, 1, tag=4),
        resident(1, tag=5),
        Outcome(1, tag=6),
        intent(1, 1, tag=7),
        mailbox=0,
    )
    assert (result.accepted, result.dropped) == (1, 4)
    page = rig.answer(0)
    limited = OutcomeAnswer(
        2, state=State.DROPPED, verdict=Verdict.DROPPED, reason=Reason.RATE, tag=4
    )
    assert page.answers[0] == limited
    assert page.answers[1] == ResidencyAnswer(reason=Reason.RATE, tag=5)
    assert page.answers[2] == OutcomeAnswer(1, reason=Reason.RATE, tag=6)
    assert (page.dropped_tag, page.dropped_reason) == (4, Reason.RATE)
    assert rig.status().dropped[Reason.RATE] == 4
    assert (rig.outcome(2).state, rig.outcome(2).reason) == (State.DROPPED, Reason.RATE)
    # The one with the number of a pending intent was not looked at.
    assert rig.outcome(1).state == State.PENDING
    counts = rig.status().intent_counts[2]
    assert (counts.arrived, counts.pending, counts.dropped) == (3, 1, 2)
    assert [each.intent_id for each in rig.events().events] == [2, 1]


def test_time_brings_new_records() -> None:
    rig = Rig(budget={"records_per_s": 4})
    assert rig.submit(*(Outcome(1) for _ in range(6))).accepted == 4
    rig.now_ns += 250 * MS
    assert rig.submit(Outcome(1), Outcome(1)).accepted == 1
    rig.now_ns += 10 * SECOND
    assert rig.submit(*(Outcome(1) for _ in range(6))).accepted == 4
    assert rig.submit(Outcome(1), tenant=1).accepted == 1


def test_dataset_management_is_a_record_too() -> None:
    rig = Rig(budget={"records_per_s": 1})
    rig.dataset(1, slots(0))
    rig.dataset(1, slots(0))
    assert rig.status().dropped[Reason.RATE] == 1
    assert rig.status().dataset_sets == 1


def many_ranges(number: int, count: int) -> SetRecord:
    """Return a set of single blocks."""
    return SetRecord(number, 1, tuple(Range(2 * each, 1) for each in range(count)))


def test_a_record_with_many_ranges_is_reckoned_as_several() -> None:
    rig = Rig(budget={"records_per_s": 40})
    results = [rig.submit(many_ranges(1, 32)) for _ in range(20)]
    assert sum(each.accepted for each in results) == 13
    assert rig.status().records == 20
    rig.now_ns += SECOND
    for _ in range(20):
        rig.dataset(1, *((2 * each, 1) for each in range(32)))
    assert rig.status().dataset_sets == 13


def test_no_record_is_more_than_the_records_of_a_second() -> None:
    rig = Rig(budget={"records_per_s": 2})
    assert rig.submit(many_ranges(1, 200)).accepted == 1
    assert rig.submit(many_ranges(2, 1)).dropped == 1
    rig.now_ns += SECOND
    assert rig.submit(many_ranges(2, 200)).accepted == 1


def test_a_limit_of_nothing_takes_nothing() -> None:
    rig = Rig(budget={"records_per_s": 0})
    assert rig.submit(Outcome(1)).dropped == 1


def test_the_status_begins_with_the_capability() -> None:
    status = Rig().status()
    assert status.capability.carriers == CAPABILITY.carriers
    assert status.capability.extension_nsid == 9


def test_the_status_tells_limits_and_counts() -> None:
    rig = Rig()
    rig.submit(SetRecord(1, 1, (Range(0, 1), Range(5, 1))), Signature(1, 0, 1, bytes(8)))
    rig.submit(intent(1, 1, 2), Unknown(0x4000))
    status = rig.status()
    limits = {name: getattr(status, name).limit for name in BUDGET}
    assert limits == BUDGET
    used = {name: getattr(status, name).used for name in BUDGET}
    assert used == {
        "sets": 1,
        "set_ranges": 2,
        "signatures": 1,
        "intents": 1,
        "intent_bytes": 2 * SLOT,
        "tier_bytes": 0,
        "records_per_s": 4,
    }
    assert (status.batches, status.records, status.unknown) == (2, 4, 1)
    assert rig.status(tenant=1).batches == 0
    rig.run()
    status = rig.status()
    assert status.tier_bytes.used == status.hydrated_bytes == 2 * SLOT
    rig.now_ns += 3 * SECOND
    assert rig.status().records_per_s.used == 0


def test_reads_with_attributes_are_counted() -> None:
    rig = Rig()
    for flags in (ATTRIBUTES, ATTRIBUTES | lib.PS_FACT_READAHEAD, DATED, 0):
        rig.touch(0, flags=flags)
    assert rig.status().read_hints == 2


def test_dated_reads_end_met_late_or_cancelled() -> None:
    rig = Rig()
    arrived_ns = rig.now_ns
    ways = {"warm": HIT, "met": 0, "late": 0, "cancelled": 0}
    reads = {way: rig.touch(0, flags=DATED, priority=1, deadline_us=100) for way in ways}
    counts = rig.status().read_counts[1]
    assert (counts.arrived, counts.pending) == (4, 4)
    reads["warm"].flags |= HIT
    rig.read_ended(reads["warm"], arrived_ns)
    rig.now_ns += 100_000
    rig.read_ended(reads["met"], arrived_ns)
    rig.now_ns += 1
    rig.read_ended(reads["late"], arrived_ns)
    rig.read_ended(reads["cancelled"], arrived_ns, is_cancelled=True)
    assert rig.status().read_counts[1] == pages.Counts(4, 0, 2, 1, 1, 0, 1)
    assert rig.status(1).read_counts[1].arrived == 0


def test_every_end_is_an_event() -> None:
    rig = Rig()
    rig.warm(9)
    rig.submit(
        Intent(1, SOON_US, 1, (Range(*slots(1)),), session=3, priority=1),
        intent(2, 9),
        intent(3, 1, deadline_us=0),
        Intent(4, SOON_US, 1, (Range(*slots(2)),), session=8),
    )
    rig.submit(intent(4, 2))
    rig.run()
    log = rig.events(clear=False)
    assert [(each.intent_id, each.state, each.reason) for each in log.events[:3]] == [
        (2, State.MET, Reason.NONE),
        (3, State.DROPPED, Reason.DEADLINE),
        (4, State.CANCELLED, Reason.NONE),
    ]
    assert {(each.intent_id, each.state) for each in log.events[3:]} == {
        (1, State.MET),
        (4, State.MET),
    }
    first = next(each for each in log.events if each.intent_id == 1)
    assert (first.session, first.priority, first.flags) == (3, 1, OutcomeFlag.NONE)
    assert first.ready_us == rig.outcome(1).ready_us
    assert log.events[0].flags == OutcomeFlag.WAS_WARM
    assert rig.status().event_count == 5
    assert rig.events() == log
    assert rig.events() == pages.EventLog()
    assert rig.events(tenant=1) == pages.EventLog()


def test_a_full_log_loses_the_oldest_and_counts_it() -> None:
    rig = Rig()
    for number in range(1, 141):
        rig.submit(intent(number, 1, deadline_us=0))
    log = rig.events()
    assert [each.intent_id for each in log.events] == list(range(14, 141))
    assert log.lost == rig.status().events_lost == 13
    assert rig.events().lost == 0
    assert rig.status().events_lost == 13


def test_a_tenant_is_named_once_until_its_log_is_cleared() -> None:
    rig = Rig()

    def named() -> list[int]:
        return list(iter(lambda: int(lib.ps_hints_next_event(rig.hints)), -1))

    assert named() == []
    rig.submit(intent(1, 1, deadline_us=0), intent(2, 1, deadline_us=0), tenant=2)
    rig.submit(intent(1, 1, deadline_us=0), tenant=1)
    assert named() == [2, 1]
    rig.submit(intent(3, 1, deadline_us=0), tenant=2)
    assert named() == []
    rig.events(2, clear=False)
    rig.submit(intent(4, 1, deadline_us=0), tenant=2)
    assert named() == []
    rig.events(2)
    assert named() == []
    rig.submit(intent(5, 1, deadline_us=0), tenant=2)
    rig.events(2)
    assert named() == []


def test_the_benefit_of_predictions_is_on_the_page_of_each_host() -> None:
    rig = Rig()
    assert rig.status().benefit == pages.Benefit()
    benefit = ffi.new("struct pax_benefit *")
    ffi.memmove(
        benefit, pages.encode_benefit(pages.Benefit(5, 2, -1, -7, 9)), ffi.sizeof(benefit[0])
    )
    lib.ps_hints_set_benefit(rig.hints, benefit)
    assert rig.status(0).benefit == rig.status(1).benefit == pages.Benefit(5, 2, -1, -7, 9)
