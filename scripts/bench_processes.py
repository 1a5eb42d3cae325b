"""Processes that `scripts/bench` starts, and how they end, however the run ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "build" / "csrc" / "native" / "bench"
READY_S = 60.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """Somebody has ended the run by a signal; on its way up, everything is cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def hear_signals() -> None:
    """Let signals that end a program raise Interrupted. One that is ignored stays so (nohup)."""
    for number in ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in ENDING:  # The cleaning up is not to be interrupted by the next one.
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def pinned(core: int | str, command: Sequence[str]) -> list[str]:
    """Return the command on one core (or a list of them), where there is more than one."""
    return ["taskset", "-c", str(core), *command] if (os.cpu_count() or 1) > 1 else list(command)


@contextlib.contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process beside the block; with the block it ends, and all that it has started.

    Ctrl-C does not reach it, so nothing ends but in our order. Should we be killed, the kernel
    kills it.
    """
    words = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    with subprocess.Popen(words, process_group=0, **options) as process:
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started; return when all of them have ended.

    A prestager outlives its target for a moment, and would write where a folder is being removed.
    """
    others = list(descendants(process.pid)) if process.poll() is None else []
    process.kill()
    for other in others:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(other, signal.SIGKILL)
        select.select([other], [], [], READY_S)
        os.close(other)
    process.wait(READY_S)


def descendants(pid: int) -> Iterator[int]:
    """Yield a descriptor (pidfd) of each process that a process has started, and theirs."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for each in map(int, path.read_text("utf-8").split()):
                yield os.pidfd_open(each)
                yield from descendants(each)


def run(
    command: Sequence[str], what: str, limit_s: float | None = None, **options: Any
) -> tuple[str, str]:
    """Run a command to its end; return its output and what it said.

    Ends the program where it fails or takes longer than `limit_s`: says what was to be done, and
    what the command said.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with child(command, **pipes) as process:
        try:
            output, said = (each or b"" for each in process.communicate(timeout=limit_s))
        except subprocess.TimeoutExpired:
            raise SystemExit(f"bench: {what}: not done within {limit_s:.0f} s") from None
    if process.returncode != 0:
        why = said.decode().strip() or f"{command[0]} ended with status {process.returncode}"
        raise SystemExit(f"bench: {what}: {why}")
    return output.decode(), said.decode()


def build(*programs: str) -> None:
    """Set up this checkout, and compile programs of csrc/bench."""
    run([str(ROOT / "scripts" / "setup")], "scripts/setup", stdout=None, stderr=None)
    wanted = [str(PROGRAMS / program) for program in programs]
    make = ["make", "-s", "-C", str(ROOT / "csrc"), *wanted]
    run(make, "building the generator", stdout=None, stderr=None)
