"""The tier's age bins: half octaves from a millisecond on (ps_tier_set_values says which)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["AGE_BINS", "CLASSES", "EDGES_S", "MIDDLES_S", "OWN_CLASSES", "WIDTHS_S", "age_bins"]

CLASSES: Final = 64
OWN_CLASSES: Final = 8
"""The classes below are the tier's own."""
AGE_BINS: Final = 64

_LOW: Final = 2.0 ** (np.arange(AGE_BINS + 2) // 2) * np.where(np.arange(AGE_BINS + 2) % 2, 1.5, 1)

EDGES_S: Final[NDArray[np.float64]] = np.concatenate(([0.0], _LOW[1 : AGE_BINS + 1])) * 1e-3
"""Where each bin begins, and where the last one ends; shape (AGE_BINS + 1,)."""
WIDTHS_S: Final[NDArray[np.float64]] = np.diff(EDGES_S)
MIDDLES_S: Final[NDArray[np.float64]] = (EDGES_S[1:] + EDGES_S[:-1]) / 2


def age_bins(ages_s: NDArray[Any]) -> NDArray[np.int64]:
    """Return the bins of ages in seconds; what is negative counts as 0, the last bin is open."""
    fraction, exponent = np.frexp(np.maximum(ages_s, 0) * 1e3)
    bins = 2 * (exponent.astype(np.int64) - 1) + (fraction >= 0.75)
    return np.asarray(np.clip(bins, 0, AGE_BINS - 1), np.int64)
