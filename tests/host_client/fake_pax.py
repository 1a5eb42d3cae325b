"""A tenant of a target that speaks PAX, as far as hosts can tell: mailboxes, sets, intents, warmth.

It is what the three carriers of the hint interface lead to in these tests: as opcodes of a scripted
target, as an ioctl of a kernel, as a file that somebody plays the target of.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import struct
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prestage.ext import layout
from prestage.ext.answers import AnswerPage, encode_answer
from prestage.ext.codec import decode_batch
from prestage.ext.errors import Malformed
from prestage.ext.names import (
    AnswerState,
    CancelWhat,
    Carrier,
    Reason,
    SetOp,
    State,
    Verdict,
)
from prestage.ext.pages import (
    Capability,
    Event,
    EventLog,
    Status,
    encode_capability,
    encode_events,
    encode_status,
)
from prestage.ext.records import (
    Answer,
    Cancel,
    Intent,
    Outcome,
    OutcomeAnswer,
    Range,
    Record,
    Residency,
    ResidencyAnswer,
    SetRecord,
    Signature,
)
from prestage.host_client import Hints, connect
from prestage.host_client.extension_node import ExtensionNodeCarrier
from prestage.host_client.initiator_carrier import InitiatorCarrier
from prestage.host_client.passthrough import (
    ADMIN_COMMAND,
    COMMAND,
    NAMESPACE_ID,
    PassthroughCarrier,
)

from .scripted import BLOCK, Command, ScriptedTarget
from .scripted import Answer as NvmeAnswer

SUBMIT, QUERY, DATED = 0x81, 0x82, 0x92
EXTENSION_NSID = 9
INVALID_FIELD = 1 << 14 | 2
CAPABILITY = Capability(
    carriers=Carrier(0x7F),
    extension_nsid=EXTENSION_NSID,
    mailboxes=64,
    status_log=0xC9,
    event_log=0xCA,
    feature=0xCB,
    uuid_index=1,
    submit_opcode=SUBMIT,
    query_opcode=QUERY,
    dated_read_opcode=DATED,
)


@dataclass
class FakePax:
    """One tenant. `on_batch` may change what is about to be answered, as another writer would."""

    capability: Capability | None = CAPABILITY
    mailboxes: dict[int, AnswerPage] = field(default_factory=dict)
    questions: dict[int, list[Record]] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    batches: list[tuple[int, int]] = field(default_factory=list)
    """Mailbox and sequence number of each."""
    sets: dict[int, list[Range]] = field(default_factory=dict)
    intents: dict[int, OutcomeAnswer] = field(default_factory=dict)
    warm: set[int] = field(default_factory=set)
    """Blocks."""
    events: list[Event] = field(default_factory=list)
    thieves: int = 0
    """So many answers are overwritten by another writer before they are read."""
    refused_by_rate: set[int] = field(default_factory=set)
    """Questions about residency, counted from 1, that are too many for their second."""
    asked: int = 0
    """Questions about residency so far."""
    is_stale: bool = False
    """What is there instead is the answer to an earlier batch of the same writer."""

    def submit(self, mailbox: int, data: bytes) -> AnswerPage:
        """Take a batch; return what a completion would say of it."""
        writer, sequence = struct.unpack_from("<QI", data, 16)
        self.batches.append((mailbox, sequence))
        try:
            batch = decode_batch(data)
        except Malformed as error:
            page = AnswerPage(
                writer,
                sequence,
                AnswerState.REFUSED,
                fault=error.fault,
                fault_offset=error.offset,
            )
            self.mailboxes[mailbox] = page
            self.questions[mailbox] = []
            return page
        page = AnswerPage(writer, sequence, AnswerState.APPLIED)
        for record in batch.records:
            self.records.append(record)
            page = self._apply(record, page)
        self.mailboxes[mailbox] = page
        self.questions[mailbox] = [
            one for one in batch.records if isinstance(one, Intent | Residency | Outcome)
        ]
        return page

    def _apply(self, record: Record, page: AnswerPage) -> AnswerPage:
        if isinstance(record, SetRecord):
            if record.op == SetOp.DROP:
                self.sets.pop(record.set_id, None)
            else:
                kept = self.sets.get(record.set_id, []) if record.op == SetOp.EXTEND else []
                self.sets[record.set_id] = [*kept, *record.ranges]
        elif isinstance(record, Signature) and record.family == 666:
            return replace(
                page,
                dropped=page.dropped + 1,
                dropped_tag=record.tag,
                dropped_reason=Reason.BUDGET,
            )
        elif isinstance(record, Intent):
            self._intend(record)
        elif isinstance(record, Cancel) and record.what == CancelWhat.INTENT:
            kept_answer = self.intents.get(record.id)
            if kept_answer is not None:
                self.intents[record.id] = replace(kept_answer, state=State.CANCELLED)
        return replace(page, accepted=page.accepted + 1)

    def _intend(self, record: Intent) -> None:
        ranges = self.sets.get(record.set_id, []) if record.set_id else record.ranges
        size = sum(one.nlb for one in ranges) * BLOCK
        self.intents[record.intent_id] = OutcomeAnswer(
            record.intent_id,
            total_bytes=size,
            admitted_bytes=size,
            predicted_us=record.deadline_us // 2,
            state=State.PENDING,
            verdict=Verdict.ACCEPTED,
        )

    def warm_up(self, intent_id: int) -> None:
        """End an intent: everything of it is warm."""
        found = self.intents[intent_id]
        self.intents[intent_id] = replace(
            found, state=State.MET, warm_bytes=found.admitted_bytes, ready_us=1234
        )
        self.events.append(Event(intent_id, state=State.MET, ready_us=1234))

    def answer(self, mailbox: int) -> bytes:
        """The answer page, with what its questions come to now."""
        page = self.mailboxes.get(mailbox, AnswerPage())
        if self.thieves:
            self.thieves -= 1
            writer, sequence = (page.writer, page.sequence - 1) if self.is_stale else (4711, 0)
            other = AnswerPage(writer, sequence & 0xFFFFFFFF, AnswerState.APPLIED, accepted=1)
            return encode_answer(other)
        answers = tuple(self._ask(one) for one in self.questions.get(mailbox, []))
        return encode_answer(replace(page, answers=answers))

    def _ask(self, record: Record) -> Answer:
        if isinstance(record, Intent | Outcome):
            known = self.intents.get(record.intent_id, OutcomeAnswer(record.intent_id))
            return replace(known, tag=record.tag)
        assert isinstance(record, Residency)
        if record.set_id and record.set_id not in self.sets:
            return ResidencyAnswer(reason=Reason.SET, tag=record.tag)
        ranges = self.sets[record.set_id] if record.set_id else record.ranges
        self.asked += 1
        blocks = [one.slba + index for one in ranges for index in range(one.nlb)]
        most = self.capability.max_query_bytes if self.capability else 0
        if most and len(blocks) * BLOCK > most:
            return ResidencyAnswer(reason=Reason.BUDGET, tag=record.tag)
        if self.asked in self.refused_by_rate:
            return ResidencyAnswer(reason=Reason.RATE, tag=record.tag)
        warm = sum(block in self.warm for block in blocks)
        return ResidencyAnswer(len(blocks) * BLOCK, warm * BLOCK, ready_us=0, tag=record.tag)

    def status(self) -> bytes:
        """The status page; zeros without PAX."""
        if self.capability is None:
            return bytes(layout.PAGE_BYTES)
        return encode_status(Status(self.capability, batches=len(self.batches)))

    def log(self, *, clear: bool) -> bytes:
        """The warm-event log."""
        found = encode_events(EventLog(tuple(self.events)))
        if clear:
            self.events.clear()
        return found

    def identify(self) -> bytes:
        """What stands in Identify Controller."""
        return b"" if self.capability is None else encode_capability(self.capability)


# ---- by the opcodes of a target ----


class PaxTarget(ScriptedTarget):
    """A scripted target that speaks PAX for one tenant."""

    def __init__(self, pax: FakePax, **arguments: Any) -> None:
        super().__init__(capability=pax.identify(), **arguments)
        self.pax = pax
        self.listening: list[Command] = []
        """Asynchronous Event Requests of hosts."""

    def default(self, command: Command) -> Any:
        if command.link.qid > 0 and command.opcode in (SUBMIT, QUERY, DATED):
            return self._vendor(command)
        if command.link.qid > 0 and command.cdw(1) == EXTENSION_NSID:
            return self._page(command)
        if command.link.qid == 0 and command.opcode == 0x0C:
            self.listening.append(command)
        if command.link.qid == 0 and command.opcode == 0x02:
            clear = not command.cdw(10) >> 15 & 1
            return NvmeAnswer(data=self.pax.log(clear=clear))
        return super().default(command)

    def _admin(self, command: Command) -> Any:
        is_extension = command.opcode == 0x06 and command.cdw(1) == EXTENSION_NSID
        if is_extension and command.cdw(10) & 0xFF == 0:
            page = bytearray(4096)
            page[0:8] = page[8:16] = layout.EXTENSION_PAGES.to_bytes(8, "little")
            page[130] = 12
            return NvmeAnswer(data=bytes(page))
        return super()._admin(command)

    def _vendor(self, command: Command) -> NvmeAnswer:
        if command.opcode == DATED:
            slba = command.cdw(10) | command.cdw(11) << 32
            return NvmeAnswer(data=bytes(self.memory[slba * BLOCK :][: command.length]))
        if command.opcode == SUBMIT:
            return completion(self.pax.submit(command.cdw(10), command.data))
        is_status = command.cdw(10) & 0xFF == 4
        page = self.pax.status() if is_status else self.pax.answer(command.cdw(11))
        return NvmeAnswer(data=page[: command.length])

    def _page(self, command: Command) -> NvmeAnswer:
        page = command.cdw(10)
        if command.opcode == 0x01:
            self.pax.submit(page - layout.PAGE_MAILBOXES, command.data)
            return NvmeAnswer()
        status = page == layout.PAGE_STATUS
        data = self.pax.status() if status else self.pax.answer(page - layout.PAGE_MAILBOXES)
        return NvmeAnswer(data=data)


def completion(page: AnswerPage) -> NvmeAnswer:
    """How a submit command ends."""
    if page.state == AnswerState.REFUSED:
        return NvmeAnswer(INVALID_FIELD, dw0=page.fault_offset, dw1=int(page.fault))
    return NvmeAnswer(dw0=page.accepted | page.dropped << 16, dw1=page.unknown)


# ---- by the ioctl of a kernel ----


@dataclass
class FakeKernel:
    """The ioctl of a node of namespace 1; `commands` are the numbers of each command."""

    pax: FakePax
    commands: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, fd: int, request: int, argument: bytearray) -> int:
        if request == NAMESPACE_ID:
            return 1
        fields = COMMAND.unpack(argument)
        self.commands.append((request, *fields))
        opcode, address, length, cdw10 = fields[0], fields[7], fields[9], fields[10]
        memory = (ctypes.c_char * length).from_address(address)
        status, result = self._run(request, opcode, fields, memory, cdw10)
        struct.pack_into("<Q", argument, 72, result)
        return status

    def _run(
        self, request: int, opcode: int, fields: tuple[int, ...], memory: Any, cdw10: int
    ) -> tuple[int, int]:
        if request == ADMIN_COMMAND and opcode == 0x06:
            identity = self.pax.identify()
            memory[3072 : 3072 + len(identity)] = identity
        elif request == ADMIN_COMMAND:
            memory[:] = self.pax.log(clear=not cdw10 >> 15 & 1)
        elif opcode == SUBMIT:
            answer = completion(self.pax.submit(cdw10, memory[:]))
            return answer.status, answer.dw0 | answer.dw1 << 32
        else:
            assert opcode == QUERY
            is_status = cdw10 == 4
            memory[:] = self.pax.status() if is_status else self.pax.answer(fields[11])
        return 0, 0


# ---- by a file in place of the extension namespace ----


class FakeNode:
    """Plays the target of a file: whatever is written into a mailbox is answered there."""

    def __init__(self, pax: FakePax, path: Path) -> None:
        self.pax = pax
        self.path = path
        self._lock = threading.Lock()
        with path.open("wb") as file:
            file.truncate(layout.EXTENSION_PAGES * layout.PAGE_BYTES)
            file.write(pax.status())

    def take(self, mailbox: int) -> None:
        """Take the batch that lies in a mailbox."""
        with self._lock, self.path.open("r+b") as file:
            file.seek((layout.PAGE_MAILBOXES + mailbox) * layout.PAGE_BYTES)
            self.pax.submit(mailbox, file.read(layout.PAGE_BYTES))

    def refresh(self, mailbox: int) -> None:
        """Write the answer page of a mailbox as it is now."""
        with self._lock, self.path.open("r+b") as file:
            file.seek((layout.PAGE_MAILBOXES + mailbox) * layout.PAGE_BYTES)
            file.write(self.pax.answer(mailbox))


class PlayedNodeCarrier(ExtensionNodeCarrier):
    """The carrier of a played file: the target acts between the calls, as a real one does."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node.path)
        self._node = node

    async def submit(self, batch: bytes, mailbox: int) -> Any:
        found = await super().submit(batch, mailbox)
        self._node.take(mailbox)
        return found

    async def answer(self, mailbox: int) -> bytes:
        self._node.refresh(mailbox)
        return await super().answer(mailbox)

    async def status(self) -> bytes:
        with self._node.path.open("r+b") as file:
            file.write(self._node.pax.status())
        return await super().status()


CARRIERS = ("opcodes", "pages", "ioctl", "node")


@contextlib.asynccontextmanager
async def hints_by(
    carrier: str, pax: FakePax, folder: Path, **options: Any
) -> AsyncIterator[Hints]:
    """Hints to `pax` by one of `CARRIERS`."""
    async with asyncio.timeout(60), contextlib.AsyncExitStack() as stack:
        if carrier in ("opcodes", "pages"):
            if carrier == "pages" and pax.capability is not None:
                few = Carrier.EXTENSION_NAMESPACE
                pax.capability = replace(pax.capability, carriers=few)
            target = PaxTarget(pax)
            await target.start()
            stack.push_async_callback(target.stop)
            controller = await stack.enter_async_context(connect(target.url))
            found = Hints(InitiatorCarrier(controller), **options)
        elif carrier == "ioctl":
            node = folder / "ng0n1"
            node.touch()
            found = Hints(PassthroughCarrier(node, ioctl=FakeKernel(pax)), **options)
        else:
            played = FakeNode(pax, folder / "nvme0n9")
            found = Hints(PlayedNodeCarrier(played), **options)
        yield await stack.enter_async_context(found)
