"""`scripts/bench growth`: what a command costs with larger tiers, more namespaces and connections.

CPU time a command of 4 KiB reads and writes that the tier has, on targets that differ in one thing,
all of them in each round, as ratios to the smallest. The aim is 10 % more for each eightfold.

- tier: 256 MiB, 2 GiB and 8 GiB, one connection, 32 in flight. Reads touch, at random, three
  quarters of the tier, so all of them stay in it; writes touch three eighths, which is less than
  what begins write-back in this configuration: that costs the medium's time, and is not this
  question. The same on the bare server, in as much memory: what its distance alone makes of it.
- namespaces: 1, 8 and 64 that share 128 MiB, one connection, 32 in flight.
- connections: 1 to 256, 256 commands in flight on them together. The same on the bare server, which
  has more receives and sends to do as well: what the sockets alone make of it.

Every tier asks for huge pages. Printed is how much of each is in them: sizes compare only where
that is the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from bench_figures import Figure, Measure, measured, ratio, table
from bench_run import (
    FILL_LIMIT_S,
    Case,
    Options,
    Runs,
    Server,
    ask,
    fill,
    load,
    rounds_of,
    size_text,
)
from bench_targets import NO_WRITE_BACK, Bare, Pool, Setting, Side, pool

MIB = 1 << 20
OPERATIONS = ("read", "write")
AIM_EACH_EIGHTFOLD = 1.10
TIERS = (256 * MIB, 2048 * MIB, 8192 * MIB)
NAMESPACES = (1, 8, 64)
CONNECTIONS = (1, 4, 16, 64, 256)
IN_FLIGHT = 256
SHARED_BYTES = 128 * MIB
SPARE_BYTES = 3 << 30
"""Of this machine's memory, beside the tiers."""
HAVE_BARE = ("tier", "connections")
"""What the bare server has a share in."""
HIT_RATIO = 0.999
DEEP = "[limits]\nqueue_depth = 512\n"


@dataclasses.dataclass(frozen=True)
class Step:
    """One size of what grows: how it is called, its server, and the loads on it."""

    label: str
    size: int
    server: str
    setting: Setting
    depth: int
    connections: int = 1
    options: Options = dataclasses.field(default_factory=dict)
    read_bytes: int = SHARED_BYTES
    write_bytes: int = SHARED_BYTES

    def side(self, operation: str, *, on_bare: bool = False) -> Side:
        """The load of one operation."""
        span = self.read_bytes if operation == "read" else self.write_bytes
        case = Case(operation, 4096, self.depth, self.connections)
        return Side("bare" if on_bare else self.server, case, self.options, span)

    def warm_up(self, server: Server) -> None:
        """Bring into the tier what is read: a tier of its own by reads, for they leave it clean."""
        if self.read_bytes != self.write_bytes:
            once = {"sequential": 1, "commands": self.read_bytes // MIB}
            load(server, Case("read", MIB, 8), FILL_LIMIT_S, once, self.read_bytes)
        else:
            for nsid in range(1, int(str(self.options.get("namespaces", 1))) + 1):
                fill(server, self.read_bytes, {"nsid": nsid})


def ram(size_bytes: int, count: int = 1) -> str:
    """Namespaces in memory: what was never written of one takes none."""
    return f'[[subsystems.namespaces]]\nmedia = "ram"\nsize = {size_bytes}\n' * count


def steps() -> dict[str, list[Step]]:
    """All sizes of everything that grows."""
    return {
        "tier": [
            Step(
                label=size_text(size),
                size=size,
                server=f"tier {size_text(size)}",
                setting=Setting(ram(size), str(size), NO_WRITE_BACK, is_warm=False),
                depth=32,
                read_bytes=size // 4 * 3,
                write_bytes=size // 8 * 3,
            )
            for size in TIERS
        ],
        "namespaces": [
            Step(
                label=str(count),
                size=count,
                server=f"namespaces {count}",
                setting=Setting(
                    ram(SHARED_BYTES // count, count), more=NO_WRITE_BACK, is_warm=False
                ),
                depth=32,
                options={"namespaces": count},
                read_bytes=SHARED_BYTES // count,
                write_bytes=SHARED_BYTES // count,
            )
            for count in NAMESPACES
        ],
        "connections": [
            Step(
                label=str(count),
                size=count,
                server="connections",
                setting=Setting(ram(SHARED_BYTES), more=NO_WRITE_BACK + DEEP, is_warm=False),
                depth=IN_FLIGHT // count,
                connections=count,
            )
            for count in CONNECTIONS
        ],
    }


def available_bytes() -> int:
    """Return the memory that this machine has left."""
    lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith("MemAvailable:")]
    return int(line.split()[1]) << 10


def fitting(every: Sequence[Step]) -> list[Step]:
    """Return the steps whose tiers this machine has memory for together; says what is left out.

    The bare server has as much as the largest of them.
    """
    left = available_bytes() - SPARE_BYTES
    found: list[Step] = []
    for step in every:
        left -= 2 * step.read_bytes - (found[-1].read_bytes if found else 0)
        if left >= 0:
            found.append(step)
        else:
            print(f"growth: {step.server} is left out: this machine lacks {-left >> 20} MiB for it")
    return found


def huge_share(server: Server, of_bytes: int) -> float:
    """Return which share of so many bytes the process has in huge pages."""
    lines = Path(f"/proc/{server.pid}/smaps_rollup").read_text("utf-8").splitlines()
    kinds = ("AnonHugePages:", "Private_Hugetlb:")
    huge = sum(int(line.split()[1]) << 10 for line in lines if line.startswith(kinds))
    return huge / of_bytes


def start(every: Sequence[Step], servers: Pool) -> None:
    """Start the targets, warm them up, and see that they are warm."""
    for step in every:
        server = servers[step.server]
        step.warm_up(server)
        before = ask(server, "prestage_get_stats")["tier"]
        side = step.side("read")
        load(server, side.case, 0.2, side.options, side.span_bytes)
        after = ask(server, "prestage_get_stats")["tier"]
        hits, misses = (after[name] - before[name] for name in ("read_hits", "read_misses"))
        if hits < HIT_RATIO * (hits + misses):
            raise SystemExit(f"bench: {step.server}: {misses} of {hits + misses} reads missed")
        if step.read_bytes != step.write_bytes:
            share = huge_share(server, step.read_bytes)
            print(f"{step.server}: {min(share, 1):.0%} of what is read is in huge pages")


def aim(times: float) -> float:
    """Return what a command may cost, as a ratio, where something is so many times as large."""
    return float(AIM_EACH_EIGHTFOLD ** math.log(times, 8))


def figures_of(
    what: str, load_name: str, every: Sequence[Step], runs: Runs, *, has_aim: bool
) -> list[Figure]:
    """Return the ratio of each size to the smallest."""
    first, *others = every
    found = []
    for step in others:
        most = aim(step.size / first.size) if has_aim else None
        cost = ratio("cpu_us_per_command")
        measures = [Measure(f"CPU a command / {first.label}", cost, less_is_better=True, aim=most)]
        of = f"{what} {step.label}, {load_name}"
        found += measured(of, measures, runs[step.label], runs[first.label])
    return found


Results = dict[str, dict[str, Runs]]
"""By what grows and load, then by label."""


def grow(
    what: str, every: Sequence[Step], rounds: int, seconds: float
) -> tuple[dict[str, Runs], list[Figure]]:
    """Run everything of what grows; on the bare server too where that has a share in it."""
    memory_bytes = max(step.read_bytes for step in every) if what == "tier" else 0
    settings: dict[str, Setting | Bare] = {step.server: step.setting for step in every}
    settings["bare"] = Bare((f"memory={memory_bytes}",))
    results, figures = {}, []
    with pool(settings=settings) as servers:
        start(every, servers)
        for operation in OPERATIONS:
            for on_bare in (False, True) if what in HAVE_BARE else (False,):
                name = operation + (", bare" if on_bare else "")
                variants = {
                    step.label: partial(step.side(operation, on_bare=on_bare).run, servers, seconds)
                    for step in every
                }
                runs = rounds_of(variants, rounds, f"{what}, {name}")
                results[name] = runs
                figures += figures_of(what, name, every, runs, has_aim=not on_bare)
    return results, figures


def measure(
    growing: Mapping[str, Sequence[Step]], rounds: int, seconds: float
) -> tuple[Results, list[Figure]]:
    """Run and print; returns every run, and the figures."""
    results: Results = {}
    figures: list[Figure] = []
    for what, every in growing.items():
        fit = fitting(every) if what == "tier" else every
        results[what], more = grow(what, fit, rounds, seconds)
        figures += more
    print(table(figures))
    return results, figures
