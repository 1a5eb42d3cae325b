"""Which value table the tier is to follow: each is tried on a sample of the extents.

A shadow cache holds what the tier would hold of the sampled extents under one policy, without
anything brought in ahead; its size is the tier's times the share that is sampled (C. Waldspurger,
A. Saemundsson, I. Ahmad and N. Park, "Cache modeling and optimization using miniature simulations",
USENIX ATC 2017). Another policy comes into force when its shadow hits more by a margin, over
what is remembered. And the tier itself is compared with a shadow of what it would be without a
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import age_bins
from prestage.target.prestager.formation import Bools
from prestage.target.prestager.hazard import F64

__all__ = ["Sampled", "ShadowCache", "Shadows"]

ENTRIES: Final = 4096
"""Of a shadow cache at most, which says what share is sampled."""
BATCH: Final = 512
"""Sampled accesses that are taken together at most."""
BATCH_SHARE: Final = 8
"""And no more than this part of what a shadow holds."""
WAIT_S: Final = 1.0
"""The longest time that they wait for others."""
MARGIN: Final = 0.008
"""Hits per read by which another policy must be better to come into force."""
LEAST_READS: Final = 100.0
"""Sampled reads, fading, before any policy but the first comes into force."""
LATE_HALF_LIFE_S: Final = 200.0
"""Of what says whether the tier is harmed."""
HARM: Final = 0.004
GOOD: Final = 0.02
"""Hits per read by which the tier is behind or ahead."""
NOISE: Final = 0.03
COOL_S: Final = 120.0
MOST_COOL_S: Final = 3600.0
MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)


class ShadowCache:
    """Keys in order, their classes and times of last use; what is worth least goes first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys = np.zeros(0, np.uint64)
        self._classes = np.zeros(0, np.uint8)
        self._times_s = np.zeros(0)
        self.hits = 0.0

    def access(
        self,
        keys: NDArray[np.uint64],
        classes: NDArray[np.uint8],
        times_s: F64,
        is_read: Bools,
        table: NDArray[Any],
    ) -> Bools:
        """Take accesses in order of time; each becomes of its class. Return which reads are hits.

        These are counted.
        """
        at = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        found = self._keys[at] == keys if len(self._keys) else np.zeros(len(keys), bool)
        again = np.ones(len(keys), bool)
        again[np.unique(keys, return_index=True)[1]] = False
        is_hit = (found | again) & is_read
        self.hits += float(np.sum(is_hit))
        self._classes[at[found]] = classes[found]
        self._times_s[at[found]] = times_s[found]
        new, last = np.unique(keys[~found][::-1], return_index=True)
        is_new = np.zeros(len(self._keys) + len(new), bool)
        is_new[np.searchsorted(self._keys, new) + np.arange(len(new))] = True
        self._keys = _merged(is_new, self._keys, new)
        self._classes = _merged(is_new, self._classes, classes[~found][::-1][last])
        self._times_s = _merged(is_new, self._times_s, times_s[~found][::-1][last])
        if len(self._keys) > self._capacity:
            # What comes together is taken in before anything goes: as much as is then too much at
            # its end is too little at its start, so that it is the capacity in the mean.
            self._shrink(max(self._capacity - len(new) // 2, 1), float(times_s[-1]), table)
        return np.asarray(is_hit)

    def _shrink(self, count: int, now_s: float, table: NDArray[Any]) -> None:
        worth = table[self._classes, age_bins(now_s - self._times_s)]
        surplus = len(worth) - count
        cut = np.partition(worth, surplus - 1)[surplus - 1]
        goes = worth < cut
        equal = np.flatnonzero(worth == cut)
        more = surplus - int(goes.sum())
        goes[equal[np.argpartition(self._times_s[equal], more - 1)[:more]]] = True
        self._keys, self._classes = self._keys[~goes], self._classes[~goes]
        self._times_s = self._times_s[~goes]


def _merged(is_new: Bools, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    result = np.empty(len(is_new), old.dtype)
    result[~is_new], result[is_new] = old, new
    return result


@dataclass(frozen=True, slots=True)
class Sampled:
    """Accesses in order of time; `is_hit` says what the tier itself had.

    `is_kept` are hits on what had not been fetched ahead.
    """

    keys: NDArray[np.uint64]
    times_s: F64
    is_read: Bools
    is_hit: Bools
    is_kept: Bools


class Shadows:
    """Tries policies side by side. `chosen` is the one in force, at first the first of them.

    The first is kept unless another hits more, and it brings in ahead. The second is what the tier
    does without a model: when the tier itself, with all that is brought in ahead, falls behind its
    shadow, that one is in force and `is_harmed` for a time, each time for longer, and until the
    shadow of the first hits more again.
    """

    def __init__(self, policies: Sequence[str], frame_count: int, half_life_s: float) -> None:
        self.policies = tuple(policies)
        self.share = min(1.0, ENTRIES / frame_count)
        capacity = max(1, round(frame_count * self.share))
        self._capacity = capacity
        self._batch = max(1, min(BATCH, capacity // BATCH_SHARE))
        self._caches = {policy: ShadowCache(capacity) for policy in self.policies}
        self._half_life_s = half_life_s
        self._threshold = np.uint64(min(self.share * 2.0**64, 2.0**64 - 2048))
        self._waiting: list[tuple[NDArray[Any], ...]] = []
        self._waits = 0
        self._oldest_s = 0.0
        self.reads = 0.0
        self.chosen = self.policies[0]
        self._lead = 0.0
        """Hits of the tier less those of the second policy's shadow, of late."""
        self._late_reads = 0.0
        self._plain = np.zeros(3)
        self._harmed_until_s = -np.inf
        self._cool_s = COOL_S
        self.is_harmed = False
        self.is_bound = False
        """The first is in force whatever the others hit, unless it does harm."""

    def see(
        self,
        seen: Sampled,
        classes: dict[str, NDArray[np.uint8]],
        tables: dict[str, NDArray[Any]],
    ) -> None:
        """Take accesses; those of extents that are not sampled are left out.

        `classes` and `tables` are by policy.
        """
        which = np.flatnonzero(seen.keys * MULTIPLIER <= self._threshold)
        times_s = seen.times_s
        if len(which):
            if not self._waiting:
                self._oldest_s = float(times_s[which[0]])
            named = [classes[policy][which] for policy in self.policies]
            of_tier = (seen.is_read[which], seen.is_hit[which], seen.is_kept[which])
            self._waiting.append((seen.keys[which], times_s[which], *of_tier, *named))
            self._waits += len(which)
        if len(times_s) and (self._waits >= BATCH or times_s[-1] > self._oldest_s + WAIT_S):
            self._flush(tables)

    def _flush(self, tables: dict[str, NDArray[Any]]) -> None:
        if not self._waiting:
            return
        parts = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        keys, times_s, is_read, is_hit, is_kept, *named = parts
        self._waiting.clear()
        self._waits = 0
        base = self._caches[self.policies[1]]
        before = base.hits
        is_kept &= is_read
        for start in range(0, len(keys), self._batch):
            part = slice(start, start + self._batch)
            for classes, (policy, cache) in zip(named, self._caches.items(), strict=True):
                table = tables[policy]
                had = cache.access(keys[part], classes[part], times_s[part], is_read[part], table)
                if policy == self.chosen:
                    more, less = np.sum(had & ~is_kept[part]), np.sum(is_kept[part] & ~had)
                    self._plain += float(np.sum(is_read[part])), float(more), float(less)
        self.reads += float(np.sum(is_read))
        self._late_reads += float(np.sum(is_read))
        self._lead += float(np.sum(is_hit & is_read)) - (base.hits - before)

    def take_plain(self) -> tuple[float, float, float]:
        """Return how the tier and the shadow of what is in force differ, since the last call.

        Sampled reads; those of them that are hits in the shadow alone; those that are hits in the
        tier alone, on what was not fetched ahead.
        """
        reads, more, less = self._plain.tolist()
        self._plain[:] = 0
        return reads, more, less

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / self._half_life_s)
        self.reads *= factor
        for cache in self._caches.values():
            cache.hits *= factor
        late = 2.0 ** (-elapsed_s / LATE_HALF_LIFE_S)
        self._lead *= late
        self._late_reads *= late

    def ratios(self) -> dict[str, float]:
        """Return sampled hits per read by policy."""
        return {name: cache.hits / max(self.reads, 1e-9) for name, cache in self._caches.items()}

    def choose(self, now_s: float) -> str:
        """Return the policy that is to be in force from now on."""
        self._look_for_harm(now_s)
        ratios = self.ratios()
        ratios[self.policies[0]] += MARGIN / 2
        best = max(self.policies, key=lambda policy: ratios[policy])
        if self.is_harmed:
            self.chosen = self.policies[1]
        elif self.is_bound:
            self.chosen = self.policies[0]
        elif self.reads >= LEAST_READS and ratios[best] > ratios[self.chosen] + MARGIN:
            self.chosen = best
        return self.chosen

    def _look_for_harm(self, now_s: float) -> None:
        if now_s < self._harmed_until_s:
            return
        if self.is_harmed:
            ratios = self.ratios()
            if ratios[self.policies[0]] < ratios[self.policies[1]] + MARGIN:
                return
            self.is_harmed = False
            self.chosen = self.policies[0]
            self._lead = self._late_reads = 0.0
        # Sampled hits come in bunches: a few in a hundred of the shadow say nothing.
        if self._lead < -HARM * self._late_reads - self._capacity * NOISE:
            self.is_harmed = True
            self._harmed_until_s = now_s + self._cool_s
            self._cool_s = min(2 * self._cool_s, MOST_COOL_S)
        elif self._lead > GOOD * self._late_reads > 0:
            self._cool_s = COOL_S
