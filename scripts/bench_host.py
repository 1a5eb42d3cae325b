"""`scripts/bench host`: what a host in Python gets out of a target, beside one in C.

Each round reads from the same running target by the generator (csrc/bench/load.c), which throws
away what it gets; by `host_client` in batches (`read_many`, two at a time); and by `host_client`
with a task for each command in flight (`read`). All are one process on the generator's core and
touch the same blocks; those in Python keep what they read, in memory of each command's own. The
ratios are to the generator of the same round, medians with the smallest and largest in brackets.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench_processes import ROOT, pinned, run
from bench_run import (
    GENERATOR_CORE,
    SPAN_BYTES,
    Case,
    Run,
    Runs,
    Server,
    fill,
    lay_out,
    load,
    median_of,
    own_target,
    ratios,
    rounds_of,
    spread,
)

CASES = {case.name: case for case in (Case("read", 1 << 20, 8), Case("read", 4096, 128))}
TIMEOUT_S = 60.0
READERS = ("batches", "tasks")


def run_client(server: Server, case: Case, seconds: float, how: str) -> Run:
    """Run the host in Python once, in a process of its own on the generator's core."""
    python, script = ROOT / ".venv/bin/python", ROOT / "scripts/bench_host_client.py"
    url = f"nvme+tcp://{server.address}:{server.port}/{server.nqn}"
    load_of = (url, case.size_bytes, case.depth, seconds, SPAN_BYTES, how)
    words = [str(word) for word in (python, script, *load_of)]
    what = f"host, {case.name}, {how}"
    output, _ = run(pinned(GENERATOR_CORE, words), what, TIMEOUT_S + seconds)
    result: Run = json.loads(output)
    return result


def measure(cases: Mapping[str, Case], rounds: int, seconds: float) -> dict[str, Runs]:
    """Run and print; returns every run."""
    results: dict[str, Runs] = {}
    heads = ["case", "host", "IOPS", "GB/s", "CPU us/cmd", "IOPS / C", "CPU / C"]
    rows = [heads]
    with (
        tempfile.TemporaryDirectory(prefix="prestage-bench-") as folder,
        own_target(Path(folder) / "target") as server,
    ):
        fill(server)
        for name, case in cases.items():
            variants = {"C": partial(load, server, case, seconds)}
            for how in READERS:
                variants[how] = partial(run_client, server, case, seconds, how)
            results[name] = rounds_of(variants, rounds, name)
            rows += [row(name, how, results[name]) for how in variants]
    print(lay_out(rows))
    return results


def row(case: str, how: str, by_host: Runs) -> list[str]:
    """A line of the table."""
    runs, base = by_host[how], by_host["C"]
    cells = [case, how, f"{median_of(runs, 'iops'):.0f}"]
    cells.append(f"{median_of(runs, 'bytes_per_s') / 1e9:.2f}")
    cells.append(f"{median_of(runs, 'generator_cpu_us_per_command'):.2f}")
    if how == "C":
        return [*cells, "", ""]
    cells.append(spread(ratios(runs, base, "iops")))
    cells.append(spread(ratios(runs, base, "generator_cpu_us_per_command")))
    return cells
