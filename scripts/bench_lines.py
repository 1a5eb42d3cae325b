"""`scripts/bench lines`: what the target should reach, and what it does.

A line compares two loads, run one right after the other in each round: our target's with the same
on a bare server (csrc/bench/bare.c), or two of our target's. Said are the median over the rounds
and the smallest and largest of them, beside the aim where there is one. "Bytes a CPU second" are
those that a second of the server's CPU time, user and kernel, was enough for.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from functools import partial

from bench_figures import (
    GROSS,
    Figure,
    Measure,
    inverse,
    measured,
    ratio,
    table,
)
from bench_run import SPAN_BYTES, Case, Run, Runs, Server, rounds_of
from bench_targets import COLD_BYTES, DIGESTS, HINTS, POLLED, SPARE_CORE, Pool, Side, pool

KIB, MIB = 1 << 10, 1 << 20
HOT_BYTES = 256 * KIB
"""Read and written where our target is held against a bare server: a processor's cache has it, as
it has the one buffer of that. Where more is, the bare server has as much."""
REST_S = 2.0
"""After a start, before what a target does when nothing is asked of it is measured."""


@dataclasses.dataclass(frozen=True)
class Line:
    """Two loads, and what is made of them."""

    name: str
    mine: Side
    base: Side
    measures: tuple[Measure, ...]
    is_fresh: bool = False
    """On a target of its own in each round, `base` first: memory may stay with a target."""

    @property
    def is_of_floor(self) -> bool:
        """Whether our target is compared with a bare server."""
        return self.base.server.startswith("bare") and not self.mine.server.startswith("bare")


def cpu(aim: float | None = None) -> Measure:
    """CPU time of the server a command."""
    return Measure("CPU a command, ratio", ratio("cpu_us_per_command"), True, aim)


def cpu_bytes(aim: float | None = None) -> Measure:
    """Bytes a second of CPU time; both loads have commands of one size."""
    return Measure("bytes a CPU second, ratio", inverse(ratio("cpu_us_per_command")), False, aim)


def rate(aim: float | None = None) -> Measure:
    """IOPS."""
    return Measure("IOPS, ratio", ratio("iops"), False, aim)


def round_trip(aim: float | None = None) -> Measure:
    """The median time of a command."""
    return Measure("p50, ratio", ratio("p50_us"), True, aim)


def more_mib(mine: Run, base: Run) -> float:
    """Resident memory of the server beyond that of the other run."""
    return (mine["resident_bytes"] - base["resident_bytes"]) / MIB


def cpu_percent(mine: Run, base: Run) -> float:
    """The server's CPU time while nothing is asked of it, % of a core."""
    return 100 * mine["cpu_s"] / mine["seconds"]


def against_floor(
    case: Case, measure: Measure, *, is_polling: bool = False, is_wide: bool = False
) -> Line:
    """Our target's load beside the same on a bare server; where wide, both in SPAN_BYTES."""
    name, servers = case.name, ("target", "bare")
    if is_polling:
        name, servers = f"{name} polling", ("polling", "bare, polling")
    elif is_wide:
        name, servers = f"{name} of {SPAN_BYTES // MIB}M", ("target", "bare, wide")
    options = POLLED if is_polling else {}
    span = SPAN_BYTES if is_wide else max(HOT_BYTES, case.size_bytes)
    mine, base = (Side(server, case, options, span) for server in servers)
    return Line(f"{name} / bare", mine, base, (measure,))


def floor_lines() -> Iterator[Line]:
    """The lines against the bare server."""
    plain: list[tuple[Case, Measure]] = [
        *((Case("read", 4 * KIB, depth), cpu(1.20)) for depth in (32, 128)),
        *((Case("write", 4 * KIB, depth), cpu(1.5)) for depth in (32, 128)),
        *((Case("read", size, 8), cpu_bytes(0.93)) for size in (128 * KIB, MIB)),
        (Case("write", MIB, 8), cpu_bytes(0.80)),
        (Case("read", 4 * KIB, 1), round_trip(1.15)),
    ]
    for case, measure in plain:
        yield against_floor(case, measure)
    yield against_floor(Case("read", 4 * KIB, 1), round_trip(1.15), is_polling=True)
    for case, measure in plain:
        yield against_floor(case, dataclasses.replace(measure, aim=None), is_wide=True)


def own_lines() -> Iterator[Line]:
    """The lines of our target against itself; the bare one's too, for sockets have a share."""
    large, large_on = Case("read", 128 * KIB, 8), Case("read", 128 * KIB, 8, more="digests")
    for server, aim in (("target", 0.80), ("bare", None)):
        sides = (Side(server, large_on, DIGESTS), Side(server, large))
        # IOPS have no aim: a generator that checks digests as well may be what limits them.
        measures = (cpu_bytes(aim), rate())
        yield Line(f"{large_on.name} / off, {server}", *sides, measures)
    one, many = Case("read", 4 * KIB, 256), Case("read", 4 * KIB, 4, 64)
    for server, aim in (("deep queues", 0.85), ("bare", None)):
        sides = (Side(server, many), Side(server, one))
        name = "target" if aim else server
        yield Line(f"{many.name} / {one.name}, {name}", *sides, (rate(aim), cpu()))
    nothing, server = Case("none", 4 * KIB, 1), "many connections"
    idle = (
        Measure("MiB more resident", more_mib, True, 64),
        Measure("CPU, % of a core", cpu_percent, True, 1),
    )
    yield Line(
        "1000 idle connections",
        Side(server, nothing, {"idle": 1000}),
        Side(server, nothing, {"idle": 1}),
        idle,
        is_fresh=True,
    )
    reads = Case("read", 4 * KIB, 32)
    hinted = Side("anticipating", Case("read", 4 * KIB, 32, more="hints"), HINTS)
    yield Line(
        "prestager and 100,000 hints/s / both off", hinted, Side("plain", reads), (rate(0.97),)
    )
    spread_out = Case("read", 4 * KIB, 16, 8)
    for name, servers, aim in (
        ("two reactors / one", ("two reactors", "one reactor"), 1.11),
        ("two threads / one, bare", ("bare, two threads", "bare"), None),
    ):
        two, single = (Side(server, spread_out, core=SPARE_CORE) for server in servers)
        yield Line(name, two, single, (cpu(aim), rate()))


def lines_beside() -> Iterator[Line]:
    """The lines against another target: by what gets done, for one that polls saves no CPU time."""
    plain = [
        (Case("read", 4 * KIB, 1), 1.0),
        *((Case("read", 4 * KIB, depth), 1.25) for depth in (32, 128)),
        *((Case("read", size, 8), 1.2) for size in (128 * KIB, MIB)),
    ]
    for case, aim in plain:
        yield beside(case, aim, HOT_BYTES)
    for case, _ in plain:
        yield beside(case, None, SPAN_BYTES)


def beside(case: Case, aim: float | None, span_bytes: int) -> Line:
    """One of them: all three poll."""
    name = case.name + (f" of {span_bytes // MIB}M" if span_bytes != HOT_BYTES else "")
    span = max(span_bytes, 2 * case.size_bytes)
    mine, other = (Side(server, case, POLLED, span) for server in ("polling", "other"))
    return Line(f"{name} / other", mine, other, (rate(aim), round_trip()))


def cold_lines() -> Iterator[Line]:
    """Misses beside hits: no aim, for the medium has its share."""
    for server in ("cold model", "cold file"):
        for case in (Case("read", 4 * KIB, 32), Case("read", 128 * KIB, 8)):
            cold = Side(server, case, span_bytes=COLD_BYTES)
            yield Line(f"{case.name} {server} / warm", cold, Side("target", case), (cpu(), rate()))


LINES = (*floor_lines(), *own_lines(), *cold_lines())


def lines_of(*, only_floor: bool = False, has_other: bool = False) -> list[Line]:
    """Return the lines; `has_other`: those against that alone."""
    if has_other:
        return list(lines_beside())
    return [line for line in LINES if line.is_of_floor or not only_floor]


def run_lines(lines: Sequence[Line], servers: Pool, rounds: int, seconds: float) -> dict[str, Runs]:
    """Run every line in each round; which side comes first goes round."""
    results: dict[str, Runs] = {line.name: {"mine": [], "base": []} for line in lines}
    for number in range(rounds):
        for line in lines:
            what = f"{line.name}, {number + 1} of {rounds}"
            if line.is_fresh:
                with pool() as fresh:
                    start_at_rest(line, fresh)
                    once = run_line(line, fresh, seconds, what, 0)
            else:
                once = run_line(line, servers, seconds, what, number)
            for name, runs in once.items():
                results[line.name][name] += runs
    return results


def start_at_rest(line: Line, servers: Pool) -> None:
    """Start the target of a line, and wait until it has nothing left to do of that."""
    assert line.mine.server == line.base.server, line.name
    servers.start(line.base.server)
    time.sleep(REST_S)


def run_line(line: Line, servers: Pool, seconds: float, what: str, turn: int) -> Runs:
    """Run both sides once."""
    sides = {"base": line.base, "mine": line.mine}
    variants = {name: partial(side.run, servers, seconds) for name, side in sides.items()}
    return rounds_of(variants, 1, what, turn)


def measure(
    lines: Sequence[Line], rounds: int, seconds: float, other: Server | None = None
) -> tuple[dict[str, Runs], list[Figure]]:
    """Run and print; returns every run, and the figures. `other` is another target."""
    with pool(given={"other": other} if other else None) as servers:
        results = run_lines(lines, servers, rounds, seconds)
    figures = [
        figure
        for line in lines
        for figure in measured(line.name, line.measures, *results[line.name].values())
    ]
    print(table(figures))
    return results, figures


def grossly_off(figures: Sequence[Figure]) -> list[str]:
    """Return what to say of figures that are GROSS times as bad as their aim in every round.

    One round is enough to show what the target can do; what others do on the machine makes rounds
    worse, seldom better. A figure without a round says nothing good.
    """
    return [
        f"{figure.name}: in no round less than {GROSS:.0f} times as bad as the aim"
        for figure in figures
        if figure.aim is not None and all(off > GROSS for off in figure.times_off())
    ]
