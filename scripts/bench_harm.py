"""`scripts/bench harm`: what the prestager costs loads that nobody can foresee.

Two targets alike but for the prestager, each with its prestager on one core, a tier of 64 MiB and
two subsystems on a medium that is modelled (`media = "model"`). One host reads or writes 64 KiB at
random times, of SPAN_BYTES, four times what the tier holds: at random places; one
after the other, again and again; and at random while another host floods the target with hostile
hints at its budget, as in `scripts/bench tenants`. Each round has a load on either target, one
right after the other. Compared are hit ratio, in points, and percentiles of one round; of writes
there is no hit ratio, and the percentiles are theirs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path

from bench_run import (
    Case,
    Options,
    Run,
    Runs,
    Server,
    done_pairs,
    lay_out,
    median_of,
    own_target,
    ratios,
    rounds_of,
    with_interval,
)
from bench_tenants import FLOODS, config, spend, with_hits

READ_RATE, WRITE_RATE = 2000, 500
SPAN_BYTES = 256 << 20
READS = Case("read", 64 << 10, 128)
WRITES = Case("write", 64 << 10, 128)
WARM_UP_S = 3.0
"""Of each load before the first round: the tier is full then, and the prestager has seen it."""


@dataclasses.dataclass(frozen=True)
class Load:
    """What is done to both targets."""

    case: Case
    rate: int
    options: Options = dataclasses.field(default_factory=dict)
    flood: Options = dataclasses.field(default_factory=dict)


LOADS = {
    "random reads": Load(READS, READ_RATE),
    "sequential scan": Load(READS, READ_RATE, {"sequential": 1}),
    "writes only": Load(WRITES, WRITE_RATE),
    "random reads, hostile hints": Load(READS, READ_RATE, flood=FLOODS["at its budget"]),
}


def run(server: Server, seeds: Iterator[int], what: Load, seconds: float) -> Run:
    """One run of a load, and which share of its reads the tier had.

    Both targets get the same seeds in the same order, so the same places and times.
    """
    if what.flood:
        spend(server, what.flood)
    options = {"rate": what.rate, "seed": next(seeds), "stamped": 1, **what.options, **what.flood}
    found, hit_ratio = with_hits(server, what.case, seconds, options, SPAN_BYTES)
    return found | {"hit_ratio": hit_ratio}


def measure(loads: Mapping[str, Load], rounds: int, seconds: float) -> dict[str, Runs]:
    """Run and print; returns every run."""
    results: dict[str, Runs] = {}
    heads = ["load", "hit ratio", "p50 us", "p99 us"]
    rows = [[*heads, "hit ratio, points", "p50, ratio", "p99, ratio"]]
    with tempfile.TemporaryDirectory(prefix="prestage-bench-") as name, contextlib.ExitStack() as s:
        sides = {}
        for variant in ("off", "on"):
            folder = Path(name) / variant
            more = f"[prestager]\nenabled = {str(variant == 'on').lower()}"
            text = config(folder, tier="64M", size="1G", more=more)
            sides[variant] = s.enter_context(own_target(folder, config=text)), count(1)
        for what, each in loads.items():
            for side in sides.values():
                run(*side, each, WARM_UP_S)
            variants = {
                variant: partial(run, *side, each, seconds) for variant, side in sides.items()
            }
            results[what] = rounds_of(variants, rounds, what)
            rows.append(row(what, results[what]))
    print(lay_out(rows))
    return results


def row(name: str, runs: Runs) -> list[str]:
    """A line of the table: as it is without the prestager, and what it changes."""
    on, off = runs["on"], runs["off"]
    cells = [name, f"{median_of(off, 'hit_ratio'):.4f}"]
    cells += [f"{median_of(off, key):.1f}" for key in ("p50_us", "p99_us")]
    points = [100 * (mine["hit_ratio"] - base["hit_ratio"]) for mine, base in done_pairs(on, off)]
    cells.append(with_interval(points, 2))
    return cells + [with_interval(ratios(on, off, key)) for key in ("p50_us", "p99_us")]
