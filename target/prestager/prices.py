"""What it is worth to hold a group, and to fetch it: a small dynamic programme with two prices.

The benefit of one extent served from DRAM is 1. The memory price (per extent and second of DRAM)
and the flash price (per extent read) are in that unit. Over the age bins of a class, with the
chance p of a return within the bin, the expected time e in it and q = 1 - p:

    resident      V_R = max(p - memory_price e + q V_R', q V_N')
    not resident  V_N = max(q V_N', V_R - flash_price), the latter where a use is likely enough,
                  and for the share of predictions that is acted on
    advantage     U   = (p - memory_price e + q V_R') - q V_N'

Keep while U > 0, fetch when U > flash_price, between them do nothing. Turned round, that gives
what needs no memory price, an index in the sense of P. Whittle ("Restless bandits: activity
allocation in a changing world", Journal of Applied Probability 25A, 1988): the keep index is the
highest memory price at which U > 0, the fetch index the highest at which U > flash_price. What has
the lowest keep index goes first; what is not there is fetched when its fetch index is above that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import AGE_BINS, EDGES_S, WIDTHS_S
from prestage.target.prestager.hazard import F64

__all__ = ["Advantage", "Outlook", "Prices", "advantage", "hold_index", "outlook"]

VICTIM_SHARE: Final = 0.002
"""Of the memory price that one victim makes."""
FLASH_GAIN: Final = 0.1
"""By how much the logarithm of the flash price moves when twice as much is read as is allowed."""
PRICES: Final[F64] = 1e-6 * np.float64(1.18) ** np.arange(84)
"""Memory prices that are tried: 1e-6 to 0.9 a second."""


@dataclass(frozen=True, slots=True)
class Advantage:
    """By memory price, class and age bin: U, and whether a fetch is worth its prices."""

    gain: F64
    is_worth_fetching: NDArray[np.bool_]


def advantage(
    chances: F64,
    memory_prices: F64,
    flash_price: float,
    least_chance: float,
    acted_share: float = 1.0,
) -> Advantage:
    """Return the advantage of holding; `chances` has shape (classes, AGE_BINS).

    Fetched is only what is read, as likely as `least_chance`, before it is let go again, and of
    that `acted_share`: what is let go to be fetched later is lost otherwise.
    """
    times_s = (1 - chances / 2) * WIDTHS_S  # a return comes uniformly within the bin
    shape = (len(memory_prices), len(chances))
    held, gone, use = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    gain, fetched = np.empty((AGE_BINS, *shape)), np.empty((AGE_BINS, *shape), bool)
    for age in range(AGE_BINS - 1, -1, -1):
        chance = chances[:, age]
        stays = 1 - chance
        drop = stays * gone
        keep = chance - memory_prices[:, None] * times_s[:, age] + stays * held
        used = chance + stays * use
        np.subtract(keep, drop, out=gain[age])
        np.greater(gain[age], flash_price, out=fetched[age])
        fetched[age] &= used >= least_chance
        fetch = np.maximum(keep - flash_price - drop, 0)
        gone = drop + np.where(fetched[age], acted_share * fetch, 0)
        use = np.where(gain[age] > 0, used, 0)
        held = np.maximum(keep, drop)
    return Advantage(np.moveaxis(gain, 0, 2), np.moveaxis(fetched, 0, 2))


def _highest(is_worth: NDArray[np.bool_]) -> F64:
    """Return the highest price that is worth it, 0 for none; `is_worth` by price first."""
    count = len(PRICES) - np.argmax(is_worth[::-1], axis=0)
    return np.where(is_worth.any(axis=0), PRICES[count - 1], 0.0)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a class is worth at an age; all of shape (classes, AGE_BINS).

    `keep` and `fetch` are the indices, per second. `until_s` is the age up to which it is worth
    holding on at the memory price, `chance` that of a return by then.
    """

    keep: F64
    fetch: F64
    until_s: F64
    chance: F64


def hold_index(chances: F64) -> F64:
    """Return the keep index where nothing can be fetched: what retention alone is worth."""
    return _highest(advantage(chances, PRICES, np.inf, 1.0).gain > 0)


def outlook(
    chances: F64,
    memory_price: float,
    flash_price: float,
    least_chance: float,
    acted_share: float = 1.0,
) -> Outlook:
    """Return what classes with these chances are worth; the rest is as in `advantage`."""
    found = advantage(chances, PRICES, flash_price, least_chance, acted_share)
    keep, fetch = _highest(found.gain > 0), _highest(found.is_worth_fetching)
    last = np.full(len(chances), AGE_BINS)
    ends = np.empty(chances.shape, np.int64)
    for age in range(AGE_BINS - 1, -1, -1):
        last = np.where(keep[:, age] <= memory_price, age, last)
        ends[:, age] = last
    steps = np.cumsum(np.log1p(-np.minimum(chances, 1 - 1e-9)), axis=1)
    passed = np.concatenate((np.zeros((len(chances), 1)), steps), axis=1)
    risk = np.take_along_axis(passed, ends, axis=1) - passed[:, :-1]
    return Outlook(keep, fetch, EDGES_S[ends], -np.expm1(risk))


class Prices:
    """The two prices, moved by feedback.

    The memory price follows the keep index of what was evicted: that is what a frame is worth at
    the margin. The flash price rises while more is read from flash than is allowed, and falls
    otherwise, but not below its floor.
    """

    def __init__(self, *, flash_floor: float, flash_ceiling: float = 0.6) -> None:
        self.memory = 0.0
        self.flash = flash_floor
        self._floor = flash_floor
        self._ceiling = flash_ceiling

    def see_victims(self, indices: F64) -> None:
        """Take in the keep indices of extents that were evicted, in order of time."""
        if len(indices):
            share = 1 - (1 - VICTIM_SHARE) ** len(indices)
            self.memory += share * (float(np.mean(indices)) - self.memory)

    def see_use(self, used: float) -> None:
        """Move the flash price; `used` is what is read from flash, of what is allowed."""
        moved = self.flash * math.exp(FLASH_GAIN * min(max(used - 1, -1), 1))
        self.flash = min(max(moved, self._floor), self._ceiling)
