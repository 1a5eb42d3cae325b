"""Affinity by signature: groups whose bit vectors are near are often wanted together.

Multi-index hashing (M. Norouzi, A. Punjani and D. Fleet, "Fast search in Hamming space with
multi-index hashing", CVPR 2012): a vector is entered by each of its 16-bit substrings; neighbours
are found where one substring is the same. How near is near is learned: of the neighbours at each
distance, how many are read soon after; the chance is taken never to rise with the distance.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import ABSENT, I64
from prestage.target.prestager.hazard import F64
from prestage.target.prestager.successors import Followers

__all__ = ["Neighbours", "falling", "hamming"]

WORDS: Final = 8
"""Substrings of 16 bits of a vector of 128."""
KEPT: Final = 8
"""The latest entries of a substring; older ones are overwritten."""
WITHIN_S: Final = 120.0
"""A neighbour that is not read so soon after was none."""
PENDING: Final = 8192
MOST: Final = 16
"""Neighbours of one signature that are looked at, the nearest first."""
PRIOR_ASKED: Final = 8.0
PRIOR_USED: Final = 0.4
DISTANCES: Final = 16 * WORDS + 1
_ONES: Final = np.array([byte.bit_count() for byte in range(256)], np.uint8)

U16 = NDArray[np.uint16]


def hamming(left: U16, right: U16) -> I64:
    """Return the number of bits in which vectors differ; arrays of words, the last axis summed."""
    bits = _ONES[np.ascontiguousarray(left ^ right).view(np.uint8)]
    return np.asarray(bits.sum(axis=-1), np.int64)


def falling(values: F64, weights: F64) -> F64:
    """Return the nearest series that never rises (pool adjacent violators)."""
    means: list[float] = []
    masses: list[float] = []
    counts: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, mass, count = value, weight, 1
        while means and means[-1] < mean:
            mean = (means[-1] * masses[-1] + mean * mass) / (masses[-1] + mass)
            mass += masses.pop()
            count += counts.pop()
            means.pop()
        means.append(mean)
        masses.append(mass)
        counts.append(count)
    return np.repeat(means, counts)


class Neighbours:
    """Signatures by extent row, up to `capacity`; the oldest give way."""

    def __init__(self, capacity: int, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._vectors = np.zeros((capacity, WORDS), np.uint16)
        self._rows = np.full(capacity, ABSENT, np.int64)
        self._families = np.zeros(capacity, np.uint32)
        self._entry_of: dict[int, int] = {}
        self._added = 0
        self._buckets = np.full((WORDS, 1 << 16, KEPT), ABSENT, np.int32)
        self._filled = np.zeros((WORDS, 1 << 16), np.uint8)
        self.asked = np.zeros(DISTANCES)
        self.used = np.zeros(DISTANCES)
        self._chance = np.zeros(DISTANCES)
        self._pending_group = np.full(PENDING, ABSENT, np.int64)
        self._pending_distance = np.zeros(PENDING, np.int64)
        self._pending_since_s = np.zeros(PENDING)
        self._pended = 0
        self._lag_s = 10.0
        self.update()

    def sign(self, row: int, vector: bytes, bits: int, family: int) -> None:
        """The extent has this signature from now on: 16 bytes, of which `bits` count."""
        words = np.frombuffer(vector, "<u2").copy()
        words[bits // 16 :] = 0
        entry = self._added % len(self._rows)
        self._added += 1
        old = int(self._rows[entry])
        if self._entry_of.get(old) == entry:
            del self._entry_of[old]
        self._vectors[entry], self._rows[entry] = words, row
        self._families[entry] = family << 8 | bits
        self._entry_of[row] = entry
        for word in range(bits // 16):
            value = int(words[word])
            self._buckets[word, value, self._filled[word, value] % KEPT] = entry
            self._filled[word, value] = (int(self._filled[word, value]) + 1) % (8 * KEPT)

    def near(self, rows: I64, owner_of: NDArray[np.int32], now_s: float) -> Followers:
        """Return groups near to what was touched just now, and wait to see whether they come.

        `rows` are touched extents; `owner_of` says by row which group has an extent now.
        """
        parts = [self._near_one(int(row), owner_of) for row in rows if int(row) in self._entry_of]
        if not parts:
            none = np.zeros(0, np.int64)
            return Followers(none, np.zeros(0), np.zeros(0))
        groups = np.concatenate([part[0] for part in parts])
        distances = np.concatenate([part[1] for part in parts])
        order = np.lexsort((distances, groups))
        first = order[np.unique(groups[order], return_index=True)[1]]
        groups, distances = groups[first], distances[first]
        fresh = ~np.isin(groups, owner_of[rows])
        groups, distances = groups[fresh], distances[fresh]
        self._wait_for(groups, distances, now_s)
        return Followers(groups, self._chance[distances], np.full(len(groups), self._lag_s))

    def _near_one(self, row: int, owner_of: NDArray[np.int32]) -> tuple[I64, I64]:
        entry = self._entry_of[row]
        words = self._vectors[entry]
        bits = int(self._families[entry]) & 0xFF
        found = np.unique(self._buckets[np.arange(bits // 16), words[: bits // 16]])
        found = found[(found >= 0) & (found != entry)]
        found = found[self._families[found] == self._families[entry]]
        distance = hamming(self._vectors[found], words)
        nearest = np.argsort(distance, kind="stable")[:MOST]
        groups = owner_of[self._rows[found[nearest]]].astype(np.int64)
        known = groups >= 0
        return groups[known], distance[nearest][known]

    def _wait_for(self, groups: I64, distances: I64, now_s: float) -> None:
        np.add.at(self.asked, distances, 1)
        place = (self._pended + np.arange(len(groups))) % PENDING
        self._pended += len(groups)
        self._pending_group[place] = groups
        self._pending_distance[place] = distances
        self._pending_since_s[place] = now_s

    def see(self, groups: I64, now_s: float) -> None:
        """Groups were touched: those that were waited for were neighbours indeed."""
        came = np.flatnonzero(np.isin(self._pending_group, groups) & (self._pending_group >= 0))
        soon = came[now_s - self._pending_since_s[came] <= WITHIN_S]
        np.add.at(self.used, self._pending_distance[soon], 1)
        if len(soon):
            lag_s = float(np.median(now_s - self._pending_since_s[soon]))
            self._lag_s += 0.1 * (max(lag_s, 0.1) - self._lag_s)
        self._pending_group[came] = ABSENT

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / self._half_life_s)
        self.asked *= factor
        self.used *= factor

    def update(self) -> None:
        """Take the chances by distance anew."""
        asked = self.asked + PRIOR_ASKED
        self._chance = falling((self.used + PRIOR_USED) / asked, asked)

    def chance(self, distance: int) -> float:
        """Return the chance that a neighbour at this distance is read soon."""
        return float(self._chance[distance])
