"""From the settings to the configuration of the data path (csrc/core.h, csrc/hints.h)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prestage.target.settings import MAX_TENANTS, TargetSettings
from prestage.target.tenants import default_budget

NOT_PINNED = -1
NS_A_SECOND = 1_000_000_000
NS_A_MS = 1_000_000
PART_ITEMS = 32
"""Extents that hints look at in one go: a few microseconds, in which a read may have to wait."""


def core_config(settings: TargetSettings, lib: Any) -> dict[str, Any]:
    """Return struct ps_core_config for these settings; `lib` is the C module's."""
    limits, tier, transport = settings.limits, settings.tier, settings.transport
    cpus = [*settings.cpus, *[NOT_PINNED] * lib.PS_MAX_REACTORS][: lib.PS_MAX_REACTORS]
    return {
        "reactor_count": settings.reactors,
        "cpus": cpus,
        "max_connections": limits.connections,
        "queue_depth": limits.queue_depth,
        "max_transfer": limits.max_transfer,
        "in_capsule_size": limits.in_capsule,
        "max_h2c_data": limits.max_transfer,
        "digests": transport.header_digest * lib.PS_DIGEST_HEADER
        | transport.data_digest * lib.PS_DIGEST_DATA,
        "success": int(transport.success),
        "slot_size": tier.slot,
        "dram_bytes": tier.size,
        "huge_pages": int(tier.huge_pages),
        "dirty_percent": tier.dirty_percent,
        "writeback_age_ns": round(tier.writeback_s * NS_A_SECOND),
        "handshake_timeout_ns": round(limits.handshake_s * NS_A_SECOND),
        "poll_ns": transport.poll_us * 1000,
        "starvation_ns": round(settings.scheduler.starvation_ms * NS_A_MS),
        "merge_bytes": settings.scheduler.merge_bytes,
        "tenant_count": MAX_TENANTS + 1,
        "ring_capacity": settings.hints.ring_facts,
        "orders_capacity": settings.prestager.orders if settings.prestager.enabled else 0,
        "hints": hints_config(settings, lib),
    }


def hints_config(settings: TargetSettings, lib: Any) -> dict[str, Any]:
    """Return struct ps_hints_config; what the core knows itself it sets itself."""
    hints = settings.hints
    return {
        "subsystem_count": lib.PS_MAX_SUBSYSTEMS,
        "sets": hints.total_sets,
        "set_ranges": hints.total_set_ranges,
        "signatures": hints.total_signatures,
        "intents": hints.total_intents,
        "answer_pages": hints.answer_pages,
        "max_set_ranges": hints.max_set_ranges,
        "max_ttl_ms": round(hints.max_ttl_s * 1000),
        "piece_bytes": max(settings.scheduler.merge_bytes, settings.tier.slot),
        "part_items": PART_ITEMS,
        "follow_bytes": hints.follow_bytes,
        "grace_ns": round(hints.grace_s * NS_A_SECOND),
        "budget": asdict(default_budget(settings)),
    }
