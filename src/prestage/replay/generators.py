"""Workloads that are made up, each by a seed and a few stated parameters.

Times are in seconds. Where blocks are said to be there before, the workload reads them without
having written them; elsewhere the first access of a block is the write that made it, as in traces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.replay.workload import (
    STREAM_CHOICE,
    STREAM_TIMES,
    Requests,
    Workload,
    assemble,
    random_stream,
)
from prestage.target.errors import InvalidFlag
from prestage.target.sizes import plain_number, quote


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions that arrive by a Poisson process and come back for the same chain."""

    requests: int = 4000
    """The first so many, in order of time."""
    sessions_per_s: float = 1.5
    turns: float = 3.0
    """Requests of a session, in the mean; geometric, so that nobody knows which is the last."""
    chain: int = 30
    """Blocks of a session, all of them in each of its requests."""
    gap_s: float = 100.0
    """Between requests of a session, in the mean."""
    gap_sigma: float | None = None
    """None: gaps are exponential, so that the time since the last request tells nothing. Else they
    are log-normal with `gap_s` as their median."""


def sessions(seed: int, shape: Sessions | None = None) -> Workload:
    """Poisson traffic, unless the shape says otherwise: nothing predicts when a session returns."""
    shape = shape or Sessions()
    parts = _session_requests(seed, shape)
    return assemble(parts, name="poisson" if shape.gap_sigma is None else "sessions", seed=seed)


def _session_requests(seed: int, shape: Sessions) -> Requests:
    random = random_stream(seed, STREAM_TIMES)
    # As many sessions as there are requests are more than enough: each has one at least.
    starts = np.cumsum(random.exponential(1 / shape.sessions_per_s, shape.requests))
    turns = random.geometric(1 / shape.turns, shape.requests)
    session = np.repeat(np.arange(shape.requests, dtype=np.int32), turns)
    if shape.gap_sigma is None:
        gaps = random.exponential(shape.gap_s, len(session))
    else:
        gaps = random.lognormal(np.log(shape.gap_s), shape.gap_sigma, len(session))
    first = np.cumsum(turns) - turns
    since = np.cumsum(gaps)
    times = starts[session] + since - since[first][session]
    kept = np.argsort(times, kind="stable")[: shape.requests]
    blocks = np.arange(shape.chain, dtype=np.int64)
    chains = [blocks + int(each) * shape.chain for each in session[kept]]
    return Requests(times[kept], session[kept], chains)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Requests by a Poisson process, for blocks of which none is like another."""

    requests: int = 20_000
    requests_per_s: float = 10.0
    chain: int = 8
    """Blocks of a request."""
    blocks: int = 20_000


def random_reads(seed: int, shape: Uniform | None = None) -> Workload:
    """Reads of uniformly random blocks that were there before."""
    shape = shape or Uniform()
    chosen = random_stream(seed, STREAM_CHOICE).integers(
        0, shape.blocks, (shape.requests, shape.chain)
    )
    return _independent(seed, shape, chosen, "random", is_write=False)


def scan(seed: int, shape: Uniform | None = None) -> Workload:
    """Reads of all blocks in their order, again and again; they were there before."""
    shape = shape or Uniform()
    count = shape.requests * shape.chain
    chosen = (np.arange(count) % shape.blocks).reshape(shape.requests, shape.chain)
    return _independent(seed, shape, chosen, "scan", is_write=False)


def write_only(seed: int, shape: Uniform | None = None) -> Workload:
    """Writes of uniformly random blocks, and nothing else."""
    shape = shape or Uniform()
    chosen = random_stream(seed, STREAM_CHOICE).integers(
        0, shape.blocks, (shape.requests, shape.chain)
    )
    return _independent(seed, shape, chosen, "writes", is_write=True)


def _independent(
    seed: int, shape: Uniform, chosen: NDArray[np.int64], name: str, *, is_write: bool
) -> Workload:
    """Return requests of sessions of their own, for `chosen` [requests, chain] blocks."""
    gaps = random_stream(seed, STREAM_TIMES).exponential(1 / shape.requests_per_s, shape.requests)
    flags = np.full(shape.chain, is_write)
    requests = Requests(
        np.cumsum(gaps),
        np.arange(shape.requests, dtype=np.int32),
        list(chosen.astype(np.int64)),
        is_write=[flags] * shape.requests,
    )
    return assemble(requests, name=name, seed=seed)


@dataclass(frozen=True, slots=True)
class Affinity:
    """Documents that sessions share: a session has a topic and asks several times.

    Each request reads `picks` documents: with probability `affinity` one of the session's topic,
    else any. All blocks of a document carry one 64-bit signature: its topic's, with each of
    `noise_bits` places (drawn anew for each document) turned over.
    """

    affinity: float = 0.5
    noise_bits: int = 6
    topics: int = 125
    documents: int = 16
    """Of a topic."""
    blocks: int = 8
    """Of a document."""
    picks: int = 3
    requests: int = 6000
    sessions_per_s: float = 0.02
    turns: float = 10.0
    gap_s: float = 20.0
    """As of Sessions, exponential."""


def affinity(seed: int, shape: Affinity | None = None) -> Workload:
    """Requests for documents whose signatures tell which are read together, as far as they are."""
    shape = shape or Affinity()
    timing = _session_requests(
        seed,
        Sessions(shape.requests, shape.sessions_per_s, shape.turns, chain=1, gap_s=shape.gap_s),
    )
    random = random_stream(seed, STREAM_CHOICE)
    every = shape.topics * shape.documents
    topic = random.integers(0, shape.topics, shape.requests)[timing.session]
    near = topic[:, None] * shape.documents + random.integers(
        0, shape.documents, (shape.requests, shape.picks)
    )
    far = random.integers(0, every, near.shape)
    document = np.where(random.random(near.shape) < shape.affinity, near, far)
    blocks = np.arange(shape.blocks, dtype=np.int64)
    chains = [(each[:, None] * shape.blocks + blocks).ravel() for each in document]
    requests = Requests(timing.time_s, timing.session, chains)
    vectors = np.repeat(_signatures(random, shape), shape.blocks)
    return assemble(requests, name="affinity", seed=seed, signature=vectors)


def _signatures(random: np.random.Generator, shape: Affinity) -> NDArray[np.uint64]:
    """Return the signature of each document."""
    of_topic = random.integers(0, 2**64, shape.topics, np.uint64)
    every = shape.topics * shape.documents
    places = random.permuted(np.tile(np.arange(64), (every, 1)), axis=1)[:, : shape.noise_bits]
    noise = np.bitwise_or.reduce(np.uint64(1) << places.astype(np.uint64), axis=1)
    vectors: NDArray[np.uint64] = np.repeat(of_topic, shape.documents) ^ noise
    return vectors


def phase_change(seed: int, shape: Sessions | None = None) -> Workload:
    """Sessions that come back soon and regularly; then others, ten times later.

    `shape` is the first phase, with gaps of a median of 20 s and a sigma of .3 unless it says
    otherwise; the second has as many requests, of sessions of its own.
    """
    first = shape or Sessions(gap_s=20.0, gap_sigma=0.3)
    second = Sessions(
        first.requests,
        first.sessions_per_s,
        first.turns,
        first.chain,
        first.gap_s * 10,
        first.gap_sigma,
    )
    before = _session_requests(seed, first)
    after = _session_requests(seed + 1, second)
    ids = (int(before.session.max()) + 1) * first.chain
    requests = Requests(
        np.concatenate([before.time_s, after.time_s + before.time_s.max()]),
        np.concatenate([before.session, after.session + before.session.max() + 1]),
        [*before.chains, *(chain + ids for chain in after.chains)],
    )
    return assemble(requests, name="phases", seed=seed)


GENERATORS: Final[dict[str, Callable[[int], Workload]]] = {
    "poisson": sessions,
    "random": random_reads,
    "scan": scan,
    "writes": write_only,
    "affinity": affinity,
    "phases": phase_change,
}
"""By name, with their own parameters."""
READING: Final = tuple(name for name in GENERATORS if name != "writes")
"""Those with a read demand, without which there is nothing to say of a tier."""


def is_generator(name: str) -> bool:
    """Tell whether a name, with what stands behind a colon, is a generator's."""
    return name.partition(":")[0] in GENERATORS


def generate(name: str, *, seed: int) -> Workload:
    """Return the workload of a generator's name, or of `affinity:SHARE`; raises InvalidFlag."""
    kind, colon, text = name.partition(":")
    if kind not in GENERATORS:
        raise InvalidFlag(f"there is no generator {quote(name)}", "TRACE", ", ".join(GENERATORS))
    if not colon:
        return GENERATORS[kind](seed)
    share = plain_number(text)
    if kind != "affinity" or not 0 <= share <= 1:
        expected = (
            "affinity:SHARE, 0 to 1" if kind == "affinity" else f"{kind}, which takes nothing"
        )
        raise InvalidFlag(f"found {quote(name)}", "TRACE", expected)
    return affinity(seed, Affinity(affinity=share))
