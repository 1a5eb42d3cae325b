"""The memory of orders: what the model writes is what the data path takes, and nothing else."""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage._core import ffi, lib
from prestage.target.errors import Invalid
from prestage.target.prestager import shared
from prestage.target.prestager.shared import (
    AGE_BINS,
    CLASSES,
    HEADER,
    ORDER,
    OWN_CLASSES,
    OrderEnd,
    OrderKind,
    OrdersError,
    OrdersWriter,
    wake,
)

CAPACITY = 16
FRAMES = 32
SLOT = 16384


class Taker:
    """The data path's side: a tier without payload, and a volume that nothing serves."""

    def __init__(self) -> None:
        config = {
            "frame_count": FRAMES,
            "slot_size": SLOT,
            "extent_count": 2 * FRAMES,
            "dirty_limit": FRAMES // 2,
            "volume_count": 2,
            "tenant_count": 2,
            "unsynced_age_ns": 1 << 30,
            "writeback_age_ns": 1 << 30,
            "retry_ns": 1 << 20,
        }
        self.tier = lib.ps_tier_new(ffi.new("struct ps_tier_config *", config))
        self.sched = lib.ps_sched_new(
            ffi.new(
                "struct ps_sched_config *",
                {"window": 4, "merge_bytes": 0, "starvation_ns": 1 << 30},
            )
        )
        orders = {
            "capacity": CAPACITY,
            "fetches": 64,
            "volume_count": 2,
            "tenant_count": 2,
            "slot_size": SLOT,
            "piece_bytes": SLOT,
        }
        self.orders = lib.ps_orders_new(
            ffi.new("struct ps_orders_config *", orders), self.tier, ffi.NULL
        )
        assert ffi.NULL not in (self.tier, self.sched, self.orders)
        assert lib.ps_tier_volume_add(self.tier, 0, 1 << 24, 4096) == 0
        lib.ps_orders_volume(self.orders, 1, 0, self.sched, 1 << 24)

    @property
    def fd(self) -> int:
        """The memfd."""
        return int(lib.ps_orders_fd(self.orders))

    def take(self, most: int = 1000) -> bool:
        """Take orders; False when others are left."""
        return bool(lib.ps_orders_take(self.orders, 5, most))

    def stats(self) -> dict[str, int]:
        """The counters of struct ps_orders_stats."""
        stats = ffi.new("struct ps_orders_stats *")
        lib.ps_orders_get_stats(self.orders, stats)
        return {name: int(getattr(stats, name)) for name, _ in ffi.typeof(stats).item.fields}

    def close(self) -> None:
        """Free it once."""
        lib.ps_orders_free(self.orders)
        lib.ps_tier_free(self.tier)
        lib.ps_sched_free(self.sched)


@pytest.fixture
def taker() -> Iterator[Taker]:
    made = Taker()
    yield made
    made.close()


def members(name: str) -> dict[str, tuple[int, int]]:
    """Offset and size of each field of a C struct that is not reserved."""
    fields = ffi.typeof(f"struct {name}").fields
    reserved = {"reserved", "pad", "pad2"}
    return {
        key: (field.offset, ffi.sizeof(field.type)) for key, field in fields if key not in reserved
    }


def columns(dtype: np.dtype[np.void]) -> dict[str, tuple[int, int]]:
    assert dtype.fields is not None
    return {name: (entry[1], entry[0].itemsize) for name, entry in dtype.fields.items()}


def fetches(first: int, count: int) -> NDArray[np.void]:
    """Orders to fetch an extent each, with ids and offsets in order."""
    orders = np.zeros(count, ORDER)
    orders["kind"] = OrderKind.FETCH
    orders["id"] = np.arange(first, first + count)
    orders["offset"] = (np.arange(first, first + count) % 512) * SLOT
    orders["length"] = SLOT
    orders["expires_ns"] = 1 << 62
    orders["value_class"] = OWN_CLASSES
    return orders


# ---- layout ----


def test_orders_in_python_are_those_of_the_header() -> None:
    named = columns(ORDER)
    assert named.pop("reserved") == (54, 10)
    assert named == members("ps_order")
    assert np.concatenate([np.zeros(1, ORDER), np.zeros(1, ORDER)]).dtype == ORDER
    assert ORDER.itemsize == ffi.sizeof("struct ps_order") == 64


def test_header_in_python_is_that_of_the_header() -> None:
    assert columns(HEADER) == members("ps_orders_header")
    assert HEADER.itemsize == ffi.sizeof("struct ps_orders_header")
    assert (shared.MAGIC, shared.VERSION) == (lib.PS_ORDERS_MAGIC, lib.PS_ORDERS_VERSION)
    assert shared.MAX_ORDER_BYTES == lib.PS_ORDER_MAX_BYTES
    classes = (lib.PS_TIER_CLASSES, lib.PS_TIER_OWN_CLASSES, lib.PS_TIER_AGE_BINS)
    assert classes == (CLASSES, OWN_CLASSES, AGE_BINS)


@pytest.mark.parametrize(
    ("enum", "python"), [("ps_order_kind", OrderKind), ("ps_order_end", OrderEnd)]
)
def test_names_in_python_are_those_of_the_header(enum: str, python: Any) -> None:
    expected = ffi.typeof(f"enum {enum}").relements
    assert {f"PS_ORDER_{member.name}": int(member) for member in python} == expected


# ---- orders ----


def test_orders_are_taken_in_order_and_once_across_the_end_of_the_memory(taker: Taker) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    with OrdersWriter(taker.fd) as writer:
        written = 0
        while written < 50:
            count = writer.put(fetches(written + 1, rng.randrange(1, 12)))
            written += count
            taker.take(rng.randrange(1, 8))
            assert taker.stats()["orders"] + writer.waiting == written
        while not taker.take():
            pass
        assert writer.waiting == 0 and writer.refused == 0
        stats = taker.stats()
        assert (stats["orders"], stats["fetches"], stats["pending"]) == (written, written, written)


def test_what_finds_no_room_is_not_written(taker: Taker) -> None:
    with OrdersWriter(taker.fd) as writer:
        assert writer.put(fetches(1, CAPACITY + 3)) == CAPACITY
        assert writer.put(fetches(99, 2)) == 0
        assert not writer.publish(np.zeros((CLASSES, AGE_BINS), np.float32))
        taker.take(5)
        assert writer.waiting == CAPACITY - 5
        assert writer.put(fetches(17, CAPACITY)) == 5


def test_the_next_writer_goes_on_where_the_last_one_stopped(taker: Taker) -> None:
    with OrdersWriter(taker.fd) as writer:
        writer.put(fetches(1, 3))
    with OrdersWriter(taker.fd) as writer:
        assert writer.waiting == 3
        writer.put(fetches(4, 2))
    assert taker.take()
    assert taker.stats()["pending"] == 5


def test_a_wrong_order_is_counted_for_the_writer_to_see(taker: Taker) -> None:
    orders = fetches(1, 3)
    orders["kind"][1] = 77
    with OrdersWriter(taker.fd) as writer:
        writer.put(orders)
        taker.take()
        assert writer.refused == 1
        assert writer.gauges().fetches == 2


def test_arrays_that_are_no_orders_are_refused(taker: Taker) -> None:
    with OrdersWriter(taker.fd) as writer:
        with pytest.raises(Invalid, match="one dimension of ORDER"):
            writer.put(np.zeros(3, HEADER))
        with pytest.raises(Invalid, match="one dimension of ORDER"):
            writer.put(np.zeros((2, 2), ORDER))
        with pytest.raises(Invalid, match=r"shape \(64, 63\)"):
            writer.publish(np.zeros((CLASSES, AGE_BINS - 1), np.float32))


# ---- value tables ----


def test_tables_are_published_in_turn_and_are_in_force_once_taken(taker: Taker) -> None:
    def fetched(value: float) -> bool:
        """Whether the tier has room for something of this value, all frames being fresh."""
        access = {"urgency": lib.PS_TIER_SPECULATIVE, "deadline_ns": (1 << 64) - 1, "value": value}
        access["value_class"] = OWN_CLASSES
        result = lib.ps_tier_hydrate(
            taker.tier, 10, 0, 300 * SLOT, SLOT, ffi.new("struct ps_tier_access *", access)
        )
        return bool(result == lib.PS_TIER_STARTED)

    fill_tier(taker)
    table = np.zeros((CLASSES, AGE_BINS), np.float32)
    with OrdersWriter(taker.fd) as writer:
        for value in (4.0, 8.0, 2.0):
            table[:] = value
            assert writer.publish(table)
            assert taker.take()
            assert not fetched(value / 2)
        table[:] = 0.5
        assert writer.publish(table)
        assert not fetched(1.0), "it is not in force before it was taken"
        assert taker.take()
        assert fetched(1.0)


def fill_tier(taker: Taker) -> None:
    """Every frame holds something that was read."""
    access = ffi.new("struct ps_tier_access *", {"deadline_ns": (1 << 64) - 1})
    action = ffi.new("struct ps_tier_action *")
    frame = ffi.new("uint32_t *")
    lib.ps_tier_set_tenant(taker.tier, 0, FRAMES)
    for number in range(FRAMES):
        where = (taker.tier, 5, 0, number * SLOT, SLOT, access)
        waiter = ffi.new("struct ps_tier_waiter *")
        assert lib.ps_tier_read(*where, waiter, frame) == lib.PS_TIER_WAIT
        assert lib.ps_tier_next_action(taker.tier, 5, lib.PS_TIER_SPECULATIVE, action)
        lib.ps_tier_complete(taker.tier, 5, action.ticket, 0)
        assert lib.ps_tier_next_woken(taker.tier) == waiter
        assert lib.ps_tier_read(*where, waiter, frame) == lib.PS_TIER_DONE
        lib.ps_tier_release(taker.tier, 5, frame[0])


# ---- gauges ----


def test_gauges_say_what_the_data_path_said_last(taker: Taker) -> None:
    with OrdersWriter(taker.fd) as writer:
        writer.put(fetches(1, 4))
        before = writer.gauges()
        assert (before.frame_count, before.slot_size) == (FRAMES, SLOT)
        assert before.fetches == 0
        taker.take()
        after = writer.gauges()
        assert (after.fetches, after.fetch_bytes, after.frames_free) == (4, 4 * SLOT, FRAMES)
        assert after.bandwidth > 0 and writer.gauges_ns == 5


# ---- damage ----


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("magic", 1, "magic 0x1"),
        ("version", 9, "version 9"),
        ("order_size", 32, "order_size 32"),
        ("table_bytes", 8, "table_bytes 8"),
        ("capacity", 0, "0 orders at byte"),
        ("capacity", 12, "12 orders at byte"),
        ("capacity", 1 << 40, "orders at byte"),
        ("orders_offset", 0, "orders at byte 0"),
        ("orders_offset", 1 << 31, "orders at byte"),
        ("values_offset", 4096, "value tables at byte 4096"),
        ("values_offset", (1 << 32) - 4, "value tables at byte"),
        ("tail", 1, "-1 orders wait"),
        ("head", CAPACITY + 1, "17 orders wait"),
    ],
)
def test_memory_that_cannot_be_is_refused(
    taker: Taker, field: str, value: int, expected: str
) -> None:
    with mmap.mmap(taker.fd, os.fstat(taker.fd).st_size) as memory:
        header = np.frombuffer(memory, HEADER, count=1)[0]
        header[field] = value
        del header
    with pytest.raises(OrdersError, match=expected):
        OrdersWriter(taker.fd)
    lib.ps_orders_reset(taker.orders, 6)
    with OrdersWriter(taker.fd) as writer:
        assert writer.waiting == 0, "a reset makes the memory right for the next model"


def test_memory_that_is_too_small_is_refused() -> None:
    descriptor = os.memfd_create("small")
    os.truncate(descriptor, 100)
    with pytest.raises(OrdersError, match="100 bytes"):
        OrdersWriter(descriptor)
    os.close(descriptor)


def test_counts_that_go_wrong_meanwhile_are_found_before_anything_is_written(taker: Taker) -> None:
    with (
        OrdersWriter(taker.fd) as writer,
        mmap.mmap(taker.fd, os.fstat(taker.fd).st_size) as memory,
    ):
        memory[128:136] = (1000).to_bytes(8, "little")
        before = memory[:]
        with pytest.raises(OrdersError, match="-1000 orders wait"):
            writer.put(fetches(1, 1))
        assert memory[:] == before


# ---- waking ----


def test_a_wake_is_seen_and_one_too_many_is_none() -> None:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    wake(descriptor)
    wake(descriptor)
    assert os.eventfd_read(descriptor) == 2
    os.eventfd_write(descriptor, (1 << 64) - 2)
    wake(descriptor)
    assert os.eventfd_read(descriptor) == (1 << 64) - 2
    os.close(descriptor)
