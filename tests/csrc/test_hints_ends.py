"""How intents end: cancelled, counted once, remembered for a while."""

from __future__ import annotations

from hints_support import Rig
from hints_words import EIO, counts, end_of, intent

from prestage._core import lib
from prestage.ext.names import CancelWhat, IntentFlag, Reason, State
from prestage.ext.records import Cancel, OutcomeAnswer

LATE_OK, PREFIX = IntentFlag.LATE_OK, IntentFlag.PREFIX


def test_intents_are_cancelled_one_by_session_or_all() -> None:
    rig = Rig()
    rig.submit(*(intent(number, number, session=number % 2 + 1) for number in range(1, 9)))
    rig.submit(intent(1, 1, session=1), tenant=1)

    def pending() -> list[int]:
        return [number for number in range(1, 9) if end_of(rig, number)[0] == State.PENDING]

    rig.submit(Cancel(CancelWhat.INTENT, 3))
    assert pending() == [1, 2, 4, 5, 6, 7, 8]
    rig.submit(Cancel(CancelWhat.SESSION, 1))
    assert pending() == [1, 5, 7]
    rig.submit(Cancel(CancelWhat.ALL))
    assert pending() == []
    assert end_of(rig, 1, tenant=1)[0] == State.PENDING
    assert counts(rig) == (8, 0, 0, 0, 0, 0, 8)
    rig.run()
    assert rig.warm_slots() == [1]


def test_cancelling_what_is_not_there_is_no_error() -> None:
    rig = Rig()
    rig.submit(intent(1, 1))
    kinds = (CancelWhat.INTENT, CancelWhat.SESSION)
    assert rig.submit(*(Cancel(what, number) for what in kinds for number in (0, 9))).accepted == 4
    assert end_of(rig, 1)[0] == State.PENDING


def test_what_has_ended_is_not_cancelled_any_more() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, session=4))
    rig.run()
    for what in CancelWhat:
        rig.submit(Cancel(what, 1))
        rig.submit(Cancel(what, 4))
    assert end_of(rig, 1)[0] == State.MET


def test_an_intent_of_the_same_id_cancels_the_old_one() -> None:
    rig = Rig()
    rig.submit(intent(1, 1))
    rig.submit(intent(1, 2))
    assert counts(rig) == (2, 1, 0, 0, 0, 0, 1)
    rig.run()
    assert rig.warm_slots() == [2]
    assert rig.outcome(1).state == State.MET
    rig.submit(intent(1, 3))
    assert rig.outcome(1).state == State.PENDING
    assert counts(rig) == (3, 1, 1, 0, 0, 0, 1)


def test_a_volume_takes_its_intents_along() -> None:
    rig = Rig()
    rig.submit(intent(1, 1), intent(2, 1, nsid=2))
    rig.start()
    rig.remove_volume(0)
    assert end_of(rig, 1) == (State.CANCELLED, Reason.NONE)
    for fill in list(rig.started):
        rig.end(fill, EIO)
    assert end_of(rig, 2)[0] == State.DROPPED


def test_a_volume_that_goes_takes_its_intents_along_a_few_at_a_time() -> None:
    rig = Rig(budget={"intents": 100})
    rig.submit(*(intent(number, number) for number in range(1, 8)))
    rig.submit(*(intent(number, number, nsid=2) for number in range(8, 10)))
    del rig.namespaces[0, 1]
    for left in (4, 1):
        assert not lib.ps_hints_leave(rig.hints, rig.now_ns, 0, 3)
        assert counts(rig)[1] == left + 2
        assert sum(counts(rig)[index] for index in (1, 2, 4, 5, 6)) == counts(rig)[0] == 9
        rig.check()
    assert lib.ps_hints_leave(rig.hints, rig.now_ns, 0, 3)
    assert lib.ps_hints_leave(rig.hints, rig.now_ns, 0, 3), "none is left"
    rig.remove_volume(0)
    assert counts(rig) == (9, 2, 0, 0, 0, 0, 7)
    rig.run()
    assert counts(rig) == (9, 0, 2, 0, 0, 0, 7)


def test_a_namespace_that_is_unmapped_cancels_what_would_go_on() -> None:
    rig = Rig()
    rig.submit(intent(1, 1))
    del rig.namespaces[0, 1]
    rig.start()
    assert end_of(rig, 1) == (State.CANCELLED, Reason.NONE)


def test_the_oldest_that_ended_is_forgotten_first() -> None:
    rig = Rig(config={"intents": 5})
    for number in range(1, 20):
        rig.submit(intent(number, 1, deadline_us=0))
    known = [n for n in range(1, 20) if rig.outcome(n).state != State.UNKNOWN]
    assert known == list(range(9, 20))
    assert rig.outcome(1) == OutcomeAnswer(1)


def test_many_of_one_tenant_do_not_make_another_forgotten() -> None:
    rig = Rig(config={"intents": 5})
    rig.submit(intent(1, 1, deadline_us=0), tenant=1)
    for number in range(1, 200):
        rig.submit(intent(number, 1, deadline_us=0), tenant=0)
    assert end_of(rig, 1, tenant=1) == (State.DROPPED, Reason.DEADLINE)


def test_a_tenant_does_not_see_or_cancel_the_intents_of_another() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, session=3), tenant=0)
    assert rig.outcome(1, tenant=1).state == State.UNKNOWN
    for what in CancelWhat:
        rig.submit(Cancel(what, 1), Cancel(what, 3), tenant=1)
    rig.submit(intent(1, 2), tenant=1)
    assert end_of(rig, 1)[0] == State.PENDING
    assert counts(rig, tenant=1) == (1, 1, 0, 0, 0, 0, 0)


def test_counts_are_by_priority() -> None:
    rig = Rig()
    for priority in range(4):
        rig.submit(
            *(intent(10 * priority + n, 1, priority=priority) for n in range(1, priority + 2))
        )
    assert [counts(rig, priority)[0] for priority in range(4)] == [1, 2, 3, 4]


def test_large_intents_are_walked_through_what_is_warm() -> None:
    rig = Rig()
    rig.warm(*range(0, 64, 2))
    rig.submit(intent(1, *range(64)))
    rig.run()
    assert end_of(rig, 1) == (State.MET, Reason.NONE)
    assert rig.warm_slots() == list(range(64))
