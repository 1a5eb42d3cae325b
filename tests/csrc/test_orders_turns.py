"""Orders beside what else there is: whose turn it is, what classes and tables do, and what is left
of a model that is gone or mad."""

from __future__ import annotations

import mmap
import os
import random

import numpy as np
import pytest
from hints_media import MS, SLOT, slots
from orders_support import End, OrdersRig, fetches

from prestage._core import ffi, lib
from prestage.ext.names import SetFlag
from prestage.ext.records import Intent, Range, SetRecord
from prestage.target.prestager.shared import (
    AGE_BINS,
    CLASSES,
    ORDER,
    OWN_CLASSES,
    OrderEnd,
    OrderKind,
)

READAHEAD: int = lib.PS_FACT_READAHEAD
SPECULATIVE: int = lib.PS_TIER_SPECULATIVE


def jobs(rig: OrdersRig, volume: int = 0) -> int:
    """Return how many jobs the scheduler of a volume has."""
    stats = ffi.new("struct ps_sched_stats *")
    lib.ps_sched_get_stats(rig.scheds[volume], stats)
    return int(stats.jobs)


def fill(rig: OrdersRig, first: int = 40, count: int = 16) -> None:
    """Have every frame hold something that was read."""
    lib.ps_tier_set_tenant(rig.tier, 0, count)
    rig.warm(*range(first, first + count))
    rig.read(*range(first, first + count))


# ---- turns ----


def test_what_was_announced_goes_before_what_was_ordered() -> None:
    rig = OrdersRig()
    rig.fetch(*range(1, 9), value=1000.0)
    intent = Intent(1, nsid=1, deadline_us=900_000, ranges=(Range(*slots(20, 20)),))
    assert rig.submit(intent).accepted == 1
    order = []
    while jobs(rig) or rig.operations:
        order.append(rig.end_first().urgency == SPECULATIVE)
        rig.now_ns += MS
    assert order == [False] * 20 + [True] * 8


def test_nothing_that_was_ordered_is_begun_while_a_read_waits() -> None:
    rig = OrdersRig()
    access = ffi.new("struct ps_tier_access *", {"deadline_ns": (1 << 64) - 1})
    frame = ffi.new("uint32_t *")
    for slot in range(20, 60):
        lib.ps_tier_read(rig.tier, rig.now_ns, 0, slot * SLOT, SLOT, access, ffi.NULL, frame)
    rig.fetch(*range(1, 9), value=1000.0)
    rig.start()
    waiting = [each for each in rig.operations if not each.is_started]
    assert waiting, "more reads than the medium takes at once"
    while waiting:
        assert all(each.urgency != SPECULATIVE for each in rig.operations)
        rig.end_first()
        rig.start()
        waiting = [each for each in rig.operations if not each.is_started]
    rig.run()
    assert len(rig.ends()) == 8


def test_a_read_of_what_was_ordered_does_not_wait_its_turn() -> None:
    rig = OrdersRig(piece_bytes=SLOT)
    rig.fetch(*range(1, 30))
    rig.start()
    job = lib.ps_sched_next_job(rig.scheds[0], rig.now_ns)
    assert job == ffi.NULL
    access = ffi.new("struct ps_tier_access *", {"deadline_ns": (1 << 64) - 1})
    frame = ffi.new("uint32_t *")
    lib.ps_tier_read(rig.tier, rig.now_ns, 0, 29 * SLOT, SLOT, access, ffi.NULL, frame)
    while not rig.is_warm(29):
        rig.end_first()
    assert len(rig.warm_slots()) < 29
    rig.run()
    assert {end.end for end in rig.ends()} <= {OrderEnd.LANDED, OrderEnd.WARM}


def test_what_follows_a_read_goes_among_orders_as_worth_one() -> None:
    rig = OrdersRig()
    ordered = SetRecord(1, 1, tuple(Range(*slots(at)) for at in (30, 31)), flags=SetFlag.ORDERED)
    rig.submit(ordered)
    rig.fetch(1, value=2.0)
    rig.fetch(2, value=0.5)
    rig.touch(30 * SLOT)
    brought = []
    while jobs(rig) or rig.operations:
        brought.append(rig.end_first().offset // SLOT)
    assert brought == [1, 31, 2]


# ---- classes and tables ----


def test_what_is_classified_is_worth_what_its_class_is() -> None:
    rig = OrdersRig(frames=16)
    fill(rig)
    rig.publish(worth=5.0, c20=0.5)
    kept = [slot * SLOT for slot in range(40, 56) if slot != 47]
    rig.order(OrderKind.CLASSIFY, offset=47 * SLOT, length=SLOT, value_class=20)
    rig.fetch(1, value=1.0)
    rig.run()
    assert not rig.is_warm(47) and rig.is_warm(1)
    assert all(rig.is_warm(offset // SLOT) for offset in kept)
    rig.fetch(2, value=1.0)
    rig.run()
    assert rig.ends()[-1] == End(2, OrderEnd.NO_ROOM)


def test_what_is_classified_is_as_old_as_the_order_says() -> None:
    rig = OrdersRig(frames=16)
    fill(rig)
    table = np.full((CLASSES, AGE_BINS), 5.0, np.float32)
    table[20, 40:] = 0.5
    rig.writer.publish(table)
    young, old = 41, 50
    rig.order(OrderKind.CLASSIFY, offset=young * SLOT, length=SLOT, value_class=20)
    age_ns = (1 << 21) * MS
    rig.order(OrderKind.CLASSIFY, offset=old * SLOT, length=SLOT, value_class=20, age_ns=age_ns)
    rig.fetch(1, value=1.0)
    rig.run()
    assert rig.is_warm(young) and not rig.is_warm(old)


@pytest.mark.parametrize(
    "wrong",
    [
        {"length": 0},
        {"length": lib.PS_ORDER_MAX_BYTES + 1},
        {"offset": (1 << 64) - SLOT, "length": 2 * SLOT},
        {"volume": 4},
        {"value_class": 0},
        {"value_class": OWN_CLASSES - 1},
        {"value_class": 64},
    ],
    ids=str,
)
def test_a_wrong_classification_is_refused(wrong: dict[str, int]) -> None:
    rig = OrdersRig()
    rig.order(OrderKind.CLASSIFY, **{"length": SLOT, "value_class": 20, **wrong})
    assert rig.order_stats().refused == 1


def test_there_are_two_tables() -> None:
    rig = OrdersRig()
    rig.order(OrderKind.VALUES, aux=1)
    assert rig.order_stats().refused == 0
    rig.order(OrderKind.VALUES, aux=2)
    assert rig.order_stats().refused == 1


# ---- portions ----


def test_orders_are_taken_in_portions() -> None:
    rig = OrdersRig()
    rig.writer.put(fetches(*range(1, 21)))
    assert lib.ps_orders_waiting(rig.orders)
    assert not lib.ps_orders_take(rig.orders, rig.now_ns, 15)
    assert rig.order_stats().orders == 15
    assert lib.ps_orders_take(rig.orders, rig.now_ns, 15)
    assert not lib.ps_orders_waiting(rig.orders)


def test_a_portion_of_orders_that_are_much_work_is_smaller() -> None:
    rig = OrdersRig()
    orders = np.zeros(100, ORDER)
    orders["kind"] = OrderKind.CLASSIFY
    orders["length"] = 1024 * SLOT
    orders["value_class"] = 20
    rig.writer.put(orders)
    assert not lib.ps_orders_take(rig.orders, rig.now_ns, 100)
    assert rig.order_stats().orders == 4


def test_all_that_has_expired_is_told_of_in_portions() -> None:
    rig = OrdersRig(fetches=200)
    rig.fetch(*range(1, 201), offset=0, expires_ns=rig.now_ns + MS)
    rig.now_ns += 2 * MS
    assert not lib.ps_orders_take(rig.orders, rig.now_ns, 0)
    assert 0 < len(rig.ends()) < 200
    rig.tick()
    assert rig.order_stats().expired == 200


# ---- a model that is gone, or mad ----


@pytest.mark.parametrize("by_order", [True, False])
def test_after_a_reset_nothing_of_the_model_is_left(by_order: bool) -> None:
    rig = OrdersRig(frames=16)
    fill(rig)
    rig.publish(worth=100.0)
    rig.fetch(1, 2, value=1.0)
    rig.fetch(3, volume=1, value=1.0)
    if by_order:
        rig.order(OrderKind.RESET)
    else:
        rig.reset()
    assert sorted(end.id for end in rig.ends()) == [1, 2, 3]
    assert jobs(rig) == jobs(rig, 1) == 0
    rig.tick(rig.now_ns + 10_000 * MS)
    rig.fetch(4, value=50.0)
    rig.run()
    assert rig.ends() == [End(4, OrderEnd.LANDED, SLOT)], "all was worth more, and is old by LRU"


def test_what_was_under_way_when_the_model_went_lands_and_is_nobodys() -> None:
    rig = OrdersRig()
    rig.fetch(1, 2, 3)
    rig.start()
    assert rig.operations
    rig.reset()
    assert {end.end for end in rig.ends()} == {OrderEnd.WITHDRAWN}
    rig.fetch(1, offset=9 * SLOT)
    rig.run()
    assert rig.ends() == [End(1, OrderEnd.LANDED, SLOT)], "ids are free for the next model"


@pytest.mark.parametrize("by_order", [True, False])
def test_very_many_fetches_are_forgotten_in_portions_and_then_orders_are_taken(
    by_order: bool,
) -> None:
    rig = OrdersRig(fetches=200)
    rig.fetch(*range(1, 201), offset=0)
    reset = np.zeros(1, ORDER)
    reset["kind"] = OrderKind.RESET
    if by_order:
        rig.writer.put(reset)
        assert not lib.ps_orders_take(rig.orders, rig.now_ns, 1)
    else:
        rig.reset()
    assert 0 < rig.order_stats().withdrawn < 200
    rig.writer.put(fetches(1, offset=9 * SLOT))
    assert lib.ps_orders_next_time(rig.orders) <= rig.now_ns
    before = jobs(rig)
    job = lib.ps_sched_next_job(rig.scheds[0], rig.now_ns)
    lib.ps_orders_start_job(rig.orders, rig.now_ns, job)
    assert jobs(rig) == before - 1
    assert rig.warm_slots() == [], "what is left is not begun any more"
    assert not lib.ps_orders_take(rig.orders, rig.now_ns, 10)
    assert rig.order_stats().fetches == 200
    while not lib.ps_orders_take(rig.orders, rig.now_ns, 10):
        rig.check()
    rig.run()
    ends = rig.ends()
    assert len(ends) == 201 and ends[-1] == End(1, OrderEnd.LANDED, SLOT)
    assert {end.end for end in ends[:-1]} == {OrderEnd.WITHDRAWN}


def test_orders_that_wait_when_the_model_goes_are_forgotten() -> None:
    rig = OrdersRig()
    rig.writer.put(fetches(1, 2))
    rig.reset()
    assert not lib.ps_orders_waiting(rig.orders)
    assert rig.order_stats().fetches == 0
    assert rig.writer.waiting == 0


def memory_of(rig: OrdersRig) -> mmap.mmap:
    """Map the memory of orders as another process would."""
    fd = lib.ps_orders_fd(rig.orders)
    return mmap.mmap(fd, os.fstat(fd).st_size)


@pytest.mark.parametrize("head", [(1 << 64) - 1, 1 << 63, 257])
def test_a_head_that_cannot_be_is_refused_and_the_next_orders_are_taken(head: int) -> None:
    rig = OrdersRig()
    with memory_of(rig) as memory:
        memory[64:72] = head.to_bytes(8, "little")
        assert lib.ps_orders_waiting(rig.orders)
        assert lib.ps_orders_take(rig.orders, rig.now_ns, 1)
        assert not lib.ps_orders_waiting(rig.orders)
        assert rig.order_stats().refused == 1
        assert int.from_bytes(memory[128:136], "little") == head
        at = 4096 + head % 256 * 64
        memory[at : at + 64] = fetches(1).tobytes()
        memory[64:72] = ((head + 1) % (1 << 64)).to_bytes(8, "little")
    assert lib.ps_orders_take(rig.orders, rig.now_ns, 9)
    rig.run()
    assert rig.ends() == [End(1, OrderEnd.LANDED, SLOT)]


def test_what_the_target_says_is_right_again_whatever_was_written_over_it() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    rig = OrdersRig()
    rig.fetch(1, 2)
    with memory_of(rig) as memory:
        rig.reset()
        layout, gauges = slice(0, 32), slice(128, 184)
        before = memory[layout], memory[gauges]
        memory[layout] = rng.randbytes(32)
        memory[gauges] = rng.randbytes(56)
        rig.reset()
        assert (memory[layout], memory[gauges]) == before
        memory[128:172] = rng.randbytes(44)
        lib.ps_orders_take(rig.orders, rig.now_ns, 0)
        assert memory[gauges] == before[1]


def test_orders_need_a_configuration_that_can_be() -> None:
    rig = OrdersRig()
    good = {
        "capacity": 4,
        "fetches": 1,
        "volume_count": 1,
        "tenant_count": 1,
        "slot_size": SLOT,
        "piece_bytes": 1,
    }
    wrong = [{"capacity": 0}, {"capacity": 3}, {"fetches": 0}, {"volume_count": 0}]
    wrong += [{"tenant_count": 0}, {"slot_size": 1000}, {"slot_size": 24576}, {"piece_bytes": 0}]
    for change in [*wrong, {}]:
        config = ffi.new("struct ps_orders_config *", good | change)
        made = lib.ps_orders_new(config, rig.tier, ffi.NULL)
        assert (made != ffi.NULL) == (change == {}), change
        lib.ps_orders_free(made)
