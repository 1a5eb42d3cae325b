"""What the modes of `scripts/bench` share: servers, the load generator, medians and intervals."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_processes import PROGRAMS, READY_S, ROOT, child, pinned, run

NQN = "nqn.2026-11.io.prestage:bench"
SPAN_BYTES = 64 << 20
"""What reads touch, written once so that they are tier hits."""
FILL_LIMIT_S = 120.0
RESAMPLES = 2000
SERVER_CORE, GENERATOR_CORE = 0, 1
PLAIN_CONFIG = f"""[[listeners]]
address = "127.0.0.1"
port = 0
[tier]
size = "512M"
[[subsystems]]
nqn = "{NQN}"
[[subsystems.namespaces]]
media = "ram"
size = "256M"
"""

Run = dict[str, float]
"""What the generator says of one run, and what was measured beside it."""
Runs = dict[str, list[Run]]
"""Round by round, by variant."""
Options = Mapping[str, object]
"""KEY=VALUE of the generator."""
NO_OPTIONS: Options = {}


@dataclasses.dataclass(frozen=True)
class Case:
    """One load: operation, size of an I/O, commands in flight, connections; `more` in its name."""

    operation: str
    size_bytes: int
    depth: int
    connections: int = 1
    more: str = ""

    @property
    def name(self) -> str:
        """As it is printed."""
        many = f" x{self.connections}" if self.connections > 1 else ""
        more = f" {self.more}" if self.more else ""
        return f"{self.operation} {size_text(self.size_bytes)} QD{self.depth}{many}{more}"


@dataclasses.dataclass(frozen=True)
class Server:
    """Where a server listens, and whose CPU time counts (0: unknown)."""

    address: str
    port: int
    nqn: str
    pid: int = 0
    control_socket: str = ""
    is_paused: bool = False
    """It never sleeps: it runs only while it is measured, so that others have its core."""

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Let it run, if it is paused."""
        if not self.is_paused:
            yield
            return
        os.kill(self.pid, signal.SIGCONT)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGSTOP)


def size_text(size_bytes: int) -> str:
    """Return a size as it is printed."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size_bytes >= unit:
            return f"{size_bytes // unit}{letter}"
    return str(size_bytes)


# ---- servers, and the generator ----


@contextlib.contextmanager
def bare_server(
    port_file: Path, options: Sequence[str] = (), cores: int | str = SERVER_CORE
) -> Iterator[Server]:
    """Run the floor, which ends when its standard input does: with the block."""
    command = [str(PROGRAMS / "bare"), str(port_file), *options]
    with child(pinned(cores, command), stdin=subprocess.PIPE) as process:
        port = int(wait_for(port_file, process))
        yield Server("127.0.0.1", port, "bare", process.pid)


@contextlib.contextmanager
def own_target(
    folder: Path,
    extra: Sequence[str] = (),
    *,
    config: str = PLAIN_CONFIG,
    checkout: Path = ROOT,
    cores: int | str = SERVER_CORE,
    library: Path | None = None,
) -> Iterator[Server]:
    """Run the target of a checkout, with its files in `folder`, which is made.

    With `library` it is that of the package in this folder. What it holds is thrown away, so it is
    not left time to flush.
    """
    environment = os.environ | ({"PYTHONPATH": str(library)} if library else {})
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    (folder / "bench.toml").write_text(config, "utf-8")
    command = [
        *(str(checkout / ".venv/bin/prestage"), "serve", "--config", str(folder / "bench.toml")),
        *("--state-directory", str(folder / "state"), "--ready-file", str(ready), *extra),
    ]
    with (
        (folder / "target.log").open("wb") as log,
        child(pinned(cores, command), stdout=log, stderr=log, env=environment) as process,
    ):
        said = json.loads(wait_for(ready, process))
        listener = said["listeners"][0]
        server = Server(
            listener["address"], listener["port"], NQN, process.pid, said["control_socket"]
        )
        wait_for_prestager(server)
        yield server


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the text of a file that a starting process writes."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and (text := path.read_text("utf-8")).endswith("\n"):
            return text
        time.sleep(0.01)
    how = "was not ready" if process.returncode is None else f"ended ({process.returncode})"
    log = path.parent / "target.log"
    said = log.read_text("utf-8") if log.exists() else ""
    raise SystemExit(f"bench: {path.parent.name}: the server {how} within {READY_S:.0f} s\n{said}")


def wait_for_prestager(server: Server) -> None:
    """Return when a target has started its prestager, or has none: that takes it its core."""
    end = time.monotonic() + READY_S
    while ask(server, "prestage_get_stats")["prestager"]["state"] == "starting":
        if time.monotonic() > end:
            raise SystemExit(f"bench: the prestager was not ready within {READY_S:.0f} s")
        time.sleep(0.05)


def load_command(
    server: Server, case: Case, seconds: float, options: Options, span: int = SPAN_BYTES
) -> list[str]:
    """Return the command line of the generator (csrc/bench/load.c)."""
    load_of = (case.operation, case.size_bytes, case.depth, case.connections)
    words = [PROGRAMS / "load", server.address, server.port, server.nqn, *load_of, seconds, span]
    words += [f"{key}={value}" for key, value in options.items()]
    if server.pid:
        words.append(f"pid={server.pid}")
    return [str(word) for word in words]


def load(
    server: Server,
    case: Case,
    seconds: float,
    options: Options = NO_OPTIONS,
    span: int = SPAN_BYTES,
    core: int = GENERATOR_CORE,
    what: str = "",
) -> Run:
    """Run the generator once; `what` it is for, where that is not the case."""
    command = pinned(core, load_command(server, case, seconds, options, span))
    with server.awake():
        output, _ = run(command, what or case.name)
    result: Run = json.loads(output)
    return result


def fill(server: Server, span: int = SPAN_BYTES, options: Options = NO_OPTIONS) -> None:
    """Write the span once, so that reads are tier hits."""
    once = {"sequential": 1, "commands": max(span >> 20, 1), **options}
    what = f"writing what reads are to find, on {server.address}:{server.port}"
    load(server, Case("write", min(span, 1 << 20), 8), FILL_LIMIT_S, once, span, what=what)


def ask(server: Server, method: str) -> Any:
    """Call a method of the control socket."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(server.control_socket)
        control.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode())
        control.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: control.recv(1 << 16), b""))
    return json.loads(answer)["result"]


# ---- rounds ----


def rounds_of(
    variants: Mapping[str, Callable[[], Run]], rounds: int, what: str, turn: int = 0
) -> Runs:
    """Run every variant in each round; which comes first goes round, from number `turn` on."""
    results: Runs = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        first = (turn + number) % len(names)
        for name in names[first:] + names[:first]:
            show(f"{what}: round {number + 1} of {rounds}, {name}")
            results[name].append(variants[name]())
    show("")
    return results


def show(text: str) -> None:
    """Say how far it is, to somebody who watches."""
    if sys.stderr.isatty():
        print(f"\r{text:<78}" + ("" if text else "\r"), end="", file=sys.stderr, flush=True)


# ---- statistics ----


def done_pairs(runs: Sequence[Run], base: Sequence[Run]) -> Iterator[tuple[Run, Run]]:
    """Yield the two runs of each round in which both servers got something done."""
    for mine, other in zip(runs, base, strict=True):
        if mine["commands"] and other["commands"]:
            yield mine, other


def ratios(runs: Sequence[Run], base: Sequence[Run], key: str) -> list[float]:
    """Return the ratio of each round that has one, sorted."""
    return sorted(mine[key] / other[key] for mine, other in done_pairs(runs, base) if other[key])


def median_of(runs: Sequence[Run], key: str) -> float:
    """Return the median of one figure over the rounds."""
    return statistics.median(run[key] for run in runs)


def spread(values: Sequence[float]) -> str:
    """Return the median, and the range in brackets."""
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} [{min(values):.2f} {max(values):.2f}]"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median: bootstrap over the rounds, with a fixed seed."""
    dice = random.Random(1)
    medians = sorted(
        statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[RESAMPLES * 25 // 1000], medians[RESAMPLES * 975 // 1000]


def with_interval(values: Sequence[float], digits: int = 3) -> str:
    """Return the median, and its 95 % interval in parentheses, which one round has none of."""
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return f"{middle} (-)"
    low, high = interval(values)
    return f"{middle} ({low:.{digits}f} to {high:.{digits}f})"


# ---- what is printed ----


def lay_out(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def regime(mode: str, rounds: int, seconds: float, serve: Sequence[str]) -> dict[str, object]:
    """Return what the figures hold for."""
    return {
        "mode": mode,
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "seconds_per_run": seconds,
        "span_bytes": SPAN_BYTES,
        "serve": list(serve),
        "command": " ".join(["scripts/bench", *sys.argv[1:]]),
    }
