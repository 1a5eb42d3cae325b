"""The reader of the ring of facts (csrc/ring.h): what the data path saw, for the model.

The ring is a sealed memfd that any process may map; there is one reader at a time. The data path
never waits for it: what finds the ring full is counted in `lost` and is gone.
"""

from __future__ import annotations

import threading
from enum import IntEnum, IntFlag
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from prestage.target.errors import TargetError
from prestage.target.mapped import Mapped, Shape

__all__ = [
    "FACT",
    "HEADER",
    "FactFlag",
    "FactKind",
    "RingError",
    "RingReader",
    "RingWaits",
    "struct_dtype",
]

MAGIC: Final = 0x52584150
VERSION: Final = 1
FACT_BYTES: Final = 64

HEADER_FIELDS: Final = (
    ("magic", "<u4", 0),
    ("version", "<u4", 4),
    ("fact_size", "<u4", 8),
    ("facts_offset", "<u4", 12),
    ("capacity", "<u8", 16),
    ("head", "<u8", 64),
    ("lost", "<u8", 72),
    ("tail", "<u8", 128),
    ("waits", "<u8", 136),
)
"""Name, type and offset in bytes: struct ps_ring_header without what is reserved."""
HEADER_BYTES: Final = 192

FACT_FIELDS: Final = (
    ("time_ns", "<u8", 0),
    ("offset", "<u8", 8),
    ("length", "<u8", 16),
    ("session", "<u8", 24),
    ("id", "<u8", 32),
    ("value", "<u8", 40),
    ("aux", "<u4", 48),
    ("volume", "<u2", 52),
    ("tenant", "<u2", 54),
    ("kind", "u1", 56),
    ("flags", "u1", 57),
    ("priority", "u1", 58),
    ("confidence", "u1", 59),
    ("queue", "<u4", 60),
)
"""Name, type and offset in bytes: struct ps_fact."""


def struct_dtype(fields: tuple[tuple[str, str, int], ...], size: int) -> np.dtype[np.void]:
    """Return the dtype of a C struct of `size` bytes: name, type and offset of each field."""
    names, formats, offsets = (list(column) for column in zip(*fields, strict=True))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


HEADER: Final = struct_dtype(HEADER_FIELDS, HEADER_BYTES)
FACT: Final = struct_dtype(FACT_FIELDS, FACT_BYTES)


class FactKind(IntEnum):
    """What happened: enum ps_fact_kind. csrc/ring.h says which fields each has."""

    READ = 1
    WRITE = 2
    DISCARD = 3
    SET = 4
    RANGE = 5
    SIGNATURE = 6
    INTENT = 7
    RETAIN = 8
    CANCEL = 9
    OUTCOME = 10
    UNMAPPED = 11
    FETCHED = 12
    EVICTED = 13


class FactFlag(IntFlag):
    """Of a READ, or (UNREAD) an EVICTED: enum ps_fact_flag."""

    HIT = 1
    READAHEAD = 2
    ONCE = 4
    SEQUENTIAL = 8
    DATED = 16
    ATTRIBUTES = 32
    UNREAD = 64


class RingWaits(IntEnum):
    """What a reader that sleeps wants to be woken for: enum ps_ring_waits."""

    NOT = 0
    HINTS = 1
    ALL = 2


_OF_HINTS: Final = (*range(FactKind.SET, FactKind.CANCEL + 1), FactKind.UNMAPPED)
"""Kinds of facts that RingWaits.HINTS is about."""


class RingError(TargetError):
    """The memory is no ring of facts that this reader knows, or what it says cannot be."""


SHAPE: Final = Shape(
    "ring of facts",
    HEADER,
    {"magic": MAGIC, "version": VERSION, "fact_size": FACT_BYTES},
    RingError,
)


class RingReader:
    """Takes facts out of the ring behind `descriptor`, which is duplicated.

    Goes on where the last reader stopped. Raises RingError when the memory is no such ring, OSError
    when it cannot be mapped.

    Arrays that `take` returned are views of the shared memory (dtype FACT, shape (n,), read-only),
    good until the next `take`, `release` or `close`; copy what is to stay.
    """

    def __init__(self, descriptor: int) -> None:
        self._fence = threading.Lock()
        self._fence.acquire()
        self._mapped = Mapped(descriptor, SHAPE)
        self._header = self._mapped.header
        self._facts = self._mapped.ring(FACT, "facts", int(self._header["facts_offset"]))
        self._facts.flags.writeable = False
        self._tail = int(self._header["tail"])
        self._taken = 0

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
        """Facts that the ring holds at most."""
        return len(self._facts)

    @property
    def lost(self) -> int:
        """Facts so far that found the ring full."""
        return int(self._header["lost"])

    @property
    def backlog(self) -> int:
        """Facts that wait, those of the last `take` included."""
        return int(self._header["head"]) - self._tail

    def take(self, most: int | None = None) -> tuple[NDArray[np.void], ...]:
        """Return the facts that are new, oldest first, in none, one or two arrays; `most` at most.

        What the last call returned is given back to the data path first. Raises RingError when the
        counts of the ring cannot be.
        """
        self.release()
        waiting = self.backlog
        if not 0 <= waiting <= self.capacity:
            raise RingError(f"{waiting} facts wait", "ring of facts", f"0 to {self.capacity}")
        self._order()
        self._taken = waiting if most is None else min(waiting, most)
        start = self._tail % self.capacity
        first = min(self._taken, self.capacity - start)
        parts = (self._facts[start : start + first], self._facts[: self._taken - first])
        return tuple(part for part in parts if len(part))

    def release(self) -> None:
        """Give back what the last `take` returned: the data path may write over it."""
        if self._taken:
            self._order()
            self._tail += self._taken
            self._taken = 0
            self._header["tail"] = self._tail

    def wait_for(self, waits: RingWaits) -> bool:
        """Say what is to wake this reader, and return whether some of that is in the ring already.

        For that, facts of the last `take` do not count. When there is some, the reader is not
        waiting: take it. When there is none, sleep until the data path signals; for HINTS also
        when facts are lost. No wake-up is lost: what is put in after this looked, is put in by
        who sees that somebody waits. NOT ends the waiting and returns False. Raises RingError when
        the counts cannot be.
        """
        self._header["waits"] = waits
        if waits == RingWaits.NOT:
            return False
        self._order()
        has_facts = self._has_new(waits)
        if has_facts:
            self._header["waits"] = RingWaits.NOT
        return has_facts

    def _has_new(self, waits: RingWaits) -> bool:
        known, backlog = self._taken, self.backlog
        if not known <= backlog <= self.capacity:
            raise RingError(f"{backlog} facts wait", "ring of facts", f"{known} to {self.capacity}")
        if waits == RingWaits.ALL or backlog == known:
            return backlog > known
        self._order()
        places = np.arange(self._tail + known, self._tail + backlog) % self.capacity
        return bool(np.isin(self._facts["kind"][places], _OF_HINTS).any())

    def close(self) -> None:
        """Forget the memory, which is unmapped when the last array is gone.

        What was taken last and not released comes again to the next reader.
        """
        del self._header, self._facts
        self._mapped.close()

    def _order(self) -> None:
        # Giving the lock and taking it again is a release and an acquire: no machine moves loads
        # and stores across both.
        self._fence.release()
        self._fence.acquire()
