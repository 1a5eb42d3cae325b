"""Value classes: what the tier is told about an extent. Numbers begin above the tier's own.

While the learned return times are in force a class is a bucket of the group's score and one of its
last gap; shared extents have classes of their own by touches. While MQ is in force a class is a
queue. What was fetched ahead has, until it is read, a class that says how long to hold it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import CLASSES, OWN_CLASSES

__all__ = [
    "GAPS", "HELD", "HOLDS_S", "LEVELS", "SCORES", "STRATA", "hold_classes", "queue_classes",
    "value_classes",
]  # fmt: skip

HOLDS_S: Final = np.array([2.0, 8.0, 32.0, 128.0, 512.0, 2048.0])
"""What was fetched ahead is of the class HELD + i: it is held for HOLDS_S[i] after it landed."""
HELD: Final = CLASSES - len(HOLDS_S)

SCORES: Final = 12
GAPS: Final = 4
"""None, and thirds of the gaps that there are."""
_SHARED: Final = OWN_CLASSES + SCORES * GAPS
_SHARED_TOUCHES: Final = 8


def value_classes(
    score: NDArray[Any], gap: NDArray[Any], touches: NDArray[Any], shared: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Return the class of groups by bucket of score and gap, or by touches when they are shared."""
    one = OWN_CLASSES + score * GAPS + gap
    many = _SHARED + (touches >= _SHARED_TOUCHES)
    return np.asarray(np.where(shared, many, one), np.uint8)


def queue_classes(touches: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the class that stands for a queue of MQ: half octaves of touches."""
    queue = np.floor(2 * np.log2(np.maximum(touches, 1)))
    return np.asarray(OWN_CLASSES + np.minimum(queue, 31), np.uint8)


def hold_classes(holds_s: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the class of what is to be held so long at least, as far as there is one."""
    step = np.searchsorted(HOLDS_S, holds_s)
    return np.asarray(HELD + np.minimum(step, len(HOLDS_S) - 1), np.uint8)


LEVELS: Final = np.clip((np.arange(CLASSES) - OWN_CLASSES) / 2, 0, 15.5)
"""The logarithm of the touches that a class of `queue_classes` stands for."""
STRATA: Final = ((np.arange(CLASSES) >= _SHARED) & (np.arange(CLASSES) < HELD)).astype(np.int64)
"""Whether a class is of shared extents."""
