"""The fluid model of a tier before flash, in which offline bounds and classical policies are told.

The tier holds `capacity` blocks. Flash is one server that moves `flash_per_s` blocks a second. All
reads of a request are wanted at its arrival: a read is a hit when its block is in the tier then.
Misses go before anything else and may leave a debt; what is left over is for prefetching. A write
enters the tier (or not, as the policy likes) and costs nothing. There is no latency but the
server's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prestage.replay.workload import Workload


@dataclass(frozen=True, slots=True)
class FluidResult:
    """What became of a workload under a policy."""

    is_hit: NDArray[np.bool_]
    """[n]: reads that were in the tier at their request's arrival; false for writes."""
    time_to_data_s: NDArray[np.float64]
    """[requests]: until the last block was there; 0 where all were, nan without reads."""
    read_hit_ratio: float
    """Of all reads; nan without any."""
    ready_requests: float
    """The share of requests with reads whose reads were all hits; nan without any."""
    flash_reads_per_read: float
    """Blocks read from flash, on demand or ahead, over reads; nan without any."""
    prefetched: int
    """Blocks."""
    prefetched_used: int
    """Of these, read before they were evicted."""


class Policy(Protocol):
    """Which blocks stay, told of accesses in their order."""

    def access(self, block: int, *, is_write: bool) -> bool:
        """Touch a block, bring it in if it is to be; return whether it was there."""


def run_policy(workload: Workload, policy: Policy, flash_per_s: float) -> FluidResult:
    """Return what becomes of a workload under a policy that does not prefetch."""
    access = policy.access
    writes = workload.is_write.tolist()
    is_hit = np.fromiter(
        (
            access(block, is_write=is_write)
            for block, is_write in zip(workload.block.tolist(), writes, strict=True)
        ),
        np.bool_,
        len(workload),
    )
    return judge(workload, is_hit & ~workload.is_write, flash_per_s)


def judge(workload: Workload, is_hit: NDArray[np.bool_], flash_per_s: float) -> FluidResult:
    """Return the measures of a run without prefetching, of which `is_hit` [n] is known."""
    missed = np.bincount(
        workload.request[~is_hit & ~workload.is_write], minlength=workload.requests
    )
    free_s = -np.inf
    wait_s = np.zeros(workload.requests)
    for request, (time_s, count) in enumerate(
        zip(workload.request_time_s.tolist(), missed.tolist(), strict=True)
    ):
        if count:
            free_s = max(free_s, time_s) + count / flash_per_s
            wait_s[request] = free_s - time_s
    return measure(workload, is_hit, wait_s, prefetched=0, prefetched_used=0)


def measure(
    workload: Workload,
    is_hit: NDArray[np.bool_],
    wait_s: NDArray[np.float64],
    *,
    prefetched: int,
    prefetched_used: int,
) -> FluidResult:
    """Return the measures of a run; `wait_s` [requests] is 0 where nothing was missed."""
    is_read = ~workload.is_write
    reads = workload.reads
    hits = int(np.count_nonzero(is_hit))
    asked = np.bincount(workload.request[is_read], minlength=workload.requests) > 0
    missed = np.bincount(workload.request[is_read & ~is_hit], minlength=workload.requests) > 0
    asking = int(np.count_nonzero(asked))
    return FluidResult(
        is_hit=is_hit,
        time_to_data_s=np.where(asked, wait_s, np.nan),
        read_hit_ratio=hits / reads if reads else np.nan,
        ready_requests=1 - np.count_nonzero(missed) / asking if asking else np.nan,
        flash_reads_per_read=(reads - hits + prefetched) / reads if reads else np.nan,
        prefetched=prefetched,
        prefetched_used=prefetched_used,
    )
