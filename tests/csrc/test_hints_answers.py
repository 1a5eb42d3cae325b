"""Mailboxes, answers, queries, status and events: what a tenant is told, and only it."""

from __future__ import annotations

import pytest
from hints_support import BUDGET, CAPABILITY, MS, PER_SLOT, SECOND, SLOT, Rig, slots

from prestage._core import lib
from prestage.ext import codec, pages
from prestage.ext.answers import AnswerPage, decode_answer
from prestage.ext.layout import MAILBOXES, READY_NEVER
from prestage.ext.names import (
    AnswerFlag,
    AnswerState,
    OutcomeFlag,
    Query,
    Reason,
    SetFlag,
    State,
    Verdict,
)
from prestage.ext.records import (
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

SOON_US = 1_000_000
INVALID_FIELD = 0x4002
DATED: int = lib.PS_FACT_DATED
HIT: int = lib.PS_FACT_HIT


def intent(number: int, *ranges: int, deadline_us: int = SOON_US, tag: int = 0) -> Intent:
    """Return an intent on whole extents of namespace 1."""
    return Intent(number, deadline_us, 1, tuple(Range(*slots(at)) for at in ranges), tag=tag)


def resident(*ranges: int, nsid: int = 1, tag: int = 0) -> Residency:
    """Return a query of whole extents."""
    return Residency(nsid, tuple(Range(*slots(at)) for at in ranges), tag=tag)


def one_answer(rig: Rig, record: Record, **who: int) -> ResidencyAnswer:
    """Submit a residency query and read its answer."""
    rig.submit(record, mailbox=1, **who)
    (found,) = rig.answer(1, **who).answers
    assert isinstance(found, ResidencyAnswer)
    return found


# ---- mailboxes ----


def test_an_answer_says_what_became_of_the_batch() -> None:
    rig = Rig()
    items = [
        SetRecord(1, 1, (Range(0, 1),)),
        Signature(9, 0, 1, bytes(8), tag=11),
        Unknown(0x4000),
        Retain(1, set_id=5, tag=12),
    ]
    rig.submit(*items, mailbox=7)
    assert rig.answer(7) == AnswerPage(
        writer=77,
        sequence=5,
        state=AnswerState.APPLIED,
        accepted=1,
        dropped=2,
        unknown=1,
        dropped_tag=11,
        dropped_reason=Reason.NAMESPACE,
    )


def test_a_mailbox_without_a_batch_is_empty() -> None:
    rig = Rig()
    rig.submit(Outcome(1), mailbox=3)
    assert rig.answer(2) == AnswerPage()
    assert rig.answer(3, tenant=1) == AnswerPage()


def test_a_newer_batch_replaces_the_answer() -> None:
    rig = Rig()
    rig.submit(Outcome(1), Outcome(2), mailbox=3)
    rig.submit(Outcome(3), mailbox=3)
    assert [each.intent_id for each in rig.answer(3).answers] == [3]
    assert rig.stats().answer_pages == 1


def test_answers_are_of_the_moment_at_which_they_are_read() -> None:
    rig = Rig()
    rig.submit(resident(1, 2, tag=5), intent(9, 1, 2, tag=6), Outcome(9, tag=7), mailbox=0)

    def read() -> list[tuple[int, int]]:
        first, second, third = rig.answer(0).answers
        assert isinstance(first, ResidencyAnswer)
        assert isinstance(second, OutcomeAnswer)
        assert isinstance(third, OutcomeAnswer)
        assert (first.tag, second.tag, third.tag) == (5, 6, 7)
        assert (second.intent_id, second.state) == (third.intent_id, third.state)
        return [(first.warm_bytes, second.state)]

    assert read() == [(0, State.PENDING)]
    rig.run()
    assert read() == [(2 * SLOT, State.MET)]


def test_more_answers_than_fit_are_left_out_and_said_so() -> None:
    rig = Rig()
    rig.submit(*(Outcome(number) for number in range(1, 101)), mailbox=0)
    page = rig.answer(0)
    assert (len(page.answers), page.flags, page.accepted) == (72, AnswerFlag.TRUNCATED, 100)
    rig.submit(*(Outcome(number) for number in range(1, 73)), mailbox=0)
    assert rig.answer(0).flags == AnswerFlag.NONE
    rig.submit(*(resident(1) for _ in range(102)), mailbox=0)
    page = rig.answer(0)
    assert (len(page.answers), page.flags) == (100, AnswerFlag.TRUNCATED)


def test_whoever_has_most_mailboxes_loses_the_oldest() -> None:
    rig = Rig(config={"answer_pages": 5})
    rig.submit(Outcome(1), mailbox=0, tenant=1)
    for mailbox in range(4):
        rig.submit(Outcome(1), mailbox=mailbox)
    rig.submit(Outcome(1), mailbox=1, tenant=1)

    def held(tenant: int) -> list[int]:
        empty = AnswerState.EMPTY
        return [at for at in range(64) if rig.answer(at, tenant=tenant).state != empty]

    assert (held(0), held(1)) == ([1, 2, 3], [0, 1])
    rig.submit(Outcome(1), mailbox=1)
    for mailbox in range(30, 40):
        rig.submit(Outcome(1), mailbox=mailbox)
    assert (held(0), held(1)) == ([37, 38, 39], [0, 1])
    rig.submit(Outcome(1), mailbox=5, tenant=2)
    assert (held(0), held(1), held(2)) == ([38, 39], [0, 1], [5])
    assert rig.stats().answer_pages == 5


def test_a_flood_of_one_tenant_leaves_another_its_mailbox() -> None:
    rig = Rig(config={"answer_pages": 4})
    rig.submit(Outcome(1), mailbox=63, tenant=2)
    for mailbox in range(MAILBOXES):
        rig.submit(Outcome(1), mailbox=mailbox, tenant=0)
    assert rig.answer(63, tenant=2).state == AnswerState.APPLIED


# ---- residency ----


def test_residency_tells_warm_and_coming_bytes() -> None:
    rig = Rig()
    rig.warm(1)
    rig.submit(intent(1, 2, deadline_us=10_000_000))
    found = one_answer(rig, resident(1, 2, 3))
    assert (found.total_bytes, found.warm_bytes, found.coming_bytes) == (3 * SLOT, SLOT, SLOT)
    assert found.ready_us < READY_NEVER
    rig.start()
    found = one_answer(rig, resident(1, 2, 3))
    assert (found.warm_bytes, found.coming_bytes) == (SLOT, SLOT)
    rig.run()
    found = one_answer(rig, resident(1, 2, 3))
    assert (found.warm_bytes, found.coming_bytes, found.ready_us) == (2 * SLOT, 0, READY_NEVER)
    assert one_answer(rig, resident(1, 2)).ready_us == 0


def test_residency_of_an_intended_set() -> None:
    rig = Rig()
    rig.submit(SetRecord(4, 1, tuple(Range(*slots(at)) for at in range(8))))
    rig.submit(Intent(1, SOON_US, set_id=4))
    found = one_answer(rig, Residency(set_id=4))
    assert (found.total_bytes, found.coming_bytes) == (8 * SLOT, 8 * SLOT)
    assert found.ready_us == rig.outcome(1).predicted_us


def test_the_intents_of_another_tenant_are_not_told() -> None:
    rig = Rig()
    rig.submit(intent(1, 2), tenant=1)
    assert one_answer(rig, resident(2)).coming_bytes == 0


def test_too_much_is_not_answered() -> None:
    rig = Rig()
    rig.add_volume(2, 2 << 30)
    rig.namespaces[0, 3] = 2
    whole = Range(0, (1 << 30) // 512)
    assert one_answer(rig, Residency(3, (whole,))).total_bytes == 1 << 30
    assert one_answer(rig, Residency(3, (whole, Range(0, 1)))) == ResidencyAnswer(
        reason=Reason.BUDGET
    )


def test_look_ups_are_paid_for_as_records_are() -> None:
    rig = Rig(budget={"records_per_s": 1000})
    rig.add_volume(2, 2 << 30)
    rig.namespaces[0, 3] = 2
    query = Residency(3, (Range(0, (1 << 30) // 512),))
    assert one_answer(rig, query).reason == Reason.RATE
    rig.now_ns += 2 * SECOND
    assert one_answer(rig, resident(1)).reason == Reason.NONE


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Residency(set_id=5), Reason.SET),
        (Residency(7, (Range(0, 1),)), Reason.NAMESPACE),
        (Residency(1, (Range(0, 1), Range(64 * PER_SLOT, 4))), Reason.NAMESPACE),
    ],
)
def test_what_cannot_be_answered_says_why(record: Record, reason: Reason) -> None:
    assert one_answer(Rig(), record) == ResidencyAnswer(reason=reason)


def test_namespaces_are_those_of_the_subsystem() -> None:
    rig = Rig()
    rig.warm(1, volume=1)
    assert one_answer(rig, resident(1), subsystem=1).warm_bytes == SLOT
    assert one_answer(rig, resident(1), subsystem=0).warm_bytes == 0
    assert one_answer(rig, resident(1, nsid=2), subsystem=1).reason == Reason.NAMESPACE


def test_questions_change_nothing() -> None:
    rig = Rig()
    rig.warm(1)
    rig.submit(resident(1, 2), Outcome(1), mailbox=0)
    rig.answer(0)
    rig.run()
    assert rig.warm_slots() == [1]


# ---- retain ----


def test_retained_is_what_is_warm_and_for_as_long_as_was_said() -> None:
    rig = Rig(frames=16)
    rig.warm(1, 2)
    rig.submit(Retain(5000, 1, (Range(*slots(1, 3)),)))
    rig.warm(*range(20, 60), tenant=3)
    assert rig.is_warm(1)
    assert rig.is_warm(2)
    assert not rig.is_warm(3)
    rig.now_ns += 5 * SECOND
    rig.warm(*range(20, 60), tenant=3)
    assert not rig.is_warm(1)


def test_a_set_is_retained() -> None:
    rig = Rig(frames=16)
    rig.warm(1)
    rig.submit(SetRecord(1, 1, (Range(*slots(1)),)), Retain(5000, set_id=1))
    rig.warm(*range(20, 60), tenant=3)
    assert rig.is_warm(1)


def test_what_cannot_be_retained_is_dropped() -> None:
    rig = Rig()
    rig.add_volume(2, 2 << 30)
    rig.namespaces[0, 3] = 2
    many = Range(0, (1 << 30) // 512)
    for number, (record, reason) in enumerate(
        [
            (Retain(1, set_id=4), Reason.SET),
            (Retain(1, 7, (Range(0, 1),)), Reason.NAMESPACE),
            (Retain(1, 3, (many, Range(0, 1))), Reason.BUDGET),
        ]
    ):
        rig.submit(record, mailbox=0)
        assert rig.answer(0).dropped_reason == reason
        assert sum(rig.status().dropped) == number + 1


# ---- rate ----


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


def test_a_limit_of_nothing_takes_nothing() -> None:
    rig = Rig(budget={"records_per_s": 0})
    assert rig.submit(Outcome(1)).dropped == 1


# ---- queries ----


def test_a_query_is_answered_by_a_page_with_one_answer() -> None:
    rig = Rig()
    rig.warm(3)
    slba, blocks = slots(3, 2)
    status, page = rig.query(Query.RESIDENCY_RANGE, 0, slba, 0, blocks, 42)
    found = decode_answer(page)
    assert status == 0
    assert (found.state, found.accepted, found.writer) == (AnswerState.APPLIED, 1, 0)
    (answer,) = found.answers
    assert isinstance(answer, ResidencyAnswer)
    assert (answer.warm_bytes, answer.total_bytes, answer.tag) == (SLOT, 2 * SLOT, 42)


def test_queries_of_sets_outcomes_status_and_mailboxes() -> None:
    rig = Rig()
    number = 5 << 32 | 6
    rig.submit(SetRecord(number, 1, (Range(0, 4),)), Intent(number, 0, set_id=number), mailbox=9)
    (found,) = decode_answer(rig.query(Query.RESIDENCY_SET, 0, 6, 5)[1]).answers
    assert isinstance(found, ResidencyAnswer)
    assert found.total_bytes == 2048
    assert rig.query(Query.MAILBOX, 9) == (0, rig.query(Query.MAILBOX, 9)[1])
    assert decode_answer(rig.query(Query.MAILBOX, 9)[1]) == rig.answer(9)
    (outcome,) = decode_answer(rig.query(Query.OUTCOME, 0, 6, 5)[1]).answers
    assert isinstance(outcome, OutcomeAnswer)
    assert (outcome.intent_id, outcome.state) == (number, State.DROPPED)
    assert pages.decode_status(rig.query(Query.STATUS)[1]) == rig.status()


@pytest.mark.parametrize(
    ("dwords", "nsid"),
    [
        ((5,), 1),
        ((255,), 1),
        ((Query.MAILBOX, MAILBOXES), 1),
        ((Query.RESIDENCY_RANGE, 0, 0, 0, 0), 1),
        ((Query.RESIDENCY_RANGE, 0, 0, 0, 1), 7),
        ((Query.RESIDENCY_SET, 0, 0, 0), 1),
        ((Query.OUTCOME, 0, 0, 0), 1),
    ],
)
def test_wrong_questions_are_invalid_fields(dwords: tuple[int, ...], nsid: int) -> None:
    assert Rig().query(*dwords, nsid=nsid)[0] == INVALID_FIELD


def test_a_range_beyond_the_end_is_answered_with_the_reason() -> None:
    assert Rig().residency(64 * PER_SLOT, 4).reason == Reason.NAMESPACE


# ---- status ----


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
    for flags in (lib.PS_FACT_ONCE, lib.PS_FACT_READAHEAD, lib.PS_FACT_SEQUENTIAL, 0):
        rig.touch(0, flags=flags)
    assert rig.status().read_hints == 3


def test_dated_reads_end_met_late_or_cancelled() -> None:
    rig = Rig()
    arrived_ns = rig.now_ns
    ways = {"warm": HIT, "met": 0, "late": 0, "cancelled": 0}
    reads = {
        way: rig.touch(0, flags=DATED, priority=1, deadline_us=100) for way in ways
    }
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


# ---- events ----


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


def test_an_ordered_flag_is_no_event() -> None:
    rig = Rig()
    rig.submit(SetRecord(1, 1, (Range(0, 1),), flags=SetFlag.ORDERED))
    assert rig.events() == pages.EventLog()


def test_a_batch_of_a_page_is_answered_from_what_was_kept() -> None:
    """The batch that is kept is a copy: the carrier's memory may change at once."""
    rig = Rig()
    data = bytearray(codec.encode_batch([Outcome(5, tag=1)], writer=1, sequence=2))
    rig.submit_bytes(bytes(data), mailbox=0)
    assert [each.tag for each in rig.answer(0).answers] == [1]
