"""Intents: what is admitted, how it becomes warm, and that each ends exactly once."""

from __future__ import annotations

from typing import Any

import pytest
from hints_support import CONFIG, MS, NEVER, PER_SLOT, SECOND, SLOT, Rig, slots

from prestage._core import ffi, lib
from prestage.ext.layout import READY_NEVER
from prestage.ext.names import (
    CancelWhat,
    IntentFlag,
    OutcomeFlag,
    Reason,
    SetOp,
    State,
    Verdict,
)
from prestage.ext.records import Cancel, Intent, OutcomeAnswer, Range, SetRecord

LATE_OK, PREFIX = IntentFlag.LATE_OK, IntentFlag.PREFIX
SOON_US = 1_000_000
EIO = 5


def intent(number: int, *ranges: int, deadline_us: int = SOON_US, **how: Any) -> Intent:
    """Return an intent on whole extents of namespace 1."""
    how.setdefault("nsid", 1)
    return Intent(number, deadline_us, ranges=tuple(Range(*slots(at)) for at in ranges), **how)


def end_of(rig: Rig, number: int, **who: int) -> tuple[State, Reason]:
    """Return state and reason of an intent."""
    found = rig.outcome(number, **who)
    return State(found.state), Reason(found.reason)


def forecast(rig: Rig, size: int, deadline_us: int, priority: int = 2) -> Any:
    """Return what the scheduler says of a job that comes now."""
    found = ffi.new("struct ps_sched_forecast *")
    deadline_ns = rig.now_ns + deadline_us * 1000
    lib.ps_sched_forecast(rig.scheds[0], rig.now_ns, size, deadline_ns, priority, found)
    return found


def counts(rig: Rig, priority: int = 2, tenant: int = 0) -> tuple[int, ...]:
    """Return arrived, pending, met, met_warm, late, dropped, cancelled of a priority."""
    found = rig.status(tenant).intent_counts[priority]
    ended = (found.met, found.met_warm, found.late, found.dropped, found.cancelled)
    return (found.arrived, found.pending, *ended)


# ---- the way to warm ----


def test_an_intent_makes_its_ranges_warm_and_is_met() -> None:
    rig = Rig()
    rig.submit(intent(1, 3, 4, 9))
    pending = rig.outcome(1)
    assert (pending.state, pending.verdict) == (State.PENDING, Verdict.ACCEPTED)
    assert (pending.total_bytes, pending.admitted_bytes) == (3 * SLOT, 3 * SLOT)
    assert (pending.warm_bytes, pending.ready_us) == (0, READY_NEVER)
    rig.run()
    assert rig.warm_slots() == [3, 4, 9]
    ended = rig.outcome(1)
    assert (ended.state, ended.reason, ended.flags) == (State.MET, Reason.NONE, OutcomeFlag.NONE)
    assert ended.warm_bytes == 3 * SLOT
    assert 0 < ended.ready_us < SOON_US
    assert counts(rig) == (1, 0, 1, 0, 0, 0, 0)


def test_an_intent_on_a_set_wants_the_ranges_it_has_on_arrival() -> None:
    rig = Rig()
    first = tuple(Range(*slots(at)) for at in (1, 2, 3))
    rig.submit(SetRecord(7, 1, first), Intent(1, SOON_US, set_id=7))
    rig.submit(SetRecord(7, 1, (Range(*slots(20)),), op=SetOp.EXTEND))
    rig.submit(SetRecord(7, 1, (Range(*slots(30)),)))
    rig.submit(SetRecord(7, 1, op=SetOp.DROP))
    assert rig.outcome(1).total_bytes == 3 * SLOT
    assert rig.stats().set_ranges == 4
    rig.run()
    assert rig.warm_slots() == [1, 2, 3]
    assert end_of(rig, 1) == (State.MET, Reason.NONE)
    assert rig.stats().set_ranges == 0


def test_parts_of_extents_are_counted_as_given_and_brought_in_whole() -> None:
    rig = Rig()
    ranges = (Range(5, 3), Range(2 * PER_SLOT - 1, 2))
    rig.submit(Intent(1, SOON_US, 1, ranges))
    assert rig.outcome(1).total_bytes == 5 * 512
    rig.run()
    assert rig.warm_slots() == [0, 1, 2]
    assert rig.outcome(1).warm_bytes == 5 * 512


def test_the_last_extent_of_a_volume_may_be_a_part() -> None:
    rig = Rig()
    rig.submit(Intent(1, SOON_US, 1, (Range(64 * PER_SLOT, 3),)))
    rig.run()
    assert end_of(rig, 1) == (State.MET, Reason.NONE)
    assert rig.residency(64 * PER_SLOT, 3).warm_bytes == 3 * 512


def test_what_is_warm_on_arrival_is_met_at_once() -> None:
    rig = Rig()
    rig.warm(2, 3)
    rig.submit(intent(1, 2, 3, deadline_us=0))
    found = rig.outcome(1)
    assert (found.state, found.verdict, found.flags) == (
        State.MET,
        Verdict.ACCEPTED,
        OutcomeFlag.WAS_WARM,
    )
    assert (found.warm_bytes, found.ready_us, found.predicted_us) == (2 * SLOT, 0, 0)
    assert counts(rig) == (1, 0, 1, 1, 0, 0, 0)


def hammer(rig: Rig, first: int, count: int) -> None:
    """Read many other extents, so that what may be evicted is."""
    rig.warm(*range(first, first + count), tenant=3)


def test_what_was_warm_on_arrival_is_kept_until_the_deadline_and_the_grace() -> None:
    rig = Rig(frames=16)
    rig.warm(2)
    rig.submit(intent(1, 2, deadline_us=1_000_000))
    hammer(rig, 20, 40)
    assert rig.is_warm(2)
    rig.now_ns += SECOND + CONFIG["grace_ns"]
    hammer(rig, 20, 40)
    assert not rig.is_warm(2)


def test_what_was_brought_in_is_kept_until_the_deadline_and_the_grace() -> None:
    rig = Rig(frames=16)
    rig.submit(intent(1, 2, deadline_us=1_000_000))
    rig.run()
    hammer(rig, 20, 40)
    assert rig.is_warm(2)
    rig.now_ns += SECOND + CONFIG["grace_ns"]
    hammer(rig, 20, 40)
    assert not rig.is_warm(2)


def test_only_a_piece_is_started_at_a_time() -> None:
    rig = Rig()
    rig.submit(intent(1, *range(10, 30)))
    job = lib.ps_sched_next_job(rig.scheds[0], rig.now_ns)
    assert job != ffi.NULL
    assert job.bytes == 20 * SLOT
    lib.ps_hints_start_job(rig.hints, rig.now_ns, job)
    assert rig.residency(*slots(10, 20)).coming_bytes == 20 * SLOT  # started or intended
    assert job.bytes == 16 * SLOT
    rig.run()
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


def test_what_others_bring_in_counts() -> None:
    rig = Rig()
    access = ffi.new("struct ps_tier_access *", {"deadline_ns": NEVER})
    frame = ffi.new("uint32_t *")
    lib.ps_tier_read(rig.tier, rig.now_ns, 0, 5 * SLOT, SLOT, access, ffi.NULL, frame)
    rig.start()
    rig.submit(intent(1, 5))
    rig.start()
    (fill,) = rig.started
    assert fill.cookie == 0
    rig.end(fill)
    rig.tick(rig.now_ns + 20 * MS)
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


def test_what_is_evicted_before_all_is_ready_is_brought_in_again() -> None:
    rig = Rig()
    rig.submit(intent(1, 4, 5))
    rig.start()
    first, second = sorted(rig.started, key=lambda each: each.offset)
    rig.end(first)
    size = rig.sizes[0]
    assert lib.ps_tier_volume_resize(rig.tier, 0, 4 * SLOT) == 0
    assert lib.ps_tier_volume_resize(rig.tier, 0, size) == 0
    rig.end(second)
    rig.tick(rig.now_ns + 20 * MS)
    rig.run()
    assert rig.warm_slots() == [4, 5]
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


# ---- admission ----


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


def test_a_prefix_of_nothing_is_dropped() -> None:
    rig = Rig()
    rig.submit(intent(1, *range(60), deadline_us=0, flags=PREFIX))
    assert end_of(rig, 1) == (State.DROPPED, Reason.DEADLINE)


def test_only_what_is_cold_has_to_be_ready_in_time() -> None:
    rig = Rig()
    rig.warm(*range(59))
    deadline_us = partial_deadline(rig, 60 * SLOT)
    assert forecast(rig, SLOT, deadline_us).bytes_in_time >= SLOT
    rig.submit(intent(1, *range(60), deadline_us=deadline_us))
    assert rig.outcome(1).verdict == Verdict.ACCEPTED
    rig.run(step_ns=1000)
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


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
    assert states == [(State.PENDING, Reason.NONE)] * taken + [
        (State.DROPPED, Reason.BUDGET)
    ] * (3 - taken)
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


# ---- time, room and failures ----


def test_what_is_not_ready_at_the_deadline_is_dropped_and_its_fills_just_end() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, 2))
    rig.start()
    assert len(rig.started) == 2
    rig.end(rig.started[0])
    rig.tick(rig.now_ns + SOON_US * 1000)
    assert end_of(rig, 1) == (State.DROPPED, Reason.DEADLINE)
    found = rig.outcome(1)
    assert (found.verdict, found.warm_bytes, found.ready_us) == (
        Verdict.ACCEPTED,
        SLOT,
        READY_NEVER,
    )
    rig.run()
    assert rig.warm_slots() == [1, 2]
    assert counts(rig) == (1, 0, 0, 0, 0, 1, 0)


def test_what_lands_at_the_deadline_is_met_and_after_it_late() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, flags=LATE_OK), intent(2, 2, flags=LATE_OK))
    rig.start()
    first, second = sorted(rig.started, key=lambda each: each.offset)
    rig.now_ns += SOON_US * 1000
    rig.end(first)
    rig.now_ns += 1
    rig.end(second)
    assert end_of(rig, 1)[0] == State.MET
    assert end_of(rig, 2)[0] == State.LATE
    assert rig.outcome(1).ready_us == SOON_US


def test_without_room_it_is_tried_again_until_the_deadline() -> None:
    rig = Rig(budget={"tier_bytes": 0})
    rig.submit(intent(1, 1))
    for _ in range(20):
        rig.start()
        rig.tick(rig.now_ns + 20 * MS)
        assert end_of(rig, 1)[0] == State.PENDING
    rig.tick(rig.now_ns + SECOND)
    assert end_of(rig, 1) == (State.DROPPED, Reason.ROOM)


def test_without_room_wanting_it_late_does_not_help() -> None:
    rig = Rig(budget={"tier_bytes": 0})
    rig.submit(intent(1, 1, flags=LATE_OK))
    rig.start()
    for _ in range(3):
        rig.tick(rig.now_ns + SECOND)
        rig.start()
    rig.tick(rig.now_ns + SECOND)
    assert end_of(rig, 1) == (State.DROPPED, Reason.ROOM)


def test_room_that_comes_in_time_is_taken() -> None:
    rig = Rig(budget={"tier_bytes": 0})
    rig.submit(intent(1, 1))
    rig.start()
    lib.ps_tier_set_tenant(rig.tier, 0, 4)
    rig.tick(rig.now_ns + 20 * MS)
    rig.run()
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


def test_more_than_the_tenant_may_hold_is_dropped_for_room() -> None:
    rig = Rig(budget={"tier_bytes": 8 * SLOT})
    rig.submit(intent(1, *range(9)))
    for _ in range(40):
        rig.run()
        rig.tick(rig.now_ns + 50 * MS)
    assert end_of(rig, 1) == (State.DROPPED, Reason.ROOM)


def test_a_failed_read_drops_the_intent_and_no_other() -> None:
    rig = Rig()
    rig.submit(intent(1, 1), intent(2, 2))
    rig.start()
    first, second = sorted(rig.started, key=lambda each: each.offset)
    rig.end(first, EIO)
    rig.end(second)
    assert end_of(rig, 1) == (State.DROPPED, Reason.MEDIA)
    assert end_of(rig, 2) == (State.MET, Reason.NONE)


def test_stale_and_made_up_cookies_do_nothing() -> None:
    rig = Rig()
    rig.submit(intent(1, 1))
    rig.start()
    (fill,) = rig.started
    rig.submit(Cancel(CancelWhat.INTENT, 1), intent(2, 2))
    for cookie in (fill.cookie, 0, 1, 2**64 - 1, fill.cookie ^ (1 << 40), 1 << 32):
        lib.ps_hints_fill_ended(rig.hints, rig.now_ns, cookie, SLOT, EIO)
        rig.check()
    assert end_of(rig, 1) == (State.CANCELLED, Reason.NONE)
    rig.end(fill, EIO)
    rig.run()
    assert end_of(rig, 2) == (State.MET, Reason.NONE)


def test_a_volume_that_shrinks_below_an_intent_drops_it() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, 60))
    rig.sizes[0] = 32 * SLOT
    assert lib.ps_tier_volume_resize(rig.tier, 0, 32 * SLOT) == 0
    rig.run()
    assert end_of(rig, 1) == (State.DROPPED, Reason.NAMESPACE)


# ---- cancelling ----


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


def test_a_namespace_that_is_unmapped_cancels_what_would_go_on() -> None:
    rig = Rig()
    rig.submit(intent(1, 1))
    del rig.namespaces[0, 1]
    rig.start()
    assert end_of(rig, 1) == (State.CANCELLED, Reason.NONE)


# ---- remembering ----


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
        rig.submit(*(intent(10 * priority + n, 1, priority=priority) for n in range(1, priority + 2)))
    assert [counts(rig, priority)[0] for priority in range(4)] == [1, 2, 3, 4]


def test_large_intents_are_walked_through_what_is_warm() -> None:
    rig = Rig()
    rig.warm(*range(0, 64, 2))
    rig.submit(intent(1, *range(64)))
    rig.run()
    assert end_of(rig, 1) == (State.MET, Reason.NONE)
    assert rig.warm_slots() == list(range(64))
