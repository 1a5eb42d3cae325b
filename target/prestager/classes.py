"""Value classes: what the tier is told about an extent, by how its group was touched.

A class is a bucket of touches and a bucket of the last gap (or, at the first touch, of the size);
shared extents have classes of their own. Class numbers begin above the tier's own.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import CLASSES, OWN_CLASSES

__all__ = ["FAMILIES", "LANDED", "LEVELS", "value_classes"]

LANDED: Final = CLASSES - 1
"""What was fetched and is not classified by its group yet."""

_GAP_EDGES_S: Final = np.array([8.0, 32.0, 128.0, 512.0])
_SIZE_EDGES: Final = np.array([4.0, 16.0, 64.0])
_TOUCH_EDGES: Final = np.array([3, 4, 6, 12])
_GAPS: Final = len(_GAP_EDGES_S) + 1
_SIZES: Final = len(_SIZE_EDGES) + 1
_TOUCHES: Final = len(_TOUCH_EDGES) + 1
_SHARED: Final = OWN_CLASSES + _SIZES + _TOUCHES * _GAPS
_SHARED_TOUCHES: Final = 3
_SHARED_EDGES: Final = np.array([6, 16])


def value_classes(
    touches: NDArray[Any], gaps_s: NDArray[Any], sizes: NDArray[Any], shared: NDArray[np.bool_]
) -> NDArray[np.uint8]:
    """Return the class of groups: touches so far, last gap in seconds, extents, is it shared."""
    gap = np.searchsorted(_GAP_EDGES_S, gaps_s, side="right")
    first = OWN_CLASSES + np.searchsorted(_SIZE_EDGES, sizes, side="right")
    count = np.searchsorted(_TOUCH_EDGES, touches, side="right")
    again = OWN_CLASSES + _SIZES + count * _GAPS + gap
    among = _SHARED + np.searchsorted(_SHARED_EDGES, touches, side="right") * _GAPS + gap
    return np.where(shared, among, np.where(touches <= 1, first, again)).astype(np.uint8)


def _families() -> NDArray[np.int64]:
    """Return the family of each class: own, first touch, then by touches, then shared."""
    number = np.arange(CLASSES)
    again = 2 + (number - OWN_CLASSES - _SIZES) // _GAPS
    family = np.where(number < OWN_CLASSES, 0, np.where(number < OWN_CLASSES + _SIZES, 1, again))
    return np.where(number >= _SHARED + _SHARED_TOUCHES * _GAPS, 0, family)


def _levels() -> NDArray[np.float64]:
    """Return the queue of MQ that a class stands for: the logarithm of its touches."""
    level = np.zeros(CLASSES)
    touched = np.array([2, 3, 4, 6, 12])
    again = np.log2(np.repeat(touched, _GAPS))
    level[OWN_CLASSES + _SIZES : _SHARED] = again
    shared = np.log2(np.repeat(np.array([3, 6, 16]), _GAPS))
    level[_SHARED : _SHARED + len(shared)] = shared
    return level


FAMILIES: Final = _families()
LEVELS: Final = _levels()
