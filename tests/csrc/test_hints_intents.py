"""Intents on their way: how they become warm, and what stops them."""

from __future__ import annotations

import pytest
from hints_media import BLOCK, MS, NEVER, PER_SLOT, SECOND, SLOT, slots
from hints_support import CONFIG, Rig
from hints_words import EIO, SOON_US, counts, end_of, intent

from prestage._core import ffi, lib
from prestage.ext.layout import READY_NEVER
from prestage.ext.names import CancelWhat, IntentFlag, OutcomeFlag, Reason, SetOp, State, Verdict
from prestage.ext.records import Cancel, Intent, Range, SetRecord

LATE_OK, PREFIX = IntentFlag.LATE_OK, IntentFlag.PREFIX


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
    rig.submit(intent(1, 5))
    job = lib.ps_sched_next_job(rig.scheds[0], rig.now_ns)
    access = ffi.new("struct ps_tier_access *", {"deadline_ns": NEVER})
    frame = ffi.new("uint32_t *")
    lib.ps_tier_read(rig.tier, rig.now_ns, 0, 5 * SLOT, SLOT, access, ffi.NULL, frame)
    lib.ps_hints_start_job(rig.hints, rig.now_ns, job)
    fill = rig.end_first()
    assert fill.cookie == 0
    rig.tick(rig.now_ns + 20 * MS)
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


def test_what_is_forgotten_while_it_is_read_is_brought_in_again() -> None:
    rig = Rig()
    rig.submit(intent(1, 4, 5))
    rig.end_first()
    size = rig.sizes[0]
    assert lib.ps_tier_volume_resize(rig.tier, 0, 5 * SLOT) == 0
    assert lib.ps_tier_volume_resize(rig.tier, 0, size) == 0
    rig.run()
    assert rig.warm_slots() == [4, 5]
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


def test_what_is_not_ready_at_the_deadline_is_dropped_and_its_fills_just_end() -> None:
    rig = Rig()
    rig.submit(intent(1, 1, 2))
    rig.end_first()
    rig.start()
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
    rig.now_ns += SOON_US * 1000
    rig.end_first()
    rig.now_ns += 1
    rig.end_first()
    assert {end_of(rig, 1)[0], end_of(rig, 2)[0]} == {State.MET, State.LATE}
    assert rig.outcome(1).ready_us == rig.outcome(2).ready_us == SOON_US


def full_rig() -> Rig:
    """Return a rig whose tenant 0 holds all that it may, for long, and has not read it."""
    rig = Rig(budget={"tier_bytes": SLOT})
    rig.submit(intent(40, 40, deadline_us=0xFFFFFFFF))
    rig.run()
    assert rig.hint_frames() == 1
    return rig


def test_without_room_it_is_tried_again_until_the_deadline() -> None:
    rig = full_rig()
    rig.submit(intent(1, 1))
    for _ in range(20):
        rig.start()
        rig.tick(rig.now_ns + 20 * MS)
        assert end_of(rig, 1)[0] == State.PENDING
    rig.tick(rig.now_ns + SECOND)
    assert end_of(rig, 1) == (State.DROPPED, Reason.ROOM)


def test_without_room_wanting_it_late_does_not_help() -> None:
    rig = full_rig()
    rig.submit(intent(1, 1, flags=LATE_OK))
    rig.start()
    for _ in range(3):
        rig.tick(rig.now_ns + SECOND)
        rig.start()
    rig.tick(rig.now_ns + SECOND)
    assert end_of(rig, 1) == (State.DROPPED, Reason.ROOM)


def test_room_that_comes_in_time_is_taken() -> None:
    rig = full_rig()
    rig.submit(intent(1, 1))
    rig.start()
    rig.read(40)
    rig.tick(rig.now_ns + 20 * MS)
    rig.run()
    assert end_of(rig, 1) == (State.MET, Reason.NONE)


def test_a_failed_read_drops_the_intent_and_no_other() -> None:
    rig = Rig()
    rig.submit(intent(1, 1), intent(2, 2))
    failed = rig.end_first(EIO)
    rig.run()
    first, second = (1, 2) if failed.offset == SLOT else (2, 1)
    assert end_of(rig, first) == (State.DROPPED, Reason.MEDIA)
    assert end_of(rig, second) == (State.MET, Reason.NONE)


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


@pytest.mark.parametrize("size", [32 * SLOT, 60 * SLOT + 2 * BLOCK])
def test_a_volume_that_shrinks_below_an_intent_drops_it(size: int) -> None:
    rig = Rig()
    rig.submit(intent(1, 1, 60))
    rig.sizes[0] = size
    assert lib.ps_tier_volume_resize(rig.tier, 0, size) == 0
    rig.run()
    assert end_of(rig, 1) == (State.DROPPED, Reason.NAMESPACE)
