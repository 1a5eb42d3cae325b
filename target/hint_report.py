"""What hints came to, for `prestage stats` and the control socket, as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prestage.ext import layout
from prestage.ext.names import Reason
from prestage.ext.pages import Status, decode_status
from prestage.target.datapath import Numbers
from prestage.target.errors import NotFound
from prestage.target.runtime import Runtime

PRIORITIES = ("urgent", "high", "medium", "low")
CLASSES = ("demand", "dated", "write", "speculative")
"""Of the scheduler, by number (enum ps_sched_class)."""
ANY_SUBSYSTEM = 0
"""A tenant's budgets and counters are the same in all."""
BUDGETS = tuple(field.name for field in layout.STATUS.fields if field.kind == "budget")
COUNTERS = (
    "batches", "refused", "records", "unknown", "read_hints", "dataset_sets", "timely_hits",
    "late_hits", "wasted_bytes", "hydrated_bytes", "event_count", "events_lost",
)  # fmt: skip
"""Of a tenant's status page, as they are."""


def hint_report(runtime: Runtime, host: str | None = None) -> dict[str, Any]:
    """Return totals, and for each host (or for `host` alone) budgets, counters and outcomes.

    Raises NotFound when the target does not know that host.
    """
    numbers = runtime.tenants.numbers
    if host is not None and host not in numbers:
        there = ", ".join(sorted(numbers)) or "none"
        raise NotFound("the host has not connected since the start", host, there)
    wanted = numbers if host is None else {host: numbers[host]}
    return {
        "enabled": runtime.settings.hints.enabled,
        **runtime.data_path.hint_stats(),
        "tenants": [_tenant(runtime, nqn, number) for nqn, number in wanted.items()],
    }


def _tenant(runtime: Runtime, nqn: str, number: int) -> dict[str, Any]:
    tier = runtime.data_path.tenant_stats(number)
    named: dict[str, Any] = {"host_nqn": nqn, "tenant": number}
    if not runtime.settings.hints.enabled:
        return named | {"tier": tier}
    status = decode_status(runtime.data_path.hint_status(number, ANY_SUBSYSTEM))
    return named | {
        **{name: getattr(status, name) for name in COUNTERS},
        "dropped": _dropped(status),
        "budgets": {name: asdict(getattr(status, name)) for name in BUDGETS},
        "intents": _by_priority(status.intent_counts),
        "dated_reads": _by_priority(status.read_counts),
        "trust": _trust(runtime.data_path.hint_trust(number)),
        "tier": tier,
    }


def _dropped(status: Status) -> dict[str, int]:
    """Return how many records were dropped, by reason."""
    return {
        reason.name.lower(): status.dropped[reason]
        for reason in Reason
        if reason is not Reason.NONE and reason < len(status.dropped)
    }


def _trust(kinds: dict[str, dict[str, int]]) -> dict[str, dict[str, int | bool]]:
    """Return what hints of each kind came to, and whether more of the kind are acted on."""
    return {name: one | {"is_trusted": bool(one["is_trusted"])} for name, one in kinds.items()}


def _by_priority(counts: tuple[Any, ...]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in zip(PRIORITIES, counts, strict=True)}


def scheduler_report(numbers: Numbers) -> dict[str, Any]:
    """Return the state and counters of a scheduler, those of each class under its name."""
    plain = {name: value for name, value in numbers.items() if not isinstance(value, list)}
    lists = {name: value for name, value in numbers.items() if isinstance(value, list)}
    classes = {
        one: {name: values[number] for name, values in lists.items()}
        for number, one in enumerate(CLASSES)
    }
    return plain | {"classes": classes}
