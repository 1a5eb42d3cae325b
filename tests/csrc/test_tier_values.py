"""The value tables: what is evicted by class and age, and who hears of it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from tier_support import DATED, MS, NO_ROOM, SECOND, SLOT, SPECULATIVE, STARTED, UNIT, WAIT, Tier
from tier_support import waiter as new_waiter

from prestage._core import ffi, lib
from prestage.target.ring import FactFlag, FactKind, RingReader

A, B = 1, 2
OURS, OTHERS = 8, 9  # classes of the model's
READ, READ_AGAIN, WRITTEN, ONCE = 2, 3, 4, 1


class Told:
    """A tier of four frames and what its ring tells of evictions."""

    def __init__(self, frames: int = 4, size: int = 512 * SLOT) -> None:
        self.ring = ffi.gc(lib.ps_ring_new(256), lib.ps_ring_free)
        self.reader = RingReader(lib.ps_ring_fd(self.ring))
        self.tier = Tier(frames=frames, dirty_limit=1, size=size, ring=self.ring)
        lib.ps_tier_set_tenant(self.tier.tier, A, frames)

    def take(self) -> list[NDArray[np.void]]:
        """Return copies of the facts that are new."""
        facts = [fact.copy() for part in self.reader.take() for fact in part]
        self.reader.release()
        return facts

    def evicted(self) -> list[int]:
        """Return the extents that were evicted since the last call."""
        facts = self.take()
        assert all(fact["kind"] == FactKind.EVICTED for fact in facts)
        return [int(fact["offset"]) // SLOT for fact in facts]

    def evict(self, extent: int = 500) -> list[int]:
        """Read an extent that is not there, and return what went for it."""
        self.tier.touch(extent * SLOT, tenant=B)
        return self.evicted()

    def classes(self, *extents: int) -> list[int]:
        """Return the classes of these extents, by evicting everything."""
        found: dict[int, int] = {}
        for extent in range(100, 100 + 2 * self.tier.config.frame_count):
            self.tier.now_ns += 10 * MS
            self.tier.touch(extent * SLOT)
            found |= {int(fact["offset"]) // SLOT: int(fact["aux"]) for fact in self.take()}
        return [found[extent] for extent in extents]


@pytest.fixture
def told() -> Iterator[Told]:
    made = Told()
    yield made
    made.reader.close()


def read_in(told: Told, *extents: int, every_ns: int = MS) -> None:
    for extent in extents:
        told.tier.now_ns += every_ns
        told.tier.touch(extent * SLOT, tenant=A)


# ---- values by age ----


def test_what_was_just_read_may_be_worth_less_than_what_was_read_long_ago(told: Told) -> None:
    told.tier.set_values({READ: float})
    read_in(told, 0, 1, 2, 3, every_ns=10 * SECOND)
    assert told.evict() == [3]
    told.tier.now_ns += 10 * SECOND
    read_in(told, 4, every_ns=0)
    assert told.evicted() == [500]


def test_a_class_is_worth_most_in_the_middle_of_its_ages(told: Told) -> None:
    peak = 20  # ages from 1.024 s
    told.tier.set_values({READ: lambda bin_: -abs(bin_ - peak)})
    read_in(told, 0)
    told.tier.now_ns += 60 * SECOND
    read_in(told, 1, 2)
    told.tier.now_ns += SECOND
    read_in(told, 3)
    told.tier.now_ns += 200 * MS
    assert told.evict() == [0], "the oldest is the farthest from the peak"
    told.tier.now_ns += 300 * MS
    assert told.evict(501) == [500], "then it is the youngest"


@pytest.mark.parametrize("bin_", [*range(1, 34), 50, 62, 63])
def test_ages_are_in_half_octave_bins(told: Told, bin_: int) -> None:
    """At the first tick within a bin it is worth what the table says of the bin."""
    begin_ms = 2 ** (bin_ // 2) * (1.5 if bin_ % 2 else 1.0)
    begin_ns = int(begin_ms * MS) if bin_ > 1 else (1500_000 if bin_ == 1 else 0)
    told.tier.set_values({OURS: lambda at: -1.0 if at == bin_ else 1000.0, READ: lambda at: 0.0})
    tick = 1 << 20
    told.tier.now_ns = (told.tier.now_ns >> 20 << 20) + 5 * tick
    read_in(told, 0, 1, 2, 3, every_ns=0)
    ticks = -(-begin_ns // tick)
    told.tier.classify(0, SLOT, OURS, (ticks - 1) * tick)
    told.tier.now_ns = (told.tier.now_ns >> 20 << 20) + begin_ns - (ticks - 1) * tick - 1
    assert told.evict() != [0], "not yet"
    told.tier.now_ns += 1
    assert told.evict(501) == [0]


def test_of_equal_values_what_was_used_longest_ago_goes_whatever_its_class(told: Told) -> None:
    told.tier.set_values({name: lambda bin_: 1.0 for name in range(64)})
    read_in(told, 0, 1, 2, 3)
    told.tier.classify(SLOT, SLOT, OTHERS, 50 * MS)
    told.tier.classify(2 * SLOT, SLOT, OURS, 90 * MS)
    assert told.evict() == [2]
    assert told.evict(501) == [1]
    assert told.evict(502) == [0]


def test_nan_counts_as_zero(told: Told) -> None:
    told.tier.set_values({OURS: lambda bin_: math.nan, READ: lambda bin_: 1.0})
    read_in(told, 0, 1, 2, 3)
    told.tier.classify(2 * SLOT, SLOT, OURS)
    assert told.evict() == [2]
    told.tier.set_values({OURS: lambda bin_: math.nan, READ: lambda bin_: -1.0})
    told.tier.classify(0, SLOT, OURS)
    assert told.evict(501) == [1]


def test_values_of_a_new_table_count_at_once(told: Told) -> None:
    read_in(told, 0, 1, 2, 3)
    told.tier.classify(3 * SLOT, SLOT, OURS)
    told.tier.set_values({OURS: lambda bin_: -1.0})
    assert told.evict() == [3]


def test_many_extents_that_a_new_table_cuts_apart_are_moved_over_several_evictions() -> None:
    told = Told(frames=512, size=2048 * SLOT)
    for extent in range(512):
        told.tier.now_ns += 10 * MS
        told.tier.touch(extent * SLOT)
    rng = random.Random(1)
    edge = 21  # ages from 1.5 s: all but the last 150 are older, and worth more
    told.tier.set_values({READ: lambda bin_: 1.0 if bin_ < edge else 2.0})
    gone = [at for i in range(60) for at in told.evict(1000 + i)]
    assert len(gone) == 60
    settled = gone[20:]
    assert min(settled) >= 512 - 151, f"{settled}"
    assert settled == sorted(settled), "of these the one used longest ago goes first"
    extra = rng.randrange(1500, 2000)
    assert told.evict(extra) == [settled[-1] + 1]
    told.reader.close()


# ---- classes ----


def test_reads_and_writes_make_classes_the_tiers_own_again(told: Told) -> None:
    read_in(told, 0, 1, 2, 3)
    assert told.tier.classify(0, 4 * SLOT, OURS) == 4
    told.tier.touch(SLOT)
    told.tier.write(2 * SLOT, b"x" * UNIT)
    told.tier.settle()
    told.tier.touch(3 * SLOT, once=True)
    assert told.classes(0, 1, 2, 3) == [OURS, READ_AGAIN, WRITTEN, OURS]


def test_a_class_that_is_said_while_a_read_waits_stays_through_that_read(told: Told) -> None:
    """The model hears of a miss when it begins, and answers before the data is there."""
    slow = new_waiter()
    assert told.tier.read(0, UNIT, slow, tenant=A)[0] == WAIT
    assert told.tier.classify(0, SLOT, OURS) == 1
    told.tier.run()
    assert told.tier.woken() == [slow]
    told.tier.touch(0, tenant=A, is_again=True)
    assert told.classes(0) == [OURS]


def test_a_read_of_what_had_to_be_brought_in_for_it_is_class_2_or_what_it_was(told: Told) -> None:
    read_in(told, 0, 1)
    told.tier.classify(0, SLOT, OURS)
    for extent in (0, 1):
        told.tier.touch(extent * SLOT + UNIT)  # of the same extent, and not there
    assert told.classes(0, 1) == [OURS, READ]


def test_the_class_of_a_hydrate_stays_through_the_first_read_and_no_further(told: Told) -> None:
    for extent in (0, 1, 2):
        assert told.tier.prestage(extent * SLOT, value_class=OURS, tenant=A) == STARTED
    told.tier.touch(SLOT, tenant=A)
    told.tier.touch(2 * SLOT, tenant=A)
    told.tier.touch(2 * SLOT, tenant=A)
    assert told.classes(0, 1, 2) == [OURS, OURS, READ_AGAIN]


def test_a_late_read_of_a_hydrate_leaves_it_its_class(told: Told) -> None:
    slow = new_waiter()
    assert told.tier.hydrate(0, value_class=OURS, tenant=A) == STARTED
    assert told.tier.read(0, UNIT, slow, tenant=A)[0] == WAIT
    told.tier.run()
    assert told.tier.woken() == [slow]
    told.tier.touch(0, tenant=A, is_again=True)
    assert told.classes(0) == [OURS]


def test_a_hydrate_read_once_by_its_tenant_is_used_up_whatever_its_class(told: Told) -> None:
    told.tier.prestage(0, value_class=OURS, tenant=A)
    told.tier.prestage(SLOT, value_class=OURS, tenant=A)
    told.tier.touch(0, tenant=A, once=True)
    told.tier.touch(SLOT, tenant=B, once=True)
    assert told.classes(0, 1) == [ONCE, OURS]


def test_an_unread_extent_that_is_classified_keeps_that_class_through_its_first_read(
    told: Told,
) -> None:
    told.tier.prestage(0, tenant=A)
    assert told.tier.classify(0, SLOT, OTHERS) == 1
    told.tier.touch(0, tenant=A)
    assert told.classes(0) == [OTHERS]


def test_what_is_warm_already_keeps_its_class_when_it_is_hydrated(told: Told) -> None:
    read_in(told, 0)
    told.tier.prestage(0, 2 * UNIT, value_class=OURS, tenant=A)
    assert told.classes(0) == [READ]


def test_a_kept_extent_is_of_its_new_class_when_its_time_is_over(told: Told) -> None:
    read_in(told, 0, 1, 2, 3)
    assert told.tier.keep(0, SLOT, told.tier.now_ns + SECOND, tenant=A) == UNIT
    told.tier.set_values({OURS: lambda bin_: -1.0})
    told.tier.classify(0, SLOT, OURS)
    assert told.evict() == [1]
    told.tier.now_ns += 2 * SECOND
    assert told.evict(501) == [0]


def test_classify_finds_what_is_resident_of_any_range(told: Told) -> None:
    read_in(told, 0, 2, 3)
    tier = told.tier
    assert tier.classify(0, 512 * SLOT, OURS) == 3
    assert tier.classify(0, 2**64 - 1, OURS) == 3
    assert tier.classify(3 * SLOT - 1, 2, OURS) == 2
    assert tier.classify(SLOT, SLOT, OURS) == 0
    assert tier.classify(0, 0, OURS) == 0
    assert tier.classify(512 * SLOT, SLOT, OURS) == 0
    assert tier.classify(2**64 - 1, 2**64 - 1, OURS) == 0
    assert tier.classify(0, SLOT, OURS, volume=1) == 0
    assert tier.classify(0, SLOT, OURS, volume=4000) == 0


def test_classify_looks_at_so_many_extents_and_no_more() -> None:
    told = Told(size=5000 * SLOT)
    read_in(told, 0, 4095, 4096)
    assert told.tier.classify(0, 5000 * SLOT, OURS) == 2
    assert told.tier.classify(SLOT, 5000 * SLOT, OURS) == 2
    told.reader.close()


@pytest.mark.parametrize("age_ns", [2**63, 2**64 - 1])
def test_an_age_beyond_all_bins_is_of_the_oldest(told: Told, age_ns: int) -> None:
    told.tier.set_values({OURS: lambda bin_: -1.0 if bin_ == 63 else 1000.0})
    read_in(told, 0, 1, 2, 3)
    told.tier.classify(2 * SLOT, SLOT, OURS, age_ns)
    assert told.evict() == [2]


# ---- speculation ----


def test_speculation_evicts_only_what_is_worth_less_than_its_value(told: Told) -> None:
    told.tier.set_values({READ: lambda bin_: 5.0, OURS: lambda bin_: 7.0})
    read_in(told, 0, 1, 2, 3)
    told.tier.classify(2 * SLOT, SLOT, OURS)

    def speculate(value: float) -> int:
        result = told.tier.hydrate(
            200 * SLOT, urgency=SPECULATIVE, tenant=A, value=value, value_class=OURS
        )
        told.tier.run()
        return result

    assert speculate(4.9) == NO_ROOM
    assert speculate(5.0) == NO_ROOM
    assert told.evicted() == []
    assert speculate(5.1) == STARTED
    assert told.evicted() == [0]


def test_a_hint_with_a_deadline_has_no_such_limit(told: Told) -> None:
    told.tier.set_values({READ: lambda bin_: 5.0})
    read_in(told, 0, 1, 2, 3)
    assert told.tier.hydrate(200 * SLOT, urgency=DATED, tenant=A, value=1.0) == STARTED


def test_at_its_limit_a_hint_takes_what_is_unread_of_any_class(told: Told) -> None:
    lib.ps_tier_set_tenant(told.tier.tier, A, 2)
    told.tier.set_values({OURS: lambda bin_: 9.0, OTHERS: lambda bin_: 8.0})
    told.tier.prestage(0, value_class=OURS, tenant=A)
    told.tier.prestage(SLOT, value_class=OTHERS, tenant=A)
    told.tier.prestage(2 * SLOT, value_class=OURS, tenant=A)
    assert told.evicted() == [1]


# ---- who hears of it ----


def test_the_ring_tells_of_each_eviction_and_of_what_nobody_had_read(told: Told) -> None:
    tier = told.tier
    tier.now_ns = 10 * SECOND
    tier.prestage(0, value_class=OURS, tenant=A)
    tier.prestage(SLOT, value_class=OURS, tenant=A)
    tier.touch(SLOT, tenant=B)
    tier.now_ns += 3 * SECOND
    for extent in (10, 11, 12, 13):
        tier.touch(extent * SLOT, tenant=B)
    first, second = told.take()
    assert [int(fact["offset"]) for fact in (first, second)] == [0, SLOT]
    assert {int(fact["length"]) for fact in (first, second)} == {SLOT}
    assert {int(fact["aux"]) for fact in (first, second)} == {OURS}
    assert {int(fact["tenant"]) for fact in (first, second)} == {A}
    assert {int(fact["time_ns"]) for fact in (first, second)} == {13 * SECOND}
    assert all(abs(int(fact["value"]) - 3 * SECOND) <= 2 * MS for fact in (first, second))
    assert [int(fact["flags"]) for fact in (first, second)] == [FactFlag.UNREAD, 0]


def test_the_last_extent_is_told_of_with_the_bytes_that_it_has() -> None:
    told = Told(size=SLOT + 3 * UNIT)
    told.tier.add_volume(1, 100 * SLOT)
    read_in(told, 1)
    for extent in range(4):
        told.tier.touch(extent * SLOT, volume=1)
    (fact,) = told.take()
    assert (int(fact["offset"]), int(fact["length"]), int(fact["volume"])) == (SLOT, 3 * UNIT, 0)
    told.reader.close()


def test_what_goes_with_its_bytes_is_no_eviction(told: Told) -> None:
    read_in(told, 1, 2, 3)
    told.tier.write(SLOT, b"y" * SLOT)
    told.tier.settle()
    assert lib.ps_tier_volume_resize(told.tier.tier, 0, 2 * SLOT) == 0
    assert lib.ps_tier_volume_remove(told.tier.tier, 0) == 0
    assert told.evicted() == []
