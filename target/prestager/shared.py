"""The model's side of the memory of orders (csrc/orders.h): what it wants done, and what it sees.

The memory is a sealed memfd with a ring of orders and two value tables. The data path believes
nothing that stands there; it takes an order when it gets to it, and never waits for one.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from prestage.target.errors import Invalid, TargetError
from prestage.target.mapped import Mapped, Shape
from prestage.target.ring import struct_dtype

__all__ = [
    "AGE_BINS",
    "CLASSES",
    "HEADER",
    "MAX_ORDER_BYTES",
    "ORDER",
    "OWN_CLASSES",
    "Gauges",
    "OrderEnd",
    "OrderKind",
    "OrdersError",
    "OrdersWriter",
    "wake",
]

MAGIC: Final = 0x4F584150
VERSION: Final = 1
ORDER_BYTES: Final = 64
MAX_ORDER_BYTES: Final = 268435456
"""That one order may be about."""
CLASSES: Final = 64
OWN_CLASSES: Final = 8
"""Classes below are the tier's own, the others are the model's."""
AGE_BINS: Final = 64
TABLES: Final = 2
TABLE_BYTES: Final = CLASSES * AGE_BINS * 4

HEADER_FIELDS: Final = (
    ("magic", "<u4", 0),
    ("version", "<u4", 4),
    ("order_size", "<u4", 8),
    ("orders_offset", "<u4", 12),
    ("values_offset", "<u4", 16),
    ("table_bytes", "<u4", 20),
    ("capacity", "<u8", 24),
    ("head", "<u8", 64),
    ("tail", "<u8", 128),
    ("refused", "<u8", 136),
    ("now_ns", "<u8", 144),
    ("bandwidth", "<u8", 152),
    ("fetch_bytes", "<u8", 160),
    ("fetches", "<u4", 168),
    ("frame_count", "<u4", 172),
    ("frames_free", "<u4", 176),
    ("slot_size", "<u4", 180),
)
"""Name, type and offset in bytes: struct ps_orders_header without what is reserved."""
HEADER_BYTES: Final = 192

ORDER_FIELDS: Final = (
    ("id", "<u8", 0),
    ("offset", "<u8", 8),
    ("length", "<u8", 16),
    ("age_ns", "<u8", 24),
    ("expires_ns", "<u8", 32),
    ("value", "<f4", 40),
    ("aux", "<u4", 44),
    ("volume", "<u2", 48),
    ("tenant", "<u2", 50),
    ("kind", "u1", 52),
    ("value_class", "u1", 53),
    ("reserved", "V10", 54),
)
"""Name, type and offset in bytes: struct ps_order. All its bytes are named: numpy would leave out
the others where it joins arrays."""


HEADER: Final = struct_dtype(HEADER_FIELDS, HEADER_BYTES)
ORDER: Final = struct_dtype(ORDER_FIELDS, ORDER_BYTES)


class OrderKind(IntEnum):
    """What is to be done: enum ps_order_kind. csrc/orders.h says which fields each has."""

    FETCH = 1
    CLASSIFY = 2
    WITHDRAW = 3
    VALUES = 4
    RESET = 5


class OrderEnd(IntEnum):
    """How a fetch ended, the `aux` of FactKind.FETCHED: enum ps_order_end."""

    LANDED = 0
    WARM = 1
    NO_ROOM = 2
    FAILED = 3
    WITHDRAWN = 4
    EXPIRED = 5


class OrdersError(TargetError):
    """The memory is none of orders that this writer knows, or what it says cannot be."""


SHAPE: Final = Shape(
    "memory of orders",
    HEADER,
    {
        "magic": MAGIC, "version": VERSION, "order_size": ORDER_BYTES, "table_bytes": TABLE_BYTES,
    },
    OrdersError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gauges:
    """What the data path said last of itself."""

    bandwidth: float
    """That all media together are estimated to have, bytes per second."""
    fetch_bytes: int
    """Of fetches, not started yet."""
    fetches: int
    """That have not ended."""
    frame_count: int
    """Extents that the tier holds at most."""
    frames_free: int
    slot_size: int
    """Bytes of an extent."""


class OrdersWriter:
    """Writes orders into the memory behind `descriptor`, which is duplicated. One at a time.

    Goes on where the last writer stopped. Raises OrdersError when the memory is no such memory,
    OSError when it cannot be mapped.
    """

    def __init__(self, descriptor: int) -> None:
        self._fence = threading.Lock()
        self._fence.acquire()
        self._mapped = Mapped(descriptor, SHAPE)
        self._header = self._mapped.header
        self._orders = self._mapped.ring(ORDER, "orders", int(self._header["orders_offset"]))
        self._tables = self._find_tables()
        self._head = int(self._header["head"])
        self._next_table = 0
        self._room()

    def _find_tables(self) -> NDArray[np.float32]:
        offset, size = int(self._header["values_offset"]), self._mapped.size_bytes
        behind = int(self._header["orders_offset"]) + len(self._orders) * ORDER_BYTES
        if offset < behind or offset % 4 or offset + TABLES * TABLE_BYTES > size:
            raise OrdersError(f"value tables at byte {offset} of {size}", "memory of orders")
        count = TABLES * CLASSES * AGE_BINS
        values = np.frombuffer(self._mapped.memory, np.float32, count=count, offset=offset)
        return values.reshape(TABLES, CLASSES, AGE_BINS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def capacity(self) -> int:
        """Orders that the memory holds at most."""
        return len(self._orders)

    @property
    def waiting(self) -> int:
        """Orders that the data path has not taken. Raises OrdersError as `put` does."""
        return self.capacity - self._room()

    @property
    def refused(self) -> int:
        """Orders that the data path found wrong."""
        return int(self._header["refused"])

    @property
    def gauges_ns(self) -> int:
        """Of when the gauges are, on the clock of the facts."""
        return int(self._header["now_ns"])

    def put(self, orders: NDArray[np.void]) -> int:
        """Write orders (dtype ORDER, shape (n,)); return how many of them found room.

        Those are the first ones; the others were not written. Somebody has to `wake` the data path
        then. Raises Invalid for another dtype, OrdersError when the counts of the memory cannot be.
        """
        if orders.dtype != ORDER or orders.ndim != 1:
            raise Invalid(
                f"{orders.ndim} dimensions of {orders.dtype}", "orders", "one dimension of ORDER"
            )
        count = min(self._room(), len(orders))
        start = self._head % self.capacity
        first = min(count, self.capacity - start)
        self._orders[start : start + first] = orders[:first]
        self._orders[: count - first] = orders[first:count]
        self._order()
        self._head += count
        self._header["head"] = self._head
        return count

    def publish(self, values: NDArray[np.float32]) -> bool:
        """Order that these value tables (shape (CLASSES, AGE_BINS)) are in force from now on.

        They are written where those in force are not. False: the order found no room, and nothing
        was written. Raises Invalid for another shape, OrdersError as `put` does.
        """
        if values.shape != (CLASSES, AGE_BINS):
            raise Invalid(f"shape {values.shape}", "value tables", f"{(CLASSES, AGE_BINS)}")
        if self._room() == 0:
            return False
        order = np.zeros(1, ORDER)
        order["kind"] = OrderKind.VALUES
        order["aux"] = self._next_table
        self._tables[self._next_table] = values
        self._next_table = 1 - self._next_table
        return self.put(order) == 1

    def gauges(self) -> Gauges:
        """Return what the data path said last of itself; each number by itself is whole."""
        header = self._header
        return Gauges(
            bandwidth=float(header["bandwidth"]),
            fetch_bytes=int(header["fetch_bytes"]),
            fetches=int(header["fetches"]),
            frame_count=int(header["frame_count"]),
            frames_free=int(header["frames_free"]),
            slot_size=int(header["slot_size"]),
        )

    def close(self) -> None:
        """Forget the memory. What was put and not taken is still taken."""
        del self._header, self._orders, self._tables
        self._mapped.close()

    def _room(self) -> int:
        waiting = self._head - int(self._header["tail"])
        if not 0 <= waiting <= self.capacity:
            raise OrdersError(f"{waiting} orders wait", "memory of orders", f"0 to {self.capacity}")
        self._order()
        return self.capacity - waiting

    def _order(self) -> None:
        # Giving the lock and taking it again is a release and an acquire: no machine moves loads
        # and stores across both.
        self._fence.release()
        self._fence.acquire()


def wake(descriptor: int) -> None:
    """Signal an eventfd: there are orders. Raises OSError when `descriptor` is none."""
    with contextlib.suppress(BlockingIOError):  # it was signalled too often to count
        os.eventfd_write(descriptor, 1)
