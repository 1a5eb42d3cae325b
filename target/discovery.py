"""The discovery log page and its change events (Base 2.0, 5.16.1.23; NVMe-oF)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from prestage.target.controller import Controller
from prestage.target.events import Event
from prestage.target.network import Addresses, bare, is_loopback, is_wildcard, version_of
from prestage.target.nvme import TRTYPE_TCP, Command, Page
from prestage.target.runtime import Runtime
from prestage.target.subsystem import Subsystem

ENTRY_BYTES = 1024
HOSTS_REMEMBERED = 4096
SUBTYPE_NVM = 2
SUBTYPE_CURRENT_DISCOVERY = 3
ANY_CONTROLLER = 0xFFFF
FLOW_CONTROL_MAY_BE_DISABLED = 1 << 2
"""TREQ (figure 264)."""


@dataclass(frozen=True)
class Port:
    """A listener as discovery reports it."""

    number: int
    """PORTID."""
    address: str
    port: int

    def reached_from(self, local: str, addresses: Addresses) -> list[str]:
        """Return the addresses to report to a host that connected to `local`.

        Behind a wildcard it is the one the host has used, or, of the other IP version, those of
        the same interface. A listener on loopback is of no use to a host that came another way.
        """
        if is_wildcard(self.address):
            if local and version_of(local) == version_of(self.address):
                return [bare(local)]
            return addresses.beside(local, version_of(self.address))
        if is_loopback(self.address) and local and not is_loopback(local):
            return []
        # A zone names an interface of ours; a host knows its own.
        return [bare(self.address)]


Entry = tuple[int, str, int]
"""PORTID, address and port, as one host sees them."""
View = tuple[frozenset[str], tuple[Entry, ...]]


@dataclass
class Discovery:
    """What every host sees, and its generation counter.

    GENCTR is counted per host and the address that it came in by: it moves only when what is seen
    from there has changed. A host that has been forgotten (there are very many) gets a fresh
    number, which costs it one needless reading.
    """

    runtime: Runtime
    ports: dict[tuple[str, int], Port] = field(default_factory=dict)
    _generations: OrderedDict[tuple[str, str], tuple[View, int]] = field(
        default_factory=OrderedDict
    )
    _last: int = 0

    def subsystems(self, host_nqn: str) -> list[Subsystem]:
        """Return the NVM subsystems that a host may connect to, by NQN."""
        everything = self.runtime.subsystems.values()
        mine = [s for s in everything if not s.is_discovery and s.allows(host_nqn)]
        return sorted(mine, key=lambda s: s.nqn)

    def entries(self, local: str) -> tuple[Entry, ...]:
        """Return where a host that connected to `local` can reach the target."""
        addresses = self.runtime.network.addresses
        return tuple(
            (port.number, address, port.port)
            for port in self.ports.values()
            for address in port.reached_from(local, addresses)
        )

    def generation(self, host_nqn: str, local: str) -> int:
        """Return GENCTR for a host that connected to `local`."""
        view = (frozenset(s.nqn for s in self.subsystems(host_nqn)), self.entries(local))
        key = (host_nqn, local)
        known = self._generations.get(key)
        if known is None or known[0] != view:
            self._last += 1
            known = (view, self._last)
        self._generations[key] = known
        self._generations.move_to_end(key)
        while len(self._generations) > HOSTS_REMEMBERED:
            self._generations.popitem(last=False)
        return known[1]

    def generation_for(self, controller: Controller) -> int:
        """Return GENCTR for the host of a discovery controller."""
        return self.generation(controller.host_nqn, controller.admin.local[0])

    def changed(self) -> None:
        """Something changed: tell the hosts whose view it changed (event 2/F0)."""
        for subsystem in self.runtime.subsystems.values():
            if subsystem.is_discovery:
                for controller in list(subsystem.controllers.values()):
                    self._notify(controller)

    def _notify(self, controller: Controller) -> None:
        before = controller.discovery_generation
        controller.discovery_generation = self.generation_for(controller)
        if controller.discovery_generation != before:
            controller.post(Event.DISCOVERY)

    def log(self, controller: Controller) -> bytes:
        """Return the whole log for the host of a controller (figures 263, 264).

        The first entries are the discovery subsystem itself, one for each port.
        Hosts read it in pieces, so it is made once for each generation.
        """
        generation = self.generation_for(controller)
        if controller.discovery_log[0] != generation:
            controller.discovery_log = (generation, self._make(controller, generation))
        return controller.discovery_log[1]

    def _make(self, controller: Controller, generation: int) -> bytes:
        entries = [
            self._entry(subsystem, entry)
            for subsystem in (controller.subsystem, *self.subsystems(controller.host_nqn))
            for entry in self.entries(controller.admin.local[0])
        ]
        header = Page(ENTRY_BYTES)
        header.put(0, 8, generation)
        header.put(8, 8, len(entries))
        return bytes(header.bytes) + b"".join(entries)

    def _entry(self, subsystem: Subsystem, entry: Entry) -> bytes:
        number, address, port = entry
        page = Page(ENTRY_BYTES)
        page.put(0, 1, TRTYPE_TCP)
        page.put(1, 1, 2 if ":" in address else 1)  # ADRFAM
        page.put(2, 1, SUBTYPE_CURRENT_DISCOVERY if subsystem.is_discovery else SUBTYPE_NVM)
        page.put(3, 1, FLOW_CONTROL_MAY_BE_DISABLED)
        page.put(4, 2, number)
        page.put(6, 2, ANY_CONTROLLER)
        page.put(8, 2, self.runtime.settings.limits.queue_depth)  # ASQSZ
        page.text(32, 32, str(port))
        page.text(256, 256, subsystem.nqn, b"\0")
        page.text(512, 256, address)
        return bytes(page.bytes)


def discovery_log(controller: Controller, command: Command) -> bytes:
    """Make log page 70h."""
    discovery = controller.runtime.discovery
    return discovery.log(controller) if discovery is not None else bytes(ENTRY_BYTES)
