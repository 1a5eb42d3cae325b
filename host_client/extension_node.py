"""Hints through the block device of the extension namespace: 4 KiB pages, read and written whole.

Whoever may open the node may hint; no privilege, no ioctl. Pages go around the page cache
(O_DIRECT), from memory that is aligned to a page. The calls block, so they run in threads.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import stat
from pathlib import Path

from prestage.ext import layout
from prestage.ext.errors import Malformed
from prestage.ext.names import Carrier
from prestage.ext.pages import Capability, decode_capability
from prestage.host_client.device_node import DeviceNode
from prestage.host_client.errors import HostError, NotSupported
from prestage.host_client.hint_carrier import Taken

SIZE_BYTES = layout.EXTENSION_PAGES * layout.PAGE_BYTES


class ExtensionNodeCarrier(DeviceNode):
    """Hints by the extension namespace's block device, or a file of its size (for tests)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._capability: Capability | None = None

    async def open(self) -> None:
        """Open the node and read its status page."""
        self._fd = await asyncio.to_thread(open_direct, self._path)
        try:
            page = await self.status()
        except BaseException:
            await self.close()
            raise
        try:
            self._capability = decode_capability(page)
        except Malformed:
            self._capability = None

    async def capability(self) -> Capability | None:
        """Return what the status page has said."""
        capability = self._capability
        if capability is None or not capability.carriers & Carrier.EXTENSION_NAMESPACE:
            return None
        return capability

    async def submit(self, batch: bytes, mailbox: int) -> Taken | None:
        """Write a batch into a mailbox; its answer page says what became of it."""
        await asyncio.to_thread(self._write, layout.PAGE_MAILBOXES + mailbox, batch)
        return None

    async def answer(self, mailbox: int) -> bytes:
        """Return the answer page of a mailbox."""
        return await asyncio.to_thread(self._read, layout.PAGE_MAILBOXES + mailbox)

    async def status(self) -> bytes:
        """Return the status page."""
        return await asyncio.to_thread(self._read, layout.PAGE_STATUS)

    async def events(self, *, clear: bool) -> bytes:
        """Raise `NotSupported`: the log is an admin command's; `status` counts events."""
        raise NotSupported("the extension namespace has no warm-event log", self.where)

    async def wait_event(self) -> None:
        """Raise `NotSupported`."""
        raise NotSupported("the extension namespace tells no warm events", self.where)

    def _read(self, page: int) -> bytes:
        with self._lock, mmap.mmap(-1, layout.PAGE_BYTES) as memory:
            count = os.preadv(self._fd, [memory], page * layout.PAGE_BYTES)
            self._require(count)
            return memory[:]

    def _write(self, page: int, data: bytes) -> None:
        with self._lock, mmap.mmap(-1, layout.PAGE_BYTES) as memory:
            memory[: len(data)] = data
            self._require(os.pwrite(self._fd, memory, page * layout.PAGE_BYTES))

    def _require(self, count: int) -> None:
        if count != layout.PAGE_BYTES:
            raise HostError(f"{count} bytes of a page", self.where, f"{SIZE_BYTES} bytes in all")


def open_direct(path: Path) -> int:
    """Open a node for pages around the page cache; a file system that cannot has a plain file.

    Raises OSError, and `HostError` when the size is not that of an extension namespace.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        if not is_file and not stat.S_ISBLK(os.fstat(fd).st_mode):
            raise HostError("it is no block device", str(path), "an extension namespace's node")
        size = os.lseek(fd, 0, os.SEEK_END)
        if size != SIZE_BYTES:
            expected = f"an extension namespace, which has {SIZE_BYTES} bytes"
            raise HostError(f"it has {size} bytes", str(path), expected)
    except BaseException:
        os.close(fd)
        raise
    return fd
