"""Mutants of discovery, Reads, Dataset Management and the extension namespace."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from pax.mutation import (
    PAGE,
    breaks,
    change,
    change_capability,
    change_tenants,
    put,
)
from pax.target import DATA_NSID, EXTENSION_NSID, REFUSED, FakeTarget
from pax.tenant import Tenant
from prestage.ext import layout
from prestage.ext.conform import nvme
from prestage.ext.conform.host import Command, Completion
from prestage.ext.conform.host import Tenant as Who
from prestage.ext.errors import Malformed
from prestage.ext.names import AnswerState, Fault
from prestage.ext.records import Signature

# ---- discovery ----


@breaks("3.1.3")
def granularity_of_3000(target: FakeTarget) -> None:
    change_capability(target, granularity_bytes=12288)


@breaks("3.1.4")
def extension_is_not_listed(target: FakeTarget) -> None:
    change(target, "identify_active", lambda old: [n for n in old() if n != EXTENSION_NSID])


@breaks("3.1.5")
def feature_in_standard_space(target: FakeTarget) -> None:
    change_capability(target, feature=0x30)


@breaks("3.2.1")
def another_uuid(target: FakeTarget) -> None:
    change(target, "uuid_list", lambda old: put(old(), 50, b"\0"))


@breaks("3.2.2")
def logs_without_uuid(target: FakeTarget) -> None:
    change(target, "is_selected", lambda old, command: True)


@breaks("3.3.1")
def query_is_not_supported(target: FakeTarget) -> None:
    change(target, "effects", lambda old: put(old(), 1024 + 4 * 0x82, b"\0"))


@breaks("3.3.2")
def submit_stops_all_io(target: FakeTarget) -> None:
    change(target, "effects", lambda old: put(old(), 1024 + 4 * 0x81 + 2, b"\2"))


@breaks("3.4.1")
def uuid_at_random(target: FakeTarget) -> None:
    change(target, "extension_uuid", lambda old: bytes(range(100, 116)))


@breaks("3.4.2")
def extension_of_512_pages(target: FakeTarget) -> None:
    def identify(old: Any, nsid: int) -> bytes:
        page: bytes = old(nsid)
        return put(page, 0, b"\0\2") if nsid == EXTENSION_NSID else page

    change(target, "identify_namespace", identify)


# ---- Reads and Dataset Management ----


@breaks("1.2.1")
def signed_blocks_read_as_zeros(target: FakeTarget) -> None:
    def data(old: Any, tenant: Tenant, command: Command) -> bytes:
        found: bytes = old(tenant, command)
        return bytes(len(found)) if was_signed else found

    was_signed: list[bool] = []

    def take(old: Any, tenant: Tenant, record: Signature) -> Any:
        if record.vector == b"\xff" * 16:
            was_signed.append(True)
        return old(record)

    change(target, "data", data)
    change_tenants(target, "take_signature", take)


@breaks("4.1.2")
def speculative_reads_return_zeros(target: FakeTarget) -> None:
    def data(old: Any, tenant: Tenant, command: Command) -> bytes:
        found: bytes = old(tenant, command)
        return bytes(len(found)) if command.cdw13 == 7 else found

    change(target, "data", data)


@breaks("4.1.4")
def speculative_reads_predict_nothing(target: FakeTarget) -> None:
    change(target, "read_ahead", lambda old, nsid, where: None)


@breaks("4.1.6")
def attributes_are_not_counted(target: FakeTarget) -> None:
    change(target, "count_attributes", lambda old, tenant, command: None)


@breaks("4.2.3")
def datasets_of_one_range_fail(target: FakeTarget) -> None:
    def dataset(old: Any, tenant: Tenant, command: Command) -> Completion:
        is_refused = command.cdw10 == 0 and command.nsid == DATA_NSID
        done: Completion = REFUSED if is_refused else old(tenant, command)
        return done

    change(target, "dataset", dataset)


@breaks("4.2.4")
def datasets_are_not_counted(target: FakeTarget) -> None:
    change(target, "make_set", lambda old, tenant, nsid, ranges: None)


@breaks("4.6.2")
def dated_reads_return_zeros(target: FakeTarget) -> None:
    def read(old: Any, tenant: Tenant, command: Command) -> Completion:
        done: Completion = old(tenant, command)
        return dataclasses.replace(done, data=bytes(len(done.data)))

    change(target, "dated_read", read)


@breaks("4.6.3")
def far_deadlines_wait_for_ever(target: FakeTarget) -> None:
    def io(old: Any, who: Who, command: Command) -> Any:
        if command.opcode == layout.OPCODE_DATED_READ and command.cdw14 == 0xFFFFFFFF:
            return _never()
        return old(who, command)

    change(target, "io", io)


async def _never() -> Completion:
    await asyncio.Event().wait()
    return Completion()


@breaks("4.6.4")
def dated_reads_are_counted_twice(target: FakeTarget) -> None:
    def count(old: Any, tenant: Tenant, command: Command) -> None:
        old(tenant, command)
        old(tenant, command)

    change(target, "count_dated", count)


# ---- extension namespace ----


@breaks("4.3.1")
def the_last_page_is_not_zeros(target: FakeTarget) -> None:
    def page(old: Any, tenant: Tenant, lba: int) -> bytes:
        found: bytes = old(tenant, lba)
        return found[:-1] + b"\1" if lba == 255 else found

    change(target, "page", page)


@breaks("4.3.2")
def pages_must_end_in_zeros(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, lba: int, data: bytes) -> Any:
        return old(tenant, lba, bytes(PAGE) if data[-1] == 0xA5 else data)

    change(target, "take_page", take)


@breaks("4.3.3")
def one_page_a_command(target: FakeTarget) -> None:
    def write(old: Any, tenant: Tenant, command: Command) -> Completion:
        done: Completion
        if command.nsid == EXTENSION_NSID and not target.is_beyond(command):
            command = dataclasses.replace(command, cdw12=0)
        done = old(tenant, command)
        return done

    change(target, "write", write)


@breaks("4.3.4")
def writes_of_malformed_batches_fail(target: FakeTarget) -> None:
    def write(old: Any, tenant: Tenant, command: Command) -> Completion:
        done: Completion = old(tenant, command)
        if command.nsid == EXTENSION_NSID and not done.status:
            batch = tenant.mailboxes.get(command.cdw10 - layout.PAGE_MAILBOXES)
            if batch is not None and batch.header.state == AnswerState.REFUSED:
                return Completion(0x280)
        return done

    change(target, "write", write)


@breaks("4.3.5")
def mailboxes_keep_their_first_batch(target: FakeTarget) -> None:
    def submit(old: Any, tenant: Tenant, data: bytes, mailbox: int) -> Any:
        kept = tenant.mailboxes.get(mailbox)
        page = old(data, mailbox)
        if mailbox == 16 and kept is not None:
            tenant.mailboxes[mailbox] = kept
        return page

    change_tenants(target, "submit", submit)


@breaks("4.3.6")
def mailboxes_are_shared(target: FakeTarget) -> None:
    target.tenants[Who.SECOND].mailboxes = target.tenants[Who.FIRST].mailboxes


@breaks("4.3.8")
def nothing_can_be_flushed(target: FakeTarget) -> None:
    def flush(old: Any, tenant: Tenant, command: Command) -> Completion:
        on_extension = command.nsid == EXTENSION_NSID
        return Completion(nvme.INVALID_OPCODE) if on_extension else Completion()

    change(target, "flush", flush)


@breaks("4.3.9")
def pages_beyond_the_end_are_zeros(target: FakeTarget) -> None:
    def is_beyond(old: Any, command: Command) -> bool:
        return command.nsid != EXTENSION_NSID and bool(old(command))

    change(target, "is_beyond", is_beyond)


@breaks("4.3.12")
def sequences_must_increase(target: FakeTarget) -> None:
    last: dict[int, int] = {}

    def checked(old: Any, tenant: Tenant, data: bytes) -> Any:
        batch = old(data)
        if batch.sequence <= last.get(batch.writer, -1):
            raise Malformed(Fault.FIELD, 24)
        last[batch.writer] = batch.sequence
        return batch

    change_tenants(target, "checked", checked)
