"""What is admitted of an intent, and what is dropped on arrival."""

from __future__ import annotations

import pytest
from hints_media import PER_SLOT, SECOND, SLOT
from hints_support import CONFIG, Rig
from hints_words import SOON_US, counts, end_of, forecast, intent

from prestage.ext.names import IntentFlag, OutcomeFlag, Reason, State, Verdict
from prestage.ext.records import Intent, Range

LATE_OK, PREFIX = IntentFlag.LATE_OK, IntentFlag.PREFIX


def test_what_cannot_be_ready_in_time_is_dropped() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, deadline_us=0))
    assert end_of(rig, 1) == (State.DROPPED, Reason.DEADLINE)
    assert rig.outcome(1).verdict == Verdict.DROPPED
    assert rig.outcome(1).admitted_bytes == 0
    rig.run()
    assert rig.warm_slots() == []
    assert rig.status().dropped[Reason.DEADLINE] == 1


def test_what_is_wanted_late_is_taken_and_ends_late() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, deadline_us=0, flags=LATE_OK))
    assert rig.outcome(1).verdict == Verdict.LATE
    assert rig.outcome(1).admitted_bytes == SLOT
    rig.run()
    found = rig.outcome(1)
    assert (found.state, found.reason) == (State.LATE, Reason.NONE)
    assert (found.warm_bytes, found.ready_us) == (SLOT, (rig.now_ns - SECOND) // 1000)
    assert counts(rig) == (1, 0, 0, 0, 1, 0, 0)


def partial_deadline(rig: Rig, size: int) -> int:
    """Return a deadline by which some whole pieces, but not all, can be ready."""
    piece = CONFIG["piece_bytes"]
    for deadline_us in range(100, 1_000_000, 100):
        found = forecast(rig, size, deadline_us)
        if piece <= found.bytes_in_time < size:
            return deadline_us
    raise AssertionError("there is none")


def test_the_prefix_that_can_be_ready_is_taken_in_whole_pieces() -> None:
    rig = Rig()
    size = 60 * SLOT
    deadline_us = partial_deadline(rig, size)
    piece = CONFIG["piece_bytes"]
    expected = forecast(rig, size, deadline_us).bytes_in_time // piece * piece
    assert 0 < expected < size
    rig.submit(intent(1, *range(60), deadline_us=deadline_us, flags=PREFIX))
    found = rig.outcome(1)
    assert (found.verdict, found.admitted_bytes) == (Verdict.PARTIAL, expected)
    assert found.predicted_us <= deadline_us
    rig.run(step_ns=1000)
    assert rig.warm_slots() == list(range(expected // SLOT))
    assert end_of(rig, 1) == (State.MET, Reason.NONE)
    assert rig.outcome(1).warm_bytes == expected


def test_without_the_flag_a_part_is_not_taken() -> None:
    rig = Rig()
    deadline_us = partial_deadline(rig, 60 * SLOT)
    rig.submit(intent(1, *range(60), deadline_us=deadline_us))
    assert end_of(rig, 1) == (State.DROPPED, Reason.DEADLINE)


def test_wanting_it_late_counts_before_wanting_a_prefix() -> None:
    rig = Rig()
    deadline_us = partial_deadline(rig, 60 * SLOT)
    rig.submit(intent(1, *range(60), deadline_us=deadline_us, flags=LATE_OK | PREFIX))
    assert rig.outcome(1).verdict == Verdict.LATE
    assert rig.outcome(1).admitted_bytes == 60 * SLOT


@pytest.mark.parametrize("flags", [IntentFlag.NONE, LATE_OK, LATE_OK | PREFIX])
def test_more_than_the_tenants_hints_may_hold_is_dropped_for_room(flags: IntentFlag) -> None:
    rig = Rig(budget={"tier_bytes": 8 * SLOT})
    rig.submit(intent(1, *range(9), flags=flags), intent(2, *range(8), flags=flags))
    assert end_of(rig, 1) == (State.DROPPED, Reason.ROOM)
    assert rig.outcome(1).admitted_bytes == 0
    assert rig.outcome(2).verdict == Verdict.ACCEPTED
    rig.run()
    assert end_of(rig, 2) == (State.MET, Reason.NONE)


def test_the_prefix_that_the_tenants_hints_may_hold_is_taken() -> None:
    rig = Rig(budget={"tier_bytes": 9 * SLOT})
    rig.submit(intent(1, *range(20), flags=PREFIX))
    piece = CONFIG["piece_bytes"]
    found = rig.outcome(1)
    assert (found.verdict, found.admitted_bytes) == (Verdict.PARTIAL, 9 * SLOT // piece * piece)
    rig.run()
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


def test_what_another_tenant_has_for_its_share_is_no_room() -> None:
    rig = Rig(frames=32)
    rig.warm(*range(32, 48), tenant=1)
    rig.warm(*range(16), tenant=0)
    rig.submit(intent(1, *range(17, 32), 48, 49))
    assert end_of(rig, 1) == (State.DROPPED, Reason.ROOM)


def test_what_is_warm_needs_no_room() -> None:
    rig = Rig(budget={"tier_bytes": 8 * SLOT})
    rig.warm(*range(20))
    rig.submit(intent(1, *range(28)))
    assert rig.outcome(1).verdict == Verdict.ACCEPTED


def test_a_prefix_of_nothing_is_dropped() -> None:
    rig = Rig()
    rig.submit(intent(1, *range(60), deadline_us=0, flags=PREFIX))
    assert end_of(rig, 1) == (State.DROPPED, Reason.DEADLINE)


PARTS = [1, 7, 59, 60, 61]


@pytest.mark.parametrize("part_items", PARTS)
def test_only_what_is_cold_has_to_be_ready_in_time(part_items: int) -> None:
    rig = Rig(config={"part_items": part_items})
    rig.warm(*range(59))
    deadline_us = partial_deadline(rig, 60 * SLOT)
    assert forecast(rig, SLOT, deadline_us).bytes_in_time >= SLOT
    rig.submit(intent(1, *range(60), deadline_us=deadline_us))
    assert rig.outcome(1).verdict == Verdict.ACCEPTED
    rig.run(step_ns=1000)
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


@pytest.mark.parametrize("part_items", PARTS)
def test_what_is_warm_is_met_at_once_and_kept_however_much_it_is(part_items: int) -> None:
    rig = Rig(config={"part_items": part_items})
    rig.warm(*range(60))
    before = rig.hint_frames()
    rig.submit(intent(1, *range(60)))
    assert end_of(rig, 1) == (State.MET, Reason.NONE)
    assert rig.outcome(1).flags == OutcomeFlag.WAS_WARM
    assert rig.hint_frames() == before + 60


def test_the_prediction_is_the_schedulers() -> None:
    rig = Rig()
    expected = (forecast(rig, 8 * SLOT, SOON_US).ready_ns - rig.now_ns) // 1000
    rig.submit(intent(1, *range(8)))
    assert rig.outcome(1).predicted_us == expected > 0


@pytest.mark.parametrize(
    ("budget", "value"), [("intents", 2), ("intent_bytes", 2 * SLOT), ("intents", 0)]
)
def test_over_the_budget_an_intent_is_dropped(budget: str, value: int) -> None:
    rig = Rig(budget={budget: value})
    rig.submit(intent(1, 1), intent(2, 2), intent(3, 3), tenant=0)
    taken = 0 if value == 0 else 2
    states = [end_of(rig, number) for number in (1, 2, 3)]
    assert states == [(State.PENDING, Reason.NONE)] * taken + [(State.DROPPED, Reason.BUDGET)] * (
        3 - taken
    )
    rig.run()
    rig.submit(intent(3, 3))
    assert end_of(rig, 3)[0] == (State.PENDING if taken else State.DROPPED)
    status = rig.status()
    assert status.intents.used == (1 if taken else 0)
    assert status.intent_bytes.used == (SLOT if taken else 0)


def test_all_tenants_together_have_a_limit_of_intents() -> None:
    rig = Rig(config={"intents": 3})
    rig.submit(intent(1, 1), intent(2, 2), tenant=0)
    rig.submit(intent(1, 1), intent(2, 2), tenant=1)
    assert end_of(rig, 2, tenant=1) == (State.DROPPED, Reason.BUDGET)


def test_unknown_sets_and_namespaces_and_wrong_ranges_drop_an_intent() -> None:
    rig = Rig()
    rig.submit(
        Intent(1, SOON_US, set_id=5),
        Intent(2, SOON_US, 7, (Range(0, 1),)),
        Intent(3, SOON_US, 1, (Range(64 * PER_SLOT, 4),)),
    )
    assert end_of(rig, 1) == (State.DROPPED, Reason.SET)
    assert end_of(rig, 2) == (State.DROPPED, Reason.NAMESPACE)
    assert end_of(rig, 3) == (State.DROPPED, Reason.NAMESPACE)
    assert counts(rig) == (3, 0, 0, 0, 0, 3, 0)
