"""A device node that hints go through: whoever opened it, its descriptor is closed once."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path


class DeviceNode:
    """The path of a node, and its descriptor while it is open (-1: it is not)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._fd = -1
        self._lock = threading.Lock()
        """Holds the descriptor while a thread uses it: a call may outlive who waited for it."""

    @property
    def where(self) -> str:
        """The path of the node."""
        return str(self._path)

    async def close(self) -> None:
        """Close the node; nothing happens when it is closed already."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
