"""How the commands print: a line of text for each thing, or one line of JSON."""

from __future__ import annotations

import dataclasses
import sys
from enum import IntEnum, IntFlag
from typing import Any

import msgspec

from prestage.ext import layout
from prestage.ext.names import Reason, Verdict
from prestage.ext.pages import Benefit, Status
from prestage.ext.records import Answer, OutcomeAnswer, ResidencyAnswer
from prestage.host_client.commands.units import format_size, format_us
from prestage.host_client.hint_batches import Report

PRIORITIES = ("urgent", "high", "medium", "low")
"""By their numbers."""
BUDGETS = (
    "sets",
    "set_ranges",
    "signatures",
    "intents",
    "intent_bytes",
    "tier_bytes",
    "records_per_s",
)
COUNTERS = (
    "batches",
    "refused",
    "records",
    "unknown",
    "read_hints",
    "dataset_sets",
    "timely_hits",
    "late_hits",
    "wasted_bytes",
    "hydrated_bytes",
    "event_count",
    "events_lost",
)


def out(text: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(text + "\n")


def out_json(value: Any) -> None:
    """Write a value as one line of JSON; indented when a person looks at it."""
    encoded = msgspec.json.encode(plain(value))
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    out(encoded.decode())


def plain(value: Any) -> Any:
    """Return a value of the contract as JSON has it: named values by name, READY_NEVER as null."""
    if isinstance(value, IntFlag):
        return [str(bit.name).lower() for bit in type(value) if bit and bit in value]
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bytes):
        return value.hex()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _field(each.name, value) for each in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return value


def _field(name: str, owner: Any) -> Any:
    value = getattr(owner, name)
    return None if name == "ready_us" and value == layout.READY_NEVER else plain(value)


def report_line(report: Report) -> str:
    """Return what became of records, for people."""
    text = f"accepted {report.accepted}"
    if report.dropped:
        why = report.dropped_reason
        text += f", dropped {report.dropped}"
        text += f" ({why.meaning})" if why != Reason.NONE else ""
    if report.unknown:
        text += f", unknown {report.unknown}"
    return text if report.confirmed else f"{text}; another writer overwrote an answer"


def outcome_line(answer: OutcomeAnswer) -> str:
    """Return what became of an intent, for people."""
    text = f"intent {answer.intent_id}: {answer.state.name.lower()}"
    if answer.total_bytes:
        text += f", {_admitted(answer)}, predicted {format_us(answer.predicted_us)}"
    if answer.ready_us != layout.READY_NEVER:
        text += f", ready after {format_us(answer.ready_us)}"
    if answer.reason != Reason.NONE:
        text += f"; {answer.reason.meaning}"
    return text


def _admitted(answer: OutcomeAnswer) -> str:
    total = format_size(answer.total_bytes)
    if answer.verdict == Verdict.DROPPED:
        return f"none of {total} taken"
    admitted, warm = format_size(answer.admitted_bytes), format_size(answer.warm_bytes)
    return f"{answer.verdict.name.lower()} {admitted} of {total}, warm {warm}"


def residency_line(answer: ResidencyAnswer) -> str:
    """Return how much is warm, for people."""
    if answer.reason != Reason.NONE:
        return f"no answer: {answer.reason.meaning}"
    total = answer.total_bytes
    share = 100 * answer.warm_bytes / total if total else 0
    text = f"warm {format_size(answer.warm_bytes)} of {format_size(total)} ({share:.0f} %)"
    if answer.coming_bytes:
        known = answer.ready_us != layout.READY_NEVER
        when = f"in {format_us(answer.ready_us)}" if known else "at a time that is not known"
        text += f", {format_size(answer.coming_bytes)} coming, ready {when}"
    return text


def answer_line(answer: Answer) -> str:
    """Return what an answer says, for people."""
    if isinstance(answer, OutcomeAnswer):
        return outcome_line(answer)
    return residency_line(answer) if isinstance(answer, ResidencyAnswer) else str(answer)


def _amount(name: str, value: int) -> str:
    return format_size(value) if name.endswith("_bytes") else str(value)


def benefit_line(benefit: Benefit) -> str:
    """Return what the target's own predictions gained, for people."""
    text = f"predictions: {benefit.acted} acted on, {benefit.held} held out"
    if not benefit.is_known:
        return f"{text}, benefit not known yet"
    return f"{text}, benefit {benefit.hits} reads, {benefit.low} to {benefit.high} (95 %)"


def status_lines(status: Status) -> list[str]:
    """Return a status page for people: capability, budgets, counters."""
    capability = status.capability
    carriers = ", ".join(plain(capability.carriers))
    lines = [
        f"PAX {layout.MAJOR}.{capability.minor} by {carriers}",
        f"granularity {format_size(capability.granularity_bytes)}",
        f"extension namespace {capability.extension_nsid or 'none'}",
    ]
    for name in BUDGETS:
        budget = getattr(status, name)
        lines.append(f"{name}: {_amount(name, budget.used)} of {_amount(name, budget.limit)}")
    lines += [f"{name}: {_amount(name, getattr(status, name))}" for name in COUNTERS]
    for reason, count in enumerate(status.dropped):
        if count:
            lines.append(f"dropped: {count} ({Reason(reason).meaning})")
    for word, counts in (("intents", status.intent_counts), ("reads", status.read_counts)):
        lines += [
            f"{word} of priority {PRIORITIES[priority]}: "
            + ", ".join(f"{name} {value}" for name, value in plain(one).items())
            for priority, one in enumerate(counts)
            if one.arrived
        ]
    lines += [
        f"refused: batch {one.sequence} of writer {one.writer:x}, "
        f"{one.fault.name.lower()} at byte {one.fault_offset}"
        for one in status.refusals
    ]
    if status.benefit.held:
        lines.append(benefit_line(status.benefit))
    return lines
