"""When groups come back: the chance of a return in each age bin, by value class.

Counted are returns by (class, age bin at the return) and, whenever chances are asked for, how many
groups wait at which age now: who waits was at risk in every bin that it has passed (Kaplan and
Meier's estimate, by bins). All counts fade with a half-life; what happened long ago to one
that still waits, or returned late, fades as far.

Little evidence is filled up from what the group's score says (prestage.target.prestager.score), and
that from a hazard that falls as 1 / age.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import AGE_BINS, CLASSES, EDGES_S, MIDDLES_S

__all__ = ["F64", "SPREAD", "ReturnHazard", "prior_chances"]

F64 = NDArray[np.float64]

PRIOR_RATE: Final = 0.1
LEAST_CHANCE: Final = 1e-4
PRIOR_OFFSET_S: Final = 30.0
"""The prior hazard is 0.1 / (age + 30 s), the form found by experiment for chat and agents."""


def _spread() -> F64:
    """Return a matrix that adds to what was counted in a bin what was in its neighbours, less."""
    parts = [weight * np.eye(AGE_BINS, k=step) for step, weight in NEAR.items()]
    return np.asarray(np.sum(parts, axis=0), np.float64)


NEAR: Final = {-2: 0.2, -1: 0.6, 0: 1.0, 1: 0.6, 2: 0.2}
"""How much a bin's neighbours, so many steps away, say about it."""
SPREAD: Final = _spread()


def prior_chances() -> F64:
    """Return the chance of a return within each bin, given none before it; shape (AGE_BINS,)."""
    risk = np.log((EDGES_S[1:] + PRIOR_OFFSET_S) / (EDGES_S[:-1] + PRIOR_OFFSET_S))
    return np.asarray(1 - np.exp(-PRIOR_RATE * risk), np.float64)


class ReturnHazard:
    """Counts of returns by class. Little evidence is filled up from what is expected otherwise."""

    def __init__(self, *, half_life_s: float, strength: float = 10.0) -> None:
        self.returned = np.zeros((CLASSES, AGE_BINS))
        self._half_life_s = half_life_s
        self._strength = strength
        apart_s = np.maximum(MIDDLES_S[:, None] - MIDDLES_S[None, :], 0)
        passed = np.tril(np.ones((AGE_BINS, AGE_BINS)), -1)
        self._passed = passed * np.exp2(-apart_s / half_life_s)

    def add_returns(self, classes: NDArray[Any], bins: NDArray[Any]) -> None:
        """Count returns of groups: of this class, at this age bin."""
        where = classes.astype(np.int64) * AGE_BINS + bins
        counted = np.bincount(where, minlength=CLASSES * AGE_BINS)
        self.returned += counted.reshape(CLASSES, AGE_BINS)

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        self.returned *= 2.0 ** (-elapsed_s / self._half_life_s)

    def chances(self, waiting: F64, expected: F64) -> F64:
        """Return the chance of a return within each bin, given none before; (CLASSES, AGE_BINS).

        `waiting` counts the groups that wait now by class and age bin, `expected` are the chances
        as long as nothing was seen.
        """
        returned = self.returned
        risk = returned + waiting / 2 + (returned + waiting) @ self._passed
        returned, risk = returned @ SPREAD, risk @ SPREAD
        # So many returns are believed of what is expected, however rare they are.
        doubt = self._strength / np.maximum(expected, LEAST_CHANCE)
        return (returned + doubt * expected) / (risk + doubt)
