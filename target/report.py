"""All counters of a running target as plain values (`prestage stats --json`)."""

from __future__ import annotations

import time
from typing import Any

from prestage.target.controller import Controller
from prestage.target.hint_report import hint_report, scheduler_report
from prestage.target.latency import percentiles
from prestage.target.listener import Address
from prestage.target.network import is_wildcard
from prestage.target.runtime import Connection, Runtime
from prestage.target.subsystem import Namespace, Subsystem


def report(runtime: Runtime, listeners: list[Address], refused: int) -> dict[str, Any]:
    """Return the report. Counters are totals since the start; `_ns` and `_bytes` are units."""
    data_path = runtime.data_path
    reactors = range(runtime.settings.reactors)
    cpus = [data_path.reactor_cpu(number) for number in reactors]
    return {
        "uptime_s": round(time.monotonic() - runtime.started, 3),
        "listeners": [
            {"address": a.address, "port": a.port, "reached_by": reached_by(runtime, a.address)}
            for a in listeners
        ],
        "connections": len(runtime.connections),
        "connections_refused": refused,
        "core": data_path.stats(),
        "reactors": [data_path.reactor_stats(number) for number in reactors],
        "placement": runtime.placement.report(runtime.load(), cpus),
        "tier": data_path.tier_stats(),
        "hints": hint_report(runtime),
        "prestager": runtime.prestager.report(),
        "subsystems": [_subsystem(runtime, s) for s in runtime.subsystems.values()],
        "warnings": runtime.warnings,
    }


def reached_by(runtime: Runtime, address: str) -> list[str]:
    """Return the addresses by which hosts reach a listener on `address`.

    Behind a wildcard they are those of the interfaces: an empty list when nobody could be asked.
    """
    return runtime.network.addresses.behind(address) if is_wildcard(address) else [address]


def _subsystem(runtime: Runtime, subsystem: Subsystem) -> dict[str, Any]:
    return {
        "nqn": subsystem.nqn,
        "discovery": subsystem.is_discovery,
        "serial": subsystem.serial,
        "model": subsystem.model,
        "allow_any_host": subsystem.allow_any_host,
        "hosts": sorted(subsystem.hosts),
        "max_namespaces": subsystem.max_namespaces,
        "extension": _extension(subsystem),
        "namespaces": [_namespace(runtime, n) for n in subsystem.namespaces.values()],
        "controllers": [_controller(runtime, c) for c in subsystem.controllers.values()],
    }


def _extension(subsystem: Subsystem) -> dict[str, Any] | None:
    extension = subsystem.extension
    return None if extension is None else {"nsid": extension.nsid, "uuid": str(extension.uuid)}


def _namespace(runtime: Runtime, namespace: Namespace) -> dict[str, Any]:
    data_path = runtime.data_path
    settings = namespace.settings
    return {
        "nsid": namespace.nsid,
        "uuid": str(namespace.uuid),
        "nguid": namespace.nguid.hex().upper(),
        "path": settings.path,
        "media": settings.media,
        "block_bytes": namespace.block_bytes,
        "size_bytes": namespace.size_bytes,
        "write_policy": settings.write_policy,
        "read_only": settings.read_only,
        "failing": namespace.failing,
        "counters": data_path.volume_stats(namespace.volume),
        "read_latency": percentiles(data_path.volume_latency(namespace.volume, writes=False)),
        "write_latency": percentiles(data_path.volume_latency(namespace.volume, writes=True)),
        "scheduler": scheduler_report(data_path.volume_sched(namespace.volume)),
    }


def _controller(runtime: Runtime, controller: Controller) -> dict[str, Any]:
    queues = [controller.admin, *controller.queues.values()]
    return {
        "cntlid": controller.cntlid,
        "host_nqn": controller.host_nqn,
        "host_id": controller.host_id.hex(),
        "ready": controller.ready,
        "kato_ms": controller.keep_alive.kato_ms,
        "commands": controller.commands,
        "errors": controller.error_count,
        "async_event_requests": controller.events.outstanding,
        "queues": [_queue(runtime, queue) for queue in queues],
    }


def _queue(runtime: Runtime, queue: Connection) -> dict[str, Any]:
    return {
        "qid": queue.qid,
        "sq_size": queue.sq_size,
        "connection": queue.id,
        "reactor": queue.reactor,
        "placed_by": queue.placed_by,
        "interface": queue.interface,
        "local": {"address": queue.local[0], "port": queue.local[1]},
        "peer": {"address": queue.peer[0], "port": queue.peer[1]},
        **runtime.data_path.connection_stats(queue.id),
    }
