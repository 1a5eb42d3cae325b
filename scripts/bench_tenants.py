"""`scripts/bench tenants`: what one host's flood of hints does to the reads of another.

One reactor, one tier of 256 MiB, two subsystems on a medium that is modelled (`media = "model"`).
Host B reads 4 KiB at random times, RATE a second: from a working set of 64 MiB, which is within its
share, and, in the second case, COLD_PERCENT of them from elsewhere, so that the 99th percentile is
that of a read of the medium. Host A reads nothing. In two runs of three it floods the target: a
third each of intents for a piece of its namespace or 256 MiB of it, urgent and due at once; of
retains of the same, for good; and of sets; as many a second as its budget takes, or twice as many.
Compared are hit rate and percentiles of B, run by run: with those of no flood, and with those of
the same batches as plain writes of A, for the generator and the sockets have work with either.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench_run import (
    NQN,
    Case,
    Options,
    Run,
    Server,
    ask,
    fill,
    lay_out,
    load,
    median_of,
    own_target,
    ratios,
    rounds_of,
    with_interval,
)

RATE = 20_000
COLD_PERCENT = 2
CASES = {f"{RATE}/s, {cold_percent} % cold": cold_percent for cold_percent in (0, COLD_PERCENT)}
"""How many of B's reads go elsewhere."""
WORKING_SET_BYTES = 64 << 20
HOSTILE_NQN = "nqn.2026-11.io.prestage:hostile"
BUDGET_PER_S = 200_000
SPENDING_S = 1.2
"""A flood of this length spends what its host's budget has saved, which is one second's."""
BATCHES = Case("none", 4096, 1)
READS = Case("read", 4096, 128)
FLOOD: Options = {
    "flood": "hostile",
    "flood_nqn": HOSTILE_NQN,
    "flood_host": "nqn.2026-11.io.prestage:hostile-host",
    "flood_span": 4 << 30,
}
AS_WRITES = ", as plain writes"
RATES = {"at its budget": BUDGET_PER_S, "at twice that": 2 * BUDGET_PER_S}
FLOODS: dict[str, Options] = {"none": {}}
for name, rate in RATES.items():
    FLOODS[name] = {**FLOOD, "flood_rate": rate}
    # A's own namespace stands where its extension namespace might.
    FLOODS[name + AS_WRITES] = {**FLOODS[name], "extension": 1}
MODEL = (
    'media = "model"\nmedia_options = {seed = 1, read_us = 80, read_p99_us = 200, write_us = 20,'
    ' bandwidth = "2G", channels = 16}'
)


def config(folder: Path, *, tier: str = "256M", size: str = "8G", more: str = "") -> str:
    """B's subsystem and A's, each with a namespace on a medium of its own; `more` of the target."""
    return f"""[[listeners]]
address = "127.0.0.1"
port = 0
[tier]
size = "{tier}"
{more}
[[subsystems]]
nqn = "{NQN}"
[[subsystems.namespaces]]
path = "{folder}/quiet"
size = "{size}"
{MODEL}
[[subsystems]]
nqn = "{HOSTILE_NQN}"
[[subsystems.namespaces]]
path = "{folder}/hostile"
size = "4G"
{MODEL}
"""


def spend(server: Server, flood: Options) -> None:
    """Flood for as long as the host's budget has saved: from then on it has what it may."""
    load(server, BATCHES, SPENDING_S, flood)


def with_hits(
    server: Server, case: Case, seconds: float, options: Options, span: int
) -> tuple[Run, float]:
    """Run a load; return it, and which share of the extents it read the tier had."""
    before = ask(server, "prestage_get_stats")["tier"]
    run = load(server, case, seconds, options, span)
    after = ask(server, "prestage_get_stats")["tier"]
    hits, misses = (after[name] - before[name] for name in ("read_hits", "read_misses"))
    return run, hits / (hits + misses) if hits + misses else 0.0


def reads(server: Server, seconds: float, cold_percent: int, flood: Options) -> Run:
    """B's reads, and how many of their extents the tier had."""
    if flood:
        spend(server, flood)
    options = {"rate": RATE, "cold_percent": cold_percent, "seed": time.monotonic_ns(), **flood}
    options["stamped"] = 1
    run, hit_rate = with_hits(server, READS, seconds, options, WORKING_SET_BYTES)
    return run | {"hit_rate": hit_rate}


def measure(cases: Mapping[str, int], rounds: int, seconds: float) -> dict[str, object]:
    """Run and print; returns every run."""
    results: dict[str, object] = {}
    heads = ["B reads", "A's flood", "records/s", "hit rate", "p50 us", "p99 us"]
    rows = [[*heads, "hit rate ratio", "p50 ratio", "p99 ratio", "p99, of writes'"]]
    with tempfile.TemporaryDirectory(prefix="prestage-bench-") as name:
        folder = Path(name)
        with own_target(folder, config=config(folder)) as server:
            for what, cold_percent in cases.items():
                fill(server, WORKING_SET_BYTES)
                variants = {
                    name: partial(reads, server, seconds, cold_percent, flood)
                    for name, flood in FLOODS.items()
                }
                runs = rounds_of(variants, rounds, what)
                results[what] = runs
                rows += [row(what, name, runs) for name in runs]
    print(lay_out(rows))
    return results


def row(what: str, name: str, every: dict[str, list[Run]]) -> list[str]:
    """A line of the table: the runs with a flood, compared with others of the same rounds."""
    runs = every[name]
    cells = [what, name, "" if name == "none" else f"{median_of(runs, 'records_per_s'):.0f}"]
    cells.append(f"{median_of(runs, 'hit_rate'):.4f}")
    cells += [f"{median_of(runs, key):.1f}" for key in ("p50_us", "p99_us")]
    if name == "none":
        return [*cells, "", "", "", ""]
    keys = ("hit_rate", "p50_us", "p99_us")
    cells += [
        with_interval(ratios(runs, every["none"], key), 4 if key == "hit_rate" else 3)
        for key in keys
    ]
    writes = every.get(name + AS_WRITES)
    return [*cells, with_interval(ratios(runs, writes, "p99_us")) if writes else ""]
