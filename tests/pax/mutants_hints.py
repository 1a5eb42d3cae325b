"""Mutants of sets, intents and tenants."""

from __future__ import annotations

import dataclasses
from typing import Any

from pax.controller import Controller
from pax.mutation import (
    breaks,
    change,
    change_capability,
    change_tenants,
)
from pax.target import FakeTarget
from pax.tenant import Tenant
from prestage.ext.conform.host import Command, Completion
from prestage.ext.conform.host import Tenant as Who
from prestage.ext.names import CancelWhat, Reason, SetOp, State
from prestage.ext.records import Outcome, Retain, SetRecord, Signature

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
    change_capability(target, max_set_ranges=250)


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
        if intent.state != State.PENDING:
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
    first, second = (target.tenants[who] for who in Who)
    second.intents, second.intent_counts = first.intents, first.intent_counts


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
        return Reason.NONE if found == Reason.BUDGET and record.op == SetOp.DEFINE else found

    change_tenants(target, "take_set", take)
