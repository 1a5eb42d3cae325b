"""What `scripts/bench` counts instead of timing: system calls, and bytes that are copied.

System calls are those of all threads of the server, counted by the kernel (`perf stat` of
raw_syscalls:sys_enter) in short runs of their own: the difference between two numbers of commands,
so connecting is not in it. A tracer would slow the server, which would then find more to do in each
pass: its count would flatter.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from bench_processes import pinned, run
from bench_run import Case, load_command
from bench_targets import Pool, Side

EVENT = "raw_syscalls:sys_enter"
COUNT_LIMIT_S = 30.0
LEAST, MOST, BYTES = 64, 4000, 64 << 20
"""Commands of the shorter run: as many as move BYTES, but some, and not too many."""


def commands_of(case: Case) -> int:
    """Return how many commands the shorter run has."""
    return max(LEAST, case.depth * case.connections, min(MOST, BYTES // case.size_bytes))


def counted(side: Side, servers: Pool, commands: int) -> int:
    """Return the system calls of the server while it serves so many commands."""
    server = servers[side.server]
    options = {**side.options, "commands": commands}
    command = load_command(server, side.case, COUNT_LIMIT_S, options, side.span_bytes)
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as report:
        perf = ["perf", "stat", "-x,", "-o", report.name, "-e", EVENT, "-p", str(server.pid), "--"]
        run([*perf, *pinned(side.core, command)], f"{side.case.name}, counting system calls")
        return calls_in(Path(report.name).read_text("utf-8"))


def calls_in(report: str) -> int:
    """Return the count in what `perf stat -x,` wrote. ValueError when it has counted nothing."""
    for line in report.splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].startswith(EVENT):
            return int(fields[0])
    raise ValueError(f"perf stat wrote {report!r}, expected a count of {EVENT}")


def calls_per_command(side: Side, servers: Pool) -> float:
    """Return the system calls of the server a command."""
    few = commands_of(side.case)
    return (counted(side, servers, 3 * few) - counted(side, servers, few)) / (2 * few)


def why_no_calls() -> str:
    """Return why system calls cannot be counted here; empty: they can."""
    words = ["perf", "stat", "-x,", "-e", EVENT, "--", "true"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        calls_in(done.stderr)
    except (OSError, ValueError) as error:
        return f"system calls are not counted: {error}"
    return ""
