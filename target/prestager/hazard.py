"""When groups come back: the chance of a return in each age bin, by value class.

Counted are returns by (class, age bin at the return) and, whenever chances are asked for, how many
extents wait at which age now: who waits was at risk in every bin that it has passed (Kaplan and
Meier's estimate, by half octaves). All counts fade with a half-life; what happened long ago to one
that still waits, or returned late, fades as far.

Little evidence is filled up from the class's family, that from all classes together, and that from
a hazard that falls as 1 / age.
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


def _smoothing(times: int) -> F64:
    """Return a matrix that spreads what was counted in a bin over its neighbours."""
    kernel = 0.5 * np.eye(AGE_BINS) + 0.25 * (np.eye(AGE_BINS, k=1) + np.eye(AGE_BINS, k=-1))
    kernel /= kernel.sum(1, keepdims=True)
    return np.asarray(np.linalg.matrix_power(kernel, times), np.float64)


SMOOTH: Final = _smoothing(2)


def prior_chances() -> F64:
    """Return the chance of a return within each bin, given none before it; shape (AGE_BINS,)."""
    risk = np.log((EDGES_S[1:] + PRIOR_OFFSET_S) / (EDGES_S[:-1] + PRIOR_OFFSET_S))
    return np.asarray(1 - np.exp(-PRIOR_RATE * risk), np.float64)


class ReturnHazard:
    """Counts of returns; `families` says of each class to which family it belongs."""

    def __init__(
        self, families: NDArray[np.int64], *, half_life_s: float, strength: float = 3.0
    ) -> None:
        self.returned = np.zeros((CLASSES, AGE_BINS))
        self.evidence = 0.0
        """Returns so far, not faded."""
        self._families = families
        self._half_life_s = half_life_s
        self._strength = strength
        self._prior = prior_chances()
        apart_s = np.maximum(MIDDLES_S[:, None] - MIDDLES_S[None, :], 0)
        passed = np.tril(np.ones((AGE_BINS, AGE_BINS)), -1)
        self._passed = passed * np.exp2(-apart_s / half_life_s)

    def add_returns(self, classes: NDArray[Any], bins: NDArray[Any], weights: Any = None) -> None:
        """Count returns of extents: of this class, at this age bin."""
        where = classes.astype(np.int64) * AGE_BINS + bins
        counted = np.bincount(where, weights, minlength=CLASSES * AGE_BINS)
        self.returned += counted.reshape(CLASSES, AGE_BINS)
        self.evidence += float(counted.sum())

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        self.returned *= 2.0 ** (-elapsed_s / self._half_life_s)

    def chances(self, waiting: F64, mean_size: float) -> F64:
        """Return the chance of a return within each bin, given none before; (CLASSES, AGE_BINS).

        `waiting` counts the extents that wait now by class and age bin, `mean_size` is how many of
        them come and go together: the unit in which evidence is weighed.
        """
        returned = self.returned
        risk = returned + waiting / 2 + (returned + waiting) @ self._passed
        returned, risk = returned @ SMOOTH, risk @ SMOOTH
        strength = self._strength * max(1.0, mean_size)
        everyone = _blend(returned.sum(0), risk.sum(0), self._prior, strength)
        families = int(self._families.max()) + 1
        family_returned = np.zeros((families, AGE_BINS))
        family_risk = np.zeros((families, AGE_BINS))
        np.add.at(family_returned, self._families, returned)
        np.add.at(family_risk, self._families, risk)
        family = _blend(family_returned, family_risk, everyone, strength)
        return _blend(returned, risk, family[self._families], strength)


def _blend(returned: F64, risk: F64, prior: F64, strength: float) -> F64:
    return (returned + strength * prior) / (risk + strength)
