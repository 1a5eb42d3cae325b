"""What is warm, what is coming, and what is retained."""

from __future__ import annotations

import pytest
from hints_media import PER_SLOT, SECOND, SLOT, slots
from hints_support import Rig
from hints_words import SOON_US, intent, resident

from prestage._core import lib
from prestage.ext.layout import READY_NEVER
from prestage.ext.names import (
    Reason,
)
from prestage.ext.records import (
    Intent,
    Outcome,
    Range,
    Record,
    Residency,
    ResidencyAnswer,
    Retain,
    SetRecord,
)

MOST = lib.PS_HINTS_QUERY_BYTES
"""Bytes that one record may speak of."""


def one_answer(rig: Rig, record: Record, **who: int) -> ResidencyAnswer:
    """Submit a residency query and read its answer."""
    rig.submit(record, mailbox=1, **who)
    (found,) = rig.answer(1, **who).answers
    assert isinstance(found, ResidencyAnswer)
    return found


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
    whole = Range(0, MOST // 512)
    assert one_answer(rig, Residency(3, (whole,))).total_bytes == MOST
    assert one_answer(rig, Residency(3, (whole, Range(0, 1)))) == ResidencyAnswer(
        reason=Reason.BUDGET
    )


def test_look_ups_are_paid_for_as_records_are() -> None:
    rig = Rig(budget={"records_per_s": 200})
    rig.add_volume(2, 2 << 30)
    rig.namespaces[0, 3] = 2
    query = Residency(3, (Range(0, MOST // 512),))
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
    many = Range(0, MOST // 512)
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


# ---- how much is looked up for one page ----

AT_ONCE = 16384 * SLOT // MOST
"""Records of MOST bytes for one page: LOOKS_MOST extents (csrc/hints/tables.h)."""


def most(number: int) -> tuple[Range, ...]:
    """Return as much of namespace 3 as one record may speak of."""
    return (Range(number * (MOST // 512), MOST // 512),)


def look_rig() -> Rig:
    """Return a rig with a volume that takes several records to speak of."""
    rig = Rig(budget={"records_per_s": 1_000_000})
    rig.add_volume(2, 8 * MOST)
    rig.namespaces[0, 3] = 2
    return rig


def test_one_page_of_questions_is_answered_as_far_as_is_looked_up_at_once() -> None:
    rig = look_rig()
    rig.submit(*(Residency(nsid=3, ranges=most(each)) for each in range(AT_ONCE + 3)), mailbox=1)
    for _ in range(2):
        found = rig.answer(1).answers
        assert [each.reason for each in found if isinstance(each, ResidencyAnswer)] == [
            *[Reason.NONE] * AT_ONCE,
            *[Reason.RATE] * 3,
        ]
    for each in range(AT_ONCE + 3):
        assert one_answer(rig, Residency(nsid=3, ranges=most(each))).total_bytes == MOST


def test_one_page_retains_as_much_as_is_looked_up_at_once() -> None:
    rig = look_rig()
    result = rig.submit(
        *(Retain(1000, nsid=3, ranges=most(each)) for each in range(AT_ONCE + 3)), mailbox=1
    )
    assert (result.accepted, result.dropped) == (AT_ONCE, 3)
    assert rig.answer(1).dropped_reason == Reason.RATE
    assert rig.submit(Retain(1000, nsid=3, ranges=most(3))).accepted == 1


def test_what_looks_up_little_is_answered_whole() -> None:
    rig = look_rig()
    rig.submit(*(resident(each) for each in range(60)), mailbox=1)
    found = rig.answer(1).answers
    assert all(isinstance(each, ResidencyAnswer) and not each.reason for each in found)
