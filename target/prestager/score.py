"""How much likelier than others a group comes back: a log-linear model of what a target can see.

The hazard of a group is a baseline by age times exp(score), the proportional hazards of D. Cox,
"Regression models and life-tables", Journal of the Royal Statistical Society B 34 (1972); each
stratum of groups (prestage.target.prestager.classes) has a baseline of its own. The score
is a sum of weights, one for each feature by bucket: touches, size, what was written last, the last
two gaps, and pairs of them. Each weight moves by what was seen (returns) less what was expected
(the hazard over the time waited), the less the more it has seen.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import AGE_BINS, EDGES_S, WIDTHS_S, age_bins
from prestage.target.prestager.classes import (
    SCORES,
    STRATA,
    STRATUM_AGAIN,
    STRATUM_ONCE,
    STRATUM_SHARED,
)
from prestage.target.prestager.extents import I64
from prestage.target.prestager.groups import SHARED, TAIL, Groups
from prestage.target.prestager.hazard import F64, SPREAD, prior_chances

__all__ = ["FEATURES", "ReturnScore"]

BUCKETS: Final = 256
FEATURES: Final = 10
RATE: Final = 0.1
"""All features move at once, and together no further than what was seen asks for."""
DOUBT: Final = 2.0
"""Expected returns of a bucket before its weight moves at half the rate."""
MOST: Final = 6.0
KINDS: Final = np.zeros(4, np.int64)
"""What a kind of group stands for in the features."""
KINDS[SHARED], KINDS[TAIL] = 1, 2
LEAST_CUT: Final = 48
"""Groups that say something of how scores are spread."""
CUT_SHARE: Final = 0.2
"""Of the way to where a cut should be that it moves at a time."""
BASELINE_DOUBT: Final = 3.0


def _steps(value: NDArray[Any], per_octave: float, most: int) -> I64:
    """Return logarithmic buckets of positive numbers, 0 for what is none."""
    with np.errstate(divide="ignore"):
        step = np.where(value > 0, 1 + np.floor(np.log2(value) * per_octave + 0.5), 0)
    return np.asarray(np.clip(step, 0, most), np.int64)


def features(groups: Groups, numbers: I64) -> I64:
    """Return the buckets of groups, shape (FEATURES, n), as places in one array of weights."""
    touches = np.maximum(groups.touches[numbers], 1)
    size, fresh = groups.size[numbers], groups.fresh[numbers]
    kind = KINDS[groups.kind[numbers]]
    count = np.searchsorted(np.array([2, 3, 4, 5, 7, 11]), touches, side="right")
    large = _steps(size, 2, 19)
    written = _steps(fresh, 1.5, 10)
    gap = _steps(groups.gap_s[numbers], 2, 21)
    before = _steps(groups.past_gap_s[numbers], 1, 11)
    old = _steps(np.maximum(size - fresh, 0), 2, 19)
    buckets = np.stack((
        kind * 8 + count,
        kind * 20 + large,
        kind * 11 + written,
        kind * 22 + gap,
        kind * 12 + before,
        count * 20 + large,
        np.minimum(count, 2) * 66 + written * 6 + np.minimum(large // 3, 5),
        count * 22 + gap,
        np.minimum(gap // 2, 10) * 12 + before,
        kind * 20 + old,
    ))  # fmt: skip
    return buckets + BUCKETS * np.arange(FEATURES)[:, None]


def strata(groups: Groups, numbers: I64) -> I64:
    """Return the strata of groups: each has a baseline of its own."""
    came_again = np.where(groups.gap_s[numbers] > 0, STRATUM_AGAIN, STRATUM_ONCE)
    return np.where(groups.kind[numbers] == SHARED, STRATUM_SHARED, came_again)


class ReturnScore:
    """Weights and baselines. Counts fade with a half-life."""

    LEARNED = ("weights", "expected", "returned", "exposed_s", "once_cuts", "again_cuts")

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self.weights = np.zeros(FEATURES * BUCKETS)
        self.expected = np.zeros(FEATURES * BUCKETS)
        self.returned = np.zeros((STRATA, AGE_BINS))
        self.exposed_s = np.zeros((STRATA, AGE_BINS))
        self.rates = np.zeros((STRATA, AGE_BINS))
        """The baseline: returns a second, by age bin."""
        self.once_cuts, self.again_cuts = (np.linspace(-1, 1, count - 1) for count in SCORES)
        """Between buckets of the score, by stratum."""
        self.update_rates()

    def scores(self, groups: Groups, numbers: I64) -> NDArray[np.float32]:
        """Return the scores of groups as they are now."""
        total = self.weights[features(groups, numbers)].sum(0)
        return np.asarray(np.clip(total, -MOST, MOST), np.float32)

    def see_waiting(self, groups: Groups, numbers: I64, until_s: NDArray[Any]) -> None:
        """Groups waited since they were looked at last, up to `until_s`, and did not come."""
        waited = self._expose(groups, numbers, until_s)
        self._move(features(groups, numbers), np.zeros(len(numbers)), waited)

    def see_returns(self, groups: Groups, numbers: I64, times_s: NDArray[Any]) -> None:
        """Groups came back at `times_s`; their records are still as they were before."""
        waited = self._expose(groups, numbers, times_s)
        stratum = strata(groups, numbers)
        bins = age_bins(times_s - groups.touched_s[numbers])
        np.add.at(self.returned, (stratum, bins), 1.0)
        self._move(features(groups, numbers), np.ones(len(numbers)), waited)

    def _expose(self, groups: Groups, numbers: I64, until_s: NDArray[Any]) -> F64:
        """Count the time waited; return the returns that were expected of each group."""
        touched_s = groups.touched_s[numbers]
        start_s = groups.looked_s[numbers].astype(np.float64)
        stop_s = np.maximum(until_s - touched_s, start_s)
        groups.looked_s[numbers] = stop_s
        stratum = strata(groups, numbers)
        risk = np.exp(groups.score[numbers].astype(np.float64))
        first, last = age_bins(start_s), age_bins(stop_s)
        # What waits across a bin's edge is counted by a difference of two running sums.
        share = np.zeros((STRATA, AGE_BINS))
        np.add.at(share, (stratum, last), risk * (stop_s - EDGES_S[last]))
        np.add.at(share, (stratum, first), -risk * (start_s - EDGES_S[first]))
        whole = np.zeros((STRATA, AGE_BINS + 1))
        np.add.at(whole, (stratum, first), risk)
        np.add.at(whole, (stratum, last), -risk)
        self.exposed_s += share + np.cumsum(whole, axis=1)[:, :-1] * WIDTHS_S
        return risk * (self._passed(stratum, stop_s, last) - self._passed(stratum, start_s, first))

    def _passed(self, stratum: I64, ages_s: F64, bins: I64) -> F64:
        """Return the baseline integrated from 0 to an age."""
        inside = (ages_s - EDGES_S[bins]) * self.rates[stratum, bins]
        return np.asarray(self._sums[stratum, bins] + inside, np.float64)

    def _move(self, buckets: I64, came: F64, waited: F64) -> None:
        size = len(self.weights)
        excess, weight = (
            np.bincount(buckets.ravel(), np.tile(part, FEATURES), minlength=size)
            for part in (came - waited, np.maximum(came, waited))
        )
        self.expected += weight
        self.weights += RATE * excess / (DOUBT + self.expected)

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / self._half_life_s)
        self.expected *= factor
        self.returned *= factor
        self.exposed_s *= factor

    def update_rates(self) -> None:
        """Take the baselines anew from what was counted."""
        prior = -np.log1p(-prior_chances()) / WIDTHS_S
        returned, exposed_s = self.returned @ SPREAD, self.exposed_s @ SPREAD
        self.rates = (returned + BASELINE_DOUBT) / (exposed_s + BASELINE_DOUBT / prior)
        steps = np.cumsum(self.rates * WIDTHS_S, axis=1)
        self._sums = np.concatenate((np.zeros((STRATA, 1)), steps), axis=1)

    def update_cuts(self, stratum: I64, scores: NDArray[Any]) -> None:
        """Divide the scores of each stratum into buckets anew: as many of these in each."""
        for cuts, mine in ((self.once_cuts, STRATUM_ONCE), (self.again_cuts, STRATUM_AGAIN)):
            found = scores[stratum == mine]
            if len(found) >= LEAST_CUT:
                share = np.arange(1, len(cuts) + 1) / (len(cuts) + 1)
                cuts[:] += CUT_SHARE * (np.quantile(found, share) - cuts)

    def buckets(self, stratum: I64, scores: NDArray[Any]) -> I64:
        """Return the buckets of scores; shared extents have one."""
        once = np.searchsorted(self.once_cuts, scores)
        again = np.searchsorted(self.again_cuts, scores)
        return np.choose(stratum, (once, again, np.zeros_like(once)))

    def chances(self, scores: F64, stratum: I64) -> F64:
        """Return the chance of a return in each age bin, of groups of these scores."""
        hazard = self.rates[stratum] * WIDTHS_S * np.exp(scores)[:, None]
        return np.asarray(-np.expm1(-hazard), np.float64)
