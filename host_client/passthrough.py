"""Hints through the kernel: vendor commands by ioctl on `/dev/ngXnY` or `/dev/nvmeXnY`.

Linux lets CAP_SYS_ADMIN send commands with opcodes of 80h and above, and nobody else. The calls
block, so they run in threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Callable

from prestage.ext import layout
from prestage.ext.names import Carrier, Fault, Query
from prestage.ext.pages import Capability, find_capability
from prestage.host_client import nvme
from prestage.host_client.device_node import DeviceNode
from prestage.host_client.errors import BatchRefused, HostError, NotSupported, NvmeError
from prestage.host_client.hint_carrier import Taken
from prestage.host_client.status import INVALID_FIELD

COMMAND = struct.Struct("<BBHIIIQQII6IIIQ")
"""struct nvme_passthru_cmd64 of linux/nvme_ioctl.h."""
ADMIN_COMMAND = 0xC0504E47
IO_COMMAND = 0xC0504E48
"""NVME_IOCTL_ADMIN64_CMD and NVME_IOCTL_IO64_CMD: _IOWR('N', 47h and 48h, 80 bytes)."""
NAMESPACE_ID = 0x4E40
"""NVME_IOCTL_ID: the NSID of the node, as the call's result."""
RESULT_OFFSET = 72
TIMEOUT_MS = 10_000

Ioctl = Callable[[int, int, bytearray], int]


def _ioctl(fd: int, request: int, argument: bytearray) -> int:
    answer: int = fcntl.ioctl(fd, request, argument) if argument else fcntl.ioctl(fd, request)
    return answer


class PassthroughCarrier(DeviceNode):
    """Hints by passthrough on a device node of a namespace. Raises OSError as the kernel does."""

    def __init__(self, path: str | os.PathLike[str], *, ioctl: Ioctl = _ioctl) -> None:
        super().__init__(path)
        self._ioctl = ioctl
        self._nsid = 0
        self._capability: Capability | None = None

    async def open(self) -> None:
        """Open the node and identify its controller."""
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        # Commands with data for the controller want a node that is open for writing.
        self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._nsid = self._namespace_id()
            page = bytearray(nvme.PAGE_BYTES)
            self._run(ADMIN_COMMAND, nvme.Admin.IDENTIFY, page, cdw10=nvme.Cns.CONTROLLER, nsid=0)
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise
        self._capability = find_capability(page)

    def _namespace_id(self) -> int:
        try:
            return self._ioctl(self._fd, NAMESPACE_ID, bytearray())
        except OSError as error:
            if error.errno != errno.ENOTTY:
                raise
            expected = "that of a namespace, such as /dev/ng0n1"
            raise HostError("it is no device of NVMe", self.where, expected) from None

    async def capability(self) -> Capability | None:
        """Return what Identify Controller has said."""
        return self._capability

    async def submit(self, batch: bytes, mailbox: int) -> Taken | None:
        """Send a batch by the submit opcode."""
        capability = self._required()
        try:
            result = await asyncio.to_thread(
                self._run,
                IO_COMMAND,
                capability.submit_opcode,
                bytearray(batch),
                cdw10=mailbox,
            )
        except PassthroughError as error:
            if error.sct << 8 | error.sc == INVALID_FIELD and error.result >> 32:
                fault = Fault(error.result >> 32)
                raise BatchRefused(fault.name.lower(), error.dw0, self.where) from None
            raise
        return Taken(result & 0xFFFF, result >> 16 & 0xFFFF, result >> 32)

    async def answer(self, mailbox: int) -> bytes:
        """Return the answer page of a mailbox."""
        return await self._query(Query.MAILBOX, mailbox)

    async def status(self) -> bytes:
        """Return the status page."""
        return await self._query(Query.STATUS)

    async def _query(self, query: int, mailbox: int = 0) -> bytes:
        opcode = self._required().query_opcode
        page = bytearray(layout.PAGE_BYTES)
        await asyncio.to_thread(self._run, IO_COMMAND, opcode, page, cdw10=query, cdw11=mailbox)
        return bytes(page)

    async def events(self, *, clear: bool) -> bytes:
        """Return the warm-event log."""
        capability = self._required()
        if not capability.event_log:
            raise NotSupported("there is no warm-event log", self.where)
        page = bytearray(layout.PAGE_BYTES)
        numd = layout.PAGE_BYTES // 4 - 1
        await asyncio.to_thread(
            self._run,
            ADMIN_COMMAND,
            nvme.Admin.GET_LOG_PAGE,
            page,
            nsid=0,
            cdw10=capability.event_log | (not clear) << 15 | numd << 16,
            cdw14=capability.uuid_index,
        )
        return bytes(page)

    async def wait_event(self) -> None:
        """Raise `NotSupported`: the kernel tells vendor events by uevents only."""
        raise NotSupported("the kernel does not pass warm events on", self.where)

    def _required(self) -> Capability:
        capability = self._capability
        if capability is None:
            raise NotSupported("the target does not speak PAX", self.where)
        if not capability.carriers & Carrier.SUBMIT_QUERY:
            raise NotSupported("the target has no vendor opcodes", self.where)
        return capability

    def _run(
        self,
        request: int,
        opcode: int,
        data: bytearray,
        *,
        nsid: int | None = None,
        cdw10: int = 0,
        cdw11: int = 0,
        cdw14: int = 0,
    ) -> int:
        """Carry out a command whose data is `data`, either way; return DW0 | DW1 << 32.

        Raises `PassthroughError`, OSError.
        """
        assert data, "every command here moves data"
        memory = (ctypes.c_char * len(data)).from_buffer(data)
        command = bytearray(
            COMMAND.pack(
                opcode,
                0,
                0,
                self._nsid if nsid is None else nsid,
                0,
                0,
                0,
                ctypes.addressof(memory),
                0,
                len(data),
                cdw10,
                cdw11,
                0,
                0,
                cdw14,
                0,
                TIMEOUT_MS,
                0,
                0,
            )
        )
        with self._lock:
            status = self._ioctl(self._fd, request, command)
        (result,) = struct.unpack_from("<Q", command, RESULT_OFFSET)
        if status:
            raise PassthroughError(status, self.where, result)
        return int(result)


class PassthroughError(NvmeError):
    """A status that came by the ioctl; `result` is DW0 | DW1 << 32."""

    def __init__(self, status: int, where: str, result: int) -> None:
        super().__init__(status, where, result & 0xFFFFFFFF)
        self.result = result
