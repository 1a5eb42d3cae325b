"""Reads that predict: what follows them, and the rest of an ordered set."""

from __future__ import annotations

import pytest
from hints_media import BLOCK, PER_SLOT, SLOT, slots
from hints_support import Rig

from prestage._core import lib
from prestage.ext.names import CancelWhat, SetFlag, SetOp
from prestage.ext.records import Cancel, Range, SetRecord

READAHEAD: int = lib.PS_FACT_READAHEAD
ONCE: int = lib.PS_FACT_ONCE
SEQUENTIAL: int = lib.PS_FACT_SEQUENTIAL
ORDER = (30, 5, 22, 41, 2)


def ordered(*ranges: int, number: int = 1, flags: SetFlag = SetFlag.ORDERED) -> SetRecord:
    """Return an ordered set of whole extents of namespace 1."""
    return SetRecord(number, 1, tuple(Range(*slots(at)) for at in ranges), flags=flags)


@pytest.mark.parametrize("flag", [READAHEAD, SEQUENTIAL])
def test_what_follows_such_a_read_is_brought_in(flag: int) -> None:
    rig = Rig()
    rig.touch(3 * SLOT, flags=flag)
    rig.run()
    assert rig.warm_slots() == list(range(4, 12))
    assert rig.stats().follows == 1


def test_a_stream_brings_in_the_end_of_a_volume_that_is_no_whole_extent() -> None:
    rig = Rig()
    assert rig.sizes[0] % SLOT != 0
    rig.touch(61 * SLOT, flags=READAHEAD)
    rig.run()
    first = 62 * PER_SLOT
    rest = rig.sizes[0] // BLOCK - first
    assert rig.residency(first, rest).warm_bytes == rest * BLOCK
    assert rig.residency(0, first).warm_bytes == 0
    rig.touch(rig.sizes[0] - BLOCK, BLOCK, flags=READAHEAD)
    rig.run()
    assert rig.stats().follows == 1, "nothing follows the last block"


def test_a_stream_does_not_follow_beyond_the_end_of_a_volume_that_has_shrunk() -> None:
    rig = Rig()
    rig.touch(61 * SLOT, flags=READAHEAD, volume_bytes=32 * SLOT)
    assert rig.stats().follows == 0


@pytest.mark.parametrize("flag", [0, ONCE])
def test_after_other_reads_nothing_is(flag: int) -> None:
    rig = Rig()
    rig.touch(3 * SLOT, flags=flag)
    rig.run()
    assert rig.warm_slots() == []


def test_a_stream_that_goes_on_has_one_job() -> None:
    rig = Rig()
    for at in range(4):
        rig.touch(at * SLOT, flags=READAHEAD)
    assert rig.stats().follows == 1
    rig.run()
    assert rig.warm_slots() == list(range(4, 12))


def test_a_stream_elsewhere_takes_the_job_along() -> None:
    rig = Rig()
    rig.touch(0, flags=READAHEAD)
    rig.touch(40 * SLOT, flags=READAHEAD)
    rig.run()
    assert rig.warm_slots() == list(range(41, 49))
    assert rig.stats().follows == 1


def test_streams_of_tenants_and_volumes_are_their_own() -> None:
    rig = Rig()
    rig.touch(0, flags=READAHEAD)
    rig.touch(40 * SLOT, flags=READAHEAD, tenant=1)
    rig.touch(20 * SLOT, flags=READAHEAD, volume=1)
    rig.run()
    assert rig.warm_slots() == [*range(1, 9), *range(41, 49)]
    assert rig.warm_slots(volume=1) == list(range(21, 29))


def test_a_stream_ends_with_the_volume() -> None:
    rig = Rig()
    rig.touch(60 * SLOT, flags=READAHEAD)
    rig.run()
    assert rig.warm_slots() == [61, 62, 63]


def test_a_read_of_an_ordered_set_brings_in_the_rest() -> None:
    rig = Rig()
    rig.submit(ordered(*ORDER))
    rig.touch(5 * SLOT)
    rig.run()
    assert rig.warm_slots() == sorted([22, 41, 2])


def test_of_a_range_that_is_read_in_part_the_rest_comes_too() -> None:
    rig = Rig()
    rig.submit(SetRecord(1, 1, (Range(*slots(8, 4)), Range(*slots(20))), flags=SetFlag.ORDERED))
    rig.touch(9 * SLOT)
    rig.run()
    assert rig.warm_slots() == [10, 11, 20]


def test_a_read_that_covers_the_last_range_brings_in_nothing() -> None:
    rig = Rig()
    rig.submit(ordered(*ORDER))
    rig.touch(2 * SLOT)
    rig.run()
    assert rig.warm_slots() == []


def test_sets_that_are_not_ordered_are_not_followed() -> None:
    rig = Rig()
    rig.submit(ordered(*ORDER, flags=SetFlag.NONE))
    rig.touch(5 * SLOT)
    rig.run()
    assert rig.warm_slots() == []


def test_sets_of_dataset_management_are_followed() -> None:
    rig = Rig()
    rig.dataset(1, slots(30), slots(5), slots(22))
    rig.touch(30 * SLOT)
    rig.run()
    assert rig.warm_slots() == [5, 22]


def test_sets_of_another_tenant_are_not_followed() -> None:
    rig = Rig()
    rig.submit(ordered(*ORDER), tenant=1)
    rig.touch(5 * SLOT, tenant=0)
    rig.run()
    assert rig.warm_slots() == []


def test_a_set_is_followed_once_until_it_is_through() -> None:
    rig = Rig()
    rig.submit(ordered(*ORDER))
    for at in ORDER:
        rig.touch(at * SLOT)
        rig.run()
    assert rig.stats().follows == 1
    rig.touch(30 * SLOT)
    assert rig.stats().follows == 2


def test_progress_goes_along_with_the_reads() -> None:
    rig = Rig()
    rig.submit(ordered(*ORDER))
    rig.touch(30 * SLOT)
    rig.touch(22 * SLOT)
    rig.run()
    assert rig.warm_slots() == sorted([41, 2])
    assert rig.stats().follows == 1


def test_a_set_that_is_read_again_is_followed_again() -> None:
    rig = Rig()
    rig.submit(SetRecord(1, 1, (Range(*slots(10, 20)),), flags=SetFlag.ORDERED))
    rig.touch(10 * SLOT)
    rig.run()
    rig.touch(11 * SLOT)
    assert rig.stats().follows == 1
    rig.touch(10 * SLOT)
    assert rig.stats().follows == 2


@pytest.mark.parametrize("op", [SetOp.DEFINE, SetOp.DROP])
def test_a_set_that_goes_takes_its_job_along(op: SetOp) -> None:
    rig = Rig()
    rig.submit(ordered(*ORDER))
    rig.touch(30 * SLOT)
    ranges = () if op == SetOp.DROP else (Range(*slots(50)),)
    rig.submit(SetRecord(1, 1, ranges, op=op))
    rig.run()
    assert rig.warm_slots() == []


def test_what_is_appended_is_followed_too() -> None:
    rig = Rig()
    rig.submit(ordered(30, 5))
    rig.touch(30 * SLOT)
    rig.run()
    rig.submit(SetRecord(1, 1, (Range(*slots(50)),), op=SetOp.EXTEND))
    rig.touch(5 * SLOT)
    rig.run()
    assert rig.warm_slots() == [5, 50]


LARGE = 1 << 31
INSIDE = (1000, 2040, 2047, 2048, 2055, 8192, 100_000, 8192 + LARGE - 2)
OUTSIDE = (999, 1001, 2039, 2056, 8191, 8192 + LARGE - 1)


@pytest.mark.parametrize("block", [*INSIDE, *OUTSIDE])
def test_a_range_of_any_size_is_found_wherever_it_is_read(block: int) -> None:
    rig = Rig()
    rig.add_volume(2, 2 << 40)
    rig.namespaces[0, 3] = 2
    firsts = (Range(1000, 1), Range(8192, LARGE - 1), Range(2040, 16))
    last = Range(LARGE + 100_000, 1)
    rig.submit(
        *(
            SetRecord(number, 3, (first, last), flags=SetFlag.ORDERED)
            for number, first in enumerate(firsts, 1)
        )
    )
    rig.touch(block * 512, 512, volume=2)
    assert rig.stats().follows == (1 if block in INSIDE else 0)


def test_a_read_over_the_edge_of_a_region_is_found_by_its_beginning() -> None:
    rig = Rig()
    edge = (1 << 20) // SLOT
    rig.add_volume(2, 4 << 20)
    rig.namespaces[0, 3] = 2
    rig.submit(
        SetRecord(
            1, 3, (Range((edge - 1) * PER_SLOT, PER_SLOT), Range(0, 8)), flags=SetFlag.ORDERED
        )
    )
    rig.touch((edge - 1) * SLOT, 2 * SLOT, volume=2)
    assert rig.stats().follows == 1


def test_without_room_a_follower_just_ends() -> None:
    rig = Rig(budget={"tier_bytes": 0})
    rig.touch(0, flags=READAHEAD)
    rig.run()
    assert rig.warm_slots() == []
    rig.touch(0, flags=READAHEAD)
    assert rig.stats().follows == 2


def test_one_tenant_has_a_bounded_number_of_jobs() -> None:
    rig = Rig(budget={"sets": 500, "set_ranges": 1000})
    rig.add_volume(2, 1 << 30)
    rig.namespaces[0, 3] = 2
    for number in range(1, 151):
        ranges = (Range(number * 2048, 1), Range(0, 1))
        rig.submit(SetRecord(number, 3, ranges, flags=SetFlag.ORDERED))
    for number in range(1, 151):
        rig.touch(number << 20, 512, volume=2)
    assert rig.stats().follows == 128
    rig.touch(0, flags=READAHEAD, tenant=1)
    assert rig.stats().follows == 129


def test_cancel_everything_and_a_volume_that_goes_end_the_jobs() -> None:
    rig = Rig()
    rig.touch(0, flags=READAHEAD)
    rig.touch(0, flags=READAHEAD, tenant=1)
    rig.touch(0, flags=READAHEAD, tenant=1, volume=1)
    rig.submit(Cancel(CancelWhat.EVERYTHING))
    rig.remove_volume(0)
    rig.run()
    assert rig.warm_slots(volume=1) == list(range(1, 9))


def test_a_touch_of_a_volume_that_is_gone_is_nothing() -> None:
    rig = Rig()
    rig.remove_volume(0)
    rig.touch(0, flags=READAHEAD)
    assert rig.stats().follows == 0


def test_followers_come_after_everything_else() -> None:
    rig = Rig()
    rig.touch(0, flags=READAHEAD)
    rig.start()
    assert {each.urgency for each in rig.operations} == {lib.PS_TIER_SPECULATIVE}
    assert {each.cookie for each in rig.operations} == {0}
