"""Any trace as comma-separated values (docs/replay-formats.md): one access a line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import numpy as np

from prestage.replay.trace_lines import Place, count_accesses
from prestage.replay.workload import Requests, Workload, assemble
from prestage.target.sizes import plain_number, quote

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

    time_text: str
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
    rows = iter(lines)
    place, text = next(rows)
    header = _cells(text, place)
    _check_header(header, place)
    requests: dict[str, Request] = {}
    blocks = Labels()
    take = _columns(header)
    for total, (place, text) in enumerate(rows, 1):
        count_accesses(total, place)
        cells = _cells(text, place)
        if len(cells) != len(header):
            raise place.fault(f"{len(cells)} values", "", f"{len(header)}: {', '.join(header)}")
        _check_names(header, cells, place)
        _add(requests, blocks, take([*cells, ""]), place)
    tenants = len({each.same[0] for each in requests.values()})
    if tenants > MAX_TENANTS:
        raise Place(place.path).fault(f"{tenants} of them", "tenant", f"at most {MAX_TENANTS}")
    return _assemble(list(requests.values()), header, name=name, seed=seed)


def _assemble(requests: list[Request], header: list[str], *, name: str, seed: int) -> Workload:
    tenants, queues, sessions = Labels(), Labels(), Labels()
    if "session" in header:
        session = [sessions.number(each.same[2]) for each in requests]
    else:
        session = list(range(len(requests)))
    queue = np.array([queues.number(each.same[1]) for each in requests], np.int32)
    tenant = [tenants.number(each.same[0]) for each in requests]
    return assemble(
        Requests(
            time_s=np.array([each.time_s for each in requests], np.float64),
            session=np.array(session, np.int32),
            chains=[np.array(each.blocks, np.int64) for each in requests],
            is_write=[np.array(each.is_write, np.bool_) for each in requests],
            tenant=np.array(tenant, np.uint16),
            queue=queue if "queue" in header else None,
        ),
        name=name,
        seed=seed,
    )


def _cells(text: str, place: Place) -> list[str]:
    """Return the values of a line; raises Invalid."""
    if '"' not in text:
        return [cell.strip() for cell in text.split(",")]
    try:
        return [cell.strip() for cell in next(csv.reader([text], strict=True))]
    except csv.Error as fault:
        raise place.fault(str(fault), "", "values with commas between them") from fault


def _columns(header: list[str]) -> Callable[[list[str]], tuple[str, ...]]:
    """Return what takes REQUIRED and OPTIONAL out of a line's values with an empty one after them.

    The empty one is what a column that is not there has.
    """
    places = {name: place for place, name in enumerate(header)}
    return itemgetter(*(places.get(name, -1) for name in (*REQUIRED, *OPTIONAL)))


def _check_header(header: list[str], place: Place) -> None:
    """Raise Invalid unless a header has all that is required, and nothing unknown or twice."""
    expected = f"{', '.join(REQUIRED)}, and perhaps {', '.join(OPTIONAL)}, each once"
    for name in REQUIRED:
        if name not in header:
            raise place.fault(f"no column {name}", "", expected)
    for name in header:
        if name not in (*REQUIRED, *OPTIONAL) or header.count(name) > 1:
            raise place.fault(f"column {quote(name)}", "", expected)


def _check_names(header: list[str], cells: list[str], place: Place) -> None:
    """Raise Invalid when a value is empty, or longer than anything that is allowed."""
    if min(map(len, cells)) > 0 and max(map(len, cells)) <= MAX_LABEL:
        return
    name, text = next(
        each for each in zip(header, cells, strict=True) if not 0 < len(each[1]) <= MAX_LABEL
    )
    raise place.fault(quote(text), name, f"1 to {MAX_LABEL} characters")


def _add(requests: dict[str, Request], blocks: Labels, row: tuple[str, ...], place: Place) -> None:
    """Add an access, of which `row` has REQUIRED and OPTIONAL, to its request; raises Invalid."""
    time_text, name, block, op, *rest = row
    same = tuple(rest)
    if (is_write := OPS.get(op)) is None:
        raise place.fault(quote(op), "op", " or ".join(OPS))
    request = requests.get(name)
    if request is None:
        request = requests[name] = Request(time_text, _time(time_text, place), same)
    if request.time_text != time_text and request.time_s != _time(time_text, place):
        raise place.fault(quote(time_text), "time_s", f"{request.time_s!r}, as of its request")
    if request.same != same:
        _refuse_others(request.same, same, place)
    request.blocks.append(blocks.number(block))
    request.is_write.append(is_write)


def _refuse_others(expected: tuple[str, ...], found: tuple[str, ...], place: Place) -> None:
    """Raise Invalid for the first of OPTIONAL in which a line differs from its request."""
    for name, theirs, mine in zip(OPTIONAL, expected, found, strict=True):
        if mine != theirs:
            raise place.fault(quote(mine), name, f"{quote(theirs)}, as of its request")


def _time(text: str, place: Place) -> float:
    """Return a time in seconds; raises Invalid."""
    value = plain_number(text)
    if not 0 <= value <= MAX_TIME_S:
        raise place.fault(quote(text), "time_s", f"seconds from 0 to {MAX_TIME_S:g}")
    return value
