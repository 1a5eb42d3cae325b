"""A namespace as an asynchronous file, as `aiofiles` has them: `async with open_namespace(URL)`.

Byte-granular on top of blocks. A write that begins or ends within a block reads that block first;
so two writers of one block, or a reader of it meanwhile, may see either's bytes: nothing here makes
them atomic, and neither does a kernel block device. Within one file, calls are carried out one
after the other. What is written is on the medium after `flush`, and after `close`.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from prestage.host_client.address import SCHEME
from prestage.host_client.arguments import flag
from prestage.host_client.controller import Controller, connect
from prestage.host_client.errors import HostError, InvalidRequest
from prestage.host_client.nvme import Access
from prestage.host_client.split import as_bytes

BOUNCE_BYTES = 1 << 20
"""An unaligned read up to this size goes through memory of our own, in one command."""


class Blocks(Protocol):
    """What a file is made of. Offsets and sizes are multiples of `block_bytes`."""

    size_bytes: int
    block_bytes: int
    name: str

    async def open(self) -> None:
        """Get ready, and learn the sizes."""

    async def close(self) -> None:
        """Give back what `open` took."""

    async def read(self, offset: int, into: memoryview, *, ahead: bool) -> None:
        """Fill `into`; `ahead`: more will be read behind it."""

    async def write(self, offset: int, data: memoryview) -> None:
        """Write all of `data`."""

    async def flush(self) -> None:
        """Wait until all that was written is on the medium."""


class NamespaceBlocks:
    """A namespace by the initiator; `is_owner`: the controller is opened and closed with it."""

    def __init__(self, controller: Controller, nsid: int, *, is_owner: bool) -> None:
        self._controller = controller
        self._nsid = nsid
        self._is_owner = is_owner
        self.name = f"{controller.address} namespace {nsid}"
        self.size_bytes = 0
        self.block_bytes = 1

    async def open(self) -> None:
        """Connect, and identify the namespace."""
        if self._is_owner:
            await self._controller.open()
        try:
            namespace = await self._controller.namespace(self._nsid)
        except BaseException:
            await self.close()
            raise
        self.size_bytes, self.block_bytes = namespace.size_bytes, namespace.block_bytes

    async def close(self) -> None:
        """Close the controller, if it is ours."""
        if self._is_owner:
            await self._controller.close()

    async def read(self, offset: int, into: memoryview, *, ahead: bool) -> None:
        """Read blocks."""
        access = Access.SPECULATIVE if ahead else Access.NONE
        await self._controller.read(self._nsid, offset, into=into, access=access)

    async def write(self, offset: int, data: memoryview) -> None:
        """Write blocks."""
        await self._controller.write(self._nsid, data, offset)

    async def flush(self) -> None:
        """Send a Flush."""
        await self._controller.flush(self._nsid)


class NodeBlocks:
    """A kernel block device, or a file, by its path; the kernel's page cache knows no blocks."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._fd = -1
        self._calls: set[asyncio.Future[Any]] = set()
        self.name = str(self._path)
        self.size_bytes = 0
        self.block_bytes = 1

    async def open(self) -> None:
        """Open the node."""
        self._fd = await asyncio.to_thread(os.open, self._path, os.O_RDWR | os.O_CLOEXEC)
        self.size_bytes = os.lseek(self._fd, 0, os.SEEK_END)

    async def close(self) -> None:
        """Close the node, once no thread uses it."""
        await asyncio.gather(*self._calls, return_exceptions=True)
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    async def read(self, offset: int, into: memoryview, *, ahead: bool) -> None:
        """Read bytes."""
        own = bytearray(len(into))  # The thread may outlive who waits for it.
        await self._in_thread(self._pread, offset, own)
        into[:] = own

    async def write(self, offset: int, data: memoryview) -> None:
        """Write bytes."""
        await self._in_thread(self._pwrite, offset, bytes(data))

    async def flush(self) -> None:
        """Sync the device."""
        await self._in_thread(os.fsync, self._fd)

    async def _in_thread(self, function: Any, *arguments: Any) -> None:
        call = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        # Cancelling the caller must not hide from `close` that the thread still runs.
        await asyncio.shield(call)

    def _pread(self, offset: int, into: bytearray) -> None:
        done = 0
        view = memoryview(into)
        while done < len(view):
            count = os.preadv(self._fd, [view[done:]], offset + done)
            if count == 0:
                raise HostError(f"it ends at byte {offset + done}", self.name)
            done += count

    def _pwrite(self, offset: int, data: bytes) -> None:
        done = 0
        view = memoryview(data)
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], offset + done)


class NamespaceFile:
    """A binary file of fixed size over blocks; `open_namespace` makes one.

    Methods are those of aiofiles' binary files. Reads end at the end of the namespace, as those of
    files do; a write beyond it raises OSError (ENOSPC) and writes nothing. Methods raise what the
    initiator raises (`HostError`), OSError for a node, and ValueError when the file is closed.
    """

    def __init__(self, blocks: Blocks, *, read_ahead: bool = False) -> None:
        self._blocks = blocks
        self._read_ahead = flag(read_ahead, "read_ahead")
        self._position = 0
        self._next = 0
        """Where the last read ended: one that begins there continues it."""
        self._is_dirty = False
        self._is_open = False
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._blocks.open()
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def closed(self) -> bool:
        """Whether it is closed, or not open yet."""
        return not self._is_open

    @property
    def name(self) -> str:
        """What it is a file of."""
        return self._blocks.name

    @property
    def mode(self) -> str:
        """As of `open`."""
        return "rb+"

    @property
    def size_bytes(self) -> int:
        """The size, which does not change."""
        return self._blocks.size_bytes

    async def close(self) -> None:
        """Flush, if something was written, and close; `async with` does it."""
        async with self._lock:
            if not self._is_open:
                return
            try:
                if self._is_dirty:
                    await self._blocks.flush()
            finally:
                self._is_open = False
                await self._blocks.close()

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position; return it. It may be beyond the end. Raises ValueError below zero."""
        async with self._lock:
            self._require_open()
            starts = {
                os.SEEK_SET: 0,
                os.SEEK_CUR: self._position,
                os.SEEK_END: self._blocks.size_bytes,
            }
            if whence not in starts:
                raise InvalidRequest(f"found {whence}", "whence", "0, 1 or 2")
            position = starts[whence] + offset
            if position < 0:
                raise InvalidRequest(f"found {position}", "position", "0 or more")
            self._position = position
            return position

    async def tell(self) -> int:
        """Return the position."""
        self._require_open()
        return self._position

    async def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end; all that are left when negative."""
        async with self._lock:
            self._require_open()
            left = max(0, self._blocks.size_bytes - self._position)
            count = left if size is None or size < 0 else min(size, left)
            data = bytearray(count)
            await self._read(self._position, memoryview(data))
            self._position += count
            return bytes(data)

    async def readall(self) -> bytes:
        """Return all bytes that are left."""
        return await self.read()

    async def readinto(self, buffer: Any) -> int:
        """Fill a writable contiguous buffer; return how many bytes it got: all, but at the end."""
        # Views end here and below, or whoever keeps our exception would keep the caller's buffer.
        with as_bytes(buffer, "buffer", writable=True) as view:
            async with self._lock:
                self._require_open()
                count = min(len(view), max(0, self._blocks.size_bytes - self._position))
                with view[:count] as into:
                    await self._read(self._position, into)
                self._position += count
                return count

    async def write(self, data: Any) -> int:
        """Write a contiguous buffer, all of it; return its size in bytes."""
        with as_bytes(data, "data") as view:
            async with self._lock:
                self._require_open()
                if self._position + len(view) > self._blocks.size_bytes:
                    raise OSError(errno.ENOSPC, "a write beyond the end", self._blocks.name)
                await self._write(self._position, view)
                self._position += len(view)
                return len(view)

    async def writelines(self, lines: Iterable[Any]) -> None:
        """Write several buffers, one behind the other."""
        for line in lines:
            await self.write(line)

    async def flush(self) -> None:
        """Wait until all that was written is on the medium."""
        async with self._lock:
            self._require_open()
            await self._blocks.flush()
            self._is_dirty = False

    async def truncate(self, size: int | None = None) -> int:
        """Raise io.UnsupportedOperation: a namespace has the size it has."""
        raise io.UnsupportedOperation(f"{self._blocks.name}: its size does not change")

    async def readable(self) -> bool:
        """Return True."""
        return True

    async def writable(self) -> bool:
        """Return True."""
        return True

    async def seekable(self) -> bool:
        """Return True."""
        return True

    async def isatty(self) -> bool:
        """Return False."""
        return False

    # ---- bytes onto blocks ----

    def _require_open(self) -> None:
        if not self._is_open:
            raise ValueError(f"{self._blocks.name}: the file is closed")

    async def _read(self, offset: int, into: memoryview) -> None:
        if not into:
            return
        ahead = self._read_ahead and offset == self._next
        block = self._blocks.block_bytes
        end = offset + len(into)
        first, last = offset // block * block, -(-end // block) * block
        if (first, last) == (offset, end):
            await self._blocks.read(offset, into, ahead=ahead)
        elif last - first <= BOUNCE_BYTES:
            whole = memoryview(bytearray(last - first))
            await self._blocks.read(first, whole, ahead=ahead)
            into[:] = whole[offset - first : end - first]
        else:
            await self._read_long(offset, into, ahead=ahead)
        self._next = end

    async def _read_long(self, offset: int, into: memoryview, *, ahead: bool) -> None:
        """Read whole blocks straight into the caller's memory, and what sticks out beside them."""
        block = self._blocks.block_bytes
        head = -offset % block
        tail = (offset + len(into)) % block
        edge = memoryview(bytearray(block))
        if head:
            await self._blocks.read(offset - (block - head), edge, ahead=ahead)
            into[:head] = edge[block - head :]
        with into[head : len(into) - tail] as body:
            await self._blocks.read(offset + head, body, ahead=ahead)
        if tail:
            await self._blocks.read(offset + len(into) - tail, edge, ahead=ahead)
            into[len(into) - tail :] = edge[:tail]

    async def _write(self, offset: int, data: memoryview) -> None:
        if not data:
            return
        self._is_dirty = True
        block = self._blocks.block_bytes
        head = min(-offset % block, len(data))
        body = (len(data) - head) // block * block
        with data[:head] as first, data[head : head + body] as whole, data[head + body :] as last:
            if first:
                await self._write_part(offset, first)
            if whole:
                await self._blocks.write(offset + head, whole)
            if last:
                await self._write_part(offset + head + body, last)

    async def _write_part(self, offset: int, data: memoryview) -> None:
        """Write within one block: read it, change it, write it."""
        block = self._blocks.block_bytes
        start = offset // block * block
        whole = bytearray(block)
        await self._blocks.read(start, memoryview(whole), ahead=False)
        whole[offset - start : offset - start + len(data)] = data
        await self._blocks.write(start, memoryview(whole))


def open_namespace(
    where: str | os.PathLike[str] | Controller,
    *,
    nsid: int = 1,
    read_ahead: bool = False,
    **options: Any,
) -> NamespaceFile:
    """Return a file over a namespace, for `async with`.

    `where` is a URL (`nvme+tcp://HOST:PORT/NQN`; `options` are those of `connect`), a `Controller`
    that is connected already, or the path of a kernel block device. `read_ahead`: a read that
    continues the one before it tells the target that more will follow (access frequency 7).
    Raises `InvalidRequest`.
    """
    if isinstance(where, Controller):
        return NamespaceFile(NamespaceBlocks(where, nsid, is_owner=False), read_ahead=read_ahead)
    text = os.fspath(where)
    if text.startswith(f"{SCHEME}://"):
        blocks = NamespaceBlocks(connect(text, **options), nsid, is_owner=True)
        return NamespaceFile(blocks, read_ahead=read_ahead)
    if "://" in text:
        raise InvalidRequest(f"found {text!r}", "where", f"{SCHEME}://HOST:PORT/NQN, or a path")
    return NamespaceFile(NodeBlocks(text), read_ahead=read_ahead)
