"""What `[hints]` and `[scheduler]` must satisfy, and the extension of a subsystem."""

from __future__ import annotations

from collections.abc import Iterator

from prestage.target.settings import (
    MAX_NSID,
    MAX_TENANTS,
    HintSettings,
    SchedulerSettings,
    SubsystemSettings,
    TargetSettings,
    TenantSettings,
)
from prestage.target.sizes import quote, size_text

Found = tuple[str, str]
"""A field's path, and what was found and expected."""

MAX_SETS = 1 << 24
MAX_RANGES = 1 << 26
MAX_INTENTS = 1 << 20
MAX_BYTES = 1 << 50
MAX_RATE = 1 << 30
BUDGETS = {
    "sets": MAX_SETS,
    "set_ranges": MAX_RANGES,
    "signatures": MAX_SETS,
    "intents": MAX_INTENTS,
    "intent_bytes": MAX_BYTES,
    "tier_percent": 100,
    "records_per_s": MAX_RATE,
}
"""What one host may use at most, by field."""
TOTALS = {
    "total_sets": MAX_SETS,
    "total_set_ranges": MAX_RANGES,
    "total_signatures": MAX_SETS,
    "total_intents": MAX_INTENTS,
    "answer_pages": 1 << 16,
    "max_set_ranges": 1 << 20,
}
MAX_FOLLOW_BYTES = 1 << 30
MIN_FACTS, MAX_FACTS = 1 << 10, 1 << 24
MIN_MERGE_BYTES, MAX_MERGE_BYTES = 4096, 4 << 20


def check_hints(settings: TargetSettings) -> Iterator[Found]:
    """Yield the faults of hints, of the scheduler, and of extensions that need hints."""
    yield from _check_scheduler(settings.scheduler)
    yield from _check_budgets(settings.hints, "hints.")
    yield from _check_totals(settings.hints)
    yield from _check_tenants(settings.hints.tenants)
    for index, subsystem in enumerate(settings.subsystems):
        if subsystem.extension and not settings.hints.enabled:
            path = f"subsystems[{index}].extension"
            yield path, "found true, expected false while hints.enabled is false"


def _check_scheduler(scheduler: SchedulerSettings) -> Iterator[Found]:
    if not 1 <= scheduler.starvation_ms <= 60_000:
        found = f"{scheduler.starvation_ms:g}ms"
        yield "scheduler.starvation_ms", f"found {found}, expected 1ms to 60s"
    size = scheduler.merge_bytes
    if size and (size % 4096 or not MIN_MERGE_BYTES <= size <= MAX_MERGE_BYTES):
        expected = "expected 0, or a multiple of 4096 up to 4M"
        yield "scheduler.merge_bytes", f"found {size_text(size)}, {expected}"


def _check_budgets(budgets: HintSettings | TenantSettings, prefix: str) -> Iterator[Found]:
    for name, most in BUDGETS.items():
        value = getattr(budgets, name)
        if value is not None and not 0 <= value <= most:
            yield f"{prefix}{name}", f"found {value}, expected 0 to {most}"


def _check_totals(hints: HintSettings) -> Iterator[Found]:
    for name, most in TOTALS.items():
        value = getattr(hints, name)
        if not 1 <= value <= most:
            yield f"hints.{name}", f"found {value}, expected 1 to {most}"
    for name, value, least, most in (
        ("max_ttl_s", hints.max_ttl_s, 1, 30 * 86400),
        ("grace_s", hints.grace_s, 0, 3600),
    ):
        if not least <= value <= most:
            yield f"hints.{name}", f"found {value:g}s, expected {least}s to {most}s"
    if not 0 <= hints.follow_bytes <= MAX_FOLLOW_BYTES:
        yield "hints.follow_bytes", f"found {size_text(hints.follow_bytes)}, expected 0 to 1G"
    facts = hints.ring_facts
    if facts and (facts & (facts - 1) or not MIN_FACTS <= facts <= MAX_FACTS):
        expected = f"expected 0, or a power of two, {MIN_FACTS} to {MAX_FACTS}"
        yield "hints.ring_facts", f"found {facts}, {expected}"


def _check_tenants(tenants: list[TenantSettings]) -> Iterator[Found]:
    if len(tenants) > MAX_TENANTS:
        yield "hints.tenants", f"found {len(tenants)}, expected at most {MAX_TENANTS}"
    seen: dict[str, int] = {}
    for index, tenant in enumerate(tenants):
        path = f"hints.tenants[{index}]"
        yield from _check_budgets(tenant, f"{path}.")
        if tenant.host in seen:
            other = f"hints.tenants[{seen[tenant.host]}].host"
            found = f"found {quote(tenant.host)} again"
            yield f"{path}.host", f"{found}, expected something else than in {other}"
        seen.setdefault(tenant.host, index)


def check_extension(subsystem: SubsystemSettings, prefix: str) -> Iterator[Found]:
    """Yield the faults of a subsystem's extension; `prefix` is the path to it, with its dot."""
    nsid = subsystem.extension_nsid
    if not 0 <= nsid <= MAX_NSID:
        yield f"{prefix}extension_nsid", f"found {nsid}, expected 0 to {MAX_NSID}"
    if not subsystem.extension:
        if nsid:
            expected = "expected 0 without extension = true"
            yield f"{prefix}extension_nsid", f"found {nsid}, {expected}"
        return
    if subsystem.max_namespaces >= MAX_NSID:
        expected = f"expected at most {MAX_NSID - 1} beside an extension namespace"
        yield f"{prefix}max_namespaces", f"found {subsystem.max_namespaces}, {expected}"
    for index, namespace in enumerate(subsystem.namespaces):
        if namespace.nsid == (nsid or MAX_NSID):
            expected = "expected another than that of the extension namespace"
            yield f"{prefix}namespaces[{index}].nsid", f"found {namespace.nsid}, {expected}"
