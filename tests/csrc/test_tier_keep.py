"""Keeps: what a hint wants to stay for a time, and what ends that."""

from __future__ import annotations

import pytest
from tier_support import (
    DATED,
    MS,
    NO_ROOM,
    SECOND,
    SLOT,
    STARTED,
    UNIT,
    WARM,
    Tier,
)

from prestage._core import ffi, lib

A, B = 1, 2


def tier_with_limit(limit: int, frames: int = 8) -> Tier:
    tier = Tier(frames=frames, dirty_limit=1, size=512 * SLOT)
    for tenant in range(8):
        lib.ps_tier_set_tenant(tier.tier, tenant, limit)
    return tier


def scan(tier: Tier, first: int, count: int, *, once: bool = False) -> None:
    """Let tenant B read `count` extents."""
    for extent in range(first, first + count):
        tier.now_ns += MS
        tier.touch(extent * SLOT, tenant=B, once=once)


def keep(tier: Tier, extent: int, seconds: int = 10, *, tenant: int = A) -> int:
    return tier.keep(extent * SLOT, SLOT, tier.now_ns + seconds * SECOND, tenant=tenant)


def test_a_kept_extent_survives_a_scan_of_one_time_reads_the_size_of_the_tier() -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    assert keep(tier, 0) == UNIT
    scan(tier, 100, 16, once=True)
    assert tier.resident(0) == UNIT


def test_a_kept_extent_survives_hints_and_reads_of_another_tenant() -> None:
    tier = tier_with_limit(8)
    for extent in range(8):
        tier.touch(extent * SLOT, tenant=A)
    assert keep(tier, 0) == UNIT
    for extent in range(100, 120):
        tier.now_ns += MS
        tier.prestage(extent * SLOT, tenant=B)
    scan(tier, 200, 20)
    assert tier.resident(0) == UNIT


def test_its_own_hints_do_not_evict_what_a_tenant_keeps() -> None:
    tier = tier_with_limit(4, frames=4)
    for extent in range(4):
        assert tier.prestage(extent * SLOT, tenant=A) == STARTED
        assert keep(tier, extent) == UNIT
    assert tier.hydrate(10 * SLOT, UNIT, DATED, tenant=A) == NO_ROOM


def test_a_kept_extent_is_as_any_other_when_its_time_is_over() -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    assert keep(tier, 0, 1) == UNIT
    scan(tier, 100, 16)
    assert tier.resident(0) == UNIT
    tier.now_ns += SECOND
    scan(tier, 200, 2)
    assert tier.tenant(A).hint_frames == 0
    assert tier.resident(0) == 0, "it was used before all others"


def test_an_extent_that_was_kept_becomes_what_it_was_before() -> None:
    tier = tier_with_limit(2, frames=4)
    values = [1000.0 if value_class == 3 else 1.0 for value_class in range(64) for _ in range(64)]
    lib.ps_tier_set_values(tier.tier, ffi.new("float[]", values))
    tier.touch(0, tenant=A)
    tier.touch(0, tenant=A)  # read again: the dear class
    assert keep(tier, 0, 1) == UNIT
    tier.now_ns += 2 * SECOND
    scan(tier, 100, 16)
    assert tier.resident(0) == UNIT


def test_demand_takes_kept_frames_when_there_are_no_others() -> None:
    tier = tier_with_limit(4, frames=4)
    for extent in range(4):
        tier.prestage(extent * SLOT, tenant=A)
        assert keep(tier, extent) == UNIT
    scan(tier, 100, 1)
    assert tier.tenant(A).hint_frames == 3
    scan(tier, 101, 1)
    assert tier.tenant(A).hint_frames == 2, "what is beyond its share goes for another's share"
    scan(tier, 102, 1)
    assert tier.tenant(A).hint_frames == 2, "within its share it stays"
    tier.write(200 * SLOT, b"w" * UNIT, tenant=B)
    assert tier.tenant(A).hint_frames == 2, "the frame that was read goes before what is kept"
    tier.settle()


def test_who_keeps_everything_leaves_another_tenant_its_share() -> None:
    tier = tier_with_limit(64, frames=64)
    for extent in range(64):
        tier.prestage(extent * SLOT, tenant=A)
        assert keep(tier, extent, 1000) == UNIT
    for _ in range(2):
        scan(tier, 100, 32)
    assert tier.tenant(A).hint_frames == 32
    assert all(tier.resident((100 + extent) * SLOT) == UNIT for extent in range(32))
    scan(tier, 200, 64)
    assert tier.tenant(A).hint_frames == 32


def test_many_keeps_that_end_together_end_a_few_a_call() -> None:
    tier = tier_with_limit(100, frames=128)
    for extent in range(100):
        tier.touch(extent * SLOT, tenant=A)
        assert keep(tier, extent, 100) == UNIT
    tier.now_ns += 200 * SECOND
    tier.touch(0, tenant=A)
    assert 0 < tier.tenant(A).hint_frames < 100
    for _ in range(20):
        tier.touch(0, tenant=A)
    assert tier.tenant(A).hint_frames == 0


def test_a_keep_is_charged_to_the_hint_limit_of_who_keeps() -> None:
    tier = tier_with_limit(2)
    for extent in range(3):
        tier.touch(extent * SLOT, tenant=B)
    assert [keep(tier, extent) for extent in range(3)] == [UNIT, UNIT, 0]
    assert (tier.tenant(A).hint_frames, tier.tenant(A).frames) == (2, 0)
    assert (tier.tenant(B).hint_frames, tier.tenant(B).frames) == (0, 3)
    assert keep(tier, 0, 20) == UNIT, "what is kept already costs nothing"
    assert tier.hydrate(10 * SLOT, tenant=A) == NO_ROOM


def test_what_is_unread_and_kept_counts_once() -> None:
    tier = tier_with_limit(1)
    until_ns = tier.now_ns + SECOND
    assert tier.prestage(0, tenant=A, keep_until_ns=until_ns) == STARTED
    assert tier.tenant(A).hint_frames == 1
    tier.touch(0, tenant=A)
    assert tier.tenant(A).hint_frames == 1, "it is still kept"
    tier.now_ns = until_ns
    tier.touch(0, tenant=A)
    assert tier.tenant(A).hint_frames == 0


def test_an_unread_extent_whose_keep_is_over_still_counts() -> None:
    tier = tier_with_limit(2)
    tier.prestage(0, tenant=A, keep_until_ns=tier.now_ns + SECOND)
    tier.now_ns += 2 * SECOND
    tier.touch(SLOT, tenant=B)
    assert tier.tenant(A).hint_frames == 1


def test_a_hydrate_of_what_is_warm_keeps_it_as_asked() -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    assert tier.hydrate(0, tenant=A, keep_until_ns=tier.now_ns + 10 * SECOND) == WARM
    assert tier.hydrate(0, tenant=A) == WARM, "one that keeps nothing ends no keep"
    scan(tier, 100, 16)
    assert tier.resident(0) == UNIT


def test_of_several_times_the_latest_counts_and_a_past_one_ends_the_keep() -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    assert keep(tier, 0, 10) == UNIT
    assert keep(tier, 0, 1) == UNIT
    tier.now_ns += 5 * SECOND
    tier.touch(SLOT, tenant=B)
    assert tier.tenant(A).hint_frames == 1
    assert tier.keep(0, SLOT, tier.now_ns, tenant=A) == 0
    assert tier.tenant(A).hint_frames == 0


def test_another_tenant_can_neither_end_nor_take_over_a_keep() -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    assert keep(tier, 0, 10, tenant=A) == UNIT
    assert keep(tier, 0, 5, tenant=B) == UNIT, "it is kept that long"
    assert keep(tier, 0, 20, tenant=B) == 0
    assert tier.keep(0, SLOT, 0, tenant=B) == 0
    assert (tier.tenant(A).hint_frames, tier.tenant(B).hint_frames) == (1, 0)


def test_a_keep_says_how_many_bytes_of_the_range_are_there() -> None:
    tier = tier_with_limit(2)
    assert keep(tier, 0) == 0
    tier.touch(0, tenant=A)
    tier.touch(2 * UNIT, tenant=A)
    until_ns = tier.now_ns + SECOND
    assert tier.keep(0, SLOT, until_ns, tenant=A) == 2 * UNIT
    assert tier.keep(100, UNIT, until_ns, tenant=A) == UNIT - 100
    assert tier.keep(UNIT, UNIT, until_ns, tenant=A) == 0
    assert tier.keep(SLOT - 512, 1024, until_ns, tenant=A) == 0, "not within one extent"
    assert tier.keep(512 * SLOT, 512, until_ns, tenant=A) == 0


@pytest.mark.parametrize("length", [UNIT, SLOT])
def test_a_keep_outlasts_writes_even_when_they_come_in_another_frame(length: int) -> None:
    tier = tier_with_limit(2)
    tier.write(0, b"o" * UNIT, tenant=A)
    assert keep(tier, 0) == UNIT, "what is not written back yet can be kept"
    tier.write(0, b"n" * length, tenant=A)
    tier.settle()
    scan(tier, 100, 16)
    assert tier.resident(0) == length
    assert tier.read_bytes(0) == b"n" * UNIT


def test_a_keep_ends_with_what_it_keeps() -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    assert keep(tier, 0) == UNIT
    assert lib.ps_tier_volume_resize(tier.tier, 0, 0) == 0
    tier.check()
    assert (tier.tenant(A).hint_frames, tier.tenant(A).frames) == (0, 0)


def keep_for(tier: Tier, extent: int, cookie: int, seconds: int = 1000, tenant: int = A) -> int:
    """Have the tenant keep an extent for one use."""
    until_ns = tier.now_ns + seconds * SECOND
    return tier.keep(extent * SLOT, SLOT, until_ns, tenant=tenant, cookie=cookie)


def test_the_keeps_of_a_cookie_end_with_it_and_no_others() -> None:
    tier = tier_with_limit(8)
    for extent in range(6):
        tier.touch(extent * SLOT, tenant=B)
        assert keep_for(tier, extent, 7 + extent % 2) == UNIT
    tier.end_keeps(9)
    assert tier.tenant(A).hint_frames == 6
    tier.end_keeps(7)
    assert tier.tenant(A).hint_frames == 3
    scan(tier, 100, 16)
    assert [tier.resident(extent * SLOT) for extent in range(6)] == [0, UNIT] * 3


def test_a_cookie_that_was_ended_may_keep_again() -> None:
    tier = tier_with_limit(8)
    tier.touch(0, tenant=A)
    for _ in range(3):
        assert keep_for(tier, 0, 7) == UNIT
        assert tier.tenant(A).hint_frames == 1
        tier.end_keeps(7)
        assert tier.tenant(A).hint_frames == 0


def test_the_keeps_of_one_cookie_end_a_few_a_call_and_make_way_at_once() -> None:
    tier = tier_with_limit(100, frames=128)
    for extent in range(100):
        tier.touch(extent * SLOT, tenant=A)
        assert keep_for(tier, extent, 7) == UNIT
    tier.end_keeps(7)
    assert 80 < tier.tenant(A).hint_frames < 100
    assert keep_for(tier, 99, 8, 10) == UNIT, "a shorter one, of somebody else"
    for _ in range(20):
        tier.touch(100 * SLOT, tenant=B)
    assert tier.tenant(A).hint_frames == 1
    assert keep_for(tier, 99, 9, 5, tenant=B) == 0, "another tenant's for one use is no promise"


def test_a_read_of_the_tenant_ends_what_was_kept_for_it() -> None:
    tier = tier_with_limit(8)
    until_ns = tier.now_ns + 1000 * SECOND
    for extent in range(3):
        tier.prestage(extent * SLOT, tenant=A, cookie=7, keep_until_ns=until_ns)
    tier.touch(0, tenant=B)
    assert tier.tenant(A).hint_frames == 3, "somebody else has read it"
    tier.touch(0, tenant=A)
    tier.touch(SLOT, tenant=A)
    assert tier.tenant(A).hint_frames == 1


def test_a_read_that_warms_nothing_leaves_the_rest_of_an_extent_to_its_keep() -> None:
    tier = tier_with_limit(8)
    until_ns = tier.now_ns + 1000 * SECOND
    tier.prestage(0, SLOT, tenant=A, cookie=7, keep_until_ns=until_ns)
    for offset in range(0, SLOT, UNIT):
        assert tier.tenant(A).hint_frames == 1
        tier.touch(offset, tenant=A, once=True)
    assert tier.tenant(A).hint_frames == 0


@pytest.mark.parametrize("is_retained_first", [False, True])
def test_what_is_retained_is_kept_after_its_use(is_retained_first: bool) -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    if is_retained_first:
        assert keep(tier, 0, 10) == UNIT
    assert keep_for(tier, 0, 7) == UNIT
    if not is_retained_first:
        assert keep(tier, 0, 10) == UNIT
    tier.touch(0, tenant=A)
    tier.end_keeps(7)
    assert tier.tenant(A).hint_frames == 1
    tier.now_ns += 10 * SECOND
    scan(tier, 100, 1)
    assert tier.tenant(A).hint_frames == 0


def test_a_keep_goes_with_its_extent_to_another_frame() -> None:
    tier = tier_with_limit(2)
    tier.touch(0, tenant=A)
    assert keep_for(tier, 0, 7) == UNIT
    _, pinned = tier.read(0, UNIT, tenant=B)
    tier.write(0, b"w" * UNIT, tenant=B)
    tier.release(pinned)
    assert tier.tenant(A).hint_frames == 1
    tier.end_keeps(7)
    assert tier.tenant(A).hint_frames == 0
    tier.settle()
