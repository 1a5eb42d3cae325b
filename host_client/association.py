"""An association: the admin queue and the I/O queues of one controller, from Connect to its end.

It is made once and ends once; who wants it back makes another (`prestage.host_client.link`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from prestage.ext.pages import Capability, find_capability
from prestage.host_client import nvme
from prestage.host_client.address import Address
from prestage.host_client.engine import Memory, Transfer
from prestage.host_client.errors import (
    ConnectFailed,
    ConnectionLost,
    HostError,
    NvmeError,
    RequestTimeout,
)
from prestage.host_client.options import Options
from prestage.host_client.queue import Queue, open_queue
from prestage.host_client.status import connect_refusal, connect_status_name

ADMIN_SLOTS = 31
"""Of 32 entries, one stays empty while SQ flow control is used."""
READY_POLL_S = 0.01
SHUTDOWN_S = 1.0
LONGEST_TRANSFER = 4 << 20
"""Of one command, where the controller has no limit of its own."""


@dataclass(slots=True)
class Properties:
    """What the CAP property says (Base 2.0, figure 36)."""

    queue_entries: int
    """Of a queue at most, 0-based (MQES)."""
    ready_timeout_s: float
    page_bytes: int
    """The unit of MDTS (MPSMIN)."""


class Association:
    """A controller that is ready, with its queues. `open_association` makes one."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self.admin: Queue
        self.io: list[Queue] = []
        self.cntlid = nvme.DYNAMIC_CONTROLLER
        self.identity: nvme.ControllerIdentity
        self.max_transfer_bytes = LONGEST_TRANSFER
        self.lost: ConnectionLost | None = None
        self.on_lost: Callable[[ConnectionLost], None] = _ignore
        self.capability: Capability | None = None
        """What the controller offers of PAX."""
        self._properties: Properties
        self._aborts: set[int] = set()
        """CIDs of the Aborts that the controller has not answered."""
        self._abort_limit = 1

    # ---- making it ----

    async def open(self) -> None:
        """Connect, enable the controller, identify it, connect the I/O queues."""
        self.admin = await self._queue(0, ADMIN_SLOTS, ADMIN_SLOTS)
        cap = await self.property_get(nvme.Property.CAP)
        self._properties = Properties(
            cap & 0xFFFF, (cap >> 24 & 0xFF) * 0.5, 1 << 12 + (cap >> 48 & 0xF)
        )
        await self._property_set(nvme.Property.CC, nvme.CC_ENABLED)
        await self._wait_ready()
        page = await self.admin_read(
            nvme.entry(nvme.Admin.IDENTIFY, cdw10=nvme.Cns.CONTROLLER), nvme.PAGE_BYTES
        )
        self.identity = nvme.parse_controller(page)
        self._abort_limit = self.identity.abort_limit
        self.capability = find_capability(page)
        if self.identity.mdts:
            limit = self._properties.page_bytes << self.identity.mdts
            self.max_transfer_bytes = min(limit, LONGEST_TRANSFER)
        if self.options.queues:
            await self._open_io_queues()

    async def _open_io_queues(self) -> None:
        wanted = self.options.queues - 1
        answer = await self.admin_command(
            nvme.entry(nvme.Admin.SET_FEATURES, cdw10=nvme.Fid.QUEUES, cdw11=wanted | wanted << 16)
        )
        count = min(wanted, answer.dw0 & 0xFFFF) + 1
        depth = min(self.options.queue_depth, self._properties.queue_entries)
        for qid in range(1, count + 1):
            queue = await self._queue(qid, depth, depth)
            queue.in_capsule_bytes = self.identity.in_capsule_bytes
            self.io.append(queue)

    async def _queue(self, qid: int, slots: int, sqsize: int) -> Queue:
        """Open a queue and send its Connect."""
        options = self.options
        queue = await open_queue(
            self.address.host,
            self.address.port,
            slots=slots,
            digests=options.digests,
            timeout_s=options.timeout_s,
        )
        queue.qid = qid
        queue.on_lost = self._lose
        try:
            await self._connect(queue, sqsize)
        except BaseException:
            queue.close(ConnectionLost("given up while connecting"))
            raise
        queue.on_stuck = lambda cid: self._abort(queue, cid)
        return queue

    async def _connect(self, queue: Queue, sqsize: int) -> None:
        options = self.options
        data = nvme.connect_data(
            options.host_id_bytes, self.cntlid, self.address.nqn, options.host_nqn
        )
        entry = nvme.connect_entry(
            queue.qid,
            sqsize,
            kato_ms=0 if queue.qid else round(options.keep_alive_s * 1000),
            cattr=0 if options.sq_flow_control else nvme.CATTR_NO_FLOW_CONTROL,
        )
        memory = Memory(data, writable=False)
        answer = await queue.execute(entry, Transfer.IN_CAPSULE, memory)
        if not answer.ok:
            raise ConnectRefused(answer, f"{queue.name} of {self.address}")
        if queue.qid == 0:
            self.cntlid = answer.dw0 & 0xFFFF

    async def _wait_ready(self) -> None:
        limit = asyncio.get_running_loop().time() + self._properties.ready_timeout_s
        while True:
            csts = await self.property_get(nvme.Property.CSTS)
            if csts & nvme.CSTS_FATAL:
                raise ConnectFailed(f"the controller failed, CSTS {csts:X}h", str(self.address))
            if csts & nvme.CSTS_READY:
                return
            if asyncio.get_running_loop().time() > limit:
                text = f"the controller is not ready after {self._properties.ready_timeout_s:g} s"
                raise ConnectFailed(text, str(self.address))
            await asyncio.sleep(READY_POLL_S)

    # ---- admin commands ----

    async def admin_command(self, entry: bytes) -> nvme.Completion:
        """Carry out an admin command without data. Raises `NvmeError`."""
        answer = await self.admin.execute(entry)
        if not answer.ok:
            raise NvmeError(answer.status, _admin_name(entry), answer.dw0)
        return answer

    async def admin_read(self, entry: bytes, size_bytes: int) -> bytes:
        """Carry out an admin command that returns data. Raises `NvmeError`, `HostError`."""
        data = bytearray(size_bytes)
        answer = await self.admin.execute(
            entry, Transfer.FROM_CONTROLLER, Memory(data, writable=True), is_read=True
        )
        if not answer.ok:
            raise NvmeError(answer.status, _admin_name(entry), answer.dw0)
        if answer.transferred != size_bytes:
            text = f"{answer.transferred} bytes came"
            raise HostError(text, _admin_name(entry), f"{size_bytes} bytes")
        return bytes(data)

    async def property_get(self, offset: int) -> int:
        """Return a property. Raises `NvmeError`."""
        answer = await self.admin_command(nvme.property_get_entry(offset))
        return answer.dw0 | answer.dw1 << 32

    async def _property_set(self, offset: int, value: int) -> None:
        await self.admin_command(nvme.property_set_entry(offset, value))

    def _abort(self, queue: Queue, cid: int) -> None:
        """Ask the controller to end an overdue command, as often as it allows at a time.

        Whatever it says: either the command ends, or its second timeout ends everything. The Abort
        names the command by its CID (Base 2.0, 5.1) and may reach the controller when that command
        has ended; so no other gets the CID before the Abort was answered.
        """
        if len(self._aborts) >= self._abort_limit or self.admin.room < 1:
            return
        if queue is self.admin and cid in self._aborts:
            return
        abort = self.admin.submit(
            nvme.entry(nvme.Admin.ABORT, cdw10=queue.qid | cid << 16),
            Transfer.NONE,
            None,
            on_answer=lambda: self._aborted(abort.slot, queue, cid),
        )
        abort.future.cancel()  # Nobody waits.
        self._aborts.add(abort.slot)
        queue.keep(cid)

    def _aborted(self, abort: int, queue: Queue, cid: int) -> None:
        """The controller has answered an Abort."""
        self._aborts.remove(abort)
        queue.let_go(cid)

    # ---- its end ----

    def close(self, error: ConnectionLost) -> None:
        """Close every connection; requests under way end with `error`."""
        self.lost = self.lost or error
        for queue in self.queues:
            queue.close(error)

    async def shut_down(self) -> None:
        """Tell the controller to shut down, and wait a moment until it has (Base 2.0, 3.6.1)."""
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S):
                await self._property_set(nvme.Property.CC, nvme.CC_SHUTDOWN)
                while True:
                    csts = await self.property_get(nvme.Property.CSTS)
                    if csts & nvme.CSTS_SHUTDOWN_MASK == nvme.CSTS_SHUTDOWN_DONE:
                        return
                    await asyncio.sleep(READY_POLL_S)

    @property
    def queues(self) -> list[Queue]:
        """All queues, the admin queue last."""
        return [*self.io, *([self.admin] if hasattr(self, "admin") else [])]

    def _lose(self, error: HostError) -> None:
        """One connection has ended: the association ends with it."""
        if self.lost is None:
            assert isinstance(error, ConnectionLost)
            self.close(error)
            self.on_lost(error)


class ConnectRefused(ConnectFailed, NvmeError):
    """The target refuses a Connect command; `dnr` says whether to try again makes sense."""

    def __init__(self, answer: nvme.Completion, where: str) -> None:
        NvmeError.__init__(self, answer.status, where, answer.dw0)
        self.name = connect_status_name(answer.status)
        words = connect_refusal(answer.status, answer.dw0)
        self.what = f"{words}: {self.name} ({self.sct:X}/{self.sc:02X}, DW0 {answer.dw0:X}h)"
        self.args = (f"{where}: {self.what}",)


async def open_association(address: Address, options: Options) -> Association:
    """Make an association. Raises `ConnectFailed`, `ConnectionLost`, `RequestTimeout`, `NvmeError`.

    Whatever is raised or cancelled, nothing of it stays open.
    """
    association = Association(address, options)
    try:
        async with asyncio.timeout(options.timeout_s):
            await association.open()
    except TimeoutError as error:
        association.close(ConnectionLost("given up while connecting"))
        if isinstance(error, RequestTimeout):
            raise
        text = f"no association in {options.timeout_s:g} s"
        raise RequestTimeout(text, str(address)) from None
    except BaseException:
        association.close(ConnectionLost("given up while connecting"))
        raise
    return association


def _admin_name(entry: bytes) -> str:
    try:
        return nvme.Admin(entry[0]).name.replace("_", " ").title()
    except ValueError:
        return f"admin command {entry[0]:02X}h"


def _ignore(_: ConnectionLost) -> None:
    """Do nothing: nobody has asked to be told."""
