"""Mutants of the vendor opcodes and admin commands."""

from __future__ import annotations

import dataclasses
from typing import Any

from pax.controller import Controller
from pax.mutation import (
    PAGE,
    breaks,
    change,
    change_controllers,
    change_tenants,
    put,
)
from pax.target import DATA_NSID, FakeTarget
from pax.tenant import Tenant
from prestage.ext import layout
from prestage.ext.conform import nvme
from prestage.ext.conform.host import Command, Completion
from prestage.ext.conform.host import Tenant as Who

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


@breaks("4.8.1")
def the_feature_outlives_its_controller(target: FakeTarget) -> None:
    def reset(old: Any, controller: Controller) -> None:
        feature = controller.feature
        old()
        controller.feature = feature

    change_controllers(target, "_reset", reset)


@breaks("4.9.1")
def intents_end_in_silence(target: FakeTarget) -> None:
    def on_event(old: Any, tenant: Tenant, which: Tenant) -> None:
        for controller in target.controllers:
            controller.is_masked |= bool(controller.feature)

    change_tenants(target, "on_event", on_event)


@breaks("4.9.2")
def events_are_not_masked(target: FakeTarget) -> None:
    def report(old: Any, controller: Controller) -> None:
        controller.is_masked = False
        old()

    change_controllers(target, "report_event", report)


@breaks("4.9.3")
def old_events_are_not_reported(target: FakeTarget) -> None:
    def was_set(old: Any, controller: Controller) -> None:
        controller.is_masked = controller.has_events

    change_controllers(target, "feature_was_set", was_set)
