"""A progress bar on a terminal, for what takes minutes."""

from __future__ import annotations

import importlib.util
from types import TracebackType
from typing import Any, Self, TextIO

from prestage.replay.run import Progress


class Meter:
    """Shows how far the run is that goes on, and how long it will yet take.

    Runs take from nothing to hours each, so that what one has taken says nothing of the others.
    Nothing is shown where there is no terminal, or no rich.
    """

    def __init__(self, runs: int, stream: TextIO) -> None:
        self._runs = runs
        self._stream = stream
        self._bar: Any = None
        self._task: Any = None
        self._begun = 0

    def __enter__(self) -> Self:
        if self._stream.isatty() and importlib.util.find_spec("rich") is not None:
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(file=self._stream), transient=True)
            self._task = self._bar.add_task("", total=1.0)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, what: str) -> Progress | None:
        """Say what runs now; return who is to be told how far it is, None: nobody looks."""
        self._begun += 1
        if self._bar is None:
            return None
        self._bar.reset(self._task, description=f"{self._begun} of {self._runs}: {what}")
        return lambda share: self._bar.update(self._task, completed=share)
