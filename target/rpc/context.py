"""What the methods of the control socket work on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from prestage.target.rpc.registry import BdevRegistry
from prestage.target.rpc.view import TargetLike

TICK_RATE = 1_000_000_000
"""Ticks of the statistics a second: they are nanoseconds."""


@dataclass
class Context:
    """A running target and what belongs to its control socket."""

    target: TargetLike
    kill: Callable[[int], None]
    """Called with the number of a signal that a client wants the target to get."""
    started_ns: int = field(default_factory=time.monotonic_ns)
    bdevs: BdevRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.bdevs = BdevRegistry(self.target)

    def uptime_ns(self) -> int:
        """Return for how long the target has run, in nanoseconds."""
        return time.monotonic_ns() - self.started_ns


def ticks() -> int:
    """Return the clock of the statistics, in nanoseconds."""
    return time.monotonic_ns()
