"""Identifiers that outlive the process, in a JSON file in the state directory.

Hosts recognise a namespace by its UUID and NGUID, and drop one whose identifiers change. They are
made once, and kept by the path of the backing file (or, for RAM, by NQN and NSID).
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import stat
import uuid
from pathlib import Path
from typing import Annotated

import aiofiles
import aiofiles.os
import msgspec

from prestage.target.errors import AlreadyExists, TargetError

log = logging.getLogger("prestage.identity")

FILE_NAME = "identity.json"
LOCK_NAME = "identity.lock"
VERSION = 1
MAX_FILE_BYTES = 16 << 20

Counter = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class State(msgspec.Struct, forbid_unknown_fields=True):
    """What the file holds."""

    version: int = VERSION
    serials: dict[str, str] = {}
    """By NQN."""
    uuids: dict[str, uuid.UUID] = {}
    """By what `Identity.namespace_uuid` was given."""
    starts: Counter = 0
    unsafe_stops: Counter = 0
    running: bool = False
    """True between a start and its orderly stop."""


class Identity:
    """The identifiers of one state directory."""

    def __init__(self, directory: Path, state: State | None = None) -> None:
        self.path = directory / FILE_NAME
        self.state = State() if state is None else state
        self.warnings: list[str] = []
        self._dirty = False

    @classmethod
    async def load(cls, directory: Path) -> Identity:
        """Read the file, or start a new one; a damaged one is set aside with a warning.

        Raises TargetError when the directory cannot be used.
        """
        identity = cls(directory)
        try:
            await aiofiles.os.makedirs(directory, exist_ok=True)
            content = await asyncio.to_thread(_read, identity.path)
        except FileNotFoundError:
            return identity
        except OSError as error:
            raise _unusable(directory, error) from error
        await identity._take(content)
        return identity

    async def _take(self, content: bytes) -> None:
        try:
            self.state = msgspec.json.decode(content, type=State)
            if self.state.version != VERSION:
                raise msgspec.ValidationError(f"version {self.state.version}, not {VERSION}")
        except msgspec.MsgspecError as error:
            self.state = State()
            aside = await self._set_aside()
            self.warnings.append(
                f"{self.path} is damaged ({error}); it was set aside as {aside}, and hosts"
                " will see new serial numbers and namespace identifiers"
            )

    async def _set_aside(self) -> Path:
        number = 1
        aside = self.path.with_name(f"{FILE_NAME}.damaged-{number}")
        while await aiofiles.os.path.exists(aside):
            number += 1
            aside = self.path.with_name(f"{FILE_NAME}.damaged-{number}")
        await aiofiles.os.rename(self.path, aside)
        return aside

    def serial(self, nqn: str) -> str:
        """Return the serial number of a subsystem, 16 characters; made on first use."""
        if nqn not in self.state.serials:
            self.state.serials[nqn] = secrets.token_hex(8).upper()
            self._dirty = True
        return self.state.serials[nqn]

    def namespace_uuid(self, key: str) -> uuid.UUID:
        """Return the UUID kept for `key`; made on first use."""
        # A path may be any bytes; the file is UTF-8.
        key = os.fsencode(key).decode("utf-8", "backslashreplace")
        if key not in self.state.uuids:
            self.state.uuids[key] = uuid.uuid4()
            self._dirty = True
        return self.state.uuids[key]

    def started(self) -> None:
        """Count a start, and an unsafe stop if the last run did not end in order."""
        if self.state.running:
            log.warning(
                "the last run did not end in order: what hosts had not flushed by then may be lost"
            )
        self.state.starts += 1
        self.state.unsafe_stops += self.state.running
        self.state.running = True
        self._dirty = True

    def stopped(self, *, clean: bool) -> None:
        """Note an orderly stop."""
        self.state.running = not clean
        self._dirty = True

    async def save(self) -> None:
        """Write the file if anything changed: whole or not at all. Raises TargetError."""
        if not self._dirty:
            return
        content = msgspec.json.format(msgspec.json.encode(self.state), indent=2) + b"\n"
        fresh = self.path.with_suffix(".tmp")
        try:
            async with aiofiles.open(fresh, "wb") as file:
                await file.write(content)
                await file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
            await aiofiles.os.replace(fresh, self.path)
            await asyncio.to_thread(_sync_directory, self.path.parent)
        except OSError as error:
            what = error.strerror or str(error)
            raise TargetError(what, str(self.path), "a writable file") from error
        self._dirty = False


def lock_directory(directory: Path) -> int:
    """Return a descriptor that keeps other targets out of a state directory until it is closed.

    Two would overwrite each other's identifiers, and hosts lose namespaces. Makes the directory.
    Raises AlreadyExists, and TargetError when it cannot be used.
    """
    path = directory / LOCK_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        expected = "a state directory of its own for each target"
        raise AlreadyExists("in use by a running target", str(path), expected) from None
    except OSError as error:
        os.close(fd)
        raise _unusable(directory, error) from error
    return fd


def _unusable(directory: Path, error: OSError) -> TargetError:
    what = error.strerror or str(error)
    return TargetError(what, f"state directory {directory}", "a writable directory")


def _read(path: Path) -> bytes:
    """Read a regular file of bounded size: a pipe would block, a device might never end."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path.name} is no regular file")
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(f"{path.name} is larger than {MAX_FILE_BYTES} bytes")
    return content


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
