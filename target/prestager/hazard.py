"""When groups come back: the chance of a return in each age bin, by value class.

Counted are returns by (class, age bin at the return) and, whenever chances are asked for, how many
extents wait at which age now: who waits was at risk in every bin that it has passed (Kaplan and
Meier's estimate, by half octaves). All counts fade with a half-life; what happened long ago to one
that still waits, or returned late, fades as far.

Little evidence is filled up from what the group's score says (prestage.target.prestager.score), and
that from a hazard that falls as 1 / age.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import AGE_BINS, CLASSES, EDGES_S, MIDDLES_S

__all__ = ["F64", "ReturnHazard", "prior_chances"]

F64 = NDArray[np.float64]

PRIOR_RATE: Final = 0.1
PRIOR_OFFSET_S: Final = 30.0
"""The prior hazard is 0.1 / (age + 30 s), the form found by experiment for chat and agents."""


def prior_chances() -> F64:
    """Return the chance of a return within each bin, given none before it; shape (AGE_BINS,)."""
    risk = np.log((EDGES_S[1:] + PRIOR_OFFSET_S) / (EDGES_S[:-1] + PRIOR_OFFSET_S))
    return np.asarray(1 - np.exp(-PRIOR_RATE * risk), np.float64)


class ReturnHazard:
    """Counts of returns by class. Little evidence is filled up from what is expected otherwise."""

    def __init__(self, *, half_life_s: float, strength: float = 3.0) -> None:
        self.returned = np.zeros((CLASSES, AGE_BINS))
        self._half_life_s = half_life_s
        self._strength = strength
        apart_s = np.maximum(MIDDLES_S[:, None] - MIDDLES_S[None, :], 0)
        passed = np.tril(np.ones((AGE_BINS, AGE_BINS)), -1)
        self._passed = passed * np.exp2(-apart_s / half_life_s)

    def add_returns(self, classes: NDArray[Any], bins: NDArray[Any]) -> None:
        """Count returns of extents: of this class, at this age bin."""
        where = classes.astype(np.int64) * AGE_BINS + bins
        counted = np.bincount(where, minlength=CLASSES * AGE_BINS)
        self.returned += counted.reshape(CLASSES, AGE_BINS)

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        self.returned *= 2.0 ** (-elapsed_s / self._half_life_s)

    def chances(self, waiting: F64, expected: F64, mean_size: float) -> F64:
        """Return the chance of a return within each bin, given none before; (CLASSES, AGE_BINS).

        `waiting` counts the extents that wait now by class and age bin, `expected` are the chances
        as long as nothing was seen. `mean_size` is how many extents come and go together: the unit
        in which evidence is weighed.
        """
        returned = self.returned
        risk = returned + waiting / 2 + (returned + waiting) @ self._passed
        strength = self._strength * max(1.0, mean_size)
        # As many returns as `strength` are believed of what is expected, however rare they are.
        doubt = strength / np.maximum(expected, 1e-3)
        doubt = np.minimum(doubt, 50 * strength)
        return (returned + doubt * expected) / (risk + doubt)
