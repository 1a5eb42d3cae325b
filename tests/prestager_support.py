"""The shared memories that a prestager's process works on, made and looked at by byte offsets.

The layouts of csrc/ring.h and csrc/orders.h are written down here once more: a wrong offset in the
target is not repeated.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from prestage.target.prestager.launch import Alive, Launch, Words

FOLLOWER = (sys.executable, str(Path(__file__).parent / "follower.py"))
"""The program that follower.py is."""
TROUBLE = "PRESTAGE_TEST_TROUBLE"
WITHIN_S = 20.0

MIB = 1 << 20
SLOT = 65536
FRAMES = 256
READ, INTENT, FETCHED = 1, 7, 12
FETCH = 1
ITEM = 64
START = 4096
"""Where facts and orders begin."""
TABLE_BYTES = 64 * 64 * 4


@dataclass(frozen=True)
class Order:
    """What was found in the memory of orders."""

    kind: int
    id: int
    offset: int
    length: int
    expires_ns: int
    volume: int
    tenant: int
    aux: int


class Shared:
    """A memfd with numbers in it."""

    def __init__(self, name: str, size: int) -> None:
        self.fd = os.memfd_create(name)
        os.ftruncate(self.fd, size)
        self.memory = mmap.mmap(self.fd, size)

    def write(self, form: str, offset: int, *values: int) -> None:
        struct.pack_into(f"<{form}", self.memory, offset, *values)

    def read(self, form: str, offset: int) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self.memory, offset)
        return value

    def close(self) -> None:
        self.memory.close()
        os.close(self.fd)


class Memories:
    """Ring, orders and wake descriptors, as a data path has them."""

    def __init__(self, facts: int = 1024, orders: int = 256) -> None:
        self.capacity, self.orders_capacity = facts, orders
        self.ring = Shared("facts", START + facts * ITEM)
        self.ring.write("IIIIQ", 0, 0x52584150, 1, ITEM, START, facts)
        values = START + orders * ITEM
        self.orders = Shared("orders", values + 2 * TABLE_BYTES)
        self.orders.write("IIIIIIQ", 0, 0x4F584150, 1, ITEM, START, values, TABLE_BYTES, orders)
        self.orders.write("IIII", 168, 0, FRAMES, FRAMES, SLOT)
        self.ring_wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.orders_wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.ring.close()
        self.orders.close()
        os.close(self.ring_wake)
        os.close(self.orders_wake)

    # ---- facts ----

    def put(
        self, kind: int = READ, *, offset: int, volume: int = 0, tenant: int = 0, time_ns: int = 1
    ) -> None:
        """One fact of a slot, as the data path puts it."""
        head = self.ring.read("Q", 64)
        assert head - self.ring.read("Q", 128) < self.capacity, "the ring is full"
        at = START + head % self.capacity * ITEM
        self.ring.write("QQQQQQIHHBBBBI", at, time_ns, offset, SLOT, 0, 0, 0, 0, volume, tenant,
                        kind, 0, 0, 0, 0)  # fmt: skip
        self.ring.write("Q", 64, head + 1)

    def wake(self) -> None:
        """Tell the reader, as the data path does when it waits."""
        os.eventfd_write(self.ring_wake, 1)

    @property
    def taken(self) -> int:
        """Facts that were taken so far."""
        return int(self.ring.read("Q", 128))

    # ---- orders ----

    def take(self) -> list[Order]:
        """The orders that are new."""
        head, tail = self.orders.read("Q", 64), self.orders.read("Q", 128)
        found = []
        for number in range(tail, head):
            at = START + number % self.orders_capacity * ITEM
            order, offset, length, _, expires_ns, _, aux, volume, tenant, kind, _ = (
                struct.unpack_from("<QQQQQfIHHBB", self.orders.memory, at)
            )
            found.append(Order(kind, order, offset, length, expires_ns, volume, tenant, aux))
        self.orders.write("Q", 128, head)
        return found

    def fetches(self) -> list[Order]:
        """Those among the orders that are new."""
        return [order for order in self.take() if order.kind == FETCH]


PARENT = (
    sys.executable,
    "-c",
    "import subprocess, sys; subprocess.Popen(sys.argv[1:], close_fds=False); sys.stdin.read()",
)
"""A program that starts another, and does nothing until it is killed."""


class Prestaged:
    """The process, started as the target starts it, with the prestager of follower.py inside.

    With a `parent`, `process` is the program that has started it.
    """

    def __init__(self, memories: Memories, snapshot: Path, trouble: str = "", **more: Any) -> None:
        self.memories = memories
        self.channel, its = socket.socketpair()
        self.channel.settimeout(WITHIN_S)
        parent = more.pop("parent", ())
        self._came = b""
        first = more.pop("first", {})
        fds: dict[str, Any] = {
            "channel": its.fileno(),
            "ring": memories.ring.fd,
            "orders": memories.orders.fd,
            "ring_wake": memories.ring_wake,
            "orders_wake": memories.orders_wake,
        }
        self.launch = Launch(
            **fds, frame_count=FRAMES, slot_size=more.pop("slot_size", SLOT), seed=5,
            holdout_share=0.25, snapshot=str(snapshot), snapshot_s=more.pop("snapshot_s", 0),
            report_s=more.pop("report_s", 0.02), **more,
        )  # fmt: skip
        path = os.pathsep.join(filter(None, sys.path))
        self.process = subprocess.Popen(
            [*parent, *FOLLOWER, msgspec.json.encode(self.launch).decode()],
            pass_fds=tuple(fds.values()),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, TROUBLE: trouble},
        )
        its.close()
        self.name(**first)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.channel.close()
        if self.process.poll() is None and error is not None:
            self.process.kill()
        _, said = self.process.communicate(timeout=WITHIN_S)
        if error is not None:
            print(said.decode(errors="replace")[-4000:])

    def hear(self) -> Alive:
        """The next sign of life."""
        while b"\n" not in self._came:
            piece = self.channel.recv(1 << 16)
            assert piece, "it has closed its end"
            self._came += piece
        line, _, self._came = self._came.partition(b"\n")
        return msgspec.json.decode(line, type=Alive)

    def hear_of(self, is_right: Callable[[Alive], bool]) -> Alive:
        """The first sign of life that is right."""
        limit = time.monotonic() + WITHIN_S
        while not is_right(alive := self.hear()):
            assert time.monotonic() < limit, alive
        return alive

    def until_gone(self) -> None:
        """Wait until nobody has the other end of the channel."""
        while self.channel.recv(1 << 16):
            pass

    def name(self, **names: Any) -> None:
        """Say what numbers stand for."""
        self.channel.sendall(msgspec.json.encode(Words(**names)) + b"\n")

    def fetches(self, count: int) -> list[Order]:
        """The next orders to fetch, at least so many."""
        found: list[Order] = []
        limit = time.monotonic() + WITHIN_S
        while len(found) < count:
            left_s = limit - time.monotonic()
            ready, _, _ = select.select([self.memories.orders_wake], [], [], max(left_s, 0))
            assert ready, f"only {found}"
            os.eventfd_read(self.memories.orders_wake)
            found += self.memories.fetches()
        return found

    def say_goodbye(self) -> None:
        """Say that the target stops."""
        self.channel.sendall(msgspec.json.encode(Words(is_last=True)) + b"\n")
        self.channel.shutdown(socket.SHUT_WR)

    def end(self) -> int:
        """Let it end as when the target stops; returns its exit status."""
        self.say_goodbye()
        return self.process.wait(WITHIN_S)
