"""Groups: extents that are used together, in the order of their chain.

Records are a structure of arrays of about 64 bytes a group. The members of a group are a slice of
one arena of row numbers (4 bytes a member), with room to grow; a slice may hold rows that have left
the group since, so a listing asks each row whose it is.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prestage.target.prestager.extents import ABSENT, I64, ExtentMap

__all__ = ["FREE", "LIVE", "SHARED", "TAIL", "Groups", "slices"]

FREE: Final = 0
LIVE: Final = 1
SHARED: Final = 2
"""A group of one extent that several groups use."""
TAIL: Final = 3
"""The last extent of a chain, apart from it: it may be written anew, and never read."""

FIELDS: Final[tuple[tuple[str, type[np.generic], int], ...]] = (
    ("touched_s", np.float64, 0),
    ("asked_s", np.float64, 0),
    ("looked_s", np.float32, 0),
    ("gap_s", np.float32, 0),
    ("past_gap_s", np.float32, 0),
    ("score", np.float32, 0),
    ("size", np.int32, 0),
    ("start", np.uint32, 0),
    ("used", np.int32, 0),
    ("room", np.int32, 0),
    ("prediction", np.int32, ABSENT),
    ("fresh", np.int32, 0),
    ("last_row", np.int32, ABSENT),
    ("touches", np.uint16, 0),
    ("tenant", np.uint16, 0),
    ("value_class", np.uint8, 0),
    ("kind", np.uint8, FREE),
    ("missing", np.uint8, 0),
)


def slices(starts: I64, lengths: I64) -> I64:
    """Return the numbers of all slices [start, start + length), one slice after the other."""
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(total) + np.repeat(starts - before, lengths), np.int64)


class Groups:
    """Records by number.

    `touched_s` is the last touch, `gap_s` the time between the last two (0: touched once) and
    `past_gap_s` the one before; `size` the members that it owns now, `fresh` those that were
    written at its last touch, `last_row` the last of the extents that it was about. `missing` is 1
    when some member may not be in the tier; `asked_s` is until when it is not asked for again,
    `looked_s` the age up to which its waiting was counted.
    """

    def __init__(self, capacity: int = 256) -> None:
        self.touched_s = self.asked_s = np.zeros(0, np.float64)
        self.looked_s = self.gap_s = self.past_gap_s = self.score = np.zeros(0, np.float32)
        self.size = self.used = self.room = np.zeros(0, np.int32)
        self.start = np.zeros(0, np.uint32)
        self.prediction = self.fresh = self.last_row = np.zeros(0, np.int32)
        self.touches = self.tenant = np.zeros(0, np.uint16)
        self.value_class = self.kind = self.missing = np.zeros(0, np.uint8)
        self.high = 0
        """Records below are or were used."""
        self._free = np.zeros(0, np.int64)
        self._arena = np.zeros(4 * capacity, np.int32)
        self._end = 0
        self._resize(capacity)

    @property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return int(sum(np.dtype(kind).itemsize for _, kind, _ in FIELDS))

    @property
    def nbytes(self) -> int:
        """Bytes of the records."""
        return self.record_bytes * len(self.kind) + self._free.nbytes

    @property
    def arena_bytes(self) -> int:
        """Bytes of the members' arena."""
        return self._arena.nbytes

    @property
    def count(self) -> int:
        """Groups that there are."""
        return self.high - len(self._free)

    def live(self) -> I64:
        """Return the numbers of all groups, ascending."""
        return np.flatnonzero(self.kind[: self.high] != FREE)

    def make(self, count: int) -> I64:
        """Return `count` fresh records, LIVE and without members."""
        reused = self._free[len(self._free) - min(count, len(self._free)) :]
        self._free = self._free[: len(self._free) - len(reused)]
        fresh = count - len(reused)
        while self.high + fresh > len(self.kind):
            self._resize(2 * len(self.kind))
        made = np.concatenate((reused, np.arange(self.high, self.high + fresh)))
        self.high += fresh
        for name, _, empty in FIELDS:
            getattr(self, name)[made] = empty
        self.kind[made] = LIVE
        return made

    def forget(self, numbers: I64) -> None:
        """Take back records that own no extent any more, each once."""
        self.kind[numbers] = FREE
        self.size[numbers] = 0
        self._free = np.concatenate((self._free, numbers))

    def append(self, owners: I64, rows: I64) -> None:
        """Add members: row i to group owners[i], in order; the caller keeps `size`."""
        if len(rows) == 0:
            return
        order = np.argsort(owners, kind="stable")
        owners, rows = owners[order], rows[order]
        numbers, first, added = np.unique(owners, return_index=True, return_counts=True)
        wanted = self.used[numbers] + added
        small = np.flatnonzero(wanted > self.room[numbers])
        if len(small):
            self._make_room(numbers[small], wanted[small].astype(np.int64))
        at = np.repeat(self.start[numbers].astype(np.int64) + self.used[numbers] - first, added)
        self._arena[at + np.arange(len(rows))] = rows
        self.used[numbers] = wanted

    def members(self, numbers: I64, extents: ExtentMap) -> tuple[I64, I64]:
        """Return (index into `numbers`, row) of all members, by group and then by position."""
        used = self.used[numbers].astype(np.int64)
        rows = self._arena[slices(self.start[numbers].astype(np.int64), used)].astype(np.int64)
        owner = np.repeat(np.arange(len(numbers)), used)
        mine = extents.group[rows] == numbers[owner]
        rows, owner = rows[mine], owner[mine]
        order = np.lexsort((rows, extents.position[rows], owner))
        rows, owner = rows[order], owner[order]
        once = np.ones(len(rows), bool)
        once[1:] = (rows[1:] != rows[:-1]) | (owner[1:] != owner[:-1])
        return owner[once], rows[once]

    def latest(self, numbers: I64, extents: ExtentMap) -> tuple[I64, I64]:
        """Return members as `members`, of those only that the group's last touch was about."""
        owner, rows = self.members(numbers, extents)
        is_late = extents.turn[rows] == (self.touches[numbers[owner]] & 255)
        return owner[is_late], rows[is_late]

    def compact(self, extents: ExtentMap) -> None:
        """Lay the arena out anew, without what has left."""
        numbers = self.live()
        owner, rows = self.members(numbers, extents)
        held = np.bincount(owner, minlength=len(numbers))
        self._arena = np.zeros(max(1024, 2 * len(rows)), np.int32)
        self._arena[: len(rows)] = rows
        self._end = len(rows)
        self.start[numbers] = np.cumsum(held) - held
        self.used[numbers] = self.room[numbers] = held

    def is_sparse(self) -> bool:
        """Tell whether `compact` would give back half of the arena."""
        return self._end > 4096 and self._end > 3 * int(self.size[: self.high].sum())

    def _make_room(self, numbers: I64, wanted: I64) -> None:
        room = np.maximum(4, wanted + wanted // 2)
        if self._end + int(room.sum()) > len(self._arena):
            grown = np.zeros(2 * (self._end + int(room.sum())), np.int32)
            grown[: self._end] = self._arena[: self._end]
            self._arena = grown
        starts = self._end + np.cumsum(room) - room
        used = self.used[numbers].astype(np.int64)
        old = self.start[numbers].astype(np.int64)
        self._arena[slices(starts, used)] = self._arena[slices(old, used)]
        self.start[numbers], self.room[numbers] = starts, room
        self._end += int(room.sum())

    def _resize(self, capacity: int) -> None:
        for name, kind, empty in FIELDS:
            grown = np.full(capacity, empty, kind)
            old = getattr(self, name)
            grown[: min(len(old), self.high)] = old[: self.high]
            setattr(self, name, grown)
