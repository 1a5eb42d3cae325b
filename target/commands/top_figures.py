"""What `prestage top` shows, computed from two looks at the counters of a target.

Rates are of the time between the two looks; what has no `_per_s` is as it is now, or since the
start of the target. Times are in nanoseconds or seconds, as their names end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prestage.target.settings import DISCOVERY_NQN

Stats = Mapping[str, Any]
"""What prestage_get_stats returns."""
ENDINGS = ("met", "late", "dropped", "cancelled")
"""How an intent or a dated read ends; `met_warm` are among those met."""


class Rates:
    """Counters of one thing at two times."""

    def __init__(self, before: Stats, after: Stats, interval_s: float) -> None:
        self._before = before
        self._after = after
        self._interval_s = interval_s

    def grown(self, *names: str) -> int:
        """Return by how much the counters of these names grew; 0 after a restart."""
        return sum(max(self._after.get(n, 0) - self._before.get(n, 0), 0) for n in names)

    def per_s(self, *names: str) -> float:
        """Return the same by the second."""
        return round(self.grown(*names) / self._interval_s, 3)


def figures(before: Stats, after: Stats) -> dict[str, Any]:
    """Return the figures of everything, as values that JSON can hold."""
    interval_s = max(after["uptime_s"] - before["uptime_s"], 0.001)
    core = Rates(before["core"], after["core"], interval_s)
    return {
        "interval_s": round(interval_s, 3),
        "uptime_s": after["uptime_s"],
        "connections": after["connections"],
        "commands_per_s": core.per_s("commands"),
        "tier": _tier(before["tier"], after["tier"], interval_s),
        "media": _media(before, after, interval_s),
        "prestager": _prestager(before["prestager"], after["prestager"], interval_s),
        "deadlines": _deadlines(before, after, interval_s),
        "tenants": _tenants(before, after, interval_s),
        "warnings": list(after["warnings"]),
    }


def _tier(before: Stats, after: Stats, interval_s: float) -> dict[str, Any]:
    rates = Rates(before, after, interval_s)
    reads = rates.grown("read_hits", "read_misses")
    return {
        "hit_percent": round(100 * rates.grown("read_hits") / reads, 1) if reads else None,
        "frames_resident": after.get("frames_resident", 0),
        "frames_free": after.get("frames_free", 0),
        "frames_dirty": after.get("frames_dirty", 0),
        "evictions_per_s": rates.per_s("evictions"),
        "timely_hits_per_s": rates.per_s("timely_hits"),
        "late_hits_per_s": rates.per_s("late_hits"),
        "hydrated_bytes_per_s": rates.per_s("hydrated_bytes"),
        "wasted_bytes_per_s": rates.per_s("wasted_bytes"),
    }


def _namespaces(stats: Stats) -> Iterator[tuple[tuple[str, int], Stats]]:
    for subsystem in stats["subsystems"]:
        if subsystem["nqn"] != DISCOVERY_NQN:
            for namespace in subsystem["namespaces"]:
                yield (subsystem["nqn"], namespace["nsid"]), namespace


def _media(before: Stats, after: Stats, interval_s: float) -> list[dict[str, Any]]:
    earlier = dict(_namespaces(before))
    found = []
    for key, now in _namespaces(after):
        past = earlier.get(key, {})
        host = Rates(past.get("counters", {}), now["counters"], interval_s)
        scheduler = now["scheduler"]
        dated = Rates(past.get("scheduler", {}), scheduler, interval_s)
        classes = scheduler["classes"]
        found.append(
            {
                "nqn": key[0],
                "nsid": key[1],
                "reads_per_s": host.per_s("reads"),
                "read_bytes_per_s": host.per_s("read_bytes"),
                "writes_per_s": host.per_s("writes"),
                "write_bytes_per_s": host.per_s("write_bytes"),
                "media_read_bytes_per_s": host.per_s("media_read_bytes"),
                "waiting": {name: one.get("waiting", 0) for name, one in classes.items()},
                "in_flight": {name: one.get("in_flight", 0) for name, one in classes.items()},
                "window": scheduler.get("window", 0),
                "job_bytes": scheduler.get("job_bytes", 0),
                "bandwidth_bytes_per_s": scheduler.get("bandwidth", 0),
                "service_ns": scheduler.get("service_ns", 0),
                "dated_met_per_s": dated.per_s("dated_met"),
                "dated_late_per_s": dated.per_s("dated_late"),
            }
        )
    return found


def _prestager(before: Stats, after: Stats, interval_s: float) -> dict[str, Any]:
    """Return what the prestager does; what it says of itself is as of its last sign of life."""
    process = Rates(before["process"], after["process"], interval_s)
    orders = Rates(before["orders"], after["orders"], interval_s)
    now = after["process"]
    return {
        **{name: after[name] for name in ("state", "restarts", "last_error")},
        "facts_per_s": process.per_s("facts"),
        "facts_waiting": now.get("facts_waiting", 0),
        "facts_lost_per_s": process.per_s("facts_lost"),
        "orders_per_s": orders.per_s("orders"),
        "landed_per_s": orders.per_s("landed"),
        "no_room_per_s": orders.per_s("no_room"),
        "fetched_bytes_per_s": orders.per_s("fetched_bytes"),
        "pending": after["orders"].get("pending", 0),
        "cpu_percent": round(process.per_s("cpu_ns") / 1e7, 1),
        "memory_bytes": now.get("memory_bytes", 0),
        "learned": after["learned"],
    }


def _by_host(stats: Stats) -> dict[str, Stats]:
    return {one["host_nqn"]: one for one in stats["hints"]["tenants"]}


def _deadlines(before: Stats, after: Stats, interval_s: float) -> dict[str, Any]:
    """Return, for intents and for dated reads, how those of each priority ended."""
    return {
        kind: {
            priority: _endings(
                _summed(before, kind, priority), _summed(after, kind, priority), interval_s
            )
            for priority in dict.fromkeys(
                name for tenant in _by_host(after).values() for name in tenant.get(kind, {})
            )
        }
        for kind in ("intents", "dated_reads")
    }


def _summed(stats: Stats, kind: str, priority: str) -> dict[str, int]:
    total: dict[str, int] = {}
    for tenant in _by_host(stats).values():
        for name, value in tenant.get(kind, {}).get(priority, {}).items():
            total[name] = total.get(name, 0) + value
    return total


def _endings(before: Stats, after: Stats, interval_s: float) -> dict[str, Any]:
    rates = Rates(before, after, interval_s)
    per_s = {f"{name}_per_s": rates.per_s(name) for name in ENDINGS}
    return {**after, **per_s}


def _tenants(before: Stats, after: Stats, interval_s: float) -> list[dict[str, Any]]:
    earlier = _by_host(before)
    return [
        _tenant(earlier.get(host, {}), now, interval_s) for host, now in _by_host(after).items()
    ]


def _tenant(past: Stats, now: Stats, interval_s: float) -> dict[str, Any]:
    rates = Rates(past, now, interval_s)
    dropped = Rates(past.get("dropped", {}), now.get("dropped", {}), interval_s)
    return {
        "host_nqn": now["host_nqn"],
        "records_per_s": rates.per_s("records"),
        "dropped_per_s": dropped.per_s(*now.get("dropped", {})),
        "read_hints_per_s": rates.per_s("read_hints"),
        "timely_hits_per_s": rates.per_s("timely_hits"),
        "late_hits_per_s": rates.per_s("late_hits"),
        "hydrated_bytes_per_s": rates.per_s("hydrated_bytes"),
        "wasted_bytes_per_s": rates.per_s("wasted_bytes"),
        "budgets": now.get("budgets", {}),
        "frames": now["tier"].get("frames", 0),
        "hint_frames": now["tier"].get("hint_frames", 0),
    }
