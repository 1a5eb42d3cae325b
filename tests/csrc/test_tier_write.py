"""Publishing, zeros, the dirty limit, and volumes that change their size."""

from __future__ import annotations

from typing import Any

import pytest
from tier_support import (
    BUSY,
    DONE,
    EIO,
    ENOSPC,
    ERROR,
    MS,
    READ,
    SLOT,
    STARTED,
    SYNC,
    UNIT,
    WAIT,
    WRITE,
    Tier,
    waiter,
)

from prestage._core import ffi, lib

ERANGE, ENODEV, EEXIST, EINVAL, EBUSY = 34, 19, 17, 22, 16


def counts(tier: Tier) -> tuple[int, int, int]:
    """Return how many publishes adopted, copied and swapped."""
    stats = tier.stats
    return stats.publish_adopts, stats.publish_copies, stats.publish_swaps


def fresh_with(tier: Tier, offset: int, data: bytes) -> int:
    result, frame = tier.fresh()
    assert result == DONE
    tier.put(frame, offset, data)
    return frame


def pin(tier: Tier, offset: int, length: int = UNIT) -> int:
    result, frame = tier.read(offset, length)
    assert result == DONE
    return frame


def test_a_publish_where_nothing_is_resident_adopts_the_frame() -> None:
    tier = Tier()
    frame = fresh_with(tier, UNIT, b"a" * UNIT)
    assert tier.publish(UNIT, UNIT, frame) == DONE
    assert counts(tier) == (1, 0, 0)
    assert pin(tier, UNIT) == frame
    assert tier.actions() == [], "nothing is read, and nothing is written yet"


def test_a_small_publish_into_a_frame_that_nobody_sees_copies() -> None:
    tier = Tier()
    tier.write(0, b"a" * SLOT)
    tier.write(UNIT, b"b" * UNIT)
    assert counts(tier) == (1, 1, 0)
    assert tier.read_bytes(0, SLOT) == b"a" * UNIT + b"b" * UNIT + b"a" * 14 * UNIT
    assert tier.stats.frames_free == 7


def test_data_at_hand_goes_over_what_is_resident_and_is_written_to_the_medium() -> None:
    tier = Tier(frames=16, writeback_age_ns=0)
    tier.write(0, b"a" * SLOT)
    for action in tier.actions():
        tier.end(action)
    assert tier.overwrite(UNIT + 512, b"b" * 512)
    assert counts(tier) == (1, 1, 0)
    expected = b"a" * (UNIT + 512) + b"b" * 512 + b"a" * (14 * UNIT + UNIT - 1024)
    assert tier.read_bytes(0, SLOT) == expected
    (write,) = [action for action in tier.actions() if action.op == WRITE]
    assert (write.offset, write.length) == (UNIT, UNIT)


@pytest.mark.parametrize("case", ["nothing is there", "part of a unit is missing", "it is read"])
def test_data_at_hand_waits_for_a_frame_when(case: str) -> None:
    tier = Tier()
    if case == "part of a unit is missing":
        tier.write(0, b"a" * UNIT)
    if case == "it is read":
        tier.write(0, b"a" * SLOT)
        pinned = pin(tier, 0, SLOT)
    assert not tier.overwrite(UNIT, b"b" * 512)
    if case == "it is read":
        assert tier.frame_bytes(pinned, 0, SLOT) == b"a" * SLOT


def test_data_at_hand_makes_no_extent_unclean_at_the_dirty_limit() -> None:
    tier = Tier(frames=16, dirty_limit=2)
    tier.write(0, b"a" * SLOT)
    tier.settle()
    for number in (1, 2):
        tier.write(number * SLOT, b"a" * SLOT)
    assert not tier.overwrite(0, b"b" * UNIT)
    assert tier.overwrite(SLOT, b"b" * UNIT), "it is unclean already"


def test_a_publish_over_all_that_is_valid_swaps_without_copying() -> None:
    tier = Tier()
    tier.write(UNIT, b"a" * UNIT)
    frame = fresh_with(tier, 0, b"b" * SLOT)
    assert tier.publish(0, SLOT, frame) == DONE
    assert counts(tier) == (1, 0, 1)
    assert pin(tier, 0) == frame


def test_a_publish_never_changes_a_pinned_frame() -> None:
    tier = Tier()
    tier.write(0, b"a" * SLOT)
    pinned = pin(tier, 0, SLOT)
    tier.write(UNIT, b"b" * 512)
    assert counts(tier) == (1, 0, 1)
    assert tier.frame_bytes(pinned, 0, SLOT) == b"a" * SLOT
    expected = b"a" * UNIT + b"b" * 512 + b"a" * (SLOT - UNIT - 512)
    assert tier.read_bytes(0, SLOT) == expected
    assert tier.zero(0, SLOT) == DONE
    assert tier.frame_bytes(pinned, 0, SLOT) == b"a" * SLOT
    assert tier.read_bytes(0, SLOT) == bytes(SLOT)
    tier.release(pinned)
    assert tier.stats.frames_free == 7


def test_a_publish_never_changes_a_frame_during_its_media_write() -> None:
    tier = Tier(frames=16, writeback_age_ns=0)
    tier.write(0, b"a" * UNIT)
    (write,) = tier.actions()
    tier.write(0, b"b" * UNIT)
    assert tier.frame_bytes(write.frame, 0, UNIT) == b"a" * UNIT
    assert tier.actions() == [], "one media write of an extent at a time"
    tier.end(write)
    (second,) = tier.actions()
    assert tier.frame_bytes(second.frame, 0, UNIT) == b"b" * UNIT


@pytest.mark.parametrize(
    ("offset", "length", "filled"),
    [
        (512, 512, [(0, UNIT)]),
        (512, UNIT, [(0, 2 * UNIT)]),
        (512, 3 * UNIT, [(0, UNIT), (3 * UNIT, UNIT)]),
        (UNIT, UNIT + 512, [(2 * UNIT, UNIT)]),
    ],
)
def test_partial_units_are_completed_from_the_medium(
    offset: int, length: int, filled: list[tuple[int, int]]
) -> None:
    tier = Tier()
    tier.medium[:SLOT] = b"m" * SLOT
    frame = fresh_with(tier, offset, b"w" * length)
    who = waiter()
    assert tier.publish(offset, length, frame, who) == WAIT
    actions = tier.actions()
    assert sorted((action.offset, action.length) for action in actions) == filled
    assert all(action.op == READ for action in actions)
    for action in actions:
        tier.end(action)
    assert tier.woken() == [who]
    while tier.publish(offset, length, frame, who) == WAIT:
        assert tier.woken() == [who]
    tier.settle()
    assert tier.medium[:SLOT] == b"m" * offset + b"w" * length + b"m" * (SLOT - offset - length)


def test_a_failed_fill_of_a_partial_unit_keeps_the_reference() -> None:
    tier = Tier()
    frame = fresh_with(tier, 0, b"w" * 512)
    who = waiter()
    assert tier.publish(0, 512, frame, who) == WAIT
    tier.run(EIO)
    assert tier.woken() == [who]
    assert tier.publish(0, 512, frame, who) == ERROR
    assert who.error == EIO
    assert tier.stats.frames_pinned == 1
    tier.release(frame)
    assert tier.stats.frames_free == 8


def test_zeros_of_whole_units_read_nothing_and_reach_the_medium() -> None:
    tier = Tier()
    tier.medium[: 2 * SLOT] = b"m" * (2 * SLOT)
    assert tier.zero(UNIT, 3 * UNIT) == DONE
    who = waiter()
    assert tier.zero(SLOT + 512, 512, who) == WAIT
    assert [action.op for action in tier.run()] == [READ]
    assert tier.zero(SLOT + 512, 512, who) == DONE
    tier.settle()
    assert tier.medium[:SLOT] == b"m" * UNIT + bytes(3 * UNIT) + b"m" * 12 * UNIT
    assert tier.medium[SLOT : 2 * SLOT] == b"m" * 512 + bytes(512) + b"m" * (SLOT - UNIT)


def test_a_zero_waits_for_a_frame() -> None:
    tier = Tier(frames=4, dirty_limit=1)
    frames = [tier.fresh()[1] for _ in range(4)]
    who = waiter()
    assert tier.zero(0, UNIT, who) == WAIT
    tier.release(frames[0])
    assert tier.woken() == [who]
    assert tier.zero(0, UNIT, who) == DONE


def test_a_zero_during_a_fill_is_not_overwritten_by_it() -> None:
    tier = Tier()
    tier.medium[:UNIT] = b"o" * UNIT
    assert tier.read(0, UNIT, waiter())[0] == WAIT
    (fill,) = tier.actions()
    assert tier.zero(0, UNIT) == DONE
    tier.end(fill)
    assert tier.read_bytes(0) == bytes(UNIT)


# ---- the dirty limit ----


def dirty(tier: Tier, extents: int, *, volume: int = 0) -> None:
    for extent in range(extents):
        tier.write(extent * SLOT, b"d" * UNIT, volume=volume)


def test_writes_wait_at_the_dirty_limit_first_come_first_served() -> None:
    tier = Tier(frames=8, dirty_limit=3)
    dirty(tier, 3)
    queue = [(waiter(), fresh_with(tier, extent * SLOT, b"q" * UNIT)) for extent in (3, 4)]
    for extent, (who, frame) in enumerate(queue, 3):
        assert tier.publish(extent * SLOT, UNIT, frame, who) == WAIT
    assert tier.stats.dirty_waits == 2
    tier.write(0, b"e" * UNIT)  # already dirty: needs no room
    actions = tier.actions()
    assert [action.op for action in actions] == [WRITE] * 3
    for action in actions:
        tier.end(action)
    assert tier.woken() == [], "written is not durable: the frames cannot go yet"
    (sync,) = tier.actions()
    assert sync.op == SYNC
    tier.end(sync)
    assert tier.woken() == [who for who, _ in queue]
    for extent, (who, frame) in enumerate(queue, 3):
        assert tier.publish(extent * SLOT, UNIT, frame, who) == DONE
    tier.settle()


def test_writes_fail_at_the_dirty_limit_while_the_medium_refuses() -> None:
    tier = Tier(frames=8, dirty_limit=3)
    dirty(tier, 3)
    frame = fresh_with(tier, 3 * SLOT, b"q" * UNIT)
    who = waiter()
    assert tier.publish(3 * SLOT, UNIT, frame, who) == WAIT
    tier.run(ENOSPC)
    assert tier.woken() == [who]
    assert tier.publish(3 * SLOT, UNIT, frame, who) == ERROR
    assert who.error == ENOSPC
    assert lib.ps_tier_health(tier.tier, 0) == ENOSPC
    assert tier.publish(3 * SLOT, UNIT, frame, who) == ERROR, "at once, while it refuses"
    assert tier.zero(4 * SLOT, UNIT, who) == ERROR
    assert who.error == ENOSPC
    assert tier.read_bytes(5 * SLOT) == bytes(UNIT), "reads go on"
    tier.now_ns += 10 * MS
    tier.run()
    assert lib.ps_tier_health(tier.tier, 0) == 0
    assert tier.publish(3 * SLOT, UNIT, frame, who) == DONE
    tier.settle()
    assert tier.medium[3 * SLOT : 3 * SLOT + UNIT] == b"q" * UNIT


def test_a_volume_that_refuses_writes_leaves_room_for_others() -> None:
    tier = Tier(frames=12, dirty_limit=8)
    tier.add_volume(1, 64 * SLOT)
    dirty(tier, 6)
    for action in tier.actions():
        tier.end(action, EIO)
    who = waiter()
    frame = fresh_with(tier, 7 * SLOT, b"q" * UNIT)
    assert tier.publish(7 * SLOT, UNIT, frame, who) == ERROR
    assert who.error == EIO
    tier.release(frame)
    tier.write(0, b"v" * UNIT, volume=1)
    tier.settle(volume=1)
    assert tier.media[1][:UNIT] == b"v" * UNIT


def test_a_forgotten_writer_gives_its_room_to_the_next() -> None:
    tier = Tier(frames=8, dirty_limit=1)
    dirty(tier, 1)
    first, second = waiter(), waiter()
    frames = [fresh_with(tier, extent * SLOT, b"q" * UNIT) for extent in (1, 2)]
    assert tier.publish(SLOT, UNIT, frames[0], first) == WAIT
    assert tier.publish(2 * SLOT, UNIT, frames[1], second) == WAIT
    tier.run()
    assert tier.woken() == [first]
    tier.forget(first)
    tier.release(frames[0])
    assert tier.woken() == [second]
    assert tier.publish(2 * SLOT, UNIT, frames[1], second) == DONE


# ---- volumes ----


@pytest.mark.parametrize(
    ("volume", "size", "block", "error"),
    [
        (0, SLOT, 512, EEXIST),
        (4, SLOT, 512, EINVAL),
        (1, SLOT + 100, 512, EINVAL),
        (1, SLOT, 500, EINVAL),
        (1, SLOT, 256, EINVAL),
        (1, 4 * SLOT, 2 * SLOT, EINVAL),
        (1, 2**63, 512, EINVAL),
    ],
)
def test_a_wrong_volume_is_refused(volume: int, size: int, block: int, error: int) -> None:
    tier = Tier()
    assert lib.ps_tier_volume_add(tier.tier, volume, size, block) == -error


def test_large_blocks_make_large_units() -> None:
    tier = Tier()
    tier.add_volume(1, 4 * SLOT, 4096)
    who = waiter()
    assert tier.read(0, 512, who, volume=1)[0] == WAIT
    (action,) = tier.actions()
    assert action.length == 4096
    tier.end(action)
    assert tier.residency(0, SLOT, volume=1) == (4096, 0)


def test_shrinking_drops_what_is_beyond_dirty_or_not() -> None:
    tier = Tier(size=4 * SLOT)
    dirty(tier, 3)
    assert lib.ps_tier_volume_resize(tier.tier, 0, SLOT) == 0
    tier.check()
    assert tier.unflushed() == UNIT
    who = waiter()
    assert tier.read(SLOT, UNIT, who)[0] == ERROR
    assert who.error == ERANGE
    assert lib.ps_tier_volume_resize(tier.tier, 0, 4 * SLOT) == 0
    assert tier.resident(SLOT, 3 * SLOT) == 0
    tier.settle()
    assert tier.medium[:UNIT] == b"d" * UNIT
    assert tier.medium[SLOT:] == bytes(3 * SLOT)


def test_shrinking_wakes_flushes_of_what_is_gone() -> None:
    tier = Tier(size=4 * SLOT)
    dirty(tier, 3)
    part, whole = waiter(), waiter()
    assert tier.flush(part, 2 * SLOT, UNIT) == WAIT
    assert tier.flush(whole) == WAIT
    assert lib.ps_tier_volume_resize(tier.tier, 0, 0) == 0
    assert set(tier.woken()) == {part, whole}
    assert tier.flush(part, 2 * SLOT, UNIT) == DONE
    assert tier.flush(whole) == DONE


def test_shrinking_within_an_extent_wakes_flushes_of_what_is_gone() -> None:
    tier = Tier(size=SLOT)
    tier.touch(0)
    tier.write(2 * UNIT, b"d" * UNIT)
    who = waiter()
    assert tier.flush(who, 2 * UNIT, UNIT) == WAIT
    assert lib.ps_tier_volume_resize(tier.tier, 0, UNIT) == 0
    tier.check()
    assert tier.woken() == [who]
    assert tier.flush(who, 2 * UNIT, UNIT) == DONE
    assert tier.resident(0) == UNIT


def test_after_a_shrink_and_a_growth_reads_wait_for_the_write_that_was_under_way() -> None:
    tier = Tier(size=4 * SLOT, writeback_age_ns=0)
    tier.write(SLOT, b"d" * UNIT)
    (write,) = tier.actions()
    assert lib.ps_tier_volume_resize(tier.tier, 0, SLOT) == 0
    assert lib.ps_tier_volume_resize(tier.tier, 0, 4 * SLOT) == 0
    who = waiter()
    assert tier.read(SLOT, UNIT, who)[0] == WAIT
    assert tier.hydrate(SLOT) == BUSY
    assert tier.actions() == []
    tier.complete(write)
    assert tier.woken() == [who]
    assert tier.read(SLOT, UNIT, who)[0] == WAIT
    assert [action.op for action in tier.actions()] == [READ]


def test_after_a_shrink_and_a_growth_reads_wait_for_the_read_that_was_under_way() -> None:
    tier = Tier(size=4 * SLOT)
    tier.touch(0)
    assert tier.hydrate(UNIT) == STARTED
    (old,) = tier.actions()
    assert lib.ps_tier_volume_resize(tier.tier, 0, UNIT) == 0
    assert lib.ps_tier_volume_resize(tier.tier, 0, 4 * SLOT) == 0
    who = waiter()
    assert tier.read(UNIT, UNIT, who)[0] == WAIT
    assert tier.actions() == [], "two reads into the same bytes of a frame could end in any order"
    tier.complete(old)
    assert tier.woken() == [who]
    assert tier.read_bytes(UNIT) == bytes(UNIT)
    assert tier.stats.fills == 3


def test_a_unit_that_a_growing_volume_completes_is_read_again() -> None:
    tier = Tier(size=512)
    tier.medium[:] = b"m" * 512
    who = waiter()
    assert tier.read(0, 512, who)[0] == WAIT
    (short,) = tier.actions()
    assert lib.ps_tier_volume_resize(tier.tier, 0, SLOT) == 0
    tier.medium.extend(b"g" * (SLOT - 512))
    tier.end(short)
    assert who in tier.woken()
    assert tier.read_bytes(0) == b"m" * 512 + b"g" * (UNIT - 512)


def test_what_was_beyond_the_end_is_zeros_when_a_fill_lands_around_a_write() -> None:
    tier = Tier(size=3 * UNIT + 512)
    size = len(tier.memory)
    ffi.memmove(tier.memory, b"o" * size, size)  # of who had the frames before
    tier.medium[:] = b"m" * (3 * UNIT + 512)
    who = waiter()
    assert tier.read(0, 3 * UNIT + 512, who)[0] == WAIT
    (fill,) = tier.actions()
    tier.write(UNIT, b"w" * UNIT)
    tier.end(fill)
    assert who in tier.woken()
    assert lib.ps_tier_volume_resize(tier.tier, 0, SLOT) == 0
    tier.medium.extend(bytes(SLOT - 3 * UNIT - 512))
    assert tier.read_bytes(3 * UNIT) == b"m" * 512 + bytes(UNIT - 512)


def test_the_cut_part_of_the_last_unit_is_zeros_after_growth() -> None:
    tier = Tier(size=SLOT)
    tier.write(0, b"d" * UNIT)
    assert lib.ps_tier_volume_resize(tier.tier, 0, 512) == 0
    assert lib.ps_tier_volume_resize(tier.tier, 0, SLOT) == 0
    assert tier.read_bytes(0) == b"d" * 512 + bytes(UNIT - 512)


def test_a_volume_is_busy_while_frames_are_pinned_or_work_is_under_way() -> None:
    tier = Tier()
    tier.touch(0)
    frame = pin(tier, 0)
    assert lib.ps_tier_volume_remove(tier.tier, 0) == -EBUSY
    tier.release(frame)
    who: Any = waiter()
    assert tier.read(SLOT, UNIT, who)[0] == WAIT
    assert lib.ps_tier_volume_remove(tier.tier, 0) == -EBUSY
    tier.run()
    dirty(tier, 2)
    flusher = waiter()
    assert tier.flush(flusher) == WAIT
    assert lib.ps_tier_volume_remove(tier.tier, 0) == 0
    tier.check()
    assert tier.stats.frames_free == 8
    assert flusher in tier.woken()
    assert tier.flush(flusher) == ERROR
    assert flusher.error == ENODEV
    assert lib.ps_tier_volume_remove(tier.tier, 0) == -ENODEV
    assert lib.ps_tier_volume_resize(tier.tier, 0, 512) == -ENODEV
    assert lib.ps_tier_volume_add(tier.tier, 0, SLOT, 512) == 0


def test_what_is_cleared_under_a_read_is_filled_in_another_frame() -> None:
    tier = Tier()
    tier.write(0, b"a" * SLOT)
    pinned = pin(tier, 0)
    word = waiter()
    assert lib.ps_tier_clear_begin(tier.tier, tier.now_ns, 0, 0, UNIT, word) == DONE
    lib.ps_tier_clear_end(tier.tier, tier.now_ns, 0, True)
    assert tier.read(0, UNIT, waiter())[0] == WAIT
    (fill,) = tier.actions()
    assert fill.op == READ
    assert fill.frame != pinned, "the bytes of the pinned frame may be on their way out"
