"""`scripts/bench sockets`: each case on the bare server and on the target, side by side.

Each round runs every case against the bare server (csrc/bench/bare.c: header and payload from one
warm buffer, or a sink) and against the target, one right after the other, so that a machine whose
speed drifts slows both. The figures are medians over the rounds; the ratios are medians of the
rounds' ratios, with the smallest and largest in brackets.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import bench_counts
from bench_figures import Figure, Measure, measured, ratio
from bench_run import Case, Run, Runs, lay_out, median_of, rounds_of, spread
from bench_targets import COLD_BYTES, DIGESTS, HINTS, Pool, Side

KIB, MIB = 1 << 10, 1 << 20
PAIRED = (
    Measure("CPU a command, ratio", ratio("cpu_us_per_command"), True),
    Measure("IOPS, ratio", ratio("iops"), False),
)
Results = dict[str, Runs]
"""By case, then by server."""


def own_sides() -> Iterator[Side]:
    """Every case, on our target."""
    for operation in ("read", "write"):
        yield Side("blocks of 512", Case(operation, 512, 32))
        for size, depths in ((4 * KIB, (1, 32, 128)), (128 * KIB, (1, 8, 32)), (MIB, (1, 8))):
            for depth in depths:
                yield Side("target", Case(operation, size, depth))
        yield Side("deep queues", Case(operation, 4 * KIB, 256))
    yield Side("target", Case("mixed", 4 * KIB, 32))
    yield Side("target", Case("mixed", 128 * KIB, 8))
    for connections, depth in ((4, 32), (64, 4), (256, 1)):
        yield Side("target", Case("read", 4 * KIB, depth, connections))
    for operation in ("read", "write"):
        for size, depth in ((4 * KIB, 32), (128 * KIB, 8)):
            yield Side("target", Case(operation, size, depth, more="digests"), DIGESTS)
    yield Side("anticipating", Case("read", 4 * KIB, 32, more="hints"), HINTS)
    for medium in ("cold model", "cold file"):
        for size, depth in ((4 * KIB, 32), (128 * KIB, 8)):
            case = Case("read", size, depth, more=medium)
            yield Side(medium, case, span_bytes=COLD_BYTES)


def on_each(side: Side, pools: Mapping[str, Pool]) -> dict[str, tuple[Side, Pool]]:
    """Return by name the loads of a case: the bare server's first."""
    bare = dataclasses.replace(side, server="bare")
    loads = {name: (side, servers) for name, servers in pools.items()}
    return {"bare": (bare, pools["target"]), **loads}


def measure(
    sides: Sequence[Side], pools: Mapping[str, Pool], rounds: int, seconds: float
) -> tuple[Results, list[Figure]]:
    """Run and print; returns every run, and the figures. The target is `pools["target"]`."""
    results: Results = {side.case.name: {} for side in sides}
    for number in range(rounds):
        for side in sides:
            variants = {
                name: partial(one.run, servers, seconds)
                for name, (one, servers) in on_each(side, pools).items()
            }
            once = rounds_of(variants, 1, f"{side.case.name}, {number + 1} of {rounds}", number)
            for name, runs in once.items():
                results[side.case.name].setdefault(name, []).extend(runs)
    calls = count_calls(sides, pools)
    others = ["bare", *(name for name in pools if name != "target")]
    print(table(results, calls, others))
    return results, figures_of(results, others)


def count_calls(sides: Sequence[Side], pools: Mapping[str, Pool]) -> dict[str, dict[str, float]]:
    """Return the system calls a command, by case and server; none where they cannot be counted."""
    if why := bench_counts.why_no_calls():
        print(why)
        return {}
    found: dict[str, dict[str, float]] = {side.case.name: {} for side in sides}
    for side in sides:
        for name, (one, servers) in on_each(side, pools).items():
            if servers[one.server].pid:
                try:
                    found[side.case.name][name] = bench_counts.calls_per_command(one, servers)
                except ValueError as error:
                    print(f"{side.case.name}, {name}: system calls are not counted: {error}")
    return found


def figures_of(results: Results, others: Sequence[str]) -> list[Figure]:
    """Return the ratios of the target to each of the others; CPU time where both have it."""
    found = []
    for case, runs in results.items():
        for other in others:
            has_cpu = all(run["cpu_s"] for run in (*runs["target"], *runs[other]))
            measures = PAIRED if has_cpu else PAIRED[1:]
            found += measured(f"{case} / {other}", measures, runs["target"], runs[other])
    return found


def table(results: Results, calls: Mapping[str, Mapping[str, float]], others: Sequence[str]) -> str:
    """What is printed: a line a case."""
    heads = ["case", "IOPS", "GB/s", "p50 us", "p99 us", "p99.9 us", "CPU us/cmd", "CPU ns/KiB"]
    heads += ["MiB", "calls/cmd", "bare's"]
    heads += [f"{what} / {other}" for other in others for what in ("CPU", "IOPS")]
    rows = [heads]
    for case, by_server in results.items():
        row = [case, *speeds(by_server["target"])]
        counts = calls.get(case, {})
        row += [f"{counts[name]:.3f}" if name in counts else "-" for name in ("target", "bare")]
        found = {figure.name: figure for figure in figures_of({case: by_server}, others)}
        for other in others:
            for each in PAIRED:
                figure = found.get(f"{case} / {other}: {each.what}")
                row.append(spread(figure.values) if figure else "-")
        rows.append(row)
    return lay_out(rows)


def speeds(runs: Sequence[Run]) -> list[str]:
    """Return the figures of the target alone: they hold for this machine, at that time."""
    row = [f"{median_of(runs, 'iops'):.0f}", f"{median_of(runs, 'bytes_per_s') / 1e9:.2f}"]
    row += [f"{median_of(runs, key):.1f}" for key in ("p50_us", "p99_us", "p999_us")]
    if "resident_bytes" not in runs[0]:
        return [*row, "-", "-", "-"]
    per_kib = [
        run["cpu_s"] * 1e9 * KIB / (run["bytes_per_s"] * run["seconds"])
        for run in runs
        if run["commands"]
    ]
    row.append(f"{median_of(runs, 'cpu_us_per_command'):.2f}")
    row.append(f"{statistics.median(per_kib):.0f}" if per_kib else "-")
    return [*row, f"{median_of(runs, 'resident_bytes') / MIB:.0f}"]
