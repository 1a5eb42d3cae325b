"""Offline bounds in the fluid model: what a tier could do that knows what will be read.

Belady's rule evicts what is read again last, or does not let a block in that is read again later
than everything inside (bypass). "Aggressive" prefetching (Cao, Felten, Karlin, Li: A Study of
Integrated Prefetching and Caching Strategies, SIGMETRICS 1995) uses flash that no miss wants for
the absent block that is read soonest, if what it evicts is read later. That is feasible, so a bound
from below on the best; it is near the best unless flash is scarce. A look-ahead limits how long
before a read its block may be fetched; evictions know everything all the same.
"""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from prestage.replay.fluid import FluidResult, judge, measure
from prestage.replay.workload import Workload


def belady(workload: Workload, *, capacity: int, flash_per_s: float) -> FluidResult:
    """Return what the best retention without prefetching does."""
    tier = OfflineTier(workload, capacity)
    is_hit = np.fromiter(map(tier.access, range(len(workload))), np.bool_, len(workload))
    return judge(workload, is_hit, flash_per_s)


def oracle(
    workload: Workload, *, capacity: int, flash_per_s: float, look_ahead_s: float = math.inf
) -> FluidResult:
    """Return what Belady's retention with Aggressive prefetching does.

    Without a limit to its look-ahead it is the clairvoyant bound under that flash bandwidth.
    """
    tier = OfflineTier(workload, capacity)
    tier.await_first_reads()
    flash = Flash(flash_per_s)
    is_hit = np.zeros(len(workload), np.bool_)
    wait_s = np.zeros(workload.requests)
    is_write = workload.is_write.tolist()
    start = workload.request_start.tolist()
    for request, time_s in enumerate(workload.request_time_s.tolist()):
        flash.prefetch(tier, time_s, look_ahead_s)
        missed = 0
        for position in range(start[request], start[request + 1]):
            if tier.access(position):
                is_hit[position] = True
            elif not is_write[position]:
                missed += 1
        wait_s[request] = flash.demand(missed, time_s)
    return measure(
        workload,
        is_hit,
        wait_s,
        prefetched=tier.prefetched,
        prefetched_used=tier.prefetched_used,
    )


def next_reads(workload: Workload) -> NDArray[np.int64]:
    """Return the position [n] at which each accessed block is read next.

    It is n when nobody accesses the block again, or when it is overwritten before it is read.
    """
    count = len(workload)
    order = np.argsort(workload.block, kind="stable")
    is_same = np.diff(workload.block[order]) == 0
    following = np.full(count, count, np.int64)
    following[order[:-1][is_same]] = order[1:][is_same]
    return np.where(np.append(workload.is_write, True)[following], count, following)


class Flash:
    """The one server: misses first, then what is fetched ahead."""

    def __init__(self, blocks_per_s: float) -> None:
        assert blocks_per_s > 0
        self.service_s = 1 / blocks_per_s
        self.free_s = -math.inf
        """When it has done what misses and fetches gave it."""
        self.progress_s = 0.0
        """Of service, that the next fetch has had already."""

    def demand(self, missed: int, time_s: float) -> float:
        """Serve misses that come now; return how long the last of them waits."""
        self.free_s = max(self.free_s, time_s) + missed * self.service_s
        return self.free_s - time_s if missed else 0.0

    def prefetch(self, tier: OfflineTier, until_s: float, look_ahead_s: float) -> None:
        """Fetch the absent blocks that are read soonest, as far as the time until then allows."""
        while self.free_s < until_s:
            read_s = tier.next_wanted_s()
            if read_s is None:
                return
            start_s = max(self.free_s, read_s - look_ahead_s)
            if start_s >= until_s:
                return
            end_s = start_s + self.service_s - self.progress_s
            if end_s > until_s:
                self.progress_s += until_s - start_s
                return
            tier.fetch()
            self.free_s = end_s
            self.progress_s = 0.0


PAST, RESIDENT, FETCHED, ABSENT = range(4)
"""Where the block of a read to come is: FETCHED is resident, and brought in for it."""


class OfflineTier:
    """Blocks by when they are read next: a block stands for the position of its next read."""

    def __init__(self, workload: Workload, capacity: int) -> None:
        assert capacity >= 1
        self.capacity = capacity
        self.used = 0
        self.never = len(workload)
        self.time_s = workload.time_s.tolist()
        self.next_read = next_reads(workload).tolist()
        self.state = bytearray(len(workload))
        self.furthest: list[int] = []
        """A heap of minus the positions that are resident; others among them are out of date."""
        self.soonest: list[int] = []
        """A heap of the positions that are absent; others among them are out of date."""
        self.first_reads = _first_reads(workload)
        self.prefetched = 0
        self.prefetched_used = 0

    def await_first_reads(self) -> None:
        """Let blocks be fetched that were there before the workload began."""
        self.soonest = self.first_reads.tolist()
        for position in self.soonest:
            self.state[position] = ABSENT

    def access(self, position: int) -> bool:
        """Do the access at `position`; return whether it was a read that found its block."""
        state = self.state[position]
        self.state[position] = PAST
        is_hit = state in (RESIDENT, FETCHED)
        if is_hit:
            self.used -= 1
            self.prefetched_used += state == FETCHED
        following = self.next_read[position]
        if following == self.never:
            return is_hit
        if self._has_room(following):
            self._enter(following, RESIDENT)
        else:
            self.state[following] = ABSENT
            heapq.heappush(self.soonest, following)
        return is_hit

    def next_wanted_s(self) -> float | None:
        """Return when the absent block is read that is worth fetching first; None: none is."""
        while self.soonest and self.state[self.soonest[0]] != ABSENT:
            heapq.heappop(self.soonest)
        if not self.soonest or not self._may_enter(self.soonest[0]):
            return None
        return float(self.time_s[self.soonest[0]])

    def fetch(self) -> None:
        """Bring in the block that next_wanted_s spoke of."""
        position = heapq.heappop(self.soonest)
        has_room = self._has_room(position)
        assert has_room
        self._enter(position, FETCHED)
        self.prefetched += 1

    def _may_enter(self, position: int) -> bool:
        if self.used < self.capacity:
            return True
        while self.state[-self.furthest[0]] not in (RESIDENT, FETCHED):
            heapq.heappop(self.furthest)
        return -self.furthest[0] > position

    def _has_room(self, position: int) -> bool:
        """Whether there is room, after an eviction if need be, for what is read at `position`."""
        if not self._may_enter(position):
            return False
        if self.used == self.capacity:
            victim = -heapq.heappop(self.furthest)
            self.state[victim] = ABSENT
            heapq.heappush(self.soonest, victim)
            self.used -= 1
        return True

    def _enter(self, position: int, state: int) -> None:
        self.state[position] = state
        heapq.heappush(self.furthest, -position)
        self.used += 1


def _first_reads(workload: Workload) -> NDArray[np.int64]:
    """Return the positions, ascending, of the first accesses of blocks that are reads."""
    _, first = np.unique(workload.block, return_index=True)
    return np.sort(first[~workload.is_write[first]]).astype(np.int64)
