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

from dataclasses import dataclass
from typing import Final

import numpy as np

from prestage.target.prestager.ages import AGE_BINS, EDGES_S, WIDTHS_S
from prestage.target.prestager.hazard import F64

__all__ = ["Outlook", "Prices", "advantage", "keep_index", "outlook"]

VICTIM_SHARE: Final = 0.002
"""Of the memory price that one victim makes."""


def _times(chances: F64) -> F64:
    """Return the expected time in each bin, when it is entered: returns come uniformly in it."""
    return (1 - chances / 2) * WIDTHS_S


def advantage(chances: F64, memory_price: float, flash_price: float) -> F64:
    """Return U by class and age bin; `chances` and the result have shape (classes, AGE_BINS)."""
    pay = chances - memory_price * _times(chances)
    stays = 1 - chances
    held = np.zeros(len(chances))
    gone = np.zeros(len(chances))
    result = np.empty_like(chances)
    for age in range(AGE_BINS - 1, -1, -1):
        stay = stays[:, age]
        drop = stay * gone
        keep = pay[:, age] + stay * held
        result[:, age] = keep - drop
        held = np.maximum(keep, drop)
        gone = np.maximum(drop, held - flash_price)
    return result


def keep_index(chances: F64) -> F64:
    """Return the keep index by class and age bin, per second; shapes (classes, AGE_BINS)."""
    survives = np.cumprod(1 - chances, axis=1)
    enters = np.concatenate((np.ones((len(chances), 1)), survives[:, :-1]), axis=1)
    hit, held = enters * chances, enters * _times(chances)
    result = np.empty_like(chances)
    for age in range(AGE_BINS):
        gain = np.cumsum(hit[:, age:], axis=1)
        cost = np.cumsum(held[:, age:], axis=1)
        result[:, age] = (gain / np.maximum(cost, 1e-300)).max(axis=1)
    return result


@dataclass(frozen=True, slots=True)
class Outlook:
    """What follows from the advantage, by class and age bin: shapes (classes, AGE_BINS).

    `until_s` is the age up to which it is worth to hold on, `chance` that of a return by then.
    """

    advantage: F64
    until_s: F64
    chance: F64


def outlook(chances: F64, memory_price: float, flash_price: float) -> Outlook:
    """Return the advantage and how it goes on."""
    gain = advantage(chances, memory_price, flash_price)
    last = np.full(len(chances), AGE_BINS)
    ends = np.empty(chances.shape, np.int64)
    for age in range(AGE_BINS - 1, -1, -1):
        last = np.where(gain[:, age] <= 0, age, last)
        ends[:, age] = last
    passed = np.concatenate((np.zeros((len(chances), 1)), np.cumsum(_log1p(chances), axis=1)), 1)
    risk = np.take_along_axis(passed, ends, axis=1) - passed[:, :-1]
    return Outlook(gain, EDGES_S[ends], -np.expm1(risk))


def _log1p(chances: F64) -> F64:
    return np.asarray(np.log1p(-np.minimum(chances, 1 - 1e-9)), np.float64)


class Prices:
    """The two prices, moved by feedback.

    The memory price follows the keep index of what was evicted: that is what a frame is worth at
    the margin. The flash price rises while more is read from flash than is allowed, and falls
    otherwise, but not below its floor.
    """

    def __init__(self, *, flash_floor: float, flash_ceiling: float = 0.95) -> None:
        self.memory = 0.0
        self.flash = flash_floor
        self._floor = flash_floor
        self._ceiling = flash_ceiling

    def see_victims(self, indices: F64) -> None:
        """Take in the keep indices of extents that were evicted, in order of time."""
        if len(indices):
            share = 1 - (1 - VICTIM_SHARE) ** len(indices)
            self.memory += share * (float(np.mean(indices)) - self.memory)

    def see_use(self, *, is_dear: bool) -> None:
        """Move the flash price by one step of a few percent."""
        moved = self.flash * (1.05 if is_dear else 0.97)
        self.flash = min(max(moved, self._floor), self._ceiling)
