"""Keeps what was learned in its file, now and then, while the prestager goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from prestage.target.prestager import snapshot

__all__ = ["Keeper"]


class Keeper:
    """Reads the file at the start and writes it from then on, every `period_s` seconds.

    A period of 0 stands for never but at the end. Nothing here raises: what goes wrong is in
    `troubles`, and learning goes on.
    """

    def __init__(
        self, path: str, period_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = Path(path)
        self._period_s = period_s
        self._clock = clock
        self._last_s = clock()
        self._writer: threading.Thread | None = None
        self.written = 0
        """Times that it was."""
        self.size_bytes = 0
        self.troubles: dict[str, str] = {}

    def load(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
        """Return what was kept; None when there is none that can be used, which is set aside."""
        try:
            return snapshot.load(self._path)
        except snapshot.SnapshotError as error:
            self.set_aside(str(error))
            return None

    def set_aside(self, why: str) -> None:
        """Put the file out of the way, if there is one: it is not used."""
        try:
            aside = snapshot.set_aside(self._path)
        except FileNotFoundError:
            return
        except OSError as error:
            self.troubles["snapshot"] = f"not used, nor set aside ({error.strerror}): {why}"
        else:
            self.troubles["snapshot"] = f"set aside as {aside}, learning starts anew: {why}"

    @property
    def is_due(self) -> bool:
        """Whether it is time to write, and the last writing has ended."""
        if self._period_s == 0 or self._clock() - self._last_s < self._period_s:
            return False
        return self._writer is None or not self._writer.is_alive()

    def start(self, data: bytes) -> None:
        """Write `data` in a thread; when `is_due`."""
        self._last_s = self._clock()
        self._writer = threading.Thread(target=self._write, args=(data,), name="snapshot")
        self._writer.start()

    def finish(self, data: bytes) -> None:
        """Write `data` after what is being written, and return when it is there."""
        if self._writer is not None:
            self._writer.join()
        self._write(data)

    def _write(self, data: bytes) -> None:
        try:
            snapshot.write(self._path, data)
        except OSError as error:
            why = error.strerror or str(error)
            self.troubles["snapshot_write"] = f"{self._path}: what is learned is not kept: {why}"
            return
        self.written += 1
        self.size_bytes = len(data)
        self.troubles.pop("snapshot_write", None)
