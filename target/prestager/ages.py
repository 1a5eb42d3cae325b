"""Bins of ages: the model's own, and the tier's (ps_tier_set_values says which those are).

The model needs steps finer than the tier's half octaves where return times have peaks, and none
below half a second or above an hour and a half.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "AGE_BINS", "CLASSES", "EDGES_S", "MIDDLES_S", "OF_TIER", "OWN_CLASSES", "TIER_BINS",
    "TIER_MIDDLES_S", "WIDTHS_S", "age_bins", "tier_bins",
]  # fmt: skip

CLASSES: Final = 64
OWN_CLASSES: Final = 8
"""The classes below are the tier's own."""
AGE_BINS: Final = 64
TIER_BINS: Final = 64
FIRST_S: Final = 0.5
LAST_S: Final = 5400.0
_STEPS: Final = AGE_BINS - 2
_PER_LOG: Final = _STEPS / np.log(LAST_S / FIRST_S)

EDGES_S: Final[NDArray[np.float64]] = np.concatenate(
    ([0.0], FIRST_S * (LAST_S / FIRST_S) ** (np.arange(_STEPS + 1) / _STEPS), [4 * LAST_S])
)
"""Where each bin begins, and where the last one is taken to end; shape (AGE_BINS + 1,)."""
WIDTHS_S: Final[NDArray[np.float64]] = np.diff(EDGES_S)
MIDDLES_S: Final[NDArray[np.float64]] = (EDGES_S[1:] + EDGES_S[:-1]) / 2


def age_bins(ages_s: NDArray[Any]) -> NDArray[np.int64]:
    """Return the bins of ages in seconds; what is negative counts as 0, the last bin is open."""
    step = np.floor(_PER_LOG * np.log(np.maximum(ages_s, FIRST_S / 2) / FIRST_S) + 1e-9)
    return np.asarray(np.clip(step.astype(np.int64) + 1, 0, AGE_BINS - 1), np.int64)


def tier_bins(ages_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the tier's bins of ages in seconds: half octaves from a millisecond on."""
    fraction, exponent = np.frexp(ages_s * 1e3)
    bins = 2 * (exponent.astype(np.int64) - 1) + (fraction >= 0.75)
    return np.asarray(np.clip(bins, 0, TIER_BINS - 1), np.int64)


_tier = np.arange(TIER_BINS)
TIER_MIDDLES_S: Final[NDArray[np.float64]] = np.asarray(
    2.0 ** (_tier // 2) * np.where(_tier % 2, 1.75, 1.25) * 1e-3, np.float64
)
"""The middles of the tier's bins."""
OF_TIER: Final[NDArray[np.int64]] = age_bins(TIER_MIDDLES_S)
"""By bin of the tier, the model's bin that it is in."""
