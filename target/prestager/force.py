"""Which policy is in force: the one that hits most on a sample, unless fetching does harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

__all__ = ["MARGIN", "Force"]

MARGIN: Final = 0.008
"""Hits per read by which another policy must be better to come into force."""
LEAST_READS: Final = 100.0
"""Sampled reads, fading, before another policy than at first comes into force."""
LATE_HALF_LIFE_S: Final = 200.0
"""Of what says whether the tier is harmed."""
HARM: Final = 0.004
GOOD: Final = 0.02
"""Hits per read by which the tier is behind or ahead."""
NOISE: Final = 0.03
COOL_S: Final = 120.0
MOST_COOL_S: Final = 3600.0


class Force:
    """Of a tier; which of `policies` is in force is `chosen`.

    The second is what the tier does without a model, and at first in force: a load of few reads
    never says enough for another. The first counts as a little better than it is, for it brings in
    ahead. When the tier itself, with all that is brought in ahead, falls behind the shadow of the
    second, that one is in force and `is_harmed` for a time, each time for longer, and until the
    shadow of the first hits more again.
    """

    def __init__(self, policies: tuple[str, ...], capacity: int) -> None:
        """`capacity`: what a shadow holds."""
        self.policies = policies
        self.chosen = policies[1]
        self.is_harmed = False
        self._noise = capacity * NOISE
        """Sampled hits come in bunches: a few in a hundred of the shadow say nothing."""
        self._lead = 0.0
        """Hits of the tier less those of the second policy's shadow, of late."""
        self._late_reads = 0.0
        self._harmed_until_s = -np.inf
        self._cool_s = COOL_S

    def see(self, reads: float, lead: float) -> None:
        """Take in sampled reads, and of how many more the tier had the extent than the shadow."""
        self._late_reads += reads
        self._lead += lead

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / LATE_HALF_LIFE_S)
        self._lead *= factor
        self._late_reads *= factor

    def choose(
        self,
        now_s: float,
        reads: float,
        ratios: Mapping[str, float],
        *,
        is_bound: bool,
        is_promising: bool = False,
    ) -> str:
        """Return what is in force from now on, by sampled hits per read by policy.

        When `is_bound` the first is, whatever the others hit, unless it does harm. When
        `is_promising` there is more to gain by what is brought in than its shadow says: after harm
        it is tried again even if that hits no more.
        """
        self._look_for_harm(now_s, ratios, is_promising=is_promising)
        first = self.policies[0]
        valued = {**ratios, first: ratios[first] + MARGIN / 2}
        best = max(self.policies, key=lambda policy: valued[policy])
        if self.is_harmed:
            self.chosen = self.policies[1]
        elif is_bound:
            self.chosen = first
        elif reads >= LEAST_READS and valued[best] > valued[self.chosen] + MARGIN:
            self.chosen = best
        return self.chosen

    def _look_for_harm(
        self, now_s: float, ratios: Mapping[str, float], *, is_promising: bool
    ) -> None:
        if now_s < self._harmed_until_s:
            return
        if self.is_harmed:
            least = ratios[self.policies[1]] + MARGIN
            if ratios[self.policies[0]] < least and not is_promising:
                return
            self.is_harmed = False
            self.chosen = self.policies[0]
            self._lead = self._late_reads = 0.0
        if self._lead < -HARM * self._late_reads - self._noise:
            self.is_harmed = True
            self._harmed_until_s = now_s + self._cool_s
            self._cool_s = min(2 * self._cool_s, MOST_COOL_S)
        elif self._lead > GOOD * self._late_reads > 0:
            self._cool_s = COOL_S
