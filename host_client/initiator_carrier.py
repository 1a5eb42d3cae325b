"""Hints over the initiator: the vendor opcodes, or the extension namespace where there are none."""

from __future__ import annotations

import asyncio

from prestage.ext import layout
from prestage.ext.names import Carrier, Fault, Query
from prestage.ext.pages import Capability
from prestage.host_client import nvme
from prestage.host_client.controller import Controller
from prestage.host_client.errors import (
    BatchRefused,
    ConnectionLost,
    NotSupported,
    NvmeError,
    ProtocolError,
)
from prestage.host_client.hint_carrier import Taken
from prestage.host_client.nvme import Completion
from prestage.host_client.status import INVALID_FIELD


class InitiatorCarrier:
    """Hints by a `Controller`, which its owner opens and closes.

    `nsid` is the namespace that vendor commands name, by default the first active one that is not
    the extension namespace.
    """

    def __init__(self, controller: Controller, nsid: int | None = None) -> None:
        self.controller = controller
        self._nsid = nsid
        self._event = asyncio.Event()
        self._asked_on = 0
        controller.on_event(self._on_event)

    @property
    def where(self) -> str:
        """The address of the controller."""
        return str(self.controller.address)

    async def open(self) -> None:
        """Wait for the controller."""
        await self.controller.wait_connected()

    async def close(self) -> None:
        """Leave the controller to its owner."""

    async def capability(self) -> Capability | None:
        """Return what Identify Controller says."""
        await self.controller.wait_connected()
        return self.controller.capability

    async def submit(self, batch: bytes, mailbox: int) -> Taken | None:
        """Send a batch by the submit opcode, else as a page of the extension namespace."""
        capability = await self._required()
        if not self._has_opcodes(capability):
            page = batch.ljust(layout.PAGE_BYTES, b"\0")
            await self._page(capability, page, layout.PAGE_MAILBOXES + mailbox)
            return None
        answer = await self.controller.command(
            capability.submit_opcode,
            nsid=await self._namespace(capability),
            cdw10=mailbox,
            data=batch,
        )
        if answer.status & 0x7FF == INVALID_FIELD and answer.dw1:
            raise BatchRefused(Fault(answer.dw1).name.lower(), answer.dw0, self.where)
        self._require(answer, "submit")
        return Taken(answer.dw0 & 0xFFFF, answer.dw0 >> 16, answer.dw1)

    async def answer(self, mailbox: int) -> bytes:
        """Return the answer page of a mailbox."""
        return await self._query(Query.MAILBOX, mailbox, layout.PAGE_MAILBOXES + mailbox)

    async def status(self) -> bytes:
        """Return the status page."""
        return await self._query(Query.STATUS, 0, layout.PAGE_STATUS)

    async def _query(self, query: int, mailbox: int, page: int) -> bytes:
        """Read a page, from whoever is there when the connection is lost meanwhile."""
        while True:
            capability = await self._required()
            if not self._has_opcodes(capability):
                return await self._page(capability, None, page)
            nsid = await self._namespace(capability)
            try:
                answer = await self.controller.command(
                    capability.query_opcode,
                    nsid=nsid,
                    cdw10=query,
                    cdw11=mailbox,
                    read_bytes=layout.PAGE_BYTES,
                )
            except ProtocolError:
                raise
            except ConnectionLost:
                continue
            self._require(answer, "query")
            return answer.data

    async def events(self, *, clear: bool) -> bytes:
        """Return the warm-event log; reading it clears it and lets the next event be told."""
        capability = await self._required()
        if not capability.event_log:
            raise NotSupported("there is no warm-event log", self.where)
        entry = nvme.get_log_entry(
            capability.event_log,
            layout.PAGE_BYTES,
            rae=not clear,
            uuid_index=capability.uuid_index,
        )
        answer = await self.controller.raw(entry, read_bytes=layout.PAGE_BYTES, admin=True)
        self._require(answer, "warm-event log")
        return answer.data

    async def wait_event(self) -> None:
        """Wait for an asynchronous event "the warm-event log is not empty"."""
        capability = await self._required()
        if not capability.feature:
            raise NotSupported("the target tells no warm events", self.where)
        if self._asked_on != self.controller.connects:
            # The feature belongs to the controller, so it is asked for once an association.
            asked_on = self.controller.connects
            answer = await self.controller.command(
                nvme.Admin.SET_FEATURES,
                cdw10=capability.feature,
                cdw11=layout.FEATURE_WARM_EVENTS,
                cdw14=capability.uuid_index,
                admin=True,
            )
            self._require(answer, "warm-event feature")
            self._asked_on = asked_on
            return  # What came before it was asked for is in the log already.
        await self._event.wait()
        self._event.clear()

    # ---- helpers ----

    def _on_event(self, dw0: int) -> None:
        if dw0 & 7 == layout.AER_TYPE and dw0 >> 8 & 0xFF == layout.AER_INFORMATION:
            self._event.set()

    async def _required(self) -> Capability:
        capability = await self.capability()
        if capability is None:
            raise NotSupported("the target does not speak PAX", self.where)
        return capability

    def _has_opcodes(self, capability: Capability) -> bool:
        return bool(capability.carriers & Carrier.SUBMIT_QUERY)

    async def _page(self, capability: Capability, data: bytes | None, page: int) -> bytes:
        nsid = capability.extension_nsid
        if not nsid:
            raise NotSupported("neither vendor opcodes nor an extension namespace", self.where)
        if data is None:
            read: bytearray = await self.controller.read(nsid, slba=page, nlb=1)
            return bytes(read)
        await self.controller.write(nsid, data, slba=page)
        return b""

    async def _namespace(self, capability: Capability) -> int:
        if self._nsid is None:
            found = [one.nsid for one in await self.controller.namespaces()]
            mine = [nsid for nsid in found if nsid != capability.extension_nsid]
            if not mine:
                raise NotSupported("there is no namespace to hint about", self.where)
            self._nsid = mine[0]
        return self._nsid

    def _require(self, answer: Completion, what: str) -> None:
        if not answer.ok:
            raise NvmeError(answer.status, f"{self.where}: {what}", answer.dw0)
