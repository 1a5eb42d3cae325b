"""What the parts of the control plane share: the data path, the settings, and who is connected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prestage.target.datapath import Cookies, DataPath
from prestage.target.network import Network
from prestage.target.placement import Placement
from prestage.target.settings import TargetSettings
from prestage.target.supervisor import COMMAND, Supervisor
from prestage.target.tenants import Tenants

if TYPE_CHECKING:
    from prestage.target.controller import Controller
    from prestage.target.discovery import Discovery
    from prestage.target.subsystem import Subsystem


@dataclass(eq=False)
class Connection:
    """A connection that the data path owns; one queue once its Connect succeeded."""

    id: int
    reactor: int
    local: tuple[str, int] = ("", 0)
    """Address and port that the host connected to."""
    peer: tuple[str, int] = ("", 0)
    interface: str = ""
    """That it came in by; empty when that is not known."""
    placed_by: str = "load"
    """What chose the reactor (`prestage.target.placement`)."""
    controller: Controller | None = None
    qid: int = 0
    sq_size: int = 0
    """Entries; 0 before Connect."""
    closing: bool = False


@dataclass
class Runtime:
    """Shared state of one running target."""

    data_path: DataPath
    settings: TargetSettings
    prestager_command: Sequence[str] = COMMAND
    cookies: Cookies = field(default_factory=Cookies)
    subsystems: dict[str, Subsystem] = field(default_factory=dict)
    """By NQN, the discovery subsystem included."""
    connections: dict[int, Connection] = field(default_factory=dict)
    all_closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there are no connections."""
    tenants: Tenants = field(init=False)
    prestager: Supervisor = field(init=False)
    discovery: Discovery | None = None
    network: Network = field(default_factory=Network)
    placement: Placement = field(init=False)
    own_warnings: list[str] = field(default_factory=list)
    """Those that are not about a namespace."""
    background: set[asyncio.Task[str]] = field(default_factory=set)
    """Removals whose medium takes its time."""
    power_cycles: int = 1
    unsafe_shutdowns: int = 0
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.placement = Placement.of(self.settings.reactors, self.settings.cpus)
        self.tenants = Tenants(self.data_path, self.settings)
        self.prestager = Supervisor(self.data_path, self.settings, self.prestager_command)
        self.tenants.named = self.prestager.name_tenant

    def load(self) -> list[int]:
        """Return the number of connections of each reactor."""
        counts = [0] * self.settings.reactors
        for connection in self.connections.values():
            counts[connection.reactor] += 1
        return counts

    @property
    def warnings(self) -> list[str]:
        """What somebody should know, in sentences."""
        namespaces = [n for s in self.subsystems.values() for n in s.namespaces.values()]
        own = [*self.own_warnings, *self.prestager.warnings]
        return [*own, *(text for n in namespaces for text in n.warnings)]

    def close(self, connection: Connection, *, after_output: bool = True) -> None:
        """Close a connection once; what hangs on it goes when its ClosedNotice comes."""
        if not connection.closing:
            connection.closing = True
            self.data_path.close(connection.id, after_output)
