"""`prestage top`: a live view of a running target: tier, media, deadlines and tenants."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from prestage.target.commands.common import Subparsers, connect, remote
from prestage.target.commands.output import out_json
from prestage.target.commands.top_figures import figures
from prestage.target.errors import Invalid, InvalidFlag, NotFound

KEYS_THAT_QUIT = ("q", "Q")
Look = Callable[[], dict[str, Any]]
"""Asks the target for its counters."""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = remote(
        subparsers, "top", "watch tier, media, deadlines and tenants of a target; q quits", run
    )
    parser.add_argument(
        "--interval", metavar="S", type=float, default=1.0, help="seconds between two looks (1)"
    )


def run(args: argparse.Namespace) -> int:
    """Show the view until `q`; with --json print its figures of one interval and end."""
    interval_s: float = args.interval
    if not (math.isfinite(interval_s) and 0.05 <= interval_s <= 86400):
        raise InvalidFlag(f"found {interval_s:g}", "--interval", "0.05 to 86400 seconds")
    if not args.json:
        _expect_terminal()
    with connect(args) as client:

        def look() -> dict[str, Any]:
            found: dict[str, Any] = client.call("prestage_get_stats")
            return found

        if args.json:
            before = look()
            time.sleep(interval_s)
            out_json(figures(before, look()))
        else:
            _watch(look, interval_s)
    return 0


def _expect_terminal() -> None:
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise Invalid("there is no terminal to draw on", "prestage top", "a terminal, or --json")
    if importlib.util.find_spec("rich") is None:
        raise NotFound("rich is not installed", "prestage top", "the extra cli, or --json")


def _watch(look: Look, interval_s: float) -> None:
    from rich.live import Live

    from prestage.target.commands.top_screen import screen

    before = after = look()
    with Keys(sys.stdin.fileno()) as keys, Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(screen(figures(before, after), live.console.width), refresh=True)
            if keys.wait(interval_s) in KEYS_THAT_QUIT:
                return
            before, after = after, look()


class Keys:
    """Single keys from a terminal, which gets its settings back at the end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def wait(self, timeout_s: float) -> str:
        """Return the key that was pressed within the time; "" for none, "q" at the end of input."""
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        if not ready:
            return ""
        return (os.read(self._fd, 1) or b"q").decode("latin-1")
