"""What the model orders to be fetched: what is started, what is told, and what is refused."""

from __future__ import annotations

import math

import pytest
from hints_media import BLOCK, MS, SLOT
from orders_support import End, OrdersRig, fetches

from prestage._core import ffi, lib
from prestage.target.prestager.shared import OWN_CLASSES, OrderEnd, OrderKind

EIO = 5


def demand(rig: OrdersRig, slot: int) -> None:
    """A host reads an extent: a fill that somebody waits for, when it is not there."""
    access = ffi.new("struct ps_tier_access *", {"deadline_ns": (1 << 64) - 1})
    frame = ffi.new("uint32_t *")
    result = lib.ps_tier_read(rig.tier, rig.now_ns, 0, slot * SLOT, SLOT, access, ffi.NULL, frame)
    if result == lib.PS_TIER_DONE:
        lib.ps_tier_release(rig.tier, rig.now_ns, frame[0])


def zero(rig: OrdersRig, slot: int) -> None:
    """A host writes zeros over an extent."""
    waiter = ffi.new("struct ps_tier_waiter *")
    result = lib.ps_tier_zero(rig.tier, rig.now_ns, 0, slot * SLOT, SLOT, 0, waiter)
    assert result == lib.PS_TIER_DONE


def test_a_fetch_is_brought_in_and_told_of_when_all_of_it_has_landed() -> None:
    rig = OrdersRig()
    rig.fetch(7, offset=3 * SLOT, length=10 * SLOT)
    rig.start()
    assert rig.ends() == [], "nothing has landed yet"
    rig.run()
    assert rig.warm_slots() == list(range(3, 13))
    assert rig.ends() == [End(7, OrderEnd.LANDED, 10 * SLOT)]
    assert rig.order_stats().fetched_bytes == 10 * SLOT


def test_the_fact_says_what_the_order_said() -> None:
    rig = OrdersRig()
    rig.fetch(9, offset=2 * SLOT, length=SLOT, volume=1, tenant=2)
    rig.run()
    (fact,) = [each for each in rig.facts() if each.kind == lib.PS_FACT_FETCHED]
    assert (fact.id, fact.offset, fact.length) == (9, 2 * SLOT, SLOT)
    assert (fact.volume, fact.tenant, fact.aux) == (1, 2, OrderEnd.LANDED)


def test_a_part_of_an_extent_is_fetched_alone() -> None:
    rig = OrdersRig()
    rig.fetch(1, offset=5 * SLOT + 2 * BLOCK, length=4 * BLOCK)
    rig.run()
    (end,) = rig.ends()
    assert end.end == OrderEnd.LANDED and end.read_bytes == 4 * BLOCK
    assert not rig.is_warm(5)


def test_what_is_there_is_not_read_again() -> None:
    rig = OrdersRig()
    rig.warm(3, 4)
    rig.fetch(1, offset=3 * SLOT, length=2 * SLOT)
    rig.run()
    rig.fetch(2, offset=3 * SLOT, length=3 * SLOT)
    rig.run()
    assert rig.ends() == [End(1, OrderEnd.WARM), End(2, OrderEnd.LANDED, SLOT)]


def test_what_somebody_else_brings_in_is_not_read_twice() -> None:
    rig = OrdersRig()
    demand(rig, 3)
    rig.fetch(3)
    rig.run()
    assert rig.ends() == [End(3, OrderEnd.WARM)]


def test_of_fetches_the_most_valuable_goes_first() -> None:
    rig = OrdersRig()
    orders = fetches(1, 2, 3, 4)
    orders["value"] = [0.5, 3.0, 1e-6, 2.0]
    rig.give(orders)
    rig.run()
    assert [end.id for end in rig.ends()] == [2, 4, 1, 3]


def test_a_long_fetch_is_started_in_pieces() -> None:
    rig = OrdersRig(piece_bytes=2 * SLOT)
    rig.fetch(1, offset=0, length=12 * SLOT)
    before = rig.writer.gauges()
    assert (before.fetches, before.fetch_bytes) == (1, 12 * SLOT)
    rig.start()
    lib.ps_orders_take(rig.orders, rig.now_ns, 0)
    after = rig.writer.gauges()
    assert after.fetches == 1 and 0 < after.fetch_bytes < 12 * SLOT
    assert after.fetch_bytes % (2 * SLOT) == 0


def test_a_medium_that_fails_ends_a_fetch_when_all_that_was_started_has_ended() -> None:
    rig = OrdersRig()
    rig.fetch(1, offset=0, length=4 * SLOT)
    rig.start()
    assert len(rig.operations) > 1
    rig.end_first(EIO)
    assert rig.ends() == []
    rig.run()
    (end,) = rig.ends()
    assert (end.id, end.end) == (1, OrderEnd.FAILED)
    rig.fetch(1, offset=40 * SLOT)
    rig.run()
    assert rig.ends() == [End(1, OrderEnd.LANDED, SLOT)]


def test_a_fetch_that_finds_no_room_ends_there() -> None:
    rig = OrdersRig(frames=16)
    lib.ps_tier_set_tenant(rig.tier, 0, 16)
    rig.publish(worth=2.0)
    rig.warm(*range(40, 56))
    rig.read(*range(40, 56))
    rig.ends()
    rig.fetch(1, value=1.0)
    rig.run()
    assert rig.ends() == [End(1, OrderEnd.NO_ROOM)]
    rig.fetch(2, value=3.0, offset=2 * SLOT, length=SLOT)
    rig.run()
    assert rig.ends() == [End(2, OrderEnd.LANDED, SLOT)]


def test_what_was_fetched_has_the_class_that_the_order_said() -> None:
    rig = OrdersRig(frames=16)
    lib.ps_tier_set_tenant(rig.tier, 0, 16)
    orders = fetches(*range(1, 15))  # as many as may be there unread
    orders["value_class"] = [20 + number % 2 for number in range(1, 15)]
    rig.give(orders)
    rig.run()
    rig.publish(worth=1.0, c20=0.25, c21=5.0)
    rig.fetch(*range(30, 40), value=0.5, value_class=21)
    rig.run()
    left = set(rig.warm_slots())
    assert set(range(1, 15, 2)) <= left
    assert len(left & set(range(2, 15, 2))) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": 0},
        {"id": 1 << 62},
        {"length": 0},
        {"length": lib.PS_ORDER_MAX_BYTES + 1},
        {"offset": (1 << 64) - SLOT, "length": 2 * SLOT},
        {"volume": 4},
        {"tenant": 4},
        {"value": math.nan},
        {"value": math.inf},
        {"value": -1.0},
        {"value_class": 1},
        {"value_class": OWN_CLASSES - 1},
        {"value_class": 64},
        {"kind": 0},
        {"kind": 6},
    ],
    ids=str,
)
def test_a_wrong_fetch_is_refused_and_counted(wrong: dict[str, int]) -> None:
    rig = OrdersRig()
    rig.fetch(5, **wrong)
    stats = rig.order_stats()
    assert (stats.orders, stats.refused, stats.fetches) == (1, 1, 0)
    assert rig.writer.refused == 1
    rig.run()
    assert rig.ends() == [] and rig.warm_slots() == []


def test_the_limits_of_a_fetch_are_taken() -> None:
    rig = OrdersRig()
    rig.fetch((1 << 62) - 1, offset=SLOT, value=0.0, value_class=63, tenant=3)
    rig.fetch(2, value_class=0)
    rig.run()
    assert [end.end for end in rig.ends()] == [OrderEnd.LANDED, OrderEnd.LANDED]


def test_an_id_is_one_fetch_until_that_has_ended() -> None:
    rig = OrdersRig()
    rig.fetch(1, offset=SLOT)
    rig.fetch(1, offset=2 * SLOT)
    assert rig.order_stats().refused == 1
    rig.run()
    rig.fetch(1, offset=2 * SLOT)
    rig.run()
    assert rig.ends() == [End(1, OrderEnd.LANDED, SLOT)] * 2
    assert rig.warm_slots() == [1, 2]


def test_more_fetches_than_there_is_memory_for_find_no_room() -> None:
    rig = OrdersRig(fetches=3)
    rig.fetch(1, 2, 3, 4)
    assert rig.ends() == [End(4, OrderEnd.NO_ROOM)]
    rig.run()
    assert [end.end for end in rig.ends()] == [OrderEnd.LANDED] * 3
    rig.fetch(4, 5, 6)
    assert rig.ends() == []


def test_a_fetch_for_a_volume_that_is_not_there_or_beyond_its_end_has_failed() -> None:
    rig = OrdersRig()
    rig.fetch(1, volume=3)
    rig.fetch(2, offset=rig.sizes[0] - BLOCK, length=2 * BLOCK)
    rig.fetch(3, offset=rig.sizes[0] - BLOCK, length=BLOCK)
    rig.run()
    ends = [End(1, OrderEnd.FAILED), End(2, OrderEnd.FAILED), End(3, OrderEnd.LANDED, BLOCK)]
    assert rig.ends() == ends


# ---- what may happen on the way ----


def test_a_fetch_that_is_withdrawn_before_it_was_started_is_not() -> None:
    rig = OrdersRig()
    rig.fetch(1, 2)
    rig.order(OrderKind.WITHDRAW, id=1)
    assert rig.ends() == [End(1, OrderEnd.WITHDRAWN)]
    rig.run()
    assert rig.ends() == [End(2, OrderEnd.LANDED, SLOT)] and rig.warm_slots() == [2]


def test_of_a_fetch_that_is_withdrawn_what_was_started_lands() -> None:
    rig = OrdersRig(piece_bytes=SLOT)
    rig.fetch(1, offset=0, length=40 * SLOT)
    rig.start()
    started = sum(operation.length for operation in rig.operations)
    assert 0 < started < 40 * SLOT
    rig.order(OrderKind.WITHDRAW, id=1)
    assert rig.ends() == []
    rig.run()
    assert rig.ends() == [End(1, OrderEnd.WITHDRAWN, started)]
    assert len(rig.warm_slots()) * SLOT == started


def test_to_withdraw_what_has_ended_is_not_wrong() -> None:
    rig = OrdersRig()
    rig.order(OrderKind.WITHDRAW, id=9)
    rig.order(OrderKind.WITHDRAW, id=0)
    assert rig.order_stats().refused == 1


def test_a_fetch_expires_at_its_time_and_not_before() -> None:
    rig = OrdersRig()
    rig.fetch(1, expires_ns=rig.now_ns + MS)
    rig.tick(rig.now_ns + MS)
    assert rig.ends() == []
    assert lib.ps_orders_next_time(rig.orders) == rig.now_ns + 1
    rig.tick(rig.now_ns + 1)
    assert rig.ends() == [End(1, OrderEnd.EXPIRED)]
    rig.fetch(2, expires_ns=rig.now_ns - 1)
    assert rig.ends() == [End(2, OrderEnd.EXPIRED)]
    rig.run()
    assert rig.warm_slots() == []


def test_a_fetch_whose_time_has_passed_is_not_started_though_nobody_said_so() -> None:
    rig = OrdersRig()
    rig.fetch(1, expires_ns=rig.now_ns + MS)
    rig.now_ns += 2 * MS
    rig.start()
    assert rig.operations == [] and rig.ends() == [End(1, OrderEnd.EXPIRED)]


def test_a_fetch_that_was_written_over_before_it_was_read_ends_nevertheless() -> None:
    rig = OrdersRig()
    rig.fetch(1, offset=SLOT)
    job = lib.ps_sched_next_job(rig.scheds[0], rig.now_ns)
    lib.ps_orders_start_job(rig.orders, rig.now_ns, job)
    zero(rig, 1)
    rig.run(rounds=10)
    assert rig.ends() == [], "its fill never began, so nobody is told that it has ended"
    rig.tick(rig.now_ns + 100 * MS)
    assert rig.ends() == [End(1, OrderEnd.LANDED, SLOT)]


def test_fetches_go_with_their_volume_at_once() -> None:
    rig = OrdersRig()
    rig.fetch(1, 2)
    rig.fetch(3, volume=1)
    rig.start()
    rig.fetch(4, 5)
    operations = [each for each in rig.started if each.volume == 0]
    assert operations
    rig.remove_volume(0)
    ends = rig.ends()
    assert sorted(end.id for end in ends) == [1, 2, 4, 5]
    assert {end.end for end in ends} == {OrderEnd.FAILED}
    for operation in operations:
        rig.end(operation)
    rig.run()
    assert [end.id for end in rig.ends()] == [3], "fills that end later are nobody's"


def test_a_volume_that_shrinks_ends_what_reaches_beyond() -> None:
    rig = OrdersRig()
    rig.fetch(10, 20, 30)
    rig.resize_volume(0, 21 * SLOT)
    assert rig.ends() == [End(30, OrderEnd.FAILED)]
    rig.run()
    assert sorted(end.id for end in rig.ends()) == [10, 20]
    rig.resize_volume(0, 64 * SLOT)
    rig.fetch(30)
    rig.run()
    assert rig.ends() == [End(30, OrderEnd.LANDED, SLOT)]
