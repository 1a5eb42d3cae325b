"""Where a target keeps its own files, and what can be wrong with these places."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from prestage.target.settings import TargetSettings
from prestage.target.sizes import quote

SOCKET_NAME = "prestage.sock"
MAX_SOCKET_PATH_BYTES = 107

Found = tuple[str, str]
"""A field's path, and what was found and expected."""


def control_socket_path(settings: TargetSettings) -> str:
    """Return where the control socket of these settings is."""
    return settings.control_socket or str(Path(settings.state_directory) / SOCKET_NAME)


def made_folders(settings: TargetSettings) -> frozenset[str]:
    """Return the folders, by their real paths, that a target makes when they are not there."""
    own = (settings.state_directory, str(Path(control_socket_path(settings)).parent))
    every = [Path(os.path.realpath(one)) for one in own if "\0" not in one]
    return frozenset(str(one) for each in every for one in (each, *each.parents))


def check_places(settings: TargetSettings) -> Iterator[Found]:
    """Yield what keeps the state directory and the control socket from being made."""
    directory, path = settings.state_directory, control_socket_path(settings)
    if not directory or "\0" in directory:
        yield "state_directory", f"found {quote(directory)}, expected a directory"
        return
    yield from _check_folder("state_directory", directory)
    field = "control_socket" if settings.control_socket else "state_directory"
    length = len(os.fsencode(path.encode("utf-8", "replace")))
    if length > MAX_SOCKET_PATH_BYTES or "\0" in path:
        expected = f"expected the path of a Unix socket, at most {MAX_SOCKET_PATH_BYTES} bytes"
        yield field, f"found {quote(path)}, {expected}"
        return
    if settings.control_socket:
        yield from _check_folder(field, str(Path(path).parent))
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            yield field, f"found {quote(path)}, expected a free path for a socket"
    except OSError:
        # It is not there, or what is before it was told of.
        return


def _check_folder(field: str, folder: str) -> Iterator[Found]:
    """Yield what keeps a folder, and those that it is in, from being made or used."""
    place = Path(os.path.abspath(folder))  # noqa: PTH100 - links stay as given
    try:
        there = next(one for one in (place, *place.parents) if os.path.lexists(one))
        if not there.is_dir():
            yield field, f"found {quote(str(there))}, expected a directory"
        elif not os.access(there, os.W_OK | os.X_OK):
            yield field, f"found {quote(str(there))}, expected a directory that can be written"
        elif any(len(os.fsencode(part)) > 255 for part in place.parts):
            yield field, f"found {quote(folder)}, expected names of at most 255 bytes"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        yield field, f"found {quote(folder)}: {reason}, expected a directory"
