"""`scripts/bench hints`: what hints cost the reactor, and the reads beside them.

One reactor on one core, the generator on another, as everywhere. Warm reads of 4 KiB, 32 in flight
and then paced at half of the rate that this reached, without and with a flood of RECORDS_PER_S
records, a third each of SETs of four ranges, SIGNATUREs of 128 bits and INTENTs of what is warm,
in full batches, by the submit opcode and by pages of the extension namespace. Sets and signatures
speak of a second namespace of 64 GiB. Then each kind of record alone, as fast as it is taken; and
a million sets, and a million signatures, and what memory they took.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from bench_run import (
    PLAIN_CONFIG,
    Case,
    Run,
    Server,
    fill,
    lay_out,
    load,
    median_of,
    own_target,
    ratios,
    rounds_of,
    with_interval,
)

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
LOST_OFFSET = 64
"""Of `head` and `lost` in the header of the ring of facts (csrc/ring.h); `tail` is 64 bytes on."""
CARRIERS: dict[str, dict[str, object]] = {
    "by opcode": {},
    "by pages": {"extension": EXTENSION_NSID},
}
SPEAKING_OF = {"flood_nsid": 2, "flood_span": PLACES_BYTES}


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


def beside(
    server: Server, case: Case, rounds: int, seconds: int, rate: int
) -> dict[str, list[Run]]:
    """Reads without hints, and with, by each carrier."""
    paced = {"rate": rate} if rate else {}
    flood = {"flood": "mix", "flood_rate": RECORDS_PER_S, **SPEAKING_OF}

    def run(options: dict[str, object]) -> Run:
        return load(server, case, seconds, **paced, **options)

    variants = {"no hints": lambda: run({})} | {
        name: lambda carrier=carrier: run({**flood, **carrier})  # type: ignore[misc]
        for name, carrier in CARRIERS.items()
    }
    return rounds_of(variants, rounds, case.name + (" paced" if rate else ""))


def cpu_us_per_record(runs: list[Run], base: list[Run]) -> list[float]:
    """CPU time with the flood minus without, for as many reads, a record; round by round."""
    return [
        (mine["cpu_s"] - other["cpu_s"] * mine["commands"] / other["commands"])
        / mine["records"]
        * 1e6
        for mine, other in zip(runs, base, strict=True)
    ]


def beside_rows(what: str, results: dict[str, list[Run]]) -> list[list[str]]:
    """A line without hints, and one for each carrier."""
    base = results["no hints"]
    rows = []
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


def alone(server: Server, ring: Ring, rounds: int, seconds: int) -> list[list[str]]:
    """Every kind of record as fast as it is taken: CPU time a record, with its commands."""
    rows = []
    for mix in ("sets", "signatures", "intents", "mix"):

        def run(options: dict[str, object], mix: str = mix) -> Run:
            return load(server, BATCHES, seconds, flood=mix, **SPEAKING_OF, **options)

        def run_full(mix: str = mix) -> Run:
            return run({}, mix)

        variants = {
            name: lambda carrier=carrier: run(carrier)  # type: ignore[misc]
            for name, carrier in CARRIERS.items()
        }
        with ring.drained():
            results = rounds_of(variants, rounds, mix)
        results |= rounds_of({"by opcode, ring full": run_full}, rounds, mix)
        for name, runs in results.items():
            each = [run["cpu_s"] / run["records"] * 1e6 for run in runs]
            row = [mix, name, f"{median_of(runs, 'records_per_s'):.0f}"]
            rows.append(
                [*row, with_interval(each, 2), f"{sum(r['records_dropped'] for r in runs):.0f}"]
            )
    return rows


# ---- memory ----


def resident_bytes(server: Server) -> int:
    """Of the target, without its tier, which is taken when it starts."""
    text = Path(f"/proc/{server.pid}/status").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) << 10


def remember(folder: Path, mix: str) -> tuple[list[str], Run]:
    """A million of them, sent to a target of its own."""
    with own_target(folder / mix, config=config(folder / mix)) as server:
        load(server, BATCHES, 60, flood=mix, flood_records=1000, flood_ids=1000, **SPEAKING_OF)
        before = resident_bytes(server)
        run = load(
            server, BATCHES, 600, flood=mix, flood_records=MANY, flood_ids=MANY, **SPEAKING_OF
        )
        grown = resident_bytes(server) - before
    verdict = "within" if grown <= MANY_BYTES else "MORE THAN"
    row = [mix, f"{run['records_accepted']:.0f}", f"{run['records_dropped']:.0f}"]
    return [*row, f"{grown / 2**20:.1f} ({verdict} {MANY_BYTES >> 20})"], run | {
        "grown_bytes": grown
    }


# ---- all of it ----


def measure(rounds: int, seconds: int) -> dict[str, object]:
    """Run and print; returns every run."""
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="prestage-bench-") as name:
        folder = Path(name)
        (folder / "target").mkdir()
        with own_target(folder / "target", config=config(folder / "target")) as server:
            fill(server)
            ring = Ring(server.pid)
            with ring.drained():
                closed = beside(server, READS, rounds, seconds, 0)
                rate = int(statistics.median(run["iops"] for run in closed["no hints"]) / 2)
                paced = beside(server, PACED, rounds, seconds, rate)
            heads = ["reads", "hints", "IOPS", "p50 us", "p99 us", "p50 ratio", "p99 ratio"]
            heads += ["IOPS ratio", "CPU us/record", "records/s"]
            rows = beside_rows(READS.name, closed)
            print(lay_out([heads, *rows, *beside_rows(f"paced, {rate}/s", paced)]))
            print(f"\nring of facts: {ring.counts()[0]} put in, {ring.counts()[1]} lost\n")
            rows = alone(server, ring, rounds, seconds)
            heads = ["hints alone", "carrier", "records/s", "CPU us/record", "dropped"]
            print(lay_out([heads, *rows]))
            print(f"\nring of facts: {ring.counts()[0]} put in, {ring.counts()[1]} lost\n")
        rows = [["a million", "taken", "dropped", "MiB more resident"]]
        for mix in ("sets", "signatures"):
            row, results[mix] = remember(folder, mix)
            rows.append(row)
        print(lay_out(rows))
    return results | {"closed": closed, "paced": paced}
