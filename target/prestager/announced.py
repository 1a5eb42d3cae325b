"""What hints make of the worth of holding on: who is told of a read in time need not have kept it.

A read that a host announces is served from DRAM whether its extents were held or not, as far as
flash brings them in by then: the first of a chain, rarely the last of a long one. So an extent is
worth holding by the chance that it would be missed: one less the share of reads at such a place of
a chain that are announced, times the share of those that hints had to bring in that was there in
time. Both are learned by tenant, from reads; what is announced and never read says nothing here.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import EDGES_S
from prestage.target.prestager.extents import I64, ExtentMap
from prestage.target.prestager.formation import Bools, Touches
from prestage.target.prestager.groups import SHARED, Groups
from prestage.target.prestager.hazard import F64

__all__ = ["Announced", "age_of_worth"]

EDGES: Final = np.array([8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024])
"""Between buckets of places in a chain."""
BUCKETS: Final = len(EDGES) + 1
STARTS: Final = np.concatenate(([0], EDGES))
WIDTHS: Final = np.append(np.diff(STARTS), 1 << 30)
COLD: Final = 1
WARM: Final = 2
"""Whether an extent was in the tier when it was announced."""
DOUBT: Final = 4.0
"""Extents of a bucket before what was seen of it counts half."""
NEARLY: Final = 0.5
"""Of what is worth most, from which on no difference is made."""
LEAST_WORTH: Final = 0.02
"""Of what is announced and always comes in time: less makes no difference."""
LEAST_READS: Final = 64.0
"""Of a bucket, before others are set beside it."""


class Announced:
    """Learns from announcements and touches. Counts fade."""

    def __init__(self, extents: ExtentMap, groups: Groups) -> None:
        self._extents = extents
        self._groups = groups
        self._open: deque[tuple[float, I64]] = deque()
        """Until when rows are announced."""
        self._counts = np.zeros((1, 4, BUCKETS))
        """By tenant and place: reads; of these announced; of these cold then; of these in time."""
        self.is_used = False
        """Something was announced and read."""

    def announce(self, rows: I64, until_s: float) -> None:
        """A host will read these, each once, by then."""
        self._extents.announced[rows] = np.where(self._extents.resident[rows] == 0, COLD, WARM)
        self._open.append((until_s, rows))

    def see_touches(self, touches: Touches) -> None:
        """Extents were read, announced or not."""
        extents, rows = self._extents, touches.rows
        mark = extents.announced[rows]
        extents.announced[rows] = 0
        self.is_used = self.is_used or bool(mark.any())
        owner = extents.group[rows]
        # What several chains share is worth all of it anyway, and a read of it ends what was
        # announced of it by others: it would say of its place that fewer reads are announced.
        is_own = (owner >= 0) & (self._groups.kind[owner] != SHARED)
        is_read = ~touches.is_write & is_own
        if not self.is_used or not is_read.any():
            return
        rows, mark, is_hit = rows[is_read], mark[is_read], touches.is_hit[is_read]
        tenant = self._groups.tenant[owner[is_read]].astype(np.int64)
        self._make_room(int(tenant.max()))
        place = _bucket(extents.position[rows])
        is_cold = mark == COLD
        for what, which in enumerate((mark >= 0, mark > 0, is_cold, is_cold & is_hit)):
            np.add.at(self._counts[:, what], (tenant[which], place[which]), 1.0)

    def _make_room(self, tenant: int) -> None:
        more = tenant + 1 - len(self._counts)
        if more > 0:
            self._counts = np.concatenate((self._counts, np.zeros((more, 4, BUCKETS))))

    def fade(self, factor: float, now_s: float) -> None:
        """Let what was counted lose weight, and forget announcements whose time is over."""
        self._counts *= factor
        while self._open and self._open[0][0] < now_s:
            self._extents.announced[self._open.popleft()[1]] = 0

    def worth(self, rows: I64, owner: NDArray[Any]) -> F64:
        """Return what holding extents is worth, as a share of what it is of the most worth it.

        What several chains share is worth all of it: one that was read may be due for another.
        """
        if not self.is_used:
            return np.ones(len(rows))
        groups, table = self._groups, self._table()
        tenant = np.minimum(groups.tenant[owner], len(table) - 1)
        worth = table[tenant, _bucket(self._extents.position[rows])]
        return np.asarray(np.where(groups.kind[owner] == SHARED, 1.0, worth), np.float64)

    def are_told(self, rows: I64) -> Bools:
        """Return which of these hints would bring in time, as a rule."""
        worth = self.worth(rows, np.maximum(self._extents.group[rows], 0))
        return np.asarray(worth < NEARLY, bool)

    def worth_of_groups(self, numbers: I64) -> F64:
        """Return the same of groups as a whole."""
        if not self.is_used:
            return np.ones(len(numbers))
        table = self._table()
        sizes = np.maximum(self._groups.size[numbers], 1)
        within = np.clip(sizes[:, None] - STARTS, 0, WIDTHS) / sizes[:, None]
        tenant = np.minimum(self._groups.tenant[numbers], len(table) - 1)
        return np.asarray((table[tenant] * within).sum(axis=1), np.float64)

    def _table(self) -> F64:
        """Return shares by tenant and place."""
        reads, announced, cold, in_time = np.moveaxis(self._counts, 1, 0)
        told = announced / (reads + DOUBT) * in_time / (cold + DOUBT)
        worth = np.maximum(1 - told, LEAST_WORTH)
        most = np.max(worth[reads >= LEAST_READS], initial=LEAST_WORTH)
        return np.asarray(np.minimum(worth / most, 1), np.float64)


def age_of_worth(keep: F64, classes: NDArray[Any], worth: F64) -> F64:
    """Return ages from which on extents are worth so much less than their class at its best.

    `keep` is what classes are worth by age, shape (CLASSES, AGE_BINS). The age is 0 for what is
    worth as much, or nearly.
    """
    ages_s = np.zeros(len(classes))
    less = np.flatnonzero(worth < NEARLY)
    of_class = keep[classes[less]]
    is_more = of_class > of_class.max(axis=1, keepdims=True) * worth[less, None]
    first = keep.shape[1] - np.argmax(is_more[:, ::-1], axis=1)
    ages_s[less] = EDGES_S[np.minimum(first, keep.shape[1] - 1)]
    return ages_s


def _bucket(place: NDArray[Any]) -> I64:
    return np.searchsorted(EDGES, place, side="right")
