"""Which value table the tier is to follow: each is tried on a sample of the extents.

A shadow cache holds what the tier would hold of the sampled extents under one policy, without
anything brought in ahead; its size is the tier's times the share that is sampled (C. Waldspurger,
A. Saemundsson, I. Ahmad and N. Park, "Cache modeling and optimization using miniature simulations",
USENIX ATC 2017). Another policy comes into force when its shadow hits more by a margin, over
what is remembered. And the tier itself is compared with shadows of what it would be without a
model, and with one but without anything brought in ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import age_bins
from prestage.target.prestager.force import Force
from prestage.target.prestager.formation import Bools
from prestage.target.prestager.hazard import F64

__all__ = ["Sampled", "ShadowCache", "Shadows"]

ENTRIES: Final = 4096
"""Of a shadow cache at most, which says what share is sampled."""
BATCH: Final = 512
"""Sampled accesses that are taken together at most."""
BATCH_SHARE: Final = 16
"""And of a tier that is not sampled no more than this part: a chain is a good part of it."""
WAIT_S: Final = 1.0
"""The longest time that they wait for others."""
MULTIPLIER: Final = np.uint64(0xD6E8FEB86659FD93)


class ShadowCache:
    """Keys in order, their classes and times of last use; what is worth least goes first.

    As in the tier, what was just used stays until its class is said, which is when its burst is
    over: of a small tier, or of one that much comes through, that is a good part.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys = np.zeros(0, np.uint64)
        self._classes = np.zeros(0, np.uint8)
        self._times_s = np.zeros(0)
        self._said_s = np.zeros(0)
        self.hits = 0.0

    def access(
        self,
        keys: NDArray[np.uint64],
        classes: NDArray[np.uint8],
        times_s: F64,
        said_s: F64,
        is_read: Bools,
        table: NDArray[Any],
    ) -> Bools:
        """Take accesses in order of time; each becomes of its class. Return which reads are hits.

        These are counted. `said_s` is when the tier was told the class.
        """
        at = np.minimum(np.searchsorted(self._keys, keys), max(len(self._keys) - 1, 0))
        found = self._keys[at] == keys if len(self._keys) else np.zeros(len(keys), bool)
        again = np.ones(len(keys), bool)
        again[np.unique(keys, return_index=True)[1]] = False
        is_hit = (found | again) & is_read
        self.hits += float(np.sum(is_hit))
        self._classes[at[found]] = classes[found]
        self._times_s[at[found]] = times_s[found]
        self._said_s[at[found]] = said_s[found]
        new, last = np.unique(keys[~found][::-1], return_index=True)
        is_new = np.zeros(len(self._keys) + len(new), bool)
        is_new[np.searchsorted(self._keys, new) + np.arange(len(new))] = True
        self._keys = _merged(is_new, self._keys, new)
        self._classes = _merged(is_new, self._classes, classes[~found][::-1][last])
        self._times_s = _merged(is_new, self._times_s, times_s[~found][::-1][last])
        self._said_s = _merged(is_new, self._said_s, said_s[~found][::-1][last])
        if len(self._keys) > self._capacity:
            # What comes together is taken in before anything goes: as much as is then too much at
            # its end is too little at its start, so that it is the capacity in the mean.
            self._shrink(max(self._capacity - len(new) // 2, 1), float(times_s[-1]), table)
        return np.asarray(is_hit)

    def _shrink(self, count: int, now_s: float, table: NDArray[Any]) -> None:
        worth = table[self._classes, age_bins(now_s - self._times_s)]
        worth[self._said_s > now_s] = np.inf
        surplus = len(worth) - count
        cut = np.partition(worth, surplus - 1)[surplus - 1]
        goes = worth < cut
        equal = np.flatnonzero(worth == cut)
        more = surplus - int(goes.sum())
        goes[equal[np.argpartition(self._times_s[equal], more - 1)[:more]]] = True
        self._keys, self._classes = self._keys[~goes], self._classes[~goes]
        self._times_s, self._said_s = self._times_s[~goes], self._said_s[~goes]


def _merged(is_new: Bools, old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    result = np.empty(len(is_new), old.dtype)
    result[~is_new], result[is_new] = old, new
    return result


@dataclass(frozen=True, slots=True)
class Sampled:
    """Accesses in order of time; `is_hit` says what the tier itself had.

    `is_kept` are hits on what had not been fetched ahead; `is_told` is what hints bring in as a
    rule.
    """

    keys: NDArray[np.uint64]
    times_s: F64
    said_s: F64
    """When the tier is told their classes."""
    is_read: Bools
    is_hit: Bools
    is_kept: Bools
    is_told: Bools


class Shadows:
    """Tries policies side by side, and says which is in force: see Force.

    That is also worked out for the tier as it would be if nothing were fetched, whose hits are then
    those of that policy's shadow: fetches that do harm bring another into force.
    """

    def __init__(self, policies: Sequence[str], frame_count: int, half_life_s: float) -> None:
        self.policies = tuple(policies)
        self.share = min(1.0, ENTRIES / frame_count)
        capacity = max(1, round(frame_count * self.share))
        self._batch = BATCH if self.share < 1 else max(1, capacity // BATCH_SHARE)
        self._caches = {policy: ShadowCache(capacity) for policy in self.policies}
        self._half_life_s = half_life_s
        self._threshold = np.uint64(min(self.share * 2.0**64, 2.0**64 - 2048))
        self._waiting: list[tuple[NDArray[Any], ...]] = []
        self._waits = 0
        self._oldest_s = 0.0
        self.reads = 0.0
        self._force = Force(self.policies, capacity)
        self._plain_force = Force(self.policies, capacity)
        self._plain = np.zeros(3)
        self.is_promising = False
        """Something else than how groups came back says what is to be brought in."""
        self.is_bound = False
        """The first is in force whatever the others hit, unless it does harm."""

    @property
    def chosen(self) -> str:
        """The policy in force."""
        return self._force.chosen

    @property
    def is_harmed(self) -> bool:
        """The tier is behind what it would be without a model: nothing is to be fetched."""
        return self._force.is_harmed

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
            when = (times_s[which], seen.said_s[which], seen.is_read[which])
            of_tier = (seen.is_hit[which], seen.is_kept[which], seen.is_told[which])
            self._waiting.append((seen.keys[which], *when, *of_tier, *named))
            self._waits += len(which)
        if len(times_s) and (self._waits >= BATCH or times_s[-1] > self._oldest_s + WAIT_S):
            self._flush(tables)

    def _flush(self, tables: dict[str, NDArray[Any]]) -> None:
        if not self._waiting:
            return
        parts = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
        keys, times_s, said_s, is_read, is_hit, is_kept, is_told, *named = parts
        self._waiting.clear()
        self._waits = 0
        base = self._caches[self.policies[1]]
        before = base.hits
        in_shadow = np.zeros(len(keys), bool)
        for start in range(0, len(keys), self._batch):
            part = slice(start, start + self._batch)
            for classes, (policy, cache) in zip(named, self._caches.items(), strict=True):
                when = (times_s[part], said_s[part], is_read[part])
                had = cache.access(keys[part], classes[part], *when, tables[policy])
                if policy == self._plain_force.chosen:
                    in_shadow[part] = had
        counts = is_read & ~is_told
        net = float(np.sum(in_shadow & counts)) - float(np.sum(is_kept & counts))
        self._plain += float(np.sum(counts)), net, net**2
        reads, base_hits = float(np.sum(is_read)), base.hits - before
        self.reads += reads
        self._force.see(reads, float(np.sum(is_hit & is_read)) - base_hits)
        self._plain_force.see(reads, float(np.sum(in_shadow)) - base_hits)

    def take_plain(self) -> tuple[float, float, float]:
        """Return how the tier differs from what it would be without fetches, since the last call.

        Sampled reads that hints do not bring in; how many more of them are hits in the shadow than
        in the tier on what was not fetched ahead; and the squares of that, summed over what was
        looked at together: each such difference is an error of the shadow's, or what fetches do.
        """
        reads, net, squares = self._plain.tolist()
        self._plain[:] = 0
        return reads, net, squares

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / self._half_life_s)
        self.reads *= factor
        for cache in self._caches.values():
            cache.hits *= factor
        self._force.fade(elapsed_s)
        self._plain_force.fade(elapsed_s)

    def ratios(self) -> dict[str, float]:
        """Return sampled hits per read by policy."""
        return {name: cache.hits / max(self.reads, 1e-9) for name, cache in self._caches.items()}

    def choose(self, now_s: float) -> str:
        """Return the policy that is to be in force from now on."""
        ratios = self.ratios()
        self._plain_force.choose(now_s, self.reads, ratios, is_bound=self.is_bound)
        return self._force.choose(
            now_s, self.reads, ratios, is_bound=self.is_bound, is_promising=self.is_promising
        )
