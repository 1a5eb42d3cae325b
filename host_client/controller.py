"""An NVMe-over-TCP initiator for asyncio: `async with connect(URL) as controller`.

A controller may be used by many tasks at a time. Buffers are lent to a request until it returns or
raises, cancellation included: after that nothing writes to them and nothing is read from them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from prestage.host_client import nvme
from prestage.host_client.address import Address, parse_url
from prestage.host_client.errors import InvalidRequest, NvmeError, ProtocolError
from prestage.host_client.link import EventHandler, Link
from prestage.host_client.nvme import Completion, Namespace
from prestage.host_client.options import Options
from prestage.host_client.split import Extent, all_of, as_bytes, extent_of, pieces
from prestage.host_client.status import COMPARE_FAILURE

REPEATABLE = frozenset((nvme.Io.READ, nvme.Io.COMPARE, nvme.Io.VERIFY))
"""I/O opcodes that are sent again when the connection is lost under them.

Not Write and its kin: what was lost with the connection may still be carried out, after newer data
was written. Not Flush: a target that was started again knows nothing of what it is to flush.
"""


class Controller:
    """A connection to a subsystem; `connect` makes one.

    `connected` is an event that is set while there is an association; `wait_connected` waits for
    it, or raises `ConnectionLost` when the controller is given up.

    All requests raise `InvalidRequest` (nothing was sent), `NvmeError` (the controller said no),
    `ConnectionLost`, `ProtocolError`, `RequestTimeout`, `DigestError`. While the controller is away
    they wait for it.
    """

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self._link = Link(address, options)
        self._namespaces: dict[int, Namespace] = {}
        self._link.on_event.append(self._on_event)
        self._link.on_connect.append(self._namespaces.clear)

    async def open(self) -> Self:
        """Connect; `async with` does it. Raises `ConnectFailed` and what requests raise."""
        await self._link.open()
        return self

    async def close(self) -> None:
        """Shut down and close; `async with` does it."""
        await self._link.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ---- the connection ----

    @property
    def connected(self) -> asyncio.Event:
        """Set while there is an association."""
        return self._link.connected

    async def wait_connected(self) -> None:
        """Wait until there is an association. Raises `ConnectionLost` when it is given up."""
        await self._link.wait_connected()

    @property
    def connects(self) -> int:
        """Associations made so far: 1 after the first, one more with every reconnect."""
        return self._link.connects

    @property
    def identity(self) -> nvme.ControllerIdentity:
        """Identify Controller of now. Raises `ConnectionLost`."""
        return self._link.association.identity

    @property
    def max_transfer_bytes(self) -> int:
        """What one command carries at most; reads and writes are split by themselves."""
        return self._link.association.max_transfer_bytes

    @property
    def queue_count(self) -> int:
        """I/O queues of now. Raises `ConnectionLost`."""
        return len(self._link.association.io)

    def on_event(self, tell: EventHandler) -> None:
        """Call `tell` with DW0 of every asynchronous event (Base 2.0, figure 147)."""
        self._link.on_event.append(tell)

    def on_connect(self, tell: Any) -> None:
        """Call `tell` without arguments after every reconnect."""
        self._link.on_connect.append(tell)

    # ---- namespaces ----

    async def namespaces(self) -> list[Namespace]:
        """Return the active namespaces, by NSID."""
        found: list[Namespace] = []
        start = 0
        while True:
            entry = nvme.entry(nvme.Admin.IDENTIFY, start, cdw10=nvme.Cns.ACTIVE_NAMESPACES)
            page = await self._link.association.admin_read(entry, nvme.PAGE_BYTES)
            numbers = [number for (number,) in struct.iter_unpack("<I", page) if number]
            found += [await self.namespace(number) for number in numbers]
            if len(numbers) < nvme.PAGE_BYTES // 4:
                return found
            start = numbers[-1]

    async def namespace(self, nsid: int) -> Namespace:
        """Return a namespace. Raises `InvalidRequest` when it is not active."""
        known = self._namespaces.get(nsid)
        if known is not None:
            return known
        await self.wait_connected()
        entry = nvme.entry(nvme.Admin.IDENTIFY, nsid, cdw10=nvme.Cns.NAMESPACE)
        page = await self._link.association.admin_read(entry, nvme.PAGE_BYTES)
        namespace = nvme.parse_namespace(nsid, page)
        if namespace is None:
            raise InvalidRequest(f"there is no namespace {nsid}", str(self.address))
        self._namespaces[nsid] = namespace
        return namespace

    def _on_event(self, dw0: int) -> None:
        kind, info, lid = dw0 & 7, dw0 >> 8 & 0xFF, dw0 >> 16 & 0xFF
        if (kind, info) != (nvme.AER_NOTICE, nvme.AER_NAMESPACE_CHANGED):
            return
        self._namespaces.clear()
        # Reading the log is what lets the controller tell the next change (Base 2.0, 5.16.1.5).
        self._link.read_log_later(nvme.get_log_entry(lid, nvme.PAGE_BYTES), nvme.PAGE_BYTES)

    # ---- reads and writes ----

    async def read(
        self,
        nsid: int,
        offset: int | None = None,
        length: int | None = None,
        *,
        slba: int | None = None,
        nlb: int | None = None,
        into: Any = None,
        access: int = nvme.Access.NONE,
        fua: bool = False,
    ) -> Any:
        """Read blocks; return `into`, or a new bytearray.

        By bytes (`offset`, `length`, multiples of the block size) or by blocks (`slba`, `nlb`). The
        size may be left to `into`: any writable contiguous buffer, filled whole. `access` is the
        access frequency of CDW13 (`nvme.Access`). Large reads go as several commands at a time.
        """
        namespace = self._namespaces.get(nsid) or await self.namespace(nsid)
        view = None if into is None else as_bytes(into, "into", writable=True)
        if length is None and nlb is None and view is not None:
            length = len(view)
        extent = extent_of(namespace, offset=offset, length=length, slba=slba, nlb=nlb)
        size = extent.nlb * namespace.block_bytes
        if into is None:
            into = bytearray(size)
            view = memoryview(into)
        assert view is not None
        if len(view) != size:
            raise InvalidRequest(f"found {len(view)} bytes", "into", f"{size} bytes")
        control = nvme.FORCE_UNIT_ACCESS if fua else 0
        await self._move(
            nvme.Io.READ, namespace, extent, view, control=control, cdw13=access, is_read=True
        )
        return into

    async def write(
        self,
        nsid: int,
        data: Any,
        offset: int | None = None,
        *,
        slba: int | None = None,
        fua: bool = False,
    ) -> None:
        """Write `data`, a contiguous buffer of whole blocks, at a byte offset or a block.

        `fua`: it is on the medium when this returns. What lies between two commands of a large
        write is not atomic. When the connection is lost, it may have been written or not.
        """
        view = as_bytes(data, "data")
        namespace = self._namespaces.get(nsid) or await self.namespace(nsid)
        extent = extent_of(namespace, offset=offset, length=len(view), slba=slba, nlb=None)
        control = nvme.FORCE_UNIT_ACCESS if fua else 0
        await self._move(nvme.Io.WRITE, namespace, extent, view, control=control)

    async def compare(
        self, nsid: int, data: Any, offset: int | None = None, *, slba: int | None = None
    ) -> bool:
        """Return whether the blocks hold `data`; the controller compares."""
        view = as_bytes(data, "data")
        namespace = self._namespaces.get(nsid) or await self.namespace(nsid)
        extent = extent_of(namespace, offset=offset, length=len(view), slba=slba, nlb=None)
        try:
            await self._move(nvme.Io.COMPARE, namespace, extent, view)
        except NvmeError as error:
            if error.sct << 8 | error.sc == COMPARE_FAILURE:
                return False
            raise
        return True

    async def _move(
        self,
        opcode: int,
        namespace: Namespace,
        extent: Extent,
        view: memoryview,
        *,
        control: int = 0,
        cdw13: int = 0,
        is_read: bool = False,
    ) -> None:
        most = self._max_transfer()
        nsid, block = namespace.nsid, namespace.block_bytes
        if len(view) <= most:
            entry = nvme.block_entry(
                opcode, nsid, extent.slba, extent.nlb, control=control, cdw13=cdw13
            )
            await self._transfer(entry, view, is_read=is_read)
            return
        await all_of(
            [
                self._transfer(
                    nvme.block_entry(opcode, nsid, one.slba, one.nlb, control=control, cdw13=cdw13),
                    view[place],
                    is_read=is_read,
                )
                for one, place in pieces(extent, block, most)
            ]
        )

    async def _transfer(self, entry: bytes, view: memoryview, *, is_read: bool) -> None:
        """Carry out a command that moves exactly the bytes of `view`."""
        answer = await self._link.execute(
            entry, view, is_read=is_read, repeat=entry[0] in REPEATABLE
        )
        self._require(answer, entry)
        if answer.transferred != len(view):
            text = f"success, and {answer.transferred} of {len(view)} bytes"
            raise ProtocolError(text, io_name(entry))

    def _max_transfer(self) -> int:
        association = self._link.current
        return nvme.PAGE_BYTES if association is None else association.max_transfer_bytes

    def _require(self, answer: Completion, entry: bytes) -> None:
        if not answer.ok:
            raise NvmeError(answer.status, io_name(entry), answer.dw0)

    # ---- commands without data of their own ----

    async def flush(self, nsid: int) -> None:
        """Wait until all writes that have ended are on the medium."""
        entry = nvme.entry(nvme.Io.FLUSH, nsid)
        self._require(await self._link.execute(entry), entry)

    async def write_zeroes(
        self,
        nsid: int,
        offset: int | None = None,
        length: int | None = None,
        *,
        slba: int | None = None,
        nlb: int | None = None,
        deallocate: bool = False,
    ) -> None:
        """Make blocks read as zeros without sending any; `deallocate`: they may lose their room."""
        namespace = await self.namespace(nsid)
        extent = extent_of(namespace, offset=offset, length=length, slba=slba, nlb=nlb)
        control = nvme.DEALLOCATE if deallocate else 0
        for one, _ in pieces(extent, 1, nvme.MAX_BLOCKS):
            entry = nvme.block_entry(nvme.Io.WRITE_ZEROES, nsid, one.slba, one.nlb, control=control)
            self._require(await self._link.execute(entry), entry)

    async def deallocate(self, nsid: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Tell that nobody needs the contents of `ranges`, pairs of SLBA and NLB, any more."""
        await self.dataset(nsid, ranges, deallocate=True)

    async def dataset(
        self,
        nsid: int,
        ranges: Iterable[tuple[int, int]],
        *,
        integral_read: bool = False,
        integral_write: bool = False,
        deallocate: bool = False,
        attributes: int = 0,
    ) -> None:
        """Dataset Management (NVM 1.0, 3.2.3) of `ranges`, pairs of SLBA and NLB.

        `attributes` are the context attributes of every range. More than 256 ranges go as several
        commands, each of which is a set of its own.
        """
        every = list(ranges)
        cdw11 = (
            (nvme.INTEGRAL_READ if integral_read else 0)
            | (nvme.INTEGRAL_WRITE if integral_write else 0)
            | (nvme.RANGES_DEALLOCATE if deallocate else 0)
        )
        for start in range(0, len(every), nvme.MAX_RANGES):
            some = every[start : start + nvme.MAX_RANGES]
            entry = nvme.entry(nvme.Io.DATASET_MANAGEMENT, nsid, cdw10=len(some) - 1, cdw11=cdw11)
            try:
                data = nvme.dataset_ranges(some, attributes)
            except struct.error as error:
                raise InvalidRequest(f"{error}", "ranges", "pairs of SLBA and NLB") from None
            self._require(await self._link.execute(entry, data), entry)

    # ---- anything ----

    async def command(
        self,
        opcode: int,
        *,
        nsid: int = 0,
        cdw2: int = 0,
        cdw3: int = 0,
        cdw10: int = 0,
        cdw11: int = 0,
        cdw12: int = 0,
        cdw13: int = 0,
        cdw14: int = 0,
        cdw15: int = 0,
        data: Any = None,
        read_bytes: int = 0,
        admin: bool = False,
    ) -> Completion:
        """Carry out any command; its completion is returned whatever the status is.

        `data` is sent to the controller; or up to `read_bytes` come from it, in `.data`. Nothing is
        split or checked, and nothing is sent twice.
        """
        try:
            entry = nvme.entry(
                opcode,
                nsid,
                cdw2=cdw2,
                cdw3=cdw3,
                cdw10=cdw10,
                cdw11=cdw11,
                cdw12=cdw12,
                cdw13=cdw13,
                cdw14=cdw14,
                cdw15=cdw15,
            )
        except struct.error as error:
            raise InvalidRequest(f"{error}", "command", "32-bit numbers") from None
        return await self.raw(entry, data=data, read_bytes=read_bytes, admin=admin)

    async def raw(
        self,
        entry: bytes,
        *,
        data: Any = None,
        read_bytes: int = 0,
        admin: bool = False,
        repeat: bool = False,
    ) -> Completion:
        """As `command`, of the 64 bytes of a submission queue entry (fabrics commands too)."""
        if data is not None and read_bytes:
            raise InvalidRequest("found both", "data and read_bytes", "one of them")
        place: Any = bytearray(read_bytes) if read_bytes else None
        if data is not None:
            place = as_bytes(data, "data") if memoryview(data).nbytes else None
        if admin:
            await self.wait_connected()
            answer = await self._link.execute_admin(entry, place, is_read=bool(read_bytes))
        else:
            answer = await self._link.execute(entry, place, is_read=bool(read_bytes), repeat=repeat)
        if not read_bytes:
            return answer
        return Completion(
            answer.status,
            answer.dw0,
            answer.dw1,
            answer.transferred,
            bytes(place[: answer.transferred]),
        )


def io_name(entry: bytes) -> str:
    """Return the name of an I/O command, for messages."""
    try:
        name = nvme.Io(entry[0]).name.replace("_", " ").title()
    except ValueError:
        name = f"I/O command {entry[0]:02X}h"
    return f"{name} on namespace {int.from_bytes(entry[4:8], 'little')}"


def connect(url: str, **options: Any) -> Controller:
    """Return a controller that `async with` connects: `connect("nvme+tcp://HOST:PORT/NQN")`.

    The keyword arguments are those of `prestage.host_client.options.Options`. Raises
    `InvalidRequest` for a wrong URL or option.
    """
    return Controller(parse_url(url), Options(**options))
