"""What the modes of `scripts/bench` share: servers, the load generator, medians and intervals."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "build" / "csrc" / "native" / "bench"
NQN = "nqn.2026-11.io.prestage:bench"
SPAN_BYTES = 64 << 20
"""What reads touch, written once so that they are tier hits."""
READY_S = 15.0
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
    """One load: operation, size of an I/O, commands in flight, connections."""

    operation: str
    size_bytes: int
    depth: int
    connections: int = 1

    @property
    def name(self) -> str:
        """As it is printed."""
        size = f"{self.size_bytes >> 10}K" if self.size_bytes < 1 << 20 else "1M"
        many = f" x{self.connections}" if self.connections > 1 else ""
        return f"{self.operation} {size} QD{self.depth}{many}"


@dataclasses.dataclass(frozen=True)
class Server:
    """Where a server listens, and whose CPU time counts (0: unknown)."""

    address: str
    port: int
    nqn: str
    pid: int = 0
    control_socket: str = ""


# ---- processes ----


def pinned(core: int, command: Sequence[str]) -> list[str]:
    """Return the command on one core, where there is more than one."""
    return ["taskset", "-c", str(core), *command] if (os.cpu_count() or 1) > 1 else list(command)


def build(*programs: str) -> None:
    """Set up this checkout, and compile programs of csrc/bench."""
    subprocess.run([ROOT / "scripts" / "setup"], check=True)
    wanted = [str(PROGRAMS / program) for program in programs]
    subprocess.run(["make", "-s", "-C", str(ROOT / "csrc"), *wanted], check=True)


@contextlib.contextmanager
def bare_server(folder: Path) -> Iterator[Server]:
    """Run the floor. It ends when its standard input does."""
    port_file = folder / "bare.port"
    process = subprocess.Popen(
        pinned(SERVER_CORE, [str(PROGRAMS / "bare"), str(port_file)]), stdin=subprocess.PIPE
    )
    try:
        port = int(wait_for(port_file, process))
        yield Server("127.0.0.1", port, "bare", process.pid)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(READY_S)


@contextlib.contextmanager
def own_target(
    folder: Path, extra: Sequence[str] = (), *, config: str = PLAIN_CONFIG, checkout: Path = ROOT
) -> Iterator[Server]:
    """Run the target of a checkout, with its files in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "ready.json"
    (folder / "bench.toml").write_text(config, "utf-8")
    command = [
        *(str(checkout / ".venv/bin/prestage"), "serve", "--config", str(folder / "bench.toml")),
        *("--state-directory", str(folder / "state"), "--ready-file", str(ready), *extra),
    ]
    with (folder / "target.log").open("wb") as log:
        process = subprocess.Popen(pinned(SERVER_CORE, command), stdout=log, stderr=log)
    try:
        said = json.loads(wait_for(ready, process))
        listener = said["listeners"][0]
        yield Server(
            listener["address"], listener["port"], NQN, process.pid, said["control_socket"]
        )
    finally:
        process.terminate()
        process.wait(READY_S)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the text of a file that a starting process writes."""
    end = time.monotonic() + READY_S
    while time.monotonic() < end:
        if path.exists() and (text := path.read_text("utf-8")).endswith("\n"):
            return text
        if process.poll() is not None:
            log = path.parent / "target.log"
            raise SystemExit(f"bench: the server ended ({process.returncode})\n{log.read_text()}")
        time.sleep(0.01)
    raise SystemExit(f"bench: the server was not ready within {READY_S:.0f} s")


def load_command(
    server: Server, case: Case, seconds: float, options: Options, span: int = SPAN_BYTES
) -> list[str]:
    """Return the command line of the generator (csrc/bench/load.c)."""
    load_of = (case.operation, case.size_bytes, case.depth, case.connections)
    words = [PROGRAMS / "load", server.address, server.port, server.nqn, *load_of, seconds, span]
    words += [f"{key}={value}" for key, value in options.items()]
    if server.pid:
        words.append(f"pid={server.pid}")
    return pinned(GENERATOR_CORE, [str(word) for word in words])


def load(
    server: Server,
    case: Case,
    seconds: float,
    options: Options = NO_OPTIONS,
    span: int = SPAN_BYTES,
) -> Run:
    """Run the generator once."""
    command = load_command(server, case, seconds, options, span)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench: {case.name}: {done.stderr.strip()}")
    result: Run = json.loads(done.stdout)
    return result


def fill(server: Server, span: int = SPAN_BYTES) -> None:
    """Write the span once, so that reads are tier hits."""
    load(server, Case("write", 1 << 20, 8), 2, span=span)


def ask(server: Server, method: str) -> Any:
    """Call a method of the control socket."""
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(server.control_socket)
        control.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method}).encode())
        control.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: control.recv(1 << 16), b""))
    return json.loads(answer)["result"]


# ---- rounds ----


def rounds_of(variants: Mapping[str, Callable[[], Run]], rounds: int, what: str) -> Runs:
    """Run every variant in each round; which comes first goes round."""
    results: Runs = {name: [] for name in variants}
    names = list(variants)
    for number in range(rounds):
        first = number % len(names)
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


def ratios(runs: Sequence[Run], base: Sequence[Run], key: str) -> list[float]:
    """Return the ratio of each round, sorted."""
    return sorted(
        mine[key] / other[key] for mine, other in zip(runs, base, strict=True) if other[key]
    )


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
    """Return the median, and its 95 % interval in parentheses."""
    if not values:
        return "-"
    low, high = interval(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


# ---- what is printed ----


def lay_out(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def regime(rounds: int, seconds: float, **more: object) -> dict[str, object]:
    """Return what the figures hold for."""
    return {
        "machine": platform.platform(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "seconds_per_run": seconds,
        "span_bytes": SPAN_BYTES,
        **more,
        "command": " ".join(["scripts/bench", *sys.argv[1:]]),
    }
