"""A Python face for the orders: beside hints, over a real tier without payload, real schedulers,
and media whose work ends when it is told to. After every call all invariants are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hints_media import NEVER, SLOT, Operation
from hints_support import TENANTS, Rig
from numpy.typing import NDArray

from prestage._core import ffi, lib
from prestage.target.prestager.shared import (
    AGE_BINS,
    CLASSES,
    ORDER,
    OWN_CLASSES,
    OrderEnd,
    OrderKind,
    OrdersWriter,
)
from prestage.target.ring import FactKind

CAPACITY = 256
OF_ORDERS = 1 << 63
"""PS_COOKIE_OF_ORDERS."""


@dataclass(frozen=True)
class End:
    """How a fetch ended, as the ring was told."""

    id: int
    end: OrderEnd
    read_bytes: int = 0


@dataclass
class OrdersRig(Rig):
    """Volume n is namespace n + 1, and all orders are about whole extents unless said."""

    ring_facts: int = 4096
    fetches: int = 64
    piece_bytes: int = 4 * SLOT

    def __post_init__(self) -> None:
        self.orders = ffi.NULL
        super().__post_init__()
        config = {
            "capacity": CAPACITY,
            "fetches": self.fetches,
            "volume_count": 4,
            "tenant_count": TENANTS,
            "slot_size": SLOT,
            "piece_bytes": self.piece_bytes,
        }
        made = lib.ps_orders_new(ffi.new("struct ps_orders_config *", config), self.tier, self.ring)
        assert made != ffi.NULL
        self.orders = ffi.gc(made, lib.ps_orders_free)
        for volume, size in self.sizes.items():
            lib.ps_orders_volume(self.orders, self.now_ns, volume, self.scheds[volume], size)
        self.writer = OrdersWriter(lib.ps_orders_fd(self.orders))

    # ---- what the rig of hints does, for both ----

    def check(self) -> None:
        """Fail when an invariant does not hold."""
        super().check()
        assert self.orders == ffi.NULL or lib.ps_orders_check(self.orders) == 0

    def tick(self, to_ns: int | None = None) -> None:
        """Let time go on (to now, or to a time), and tick as often as is due."""
        super().tick(to_ns)
        while lib.ps_orders_next_time(self.orders) <= self.now_ns:
            lib.ps_orders_take(self.orders, self.now_ns, 0)
            self.check()

    def forget_announced(self) -> None:
        """Take note of all volumes that are to be looked at: all are, each time."""
        super().forget_announced()
        while lib.ps_orders_next_volume(self.orders) >= 0:
            pass

    def start_job(self, job: Any) -> None:
        """Have a piece of a job started by whoever gave it to the scheduler."""
        if job.owner == 1:
            lib.ps_orders_start_job(self.orders, self.now_ns, job)
        else:
            super().start_job(job)

    def fill_ended(self, operation: Operation, error: int) -> None:
        """Tell whoever wanted it that a fill has ended."""
        if operation.cookie & OF_ORDERS:
            lib.ps_orders_fill_ended(
                self.orders, self.now_ns, operation.cookie, operation.length, error
            )
        else:
            super().fill_ended(operation, error)

    def remove_volume(self, volume: int) -> None:
        """Take a volume away from hints and orders, as a closing volume does."""
        lib.ps_orders_volume(self.orders, self.now_ns, volume, ffi.NULL, 0)
        super().remove_volume(volume)

    def resize_volume(self, volume: int, size: int) -> None:
        """Give a volume another size."""
        assert lib.ps_tier_volume_resize(self.tier, volume, size) == 0
        self.sizes[volume] = size
        lib.ps_orders_volume(self.orders, self.now_ns, volume, self.scheds[volume], size)
        self.check()

    # ---- orders ----

    def give(self, orders: NDArray[np.void]) -> None:
        """Write orders, and have all of them taken."""
        assert self.writer.put(orders) == len(orders)
        while not lib.ps_orders_take(self.orders, self.now_ns, CAPACITY):
            self.check()
        self.check()

    def fetch(self, *ids: int, **fields: float) -> None:
        """Order fetches: the id says which extent, as long as `offset` does not."""
        self.give(fetches(*ids, **fields))

    def order(self, kind: OrderKind, **fields: float) -> None:
        """Give one order of a kind."""
        order = np.zeros(1, ORDER)
        order["kind"] = kind
        for name, value in fields.items():
            order[name] = value
        self.give(order)

    def publish(self, worth: float = 0.0, **classes: float) -> None:
        """Have value tables in force: all is worth the same, but for classes "c0" to "c63"."""
        values = np.full((CLASSES, AGE_BINS), worth, np.float32)
        for name, value in classes.items():
            values[int(name[1:])] = value
        assert self.writer.publish(values)
        assert lib.ps_orders_take(self.orders, self.now_ns, CAPACITY)
        self.check()

    def reset(self) -> None:
        """The model is gone."""
        lib.ps_orders_reset(self.orders, self.now_ns)
        self.check()

    # ---- what came of them ----

    def ends(self) -> list[End]:
        """Take all facts out of the ring; return the ends of fetches among them."""
        return [
            End(fact.id, OrderEnd(fact.aux), fact.value)
            for fact in self.facts()
            if fact.kind == FactKind.FETCHED
        ]

    def order_stats(self) -> Any:
        """Return a struct ps_orders_stats."""
        stats = ffi.new("struct ps_orders_stats *")
        lib.ps_orders_get_stats(self.orders, stats)
        return stats


def fetches(*ids: int, **fields: float) -> NDArray[np.void]:
    """Return orders to fetch: the id says which extent, as long as `offset` does not."""
    orders = np.zeros(len(ids), ORDER)
    orders["kind"] = OrderKind.FETCH
    orders["id"] = ids
    orders["offset"] = np.array(ids, np.uint64) * SLOT
    orders["length"] = SLOT
    orders["expires_ns"] = NEVER
    orders["value"] = 1.0
    orders["value_class"] = OWN_CLASSES
    for name, value in fields.items():
        orders[name] = value
    return orders
