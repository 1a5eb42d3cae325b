"""What is known of each extent: whose it is, where in its chain, and whether it is in the tier.

An open-addressing map from (volume, extent) to a row, and the rows as structure of arrays; every
operation is about many extents at once. A row is 22 bytes, its place in the index 8 to 16.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ABSENT", "AHEAD", "EXTENT_BITS", "I64", "PREDICTED", "READ_AHEAD", "WAITING",
    "WAS_FETCHED", "ExtentMap", "extent_keys",
]  # fmt: skip

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

ABSENT: Final = -1
WAITING: Final = 1
PREDICTED: Final = 2
AHEAD: Final = 4
READ_AHEAD: Final = 8
WAS_FETCHED: Final = AHEAD | READ_AHEAD
EXTENT_BITS: Final = 48
"""Of a key; the volume is above them."""
MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: Fibonacci hashing."""
FIELDS: Final[tuple[tuple[str, type[np.generic]], ...]] = (
    ("key", np.uint64),
    ("group", np.int32),
    ("position", np.int32),
    ("moves", np.uint8),
    ("turn", np.uint8),
    ("resident", np.uint8),
    ("marks", np.uint8),
    ("ghost", np.uint8),
    ("announced", np.uint8),
)


def extent_keys(volume: NDArray[Any], extent: NDArray[Any]) -> U64:
    """Return the keys of extents (numbers of slots from the start of their volumes)."""
    return (volume.astype(np.uint64) << np.uint64(EXTENT_BITS)) | extent.astype(np.uint64)


class ExtentMap:
    """Rows by key. `group` is ABSENT while nobody has the extent; `resident` is 0 or 1.

    `position` is its place in its chain; `turn` is the last of its group's touches, modulo 256,
    that it was part of. `moves` counts how often a group that lives on lost the
    extent to another; `marks` are bits WAITING (asked for, and has not landed), PREDICTED (part of
    its group's prediction), AHEAD (it landed, and nobody is known to have read it) and READ_AHEAD
    (it was AHEAD until it was evicted, after it had been read). `ghost` is, of 255, how likely it
    is that what was fetched ahead drove it out. `announced` is 0 unless a host has said
    that it will read it: see Announced.
    """

    def __init__(self, capacity: int = 1024) -> None:
        size = 1 << max(6, (max(1, capacity) - 1).bit_length())
        self.count = 0
        self.key = np.zeros(size, np.uint64)
        self.group = np.full(size, ABSENT, np.int32)
        self.position = np.zeros(size, np.int32)
        self.moves = np.zeros(size, np.uint8)
        self.turn = np.zeros(size, np.uint8)
        self.resident = np.zeros(size, np.uint8)
        self.marks = np.zeros(size, np.uint8)
        self.ghost = np.zeros(size, np.uint8)
        self.announced = np.zeros(size, np.uint8)
        self._free = np.zeros(0, np.int64)
        self._index = np.full(2 * size, ABSENT, np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of the index."""
        rows = sum(getattr(self, name).nbytes for name, _ in FIELDS)
        return int(rows + self._index.nbytes + self._free.nbytes)

    def find(self, keys: U64) -> I64:
        """Return the rows of `keys`, ABSENT where there is none."""
        return self._probe(keys)[0]

    def find_or_add(self, keys: U64) -> I64:
        """Return the rows of `keys` (any number of times the same); new ones get fresh rows."""
        rows, _ = self._probe(keys)
        new = np.flatnonzero(rows < 0)
        if len(new) == 0:
            return rows
        fresh, inverse = np.unique(keys[new], return_inverse=True)
        first = np.full(len(fresh), len(keys), np.int64)
        np.minimum.at(first, inverse, new)
        # Rows in the order of first sight: neighbours in a chain are neighbours in memory.
        order = np.argsort(first)
        made = self._take_rows(len(fresh))
        self.key[made] = fresh[order]
        self._insert(made)
        row_of = np.empty(len(fresh), np.int64)
        row_of[order] = made
        rows[new] = row_of[inverse]
        return rows

    def remove(self, rows: I64) -> None:
        """Forget `rows`, each once; they are given to other extents later."""
        if len(rows) == 0:
            return
        self.group[rows] = ABSENT
        self.resident[rows] = 0
        self._free = np.concatenate((self._free, rows))
        self.count -= len(rows)
        self._rebuild(2 * len(self.key))

    def in_range(self, volume: int, first: int, stop: int) -> I64:
        """Return the rows of the extents `first` to `stop` - 1 of a volume."""
        base = volume << EXTENT_BITS
        if stop - first <= self.count:
            rows = self.find(np.arange(base + first, base + stop, dtype=np.uint64))
            return rows[rows >= 0]
        rows = self.live_rows()
        low, high = np.uint64(base + first), np.uint64(base + stop - 1)
        return rows[(self.key[rows] >= low) & (self.key[rows] <= high)]

    def live_rows(self) -> I64:
        """Return the rows that stand for an extent, in ascending order."""
        return np.sort(self._index[self._index >= 0]).astype(np.int64)

    def _take_rows(self, count: int) -> I64:
        reused = self._free[len(self._free) - min(count, len(self._free)) :]
        self._free = self._free[: len(self._free) - len(reused)]
        used = self.count + len(self._free) + len(reused)
        fresh = count - len(reused)
        while used + fresh > len(self.key):
            self._grow()
        made = np.concatenate((reused, np.arange(used, used + fresh)))
        for name, kind in FIELDS[1:]:
            getattr(self, name)[made] = kind(ABSENT if name == "group" else 0)
        self.count += count
        return made

    def _grow(self) -> None:
        size = len(self.key)
        for name, kind in FIELDS:
            grown = np.full(2 * size, ABSENT if name == "group" else 0, kind)
            grown[:size] = getattr(self, name)
            setattr(self, name, grown)
        self._rebuild(4 * size)

    def _rebuild(self, size: int) -> None:
        rows = self.live_rows()
        if len(self._free):
            rows = np.setdiff1d(rows, self._free, assume_unique=True)
        self._index = np.full(size, ABSENT, np.int32)
        self._insert(rows)

    def _probe(self, keys: U64) -> tuple[I64, I64]:
        """Return rows, and the place of the index where each search ended."""
        mask = len(self._index) - 1
        place = self._home(keys)
        rows = self._index[place].astype(np.int64)
        open_ = np.flatnonzero((rows >= 0) & (self.key[rows] != keys))
        while len(open_):
            place[open_] = (place[open_] + 1) & mask
            found = self._index[place[open_]].astype(np.int64)
            rows[open_] = found
            open_ = open_[(found >= 0) & (self.key[found] != keys[open_])]
        return rows, place

    def _home(self, keys: U64) -> I64:
        shift = np.uint64(64 - (len(self._index).bit_length() - 1))
        return ((keys * MULTIPLIER) >> shift).astype(np.int64)

    def _insert(self, rows: I64) -> None:
        """Enter rows whose keys are not in the index, each once."""
        mask = len(self._index) - 1
        place = self._home(self.key[rows])
        while len(rows):
            free = self._index[place] < 0
            self._index[place[free]] = rows[free]
            lost = self._index[place] != rows
            rows, place = rows[lost], (place[lost] + 1) & mask
