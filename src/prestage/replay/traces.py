"""Trace files: which format one has is found by its content (docs/replay-formats.md)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec

from prestage.replay.agents import Mix, mix_sessions, read_sessions
from prestage.replay.conversation import read_conversation
from prestage.replay.csv_trace import REQUIRED, read_csv
from prestage.replay.trace_lines import Place, decode, read_lines
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid


class FirstLine(msgspec.Struct, frozen=True):
    """What tells the JSON formats apart."""

    hash_ids: Any = None
    session: Any = None


def load_trace(path: Path, *, seed: int, mix: Mix | None = None) -> Workload:
    """Read a trace of any of the formats; its workload is named for the file.

    Raises Invalid: the file cannot be read, or something in it is not as its format says.
    """
    name = path.name.partition(".")[0] or path.name
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise Invalid("it is empty", str(path), "a trace")
    everything = itertools.chain([first], lines)
    place, text = first
    if not text.lstrip().startswith("{"):
        _check_csv(text, place)
        workload = read_csv(everything, name=name, seed=seed)
    else:
        line = decode(text, FirstLine, place)
        if line.hash_ids is not None:
            workload = read_conversation(everything, name=name, seed=seed)
        elif line.session is not None:
            sessions = read_sessions(everything)
            workload = mix_sessions(sessions, mix or Mix(), name=name, seed=seed, where=str(path))
        else:
            raise place.fault("unknown format", "", "the member hash_ids or session")
    if len(workload) == 0:
        raise Invalid("it has no accesses", str(path), "at least one block in a request")
    return workload


def _check_csv(text: str, place: Place) -> None:
    """Raise Invalid when a first line is none of a CSV trace, nor meant to be."""
    if not any(name in text for name in REQUIRED):
        expected = f"a JSON object, or the header {','.join(REQUIRED)}"
        raise place.fault("neither JSON lines nor CSV", "", expected)
