"""Write-back, flushes, syncs, and what happens when the medium fails them."""

from __future__ import annotations

import pytest
from tier_support import (
    DEMAND,
    DONE,
    EIO,
    ENOSPC,
    ERROR,
    MS,
    NEVER,
    SECOND,
    SLOT,
    SPECULATIVE,
    SYNC,
    UNIT,
    WAIT,
    WRITE,
    Action,
    Tier,
    waiter,
)

from prestage._core import lib


def dirty(tier: Tier, *extents: int, units: int = 1) -> None:
    for extent in extents:
        tier.write(extent * SLOT, b"d" * UNIT * units)


def ops(actions: list[Action]) -> list[int]:
    return [action.op for action in actions]


def test_a_flush_writes_then_syncs() -> None:
    tier = Tier(frames=16)
    dirty(tier, 1, 2)
    who = waiter()
    assert tier.flush(who) == WAIT
    writes = tier.actions()
    assert [(action.op, action.offset) for action in writes] == [(WRITE, SLOT), (WRITE, 2 * SLOT)]
    assert all(action.urgency == DEMAND for action in writes)
    tier.end(writes[0])
    assert tier.woken() == []
    tier.end(writes[1])
    (sync,) = tier.actions()
    assert (sync.op, sync.length) == (SYNC, 0)
    assert tier.unflushed() == 2 * UNIT
    tier.end(sync)
    assert tier.woken() == [who]
    assert tier.flush(who) == DONE
    assert tier.unflushed() == 0
    assert who.sequence == 0, "the waiter can be used again"


def test_a_flush_of_what_is_durable_is_done_at_once() -> None:
    tier = Tier()
    assert tier.flush(waiter()) == DONE
    dirty(tier, 0)
    tier.settle()
    assert tier.flush(waiter()) == DONE
    assert tier.flush(waiter(), 64 * SLOT, 512) == DONE


def test_a_flush_without_sync_ends_when_the_writes_have() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0)
    who = waiter()
    assert tier.flush(who, 0, UNIT, sync=False) == WAIT
    (write,) = tier.actions()
    tier.end(write)
    assert tier.woken() == [who]
    assert tier.flush(who, 0, UNIT, sync=False) == DONE
    assert tier.actions() == []


def test_a_flush_of_a_range_leaves_the_rest() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0, 1, 2)
    who = waiter()
    assert tier.flush(who, SLOT, SLOT) == WAIT
    (write,) = tier.actions()
    assert write.offset == SLOT
    tier.end(write)
    assert tier.woken() == [who]
    assert tier.flush(who, SLOT, SLOT) == WAIT
    assert ops(tier.run()) == [SYNC]
    assert tier.flush(who, SLOT, SLOT) == DONE
    assert tier.unflushed() == 2 * UNIT


def test_flushes_share_a_sync() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0, 1)
    flushers = [waiter() for _ in range(6)]
    for who in flushers:
        assert tier.flush(who) == WAIT
    assert ops(tier.run()) == [WRITE, WRITE, SYNC]
    assert tier.woken() == flushers
    assert [tier.flush(who) for who in flushers] == [DONE] * 6


def test_a_sync_that_began_before_the_write_ended_does_not_count() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0)
    first, second = waiter(), waiter()
    tier.flush(first)
    (write,) = tier.actions()
    tier.end(write)
    (sync,) = tier.actions()
    dirty(tier, 1)
    assert tier.flush(second) == WAIT
    (write,) = tier.actions()
    tier.end(write)
    assert tier.actions() == [], "one sync of a volume at a time"
    tier.end(sync)
    assert tier.woken() == [first]
    (sync,) = tier.actions()
    tier.end(sync)
    assert tier.woken() == [second]
    assert tier.flush(second) == DONE


def test_a_sync_under_way_counts_for_what_it_covers() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0)
    first, second = waiter(), waiter()
    tier.flush(first)
    tier.end(tier.actions()[0])
    (sync,) = tier.actions()
    assert tier.flush(second) == WAIT
    tier.end(sync)
    assert tier.woken() == [first, second]
    assert tier.actions() == []


def test_what_is_written_after_a_flush_began_does_not_delay_it() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0)
    who = waiter()
    assert tier.flush(who) == WAIT
    (write,) = tier.actions()
    dirty(tier, 0, 1)
    tier.end(write)
    assert ops(tier.run()) == [SYNC]
    assert tier.woken() == [who]
    assert tier.flush(who) == DONE
    assert tier.unflushed() == 2 * UNIT


def test_whole_runs_are_written_one_after_another() -> None:
    tier = Tier(frames=16)
    tier.write(0, b"a" * 3 * UNIT)
    tier.write(8 * UNIT, b"b" * 2 * UNIT)
    who = waiter()
    tier.flush(who)
    (first,) = tier.actions()
    assert (first.offset, first.length) == (0, 3 * UNIT)
    tier.write(8 * UNIT, b"c" * UNIT)  # its run has not begun: goes with it
    tier.end(first)
    (second,) = tier.actions()
    assert (second.offset, second.length) == (8 * UNIT, 2 * UNIT)
    tier.end(second)
    assert ops(tier.run()) == [SYNC]
    assert tier.flush(who) == DONE
    assert tier.medium[8 * UNIT : 10 * UNIT] == b"c" * UNIT + b"b" * UNIT
    assert tier.unflushed() == 0


# ---- when there is writing without a flush ----


def test_what_is_dirty_too_long_is_written_and_synced() -> None:
    tier = Tier(frames=16, dirty_limit=8, unsynced_age_ns=5 * SECOND)
    dirty(tier, 0)
    tier.now_ns += SECOND // 2
    dirty(tier, 1)
    assert tier.actions() == []
    for extent in (0, 1):
        assert tier.now_ns < tier.next_time <= tier.now_ns + SECOND
        tier.now_ns = tier.next_time
        (write,) = tier.actions()
        assert (write.op, write.offset) == (WRITE, extent * SLOT)
        assert write.urgency == SPECULATIVE
        tier.end(write)
    assert tier.actions() == []
    tier.now_ns = tier.next_time
    assert ops(tier.actions()) == [SYNC]
    assert tier.next_time == NEVER


def test_above_half_of_the_dirty_limit_the_oldest_is_written() -> None:
    tier = Tier(frames=16, dirty_limit=8)
    dirty(tier, 0, 1, 2, 3)
    assert tier.actions() == []
    dirty(tier, 4)
    actions = tier.actions()
    assert actions[0].offset == 0
    assert set(ops(actions)) == {WRITE}


def test_a_sync_is_wanted_when_much_waits_for_one() -> None:
    tier = Tier(frames=16, dirty_limit=8, writeback_age_ns=0)
    dirty(tier, 0, 1)
    assert ops(tier.run()) == [WRITE, WRITE]
    dirty(tier, 2)
    assert ops(tier.run()) == [WRITE, SYNC]


def test_who_waits_for_a_frame_makes_dirty_ones_durable() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    dirty(tier, 0)
    held = [tier.fresh()[1] for _ in range(3)]
    who = waiter()
    assert tier.fresh(who)[0] == WAIT
    assert ops(tier.run()) == [WRITE, SYNC]
    assert tier.woken() == [who]
    assert tier.fresh(who)[0] == DONE
    assert len(held) == 3


def test_media_writes_are_bounded_and_reads_go_first() -> None:
    tier = Tier(frames=200, dirty_limit=100, size=400 * SLOT)
    dirty(tier, *range(100))
    assert tier.flush(waiter()) == WAIT
    assert tier.read(300 * SLOT, UNIT, waiter())[0] == WAIT
    actions = tier.actions()
    assert ops(actions) == [1] + [WRITE] * 64
    assert tier.next_time == NEVER, "an end comes before anything else can begin"
    tier.end(actions[5])
    assert ops(tier.actions()) == [WRITE]


def test_volumes_take_turns() -> None:
    tier = Tier(frames=16, dirty_limit=8, writeback_age_ns=0)
    tier.add_volume(1, 64 * SLOT)
    for volume in (0, 1):
        for extent in range(2):
            tier.write(extent * SLOT, b"d" * UNIT, volume=volume)
    assert [action.volume for action in tier.actions()] == [0, 1, 0, 1]


# ---- failures ----


@pytest.mark.parametrize("error", [EIO, ENOSPC])
def test_a_failed_write_is_told_to_each_flush_once_and_stays_dirty(error: int) -> None:
    tier = Tier(frames=16)
    dirty(tier, 0)
    whole, part = waiter(), waiter()
    assert tier.flush(whole) == WAIT
    assert tier.flush(part, 0, UNIT) == WAIT
    (write,) = tier.actions()
    tier.end(write, error)
    assert set(tier.woken()) == {whole, part}
    for who, arguments in ((whole, ()), (part, (0, UNIT))):
        assert tier.flush(who, *arguments) == ERROR
        assert who.error == error
    assert tier.unflushed() == UNIT
    assert lib.ps_tier_health(tier.tier, 0) == error
    assert tier.read_bytes(0) == b"d" * UNIT
    assert tier.flush(whole) == WAIT
    assert ops(tier.run()) == [WRITE, SYNC], "a later flush tries again at once"
    assert tier.flush(whole) == DONE
    assert lib.ps_tier_health(tier.tier, 0) == 0


def test_failed_writes_are_tried_again_with_growing_intervals() -> None:
    tier = Tier(frames=16, writeback_age_ns=0)
    dirty(tier, 0)
    waits = []
    for _ in range(10):
        (write,) = tier.actions()
        tier.end(write, EIO)
        assert tier.actions() == []
        waits.append((tier.next_time - tier.now_ns) // MS)
        tier.now_ns = tier.next_time
    assert waits == [10, 20, 40, 80, 160, 320, 640, 640, 640, 640]
    assert WRITE in ops(tier.run())
    dirty(tier, 1)
    tier.end(tier.actions()[0], EIO)
    assert (tier.next_time - tier.now_ns) // MS == 10, "a success starts over"


def test_while_one_extent_fails_others_are_written() -> None:
    tier = Tier(frames=16, writeback_age_ns=0)
    dirty(tier, 0, 1)
    bad, good = tier.actions()
    tier.end(bad, EIO)
    tier.end(good)
    dirty(tier, 2)
    actions = tier.actions()
    assert [action.offset for action in actions if action.op == WRITE] == [2 * SLOT]
    assert tier.next_time > tier.now_ns


def test_a_failed_sync_makes_everything_unsynced_dirty_again() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0, 1)
    first, second = waiter(), waiter()
    assert tier.flush(first) == WAIT
    assert tier.flush(second, 0, UNIT) == WAIT
    for action in tier.actions():
        tier.end(action)
    assert tier.woken() == [second]
    assert tier.flush(second, 0, UNIT) == WAIT
    (sync,) = tier.actions()
    tier.end(sync, EIO)
    assert set(tier.woken()) == {first, second}
    assert tier.flush(first) == ERROR
    assert tier.flush(second, 0, UNIT) == ERROR
    assert first.error == second.error == EIO
    assert tier.flush(first) == WAIT
    assert ops(tier.run()) == [WRITE, WRITE, SYNC]
    assert tier.flush(first) == DONE


def test_a_flush_of_a_range_is_not_done_while_one_of_its_writes_has_failed() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0, 1)
    who = waiter()
    assert tier.flush(who, 0, 2 * SLOT) == WAIT
    first, second = tier.actions()
    tier.end(first, EIO)
    tier.end(second)
    assert tier.woken() == [who]
    assert tier.flush(who, 0, 2 * SLOT) == WAIT, "the failed write is tried again at once"
    (again,) = tier.actions()
    assert (again.op, again.offset) == (WRITE, first.offset)
    tier.end(again, EIO)
    assert tier.woken() == [who]
    assert tier.flush(who, 0, 2 * SLOT) == ERROR


def test_a_flush_of_a_range_is_not_done_by_writes_that_a_failed_sync_undid() -> None:
    tier = Tier(frames=32)
    dirty(tier, 0, 1)
    other, who = waiter(), waiter()
    assert tier.flush(who, 0, 2 * SLOT) == WAIT
    first, second = tier.actions()
    tier.end(first)
    assert tier.flush(other, 0, UNIT) == WAIT
    (sync,) = tier.actions()
    tier.end(sync, EIO)  # what `first` wrote may be lost
    tier.end(second)
    assert set(tier.woken()) == {other, who}
    assert tier.flush(who, 0, 2 * SLOT) == WAIT
    assert ops(tier.run()) == [WRITE]
    assert tier.woken() == [who]
    assert tier.flush(who, 0, 2 * SLOT) == WAIT
    assert ops(tier.run()) == [SYNC]
    assert tier.flush(who, 0, 2 * SLOT) == DONE


def test_a_flush_that_waits_for_writes_hears_of_a_failed_sync() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0)
    first, second = waiter(), waiter()
    tier.flush(first)
    tier.end(tier.actions()[0])
    (sync,) = tier.actions()
    dirty(tier, 1)
    assert tier.flush(second) == WAIT
    (write,) = tier.actions()
    tier.end(sync, EIO)
    tier.end(write)
    assert set(tier.woken()) == {first, second}
    assert tier.flush(second) == ERROR
    tier.settle()
    assert tier.medium[:UNIT] == b"d" * UNIT


def test_an_unsynced_frame_is_not_evicted() -> None:
    tier = Tier(frames=4, dirty_limit=1, writeback_age_ns=0, unsynced_age_ns=60 * SECOND)
    dirty(tier, 0)
    (write,) = tier.actions()[:1]
    tier.end(write)
    for extent in range(1, 9):
        tier.read(extent * SLOT, UNIT)
        for action in tier.actions():
            if action.op != SYNC:
                tier.end(action)
    assert tier.resident(0) == UNIT
    assert tier.stats.frames_unsynced == 1


def test_a_forgotten_flush_is_never_woken() -> None:
    tier = Tier(frames=16)
    dirty(tier, 0, 1)
    whole, part = waiter(), waiter()
    tier.flush(whole)
    tier.flush(part, SLOT, UNIT)
    tier.forget(whole)
    tier.forget(part)
    tier.run()
    assert tier.woken() == []
    assert whole.sequence == 0
