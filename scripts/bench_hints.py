"""`scripts/bench hints`: what hints cost the reactor, and the reads beside them.

One reactor on one core, the generator on another, as everywhere. Warm reads of 4 KiB, 32 in flight
and then paced at half of the rate that this reached, without and with a flood of RECORDS_PER_S
records, a third each of SETs of four ranges, SIGNATUREs of 128 bits and INTENTs of what is warm,
in full batches, by the submit opcode and by pages of the extension namespace. Sets and signatures
speak of a second namespace of 64 GiB. Then each kind of record alone, as fast as it is taken; and
a million sets, and a million signatures, and what memory they took. And how long after its arrival
a hinted set is being read (bench_decision.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import struct
import subprocess
import tempfile
import threading
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from bench_processes import ROOT, child, pinned, run
from bench_run import (
    GENERATOR_CORE,
    NO_OPTIONS,
    PLAIN_CONFIG,
    SPAN_BYTES,
    Case,
    Options,
    Run,
    Runs,
    Server,
    done_pairs,
    fill,
    lay_out,
    load,
    load_command,
    median_of,
    own_target,
    ratios,
    rounds_of,
    with_interval,
)

PARTS = ("reads", "records", "memory", "decision")
RECORDS_PER_S = 100_000
MANY = 1_000_000
MANY_BYTES = 256 << 20
"""What a million sets, or signatures, may take."""
PLACES_BYTES = 64 << 30
EXTENSION_NSID = 1024
READS = Case("read", 4096, 32)
PACED = Case("read", 4096, 128)
BATCHES = Case("none", 4096, 1)
DRAIN_S = 0.02
AIM_US = 1000
BESIDE_S = 20.0
"""Longer than the hinted sets beside the reads take."""
LOST_OFFSET = 64
"""Of `head` and `lost` in the header of the ring of facts (csrc/ring.h); `tail` is 64 bytes on."""
CARRIERS: dict[str, Options] = {
    "by opcode": {},
    "by pages": {"extension": EXTENSION_NSID},
}
SPEAKING_OF: Options = {"flood_nsid": 2, "flood_span": PLACES_BYTES}

Rows = list[list[str]]


def config(folder: Path) -> str:
    """A target with budgets that do not bind, and a second namespace that nobody reads."""
    return f"""{PLAIN_CONFIG}[[subsystems.namespaces]]
path = "{folder}/places"
size = {PLACES_BYTES}
[hints]
records_per_s = 100000000
sets = {MANY}
set_ranges = {4 * MANY}
signatures = {MANY}
total_sets = {MANY}
total_set_ranges = {4 * MANY}
total_signatures = {MANY}
intents = 8192
""".replace("[[subsystems.namespaces]]", "extension = true\n[[subsystems.namespaces]]", 1)


# ---- the ring of facts ----


class Ring:
    """The target's ring of facts, read as fast as it is written while `drained`."""

    def __init__(self, pid: int) -> None:
        """Find it among the open files of the target."""
        for link in Path(f"/proc/{pid}/fd").iterdir():
            if "prestage-facts" in str(link.readlink()):
                self._file = os.open(link, os.O_RDWR)
                return
        raise SystemExit("bench: the target has no ring of facts")

    def counts(self) -> tuple[int, int]:
        """Facts put in, and facts that found it full."""
        head, lost = struct.unpack("<QQ", os.pread(self._file, 16, LOST_OFFSET))
        return head, lost

    @contextlib.contextmanager
    def drained(self) -> Iterator[None]:
        """Take everything out, over and over."""
        is_over = threading.Event()

        def drain() -> None:
            while not is_over.wait(DRAIN_S):
                os.pwrite(self._file, struct.pack("<Q", self.counts()[0]), LOST_OFFSET + 64)

        thread = threading.Thread(target=drain)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()


# ---- reads beside a flood ----


def beside(server: Server, case: Case, rounds: int, seconds: float, rate: int) -> Runs:
    """Reads without hints, and with, by each carrier."""
    paced: Options = {"rate": rate, "stamped": 1} if rate else NO_OPTIONS
    flood = {"flood": "mix", "flood_rate": RECORDS_PER_S, **SPEAKING_OF, **paced}
    each = {"no hints": paced} | {name: {**flood, **one} for name, one in CARRIERS.items()}
    variants = {name: partial(load, server, case, seconds, one) for name, one in each.items()}
    return rounds_of(variants, rounds, case.name + (" paced" if rate else ""))


def cpu_us_per_record(runs: list[Run], base: list[Run]) -> list[float]:
    """CPU time with the flood minus without, for as many reads, a record; round by round."""
    return [
        (mine["cpu_s"] - other["cpu_s"] * mine["commands"] / other["commands"])
        / mine["records"]
        * 1e6
        for mine, other in done_pairs(runs, base)
        if mine["records"]
    ]


def beside_rows(what: str, results: Runs) -> Rows:
    """A line without hints, and one for each carrier."""
    base = results["no hints"]
    rows: Rows = []
    for name, runs in results.items():
        row = [what, name, f"{median_of(runs, 'iops'):.0f}"]
        row += [f"{median_of(runs, key):.1f}" for key in ("p50_us", "p99_us")]
        if name == "no hints":
            row += ["", "", "", "", ""]
        else:
            row += [with_interval(ratios(runs, base, key)) for key in ("p50_us", "p99_us", "iops")]
            row.append(with_interval(cpu_us_per_record(runs, base), 2))
            row.append(f"{median_of(runs, 'records_per_s'):.0f}")
        rows.append(row)
    return rows


# ---- hints alone ----


def alone(server: Server, ring: Ring, rounds: int, seconds: float) -> tuple[Rows, dict[str, Runs]]:
    """Every kind of record as fast as it is taken: CPU time a record, with its commands."""
    rows: Rows = []
    results = {}
    for mix in ("sets", "signatures", "intents", "mix"):
        flood = {"flood": mix, **SPEAKING_OF}
        with ring.drained():
            variants = {
                name: partial(load, server, BATCHES, seconds, {**flood, **one})
                for name, one in CARRIERS.items()
            }
            results[mix] = rounds_of(variants, rounds, mix)
        full = {"by opcode, ring full": partial(load, server, BATCHES, seconds, flood)}
        results[mix] |= rounds_of(full, rounds, mix)
        for name, runs in results[mix].items():
            each = [run["cpu_s"] / run["records"] * 1e6 for run in runs if run["records"]]
            dropped = sum(run["records_dropped"] for run in runs)
            row = [mix, name, f"{median_of(runs, 'records_per_s'):.0f}"]
            rows.append([*row, with_interval(each, 2), f"{dropped:.0f}"])
    return rows, results


# ---- memory ----


def resident_bytes(server: Server) -> int:
    """Of the target, without its tier, which is taken when it starts."""
    text = Path(f"/proc/{server.pid}/status").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) << 10


def remember(folder: Path, mix: str) -> tuple[list[str], Run]:
    """A million of them, sent to a target of its own."""
    with own_target(folder / mix, config=config(folder / mix)) as server:
        flood = {"flood": mix, **SPEAKING_OF}
        load(server, BATCHES, 60, {**flood, "flood_records": 1000, "flood_ids": 1000})
        before = resident_bytes(server)
        result = load(server, BATCHES, 600, {**flood, "flood_records": MANY, "flood_ids": MANY})
        grown = resident_bytes(server) - before
    verdict = "within" if grown <= MANY_BYTES else "MORE THAN"
    row = [mix, f"{result['records_accepted']:.0f}", f"{result['records_dropped']:.0f}"]
    row.append(f"{grown / 2**20:.1f} ({verdict} {MANY_BYTES >> 20})")
    return row, result | {"grown_bytes": grown}


# ---- decisions ----


def decide(server: Server, first: int) -> list[int]:
    """Microseconds from the arrival of hints until what they name was in the tier."""
    url = f"nvme+tcp://{server.address}:{server.port}/{server.nqn}"
    python, script = ROOT / ".venv/bin/python", ROOT / "scripts/bench_decision.py"
    words = [str(python), str(script), url, str(first)]
    found: list[int] = json.loads(run(words, "decision")[0])
    return found


def measure_decision(server: Server) -> dict[str, list[int]]:
    """One hinted set after the other, alone and beside warm reads."""
    first = 1 + (SPAN_BYTES >> 16)
    results = {"alone": decide(server, first)}
    reading = pinned(GENERATOR_CORE, load_command(server, READS, BESIDE_S, NO_OPTIONS))
    with child(reading, stdout=subprocess.DEVNULL) as reads:
        results["beside reads"] = decide(server, first + len(results["alone"]))
        if reads.poll() is not None:
            raise SystemExit("bench: the reads ended before the hints")
    rows = [["hinted sets", "", "p50 us", "p99 us", "longest", f"over {AIM_US} us"]]
    for name, found in results.items():
        points = statistics.quantiles(found, n=100)
        late = sum(each > AIM_US for each in found)
        row = [f"{len(found)}", name, f"{points[49]:.0f}", f"{points[98]:.0f}"]
        rows.append([*row, f"{max(found)}", f"{late}"])
    print(lay_out(rows))
    return results


# ---- all of it ----


def measure_reads(server: Server, rounds: int, seconds: float) -> dict[str, Runs]:
    """Reads beside a flood: closed loop, then paced at half of what that reached."""
    closed = beside(server, READS, rounds, seconds, 0)
    rate = max(int(median_of(closed["no hints"], "iops") / 2), 1)
    paced = beside(server, PACED, rounds, seconds, rate)
    heads = ["reads", "hints", "IOPS", "p50 us", "p99 us", "p50 ratio", "p99 ratio"]
    heads += ["IOPS ratio", "CPU us/record", "records/s"]
    rows = beside_rows(READS.name, closed) + beside_rows(f"paced, {rate}/s", paced)
    print(lay_out([heads, *rows]))
    return {"closed": closed, "paced": paced}


def measure_records(server: Server, ring: Ring, rounds: int, seconds: float) -> dict[str, Runs]:
    """Hints alone."""
    rows, results = alone(server, ring, rounds, seconds)
    print(lay_out([["hints alone", "carrier", "records/s", "CPU us/record", "dropped"], *rows]))
    return results


def measure_memory(folder: Path) -> dict[str, Run]:
    """A million sets, a million signatures."""
    rows = [["a million", "taken", "dropped", "MiB more resident"]]
    results = {}
    for mix in ("sets", "signatures"):
        row, results[mix] = remember(folder, mix)
        rows.append(row)
    print(lay_out(rows))
    return results


def measure(parts: Collection[str], rounds: int, seconds: float) -> dict[str, object]:
    """Run the parts and print; returns every run."""
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="prestage-bench-") as name:
        folder = Path(name)
        with own_target(folder, config=config(folder)) as server:
            fill(server)
            ring = Ring(server.pid)
            if "reads" in parts:
                with ring.drained():
                    results["reads"] = measure_reads(server, rounds, seconds)
            if "records" in parts:
                results["records"] = measure_records(server, ring, rounds, seconds)
            if "decision" in parts:
                with ring.drained():
                    results["decision"] = measure_decision(server)
            head, lost = ring.counts()
            print(f"ring of facts: {head} put in, {lost} found it full")
        if "memory" in parts:
            results["memory"] = measure_memory(folder)
    return results
