"""What was learned, in a file: written whole or not at all, and never believed unseen.

The file is a header, a description in JSON, and arrays in numpy's own format, one after the other.
The header has a checksum of all that follows. A file that is damaged, of another version, or about
another tier is set aside under another name, and what is learned starts anew.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.errors import TargetError

__all__ = ["VERSION", "SnapshotError", "decode", "encode", "load", "set_aside", "write"]

MAGIC: Final = b"PRESTAGE"
VERSION: Final = 4
HEADER: Final = struct.Struct("<8sIIQQ")
"""Magic, version, CRC-32 of all that follows, bytes of the description, bytes of the arrays."""
MAX_BYTES: Final = 4 << 30
"""Of a file that is looked at."""

Arrays = Mapping[str, NDArray[Any]]


class SnapshotError(TargetError):
    """A snapshot cannot be used; its text says why."""


def encode(about: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return the contents of a file; `about` is what JSON can hold. Arrays are copied."""
    description = json.dumps({"about": dict(about), "arrays": list(arrays)}).encode()
    body = io.BytesIO()
    for array in arrays.values():
        np.save(body, array, allow_pickle=False)
    payload = body.getbuffer()
    crc = zlib.crc32(payload, zlib.crc32(description))
    header = HEADER.pack(MAGIC, VERSION, crc, len(description), len(payload))
    return b"".join((header, description, payload))


def decode(data: bytes, where: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return description and arrays. Raises SnapshotError naming `where`."""
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise SnapshotError("it is no snapshot of a prestager", where)
    _, version, crc, described, held = HEADER.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"version {version}", where, f"version {VERSION}")
    expected = HEADER.size + described + held
    if len(data) != expected:
        raise SnapshotError(f"{len(data)} bytes", where, f"{expected}")
    if zlib.crc32(memoryview(data)[HEADER.size :]) != crc:
        raise SnapshotError("its checksum is wrong", where)
    try:
        description = json.loads(data[HEADER.size : HEADER.size + described])
        body = io.BytesIO(data[HEADER.size + described :])
        arrays = {name: np.load(body, allow_pickle=False) for name in description["arrays"]}
        return description["about"], arrays
    except (ValueError, OSError, KeyError, TypeError, EOFError) as error:
        raise SnapshotError(f"it cannot be read: {error}", where) from None


def load(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]] | None:
    """Return what the file holds, None when there is none. Raises SnapshotError."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise SnapshotError(f"{size} bytes", str(path), f"at most {MAX_BYTES}")
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SnapshotError(f"it cannot be read: {error.strerror}", str(path)) from None
    return decode(data, str(path))


def write(path: Path, data: bytes) -> None:
    """Put `data` in the place of the file, durably. Raises OSError with the old file as it was."""
    fresh = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path) -> Path:
    """Rename the file so that it is not read again; return its new name. Raises OSError."""
    aside = path.with_name(path.name + ".bad")
    path.replace(aside)
    return aside
