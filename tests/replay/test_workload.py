from __future__ import annotations

import numpy as np
import pytest
from workload_support import random_workload, workload_of

from prestage.ext.records import Range
from prestage.replay.workload import QUEUES, Layout, Requests, assemble, place

SEEDS = range(5)


def test_requests_come_in_order_of_time_with_their_chains_intact() -> None:
    workload = workload_of((5.0, [9, 7]), (1.0, [7, 8]))
    assert workload.time_s.tolist() == [1.0, 1.0, 5.0, 5.0]
    assert workload.request.tolist() == [0, 0, 1, 1]
    assert workload.request_session.tolist() == [1, 0]
    assert workload.block.tolist() == [0, 1, 2, 0]
    assert workload.blocks_of(1).tolist() == [2, 0]


def test_the_first_access_ever_is_a_write_unless_said_otherwise() -> None:
    chains = ((0.0, [1, 1, 2]), (1.0, [2, 3]))
    assert workload_of(*chains).is_write.tolist() == [True, True, False, True]
    flags = [[False, True, False], [True, False]]
    assert workload_of(*chains, writes=flags).is_write.tolist() == [*flags[0], *flags[1]]


def test_a_request_reads_a_block_once_and_not_what_it_has_written() -> None:
    flags = [[False, False, True, False, True, False], [False, False]]
    workload = workload_of((0.0, [1, 1, 1, 2, 3, 3]), (1.0, [3, 1]), writes=flags)
    assert workload.request.tolist() == [0, 0, 0, 0, 1, 1]
    assert workload.block.tolist() == [0, 0, 1, 2, 2, 0]
    assert workload.is_write.tolist() == [False, True, False, True, False, False]
    assert workload.reads == 4


def test_blocks_of_a_request_share_a_queue_and_a_seed_chooses_it() -> None:
    workload = random_workload(3)
    for request in range(workload.requests):
        start, end = workload.request_start[request : request + 2]
        assert len(set(workload.queue[start:end].tolist())) == 1
    assert set(workload.queue.tolist()) <= set(range(QUEUES))
    assert np.array_equal(workload.queue, random_workload(3).queue)
    assert len(set(workload.queue.tolist())) > 8


def test_demand_is_reads_over_the_time_between_first_and_last() -> None:
    workload = workload_of((10.0, [1, 2]), (12.0, [1, 2]), (14.0, [1, 3]))
    assert (workload.reads, workload.duration_s, workload.reads_per_s) == (3, 4.0, 0.75)
    nothing = workload.select(np.zeros(len(workload), np.bool_), "nothing")
    assert (len(nothing), nothing.reads_per_s, nothing.requests) == (0, 0.0, 3)


def test_a_selection_keeps_ids_of_requests_and_blocks() -> None:
    workload = workload_of((0.0, [1]), (1.0, [2]), (2.0, [1]))
    rest = workload.select(~workload.is_write, "reads")
    assert (rest.request.tolist(), rest.block.tolist(), rest.block_count) == ([2], [0], 2)
    assert rest.request_start.tolist() == [0, 0, 0, 1]


def test_signatures_go_with_their_blocks() -> None:
    chains = [np.array([3, 1]), np.array([0])]
    parts = Requests(np.array([1.0, 0.0]), np.zeros(2, np.int32), chains)
    vectors = np.array([10, 11, 12, 13], np.uint64)
    workload = assemble(parts, name="signed", seed=1, signature=vectors)
    assert workload.signature is not None
    assert workload.signature[workload.block].tolist() == [10, 13, 11]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_block_has_a_slot_of_its_own_by_the_seed(seed: int) -> None:
    workload = random_workload(seed)
    layout = place(workload, slot_size=65536, block_size=4096)
    count = workload.block_count
    assert sorted(layout.extent.tolist()) == list(range(count))
    assert layout.block_of_extent[layout.extent].tolist() == list(range(count))
    assert layout.volume_bytes == count * 65536
    assert np.array_equal(layout.extent, place(workload, slot_size=512, block_size=512).extent)


def test_ranges_follow_the_chain_and_merge_neighbours() -> None:
    layout = Layout(np.array([4, 5, 0, 6]), 8192, 4096)
    assert layout.ranges([0, 1, 2, 3]) == (Range(8, 4), Range(0, 2), Range(12, 2))
    assert layout.ranges([1, 0]) == (Range(10, 2), Range(8, 2))
    assert layout.ranges([]) == ()
