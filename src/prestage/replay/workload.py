"""A workload: one time-ordered stream of accesses to blocks, and where the blocks lie on a volume.

A block of a trace is one extent (slot) of the volume. Hit ratios are of reads at the arrival of
their request; writes count for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.ext.records import Range

QUEUES: Final = 16
"""Requests are spread over as many connections."""

# What a seed is for, so that one choice does not depend on how often another one drew.
STREAM_TIMES: Final = 1
STREAM_CHOICE: Final = 2
STREAM_QUEUES: Final = 3
STREAM_LAYOUT: Final = 4
STREAM_HINTS: Final = 5


def random_stream(seed: int, purpose: int) -> np.random.Generator:
    """Return the random numbers of one `purpose` (STREAM_...) under a seed of 0 or more."""
    return np.random.default_rng([seed, purpose])


@dataclass(frozen=True)
class Workload:
    """Accesses in order of time; n of them, by requests of which all blocks are wanted at once."""

    time_s: NDArray[np.float64]
    """[n], non-decreasing: the arrival of the request."""
    request: NDArray[np.int32]
    """[n], non-decreasing, 0 to requests - 1. A request whose accesses were all filtered away has
    none."""
    block: NDArray[np.int32]
    """[n], 0 to block_count - 1."""
    is_write: NDArray[np.bool_]
    """[n]; in traces the first access ever, which is when the block was computed."""
    tenant: NDArray[np.uint16]
    """[n]"""
    queue: NDArray[np.int32]
    """[n]: the connection."""
    block_count: int
    name: str
    seed: int
    requests: int
    request_time_s: NDArray[np.float64]
    """[requests]"""
    request_session: NDArray[np.int32]
    """[requests]: for judging and for hints; a target cannot know it."""
    signature: NDArray[np.uint64] | None = None
    """[block_count]: what hosts say of each block when it is written, if they do."""

    def __post_init__(self) -> None:
        for each in (self.time_s, self.request, self.is_write, self.tenant, self.queue):
            assert len(each) == len(self.block), f"{len(each)} of {len(self.block)} accesses"
        for each in (self.request_time_s, self.request_session):
            assert len(each) == self.requests, f"{len(each)} of {self.requests} requests"
        assert self.signature is None or len(self.signature) == self.block_count

    def __len__(self) -> int:
        return len(self.block)

    @cached_property
    def reads(self) -> int:
        """How many accesses are reads."""
        return int(np.count_nonzero(~self.is_write))

    @property
    def tenants(self) -> int:
        """How many hosts there are: their numbers are below."""
        return int(self.tenant.max(initial=0)) + 1

    @property
    def duration_s(self) -> float:
        """From the first access to the last; 0 when there are fewer than two."""
        return float(self.time_s[-1] - self.time_s[0]) if len(self) else 0.0

    @property
    def reads_per_s(self) -> float:
        """The mean read demand, in blocks: what multiples of flash bandwidth are multiples of."""
        return self.reads / self.duration_s if self.duration_s > 0 else 0.0

    @property
    def writes_per_s(self) -> float:
        """The mean rate of writes, in blocks."""
        return (len(self) - self.reads) / self.duration_s if self.duration_s > 0 else 0.0

    @cached_property
    def request_start(self) -> NDArray[np.int64]:
        """[requests + 1]: accesses of request r are start[r] to start[r + 1] - 1."""
        return np.searchsorted(self.request, np.arange(self.requests + 1)).astype(np.int64)

    def blocks_of(self, request: int) -> NDArray[np.int32]:
        """Return the blocks of one request in the order of its chain."""
        start = self.request_start
        return self.block[start[request] : start[request + 1]]

    def select(self, is_kept: NDArray[np.bool_], name: str) -> Workload:
        """Return the accesses where `is_kept` [n] is true; requests and blocks keep their ids."""
        assert len(is_kept) == len(self)
        return replace(
            self,
            time_s=self.time_s[is_kept],
            request=self.request[is_kept],
            block=self.block[is_kept],
            is_write=self.is_write[is_kept],
            tenant=self.tenant[is_kept],
            queue=self.queue[is_kept],
            name=name,
        )


@dataclass(frozen=True)
class Requests:
    """What a workload is made of: m requests in any order."""

    time_s: NDArray[np.float64]
    """[m]"""
    session: NDArray[np.int32]
    """[m]"""
    chains: Sequence[NDArray[np.int64]]
    """[m] times the blocks of the request in the order of its chain, under any numbers. Of a block
    that is named again, a read is left out: the host has its bytes, or is about to."""
    is_write: Sequence[NDArray[np.bool_]] | None = None
    """Beside the chains; None: the first access of each block ever is a write, others are reads."""
    tenant: NDArray[np.uint16] | None = None
    """[m]; None: all of tenant 0."""
    queue: NDArray[np.int32] | None = None
    """[m]; None: spread over QUEUES by the seed."""


def assemble(
    requests: Requests, *, name: str, seed: int, signature: NDArray[np.uint64] | None = None
) -> Workload:
    """Put requests in order of time (equal times stay in their order) and number blocks densely.

    Blocks are numbered by their first access. `signature` is by their numbers in the chains.
    """
    order = np.argsort(requests.time_s, kind="stable")
    count = len(order)
    lengths = np.array([len(requests.chains[i]) for i in order], np.int64)
    request = np.repeat(np.arange(count, dtype=np.int32), lengths)
    chains = [requests.chains[i] for i in order]
    ids = np.concatenate(chains) if chains else np.empty(0, np.int64)
    distinct, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(distinct), np.int32)
    rank[np.argsort(first, kind="stable")] = np.arange(len(distinct), dtype=np.int32)
    if requests.is_write is None:
        is_write = np.zeros(len(ids), np.bool_)
        is_write[first] = True
    else:
        flags = [requests.is_write[i] for i in order]
        is_write = np.concatenate(flags) if flags else np.empty(0, np.bool_)
    named = request.astype(np.int64) * len(distinct) + inverse
    is_seen = is_write.copy()
    is_seen[np.unique(named, return_index=True)[1]] = True
    request, block, is_write = request[is_seen], rank[inverse[is_seen]], is_write[is_seen]
    tenant = requests.tenant if requests.tenant is not None else np.zeros(count, np.uint16)
    queue = requests.queue
    if queue is None:
        spread = random_stream(seed, STREAM_QUEUES).integers(0, QUEUES, count)
        queue = np.empty(count, np.int32)
        queue[order] = spread
    time_s = requests.time_s[order].astype(np.float64)
    return Workload(
        time_s=time_s[request],
        request=request,
        block=block,
        is_write=is_write,
        tenant=tenant[order][request].astype(np.uint16),
        queue=queue[order][request].astype(np.int32),
        block_count=len(distinct),
        name=name,
        seed=seed,
        requests=count,
        request_time_s=time_s,
        request_session=requests.session[order].astype(np.int32),
        signature=None if signature is None else signature[distinct[np.argsort(rank)]],
    )


@dataclass(frozen=True)
class Layout:
    """Where blocks lie: block b is the slot at byte extent[b] * slot_size of the volume."""

    extent: NDArray[np.int64]
    """[block_count], no two alike."""
    slot_size: int
    """Bytes of a slot."""
    block_size: int
    """Bytes of a logical block of the volume."""

    @property
    def volume_bytes(self) -> int:
        """The size of the volume that holds all blocks."""
        return len(self.extent) * self.slot_size

    @cached_property
    def slots(self) -> list[int]:
        """`extent`, for looking up one at a time."""
        return [int(each) for each in self.extent.tolist()]

    @cached_property
    def block_of_extent(self) -> NDArray[np.int32]:
        """[block_count]: which block lies in each slot."""
        inverse = np.empty(len(self.extent), np.int32)
        inverse[self.extent] = np.arange(len(self.extent), dtype=np.int32)
        return inverse

    def ranges(self, blocks: Iterable[int]) -> tuple[Range, ...]:
        """Return `blocks` in their order as ranges of logical blocks; neighbours become one."""
        nlb = self.slot_size // self.block_size
        runs: list[list[int]] = []
        for extent in map(self.slots.__getitem__, blocks):
            if runs and runs[-1][0] + runs[-1][1] == extent:
                runs[-1][1] += 1
            else:
                runs.append([extent, 1])
        return tuple(Range(first * nlb, count * nlb) for first, count in runs)


def place(workload: Workload, *, slot_size: int, block_size: int) -> Layout:
    """Place blocks at random by the workload's seed, so that adjacency means nothing."""
    assert slot_size % block_size == 0
    random = random_stream(workload.seed, STREAM_LAYOUT)
    return Layout(random.permutation(workload.block_count).astype(np.int64), slot_size, block_size)
