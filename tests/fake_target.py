"""A target without a data path: it has the state of a real one and moves no bytes."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any

from prestage.target.errors import AlreadyExists, Invalid, NotFound
from prestage.target.extension import Extension, extension_of
from prestage.target.settings import (
    ListenerSettings,
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
)


@dataclass
class FakeNamespace:
    nsid: int
    settings: NamespaceSettings
    size_bytes: int
    uuid: uuid.UUID
    nguid: bytes
    volume: int


@dataclass
class FakeConnection:
    qid: int
    reactor: int = 0
    local: tuple[str, int] = ("127.0.0.1", 4420)
    peer: tuple[str, int] = ("127.0.0.1", 50000)


@dataclass
class FakeController:
    cntlid: int
    host_nqn: str
    host_id: bytes
    admin: FakeConnection
    queues: dict[int, FakeConnection]


@dataclass
class FakeSubsystem:
    nqn: str
    serial: str
    model: str
    hosts: set[str]
    allow_any_host: bool
    max_namespaces: int
    extension: Extension | None = None
    namespaces: dict[int, FakeNamespace] = field(default_factory=dict)
    controllers: dict[int, FakeController] = field(default_factory=dict)


@dataclass
class FakeReport:
    clean: bool = True
    unflushed: list[str] = field(default_factory=list)


class FakeTarget:
    """Follows the documented behaviour of `prestage.target.target.Target`."""

    def __init__(self, settings: TargetSettings) -> None:
        self.settings = settings
        self.listeners: list[tuple[str, int]] = []
        self.by_nqn: dict[str, FakeSubsystem] = {}
        self.warnings: list[str] = []
        self.reached: dict[str, list[str]] = {}
        """What wildcards stand for."""
        self.report = FakeReport()
        self.stops: list[float] = []
        self.controls: list[tuple[int, str, str]] = []
        self.start_error: Exception | None = None
        self.hold_start: asyncio.Event | None = None
        self.hold_stop: asyncio.Event | None = None
        self.counters: dict[tuple[str, int], dict[str, int]] = {}
        self.tenants: list[dict[str, Any]] = []
        """What is told of the hints of each host."""
        self.running = False

    async def start(self) -> None:
        if self.hold_start is not None:
            await self.hold_start.wait()
        if self.start_error is not None:
            raise self.start_error
        for listener in self.settings.listeners:
            await self.add_listener(listener)
        for subsystem in self.settings.subsystems:
            await self.add_subsystem(subsystem)
        self.running = True

    def hurry(self) -> None:
        """Nothing here takes long."""

    async def stop(self, timeout_s: float) -> FakeReport:
        self.stops.append(timeout_s)
        if self.hold_stop is not None and timeout_s > 0:
            await self.hold_stop.wait()
        self.running = False
        return self.report

    def reached_by(self, address: str) -> list[str]:
        return self.reached.get(address, [] if address in ("0.0.0.0", "::") else [address])

    @property
    def subsystems(self) -> list[FakeSubsystem]:
        return list(self.by_nqn.values())

    def _subsystem(self, nqn: str) -> FakeSubsystem:
        if nqn not in self.by_nqn:
            raise NotFound("no such subsystem", nqn)
        return self.by_nqn[nqn]

    async def add_subsystem(self, settings: SubsystemSettings) -> None:
        if settings.nqn in self.by_nqn:
            raise AlreadyExists("the subsystem exists", settings.nqn)
        allow_any = settings.allow_any_host
        self.by_nqn[settings.nqn] = FakeSubsystem(
            settings.nqn,
            settings.serial or "FAKE0001",
            settings.model,
            set(settings.hosts),
            not settings.hosts if allow_any is None else allow_any,
            settings.max_namespaces,
            extension_of(settings, settings.serial),
        )
        for namespace in settings.namespaces:
            await self.add_namespace(settings.nqn, namespace)

    async def remove_subsystem(self, nqn: str) -> None:
        self._subsystem(nqn)
        del self.by_nqn[nqn]

    async def add_namespace(self, nqn: str, settings: NamespaceSettings) -> int:
        subsystem = self._subsystem(nqn)
        taken = subsystem.namespaces
        if settings.nsid in taken:
            raise AlreadyExists("the namespace exists", f"{nqn} namespace {settings.nsid}")
        nsid = settings.nsid or next(n for n in range(1, 2000) if n not in taken)
        identity = uuid.UUID(settings.uuid) if settings.uuid else uuid.uuid4()
        nguid = bytes.fromhex(settings.nguid) if settings.nguid else identity.bytes
        size = settings.size or 1 << 20
        taken[nsid] = FakeNamespace(nsid, settings, size, identity, nguid, 100 + nsid)
        return nsid

    async def remove_namespace(
        self, nqn: str, nsid: int, *, settings: NamespaceSettings | None = None
    ) -> None:
        subsystem = self._subsystem(nqn)
        if nsid not in subsystem.namespaces:
            raise NotFound("no such namespace", f"{nqn} namespace {nsid}")
        assert settings in (None, subsystem.namespaces[nsid].settings)
        del subsystem.namespaces[nsid]

    async def resize_namespace(
        self, nqn: str, nsid: int, size_bytes: int, *, settings: NamespaceSettings | None = None
    ) -> None:
        namespace = self._subsystem(nqn).namespaces[nsid]
        assert settings in (None, namespace.settings)
        namespace.size_bytes = size_bytes

    async def add_listener(self, settings: ListenerSettings) -> None:
        port = settings.port or 40000 + len(self.listeners)
        self.listeners.append((settings.address, port))

    async def remove_listener(self, address: str, port: int) -> None:
        if (address, port) not in self.listeners:
            raise NotFound("not listened on", f"{address} port {port}")
        self.listeners.remove((address, port))

    async def allow_host(self, nqn: str, host: str) -> None:
        subsystem = self._subsystem(nqn)
        if host in subsystem.hosts:
            raise AlreadyExists("the host is on the list", f"{nqn} host {host}")
        subsystem.hosts.add(host)

    async def deny_host(self, nqn: str, host: str) -> None:
        self._subsystem(nqn).hosts.discard(host)

    async def set_allow_any_host(self, nqn: str, allow: bool, /) -> None:
        self._subsystem(nqn).allow_any_host = allow

    def media_control(self, nqn: str, nsid: int, kind: str, verb: str) -> None:
        """Keep what a fault wrapper is told; there is one called stall."""
        volume = self.by_nqn[nqn].namespaces[nsid].volume
        if kind != "stall":
            raise Invalid("no such wrapper", kind, "stall")
        self.controls.append((volume, kind, verb))

    def connect(self, nqn: str, host: str, queues: int) -> None:
        """Pretend that a host connected with so many I/O queues."""
        self.by_nqn[nqn].controllers[1] = FakeController(
            1,
            host,
            bytes(16),
            FakeConnection(0),
            {n: FakeConnection(n) for n in range(1, queues + 1)},
        )

    def hints(self, host: str | None = None) -> dict[str, Any]:
        tenants = [one for one in self.tenants if host in (None, one["host_nqn"])]
        if host is not None and not tenants:
            raise NotFound("the host has not connected since the start", host)
        return {"enabled": True, "batches": 3, "tenants": tenants}

    def stats(self) -> dict[str, Any]:
        return {
            "uptime_s": 12.5,
            "connections": 0,
            "core": {"commands": 5, "bytes_in": 4096},
            "reactors": [{"busy_ns": 1000, "commands": 7}] * self.settings.reactors,
            "placement": {"reactors": [{"cpu": -1}] * self.settings.reactors},
            "subsystems": [
                {"nqn": nqn, "namespaces": [self._space(nqn, n) for n in one.namespaces.values()]}
                for nqn, one in self.by_nqn.items()
            ],
            "tier": {"read_hits": 0},
            "hints": self.hints(),
            "prestager": {
                "state": "off",
                "pid": None,
                "restarts": 0,
                "last_error": "",
                "process": {},
                "learned": {},
                "orders": {"orders": 0},
            },
            "warnings": self.warnings,
        }

    def _space(self, nqn: str, namespace: FakeNamespace) -> dict[str, Any]:
        names = ("reads", "read_bytes", "read_ns", "writes", "write_bytes", "unflushed_bytes")
        return {
            "nsid": namespace.nsid,
            "path": namespace.settings.path,
            "media": namespace.settings.media,
            "scheduler": {"window": 1, "classes": {"demand": {"waiting": 0, "in_flight": 0}}},
            "counters": dict.fromkeys(names, 0) | self.counters.get((nqn, namespace.nsid), {}),
        }
