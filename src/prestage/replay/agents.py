"""Coding-agent sessions as run-length coded JSON lines, placed on one time line by a seed.

The format of `agent_sessions.jsonl`, made from the public traces of callanjfox/kv-cache-tester. A
line with `session` opens a session (`block_size` in tokens, `tool_tokens`, `system_tokens`); a line
with `s` is a request of it: `t` (s from the session's start) and `runs` ([[first id, count], ...]
of block ids that mean something within the session only). Requests of sub-agents (`p`) are left
out: their prompts are not the ones whose length the session states.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from prestage.replay.trace_lines import Place, count_accesses, decode
from prestage.replay.workload import (
    STREAM_CHOICE,
    STREAM_TIMES,
    Requests,
    Workload,
    assemble,
    random_stream,
)
from prestage.target.errors import Invalid

BLOCK_TOKENS: Final = 512
MAX_CHAIN_IDS: Final = 1 << 20
"""Of one request, in ids of the trace."""

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Id = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_CHAIN_IDS)]


@dataclass(frozen=True, slots=True)
class Mix:
    """How sessions become one stream."""

    sessions: int = 240
    """As many are chosen by the seed; all, when there are fewer."""
    span_s: float = 7200.0
    """Sessions start uniformly within it, and what comes later is cut off."""
    jitter_s: float = 1.0
    """Up to so much is added to the time of each request."""
    most_blocks: int = 600
    """Sessions with a request of more blocks are left out."""


class Opening(msgspec.Struct, frozen=True):
    """A line that opens a session."""

    session: str
    block_size: Annotated[int, msgspec.Meta(ge=1, le=BLOCK_TOKENS)]
    tool_tokens: Tokens
    system_tokens: Tokens


class Line(msgspec.Struct, frozen=True):
    """A request of a session."""

    s: str
    t: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    runs: list[tuple[Id, Count]]
    p: str = ""
    """Which sub-agent asks; empty: the session itself."""


class Kind(msgspec.Struct, frozen=True):
    """What tells one line from another."""

    session: str | None = None
    s: str | None = None


@dataclass(slots=True)
class Session:
    """A session with its requests, whose blocks are numbered from 0 within it."""

    prompt: tuple[int, int]
    """Tool and system tokens: sessions of equal pairs share the blocks of these."""
    group: int
    """Ids of the trace in one block."""
    time_s: list[float] = field(default_factory=list)
    chains: list[NDArray[np.int64]] = field(default_factory=list)
    ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Of the last request."""
    prefixes: dict[tuple[int, ...], int] = field(default_factory=dict)
    """The block of each (block before it or -1, its ids)."""

    @property
    def shared(self) -> int:
        """How many leading blocks are shared with sessions of the same prompt."""
        return sum(self.prompt) // BLOCK_TOKENS

    @property
    def longest(self) -> int:
        """Blocks of its longest request."""
        return max(map(len, self.chains), default=0)

    def add(self, time_s: float, ids: NDArray[np.int64]) -> None:
        """Add a request: its ids in groups, each block being its whole prefix."""
        count = len(ids) // self.group
        ids = ids[: count * self.group]
        common = min(len(ids), len(self.ids))
        differs = np.flatnonzero(ids[:common] != self.ids[:common])
        known = (int(differs[0]) if len(differs) else common) // self.group
        chain = np.empty(count, np.int64)
        if self.chains:
            chain[:known] = self.chains[-1][:known]
        block = int(chain[known - 1]) if known else -1
        groups = ids.reshape(count, self.group)[known:].tolist()
        for place, group in enumerate(groups, known):
            block = self.prefixes.setdefault((block, *group), len(self.prefixes))
            chain[place] = block
        self.ids = ids
        self.time_s.append(time_s)
        self.chains.append(chain)


def read_sessions(lines: Iterable[tuple[Place, str]]) -> list[Session]:
    """Return all sessions in the order of the file; raises Invalid."""
    sessions: dict[str, Session] = {}
    total = 0
    for place, text in lines:
        kind = decode(text, Kind, place)
        if kind.session is not None:
            if kind.session in sessions:
                raise place.fault("was opened before", "session", "a new name")
            sessions[kind.session] = open_session(decode(text, Opening, place), place)
            continue
        line = decode(text, Line, place)
        if line.s not in sessions:
            raise place.fault("no line opened this session", "s", "the session of a line above")
        count = sum(count for _, count in line.runs)
        if count > MAX_CHAIN_IDS:
            raise place.fault(f"{count} ids", "runs", f"at most {MAX_CHAIN_IDS} in a request")
        total += count
        count_accesses(total, place)
        runs = [np.arange(first, first + count, dtype=np.int64) for first, count in line.runs]
        if not line.p:
            sessions[line.s].add(line.t, np.concatenate([*runs, np.empty(0, np.int64)]))
    return list(sessions.values())


def open_session(line: Opening, place: Place) -> Session:
    """Return a session without requests; raises Invalid unless its blocks divide ours."""
    if BLOCK_TOKENS % line.block_size:
        raise place.fault(f"{line.block_size}", "block_size", f"a divisor of {BLOCK_TOKENS}")
    return Session((line.tool_tokens, line.system_tokens), BLOCK_TOKENS // line.block_size)


def mix_sessions(
    sessions: Sequence[Session], mix: Mix, *, name: str, seed: int, where: str = ""
) -> Workload:
    """Choose sessions and their starts by the seed, and merge their requests.

    Raises Invalid, which names `where` they are from, when none is left.
    """
    fitting = [each for each in sessions if each.chains and each.longest <= mix.most_blocks]
    if not fitting:
        expected = f"one with requests of at most {mix.most_blocks} blocks"
        raise Invalid("no session can be used", where or name, expected)
    random = random_stream(seed, STREAM_CHOICE)
    chosen = random.permutation(len(fitting))[: mix.sessions]
    starts = random.uniform(0, mix.span_s, len(chosen))
    numbers = BlockNumbers()
    time_s: list[float] = []
    session: list[int] = []
    chains: list[NDArray[np.int64]] = []
    for index, (which, start) in enumerate(zip(chosen.tolist(), starts.tolist(), strict=True)):
        each = fitting[which]
        of_block = numbers.of_session(each)
        for since, chain in zip(each.time_s, each.chains, strict=True):
            if start + since < mix.span_s:
                time_s.append(start + since)
                session.append(index)
                chains.append(of_block[chain])
    jitter = random_stream(seed, STREAM_TIMES).uniform(0, mix.jitter_s, len(time_s))
    requests = Requests(np.array(time_s) + jitter, np.array(session, np.int32), chains)
    return assemble(requests, name=name, seed=seed)


class BlockNumbers:
    """Numbers for the blocks of all sessions, the shared ones alike."""

    def __init__(self) -> None:
        self.used = 0
        self.of_prompt: dict[tuple[int, int], int] = {}

    def take(self, count: int) -> int:
        """Return the first of `count` fresh numbers."""
        self.used += count
        return self.used - count

    def of_session(self, session: Session) -> NDArray[np.int64]:
        """Return the number of each block of a session."""
        first = self.take(len(session.prefixes))
        numbers = np.arange(first, first + len(session.prefixes), dtype=np.int64)
        if session.prompt not in self.of_prompt:
            self.of_prompt[session.prompt] = self.take(session.shared)
        shared = self.of_prompt[session.prompt]
        for chain in session.chains:
            head = chain[: session.shared]
            numbers[head] = np.arange(shared, shared + len(head))
        return numbers
