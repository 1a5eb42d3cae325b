"""A target in memory that keeps the contract: raw commands in, completions out, on any clock.

Small methods, so that a mutant can break one clause by replacing one of them (`pax.mutants`).
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable

from pax.controller import Controller
from pax.tenant import MAX_QUERY_BYTES, MAX_TTL_MS, Tenant
from pax.tier import BLOCK_BYTES, GRANULE_BYTES, Tier, granules
from prestage.ext import layout
from prestage.ext.answers import AnswerPage, encode_answer
from prestage.ext.conform import nvme
from prestage.ext.conform.host import Command, Completion
from prestage.ext.conform.host import Tenant as Who
from prestage.ext.names import AnswerState, Carrier, Query
from prestage.ext.pages import (
    IDENTIFY_OFFSET,
    Capability,
    EventLog,
    encode_capability,
    encode_events,
    encode_status,
)
from prestage.ext.records import Answer, Outcome, Range, Residency, SetRecord

DATA_NSID, EXTENSION_NSID = 1, 9
BLOCKS = 4096
ALL = Carrier(0x7F)
REFUSED = Completion(nvme.INVALID_FIELD | nvme.DNR)


class FakeTarget:
    """`carriers` are those that it offers; NONE: it is a target without PAX."""

    def __init__(self, carriers: Carrier = ALL) -> None:
        self.tier = Tier(lambda: asyncio.get_running_loop().time())
        self.carriers = carriers
        self.blocks = {DATA_NSID: BLOCKS}
        self.controllers: list[Controller] = []
        self.tenants: dict[Who, Tenant] = {who: self.new_tenant() for who in Who}

    def new_tenant(self) -> Tenant:
        return Tenant(self.tier, self.blocks, self.has_event)

    async def connect(self, who: Who) -> Controller:
        controller = Controller(self, who)
        self.controllers.append(controller)
        return controller

    def disconnected(self, controller: Controller) -> None:
        """The association is gone; hints live on."""

    def has_event(self, tenant: Tenant) -> None:
        for controller in self.controllers:
            if self.tenants[controller.who] is tenant:
                controller.report_event()

    def wake(self, tenant: Tenant) -> None:
        """See to it that intents end when they are ready, whether somebody asks or not."""
        loop = asyncio.get_running_loop()
        for intent in tenant.intents.values():
            for at in (intent.ready_at, intent.deadline_at):
                if at > loop.time():
                    loop.call_at(at, tenant.advance)

    # ---- what it is ----

    def capability(self) -> Capability:
        has = {carrier: int(carrier in self.carriers) for carrier in Carrier}
        return Capability(
            carriers=self.carriers,
            extension_nsid=EXTENSION_NSID * has[Carrier.EXTENSION_NAMESPACE],
            granularity_bytes=GRANULE_BYTES,
            max_set_ranges=self.tenants[Who.FIRST].max_set_ranges,
            max_query_bytes=MAX_QUERY_BYTES,
            max_ttl_ms=MAX_TTL_MS,
            mailboxes=layout.MAILBOXES,
            status_log=0xD0 * has[Carrier.LOG_PAGES],
            event_log=0xD1 * has[Carrier.LOG_PAGES],
            feature=0xD0 * has[Carrier.FEATURE],
            uuid_index=max(has[Carrier.LOG_PAGES], has[Carrier.FEATURE]),
            submit_opcode=layout.OPCODE_SUBMIT * has[Carrier.SUBMIT_QUERY],
            query_opcode=layout.OPCODE_QUERY * has[Carrier.SUBMIT_QUERY],
            dated_read_opcode=layout.OPCODE_DATED_READ * has[Carrier.DATED_READ],
        )

    def identify_controller(self) -> bytes:
        page = bytearray(4096)
        page[96:100] = (1 << 9).to_bytes(4, "little")  # CTRATT: UUID list
        page[520] = 1 << 2  # ONCS: Dataset Management
        if self.carriers:
            page[IDENTIFY_OFFSET : IDENTIFY_OFFSET + 128] = encode_capability(self.capability())
        return bytes(page)

    def active_namespaces(self) -> list[int]:
        offered = Carrier.EXTENSION_NAMESPACE in self.carriers
        return [*self.blocks, *([EXTENSION_NSID] if offered else [])]

    def identify_active(self) -> list[int]:
        return self.active_namespaces()

    def identify_namespace(self, nsid: int) -> bytes:
        page = bytearray(4096)
        blocks = layout.EXTENSION_PAGES if nsid == EXTENSION_NSID else self.blocks[nsid]
        page[0:8] = blocks.to_bytes(8, "little")
        page[26] = 1
        page[128 + 2] = 9
        page[132 + 2] = 12
        if nsid == EXTENSION_NSID:
            page[384:388] = b"PAXC"
        return bytes(page)

    def extension_uuid(self) -> bytes:
        return bytes.fromhex(layout.EXTENSION_UUID_PREFIX) + bytes(range(12))

    def descriptors(self, nsid: int) -> bytes:
        number = self.extension_uuid() if nsid == EXTENSION_NSID else bytes(range(16))
        return (bytes([4, 1, 0, 0, 0]) + bytes([3, 16, 0, 0]) + number).ljust(4096, b"\0")

    def uuid_list(self) -> bytes:
        return (bytes(48) + uuid.UUID(layout.UUID).bytes).ljust(4096, b"\0")

    def effects(self) -> bytes:
        page = bytearray(4096)
        capability = self.capability()
        vendor = (capability.submit_opcode, capability.query_opcode, capability.dated_read_opcode)
        for opcode in (*nvme.Io, *vendor):
            page[1024 + 4 * opcode] = 1
        return bytes(page)

    # ---- I/O commands ----

    def io(self, who: Who, command: Command) -> Completion | Awaitable[Completion]:
        handler = self.handlers().get(command.opcode)
        if handler is None:
            return Completion(nvme.INVALID_OPCODE | nvme.DNR)
        if command.nsid not in self.active_namespaces():
            return Completion(nvme.INVALID_NAMESPACE | nvme.DNR)
        return handler(self.tenants[who], command)

    def handlers(self) -> dict[int, Callable[[Tenant, Command], Completion]]:
        found: dict[int, Callable[[Tenant, Command], Completion]] = {
            nvme.Io.FLUSH: self.flush,
            nvme.Io.WRITE: self.write,
            nvme.Io.READ: self.read,
            nvme.Io.COMPARE: self.compare,
            nvme.Io.WRITE_ZEROES: self.flush,
            nvme.Io.DATASET_MANAGEMENT: self.dataset,
            nvme.Io.VERIFY: self.flush,
        }
        if Carrier.SUBMIT_QUERY in self.carriers:
            found |= {layout.OPCODE_SUBMIT: self.submit, layout.OPCODE_QUERY: self.query}
        if Carrier.DATED_READ in self.carriers:
            found[layout.OPCODE_DATED_READ] = self.dated_read
        return found

    def flush(self, tenant: Tenant, command: Command) -> Completion:
        return Completion()

    def compare(self, tenant: Tenant, command: Command) -> Completion:
        on_extension = command.nsid == EXTENSION_NSID
        return Completion(nvme.INVALID_OPCODE | nvme.DNR if on_extension else 0)

    def where(self, command: Command) -> Range:
        return Range(command.cdw10 | command.cdw11 << 32, (command.cdw12 & 0xFFFF) + 1)

    def is_beyond(self, command: Command) -> bool:
        where = self.where(command)
        blocks = self.blocks.get(command.nsid, layout.EXTENSION_PAGES)
        return where.slba + where.nlb > blocks

    def write(self, tenant: Tenant, command: Command) -> Completion:
        if self.is_beyond(command):
            return Completion(nvme.LBA_RANGE | nvme.DNR)
        if command.nsid == EXTENSION_NSID:
            where = self.where(command)
            for number in range(where.nlb):
                data = command.data_out[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]
                self.take_page(tenant, where.slba + number, data)
        return Completion()

    def take_page(self, tenant: Tenant, lba: int, data: bytes) -> AnswerPage | None:
        mailbox = lba - layout.PAGE_MAILBOXES
        if not 0 <= mailbox < layout.MAILBOXES:
            return None
        answer = tenant.submit(data, mailbox)
        self.wake(tenant)
        return answer

    def read(self, tenant: Tenant, command: Command) -> Completion:
        if self.is_beyond(command):
            return Completion(nvme.LBA_RANGE | nvme.DNR)
        where = self.where(command)
        if command.nsid == EXTENSION_NSID:
            pages = (self.page(tenant, where.slba + number) for number in range(where.nlb))
            return Completion(data=b"".join(pages))
        tenant.advance()
        self.count_attributes(tenant, command)
        tenant.touch(command.nsid, where)
        self.tier.fetch(granules(command.nsid, where))
        if command.cdw13 & 0xF == 7:
            self.read_ahead(command.nsid, where)
        return Completion(data=self.data(tenant, command))

    def read_ahead(self, nsid: int, where: Range) -> None:
        end = where.slba + where.nlb
        self.tier.load(granules(nsid, Range(end, min(where.nlb, BLOCKS - end) or 1)))

    def count_attributes(self, tenant: Tenant, command: Command) -> None:
        if command.cdw13 & 0x7F:
            tenant.counts["read_hints"] += 1

    def data(self, tenant: Tenant, command: Command) -> bytes:
        where = self.where(command)
        blocks = (
            hashlib.sha256(b"%d" % lba).digest() * (BLOCK_BYTES // 32)
            for lba in range(where.slba, where.slba + where.nlb)
        )
        return b"".join(blocks)

    def page(self, tenant: Tenant, lba: int) -> bytes:
        if lba == layout.PAGE_STATUS:
            return self.status_page(tenant)
        if 0 <= lba - layout.PAGE_MAILBOXES < layout.MAILBOXES:
            return self.answer_page(tenant, lba - layout.PAGE_MAILBOXES)
        return bytes(BLOCK_BYTES)

    def status_page(self, tenant: Tenant) -> bytes:
        return encode_status(tenant.status(self.capability()))

    def answer_page(self, tenant: Tenant, mailbox: int) -> bytes:
        return encode_answer(tenant.answer(mailbox))

    def dataset(self, tenant: Tenant, command: Command) -> Completion:
        parts = (command.data_out[at : at + 16] for at in range(0, len(command.data_out), 16))
        fields = [
            (int.from_bytes(p[8:], "little"), int.from_bytes(p[4:8], "little")) for p in parts
        ]
        ranges = tuple(Range(slba, nlb) for slba, nlb in fields if nlb)
        is_set = command.cdw11 & 1 and command.nsid in self.blocks
        if is_set and ranges:
            self.make_set(tenant, command.nsid, ranges)
        return Completion()

    def make_set(self, tenant: Tenant, nsid: int, ranges: tuple[Range, ...]) -> None:
        tenant.counts["dataset_sets"] += 1
        set_id = 1 << 63 | tenant.counts["dataset_sets"]
        tenant.take(SetRecord(set_id, nsid, ranges))

    # ---- vendor opcodes ----

    def dated_read(self, tenant: Tenant, command: Command) -> Completion:
        done = self.read(tenant, command)
        if not done.status:
            self.count_dated(tenant, command)
        return done

    def count_dated(self, tenant: Tenant, command: Command) -> None:
        counts = tenant.read_counts[command.cdw15 & 3]
        counts["arrived"] += 1
        counts["met" if command.cdw14 else "late"] += 1

    def submit(self, tenant: Tenant, command: Command) -> Completion:
        if not 32 <= len(command.data_out) <= layout.MAX_BATCH_BYTES:
            return Completion(nvme.SGL_LENGTH | nvme.DNR)
        if layout.MAILBOXES <= command.cdw10 < nvme.NO_MAILBOX:
            return REFUSED
        page = tenant.submit(command.data_out, command.cdw10)
        self.wake(tenant)
        return self.submitted(page)

    def submitted(self, page: AnswerPage) -> Completion:
        if page.state == AnswerState.REFUSED:
            return Completion(nvme.INVALID_FIELD | nvme.DNR, page.fault_offset, page.fault)
        return Completion(0, page.accepted | page.dropped << 16, page.unknown)

    def query(self, tenant: Tenant, command: Command) -> Completion:
        if not 64 <= command.data_in_bytes <= layout.PAGE_BYTES:
            return Completion(nvme.SGL_LENGTH | nvme.DNR)
        page = self.queried(tenant, command)
        return REFUSED if page is None else Completion(data=page[: command.data_in_bytes])

    def queried(self, tenant: Tenant, command: Command) -> bytes | None:
        number = command.cdw12 | command.cdw13 << 32
        record: Residency | Outcome | None = None
        match command.cdw10 & 0xFF:
            case Query.MAILBOX if command.cdw11 < layout.MAILBOXES:
                return self.answer_page(tenant, command.cdw11)
            case Query.STATUS:
                return self.status_page(tenant)
            case Query.RESIDENCY_RANGE if command.cdw14:
                ranges = (Range(number, command.cdw14),)
                is_there = not tenant.where(command.nsid, ranges)
                record = Residency(command.nsid, ranges) if is_there else None
            case Query.RESIDENCY_SET if number:
                record = Residency(set_id=number)
            case Query.OUTCOME if number:
                record = Outcome(number)
        return None if record is None else self.one_answer(tenant.answers_to(record))

    def one_answer(self, answers: list[Answer]) -> bytes:
        page = AnswerPage(state=AnswerState.APPLIED, accepted=1, answers=tuple(answers))
        return encode_answer(page)

    # ---- logs ----

    def log_page(self, controller: Controller, command: Command) -> bytes | None:
        capability, lid = self.capability(), command.cdw10 & 0xFF
        tenant = self.tenants[controller.who]
        if lid == nvme.EFFECTS_LOG:
            return self.effects()
        if not self.is_selected(command):
            return None
        if lid and lid == capability.status_log:
            return self.status_page(tenant)
        if lid and lid == capability.event_log:
            return self.event_page(tenant, is_retained=bool(command.cdw10 & nvme.RETAIN_EVENT))
        return None

    def is_selected(self, command: Command) -> bool:
        return command.cdw14 & 0x7F == 1

    def event_page(self, tenant: Tenant, *, is_retained: bool) -> bytes:
        tenant.advance()
        page = encode_events(EventLog(tuple(tenant.events)))
        if not is_retained:
            tenant.events.clear()
        return page
