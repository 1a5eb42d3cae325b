"""Value tables: what a class is worth at an age, by three policies that the tier can follow.

All have shape (CLASSES, AGE_BINS); lower is evicted first, and of equals what was used longest ago.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prestage.target.prestager.ages import AGE_BINS, CLASSES, MIDDLES_S, OWN_CLASSES
from prestage.target.prestager.classes import LANDED, LEVELS
from prestage.target.prestager.hazard import F64

__all__ = ["POLICIES", "hazard_table", "lru_table", "mq_table", "protect"]

POLICIES: Final = ("lru", "mq", "hazard")

FRESH: Final = 0
ONCE: Final = 1
PROTECTED_S: Final = 30.0
"""For how long what was fetched ahead is held while nobody has read it and it has no class yet."""


def lru_table() -> F64:
    """Least recently used first: falls with age, the same for all classes."""
    return np.tile(1 / MIDDLES_S, (CLASSES, 1))


def mq_table(life_time_s: float) -> F64:
    """Multi-queue: by the logarithm of touches, one queue less for each life time without a touch.

    Y. Zhou, J. Philbin and K. Li, "The multi-queue replacement algorithm for second level buffer
    caches", USENIX ATC 2001.
    """
    level = np.maximum(LEVELS[:, None] - np.floor(MIDDLES_S / max(life_time_s, 1e-3)), -40)
    return np.asarray(np.exp2(level + 0.5 / (1 + np.arange(AGE_BINS))), np.float64)


def hazard_table(index: F64) -> F64:
    """By the keep index of the learned return times."""
    return index.copy()


def protect(table: F64, margin: float) -> F64:
    """Return the table with what holds for any policy; `margin` is what victims are worth.

    What was read once and is not wanted again goes first. What was brought in ahead stays for a
    time, whoever brought it.
    """
    result = table.copy()
    result[ONCE] = table.min() / 2
    young = PROTECTED_S > MIDDLES_S
    held = max(2 * margin, float(np.median(table[OWN_CLASSES:])))
    for landed in (FRESH, LANDED):
        result[landed] = np.where(young, held, 0.0)
    return result
