"""What follows what: edges between groups whose bursts came one after the other on a flow.

A group has up to four successors with weights that fade; the lightest gives way to a new one (the
space-saving rule: A. Metwally, D. Agrawal and A. El Abbadi, "Efficient computation of frequent and
top-k elements in data streams", ICDT 2005). Lags are remembered as running means of logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import ABSENT, I64
from prestage.target.prestager.hazard import F64

__all__ = ["LONGEST_S", "SHORTEST_S", "Followers", "Successors", "at_time"]

WAYS: Final = 4
PRIOR: Final = 4.0
"""Visits without that successor that are taken for granted."""
LAG_SHARE: Final = 0.3
"""Of a remembered lag that the newest one makes."""
LEAST_LAG_S: Final = 0.05
LATE: Final = 3.0
"""What is wanted at a known time is given up when it is so many times as late."""
SHORTEST_S: Final = 1.0
LONGEST_S: Final = 900.0
"""How far ahead the deadline of a prediction may be."""


@dataclass(frozen=True, slots=True)
class Followers:
    """Groups that are likely next: with what chance, and after how long. Arrays of one shape.

    What does not come is given up after `given_up_s`.
    """

    groups: I64
    chances: F64
    lags_s: F64
    given_up_s: F64

    def where(self, which: NDArray[np.bool_] | I64) -> Followers:
        """Return some of them."""
        return Followers(
            self.groups[which], self.chances[which], self.lags_s[which], self.given_up_s[which]
        )


def at_time(groups: I64, chances: F64, lags_s: F64) -> Followers:
    """Return followers that are wanted at a known time, and given up when they are late."""
    given_up_s = np.clip(LATE * lags_s + SHORTEST_S, SHORTEST_S, LONGEST_S)
    return Followers(groups, chances, lags_s, given_up_s)


class Successors:
    """A table of `capacity` groups, by group number; of two at one place the later one stays."""

    def __init__(self, capacity: int, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._source = np.full(capacity, ABSENT, np.int32)
        self._visits = np.zeros(capacity, np.float32)
        self._seen_s = np.zeros(capacity)
        self._next = np.full((capacity, WAYS), ABSENT, np.int32)
        self._weight = np.zeros((capacity, WAYS), np.float32)
        self._lag = np.zeros((capacity, WAYS), np.float32)

    def visit(self, groups: I64, now_s: float) -> None:
        """Count that bursts of these groups have come, each group once."""
        place = groups % len(self._source)
        other = self._source[place] != groups
        fresh = place[other]
        self._source[fresh] = groups[other]
        self._visits[fresh] = 0
        self._weight[fresh] = 0
        self._next[fresh] = ABSENT
        factor = np.exp2(-np.maximum(now_s - self._seen_s[place], 0) / self._half_life_s)
        self._weight[place] *= factor[:, None]
        self._visits[place] = self._visits[place] * factor + 1
        self._seen_s[place] = now_s

    def see(self, sources: I64, targets: I64, lags_s: NDArray[Any]) -> None:
        """Count that after a visit to a source came its target, so much later."""
        differs = sources != targets
        sources, targets, lags_s = sources[differs], targets[differs], lags_s[differs]
        while len(sources):
            _, first = np.unique(sources % len(self._source), return_index=True)
            self._see_each(sources[first], targets[first], lags_s[first])
            rest = np.setdiff1d(np.arange(len(sources)), first)
            sources, targets, lags_s = sources[rest], targets[rest], lags_s[rest]

    def _see_each(self, sources: I64, targets: I64, lags_s: NDArray[Any]) -> None:
        place = sources % len(self._source)
        mine = self._source[place] == sources
        place, targets = place[mine], targets[mine]
        lag = np.log(np.maximum(lags_s[mine], LEAST_LAG_S))
        known = self._next[place] == targets[:, None]
        is_known = known.any(axis=1)
        way = np.where(is_known, known.argmax(axis=1), self._weight[place].argmin(axis=1))
        self._next[place, way] = targets
        self._weight[place, way] = np.where(is_known, self._weight[place, way], 0) + 1
        before = np.where(is_known, self._lag[place, way], lag)
        self._lag[place, way] = before + LAG_SHARE * (lag - before)

    def after(self, groups: I64) -> Followers:
        """Return what is likely to follow bursts of these groups that have come just now."""
        place = groups % len(self._source)
        place = place[self._source[place] == groups]
        targets = self._next[place]
        chance = self._weight[place] / (self._visits[place, None] + PRIOR)
        row, way = np.nonzero((targets != ABSENT) & (chance > 0))
        return at_time(
            targets[row, way].astype(np.int64),
            np.minimum(chance[row, way], 1).astype(np.float64),
            np.exp(self._lag[place][row, way].astype(np.float64)),
        )
