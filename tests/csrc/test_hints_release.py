"""What intents keep in the tier goes when it was read, or when nobody wants it any more."""

from __future__ import annotations

import pytest
from hints_media import MS, SLOT
from hints_support import Rig
from hints_words import EIO, end_of, intent

from prestage.ext.names import CancelWhat, IntentFlag, Reason, State
from prestage.ext.records import Cancel, Range, Retain

NEVER_US = 0xFFFFFFFF
LIMIT = 8
SESSION = 40


def full_rig() -> Rig:
    """Return a rig whose tenant 0 has its hint limit full: intents that are met, for 71 minutes."""
    rig = Rig(budget={"tier_bytes": LIMIT * SLOT})
    for number in range(1, LIMIT + 1):
        rig.submit(intent(number, number, deadline_us=NEVER_US, session=SESSION))
    rig.run()
    assert end_of(rig, LIMIT)[0] == State.MET
    assert rig.hint_frames() == LIMIT
    return rig


def is_brought_in(rig: Rig, *slots: int) -> bool:
    """Return whether a new intent on these extents finds room."""
    rig.submit(intent(100, *slots))
    rig.run()
    return end_of(rig, 100)[0] == State.MET


def test_what_is_kept_for_long_fills_the_hint_limit() -> None:
    assert not is_brought_in(full_rig(), 20)


@pytest.mark.parametrize("what", list(CancelWhat))
def test_what_was_brought_in_makes_room_when_its_intent_is_withdrawn(what: CancelWhat) -> None:
    rig = full_rig()
    rig.submit(Cancel(what, SESSION if what == CancelWhat.SESSION else 3))
    assert end_of(rig, 3)[0] == State.MET, "it stays as it ended"
    assert is_brought_in(rig, 20)
    is_one = what == CancelWhat.INTENT
    assert is_brought_in(rig, *range(30, 30 + LIMIT - 1)) != is_one


@pytest.mark.parametrize("what", list(CancelWhat))
def test_another_tenants_cancel_makes_no_room(what: CancelWhat) -> None:
    rig = full_rig()
    rig.submit(Cancel(what, SESSION), Cancel(what, 3), tenant=1)
    assert not is_brought_in(rig, 20)


@pytest.mark.parametrize("what", list(CancelWhat))
def test_a_pending_intent_that_is_withdrawn_lets_go_what_had_come(what: CancelWhat) -> None:
    rig = Rig(budget={"tier_bytes": LIMIT * SLOT})
    rig.submit(intent(3, *range(LIMIT), deadline_us=NEVER_US, session=SESSION))
    rig.start()
    while rig.hint_frames() < LIMIT:
        rig.end_first()
        rig.start()
    assert end_of(rig, 3)[0] == State.PENDING
    rig.submit(Cancel(what, SESSION if what == CancelWhat.SESSION else 3))
    assert is_brought_in(rig, *range(56, 64))


def test_an_intent_that_is_replaced_lets_go_what_had_come() -> None:
    rig = Rig(budget={"tier_bytes": LIMIT * SLOT})
    rig.submit(intent(3, *range(LIMIT), deadline_us=NEVER_US))
    rig.end_first()
    rig.submit(intent(3, *range(56, 64)))
    rig.run()
    assert end_of(rig, 3)[0] == State.MET


def test_an_intent_that_is_dropped_lets_go_what_had_come() -> None:
    rig = Rig(budget={"tier_bytes": LIMIT * SLOT})
    rig.submit(intent(3, *range(LIMIT), deadline_us=NEVER_US))
    rig.start()
    rig.end(rig.started[0])
    rig.end(rig.started[0], EIO)
    assert end_of(rig, 3) == (State.DROPPED, Reason.MEDIA)
    rig.run()
    assert is_brought_in(rig, *range(56, 64))


def test_what_its_tenant_has_read_is_charged_to_it_no_longer() -> None:
    rig = full_rig()
    rig.read(1, 2, tenant=1)
    assert rig.hint_frames() == LIMIT
    rig.read(1, 2)
    assert rig.hint_frames() == LIMIT - 2
    assert is_brought_in(rig, 20, 21)


def test_what_was_warm_when_the_intent_came_is_let_go_too() -> None:
    rig = Rig(budget={"tier_bytes": LIMIT * SLOT})
    rig.warm(1, 2)
    rig.submit(intent(1, 1, deadline_us=NEVER_US), intent(2, 2, deadline_us=NEVER_US))
    assert rig.hint_frames() == 2
    rig.submit(Cancel(CancelWhat.INTENT, 1))
    rig.read(2)
    assert rig.hint_frames() == 0


def test_what_is_retained_is_kept_as_long_as_was_asked_for() -> None:
    rig = full_rig()
    per_slot = intent(1, 1).ranges[0].nlb
    rig.submit(Retain(duration_ms=100, nsid=1, ranges=(Range(per_slot, LIMIT * per_slot),)))
    rig.read(*range(1, LIMIT + 1))
    rig.submit(Cancel(CancelWhat.ALL))
    assert rig.hint_frames() == LIMIT
    rig.now_ns += 101 * MS
    rig.read(*range(1, LIMIT + 1))
    assert rig.hint_frames() == 0


def test_an_intent_that_took_the_number_of_one_that_was_met_can_be_withdrawn_alone() -> None:
    rig = full_rig()
    rig.submit(intent(3, 1, deadline_us=0, flags=IntentFlag.LATE_OK, session=SESSION))
    rig.run()
    rig.submit(Cancel(CancelWhat.INTENT, 3))
    assert not is_brought_in(rig, 20), "the block has the later time of another intent"
    rig.submit(Cancel(CancelWhat.SESSION, SESSION))
    assert is_brought_in(rig, 20)
