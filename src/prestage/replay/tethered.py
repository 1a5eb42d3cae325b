"""A command of `prestage` that does not outlive whoever started it, even where that is killed.

    python -m prestage.replay.tethered PID FOLDER COMMAND...

PID is who starts it, FOLDER what the command works in. It gets SIGTERM when that process dies, and
removes the folder then, which nobody else is left to do.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import threading
from collections.abc import Sequence

from prestage.cli import main as prestage

__all__ = ["command", "main"]


def command(folder: str) -> list[str]:
    """Return what Python is to run as `prestage` for this process."""
    return ["-m", __name__, str(os.getpid()), folder]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    parent, folder, *words = arguments
    # What a terminal sends goes to the parent alone, which decides what becomes of this process.
    os.setsid()
    # The command may not have got to its own handler when the parent dies.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    line = -1
    with contextlib.suppress(ProcessLookupError):
        line = os.pidfd_open(int(parent))
    if line < 0 or os.getppid() != int(parent):
        shutil.rmtree(folder, ignore_errors=True)
        return 1
    # The kernel's own signal (PR_SET_PDEATHSIG) comes for each thread of the parent that dies.
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    try:
        return prestage(words)
    finally:
        if _wait_gone(line, 0):
            shutil.rmtree(folder, ignore_errors=True)


def _wait_gone(line: int, timeout_ms: int | None) -> bool:
    """Tell whether a process, by its descriptor, is gone within a time; None: wait for it."""
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def _end_with(line: int) -> None:
    _wait_gone(line, None)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
