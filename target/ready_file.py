"""The file that says that a target is ready: there whole or not at all, and nobody else's."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from prestage.target.errors import Invalid
from prestage.target.rpc.server import is_locked
from prestage.target.sizes import quote

FLAG = "--ready-file"
EXPECTED = "a path where nothing is, or a ready file of a target that has ended"
MAX_BYTES = 32 << 20
"""A report is smaller, and what is longer is not read."""
MAX_PATH = 4096
"""Characters of a path that are shown."""


class Left(msgspec.Struct, frozen=True):
    """What a report of ours has, by which one that was left over is known."""

    ready: bool
    pid: int
    listeners: list[Any]
    subsystems: list[Any]
    control_socket: str
    state_directory: str


class ReadyFile:
    """The file at `path`, which is this target's from `write` to `remove`."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._written: os.stat_result | None = None

    def claim(self, control_socket: str) -> None:
        """See that it can be written, and take away one that a target left which has ended.

        `control_socket` is this target's, whose lock it holds: a file that names it was left over.
        Raises Invalid, with nothing changed, for whatever else is there.
        """
        try:
            folder = self._path.parent
            if not folder.is_dir():
                raise self._wrong("found no folder for it", "a file in a folder that is there")
            self._require_free(control_socket)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise self._wrong("its folder takes no files", "a folder that can be written")
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from None

    def write(self, ready: dict[str, Any]) -> None:
        """Write a report as JSON: a reader finds all of it or no file. Raises Invalid."""
        try:
            fd, name = tempfile.mkstemp(prefix=".prestage-ready.", dir=self._path.parent)
        except OSError as error:
            raise self._failed(error) from None
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(ready) + b"\n")
                os.fchmod(file.fileno(), 0o644)
                self._written = os.fstat(file.fileno())
            if os.path.lexists(self._path):
                raise self._wrong("something has come there since the start", EXPECTED)
            Path(name).replace(self._path)
        except BaseException as error:
            self._written = None
            with contextlib.suppress(OSError):
                Path(name).unlink()
            if isinstance(error, OSError):
                raise self._failed(error) from None
            raise

    def remove(self) -> None:
        """Take away what was written, unless something else stands in its place by now."""
        with contextlib.suppress(OSError):
            if self._written is not None and os.path.samestat(self._written, self._path.lstat()):
                self._path.unlink()
        self._written = None

    def _require_free(self, control_socket: str) -> None:
        """Raise Invalid unless nothing is there, or what may go; OSError."""
        try:
            found = self._path.lstat()
        except FileNotFoundError:
            return
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            raise self._wrong("something else is there already", EXPECTED)
        try:
            left = msgspec.json.decode(self._path.read_bytes(), type=Left)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._wrong("something else is there already", EXPECTED) from None
        ours = os.path.abspath(control_socket)  # noqa: PTH100 - as the report names it
        if left.control_socket != ours and is_locked(left.control_socket):
            what = f"it is that of a running target, process {left.pid}"
            raise self._wrong(what, EXPECTED)

    def _wrong(self, what: str, expected: str) -> Invalid:
        return Invalid(f"found {quote(str(self._path), MAX_PATH)}: {what}", FLAG, expected)

    def _failed(self, error: OSError) -> Invalid:
        return self._wrong(error.strerror or str(error), "a file that can be written")
