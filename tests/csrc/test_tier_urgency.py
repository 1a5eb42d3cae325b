"""Urgency: the order in which fills are handed out, and what makes them more urgent."""

from __future__ import annotations

import random

from tier_support import (
    COMING,
    DATED,
    DEMAND,
    NEVER,
    READ,
    SECOND,
    SLOT,
    SPECULATIVE,
    STARTED,
    UNIT,
    WAIT,
    WRITE,
    Tier,
    waiter,
)


def order(tier: Tier) -> list[int]:
    """Hand out all there is; return the extents."""
    return [action.offset // SLOT for action in tier.actions()]


def test_fills_are_handed_out_by_urgency_and_dated_ones_by_deadline() -> None:
    tier = Tier(frames=32)
    tier.hydrate(0, UNIT, SPECULATIVE)
    tier.hydrate(1 * SLOT, UNIT, DATED, deadline_ns=30)
    tier.hydrate(2 * SLOT, UNIT, SPECULATIVE)
    tier.read(3 * SLOT, UNIT, waiter(), urgency=DATED, deadline_ns=10)
    tier.read(4 * SLOT, UNIT, waiter())
    tier.hydrate(5 * SLOT, UNIT, DATED, deadline_ns=20)
    tier.read(6 * SLOT, UNIT, waiter())
    assert order(tier) == [4, 6, 3, 5, 1, 0, 2]


def test_of_one_deadline_priority_decides_and_then_who_came_first() -> None:
    tier = Tier(frames=32)
    for extent, priority in enumerate([2, 0, 3, 2, 0]):
        tier.read(extent * SLOT, urgency=DATED, deadline_ns=10, priority=priority)
    assert order(tier) == [1, 4, 0, 3, 2]


def test_any_number_of_deadlines_comes_in_order() -> None:
    seed = 20
    tier = Tier(frames=512, dirty_limit=1, size=512 * SLOT)
    choose = random.Random(seed)
    deadlines = [choose.randrange(10 * SECOND) for _ in range(500)]
    for extent, deadline_ns in enumerate(deadlines):
        tier.read(extent * SLOT, urgency=DATED, deadline_ns=deadline_ns)
    found = [action.deadline_ns for action in tier.actions()]
    assert found == sorted(deadlines), f"seed {seed}"


def test_writes_go_before_what_nobody_asked_for() -> None:
    tier = Tier(frames=16, writeback_age_ns=0)
    tier.hydrate(SLOT, UNIT, SPECULATIVE)
    tier.hydrate(2 * SLOT, UNIT, DATED, deadline_ns=1)
    tier.write(0, b"w" * UNIT)
    first, second, third = tier.actions()
    assert (first.op, second.op, third.op) == (READ, WRITE, READ)
    assert (first.urgency, third.urgency) == (DATED, SPECULATIVE)


def test_a_pending_fill_that_a_reader_joins_is_handed_out_as_the_readers() -> None:
    tier = Tier(frames=16)
    tier.hydrate(0, UNIT, SPECULATIVE)
    tier.hydrate(SLOT, UNIT, SPECULATIVE, cookie=8)
    tier.hydrate(2 * SLOT, UNIT, DATED, deadline_ns=50)
    assert tier.read(SLOT, UNIT, waiter(), urgency=DATED, deadline_ns=40, priority=3)[0] == WAIT
    first, second, third = tier.actions()
    assert (first.offset, first.urgency, first.deadline_ns) == (SLOT, DATED, 40)
    assert (first.priority, first.cookie) == (3, 8), "whose fill it is does not change"
    assert (second.offset, third.offset) == (2 * SLOT, 0)
    assert tier.promotions() == []


def test_all_fills_that_a_reader_needs_become_as_urgent() -> None:
    tier = Tier(frames=16)
    tier.touch(UNIT)
    tier.hydrate(0, 3 * UNIT, SPECULATIVE)
    issued = tier.actions()
    assert len(issued) == 2
    assert tier.read(0, 3 * UNIT, waiter())[0] == WAIT
    promoted = tier.promotions()
    assert {ticket for ticket, _, _ in promoted} == {action.ticket for action in issued}
    assert {urgency for _, urgency, _ in promoted} == {DEMAND}


def test_a_fill_that_was_handed_out_is_promoted_once_with_the_latest_urgency() -> None:
    tier = Tier(frames=16)
    tier.hydrate(0, UNIT, SPECULATIVE)
    (fill,) = tier.actions()
    tier.read(0, UNIT, waiter(), urgency=DATED, deadline_ns=70)
    assert tier.promotions() == [(fill.ticket, DATED, 70)]
    tier.read(0, UNIT, waiter(), urgency=DATED, deadline_ns=60)
    tier.read(0, UNIT, waiter())
    assert tier.promotions() == [(fill.ticket, DEMAND, NEVER)]
    assert tier.promotions() == []


def test_nothing_becomes_less_urgent() -> None:
    tier = Tier(frames=16)
    tier.read(0, UNIT, waiter(), urgency=DATED, deadline_ns=50)
    tier.read(SLOT, UNIT, waiter())
    assert len(tier.actions()) == 2
    tier.read(0, UNIT, waiter(), urgency=DATED, deadline_ns=50)
    tier.read(0, UNIT, waiter(), urgency=DATED, deadline_ns=80)
    tier.read(0, UNIT, waiter(), urgency=SPECULATIVE)
    tier.read(SLOT, UNIT, waiter(), urgency=DATED, deadline_ns=1)
    assert tier.promotions() == []


def test_there_is_no_promotion_of_what_has_ended() -> None:
    tier = Tier(frames=16)
    tier.hydrate(0, UNIT, SPECULATIVE)
    (fill,) = tier.actions()
    tier.read(0, UNIT, waiter())
    tier.end(fill)
    assert tier.promotions() == []


def test_a_dated_hydrate_promotes_what_was_started_as_a_guess() -> None:
    tier = Tier(frames=16)
    assert tier.hydrate(0, UNIT, SPECULATIVE) == STARTED
    (fill,) = tier.actions()
    assert tier.hydrate(0, UNIT, DATED, deadline_ns=9) == COMING
    assert tier.promotions() == [(fill.ticket, DATED, 9)]


def test_a_partial_write_that_needs_a_fill_promotes_it() -> None:
    tier = Tier(frames=16)
    tier.hydrate(0, UNIT, SPECULATIVE)
    (fill,) = tier.actions()
    result, frame = tier.fresh()
    tier.put(frame, 100, b"w" * 100)
    assert (result, tier.publish(0, 512, frame)) == (0, WAIT)
    assert tier.promotions() == [(fill.ticket, DEMAND, NEVER)]


def test_fills_that_can_wait_are_left_when_only_more_urgent_ones_are_asked_for() -> None:
    tier = Tier(frames=16, dirty_limit=2, size=512 * SLOT)
    tier.hydrate(0, urgency=SPECULATIVE)
    tier.hydrate(SLOT, urgency=DATED, deadline_ns=tier.now_ns + SECOND)
    assert tier.next(DEMAND) is None
    tier.read(2 * SLOT, UNIT, waiter())
    for least, extent in ((DEMAND, 2), (DATED, 1), (SPECULATIVE, 0)):
        action = tier.next(least)
        assert action is not None
        assert action.offset == extent * SLOT
