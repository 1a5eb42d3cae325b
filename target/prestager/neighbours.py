"""Affinity by signature: extents whose bit vectors are near are often wanted together.

Extents with one signature are one document. When some of it is touched, the documents nearest to it
by Hamming distance are asked for: the search is exact, over all signatures, a few at a time. How
near is near is learned: of the neighbours at each distance, how many are touched before all that
is near to them has been silent for a time. So is that time, and how much more it means that several
neighbours were touched lately: one alone may have been read for any reason. The chance is taken
never to rise with the distance.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import ABSENT, I64
from prestage.target.prestager.formation import Bools
from prestage.target.prestager.hazard import F64
from prestage.target.prestager.successors import Followers

__all__ = ["Neighbours", "falling", "hamming"]

MOST_BITS: Final = 128
SILENCE: Final = 4.0
"""A document is given up when no neighbour of it was touched for so many times as long as it is,
in the mean, between the last such touch and that of a document that comes."""
MOST_SILENCE_S: Final = 300.0
PRIOR_CAME: Final = 16.0
PRIOR_LAG_S: Final = 15.0
"""So many documents came so long after a neighbour, before anything is known."""
AGAIN_S: Final = 2.0
"""What is touched again so soon is in one use: it counts once, and could not have been fetched."""
PENDING: Final = 8192
MOST: Final = 16
"""Neighbours of one signature that are looked at, the nearest first."""
LOOKS: Final = 16
"""Signatures at a time whose neighbours are looked for; when more are touched, the last ones."""
MOST_ROWS: Final = 256
"""Extents of one signature that are known: the last ones that got it."""
LEAST_CHANCE: Final = 0.15
"""What is less likely is no prediction: it is watched and learned from, and not said."""
WARMTH_HALF_LIFE_S: Final = 40.0
WARMTHS: Final = np.array([1.3, 1.8, 2.4, 4.0])
"""Between levels of warmth: how many neighbours were touched of late, this one included."""
PRIOR_ASKED: Final = 8.0
PRIOR_USED: Final = 0.4
DISTANCES: Final = MOST_BITS + 1

U64 = NDArray[np.uint64]
Likely = tuple[I64, F64]
"""Signatures or groups by number, and the chance of each."""


def hamming(vectors: U64, one: U64) -> NDArray[np.uint8]:
    """Return in how many bits vectors, of shape (words, n), differ from one of shape (words,)."""
    counts = np.bitwise_count(vectors ^ one[:, None])
    return np.asarray(counts.sum(axis=0, dtype=np.uint8), np.uint8)


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


def _highest(numbers: I64, chances: F64) -> Likely:
    """Return each number once, with the highest of its chances."""
    order = np.lexsort((-chances, numbers))
    numbers, first = np.unique(numbers[order], return_index=True)
    return numbers, chances[order[first]]


class Neighbours:
    """Up to `capacity` signatures, and the extents that have each; the oldest give way."""

    def __init__(self, capacity: int, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._vectors = np.zeros((MOST_BITS // 64, capacity), np.uint64)
        self._families = np.zeros(capacity, np.uint32)
        """With the bits that count; 0: there is none here."""
        self._rows: list[list[int]] = [[] for _ in range(capacity)]
        self._sizes = np.zeros(capacity, np.int64)
        self._touched_s = np.zeros(capacity)
        self._warmth = np.zeros(capacity)
        self._warmed_s = np.zeros(capacity)
        self._numbers: dict[tuple[int, bytes], int] = {}
        """Of signatures, by family and vector."""
        self._added = 0
        self._number_of = np.zeros(0, np.int32)
        """By extent row, its signature; ABSENT: none."""
        self.asked = np.zeros((len(WARMTHS) + 1, DISTANCES))
        self.used = np.zeros_like(self.asked)
        self._chance = np.zeros_like(self.asked)
        self._pending = np.full(PENDING, ABSENT, np.int64)
        """Signatures that are waited for, and as what each was asked for, since when."""
        self._pending_as = np.zeros((2, PENDING), np.int64)
        self._pending_since_s = np.zeros(PENDING)
        self._pended = 0
        self._waits = np.zeros((2, 2))
        """Of what was given up and of what came, as far as it was likely enough to be said: how
        often, and how long it was waited for, all together."""
        self._lags_s = 0.0
        """Of what came, from its neighbour's last touch, all together."""
        self.silence_s = 0.0
        """Without a neighbour's touch, after which what is waited for is given up."""
        self.update()

    # ---- signatures ----

    def sign(self, row: int, vector: bytes, bits: int, family: int) -> None:
        """The extent has this signature from now on: 16 bytes, of which `bits` count."""
        words = np.frombuffer(vector, "<u8").copy()
        words[bits // 64 :] = 0
        key = (family << 8 | bits, words.tobytes())
        number = self._numbers.get(key)
        if number is None:
            number = self._add(key, words)
        if row >= len(self._number_of):
            grown = np.full(max(1024, 2 * row), ABSENT, np.int32)
            grown[: len(self._number_of)] = self._number_of
            self._number_of = grown
        rows = self._rows[number]
        if self._number_of[row] != number:
            self._number_of[row] = number
            rows.append(row)
            del rows[:-MOST_ROWS]
            self._sizes[number] = len(rows)

    def _add(self, key: tuple[int, bytes], words: U64) -> int:
        number = self._added % len(self._rows)
        self._added += 1
        if self._families[number]:
            self._drop(number)
        self._numbers[key] = number
        self._vectors[:, number], self._families[number] = words, key[0]
        self._touched_s[number] = -np.inf
        self._warmth[number] = 0
        return number

    def _drop(self, number: int) -> None:
        del self._numbers[int(self._families[number]), self._vectors[:, number].tobytes()]
        self._number_of[self._mine(number)] = ABSENT
        self._rows[number] = []
        self._sizes[number] = 0
        self._pending[self._pending == number] = ABSENT

    def documents(self, rows: I64) -> I64:
        """Return by row which signature it has together with others; ABSENT: none."""
        found = np.full(len(rows), ABSENT, np.int64)
        known = rows < len(self._number_of)
        found[known] = self._number_of[rows[known]]
        alone = found >= 0
        alone[alone] = self._sizes[found[alone]] < 2
        found[alone] = ABSENT
        return found

    def _mine(self, number: int) -> I64:
        """Return the extents that have a signature still."""
        rows = np.array(self._rows[number], np.int64)
        return np.asarray(rows[self._number_of[rows] == number], np.int64)

    def forget(self, rows: I64) -> None:
        """These extents are no more."""
        self._number_of[rows[rows < len(self._number_of)]] = ABSENT

    # ---- what is touched ----

    def after(self, rows: I64, owner_of: NDArray[np.int32], now_s: float) -> Followers:
        """Return groups near to what was touched just now, and wait to see whether they come.

        `rows` are touched extents; `owner_of` says by row which group has an extent now.
        """
        touched = self._touch(rows, now_s)
        self._settle(touched, now_s)
        near, chances = np.zeros(0, np.int64), np.zeros(0)
        if len(touched):
            in_use = now_s - self._touched_s[: min(self._added, len(self._rows))] <= AGAIN_S
            parts = [self._near(int(number), in_use, now_s) for number in touched[-LOOKS:]]
            near, chances = _highest(*(np.concatenate(each) for each in zip(*parts, strict=True)))
        groups, chances = self._groups_of(near, chances, owner_of)
        may = (chances >= LEAST_CHANCE) & ~np.isin(groups, owner_of[rows])
        groups, chances = groups[may], chances[may]
        given_up_s, lag_s = (self._waits[1] + self.silence_s) / (self._waits[0] + 1)
        one = np.ones(len(groups))
        return Followers(groups, chances, lag_s * one, given_up_s * one)

    def _touch(self, rows: I64, now_s: float) -> I64:
        """Return the signatures of extents whose use begins now, in the order of their numbers."""
        numbers = self._number_of[rows[rows < len(self._number_of)]]
        numbers = np.unique(numbers[numbers >= 0]).astype(np.int64)
        begins = now_s - self._touched_s[numbers] > AGAIN_S
        self._touched_s[numbers] = now_s
        return np.asarray(numbers[begins], np.int64)

    def _settle(self, touched: I64, now_s: float) -> None:
        """These were touched: of what was waited for they came, and what is cold did not."""
        until_s = self._warmed_s[self._pending] + self.silence_s
        is_over = until_s < now_s
        ends = np.flatnonzero((self._pending >= 0) & (is_over | np.isin(self._pending, touched)))
        came = ~is_over[ends]
        waited_s = np.where(came, now_s, until_s[ends]) - self._pending_since_s[ends]
        counts = waited_s > AGAIN_S
        level, distance = self._pending_as[:, ends]
        np.add.at(self.asked, (level[counts], distance[counts]), 1)
        is_used = counts & came
        np.add.at(self.used, (level[is_used], distance[is_used]), 1)
        is_said = counts & (self._chance[level, distance] >= LEAST_CHANCE)
        for kind, which in enumerate((is_said & ~came, is_said & came)):
            self._waits[:, kind] += np.sum(which), np.sum(waited_s[which])
        lag_s = now_s - self._warmed_s[self._pending[ends]]
        self._lags_s += float(np.sum(lag_s[is_said & came]))
        self._pending[ends] = ABSENT

    def _near(self, number: int, is_in_use: Bools, now_s: float) -> Likely:
        """Return the nearest signatures that are not touched now, and the chance of each."""
        used = len(is_in_use)
        distance = hamming(self._vectors[:, :used], self._vectors[:, number])
        is_other = self._families[:used] != self._families[number]
        distance[is_other | is_in_use] = DISTANCES
        nearest = np.argpartition(distance, MOST)[:MOST] if used > MOST else np.arange(used)
        nearest = nearest[distance[nearest] < DISTANCES]
        level = self._warm(nearest, now_s)
        self._wait_for(nearest, level, distance[nearest], now_s)
        return nearest, self._chance[level, distance[nearest]]

    def _warm(self, numbers: I64, now_s: float) -> I64:
        """Return how warm signatures are, a neighbour of which is touched now."""
        faded = np.exp2(-(now_s - self._warmed_s[numbers]) / WARMTH_HALF_LIFE_S)
        self._warmth[numbers] = self._warmth[numbers] * faded + 1
        self._warmed_s[numbers] = now_s
        return np.searchsorted(WARMTHS, self._warmth[numbers], "right")

    def _wait_for(
        self, numbers: I64, level: I64, distance: NDArray[np.uint8], now_s: float
    ) -> None:
        place = (self._pended + np.arange(len(numbers))) % PENDING
        self._pended += len(numbers)
        self._pending[place] = numbers
        self._pending_as[:, place] = level, distance
        self._pending_since_s[place] = now_s

    def _groups_of(self, numbers: I64, chances: F64, owner_of: NDArray[np.int32]) -> Likely:
        """Return the groups of all extents of signatures, each once, and their chances."""
        rows = [self._mine(int(number)) for number in numbers]
        chances = np.repeat(chances, [len(each) for each in rows])
        groups = owner_of[np.concatenate([np.zeros(0, np.int64), *rows])].astype(np.int64)
        known = groups >= 0
        return _highest(groups[known], chances[known])

    # ---- what is learned ----

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / self._half_life_s)
        self.asked *= factor
        self.used *= factor
        self._waits *= factor
        self._lags_s *= factor

    def update(self) -> None:
        """Take the chances by distance anew."""
        lag_s = (self._lags_s + PRIOR_CAME * PRIOR_LAG_S) / (float(self._waits[0, 1]) + PRIOR_CAME)
        self.silence_s = min(SILENCE * lag_s, MOST_SILENCE_S)
        asked = self.asked + PRIOR_ASKED
        used = self.used + PRIOR_USED
        for level, chance in enumerate(self._chance):
            chance[:] = falling(used[level] / asked[level], asked[level])

    @property
    def are_likely(self) -> bool:
        """Whether some neighbours are likely enough, as far as was seen, to be said."""
        return bool((self._chance >= LEAST_CHANCE).any())

    def chance(self, distance: int, level: int = 0) -> float:
        """Return the chance that a neighbour at this distance, so warm, is touched soon."""
        return float(self._chance[level, distance])
