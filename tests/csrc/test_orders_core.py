"""Orders in the running data path: taken by the first reactor, carried out by whoever owns the
volume, and told of to a model that sleeps."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_data_path import settings_in
from orders_support import End, fetches

from prestage._core import ffi, lib
from prestage.target.core_config import core_config
from prestage.target.prestager.shared import OrderEnd, OrdersWriter, wake
from prestage.target.ring import FactKind, RingReader, RingWaits
from prestage.target.settings import TierSettings

SLOT = TierSettings().slot
WAIT_S = 20.0


class Core:
    """A data path with a volume, and a model beside it."""

    def __init__(self, folder: Path, *, reactors: int = 2, **changes: int) -> None:
        settings = settings_in(
            folder, tier=TierSettings(size=32 << 20, huge_pages=False), reactors=reactors
        )
        config = core_config(settings, lib)
        config |= {"ring_capacity": 1024, "orders_capacity": 64} | changes
        error = ffi.new("char[]", 200)
        self.core = lib.ps_core_new(ffi.new("struct ps_core_config *", config), error, len(error))
        if self.core == ffi.NULL:
            raise ValueError(ffi.string(error).decode())
        assert lib.ps_core_start(self.core) == 0

    def open(self, spec: str = f"ram:size={64 * SLOT}", reactor: int = 0) -> int:
        """Open a medium; return the volume's number."""
        error = ffi.new("char[]", 200)
        text = ffi.new("char[]", spec.encode())
        config = {"spec": text, "block_size": 4096, "reactor": reactor}
        where = ffi.new("struct ps_volume_config *", config)
        number = lib.ps_core_volume_open(self.core, where, error, len(error))
        assert number >= 0, ffi.string(error)
        return int(number)

    def close_volume(self, volume: int, *, abandon: bool = False) -> None:
        """Close a volume, and wait until it is."""
        assert lib.ps_core_volume_close(self.core, volume, abandon, 7) == 0
        notices = ffi.new("struct ps_notice[]", 8)
        descriptor = lib.ps_core_wake_fd(self.core)
        while True:
            assert is_readable(descriptor)
            count = lib.ps_core_notices(self.core, notices, 8)
            kinds = [notices[number].kind for number in range(count)]
            if lib.PS_NOTICE_VOLUME_CLOSED in kinds:
                return

    def stats(self) -> Any:
        """Return a struct ps_orders_stats."""
        stats = ffi.new("struct ps_orders_stats *")
        lib.ps_core_orders_stats(self.core, stats)
        return stats

    def free(self) -> None:
        """Stop and free it once."""
        lib.ps_core_free(self.core)


class Model:
    """The process of the model, in this one."""

    def __init__(self, core: Core) -> None:
        self.writer = OrdersWriter(lib.ps_core_orders_fd(core.core))
        self.reader = RingReader(lib.ps_core_ring_fd(core.core))
        self.orders_wake = lib.ps_core_orders_wake_fd(core.core)
        self.ring_wake = lib.ps_core_ring_wake_fd(core.core)

    def fetch(self, *ids: int, **fields: float) -> None:
        """Order extents, and say so."""
        assert self.writer.put(fetches(*ids, **{"length": SLOT, **fields})) == len(ids)
        wake(self.orders_wake)

    def ends(self, count: int) -> list[End]:
        """Sleep until so many fetches have ended."""
        found: list[End] = []
        while len(found) < count:
            if not self.reader.wait_for(RingWaits.ALL):
                assert is_readable(self.ring_wake), f"not woken after {found}"
                os.eventfd_read(self.ring_wake)
            for part in self.reader.take():
                ended = part[part["kind"] == FactKind.FETCHED]
                found += [
                    End(int(fact["id"]), OrderEnd(int(fact["aux"])), int(fact["value"]))
                    for fact in ended
                ]
        return found

    def close(self) -> None:
        """Let go of both memories."""
        self.writer.close()
        self.reader.close()


def is_readable(descriptor: int, wait_s: float = WAIT_S) -> bool:
    return bool(select.select([descriptor], [], [], wait_s)[0])


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    made = Core(tmp_path)
    yield made
    made.free()


@pytest.fixture
def model(core: Core) -> Iterator[Model]:
    made = Model(core)
    yield made
    made.close()


@pytest.mark.parametrize("reactor", [0, 1])
def test_what_is_ordered_is_read_by_the_volumes_own_reactor_and_told_of(
    core: Core, model: Model, reactor: int
) -> None:
    volume = core.open(reactor=reactor)
    ids = range(1, 31)
    for number in ids:
        model.fetch(number, offset=number * SLOT, volume=volume)
    assert sorted(model.ends(30), key=lambda end: end.id) == [
        End(number, OrderEnd.LANDED, SLOT) for number in ids
    ]
    model.fetch(40, offset=3 * SLOT, volume=volume)
    assert model.ends(1) == [End(40, OrderEnd.WARM)]
    stats = ffi.new("struct ps_volume_stats *")
    assert lib.ps_core_volume_get_stats(core.core, volume, stats) == 0
    assert stats.media_read_bytes == 30 * SLOT
    assert core.stats().fetched_bytes == 30 * SLOT


def test_orders_are_taken_though_nobody_signals(core: Core, model: Model) -> None:
    volume = core.open()
    model.writer.put(fetches(1, offset=SLOT, length=SLOT, volume=volume))
    assert model.ends(1) == [End(1, OrderEnd.LANDED, SLOT)]


def test_a_descriptor_that_the_model_has_read_and_made_to_block_stops_nothing(
    core: Core, model: Model
) -> None:
    volume = core.open()
    os.set_blocking(model.orders_wake, True)
    for number in range(1, 20):
        model.fetch(number, offset=number * SLOT, volume=volume)
        os.eventfd_read(model.orders_wake)
        assert model.ends(1) == [End(number, OrderEnd.LANDED, SLOT)]


def test_a_model_that_does_not_wait_is_not_woken(core: Core, model: Model) -> None:
    volume = core.open()
    model.fetch(1, offset=SLOT, volume=volume)
    model.ends(1)
    model.reader.wait_for(RingWaits.NOT)
    if is_readable(model.ring_wake, 0):
        os.eventfd_read(model.ring_wake)
    model.fetch(2, offset=2 * SLOT, volume=volume)
    while core.stats().landed < 2:
        assert not is_readable(model.ring_wake, 0.001)
    assert not is_readable(model.ring_wake, 0)
    assert model.ends(1) == [End(2, OrderEnd.LANDED, SLOT)]


@pytest.mark.parametrize("abandon", [False, True])
def test_fetches_go_with_their_volume(core: Core, model: Model, abandon: bool) -> None:
    volume = core.open(f"stall:after=0|ram:size={64 * SLOT}", reactor=1)
    for number in (1, 2, 3):
        model.fetch(number, offset=number * SLOT, volume=volume)
    while core.stats().fetched_bytes == 0:
        assert core.stats().orders <= 3
    if not abandon:
        error = ffi.new("char[]", 200)
        assert lib.ps_core_volume_control(core.core, volume, b"stall", b"release", error, 200) == 0
    core.close_volume(volume, abandon=abandon)
    ends = model.ends(3)
    assert sorted(end.id for end in ends) == [1, 2, 3]
    allowed = {OrderEnd.FAILED} if abandon else set(OrderEnd)
    assert {end.end for end in ends} <= allowed
    assert core.stats().pending == 0
    again = core.open(reactor=1)
    model.fetch(1, offset=SLOT, volume=again)
    assert model.ends(1) == [End(1, OrderEnd.LANDED, SLOT)]


def test_a_volume_that_shrinks_ends_what_reaches_beyond(core: Core, model: Model) -> None:
    volume = core.open()
    assert lib.ps_core_volume_resize(core.core, volume, 8 * SLOT) == 0
    model.fetch(1, offset=8 * SLOT, volume=volume)
    assert model.ends(1) == [End(1, OrderEnd.FAILED)]
    assert lib.ps_core_volume_resize(core.core, volume, 9 * SLOT) == 0
    model.fetch(1, offset=8 * SLOT, volume=volume)
    assert model.ends(1) == [End(1, OrderEnd.LANDED, SLOT)]


def test_after_a_reset_nothing_is_pending_and_the_next_model_begins(
    core: Core, model: Model
) -> None:
    volume = core.open(f"stall:after=0|ram:size={64 * SLOT}")
    model.fetch(1, 2, 3, offset=SLOT, volume=volume)
    model.ends(0)
    while core.stats().fetches < 3:
        assert core.stats().refused == 0
    lib.ps_core_orders_reset(core.core)
    assert core.stats().pending == 0 and core.stats().resets == 1
    error = ffi.new("char[]", 200)
    assert lib.ps_core_volume_control(core.core, volume, b"stall", b"release", error, 200) == 0
    assert len(model.ends(3)) == 3
    with OrdersWriter(lib.ps_core_orders_fd(core.core)) as writer:
        assert writer.waiting == 0
        writer.put(fetches(1, offset=9 * SLOT, length=SLOT, volume=volume))
        wake(model.orders_wake)
        assert model.ends(1) == [End(1, OrderEnd.LANDED, SLOT)]


def test_a_data_path_without_a_model_has_no_descriptors_for_one(tmp_path: Path) -> None:
    core = Core(tmp_path, ring_capacity=0, orders_capacity=0)
    for of in (lib.ps_core_orders_fd, lib.ps_core_orders_wake_fd, lib.ps_core_ring_wake_fd):
        assert of(core.core) == -1
    lib.ps_core_orders_reset(core.core)
    assert core.stats().resets == 0
    core.free()


def test_orders_without_a_ring_are_carried_out(tmp_path: Path) -> None:
    core = Core(tmp_path, ring_capacity=0)
    volume = core.open()
    with OrdersWriter(lib.ps_core_orders_fd(core.core)) as writer:
        writer.put(fetches(1, offset=SLOT, length=SLOT, volume=volume))
        wake(lib.ps_core_orders_wake_fd(core.core))
        while core.stats().landed == 0:
            assert core.stats().refused == 0
    core.free()


@pytest.mark.parametrize("capacity", [3, 1 << 21])
def test_room_for_orders_is_a_power_of_two_up_to_a_bound(tmp_path: Path, capacity: int) -> None:
    with pytest.raises(ValueError, match=f"orders_capacity is {capacity}, expected a power of two"):
        Core(tmp_path, orders_capacity=capacity)
