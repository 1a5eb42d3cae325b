"""A subsystem at the other end: connecting, what it says of itself, and commands of any kind."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from prestage.ext.pages import Capability
from prestage.host_client import nvme
from prestage.host_client.address import Address
from prestage.host_client.arguments import integer
from prestage.host_client.errors import InvalidRequest
from prestage.host_client.link import EventHandler, Link
from prestage.host_client.nvme import Completion, Namespace
from prestage.host_client.options import Options
from prestage.host_client.split import as_bytes

MOST_BYTES = 1 << 31
"""Of the data of one raw command."""


class Connection:
    """A connection to a subsystem: its state, its namespaces, and any command to it."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self._link = Link(address, options)
        self._namespaces: dict[int, Namespace] = {}
        self._generation = 0
        """Of `_namespaces`: one more whenever they may have changed."""
        self._identifying = asyncio.Lock()
        self._link.on_event.append(self._on_event)
        self._link.on_connect.append(self._forget)

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
        return self._link.max_transfer_bytes

    @property
    def queue_count(self) -> int:
        """I/O queues of now. Raises `ConnectionLost`."""
        return len(self._link.association.io)

    @property
    def capability(self) -> Capability | None:
        """What the controller offers of PAX; None: nothing, or there is no association now."""
        association = self._link.current
        return None if association is None else association.capability

    def on_event(self, tell: EventHandler) -> None:
        """Call `tell` with DW0 of every asynchronous event (Base 2.0, figure 147).

        What it raises is reported by the event loop.
        """
        self._link.on_event.append(lambda dw0: _call_soon(tell, dw0))

    def on_connect(self, tell: Any) -> None:
        """Call `tell` without arguments after every reconnect; faults as in `on_event`."""
        self._link.on_connect.append(lambda: _call_soon(tell))

    # ---- namespaces ----

    async def namespaces(self) -> list[Namespace]:
        """Return the active namespaces, by NSID."""
        found: list[Namespace] = []
        start = 0
        while True:
            entry = nvme.entry(nvme.Admin.IDENTIFY, start, cdw10=nvme.Cns.ACTIVE_NAMESPACES)
            page = await self._link.admin_read(entry, nvme.PAGE_BYTES)
            numbers = [number for (number,) in struct.iter_unpack("<I", page) if number]
            found += [await self.namespace(number) for number in numbers]
            if len(numbers) < nvme.PAGE_BYTES // 4:
                return found
            start = numbers[-1]

    async def namespace(self, nsid: int) -> Namespace:
        """Return a namespace. Raises `InvalidRequest` when it is not active."""
        nsid = integer(nsid, "nsid", 1, nvme.ALL_NAMESPACES - 1)
        while (known := self._namespaces.get(nsid)) is None:
            async with self._identifying:
                if nsid not in self._namespaces:
                    await self._identify(nsid)
        return known

    def _known(self, nsid: Any) -> Namespace | None:
        """Return a namespace if it was looked at before."""
        return self._namespaces.get(nsid) if isinstance(nsid, int) else None

    async def _identify(self, nsid: int) -> None:
        """Learn a namespace, unless it may have changed meanwhile."""
        generation = self._generation
        entry = nvme.entry(nvme.Admin.IDENTIFY, nsid, cdw10=nvme.Cns.NAMESPACE)
        page = await self._link.admin_read(entry, nvme.PAGE_BYTES)
        namespace = nvme.parse_namespace(nsid, page)
        if namespace is None:
            raise InvalidRequest(f"there is no namespace {nsid}", str(self.address))
        if generation == self._generation:
            self._namespaces[nsid] = namespace

    def _forget(self) -> None:
        """Namespaces may have changed."""
        self._generation += 1
        self._namespaces.clear()

    def _on_event(self, dw0: int) -> None:
        kind, info, lid = dw0 & 7, dw0 >> 8 & 0xFF, dw0 >> 16 & 0xFF
        if (kind, info) != (nvme.AER_NOTICE, nvme.AER_NAMESPACE_CHANGED):
            return
        self._forget()
        # Reading the log is what lets the controller tell the next change (Base 2.0, 5.16.1.5).
        self._link.read_log_later(nvme.get_log_entry(lid, nvme.PAGE_BYTES), nvme.PAGE_BYTES)

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
            raise InvalidRequest(f"{error}", "command", "an opcode, and 32-bit numbers") from None
        return await self.raw(entry, data=data, read_bytes=read_bytes, admin=admin)

    async def raw(
        self,
        entry: bytes,
        *,
        data: Any = None,
        read_bytes: int = 0,
        admin: bool = False,
    ) -> Completion:
        """As `command`, of the 64 bytes of a submission queue entry (fabrics commands too)."""
        entry = bytes(as_bytes(entry, "entry"))
        if len(entry) != nvme.ENTRY_BYTES:
            raise InvalidRequest(f"found {len(entry)} bytes", "entry", f"{nvme.ENTRY_BYTES} bytes")
        with _place_of(data, integer(read_bytes, "read_bytes", 0, MOST_BYTES)) as place:
            memory, is_read = place or None, data is None
            if admin:
                await self.wait_connected()
                answer = await self._link.execute_admin(entry, memory, is_read=is_read)
            else:
                answer = await self._link.execute(entry, memory, is_read=is_read)
            found = bytes(place[: answer.transferred]) if is_read else b""
        return Completion(answer.status, answer.dw0, answer.dw1, answer.transferred, found)


def _call_soon(tell: Callable[..., None], *what: int) -> None:
    """Call what is not ours by the event loop: when it fails, we go on."""
    asyncio.get_running_loop().call_soon(tell, *what)


def _place_of(data: Any, read_bytes: int) -> memoryview:
    """Return the memory of a raw command, for what is read or of what is sent; it may be empty."""
    if data is None:
        return memoryview(bytearray(read_bytes))
    if read_bytes:
        raise InvalidRequest("found both", "data and read_bytes", "one of them")
    place = as_bytes(data, "data")
    if len(place) > MOST_BYTES:
        raise InvalidRequest(f"found {len(place)} bytes", "data", f"at most {MOST_BYTES}")
    return place
