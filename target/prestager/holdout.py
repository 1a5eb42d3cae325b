"""A share of predictions is not acted on, so that the benefit is a difference that was measured.

Which ones is drawn by seed and serial number before anything is known of them, so acted and held
predictions are alike but for the acting. What is compared is how many of a prediction's extents
were found in the tier when they were read (0 when nobody came): on average, acted less held, is
what acting on one prediction gains, whatever would have been warm anyway.

What that drives out both kinds do without, so the difference does not show it. It is the hits of
the plain tier, which keeps and brings in nothing ahead, less the hits on what the tier itself has
kept: the first are those of a shadow cache (prestage.target.prestager.shadow).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import I64
from prestage.target.prestager.formation import Bools
from prestage.target.prestager.hazard import F64

__all__ = ["Benefit", "Holdout", "draw"]

NORMAL_95: Final = 1.96
LEAST: Final = 8
"""Predictions that were held out, and reads of the sample, before they say anything."""


def draw(seed: int, serials: I64) -> F64:
    """Return a number in [0, 1) for each serial number; seed and number say which.

    SplitMix64's mixing: G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014.
    """
    start = (seed * 0x632BE59BD9B4E019) % (1 << 64)
    mixed = serials.astype(np.uint64) + np.uint64(start)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-53, np.float64)


@dataclass(frozen=True, slots=True)
class Benefit:
    """Reads more that found their extent warm because predictions are acted on, with 95 % interval.

    `per_prediction` is the measured difference, and `displaced` how many reads missed, or had to be
    brought in again, because of what was brought in. The interval is (-inf, inf) while too little
    was read to say anything.
    """

    acted: int
    held: int
    per_prediction: float
    displaced: float
    hits: float
    low: float
    high: float


class Holdout:
    """Counts outcomes of predictions, acted and held."""

    def __init__(self, share: float, seed: int) -> None:
        self.share = share
        self._seed = seed
        self.sums: NDArray[np.float64] = np.zeros((2, 3))
        """By held (0) and acted (1): predictions, hits, squares of hits."""
        self.served: NDArray[np.float64] = np.zeros(4)
        """Reads; those of the shadow's sample; of these, hits of the shadow less those of the tier
        on what it had kept, and squares of that: see Shadows."""

    def is_held(self, serials: I64) -> Bools:
        """Tell which predictions are not to be acted on."""
        return np.asarray(draw(self._seed, serials) < self.share)

    def settle(self, is_acted: Bools, hits: NDArray[Any]) -> None:
        """Take in predictions that have ended: were they acted on, how many extents were hits."""
        for kind in (0, 1):
            mine = hits[is_acted == bool(kind)].astype(np.float64)
            self.sums[kind] += (len(mine), mine.sum(), (mine**2).sum())

    def see_reads(self, reads: int, sampled: float, net: float, squares: float) -> None:
        """Take in how many extents were read, and how many more the shadow had of a sample.

        The shadow is of the tier as it would be if nothing were fetched, and the tier is taken
        without what was fetched. `squares` are of what `net` is the sum of: see Shadows.
        """
        self.served += reads, sampled, net, squares

    def benefit(self) -> Benefit:
        """Return the benefit so far: what acted predictions gained, less what was driven out.

        The first has Welch's interval. But what predictions would have hit anyway is something
        between nothing and all that they hit, and that is all that is known while few were held
        out. The second is as doubtful as the shadow, which goes astray a little with every burst,
        now to one side and now to the other.
        """
        (held, held_hits, held_squares), (acted, acted_hits, acted_squares) = self.sums.tolist()
        displaced, astray = self._displaced()
        anyway = acted * held_hits / max(held, 1)
        hits = acted_hits - anyway - displaced
        doubt = math.inf
        if min(held, acted) >= LEAST:
            doubt = acted**2 * (
                _variance(acted, acted_hits, acted_squares) / acted
                + _variance(held, held_hits, held_squares) / held
            )
        half, shadow_half = NORMAL_95 * math.sqrt(doubt + astray), NORMAL_95 * math.sqrt(astray)
        return Benefit(
            acted=int(acted),
            held=int(held),
            per_prediction=(acted_hits - anyway) / max(acted, 1),
            displaced=displaced,
            hits=hits,
            low=max(hits - half, -displaced - shadow_half),
            high=min(hits + half, acted_hits - displaced + shadow_half),
        )

    def _displaced(self) -> tuple[float, float]:
        """Return the hits that were driven out, and the variance of that."""
        reads, sampled, net, squares = self.served.tolist()
        if sampled < LEAST:
            return 0.0, math.inf
        scale = reads / sampled
        return net * scale, (squares + 1) * scale**2


def _variance(count: float, total: float, squares: float) -> float:
    """Return the variance of outcomes, of which one more of mean size was seen apart.

    Rare outcomes are easily not seen at all: without that, nothing seen would mean no doubt.
    """
    mean = total / count
    spread = max(squares / count - mean**2, 0.0)
    return (spread * count + max(mean, 1.0) ** 2) / max(count - 1, 1)
