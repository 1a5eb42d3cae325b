"""Any trace as comma-separated values (docs/replay-formats.md): one access a line."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from prestage.replay.trace_lines import Place, count_accesses
from prestage.replay.workload import Requests, Workload, assemble
from prestage.target.sizes import quote

REQUIRED: Final = ("time_s", "request", "block", "op")
OPTIONAL: Final = ("tenant", "queue", "session")
OPS: Final = {"read": False, "write": True}
MAX_TIME_S: Final = 1e9
MAX_LABEL: Final = 128
"""Characters of a name."""
MAX_TENANTS: Final = 1024


@dataclass(slots=True)
class Request:
    """A request as its lines say it; they agree in all but block and op."""

    time_s: float
    same: tuple[str, ...]
    """What stands under OPTIONAL, "" where the file has no such column."""
    blocks: list[int] = field(default_factory=list)
    is_write: list[bool] = field(default_factory=list)


class Labels(dict[str, int]):
    """Numbers for names, in the order of their first use."""

    def number(self, name: str) -> int:
        """Return the number of a name."""
        return self.setdefault(name, len(self))


def read_csv(lines: Iterable[tuple[Place, str]], *, name: str, seed: int) -> Workload:
    """Return the accesses; raises Invalid.

    Without a column `queue` requests are spread over connections by the seed; without `session`
    each request is of its own.
    """
    requests: dict[str, Request] = {}
    blocks = Labels()
    tenants = Labels()
    rows = _rows(lines)
    _, header = next(rows)
    for total, (place, row) in enumerate(rows, 1):
        count_accesses(total, place)
        _add(requests, blocks, row, place)
        if len(tenants) <= tenants.number(row.get("tenant", "")) >= MAX_TENANTS:
            raise place.fault(f"{len(tenants)} of them", "tenant", f"at most {MAX_TENANTS}")
    everything = list(requests.values())
    queues = Labels()
    sessions = Labels()
    has_session = "session" in header
    queue = [queues.number(each.same[1]) for each in everything]
    session = [
        sessions.number(each.same[2]) if has_session else index
        for index, each in enumerate(everything)
    ]
    return assemble(
        Requests(
            time_s=np.array([each.time_s for each in everything], np.float64),
            session=np.array(session, np.int32),
            chains=[np.array(each.blocks, np.int64) for each in everything],
            is_write=[np.array(each.is_write, np.bool_) for each in everything],
            tenant=np.array([tenants.number(each.same[0]) for each in everything], np.uint16),
            queue=np.array(queue, np.int32) if "queue" in header else None,
        ),
        name=name,
        seed=seed,
    )


def _rows(lines: Iterable[tuple[Place, str]]) -> Iterator[tuple[Place, dict[str, str]]]:
    """Yield the header (each name under itself), then each line by the header's names."""
    header: list[str] = []
    for place, text in lines:
        try:
            cells = [cell.strip() for cell in next(csv.reader([text], strict=True))]
        except csv.Error as fault:
            raise place.fault(str(fault), "", "values with commas between them") from fault
        if not header:
            header = cells
            _check_header(header, place)
        elif len(cells) != len(header):
            raise place.fault(f"{len(cells)} values", "", f"{len(header)}: {', '.join(header)}")
        yield place, dict(zip(header, cells, strict=True))


def _check_header(header: list[str], place: Place) -> None:
    """Raise Invalid unless a header has all that is required, and nothing unknown or twice."""
    expected = f"{', '.join(REQUIRED)}, and perhaps {', '.join(OPTIONAL)}, each once"
    for name in REQUIRED:
        if name not in header:
            raise place.fault(f"no column {name}", "", expected)
    for name in header:
        if name not in (*REQUIRED, *OPTIONAL) or header.count(name) > 1:
            raise place.fault(f"column {quote(name)}", "", expected)


def _add(requests: dict[str, Request], blocks: Labels, row: dict[str, str], place: Place) -> None:
    """Add a line to its request."""
    time_s = _time(row["time_s"], place)
    for name, text in row.items():
        if name not in ("time_s", "op") and not 0 < len(text) <= MAX_LABEL:
            raise place.fault(quote(text), name, f"a name of 1 to {MAX_LABEL} characters")
    if (is_write := OPS.get(row["op"])) is None:
        raise place.fault(quote(row["op"]), "op", " or ".join(OPS))
    same = tuple(row.get(name, "") for name in OPTIONAL)
    request = requests.setdefault(row["request"], Request(time_s, same))
    if request.time_s != time_s:
        raise place.fault(quote(row["time_s"]), "time_s", f"{request.time_s!r}, as of its request")
    for name, mine, others in zip(OPTIONAL, same, request.same, strict=True):
        if mine != others:
            raise place.fault(quote(mine), name, f"{quote(others)}, as of its request")
    request.blocks.append(blocks.number(row["block"]))
    request.is_write.append(is_write)


def _time(text: str, place: Place) -> float:
    """Return a time in seconds; raises Invalid."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_TIME_S:
        raise place.fault(quote(text), "time_s", f"seconds from 0 to {MAX_TIME_S:g}")
    return value
