"""Another target that `scripts/bench` measures: where it is, and whether it can be compared."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import os
from pathlib import Path

from bench_run import SERVER_CORE, Server

AS_MEASURED, AS_PAUSED = "ADDRESS:PORT,NQN[,PID]", "ADDRESS:PORT,NQN,PID"
LISTENING = "0A"
"""The state of a socket in /proc/PID/net/tcp."""


def server_of(text: str, *, is_paused: bool) -> Server:
    """Return the server of an option; one that is to be paused needs its PID.

    Raises argparse.ArgumentTypeError for another form, and where the process does not listen there.
    """
    place, nqn, pid, *more = [*text.split(","), "", ""][: max(3, text.count(",") + 1)]
    address, _, port = place.rpartition(":")
    address = address.strip("[]")
    is_good = is_address(address) and port.isdecimal() and 0 < int(port) < 1 << 16 and nqn
    has_pid = pid.isdecimal() if is_paused or text.count(",") > 1 else True
    if not is_good or not has_pid or more:
        expected = AS_PAUSED if is_paused else AS_MEASURED
        raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}, the address in digits")
    server = Server(address, int(port), nqn, int(pid or 0), is_paused=is_paused)
    if server.pid and not listens(server):
        raise argparse.ArgumentTypeError(
            f"{text!r}: process {pid} is not there or does not listen on port {port}, "
            "expected the process of that target"
        )
    return server


def is_address(text: str) -> bool:
    """Return whether it is an address in digits."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def listens(server: Server) -> bool:
    """Return whether its process has a socket that listens on its port, or nobody may look."""
    proc = Path(f"/proc/{server.pid}")
    try:
        rows = [
            line.split()
            for family in ("tcp", "tcp6")
            if (proc / "net" / family).exists()
            for line in (proc / "net" / family).read_text("utf-8").splitlines()[1:]
        ]
        descriptors = list((proc / "fd").iterdir())
    except PermissionError:
        return True
    except OSError:
        return False
    at_port = f":{server.port:04X}"
    wanted = {f"socket:[{x[9]}]" for x in rows if x[1].endswith(at_port) and x[3] == LISTENING}
    for each in descriptors:
        with contextlib.suppress(OSError):  # It may be closed meanwhile.
            if str(each.readlink()) in wanted:
                return True
    return False


def warning(server: Server) -> str:
    """Return what to say of a process that has other cores than ours has; empty: it is pinned."""
    cores: set[int] = set()
    for thread in Path(f"/proc/{server.pid}/task").iterdir() if server.pid else ():
        with contextlib.suppress(ProcessLookupError):
            cores |= os.sched_getaffinity(int(thread.name))
    if cores <= {SERVER_CORE}:
        return ""
    return (
        f"process {server.pid} may run on cores {', '.join(map(str, sorted(cores)))}, expected core"
        f" {SERVER_CORE} alone, as ours has (taskset -apc {SERVER_CORE} {server.pid}): the ratios "
        "are of unlike things"
    )
