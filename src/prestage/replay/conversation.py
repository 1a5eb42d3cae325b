"""Chat requests as JSON lines: `timestamp` (ms, on a grid of 3 s) and `hash_ids` (blocks).

The format of the public conversation trace of kvcache-ai/Mooncake (FAST25-release/traces). Equal
ids mean equal prefixes, so ids are global and name blocks as they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from prestage.replay.trace_lines import Place, count_accesses, decode
from prestage.replay.workload import (
    STREAM_TIMES,
    Requests,
    Workload,
    assemble,
    random_stream,
)

GRID_S: Final = 3.0
"""Times of the trace are rounded down to this; a seed spreads them again."""
CONTINUED: Final = 0.85
"""A request that begins with this share of a session's last chain continues the session."""

BlockId = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Line(msgspec.Struct, frozen=True):
    """A request."""

    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e13)]
    hash_ids: list[BlockId]


def read_conversation(lines: Iterable[tuple[Place, str]], *, name: str, seed: int) -> Workload:
    """Return the requests, each at a random time within its GRID_S; raises Invalid."""
    grid_s: list[float] = []
    chains: list[NDArray[np.int64]] = []
    total = 0
    for place, text in lines:
        line = decode(text, Line, place)
        total += len(line.hash_ids)
        count_accesses(total, place)
        grid_s.append(line.timestamp / 1000)
        chains.append(np.array(line.hash_ids, np.int64))
    times = np.array(grid_s, np.float64)
    times += random_stream(seed, STREAM_TIMES).uniform(0, GRID_S, len(times))
    requests = Requests(times, sessions_of(chains, np.argsort(times, kind="stable")), chains)
    return assemble(requests, name=name, seed=seed)


def sessions_of(chains: Sequence[NDArray[np.int64]], order: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return which session each request is of, for the trace does not say it.

    A session is the one that last used the deepest known block of the request's chain, if at least
    CONTINUED of that session's last chain is there; its last block does not count, for it was not
    full. Else a new session begins.
    """
    session = np.empty(len(chains), np.int32)
    last_user: dict[int, int] = {}
    last_length: list[int] = []
    for request in order.tolist():
        chain = chains[request].tolist()
        depth = next((i for i, block in enumerate(chain) if block not in last_user), len(chain))
        found = last_user[chain[depth - 1]] if depth else -1
        if found < 0 or depth < CONTINUED * max(1, last_length[found] - 1):
            found = len(last_length)
            last_length.append(0)
        last_length[found] = len(chain)
        last_user.update(dict.fromkeys(chain, found))
        session[request] = found
    return session
