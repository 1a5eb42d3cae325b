"""What the backing of a namespace must be: a file or block device that can be opened or made."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Hashable, Iterator
from pathlib import Path

from prestage.target.media_options import MEDIA_OPTIONS
from prestage.target.settings import NamespaceSettings
from prestage.target.sizes import quote, size_text

MAX_BYTES = {"ram": 1 << 46}
"""Of a medium; others have up to MAX_FILE_BYTES."""
MAX_FILE_BYTES = (1 << 63) - 1
KINDS = (
    (stat.S_ISDIR, "directory"),
    (stat.S_ISCHR, "character device"),
    (stat.S_ISFIFO, "pipe"),
    (stat.S_ISSOCK, "socket"),
)
"""What cannot be served."""

Found = tuple[str, str]
"""A field's path, and what was found and expected."""


def check_backing(
    namespace: NamespaceSettings, prefix: str, made: Collection[str] | None
) -> Iterator[Found]:
    """Yield the faults of a namespace's path and size; `prefix` is the path to it, with its dot.

    `made`: folders that the target makes itself; None: that is not known, nor is any missed.
    """
    path = namespace.path
    if "\0" in path:
        yield f"{prefix}path", f"found {quote(path)}, expected a path without a zero byte"
    elif namespace.media == "ram":
        if path:
            yield f"{prefix}path", f'found {quote(path)}, expected none with media = "ram"'
        if not namespace.size:
            yield f"{prefix}size", 'found no size, expected one with media = "ram"'
    elif namespace.media not in MEDIA_OPTIONS:
        return
    elif not path:
        yield f"{prefix}path", "found no path, expected a backing file or block device"
    else:
        try:
            there = Path(path).stat()
        except FileNotFoundError:
            yield from _check_missing(path, namespace.size, prefix, made)
        except (OSError, ValueError) as error:
            # Too long a name, or bytes that no path has.
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            expected = "a file that can be opened"
            yield f"{prefix}path", f"found {quote(path)}: {reason}, expected {expected}"
        else:
            yield from _check_there(namespace, there, prefix)


def _check_missing(
    path: str, size: int, prefix: str, made: Collection[str] | None
) -> Iterator[Found]:
    found = quote(path)
    folder = os.path.realpath(Path(path).parent)
    if Path(path).is_symlink():
        expected = "a file, or a path where nothing is"
        yield f"{prefix}path", f"found {found}, a link to nothing, expected {expected}"
    elif not size:
        expected = "an existing file, or a size to create it with"
        yield f"{prefix}path", f"found no file {found}, expected {expected}"
    elif Path(folder).is_dir():
        if not os.access(folder, os.W_OK | os.X_OK):
            expected = "a directory that can be written"
            yield f"{prefix}path", f"found {found}, expected it in {expected}"
    elif made is not None and folder not in made:
        expected = "a file in a directory that is there"
        yield f"{prefix}path", f"found {found}, expected {expected}"


def _check_there(
    namespace: NamespaceSettings, there: os.stat_result, prefix: str
) -> Iterator[Found]:
    found, size = quote(namespace.path), namespace.size
    kind = next((name for is_kind, name in KINDS if is_kind(there.st_mode)), "")
    if kind:
        yield f"{prefix}path", f"found the {kind} {found}, expected a file or block device"
        return
    if not os.access(Path(namespace.path), os.R_OK | os.W_OK):
        expected = "one that can be read and written"
        yield f"{prefix}path", f"found {found}, expected {expected}"
    if not stat.S_ISREG(there.st_mode):
        return
    if size:
        if size < there.st_size:
            expected = f"at least the {size_text(there.st_size)} that the file has, or no size"
            yield f"{prefix}size", f"found {size_text(size)}, expected {expected}"
    elif there.st_size == 0:
        yield f"{prefix}size", f"found none, and {found} is empty, expected a size to give it"
    elif namespace.block in (512, 4096) and there.st_size % namespace.block:
        expected = f"a multiple of block, {namespace.block}, or a size to grow it to"
        found = f"found none, and {found} has {there.st_size} bytes"
        yield f"{prefix}size", f"{found}, expected {expected}"


def identity_of(path: str) -> Hashable:
    """Return what two paths of one file or device have in common. Raises OSError, ValueError."""
    there = Path(path).stat()
    if stat.S_ISBLK(there.st_mode):
        return "device", there.st_rdev
    return "file", there.st_dev, there.st_ino


def shared_key(path: str) -> Hashable:
    """Return the same, of the path alone while there is no file."""
    try:
        return identity_of(path)
    except (OSError, ValueError):
        return "path", os.path.realpath(path)
