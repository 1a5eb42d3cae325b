"""What one tenant of a target says and asks during a run of the kit."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterable

from .. import layout
from ..answers import AnswerPage, decode_answer
from ..codec import encode_batch, to_page
from ..names import CancelWhat, Carrier
from ..pages import Capability, EventLog, Status, decode_events, decode_status
from ..records import Answer, Cancel, OutcomeAnswer, Range, Record, Residency, ResidencyAnswer
from . import nvme
from .host import Command, Completion, Host
from .registry import Failed, Skipped


class Side:
    """What one tenant says and asks, by the carriers that the target offers."""

    def __init__(self, host: Host, capability: Capability, writer: int) -> None:
        self.host = host
        self.capability = capability
        self.writer = writer
        self.sequence = 0
        self._namespaces: list[int] = []
        self._event: asyncio.Task[Completion] | None = None

    # ---- batches ----

    @property
    def uses_pages(self) -> bool:
        """Whether batches go by the extension namespace; by opcode 81h otherwise."""
        return Carrier.EXTENSION_NAMESPACE in self.capability.carriers

    def batch(self, records: Iterable[Record]) -> bytes:
        """Return a batch of this side's writer, with the next sequence number."""
        self.sequence += 1
        return encode_batch(records, writer=self.writer, sequence=self.sequence)

    async def write_page(self, lba: int, data: bytes, blocks: int = 1) -> Completion:
        """Write pages of the extension namespace; a shorter batch is made a page."""
        command = Command(
            nvme.Io.WRITE,
            nsid=self.capability.extension_nsid,
            cdw10=lba,
            cdw12=blocks - 1,
            data_out=to_page(data) if blocks == 1 else data,
        )
        return await self.host.io(command)

    async def read_page(self, lba: int, blocks: int = 1) -> Completion:
        """Read pages of the extension namespace."""
        command = Command(
            nvme.Io.READ,
            nsid=self.capability.extension_nsid,
            cdw10=lba,
            cdw12=blocks - 1,
            data_in_bytes=blocks * layout.PAGE_BYTES,
        )
        return await self.host.io(command)

    async def submit_by_opcode(self, data: bytes, mailbox: int = nvme.NO_MAILBOX) -> Completion:
        """Submit a batch by opcode 81h."""
        command = Command(
            self.capability.submit_opcode, nsid=await self.any_nsid(), cdw10=mailbox, data_out=data
        )
        return await self.host.io(command)

    async def query(
        self,
        question: int,
        mailbox: int = 0,
        number: int = 0,
        blocks: int = 0,
        *,
        nsid: int = 0,
        size: int = layout.PAGE_BYTES,
    ) -> Completion:
        """Ask by opcode 82h."""
        command = Command(
            self.capability.query_opcode,
            nsid=nsid or await self.any_nsid(),
            cdw10=question,
            cdw11=mailbox,
            cdw12=number & 0xFFFFFFFF,
            cdw13=number >> 32,
            cdw14=blocks,
            data_in_bytes=size,
        )
        return await self.host.io(command)

    async def any_nsid(self) -> int:
        """Return an active namespace, for commands that mean none in particular."""
        if not self._namespaces:
            self._namespaces = await self.namespaces()
        if not self._namespaces:
            raise Skipped("the controller has no namespace")
        return self._namespaces[0]

    async def submit_bytes(self, data: bytes, mailbox: int = 0) -> None:
        """Put bytes into a mailbox by the first carrier that there is, whatever it answers."""
        if self.uses_pages:
            await self.write_page(layout.PAGE_MAILBOXES + mailbox, data)
        else:
            await self.submit_by_opcode(data, mailbox)

    async def answer_bytes(self, mailbox: int = 0) -> bytes:
        """Return the answer page of a mailbox."""
        if self.uses_pages:
            return (await self.read_page(layout.PAGE_MAILBOXES + mailbox)).data
        return (await self.query(0, mailbox)).data

    async def answer(self, mailbox: int = 0) -> AnswerPage:
        """Return the answer of a mailbox; its checksum is not looked at."""
        return decode_answer(await self.answer_bytes(mailbox), ignores_checksum=True)

    async def say(self, *records: Record, mailbox: int = 0) -> AnswerPage:
        """Submit records in one batch and return the answer."""
        await self.submit_bytes(self.batch(records), mailbox)
        return await self.answer(mailbox)

    async def ask(self, record: Record) -> Answer:
        """Return the answer to a record. Fails when there is not one."""
        answers = (await self.say(record, mailbox=1)).answers
        if len(answers) != 1:
            raise Failed(f"{len(answers)} answers to {record}")
        return answers[0]

    async def residency(self, *ranges: Range, nsid: int = 0, set_id: int = 0) -> ResidencyAnswer:
        """Return how much of ranges or of a set is warm."""
        found = await self.ask(Residency(nsid, ranges, set_id))
        if not isinstance(found, ResidencyAnswer):
            raise Failed(f"the answer to RESIDENCY is {found}")
        return found

    async def outcome(self, record: Record) -> OutcomeAnswer:
        """Return the answer to an INTENT or OUTCOME."""
        found = await self.ask(record)
        if not isinstance(found, OutcomeAnswer):
            raise Failed(f"the answer to {record} is {found}")
        return found

    async def forget(self) -> None:
        """Begin afresh: no intents, sets, signatures or events of this tenant."""
        await self.submit_bytes(self.batch([Cancel(CancelWhat.EVERYTHING)]), 2)
        if Carrier.LOG_PAGES in self.capability.carriers:
            await self.events()

    # ---- pages ----

    async def status_bytes(self) -> bytes:
        """Return the status page by the first carrier that has it."""
        carriers = self.capability.carriers
        if Carrier.EXTENSION_NAMESPACE in carriers:
            return (await self.read_page(layout.PAGE_STATUS)).data
        if Carrier.SUBMIT_QUERY in carriers:
            return (await self.query(4)).data
        if Carrier.LOG_PAGES in carriers:
            return (await self.log(self.capability.status_log)).data
        raise Skipped("no carrier has the status")

    async def status(self) -> Status:
        """Return the tenant's status."""
        return decode_status(await self.status_bytes())

    async def events(self, *, retain: bool = False) -> EventLog:
        """Return the warm-event log, which is empty afterwards unless `retain`."""
        done = await self.log(self.capability.event_log, retain=retain)
        return decode_events(done.data)

    # ---- connection and events ----

    async def reconnect(self) -> None:
        """End the association and make a new one."""
        await self._drop_event()
        await self.host.reconnect()

    async def close(self) -> None:
        """End the association."""
        await self._drop_event()
        await self.host.close()

    async def _drop_event(self) -> None:
        if self._event is not None:
            self._event.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, TimeoutError):
                await self._event
            self._event = None

    async def warm_event(self, patience_s: float) -> bool:
        """Return whether there is a warm event within this time; other events are passed over.

        One Asynchronous Event Request stays outstanding when there was none.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + patience_s
        while True:
            if self._event is None:
                request = Command(nvme.Admin.ASYNC_EVENT)
                self._event = loop.create_task(_run(self.host, request))
            left = max(end - loop.time(), 0)
            done, _ = await asyncio.wait([self._event], timeout=left)
            if not done:
                return False
            completion, self._event = self._event.result(), None
            if completion.status:
                raise Failed(f"the event request ended with {nvme.text(completion.status)}")
            wanted = layout.AER_TYPE | layout.AER_INFORMATION << 8 | self.capability.event_log << 16
            if completion.dw0 & 0xFFFFFF == wanted:
                return True

    # ---- admin ----

    async def log(
        self, lid: int, *, retain: bool = False, size: int = 4096, uuid_index: int | None = None
    ) -> Completion:
        """Get a log page of PAX, or with a UUID index another."""
        count = size // 4 - 1
        index = self.capability.uuid_index if uuid_index is None else uuid_index
        command = Command(
            nvme.Admin.GET_LOG_PAGE,
            nsid=nvme.ALL_NAMESPACES,
            cdw10=lid | (nvme.RETAIN_EVENT if retain else 0) | (count & 0xFFFF) << 16,
            cdw11=count >> 16,
            cdw14=index,
            data_in_bytes=size,
        )
        return await self.host.admin(command)

    async def set_feature(self, value: int, *, uuid_index: int | None = None) -> Completion:
        """Set the feature of PAX."""
        index = self.capability.uuid_index if uuid_index is None else uuid_index
        fid = self.capability.feature
        command = Command(nvme.Admin.SET_FEATURES, cdw10=fid, cdw11=value, cdw14=index)
        return await self.host.admin(command)

    async def get_feature(self, *, uuid_index: int | None = None) -> Completion:
        """Get the feature of PAX."""
        index = self.capability.uuid_index if uuid_index is None else uuid_index
        command = Command(nvme.Admin.GET_FEATURES, cdw10=self.capability.feature, cdw14=index)
        return await self.host.admin(command)

    async def identify(self, cns: int, nsid: int = 0) -> bytes:
        """Return an Identify data structure. Fails when there is none."""
        command = Command(
            nvme.Admin.IDENTIFY, nsid=nsid, cdw10=cns, data_in_bytes=layout.PAGE_BYTES
        )
        done = await self.host.admin(command)
        if done.status:
            raise Failed(f"Identify CNS {cns:02X}h ended with {nvme.text(done.status)}")
        return done.data

    async def namespaces(self) -> list[int]:
        """Return the active namespaces."""
        data = await self.identify(0x02)
        numbers = (int.from_bytes(data[at : at + 4], "little") for at in range(0, 4096, 4))
        return list(itertools.takewhile(bool, numbers))


async def _run(host: Host, command: Command) -> Completion:
    return await host.admin(command)
