"""Flows: a connection of a tenant, on which accesses come in bursts.

A gap longer than the flow's threshold ends a burst. The threshold is where the histogram of the
flow's gaps (by half octaves) divides best into two: Otsu's criterion, "A threshold selection method
from gray-level histograms", IEEE Transactions on Systems, Man, and Cybernetics 9 (1979).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import ABSENT, I64
from prestage.target.prestager.hazard import F64

__all__ = ["DEFAULT_GAP_S", "GAP_BINS", "MOST_GAP_S", "Flows", "burst_gap", "gap_bins"]

GAP_BINS: Final = 64
_BIN: Final = np.arange(GAP_BINS + 1)
EDGES_S: Final[F64] = np.asarray(2.0 ** (_BIN // 2) * np.where(_BIN % 2, 1.5, 1) * 1e-3)
"""Half octaves from a millisecond on; what is less is in the first bin too."""
DEFAULT_GAP_S: Final = 0.02
LEAST_GAP_S: Final = 0.001
MOST_GAP_S: Final = 1.0
LEARN_EVERY: Final = 1024
"""Gaps of a flow between two looks at its histogram."""


def gap_bins(gaps_s: F64) -> I64:
    """Return the bins of gaps in seconds."""
    fraction, exponent = np.frexp(gaps_s * 1e3)
    bins = 2 * (exponent.astype(np.int64) - 1) + (fraction >= 0.75)
    return np.asarray(np.clip(bins, 0, GAP_BINS - 1), np.int64)


def burst_gap(histogram: F64) -> float:
    """Return the gap in seconds that best divides a histogram over the bins of gaps into two."""
    below = np.cumsum(histogram)[:-1]
    above = histogram.sum() - below
    bins = np.arange(GAP_BINS)
    mass = np.cumsum(histogram * bins)
    total = mass[-1]
    apart = mass[:-1] / np.maximum(below, 1e-9) - (total - mass[:-1]) / np.maximum(above, 1e-9)
    between = below * above * apart**2
    edges = EDGES_S[1:-1]
    between[(edges < LEAST_GAP_S) | (edges > MOST_GAP_S)] = -1
    best = np.flatnonzero(between >= between.max() * (1 - 1e-9))
    # Every edge in the empty valley is as good; its middle is the safest.
    return float(np.sqrt(edges[best[0]] * edges[best[-1]]))


class Flows:
    """Flows by number: their last access, when their burst began, the group and place it is at."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}
        self.last_s = np.zeros(0)
        self.gap_s = np.zeros(0)
        self.began_s = np.zeros(0)
        self.group = np.zeros(0, np.int64)
        self.position = np.zeros(0, np.int64)
        self._gaps = np.zeros((0, GAP_BINS))
        self._unseen = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._number)

    def find(self, keys: NDArray[np.uint64]) -> I64:
        """Return the numbers of the flows with these keys; new ones are made."""
        unique, inverse = np.unique(keys, return_inverse=True)
        known = len(self._number)
        numbers = [self._number.setdefault(key, len(self._number)) for key in unique.tolist()]
        if len(self._number) > len(self.last_s):
            self._grow(max(16, 2 * len(self._number)), known)
        return np.array(numbers, np.int64)[inverse]

    def learn_gaps(self, flows: I64, gaps_s: F64) -> None:
        """Count the gaps before accesses of flows."""
        where = flows * GAP_BINS + gap_bins(gaps_s)
        size = len(self._gaps) * GAP_BINS
        self._gaps += np.bincount(where, minlength=size).reshape(-1, GAP_BINS)
        self._unseen += np.bincount(flows, minlength=len(self._unseen))
        for flow in np.flatnonzero(self._unseen >= LEARN_EVERY).tolist():
            self.gap_s[flow] = burst_gap(self._gaps[flow])
            self._gaps[flow] *= 0.9
            self._unseen[flow] = 0

    def forget_groups(self, is_gone: NDArray[np.bool_]) -> None:
        """Let go of groups that are no more; `is_gone` by group number."""
        held = self.group >= 0
        self.group[held] = np.where(is_gone[self.group[held]], ABSENT, self.group[held])

    def _grow(self, size: int, known: int) -> None:
        def grown(old: NDArray[np.float64], fill: float) -> NDArray[np.float64]:
            new = np.full((size, *old.shape[1:]), float(fill))
            new[:known] = old[:known]
            return new

        self.last_s = grown(self.last_s, -np.inf)
        self.gap_s = grown(self.gap_s, DEFAULT_GAP_S)
        self.began_s = grown(self.began_s, -np.inf)
        self.group = grown(self.group.astype(np.float64), ABSENT).astype(np.int64)
        self.position = grown(self.position.astype(np.float64), 0).astype(np.int64)
        self._gaps = grown(self._gaps, 0)
        self._unseen = grown(self._unseen.astype(np.float64), 0).astype(np.int64)
