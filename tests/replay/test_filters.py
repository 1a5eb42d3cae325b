from __future__ import annotations

import numpy as np
import pytest
from workload_support import random_workload, workload_of

from prestage.replay.filters import behind_host_cache


def test_reads_that_hit_the_host_are_not_seen_and_writes_are() -> None:
    flags = [[True, True], [False], [True], [False, False]]
    workload = workload_of((0, [1, 2]), (1, [2]), (2, [2]), (3, [1, 2]), writes=flags)
    seen = behind_host_cache(workload, 0.5)  # of two blocks: one stays with the host
    assert seen.request.tolist() == [0, 0, 2, 3, 3]
    assert seen.is_write.tolist() == [True, True, True, False, False]
    assert (seen.requests, seen.block_count) == (4, 2)
    assert "50%" in seen.name


def test_no_share_is_no_cache_and_all_of_it_leaves_only_first_reads() -> None:
    workload = random_workload(2)
    assert behind_host_cache(workload, 0) is workload
    rest = behind_host_cache(workload, 1)
    assert (rest.is_write | np.isin(np.arange(len(rest)), np.unique(rest.block, True)[1])).all()
    assert np.count_nonzero(rest.is_write) == np.count_nonzero(workload.is_write)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_the_cache_is_least_recently_used(seed: int, share: float) -> None:
    workload = random_workload(seed)
    capacity = int(share * workload.block_count)
    recent: list[int] = []
    is_seen = []
    for block, is_write in zip(workload.block.tolist(), workload.is_write.tolist(), strict=True):
        is_seen.append(is_write or block not in recent)
        recent = [block, *(each for each in recent if each != block)][:capacity]
    seen = behind_host_cache(workload, share)
    assert np.array_equal(seen.block, workload.block[is_seen])
    assert np.array_equal(seen.time_s, workload.time_s[is_seen])
    assert len(seen) < len(workload)
