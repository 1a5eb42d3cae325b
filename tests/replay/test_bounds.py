from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from workload_support import random_workload, workload_of

from prestage.replay.bounds import belady, next_reads, oracle
from prestage.replay.fluid import run_policy
from prestage.replay.policies import Lru
from prestage.replay.workload import Workload

SEEDS = range(12)
FLASH_PER_S = 1.5


def most_hits(workload: Workload, capacity: int) -> int:
    """The most read hits that any demand-only retention can have, by trying all of them."""
    blocks, writes = workload.block.tolist(), workload.is_write.tolist()

    @functools.cache
    def best(position: int, inside: frozenset[int]) -> int:
        if position == len(blocks):
            return 0
        block = blocks[position]
        hit = int(block in inside and not writes[position])
        after = [inside]  # bypass, or it was there
        if block not in inside:
            with_it = inside | {block}
            after += [with_it] if len(with_it) <= capacity else [with_it - {e} for e in inside]
        return hit + max(best(position + 1, each) for each in after)

    return best(0, frozenset())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_belady_has_as_many_hits_as_any_retention_can(seed: int, capacity: int) -> None:
    print(f"seed {seed}")
    workload = random_workload(seed, blocks=7, requests=10)
    result = belady(workload, capacity=capacity, flash_per_s=1)
    assert np.count_nonzero(result.is_hit) == most_hits(workload, capacity)
    assert not (result.is_hit & workload.is_write).any()


def test_a_block_that_is_overwritten_first_is_not_read_next() -> None:
    flags = [[True], [True, False], [False]]
    workload = workload_of((0, [1]), (1, [1, 2]), (2, [1]), writes=flags)
    assert next_reads(workload).tolist() == [4, 3, 4, 4]


class SlowOracle:
    """The oracle as its definition says it, over sets, for comparison."""

    def __init__(self, workload: Workload, capacity: int, look_ahead_s: float) -> None:
        self.blocks = workload.block.tolist()
        self.writes = workload.is_write.tolist()
        self.time_s = workload.time_s.tolist()
        self.capacity = capacity
        self.look_ahead_s = look_ahead_s
        self.inside: set[int] = set()
        first = {block: at for at, block in reversed(list(enumerate(self.blocks)))}
        self.stored = {block for block, at in first.items() if not self.writes[at]}

    def read_at(self, block: int, after: int) -> float:
        """When a block is read next, by position; inf: never, or it is overwritten before."""
        for at in range(after, len(self.blocks)):
            if self.blocks[at] == block:
                return math.inf if self.writes[at] else at
        return math.inf

    def offer(self, block: int, after: int) -> bool:
        """Let a block in if it is read before the last of those inside."""
        mine = self.read_at(block, after)
        last = max(self.inside, key=lambda each: self.read_at(each, after), default=block)
        if len(self.inside) == self.capacity:
            if self.read_at(last, after) <= mine:
                return False
            self.inside.remove(last)
        self.inside.add(block)
        return True

    def wanted(self, after: int) -> int | None:
        """The absent block that is read soonest."""
        absent = self.stored - self.inside
        found = min(absent, key=lambda each: self.read_at(each, after), default=None)
        return None if found is None or self.read_at(found, after) == math.inf else found

    def run(self, workload: Workload, flash_per_s: float) -> list[bool]:
        """Return which accesses are read hits."""
        hits = []
        free_s, progress_s, service_s = -math.inf, 0.0, 1 / flash_per_s
        start = workload.request_start.tolist()
        for request, now_s in enumerate(workload.request_time_s.tolist()):
            first = start[request]
            while free_s < now_s and (block := self.wanted(first)) is not None:
                due_s = self.time_s[int(self.read_at(block, first))]
                begin_s = max(free_s, due_s - self.look_ahead_s)
                end_s = begin_s + service_s - progress_s
                before = set(self.inside)
                if not self.offer(block, first):
                    break
                if end_s > now_s:
                    self.inside = before
                    progress_s += max(0.0, now_s - begin_s)
                    break
                free_s, progress_s = end_s, 0.0
            missed = 0
            for at in range(first, start[request + 1]):
                block = self.blocks[at]
                is_hit = block in self.inside and not self.writes[at]
                hits.append(is_hit)
                missed += not is_hit and not self.writes[at]
                self.stored.add(block)
                self.inside.discard(block)
                if self.read_at(block, at + 1) < math.inf:
                    self.offer(block, at + 1)
            free_s = max(free_s, now_s) + missed * service_s
        return hits


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("look_ahead_s", [2.0, 20.0, math.inf])
def test_the_oracle_does_what_its_definition_says(seed: int, look_ahead_s: float) -> None:
    print(f"seed {seed}")
    workload = random_workload(seed, blocks=20)
    slow = SlowOracle(workload, 4, look_ahead_s).run(workload, FLASH_PER_S)
    fast = oracle(workload, capacity=4, flash_per_s=FLASH_PER_S, look_ahead_s=look_ahead_s)
    assert fast.is_hit.tolist() == slow
    assert fast.prefetched_used <= fast.prefetched
    reads = workload.reads
    assert fast.flash_reads_per_read * reads == pytest.approx(
        reads - np.count_nonzero(fast.is_hit) + fast.prefetched
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_knowing_and_fetching_more_never_loses_here(seed: int) -> None:
    workload = random_workload(seed, blocks=20)
    ratios = [
        run_policy(workload, Lru(4), FLASH_PER_S).read_hit_ratio,
        belady(workload, capacity=4, flash_per_s=FLASH_PER_S).read_hit_ratio,
        oracle(workload, capacity=4, flash_per_s=FLASH_PER_S).read_hit_ratio,
    ]
    assert ratios == sorted(ratios) and ratios[0] < ratios[2]
    blind = oracle(workload, capacity=4, flash_per_s=FLASH_PER_S, look_ahead_s=0)
    assert (blind.read_hit_ratio, blind.prefetched) == (ratios[1], 0)


def test_misses_go_before_what_is_fetched_ahead() -> None:
    # Three blocks that were there before, read at 1 s, and again at 1.5 s with one more.
    flags = [[False] * 3, [False] * 4]
    workload = workload_of((1, [1, 2, 3]), (1.5, [1, 2, 3, 4]), writes=flags)
    early = oracle(workload, capacity=9, flash_per_s=1, look_ahead_s=0.6)
    assert early.is_hit.tolist() == [False, False, False, True, True, True, False]
    # 0.6 s of the first fetch had been done, but what is wanted now is served first.
    assert early.time_to_data_s.tolist() == pytest.approx([3.0, 3.5])
    assert early.prefetched == 0


def test_what_was_there_before_can_be_fetched_before_its_first_read() -> None:
    workload = workload_of((0, [9]), (5, [1, 2]), writes=[[True], [False, False]])
    result = oracle(workload, capacity=1, flash_per_s=1)
    assert result.is_hit.tolist() == [False, True, False]
    assert (result.prefetched, result.prefetched_used) == (1, 1)
