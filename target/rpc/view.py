"""What the control socket and the command line see of a running target, and nothing more of it.

`TargetLike` is the part of `prestage.target.target.Target` that they use; the rest of the package
reads a target only through the plain views made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from prestage.target.settings import (
    ListenerSettings,
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
)


class StopReportLike(Protocol):
    """How a stop went."""

    @property
    def clean(self) -> bool:
        """Whether everything was flushed and closed in time."""

    @property
    def unflushed(self) -> Sequence[object]:
        """What was not, by name."""


class TargetLike(Protocol):
    """The part of `Target` that is used from here; see its documentation."""

    settings: TargetSettings

    @property
    def listeners(self) -> Sequence[Any]:
        """The bound (address, port) pairs."""

    def reached_by(self, address: str) -> Sequence[str]:
        """Return the addresses by which hosts reach a listener; a wildcard stands for many."""

    @property
    def subsystems(self) -> Sequence[Any]:
        """The NVM subsystems."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is not as it should be, in sentences."""

    async def start(self) -> None:
        """Open media, bind listeners, run."""

    async def stop(self, timeout_s: float) -> StopReportLike:
        """Drain, flush, close."""

    def hurry(self) -> None:
        """Let a stop under way wait for nothing that costs no data."""

    async def add_subsystem(self, settings: SubsystemSettings) -> object:
        """Add a subsystem with its namespaces."""

    async def remove_subsystem(self, nqn: str) -> object:
        """Remove a subsystem with its namespaces."""

    async def add_namespace(self, nqn: str, settings: NamespaceSettings) -> int:
        """Add a namespace and return its NSID."""

    async def remove_namespace(
        self, nqn: str, nsid: int, *, settings: NamespaceSettings | None = None
    ) -> object:
        """Remove a namespace, if it is still the one that has these very settings."""

    async def resize_namespace(
        self, nqn: str, nsid: int, size_bytes: int, *, settings: NamespaceSettings | None = None
    ) -> object:
        """Change the size of a namespace and its medium, if it still has these very settings."""

    async def add_listener(self, settings: ListenerSettings) -> object:
        """Listen on an address."""

    async def remove_listener(self, address: str, port: int) -> object:
        """Stop listening on an address."""

    async def allow_host(self, nqn: str, host: str) -> object:
        """Put a host on the list."""

    async def deny_host(self, nqn: str, host: str) -> object:
        """Take a host off the list and disconnect it."""

    async def set_allow_any_host(self, nqn: str, allow: bool, /) -> object:
        """Let every host connect, or only those listed."""

    def media_control(self, nqn: str, nsid: int, kind: str, verb: str) -> object:
        """Tell a fault wrapper what to do (csrc/media.h, ps_media_control)."""

    def stats(self) -> dict[str, Any]:
        """Return every counter."""

    def hints(self, host: str | None = None) -> dict[str, Any]:
        """Return what the hints of all hosts, or of one, came to. Raises NotFound."""


class NamespaceView(NamedTuple):
    """A namespace as it is now."""

    nqn: str
    nsid: int
    settings: NamespaceSettings
    size_bytes: int
    block: int
    uuid: str
    """With dashes, lower case."""
    nguid: str
    """32 hexadecimal digits, lower case."""


class SubsystemView(NamedTuple):
    """A subsystem as it is now."""

    nqn: str
    serial: str
    model: str
    hosts: list[str]
    allow_any_host: bool
    max_namespaces: int
    extension_nsid: int
    """0: there is no extension namespace."""
    namespaces: list[NamespaceView]


class ListenerView(NamedTuple):
    """A bound listener."""

    address: str
    port: int

    @property
    def family(self) -> str:
        """IPv4 or IPv6."""
        return "IPv6" if ":" in self.address else "IPv4"

    @property
    def text(self) -> str:
        """ADDRESS:PORT, with brackets around an IPv6 address."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else self.plain

    @property
    def plain(self) -> str:
        """ADDRESS:PORT."""
        return f"{self.address}:{self.port}"


def listeners(target: TargetLike) -> list[ListenerView]:
    """Return the bound listeners."""
    return [ListenerView(str(bound[0]), int(bound[1])) for bound in target.listeners]


def reached_by(target: TargetLike, bound: ListenerView) -> list[ListenerView]:
    """Return where hosts reach a listener: for a wildcard, the addresses that it stands for.

    Loopback takes its place when those are not known.
    """
    found = target.reached_by(bound.address)
    if not found:
        found = ["::1" if bound.family == "IPv6" else "127.0.0.1"]
    return [ListenerView(address, bound.port) for address in found]


def subsystems(target: TargetLike) -> list[SubsystemView]:
    """Return the NVM subsystems, in the order in which they were added."""
    return [_subsystem(found) for found in target.subsystems]


def _subsystem(found: Any) -> SubsystemView:
    return SubsystemView(
        nqn=found.nqn,
        serial=found.serial,
        model=found.model,
        hosts=sorted(found.hosts),
        allow_any_host=found.allow_any_host,
        max_namespaces=found.max_namespaces,
        extension_nsid=found.extension.nsid if found.extension is not None else 0,
        namespaces=[
            _namespace(found.nqn, found.namespaces[nsid]) for nsid in sorted(found.namespaces)
        ],
    )


def _namespace(nqn: str, found: Any) -> NamespaceView:
    return NamespaceView(
        nqn=nqn,
        nsid=found.nsid,
        settings=found.settings,
        size_bytes=found.size_bytes,
        block=found.settings.block,
        uuid=str(found.uuid),
        nguid=found.nguid if isinstance(found.nguid, str) else bytes(found.nguid).hex(),
    )


def namespaces(target: TargetLike) -> list[NamespaceView]:
    """Return the namespaces of all subsystems."""
    return [namespace for one in subsystems(target) for namespace in one.namespaces]


class QueueView(NamedTuple):
    """A connected queue of a controller."""

    qid: int
    local: ListenerView
    peer: ListenerView
    reactor: int


class ControllerView(NamedTuple):
    """A controller: one host's association with a subsystem."""

    cntlid: int
    host_nqn: str
    host_id: bytes
    queues: list[QueueView]


def controllers(target: TargetLike, nqn: str) -> list[ControllerView]:
    """Return the controllers of a subsystem, which is there."""
    (found,) = [one.controllers for one in target.subsystems if one.nqn == nqn]
    return [_controller(found[cntlid]) for cntlid in sorted(found)]


def _controller(found: Any) -> ControllerView:
    return ControllerView(
        cntlid=found.cntlid,
        host_nqn=found.host_nqn,
        host_id=bytes(found.host_id),
        queues=[
            QueueView(q.qid, ListenerView(*q.local), ListenerView(*q.peer), q.reactor)
            for q in [found.admin, *(found.queues[qid] for qid in sorted(found.queues))]
        ],
    )


class VolumeView(NamedTuple):
    """The counters of a namespace's volume; times are sums in nanoseconds."""

    reads: int = 0
    read_bytes: int = 0
    read_ns: int = 0
    writes: int = 0
    write_bytes: int = 0
    write_ns: int = 0
    discards: int = 0
    copies: int = 0
    errors: int = 0
    in_flight: int = 0
    unflushed_bytes: int = 0


def volume_stats(target: TargetLike) -> dict[tuple[str, int], VolumeView]:
    """Return the counters of all namespaces, by NQN and NSID."""
    found: dict[tuple[str, int], VolumeView] = {}
    for subsystem in target.stats()["subsystems"]:
        for namespace in subsystem["namespaces"]:
            counters = namespace["counters"]
            known = {name: counters[name] for name in VolumeView._fields if name in counters}
            found[subsystem["nqn"], namespace["nsid"]] = VolumeView(**known)
    return found


def unflushed(target: TargetLike) -> list[str]:
    """Return the namespaces whose data is not all on their media, each in words."""
    return [
        f"{one['nqn']} namespace {space['nsid']} ({space['path'] or space['media']}): "
        f"{space['counters']['unflushed_bytes']} bytes"
        for one in target.stats()["subsystems"]
        for space in one["namespaces"]
        if space["counters"].get("unflushed_bytes")
    ]


class ReactorView(NamedTuple):
    """A reactor thread and how busy it was since the target started."""

    number: int
    cpu: int
    """-1: not pinned."""
    busy_ns: int
    idle_ns: int
    commands: int

    @property
    def mask(self) -> str:
        """The CPU it is pinned to as a hexadecimal mask; all when it is not pinned."""
        return f"{1 << self.cpu:x}" if self.cpu >= 0 else "ffffffff"


def reactor_stats(target: TargetLike, uptime_ns: int) -> list[ReactorView]:
    """Return the reactors."""
    stats = target.stats()
    rows = zip(stats["reactors"], stats["placement"]["reactors"], strict=True)
    return [
        ReactorView(
            number=index,
            cpu=place["cpu"],
            busy_ns=row["busy_ns"],
            idle_ns=max(uptime_ns - row["busy_ns"], 0),
            commands=row["commands"],
        )
        for index, (row, place) in enumerate(rows)
    ]
