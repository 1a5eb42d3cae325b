"""A tier above a slow medium, on any clock: which granules are warm, which are coming and when."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prestage.ext.records import Range

BLOCK_BYTES = 4096
GRANULE_BLOCKS = 4
GRANULE_BYTES = GRANULE_BLOCKS * BLOCK_BYTES
SERVICE_S = 0.001
"""Of the medium, a granule; one after the other."""

Granule = tuple[int, int]
"""Namespace, and number of the granule in it."""


class Tier:
    """All of it fits; nothing is ever evicted."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._ready: dict[Granule, float] = {}
        self._free_at = 0.0

    def is_warm(self, granule: Granule) -> bool:
        return self._ready.get(granule, float("inf")) <= self.clock()

    def is_coming(self, granule: Granule) -> bool:
        return granule in self._ready and not self.is_warm(granule)

    def ready_at(self, granules: Iterable[Granule]) -> float:
        """When the last of them is, or would be if all were loaded now."""
        now = self.clock()
        last, free_at = now, max(self._free_at, now)
        for granule in granules:
            if granule not in self._ready:
                free_at += SERVICE_S
            last = max(last, self._ready.get(granule, free_at))
        return last

    def load(self, granules: Iterable[Granule]) -> None:
        for granule in granules:
            if granule not in self._ready:
                self._free_at = max(self._free_at, self.clock()) + SERVICE_S
                self._ready[granule] = self._free_at

    def fetch(self, granules: Iterable[Granule]) -> None:
        """A demand read: warm at once."""
        for granule in granules:
            self._ready[granule] = min(self._ready.get(granule, float("inf")), self.clock())


def granules(nsid: int, where: Range) -> list[Granule]:
    first = where.slba // GRANULE_BLOCKS
    last = (where.slba + where.nlb - 1) // GRANULE_BLOCKS
    return [(nsid, number) for number in range(first, last + 1)]


def size_of(ranges: Iterable[Range]) -> int:
    return sum(each.nlb for each in ranges) * BLOCK_BYTES
