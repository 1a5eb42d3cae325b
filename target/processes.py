"""What the kernel says of a process: proc(5), /proc/PID/stat."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["Usage", "usage_of"]

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
STATE, UTIME, STIME = 0, 11, 12
"""Fields by their place after the name, which may have blanks and brackets."""


class Usage(NamedTuple):
    """How a process is, at the moment."""

    is_runnable: bool
    """It runs, or would if it had a processor."""
    cpu_s: float
    """Processor time it has had, user and kernel."""


def usage_of(pid: int) -> Usage:
    """Return how a process is; one that is gone does nothing any more."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return Usage(is_runnable=False, cpu_s=0.0)
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[UTIME]) + int(fields[STIME])
    return Usage(is_runnable=fields[STATE] == "R", cpu_s=ticks / TICKS_PER_S)
