"""Small workloads for the tests of the replay package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from prestage.replay.workload import Requests, Workload, assemble

DATA = Path(__file__).resolve().parent / "data"
CONVERSATION = DATA / "conversation.jsonl.gz"
AGENTS = DATA / "agent_sessions.jsonl.gz"


def workload_of(
    *requests: tuple[float, Sequence[int]], writes: Sequence[Sequence[bool]] | None = None
) -> Workload:
    """Return a workload of (time, blocks) each in a session of its own; first accesses write."""
    return assemble(
        Requests(
            np.array([time_s for time_s, _ in requests], np.float64),
            np.arange(len(requests), dtype=np.int32),
            [np.array(blocks, np.int64) for _, blocks in requests],
            None if writes is None else [np.array(each, np.bool_) for each in writes],
        ),
        name="small",
        seed=1,
    )


def random_workload(seed: int, *, blocks: int = 30, requests: int = 60) -> Workload:
    """Return requests of up to 6 blocks, reads and writes mixed as they come."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 7, requests)
    return assemble(
        Requests(
            np.sort(random.uniform(0, 100, requests)),
            random.integers(0, 8, requests).astype(np.int32),
            [random.zipf(1.3, size).astype(np.int64) % blocks for size in sizes],
            [random.random(size) < 0.3 for size in sizes],
        ),
        name="random",
        seed=seed,
    )
