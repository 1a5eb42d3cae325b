"""Value tables: what a class is worth at an age, by three policies that the tier can follow.

All have shape (CLASSES, AGE_BINS), and what goes to the tier (CLASSES, 64) by its own bins; what is
lower is evicted first, and of equals what was used longest ago.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prestage.target.prestager.ages import (
    AGE_BINS,
    CLASSES,
    MIDDLES_S,
    OF_TIER,
    OWN_CLASSES,
    TIER_MIDDLES_S,
)
from prestage.target.prestager.classes import HELD, HOLDS_S, LEVELS
from prestage.target.prestager.hazard import F64

__all__ = ["FETCH_WORTH", "LEARNED", "POLICIES", "in_force", "lru_table", "mq_table"]

LEARNED: Final = "hazard"
POLICIES: Final = (LEARNED, "lru", "mq")

FRESH: Final = 0
ONCE: Final = 1
UNSAID: Final = slice(2, OWN_CLASSES)
UNSAID_S: Final = 8.0
"""For how long what was just read or written waits, at most, until its class is said."""
FRESH_S: Final = 30.0
"""For how long what a hint brought in is held while nobody has read it."""
HELD_WORTH: Final = 4.0
"""What was fetched ahead is worth so much more than what is evicted, while it is held."""
FETCH_WORTH: Final = 2.0
"""A fetch evicts what is worth less than so many times what is usually evicted, at most."""


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


def in_force(table: F64, margin: float, price: float) -> F64:
    """Return a table for the tier, in the unit of the memory price, with what holds for any policy.

    `margin` is what victims are worth by the table itself, `price` the memory price. What was read
    once and is not wanted again goes first. What was brought in ahead stays for a time, and so does
    what is not classified yet.
    """
    result = table[:, OF_TIER] * (price / max(margin, 1e-300))
    result[ONCE] = 0
    result[FRESH] = np.where(TIER_MIDDLES_S < FRESH_S, HELD_WORTH * price, 0)
    held = np.where(TIER_MIDDLES_S < UNSAID_S, HELD_WORTH * price, 0)
    result[UNSAID] = np.maximum(result[UNSAID], held)
    result[HELD:] = np.where(HOLDS_S[:, None] > TIER_MIDDLES_S, HELD_WORTH * price, 0)
    return result
