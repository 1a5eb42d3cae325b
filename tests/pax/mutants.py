"""Targets that break the contract, each in one way that one clause forbids."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pax.controller import Controller
from pax.target import DATA_NSID, EXTENSION_NSID, REFUSED, FakeTarget
from pax.tenant import Tenant

from prestage.ext import layout
from prestage.ext.answers import encode_answer
from prestage.ext.codec import seal
from prestage.ext.conform import nvme
from prestage.ext.conform.host import Command, Completion
from prestage.ext.conform.host import Tenant as Who
from prestage.ext.errors import Malformed
from prestage.ext.names import AnswerState, CancelWhat, Fault, Reason, SetOp, State
from prestage.ext.records import Outcome, Retain, SetRecord, Signature, Unknown


class Mutant(NamedTuple):
    """What it breaks, and how."""

    clause: str
    name: str
    make: Callable[[FakeTarget], None]


MUTANTS: Final[list[Mutant]] = []
PAGE: Final = layout.PAGE_BYTES


def breaks(clause: str) -> Callable[[Callable[[FakeTarget], None]], None]:
    def register(make: Callable[[FakeTarget], None]) -> None:
        MUTANTS.append(Mutant(clause, getattr(make, "__name__", clause), make))

    return register


def change(thing: object, name: str, new: Callable[..., Any]) -> None:
    """Replace a method; `new` gets the old one first."""
    setattr(thing, name, functools.partial(new, getattr(thing, name)))


def change_tenants(target: FakeTarget, name: str, new: Callable[..., Any]) -> None:
    """Replace a method of every tenant; `new` gets the old one and the tenant first."""
    for tenant in target.tenants.values():
        change(tenant, name, functools.partial(_with_tenant, new, tenant))


def _with_tenant(new: Callable[..., Any], tenant: Tenant, old: Any, *args: Any) -> Any:
    return new(old, tenant, *args)


def change_capability(target: FakeTarget, **values: int) -> None:
    change(target, "capability", lambda old: dataclasses.replace(old(), **values))


def put(page: bytes, at: int, data: bytes) -> bytes:
    return page[:at] + data + page[at + len(data) :]


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

    def cancel(old: Any, tenant: Tenant, record: Any) -> Any:
        if tenant.counts["records"] % 7 == 0 and len(tenant.intents) == 0:
            was_signed.clear()
        return old(record)

    change(target, "data", data)
    change_tenants(target, "take_signature", take)
    change_tenants(target, "take_cancel", cancel)


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
        done: Completion = REFUSED if command.cdw10 == 0 else old(tenant, command)
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
    import asyncio

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
        kept = tenant.mailboxes.get(6)
        page = old(data, mailbox)
        if mailbox == 6 and kept is not None:
            tenant.mailboxes[6] = kept
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


# ---- submit and query ----


@breaks("2.2")
def sets_by_opcode_are_ignored(target: FakeTarget) -> None:
    def submit(old: Any, tenant: Tenant, command: Command) -> Completion:
        known = dict(tenant.sets)
        done: Completion = old(tenant, command)
        tenant.sets = known
        return done

    change(target, "submit", submit)


@breaks("4.4.1")
def submit_needs_no_namespace(target: FakeTarget) -> None:
    def io(old: Any, who: Who, command: Command) -> Any:
        vendor = command.opcode in {layout.OPCODE_SUBMIT, layout.OPCODE_QUERY}
        return old(who, dataclasses.replace(command, nsid=DATA_NSID) if vendor else command)

    change(target, "io", io)


@breaks("4.4.2")
def submit_does_not_count(target: FakeTarget) -> None:
    def submitted(old: Any, page: Any) -> Completion:
        done: Completion = old(page)
        return done if done.status else Completion()

    change(target, "submitted", submitted)


@breaks("4.4.3")
def submit_swaps_fault_and_offset(target: FakeTarget) -> None:
    def submitted(old: Any, page: Any) -> Completion:
        done: Completion = old(page)
        return Completion(done.status, done.dw1, done.dw0) if done.status else done

    change(target, "submitted", submitted)


@breaks("4.4.4")
def submit_takes_any_mailbox(target: FakeTarget) -> None:
    def submit(old: Any, tenant: Tenant, command: Command) -> Completion:
        done: Completion = old(tenant, dataclasses.replace(command, cdw10=command.cdw10 % 64))
        return done

    change(target, "submit", submit)


@breaks("4.4.5")
def submit_takes_any_length(target: FakeTarget) -> None:
    def submit(old: Any, tenant: Tenant, command: Command) -> Completion:
        done: Completion = old(tenant, command)
        return Completion() if done.status == nvme.SGL_LENGTH | nvme.DNR else done

    change(target, "submit", submit)


@breaks("4.5.2")
def answers_to_queries_have_a_sequence(target: FakeTarget) -> None:
    change(target, "one_answer", lambda old, answers: put(old(answers), 24, b"\1"))


@breaks("4.5.3")
def any_question_is_answered(target: FakeTarget) -> None:
    def queried(old: Any, tenant: Tenant, command: Command) -> bytes:
        return old(tenant, command) or bytes(PAGE)

    change(target, "queried", queried)


@breaks("4.5.4")
def queries_return_whole_pages(target: FakeTarget) -> None:
    def query(old: Any, tenant: Tenant, command: Command) -> Completion:
        whole: Completion = old(tenant, dataclasses.replace(command, data_in_bytes=PAGE))
        return whole

    change(target, "query", query)


# ---- admin ----


@breaks("4.7.1")
def the_status_log_is_the_capability(target: FakeTarget) -> None:
    def log(old: Any, controller: Controller, command: Command) -> bytes | None:
        page: bytes | None = old(controller, command)
        is_status = page is not None and command.cdw10 & 0xFF == 0xD0
        return put(page, 240, bytes(1360)) if is_status and page else page

    change(target, "log_page", log)


@breaks("4.7.2")
def reading_always_forgets(target: FakeTarget) -> None:
    change(target, "event_page", lambda old, tenant, is_retained: old(tenant, is_retained=False))


def change_controllers(target: FakeTarget, name: str, new: Callable[..., Any]) -> None:
    async def connect(old: Any, who: Who) -> Controller:
        controller: Controller = await old(who)
        change(controller, name, functools.partial(_with_controller, new, controller))
        return controller

    change(target, "connect", connect)


def _with_controller(new: Callable[..., Any], which: Controller, old: Any, *args: Any) -> Any:
    return new(old, which, *args)


@breaks("4.8.1")
def the_feature_outlives_its_controller(target: FakeTarget) -> None:
    def reset(old: Any, controller: Controller) -> None:
        feature = controller.feature
        old()
        controller.feature = feature

    change_controllers(target, "_reset", reset)


@breaks("4.9.1")
def intents_end_in_silence(target: FakeTarget) -> None:
    change(target, "has_event", lambda old, tenant: None)


@breaks("4.9.2")
def events_are_not_masked(target: FakeTarget) -> None:
    def report(old: Any, controller: Controller) -> None:
        controller.is_masked = False
        old()

    change_controllers(target, "report_event", report)


@breaks("4.9.3")
def old_events_are_not_reported(target: FakeTarget) -> None:
    change_controllers(target, "feature_was_set", lambda old, controller: None)


# ---- batches ----


@breaks("1.4.2")
def reserved_bytes_must_be_zero(target: FakeTarget) -> None:
    def checked(old: Any, tenant: Tenant, data: bytes) -> Any:
        if any(data[30:32]):
            raise Malformed(Fault.FIELD, 30)
        return old(data)

    change_tenants(target, "checked", checked)


@breaks("5.1.3")
def sets_are_applied_last(target: FakeTarget) -> None:
    def apply(old: Any, tenant: Tenant, batch: Any) -> Any:
        late = sorted(batch.records, key=lambda each: isinstance(each, SetRecord))
        page = old(dataclasses.replace(batch, records=tuple(late)))
        return page

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
        if data[5]:
            raise Malformed(Fault.VERSION, 5)
        return old(data)

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
    from prestage.ext.codec import decode_batch

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
                empty = seal(put(put(data[:32], 8, b"\x20\0\0\0"), 28, b"\0\0"))
                return old(empty)
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


# ---- sets ----


@breaks("7.2.1")
def sets_cannot_be_dropped(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, record: SetRecord) -> Reason:
        found: Reason = Reason.NONE if record.op == SetOp.DROP else old(record)
        return found

    change_tenants(target, "take_set", take)


@breaks("7.2.2")
def sets_span_namespaces(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, record: SetRecord) -> Reason:
        known = tenant.sets.get(record.set_id)
        is_elsewhere = known is not None and known.nsid != record.nsid
        found: Reason = Reason.NONE if is_elsewhere else old(record)
        return found

    change_tenants(target, "take_set", take)


@breaks("7.2.3")
def sets_live_for_ever(target: FakeTarget) -> None:
    change_tenants(target, "lifetime_s", lambda old, tenant, ttl_ms: 1e9)


@breaks("7.2.4")
def ordered_sets_are_not_followed(target: FakeTarget) -> None:
    change_tenants(target, "touch", lambda old, tenant, nsid, where: None)


@breaks("7.2.5")
def sets_have_any_size(target: FakeTarget) -> None:
    change_capability(target, max_set_ranges=900)


@breaks("7.3.2")
def signatures_add_up(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, record: Signature) -> Reason:
        tenant.signatures[record.nsid, -len(tenant.signatures) - 1] = record
        found: Reason = old(record)
        return found

    change_tenants(target, "take_signature", take)


@breaks("7.7.1")
def retain_reads(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, record: Retain) -> Reason:
        for each in record.ranges:
            target.read_ahead(record.nsid, dataclasses.replace(each, slba=each.slba - each.nlb))
        found: Reason = old(record)
        return found

    change_tenants(target, "take_retain", take)


@breaks("7.8.1")
def what_is_warm_is_coming_too(target: FakeTarget) -> None:
    def measured(old: Any, tenant: Tenant, nsid: int, ranges: Any) -> Any:
        answer = old(nsid, ranges)
        return dataclasses.replace(answer, coming_bytes=answer.coming_bytes + answer.warm_bytes)

    change_tenants(target, "measured", measured)


@breaks("7.8.2")
def what_is_not_coming_is_ready(target: FakeTarget) -> None:
    def measured(old: Any, tenant: Tenant, nsid: int, ranges: Any) -> Any:
        answer = old(nsid, ranges)
        ready_us = answer.ready_us if answer.coming_bytes else 0
        return dataclasses.replace(answer, ready_us=ready_us)

    change_tenants(target, "measured", measured)


@breaks("7.8.3")
def an_answer_without_a_reason(target: FakeTarget) -> None:
    def residency(old: Any, tenant: Tenant, record: Any) -> Any:
        answer = old(record)
        if answer.reason == Reason.BUDGET:
            return dataclasses.replace(answer, total_bytes=1)
        return answer

    change_tenants(target, "residency", residency)


@breaks("7.8.4")
def queries_warm(target: FakeTarget) -> None:
    def residency(old: Any, tenant: Tenant, record: Any) -> Any:
        if tenant.counts["outcomes"] > 3:
            tenant.tier.load((record.nsid, each.slba // 4) for each in record.ranges)
        return old(record)

    def answers_to(old: Any, tenant: Tenant, record: Any) -> Any:
        tenant.counts["outcomes"] += isinstance(record, Outcome)
        return old(record)

    def take_cancel(old: Any, tenant: Tenant, record: Any) -> None:
        tenant.counts["outcomes"] = 0
        old(record)

    change_tenants(target, "residency", residency)
    change_tenants(target, "answers_to", answers_to)
    change_tenants(target, "take_cancel", take_cancel)


# ---- intents ----


@breaks("7.4.1")
def intents_read_nothing(target: FakeTarget) -> None:
    change_tenants(target, "hydrate", lambda old, tenant, wanted: None)


@breaks("7.4.2")
def impossible_deadlines_are_accepted(target: FakeTarget) -> None:
    def admit(old: Any, tenant: Tenant, intent: Any) -> Any:
        if intent.record.deadline_us == 0:
            intent.record = dataclasses.replace(intent.record, flags=1)
        return old(intent)

    change_tenants(target, "admit", admit)


@breaks("7.4.4")
def warm_intents_are_not_flagged(target: FakeTarget) -> None:
    def outcome(old: Any, tenant: Tenant, intent_id: int) -> Any:
        return dataclasses.replace(old(intent_id), flags=0)

    change_tenants(target, "outcome", outcome)


@breaks("7.4.5")
def the_first_intent_keeps_its_number(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, record: Any) -> Reason:
        found: Reason = Reason.NONE if record.intent_id in tenant.intents else old(record)
        return found

    change_tenants(target, "take_intent", take)


@breaks("7.4.7")
def intents_die_with_their_connection(target: FakeTarget) -> None:
    def disconnected(old: Any, controller: Controller) -> None:
        for intent in target.tenants[controller.who].intents.values():
            target.tenants[controller.who].end(intent, State.CANCELLED)

    change(target, "disconnected", disconnected)


@breaks("7.5.1")
def what_has_ended_can_be_cancelled(target: FakeTarget) -> None:
    def end(old: Any, tenant: Tenant, intent: Any, state: State) -> None:
        if intent.state in {State.MET, State.DROPPED} and state == State.CANCELLED:
            if tenant.counts["ends"] % 1000 == 0:
                intent.state = state
        old(intent, state)

    change_tenants(target, "end", end)


@breaks("7.5.4")
def ready_times_are_made_up(target: FakeTarget) -> None:
    change_tenants(target, "ready_us", lambda old, tenant, intent: min(old(intent), 1 << 31))


@breaks("7.6.1")
def a_session_is_all(target: FakeTarget) -> None:
    def is_cancelled(old: Any, tenant: Tenant, intent: Any, record: Any) -> bool:
        return record.what == CancelWhat.SESSION or bool(old(intent, record))

    change_tenants(target, "is_cancelled", is_cancelled)


# ---- tenants ----


@breaks("8.1")
def sets_are_shared(target: FakeTarget) -> None:
    target.tenants[Who.SECOND].sets = target.tenants[Who.FIRST].sets


@breaks("8.1")
def intents_are_shared(target: FakeTarget) -> None:
    target.tenants[Who.SECOND].intents = target.tenants[Who.FIRST].intents


@breaks("8.1")
def events_are_shared(target: FakeTarget) -> None:
    target.tenants[Who.SECOND].events = target.tenants[Who.FIRST].events


@breaks("8.1")
def counters_are_shared(target: FakeTarget) -> None:
    target.tenants[Who.SECOND].counts = target.tenants[Who.FIRST].counts


@breaks("8.2")
def the_write_of_what_is_over_a_budget_fails(target: FakeTarget) -> None:
    def take_page(old: Any, tenant: Tenant, lba: int, data: bytes) -> Any:
        page = old(tenant, lba, data)
        if page is not None and page.dropped_reason == Reason.BUDGET and page.dropped == 1:
            over.append(True)
        return page

    def write(old: Any, tenant: Tenant, command: Command) -> Completion:
        over.clear()
        done: Completion = old(tenant, command)
        return Completion(0x281) if over else done

    over: list[bool] = []
    change(target, "take_page", take_page)
    change(target, "write", write)


@breaks("8.2")
def sets_have_no_budget(target: FakeTarget) -> None:
    def take(old: Any, tenant: Tenant, record: SetRecord) -> Reason:
        found: Reason = old(record)
        return Reason.NONE if found == Reason.BUDGET and len(record.ranges) == 1 else found

    change_tenants(target, "take_set", take)
