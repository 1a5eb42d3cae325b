"""Reads, fills, hydrates, and what is evicted for them."""

from __future__ import annotations

import random

import pytest
from tier_support import (
    DATED,
    DEMAND,
    DONE,
    EIO,
    ERROR,
    MS,
    NEVER,
    READ,
    SECOND,
    SLOT,
    SPECULATIVE,
    STARTED,
    UNIT,
    WAIT,
    Action,
    Tier,
    waiter,
)

from prestage._core import ffi, lib

ERANGE, EINVAL, ENODEV = 34, 22, 19


def residents(tier: Tier) -> list[int]:
    """Return how many units of each of the first five extents are valid."""
    return [tier.resident(extent * SLOT) // UNIT for extent in range(5)]


def test_a_miss_fills_the_units_asked_for_and_no_more() -> None:
    tier = Tier()
    tier.medium[:] = bytes(range(256)) * (len(tier.medium) // 256)
    who = waiter()
    assert tier.read(3 * UNIT + 100, 2 * UNIT - 200, who)[0] == WAIT
    (action,) = tier.actions()
    assert (action.op, action.offset, action.length) == (READ, 3 * UNIT, 2 * UNIT)
    assert action.urgency == DEMAND
    tier.end(action)
    assert tier.woken() == [who]
    result, frame = tier.read(3 * UNIT + 100, 2 * UNIT - 200, who)
    assert result == DONE
    expected = tier.medium[3 * UNIT + 100 : 5 * UNIT - 100]
    assert tier.frame_bytes(frame, 3 * UNIT + 100, 2 * UNIT - 200) == expected
    assert tier.resident(0) == 2 * UNIT
    assert (tier.stats.read_hits, tier.stats.read_misses, tier.stats.fills) == (0, 1, 1)
    tier.release(frame)
    assert tier.stats.frames_pinned == 0


def prefetch(tier: Tier, *offsets: int) -> int:
    places = ffi.new("struct ps_tier_place[]", [(0, offset) for offset in offsets])
    return int(lib.ps_tier_prefetch(tier.tier, places, len(offsets)))


def test_memory_is_asked_for_what_is_resident_and_was_not_used_just_now() -> None:
    tier = Tier(frames=8)
    tier.touch(0)
    tier.touch(2 * SLOT)
    assert prefetch(tier, 0, UNIT, 2 * SLOT) == 0, "the caches are likely to have it"
    tier.now_ns += 10 * MS
    tier.touch(0)
    assert prefetch(tier, 0, SLOT, 2 * SLOT + 512, 2 * SLOT, NEVER) == 2
    before = tier.stats.read_hits
    assert prefetch(tier) == 0
    assert tier.stats.read_hits == before


def test_a_read_that_comes_again_is_counted_once() -> None:
    tier = Tier(frames=8)
    tier.touch(0)
    assert tier.read(0)[0] == DONE
    assert tier.read(SLOT)[0] == WAIT
    before = (tier.stats.read_hits, tier.stats.read_misses)
    assert before == (1, 2)
    tier.run()
    for offset in (0, SLOT):
        assert tier.read(offset, UNIT, waiter(), is_again=True)[0] == DONE
    assert (tier.stats.read_hits, tier.stats.read_misses) == before


def test_one_fill_per_run_of_missing_units_into_the_resident_frame() -> None:
    tier = Tier()
    tier.touch(4 * UNIT)
    assert tier.read(2 * UNIT, 6 * UNIT, waiter())[0] == WAIT
    first, second = sorted(tier.actions(), key=lambda action: action.offset)
    assert (first.offset, first.length) == (2 * UNIT, 2 * UNIT)
    assert (second.offset, second.length) == (5 * UNIT, 3 * UNIT)
    assert first.frame == second.frame
    assert tier.stats.frames_resident == 1


def test_readers_of_the_same_units_share_a_fill() -> None:
    tier = Tier()
    readers = [waiter() for _ in range(5)]
    for who in readers:
        assert tier.read(0, UNIT, who)[0] == WAIT
    assert len(tier.run()) == 1
    assert tier.woken() == readers
    frames = [tier.read(0, UNIT, who) for who in readers]
    assert all(result == DONE for result, _ in frames)
    for _, frame in frames:
        tier.release(frame)


def test_a_failed_fill_gives_its_errno_once_and_is_tried_again() -> None:
    tier = Tier()
    who = waiter()
    assert tier.read(0, UNIT, who)[0] == WAIT
    tier.run(EIO)
    assert tier.woken() == [who]
    assert tier.read(0, UNIT, who)[0] == ERROR
    assert who.error == EIO
    assert tier.stats.frames_free == 8
    assert tier.read(0, UNIT, who)[0] == WAIT
    tier.run()
    assert tier.read(0, UNIT, who)[0] == DONE


@pytest.mark.parametrize(
    ("volume", "offset", "length", "error"),
    [
        (3, 0, 512, ENODEV),
        (99, 0, 512, ENODEV),
        (0, 0, 0, EINVAL),
        (0, SLOT - 512, 1024, EINVAL),
        (0, 64 * SLOT, 512, ERANGE),
        (0, 2**63, 512, ERANGE),
    ],
)
def test_a_wrong_range_is_an_error(volume: int, offset: int, length: int, error: int) -> None:
    tier = Tier()
    who = waiter()
    assert tier.read(offset, length, who, volume=volume)[0] == ERROR
    assert who.error == error
    _, frame = tier.fresh()
    assert tier.publish(offset, length, frame, who, volume=volume) == ERROR
    assert who.error == error
    tier.release(frame)
    assert tier.stats.frames_free == 8


def test_the_tail_of_a_volume_that_ends_inside_a_unit_is_read_and_written() -> None:
    size = SLOT + 3 * UNIT + 512
    tier = Tier(size=size)
    tier.medium[-512:] = b"t" * 512
    assert tier.read_bytes(size - 512, 512) == b"t" * 512
    tier.write(size - 512, b"w" * 512)
    assert tier.stats.fills == 1, "what reaches the end of the volume covers its unit"
    tier.settle()
    assert tier.medium[-512:] == b"w" * 512
    assert tier.residency(0, 2**64 - 1) == (512, 0)


def test_a_read_without_waiter_starts_the_fill_as_urgently_as_it_says() -> None:
    tier = Tier()
    assert tier.read(0)[0] == WAIT
    assert tier.read(SLOT, urgency=DATED, deadline_ns=5, priority=2)[0] == WAIT
    first, second = tier.run()
    assert (first.urgency, first.deadline_ns, first.priority) == (DEMAND, NEVER, 0)
    assert (second.urgency, second.deadline_ns, second.priority) == (DATED, 5, 2)
    assert tier.woken() == []
    assert tier.read(0, UNIT, waiter())[0] == DONE


def test_a_demand_read_overtakes_hydrates_and_promotes_the_one_it_needs() -> None:
    tier = Tier()
    assert tier.hydrate(0) == STARTED
    assert tier.hydrate(SLOT) == STARTED
    assert tier.read(SLOT, UNIT, waiter())[0] == WAIT
    assert tier.read(2 * SLOT, UNIT, waiter())[0] == WAIT
    order = [(action.offset, action.urgency) for action in tier.actions()]
    assert order == [(SLOT, DEMAND), (2 * SLOT, DEMAND), (0, SPECULATIVE)]


def test_a_write_during_a_fill_is_not_overwritten_by_it() -> None:
    tier = Tier()
    tier.medium[: 4 * UNIT] = b"o" * (4 * UNIT)
    who = waiter()
    assert tier.read(0, 4 * UNIT, who)[0] == WAIT
    (fill,) = tier.actions()
    tier.write(UNIT, b"n" * UNIT)
    tier.end(fill)
    assert tier.woken() == [who]
    expected = b"o" * UNIT + b"n" * UNIT + b"o" * 2 * UNIT
    assert tier.read_bytes(0, 4 * UNIT) == expected
    tier.settle()
    assert tier.medium[: 4 * UNIT] == expected


def test_a_late_fill_does_not_land_over_what_was_written_flushed_and_read_since() -> None:
    tier = Tier()
    tier.medium[:UNIT] = b"o" * UNIT
    assert tier.read(0, UNIT, waiter())[0] == WAIT
    (late,) = tier.actions()
    old = bytes(tier.medium[:UNIT])
    tier.write(0, b"n" * UNIT)
    tier.settle()
    assert tier.resident(0) == UNIT
    for extent in range(1, 12):
        tier.touch(extent * SLOT)
    start = late.frame * SLOT
    ffi.buffer(tier.memory)[start : start + UNIT] = old
    tier.complete(late)
    assert tier.read_bytes(0) == b"n" * UNIT


def test_an_extent_with_media_work_under_way_stays_tracked() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    assert tier.hydrate(0) == STARTED
    (fill,) = tier.actions()
    tier.write(0, b"n" * UNIT)
    tier.settle()
    for extent in range(1, 6):
        tier.touch(extent * SLOT)
    assert tier.resident(0) == UNIT
    tier.complete(fill)
    assert tier.read_bytes(0) == b"n" * UNIT


def test_pinned_and_fresh_frames_are_never_evicted() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    tier.medium[:UNIT] = b"p" * UNIT
    tier.touch(0)
    result, pinned = tier.read(0)
    assert result == DONE
    result, fresh = tier.fresh()
    assert result == DONE
    tier.put(fresh, 0, b"f" * UNIT)
    for extent in range(1, 9):
        tier.touch(extent * SLOT)
    assert tier.stats.evictions == 6
    assert tier.frame_bytes(pinned, 0, UNIT) == b"p" * UNIT
    assert tier.frame_bytes(fresh, 0, UNIT) == b"f" * UNIT
    lib.ps_tier_reference(tier.tier, pinned)
    tier.release(pinned)
    assert tier.stats.frames_pinned == 2
    tier.release(pinned)
    tier.release(fresh)
    assert tier.stats.frames_pinned == 0


def test_the_least_recently_used_goes_first() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    for extent in (0, 1, 2, 3, 0):
        tier.now_ns += 10 * MS
        tier.touch(extent * SLOT)
    tier.now_ns += 10 * MS
    tier.touch(4 * SLOT)
    assert residents(tier) == [1, 0, 1, 1, 1]


def test_what_is_read_once_goes_before_anything_else() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    for extent, once in ((0, False), (1, False), (2, True), (3, False)):
        tier.now_ns += 100 * MS
        tier.touch(extent * SLOT, once=once)
    tier.touch(4 * SLOT)
    assert residents(tier) == [1, 1, 0, 1, 1]


def test_a_one_time_read_of_what_others_keep_changes_nothing() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    for extent in range(4):
        tier.now_ns += 100 * MS
        tier.touch(extent * SLOT)
    tier.touch(3 * SLOT, once=True)
    tier.touch(4 * SLOT)
    assert residents(tier) == [0, 1, 1, 1, 1]


def test_the_value_tables_decide_between_classes() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    values = [1000.0 if value_class == 3 else 1.0 for value_class in range(64) for _ in range(64)]
    lib.ps_tier_set_values(tier.tier, ffi.new("float[]", values))
    tier.touch(0)
    tier.touch(0)  # read again: the dear class
    for extent in range(1, 20):
        tier.now_ns += SECOND
        tier.touch(extent * SLOT)
    assert tier.resident(0) == UNIT


def test_what_was_filled_for_a_reader_waits_for_it() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    slow = waiter()
    tier.read(0, UNIT, slow, once=True)
    tier.run()
    for extent in range(1, 9):
        tier.touch(extent * SLOT)
    assert tier.resident(0) == UNIT
    tier.now_ns += 2 * SECOND
    for extent in range(1, 9):
        tier.touch(extent * SLOT)
    assert tier.resident(0) == 0, "a reader that never comes back holds nothing for ever"


def test_frames_are_given_first_come_first_served() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    frames = [tier.fresh()[1] for _ in range(4)]
    queue = [waiter() for _ in range(3)]
    for who in queue[:2]:
        assert tier.fresh(who)[0] == WAIT
    assert tier.read(0, UNIT, queue[2])[0] == WAIT
    assert tier.stats.frame_waits == 3
    tier.release(frames[0])
    assert tier.woken() == [queue[0]]
    newcomer = waiter()
    assert tier.fresh(newcomer)[0] == WAIT, "the frame is set aside for the first"
    assert tier.fresh(queue[0])[0] == DONE
    tier.release(frames[1])
    assert tier.woken() == [queue[1]]
    tier.forget(queue[1])  # its frame goes to the next
    assert tier.woken() == [queue[2]]
    assert tier.read(0, UNIT, queue[2])[0] == WAIT
    assert len(tier.run()) == 1


def test_reservations_are_first_come_first_served_and_bounded() -> None:
    tier = Tier(frames=8, dirty_limit=3)
    budget = lib.ps_tier_budget(tier.tier)
    assert budget == 3
    first, big, small = waiter(), waiter(), waiter()
    assert lib.ps_tier_reserve(tier.tier, 1, first) == DONE
    assert lib.ps_tier_reserve(tier.tier, budget, big) == WAIT
    assert lib.ps_tier_reserve(tier.tier, 1, small) == WAIT, "small ones do not overtake"
    lib.ps_tier_unreserve(tier.tier, 1)
    assert tier.woken() == [big]
    assert lib.ps_tier_reserve(tier.tier, budget, big) == DONE
    tier.forget(small)
    lib.ps_tier_unreserve(tier.tier, budget)
    assert tier.woken() == []
    assert lib.ps_tier_reserve(tier.tier, budget + 1, big) == ERROR
    assert big.error == 7  # E2BIG
    assert lib.ps_tier_reserve(tier.tier, budget, big) == DONE


def test_a_forgotten_reservation_is_given_back() -> None:
    tier = Tier(frames=8, dirty_limit=3)
    first, second = waiter(), waiter()
    assert lib.ps_tier_reserve(tier.tier, 3, first) == DONE
    assert lib.ps_tier_reserve(tier.tier, 3, second) == WAIT
    lib.ps_tier_unreserve(tier.tier, 3)
    assert tier.woken() == [second]
    tier.forget(second)
    assert lib.ps_tier_reserve(tier.tier, 3, waiter()) == DONE


@pytest.mark.parametrize(
    "settings",
    [
        {"slot_size": 8192},
        {"slot_size": 4 << 20},
        {"slot_size": 20000},
        {"extent_count": 7},
        {"dirty_limit": 0},
        {"dirty_limit": 6},
        {"volume_count": 0},
        {"tenant_count": 0},
        {"tenant_count": 65537},
        {"retry_ns": 0},
        {"frame_count": 3, "dirty_limit": 1},
    ],
)
def test_a_configuration_that_could_deadlock_or_is_out_of_range_is_refused(
    settings: dict[str, int],
) -> None:
    config = {
        "frame_count": 8,
        "slot_size": SLOT,
        "extent_count": 8,
        "dirty_limit": 5,
        "volume_count": 1,
        "tenant_count": 1,
        "retry_ns": 1,
    }
    good = lib.ps_tier_new(ffi.new("struct ps_tier_config *", config))
    assert good != ffi.NULL
    lib.ps_tier_free(good)
    assert lib.ps_tier_new(ffi.new("struct ps_tier_config *", config | settings)) == ffi.NULL
    assert lib.ps_tier_new(ffi.NULL) == ffi.NULL


def trace(*, payload: bool) -> list[Action]:
    tier = Tier(frames=6, dirty_limit=2, payload=payload)
    choose = random.Random(5)
    actions = []
    for _ in range(300):
        offset = choose.randrange(20) * SLOT + choose.randrange(30) * 512
        tier.now_ns += choose.randrange(100) * MS
        if choose.random() < 0.5:
            tier.read(offset, 512)
        elif choose.random() < 0.5:
            tier.hydrate(offset, 1024)
        elif (fresh := tier.fresh())[0] == DONE:
            who = waiter()
            if tier.publish(offset, 1024, fresh[1], who) != DONE:
                tier.forget(who)
                tier.release(fresh[1])
        while (action := tier.next()) is not None:
            actions.append(action)
            tier.complete(action)
    return actions


def test_a_tier_without_payload_decides_the_same() -> None:
    assert trace(payload=False) == trace(payload=True)
    assert len(trace(payload=False)) > 300
