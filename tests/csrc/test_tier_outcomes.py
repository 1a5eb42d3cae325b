"""How what hints brought in turned out, each extent once, and what becomes of what nobody read."""

from __future__ import annotations

import pytest
from tier_support import (
    DATED,
    MS,
    OF_INTENT,
    OF_MODEL,
    OF_SET,
    OF_STREAM,
    SECOND,
    SLOT,
    SPECULATIVE,
    STARTED,
    UNIT,
    Tier,
)

from prestage._core import lib

A, B = 1, 2
COOKIE = 5


def tier_of(frames: int = 8) -> Tier:
    tier = Tier(frames=frames, dirty_limit=1, size=512 * SLOT)
    for tenant in range(8):
        lib.ps_tier_set_tenant(tier.tier, tenant, frames)
    return tier


def bring_in(tier: Tier, extent: int, *, source: int = OF_INTENT, seconds: int = 10) -> None:
    """Have tenant A's hint bring an extent in, and keep it for one use."""
    until_ns = tier.now_ns + seconds * SECOND
    started = tier.hydrate(
        extent * SLOT, SLOT, DATED, tenant=A, source=source, deadline_ns=until_ns,
        cookie=COOKIE, keep_until_ns=until_ns,
    )  # fmt: skip
    assert started == STARTED
    tier.run()


def scan(tier: Tier, first: int, count: int) -> None:
    for extent in range(first, first + count):
        tier.now_ns += MS
        tier.touch(extent * SLOT, tenant=B)


@pytest.mark.parametrize("reader", [A, B])
def test_what_is_read_while_it_is_kept_was_of_use_whoever_reads_it(reader: int) -> None:
    tier = tier_of()
    bring_in(tier, 0)
    assert tier.outcome(A) == (0, 0)
    tier.touch(0, tenant=reader)
    tier.touch(0, tenant=reader)
    assert (tier.outcome(A), tier.outcome(B)) == ((1, 0), (0, 0))
    tier.now_ns += 60 * SECOND
    scan(tier, 100, 20)
    assert tier.outcome(A) == (1, 0), "it is counted once"


def test_a_read_that_waits_for_it_makes_use_of_it_too() -> None:
    tier = tier_of()
    tier.hydrate(0, SLOT, DATED, tenant=A, deadline_ns=tier.now_ns + SECOND)
    tier.touch(0, tenant=A)
    assert tier.outcome(A) == (1, 0)


def test_what_nobody_read_in_its_time_was_of_no_use() -> None:
    tier = tier_of()
    bring_in(tier, 0, seconds=10)
    tier.now_ns += 9 * SECOND
    scan(tier, 100, 1)
    assert tier.outcome(A) == (0, 0)
    tier.now_ns += 2 * SECOND
    scan(tier, 101, 1)
    assert tier.outcome(A) == (0, 1)
    tier.touch(0, tenant=A)
    scan(tier, 102, 20)
    assert tier.outcome(A) == (0, 1), "it came too late"


def test_what_nobody_read_in_its_time_goes_first() -> None:
    tier = tier_of(frames=8)
    scan(tier, 100, 4)
    bring_in(tier, 0, seconds=1)
    tier.now_ns += 2 * SECOND
    scan(tier, 104, 3)
    assert tier.resident(0) == SLOT, "while there is room"
    scan(tier, 107, 1)
    assert tier.resident(0) == 0
    assert all(tier.resident(extent * SLOT) > 0 for extent in range(100, 108))


def test_what_was_there_before_the_hint_is_as_old_as_it_was_when_its_time_is_over() -> None:
    tier = tier_of(frames=8)
    scan(tier, 100, 8)
    tier.keep(107 * SLOT, SLOT, tier.now_ns + SECOND, tenant=A, cookie=COOKIE)
    tier.now_ns += 2 * SECOND
    scan(tier, 200, 7)
    assert tier.resident(107 * SLOT) > 0
    assert tier.outcome(A) == (0, 0), "the hint brought nothing in"


def test_what_is_evicted_before_anybody_reads_it_was_of_no_use() -> None:
    tier = tier_of(frames=4)
    tier.hydrate(0, SLOT, SPECULATIVE, tenant=A, source=OF_SET)
    tier.run()
    scan(tier, 100, 4)
    assert tier.outcome(A, OF_SET) == (0, 1)


def test_what_was_withdrawn_counts_when_it_is_read_or_evicted() -> None:
    tier = tier_of(frames=4)
    bring_in(tier, 0)
    bring_in(tier, 1)
    tier.end_keeps(COOKIE)
    scan(tier, 100, 1)
    assert tier.outcome(A) == (0, 0)
    tier.touch(0, tenant=A)
    scan(tier, 101, 8)
    assert tier.outcome(A) == (1, 1)


def test_each_kind_of_hint_is_counted_by_itself_and_the_model_not_at_all() -> None:
    tier = tier_of()
    for extent, source in enumerate((OF_INTENT, OF_SET, OF_SET, OF_STREAM, OF_MODEL)):
        bring_in(tier, extent, source=source)
        tier.touch(extent * SLOT, tenant=A)
    assert [tier.outcome(A, source) for source in (OF_INTENT, OF_SET, OF_STREAM)] == [
        (1, 0), (2, 0), (1, 0),
    ]  # fmt: skip


def test_what_a_hint_adds_to_an_extent_of_another_tenant_is_not_counted() -> None:
    tier = tier_of()
    tier.touch(0, tenant=B)
    assert tier.hydrate(0, SLOT, DATED, tenant=A, deadline_ns=tier.now_ns + SECOND) == STARTED
    tier.run()
    tier.touch(SLOT - UNIT, tenant=B)
    assert (tier.outcome(A), tier.outcome(B)) == ((0, 0), (0, 0))
