from __future__ import annotations

import math
import string

import numpy as np
import pytest
from workload_support import random_workload, workload_of

from prestage.replay.fluid import Policy, judge, run_policy
from prestage.replay.policies import Lru, MultiQueue, NoTier


def test_misses_wait_for_the_flash_and_for_its_debts() -> None:
    chain = [1, 2, 3, 4]
    workload = workload_of((0, chain), (10, chain), (11, chain[:2]), (30, chain[:1]), (40, [9]))
    nothing = run_policy(workload, NoTier(), flash_per_s=2)
    # Four blocks take 2 s; the next two wait for the last second of these; the fourth for none.
    assert nothing.time_to_data_s[1:4] == pytest.approx([2.0, 2.0, 0.5])
    assert np.isnan(nothing.time_to_data_s[[0, 4]]).all()
    assert (nothing.read_hit_ratio, nothing.ready_requests) == (0, 0)
    assert nothing.flash_reads_per_read == 1


def test_ready_requests_had_all_their_reads() -> None:
    workload = workload_of((0, [1, 2]), (1, [1, 2]), (2, [1, 2]), (3, [1, 3]))
    is_hit = np.array([False, False, True, True, True, False, False, False])
    result = judge(workload, is_hit, flash_per_s=10)
    assert result.read_hit_ratio == pytest.approx(3 / 5)
    assert result.ready_requests == pytest.approx(1 / 3)
    assert result.flash_reads_per_read == pytest.approx(2 / 5)
    assert result.time_to_data_s[1:] == pytest.approx([0.0, 0.1, 0.1])


def test_without_reads_there_is_no_ratio() -> None:
    result = run_policy(workload_of((0, [1]), (1, [2])), Lru(1), 1)
    assert math.isnan(result.read_hit_ratio) and math.isnan(result.flash_reads_per_read)
    assert math.isnan(result.ready_requests)


@pytest.mark.parametrize("seed", range(5))
def test_lru_keeps_what_was_used_last(seed: int) -> None:
    workload = random_workload(seed)
    recent: list[int] = []
    is_hit = []
    for block, is_write in zip(workload.block.tolist(), workload.is_write.tolist(), strict=True):
        is_hit.append(block in recent and not is_write)
        recent = [block, *(each for each in recent if each != block)][:5]
    result = run_policy(workload, Lru(5), 1)
    assert result.is_hit.tolist() == is_hit and any(is_hit)


FRESH = string.digits + string.ascii_uppercase
"""Blocks that are accessed once."""


def touched(policy: Policy, blocks: str) -> str:
    """Return the blocks that were there, as letters, of accesses one after the other."""
    return "".join(each for each in blocks if policy.access(ord(each), is_write=False))


def test_mq_prefers_what_was_used_often() -> None:
    scan = "klmnopqr"
    assert touched(Lru(4), f"aabb{scan}ab") == "ab"
    assert touched(MultiQueue(4, life=10), f"aabb{scan}ab") == "abab"


def test_mq_lets_sink_what_is_not_used_for_its_life_time() -> None:
    accesses = "aaaa" + FRESH[:20] + "a"
    assert touched(MultiQueue(4, life=10), accesses) == "aaaa"
    assert touched(MultiQueue(4, life=1), accesses) == "aaa"


def test_mq_remembers_how_often_what_it_evicted_was_used() -> None:
    accesses = "aaaa" + FRESH[:30] + "a" + FRESH[30:36] + "a"
    assert touched(MultiQueue(4, life=2, ghosts=20), accesses) == "aaaa"
    assert touched(MultiQueue(4, life=2, ghosts=0), accesses) == "aaa"
