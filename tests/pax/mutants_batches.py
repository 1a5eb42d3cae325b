"""Mutants of batches, faults and the status."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from pax.mutation import (
    PAGE,
    breaks,
    change,
    change_tenants,
    put,
)
from pax.target import FakeTarget
from pax.tenant import Tenant
from prestage.ext.answers import encode_answer
from prestage.ext.codec import decode_batch, seal
from prestage.ext.errors import Malformed
from prestage.ext.names import CancelWhat, Fault, Reason
from prestage.ext.records import Retain, SetRecord, Signature, Unknown

# ---- batches ----


@breaks("1.4.2")
def reserved_bytes_must_be_zero(target: FakeTarget) -> None:
    def checked(old: Any, tenant: Tenant, data: bytes) -> Any:
        batch = old(data)
        if any(data[30:32]):
            raise Malformed(Fault.FIELD, 30)
        return batch

    change_tenants(target, "checked", checked)


@breaks("5.1.3")
def sets_are_applied_last(target: FakeTarget) -> None:
    def apply(old: Any, tenant: Tenant, batch: Any) -> Any:
        late = sorted(batch.records, key=lambda each: isinstance(each, SetRecord))
        keeps = any(isinstance(each, Retain) for each in late)
        return old(dataclasses.replace(batch, records=tuple(late)) if keeps else batch)

    change_tenants(target, "apply", apply)


@breaks("5.1.5")
def the_sequence_does_not_come_back(target: FakeTarget) -> None:
    def answer(old: Any, tenant: Tenant, mailbox: int) -> Any:
        return dataclasses.replace(old(mailbox), sequence=0)

    change_tenants(target, "answer", answer)


@breaks("5.2.4")
def short_signatures_are_dropped(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, record: Signature) -> Reason:
        found: Reason = Reason.ROOM if len(record.vector) == 16 else old(record)
        return found

    change_tenants(target, "take_signature", take)


@breaks("5.4.1")
def tags_do_not_come_back(target: FakeTarget) -> None:
    def answer(old: Any, tenant: Tenant, mailbox: int) -> Any:
        page = old(mailbox)
        answers = tuple(dataclasses.replace(each, tag=0) for each in page.answers)
        return dataclasses.replace(page, answers=answers)

    change_tenants(target, "answer", answer)


@breaks("5.4.1")
def truncated_pages_do_not_say_so(target: FakeTarget) -> None:
    def page(old: Any, tenant: Tenant, mailbox: int) -> bytes:
        found: bytes = old(tenant, mailbox)
        size = int.from_bytes(found[8:12], "little")
        return seal(put(found[:size], 29, b"\0")).ljust(PAGE, b"\0")

    change(target, "answer_page", page)


@breaks("5.4.2")
def checksums_are_wrong(target: FakeTarget) -> None:
    def page(old: Any, tenant: Tenant, mailbox: int) -> bytes:
        return put(encode_answer(tenant.answer(mailbox)), 12, b"\0\0")

    change(target, "answer_page", page)


@breaks("5.4.3")
def unknown_records_count_as_one(target: FakeTarget) -> None:
    def answer(old: Any, tenant: Tenant, mailbox: int) -> Any:
        page = old(mailbox)
        return dataclasses.replace(page, unknown=min(page.unknown, 1))

    change_tenants(target, "answer", answer)


@breaks("9.1")
def only_this_minor_version(target: FakeTarget) -> None:
    def checked(old: Any, tenant: Tenant, data: bytes) -> Any:
        batch = old(data)
        if data[5]:
            raise Malformed(Fault.VERSION, 5)
        return batch

    change_tenants(target, "checked", checked)


@breaks("9.2")
def headers_of_32_bytes_only(target: FakeTarget) -> None:
    def checked(old: Any, tenant: Tenant, data: bytes) -> Any:
        batch = old(data)
        if data[6] != 32:
            raise Malformed(Fault.SIZE, 6)
        return batch

    change_tenants(target, "checked", checked)


@breaks("9.3")
def unknown_answers_are_taken_for_records(target: FakeTarget) -> None:
    def checked(old: Any, tenant: Tenant, data: bytes) -> Any:
        batch = old(data)
        if any(isinstance(each, Unknown) and each.type == 0x8101 for each in batch.records):
            raise Malformed(Fault.FIELD, 32)
        return batch

    change_tenants(target, "checked", checked)


# ---- faults ----


@breaks("5.5.1")
def what_comes_before_a_fault_is_applied(target: FakeTarget) -> None:
    def submit(old: Any, tenant: Tenant, data: bytes, mailbox: int) -> Any:
        try:
            tenant.checked(data)
        except Malformed as error:
            if error.fault == Fault.FIELD and data[32] == 1 and data[34] == 48:
                tenant.take(_first_set(data))
        return old(data, mailbox)

    change_tenants(target, "submit", submit)


def _first_set(data: bytes) -> SetRecord:
    one = put(put(data[: 32 + 48], 8, (80).to_bytes(4, "little")), 28, b"\1\0")
    (record,) = decode_batch(seal(one)).records
    assert isinstance(record, SetRecord)
    return record


def change_fault(target: FakeTarget, fault: Fault, new: Callable[[int], int | None]) -> None:
    """Report another offset for a fault; None: take the batch as empty."""

    def checked(old: Any, tenant: Tenant, data: bytes) -> Any:
        try:
            return old(data)
        except Malformed as error:
            offset = new(error.offset) if error.fault == fault else error.offset
            if offset is None:
                head = put(put(data[:32], 8, b"\x20\0\0\0"), 28, b"\0\0")
                return old(seal(put(head, 4, b"\1")))
            raise Malformed(error.fault, offset) from error

    change_tenants(target, "checked", checked)


@breaks("5.5.2")
def the_number_of_records_does_not_matter(target: FakeTarget) -> None:
    change_fault(target, Fault.COUNT, lambda offset: None)


@breaks("5.5.2")
def record_sizes_are_reported_at_the_record(target: FakeTarget) -> None:
    change_fault(target, Fault.RECORD_SIZE, lambda offset: offset - 2)


@breaks("5.5.2")
def other_major_versions_are_taken(target: FakeTarget) -> None:
    change_fault(target, Fault.VERSION, lambda offset: None)


@breaks("5.5.3")
def fields_are_reported_at_the_record(target: FakeTarget) -> None:
    change_fault(target, Fault.FIELD, lambda offset: offset if offset == 56 else offset & ~7)


@breaks("5.5.4")
def ranges_wrap_around(target: FakeTarget) -> None:
    def where(old: Any, tenant: Tenant, nsid: int, ranges: Any) -> Reason:
        wraps = any(each.slba == 2**64 - 1 for each in ranges)
        found: Reason = Reason.DEADLINE if wraps else old(nsid, ranges)
        return found

    change_tenants(target, "where", where)


@breaks("5.5.5")
def refusals_are_not_kept(target: FakeTarget) -> None:
    def refuse(old: Any, tenant: Tenant, data: bytes, mailbox: int, error: Malformed) -> Any:
        page = old(data, mailbox, error)
        tenant.refusals.clear()
        return page

    change_tenants(target, "refuse", refuse)


# ---- status ----


@breaks("5.6.1")
def the_status_page_ends_in_noise(target: FakeTarget) -> None:
    change(target, "status_page", lambda old, tenant: put(old(tenant), 4000, b"\1"))


@breaks("5.6.3")
def pending_intents_are_not_counted(target: FakeTarget) -> None:
    def counted(old: Any, tenant: Tenant, counts: Any) -> Any:
        return dataclasses.replace(old(counts), pending=0)

    change_tenants(target, "counted", counted)


@breaks("5.6.4")
def unknown_records_are_no_records(target: FakeTarget) -> None:
    def apply(old: Any, tenant: Tenant, batch: Any) -> Any:
        page = old(batch)
        tenant.counts["records"] -= page.unknown
        return page

    change_tenants(target, "apply", apply)


@breaks("5.6.5")
def forgetting_resets_counters(target: FakeTarget) -> None:
    def cancel(old: Any, tenant: Tenant, record: Any) -> None:
        old(record)
        if record.what == CancelWhat.EVERYTHING:
            tenant.counts["batches"] = 0

    change_tenants(target, "take_cancel", cancel)


@breaks("5.7.2")
def ends_are_logged_twice(target: FakeTarget) -> None:
    def log(old: Any, tenant: Tenant, intent: Any) -> None:
        old(intent)
        old(intent)

    change_tenants(target, "log", log)
