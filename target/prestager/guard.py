"""No harm: whether bringing in ahead has gained more than it drove out, as of late.

An extent that was evicted gets a ghost: the chance that what was fetched ahead drove it out, which
is the share that fetches have of all that came into the tier then. When it is missed later, that
chance counts as a pollution miss. While hits of what was fetched do not outweigh pollution misses,
nothing is fetched for a time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from prestage.target.prestager.extents import I64, ExtentMap

__all__ = ["Guard"]

HALF_LIFE_S: Final = 60.0
COOL_S: Final = 60.0
LEAST: Final = 100.0
"""Hits and pollution misses together, fading, before the guard says anything."""


class Guard:
    """Counts with a half-life of a minute."""

    def __init__(self, extents: ExtentMap) -> None:
        self._extents = extents
        self.gained = 0.0
        self.polluted = 0.0
        self.off_until_s = -np.inf
        self._landed = 0.0
        self._came = 1e-9

    def see_accesses(self, missed: I64, came: int) -> None:
        """Reads found `missed` (rows) cold; `came` extents were read in or written."""
        self.polluted += float(self._extents.ghost[missed].sum()) / 255
        self._came += came

    def see_landed(self, count: int) -> None:
        """Fetches brought in so many extents."""
        self._landed += count
        self._came += count

    def see_evicted(self, rows: I64) -> None:
        """These were driven out after they had been used."""
        self._extents.ghost[rows] = round(255 * min(1.0, self._landed / self._came))

    def see_gain(self, count: int) -> None:
        """So many reads found warm what was fetched ahead."""
        self.gained += count

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / HALF_LIFE_S)
        self.gained *= factor
        self.polluted *= factor
        self._landed *= factor
        self._came = max(self._came * factor, 1e-9)
        # What is missed long after would have been driven out by something else meanwhile.
        self._extents.ghost >>= 1

    def is_off(self, now_s: float) -> bool:
        """Tell whether nothing is to be fetched now."""
        if now_s < self.off_until_s:
            return True
        if self.gained + self.polluted >= LEAST and self.gained <= self.polluted:
            self.off_until_s = now_s + COOL_S
            self.gained = self.polluted = 0.0
            return True
        return False
