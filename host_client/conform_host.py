"""The initiator as the conformance kit wants it: raw commands, and no opinion of its own.

An association without keep-alive, events or reconnecting: what is sent is what the kit says.
"""

from __future__ import annotations

from typing import Any, Self

from prestage.ext.conform import Command, Completion
from prestage.host_client import nvme
from prestage.host_client.address import Address
from prestage.host_client.association import Association, open_association
from prestage.host_client.engine import Memory
from prestage.host_client.errors import ConnectionLost
from prestage.host_client.link import transfer_of
from prestage.host_client.options import Options
from prestage.host_client.queue import Queue


class ConformHost:
    """One host of the kit. That there was no answer is a ConnectionError or a TimeoutError."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address = address
        self._options = options
        self._association: Association

    async def open(self) -> Self:
        """Make the association."""
        self._association = await open_association(self._address, self._options)
        return self

    async def close(self) -> None:
        """End the association."""
        await self._association.shut_down()
        self._association.close(ConnectionLost("the association was ended", str(self._address)))

    async def reconnect(self) -> None:
        """End the association and make a new one by the same host; commands under way are lost."""
        await self.close()
        await self.open()

    async def admin(self, command: Command) -> Completion:
        """Run an admin command."""
        return await self._run(self._association.admin, command)

    async def io(self, command: Command) -> Completion:
        """Run an I/O command."""
        return await self._run(self._association.io[0], command)

    async def _run(self, queue: Queue, command: Command) -> Completion:
        entry = nvme.entry(
            command.opcode,
            command.nsid,
            cdw2=command.cdw2,
            cdw3=command.cdw3,
            cdw10=command.cdw10,
            cdw11=command.cdw11,
            cdw12=command.cdw12,
            cdw13=command.cdw13,
            cdw14=command.cdw14,
            cdw15=command.cdw15,
        )
        is_read = bool(command.data_in_bytes)
        data: Any = bytearray(command.data_in_bytes) if is_read else command.data_out
        memory = Memory(data, writable=is_read) if data else None
        is_event = queue.qid == 0 and command.opcode == nvme.Admin.ASYNC_EVENT_REQUEST
        answer = await queue.execute(
            entry,
            transfer_of(queue, memory, is_read=is_read),
            memory,
            is_read=is_read,
            endless=is_event,
        )
        found = bytes(data[: answer.transferred]) if is_read else b""
        return Completion(answer.status, answer.dw0, answer.dw1, found)
