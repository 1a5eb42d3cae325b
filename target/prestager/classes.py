"""Value classes: what the tier is told about an extent. Numbers begin above the tier's own.

While the learned return times are in force there are three strata: groups that came once, by a
bucket of their score; groups that came back, by the octave of their last gap and a bucket of their
score; and shared extents by touches. While MQ is in force a class is a queue. What was fetched
ahead has, until it is read, a class that says how long to hold it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import CLASSES, OWN_CLASSES

__all__ = [
    "GAP_EDGES_S", "HELD", "HOLDS_S", "LEVELS", "SCORES", "STRATA", "STRATUM", "STRATUM_AGAIN",
    "STRATUM_ONCE", "STRATUM_SHARED", "held_for", "hold_classes", "queue_classes", "value_classes",
]  # fmt: skip

HOLDS_S: Final = np.array([2.0, 8.0, 32.0, 128.0, 512.0, 2048.0])
"""What was fetched ahead is of the class HELD + i: it is held for HOLDS_S[i] after it landed."""
HELD: Final = CLASSES - len(HOLDS_S)

STRATUM_ONCE: Final = 0
STRATUM_AGAIN: Final = 1
STRATUM_SHARED: Final = 2
STRATA: Final = 3
"""Groups touched once, groups that came back, shared extents."""
SCORES: Final = (12, 4)
"""Buckets of the score, of groups touched once and of those that came back."""
GAP_EDGES_S: Final = 8.0 * 2.0 ** np.arange(8)
"""Between the buckets of the last gap: octaves, so that a class means the same for all time."""
_GAPS: Final = len(GAP_EDGES_S) + 1
_AGAIN: Final = OWN_CLASSES + SCORES[STRATUM_ONCE]
_SHARED: Final = _AGAIN + _GAPS * SCORES[STRATUM_AGAIN]
_SHARED_TOUCHES: Final = 8


def value_classes(
    stratum: NDArray[Any], score: NDArray[Any], gap_s: NDArray[Any], touches: NDArray[Any]
) -> NDArray[np.uint8]:
    """Return the class of groups, `score` being the bucket within their stratum."""
    gap = np.searchsorted(GAP_EDGES_S, gap_s, side="right")
    classes = np.choose(stratum, (
        OWN_CLASSES + score,
        _AGAIN + gap * SCORES[STRATUM_AGAIN] + score,
        _SHARED + (touches >= _SHARED_TOUCHES),
    ))  # fmt: skip
    return np.asarray(classes, np.uint8)


def queue_classes(touches: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the class that stands for a queue of MQ: half octaves of touches."""
    queue = np.floor(2 * np.log2(np.maximum(touches, 1)))
    return np.asarray(OWN_CLASSES + np.minimum(queue, 31), np.uint8)


def hold_classes(holds_s: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the class of what is to be held so long at least, as far as there is one."""
    step = np.searchsorted(HOLDS_S, holds_s)
    return np.asarray(HELD + np.minimum(step, len(HOLDS_S) - 1), np.uint8)


def held_for(hold_s: float) -> tuple[int, float]:
    """Return the class and the age, in seconds, of what is to be held for so long from now on."""
    step = min(int(np.searchsorted(HOLDS_S, hold_s)), len(HOLDS_S) - 1)
    return HELD + step, max(float(HOLDS_S[step]) - hold_s, 0.0)


LEVELS: Final = np.clip((np.arange(CLASSES) - OWN_CLASSES) / 2, 0, 15.5)
"""The logarithm of the touches that a class of `queue_classes` stands for."""
_FIRST: Final = (_AGAIN, _SHARED, HELD)
STRATUM: Final = np.minimum(
    np.searchsorted(_FIRST, np.arange(CLASSES), side="right"), STRATUM_SHARED
)
"""The stratum of each class; those that no group has are of any."""
