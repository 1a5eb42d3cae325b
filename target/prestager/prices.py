"""What it is worth to hold a group, and to fetch it: a small dynamic programme with two prices.

The benefit of one extent served from DRAM is 1. `memory_price` (per extent and second of DRAM) and
`flash_price` (per extent read) are in that unit. Over the age bins of a class, with the chance p of
a return within the bin, the expected time e in it and q = 1 - p:

    resident      V_R = max(p - memory_price e + q V_R', q V_N')
    not resident  V_N = max(q V_N', V_R - flash_price)
    advantage     U   = (p - memory_price e + q V_R') - q V_N'

Keep while U > 0, fetch when U > flash_price, between them do nothing. After Belady's rule turned to
chances: the keep index of a class at an age is the memory price at which it is worth nothing more
to hold it on, the largest of (chance of a return) / (expected time held) over all ends.
"""

from __future__ import annotations

import numpy as np

from prestage.target.prestager.ages import AGE_BINS, WIDTHS_S
from prestage.target.prestager.hazard import F64

__all__ = ["Prices", "advantage", "keep_index"]


def _times(chances: F64) -> F64:
    """Return the expected time in each bin, when it is entered: returns come uniformly in it."""
    return (1 - chances / 2) * WIDTHS_S


def advantage(chances: F64, memory_price: float, flash_price: float) -> F64:
    """Return U by class and age bin; `chances` and the result have shape (classes, AGE_BINS)."""
    times = _times(chances)
    held = np.zeros(len(chances))
    gone = np.zeros(len(chances))
    result = np.empty_like(chances)
    for age in range(AGE_BINS - 1, -1, -1):
        stay = 1 - chances[:, age]
        keep = chances[:, age] - memory_price * times[:, age] + stay * held
        drop = stay * gone
        result[:, age] = keep - drop
        held = np.maximum(keep, drop)
        gone = np.maximum(drop, held - flash_price)
    return result


def keep_index(chances: F64) -> F64:
    """Return the keep index by class and age bin, per second; shapes (classes, AGE_BINS)."""
    times = _times(chances)
    survives = np.cumprod(1 - chances, axis=1)
    enters = np.concatenate((np.ones((len(chances), 1)), survives[:, :-1]), axis=1)
    hits = np.cumsum(enters * chances, axis=1)
    held = np.cumsum(enters * times, axis=1)
    hits_before = hits - enters * chances
    held_before = held - enters * times
    gain = hits[:, None, :] - hits_before[:, :, None]
    cost = held[:, None, :] - held_before[:, :, None]
    ends = np.arange(AGE_BINS)
    possible = ends[None, :] >= ends[:, None]
    ratio = np.where(possible, gain / np.maximum(cost, 1e-12), 0.0)
    return np.asarray(ratio.max(axis=2), np.float64)


class Prices:
    """The two prices, moved by feedback.

    The memory price follows the keep index of what was evicted: that is what a frame is worth at
    the margin. The flash price rises while more is read ahead than the share of the reads that is
    allowed, or less of it is used than wanted, and falls otherwise, but not below its floor.
    """

    def __init__(self, *, flash_floor: float, flash_ceiling: float = 0.95) -> None:
        self.memory = 0.0
        self.flash = flash_floor
        self._floor = flash_floor
        self._ceiling = flash_ceiling

    def see_victims(self, indices: F64) -> None:
        """Take in the keep indices of extents that were evicted, in order of time."""
        if len(indices) == 0:
            return
        share = 1 - 0.998 ** len(indices)
        self.memory += share * (float(np.mean(indices)) - self.memory)

    def see_use(self, *, is_dear: bool) -> None:
        """Move the flash price by one step of a few percent."""
        moved = self.flash * (1.05 if is_dear else 0.97)
        self.flash = min(max(moved, self._floor), self._ceiling)
