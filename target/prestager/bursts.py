"""Accesses that wait until their burst is over: only then it shows which group it goes on with.

A read is heard of when it is known whether it is warm, and says when it came: one that waits for
its turn before is late. So a burst is over only when what came with it has been heard of, by how
late reads were lately.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prestage.target.prestager.extents import I64
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses

__all__ = ["Bursts"]

LONGEST_S: Final = 4.0
"""A burst that goes on for longer is taken in parts."""
LATEST_S: Final = 2.0
"""How late a read may be, at most, that its burst waits for."""
LATE_HALF_LIFE_S: Final = 20.0
"""Of the longest time that reads were late."""
MOST: Final = 16384
"""Accesses that wait at most; beyond, all are taken as they are."""


class Bursts:
    """Collects accesses of all flows; gives back those of bursts that are over."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._waiting: list[Accesses] = []
        self._count = 0
        self._newest_s = -np.inf
        self._late_s = 0.0
        """The longest that reads were late, fading."""

    def add(self, accesses: Accesses) -> None:
        """Take accesses in the order in which they were heard of."""
        if len(accesses.rows):
            newest_s = np.maximum.accumulate(np.append(self._newest_s, accesses.times_s))
            if np.isfinite(self._newest_s):
                self._late_s *= 2.0 ** ((self._newest_s - newest_s[-1]) / LATE_HALF_LIFE_S)
            late_s = float((newest_s[1:] - accesses.times_s).max())
            self._late_s = min(max(self._late_s, late_s), LATEST_S)
            self._newest_s = newest_s[-1]
            self._waiting.append(accesses)
            self._count += len(accesses.rows)

    @property
    def is_full(self) -> bool:
        """Whether so many wait that they are to be taken now."""
        return self._count >= MOST

    def take(self, now_s: float) -> Accesses | None:
        """Return what is over by now, by flow and in order of time; None when nothing is."""
        if not self._waiting:
            return None
        every = _joined(self._waiting)
        order = _order(every)
        flow, time_s = every.flows[order], every.times_s[order]
        first = np.flatnonzero(np.append(True, flow[1:] != flow[:-1]))
        last = np.append(first[1:], len(flow)) - 1
        number = flow[first]
        is_over = time_s[last] + self._flows.gap_s[number] + self._late_s < now_s
        is_over |= time_s[first] + LONGEST_S < now_s
        if self.is_full:
            is_over[:] = True
        if not is_over.any():
            self._waiting = [every]
            return None
        taken = np.repeat(is_over, last - first + 1)
        left = np.sort(order[~taken])
        self._waiting = [every.where(left)] if len(left) else []
        self._count = len(left)
        return every.where(order[taken])

    def take_all(self) -> Accesses | None:
        """Return all that waits, by flow and in order of time; None when nothing does."""
        if not self._waiting:
            return None
        every = _joined(self._waiting)
        self._waiting, self._count = [], 0
        return every.where(_order(every))

    def open(self) -> Accesses | None:
        """Return what waits, in order of time; None when nothing does."""
        if not self._waiting:
            return None
        self._waiting = [_joined(self._waiting)]
        return self._waiting[0]


def _order(accesses: Accesses) -> I64:
    """Return their order by flow, and by time within each."""
    return np.lexsort((accesses.times_s, accesses.flows))


def _joined(parts: list[Accesses]) -> Accesses:
    if len(parts) == 1:
        return parts[0]
    return Accesses(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.flows for part in parts]),
        np.concatenate([part.times_s for part in parts]),
        np.concatenate([part.is_write for part in parts]),
        np.concatenate([part.is_hit for part in parts]),
        np.concatenate([part.tenants for part in parts]),
    )
