"""Which reactor serves a connection: one near the network card that it came in by.

Packets are handled on the CPUs of the card's NUMA node, so a reactor that is pinned to one of them
reads them from memory that is near. Among those, the one on the CPU that handles this connection's
packets, or the one that serves its receive queue already, is preferred while that keeps the load
even; else the least loaded is taken. Reactors that are not pinned, cards that do not tell, and
machines of one node are the case where only the load counts.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SYS_NET = Path("/sys/class/net")
SYS_NODES = Path("/sys/devices/system/node")
SO_INCOMING_CPU = 49
SO_INCOMING_NAPI_ID = 56
MAX_DEPTH = 4
"""Of devices over devices: a VLAN over a bond over cards has depth 3."""
MAX_CPU = 1 << 16
MAX_QUEUES = 4096
MAX_NICS = 1024
UNEVEN = 4
"""A preferred reactor may have a quarter more connections than the least loaded."""


class Nic(NamedTuple):
    """What is known of the card, or cards, below an interface."""

    node: int = -1
    """NUMA node; -1: none, not known, or several."""
    cpus: frozenset[int] = frozenset()
    """CPUs near it; empty: not known."""
    is_device: bool = False
    """There is a device below it, and not only software."""


class Arrival(NamedTuple):
    """How a connection came in."""

    nic: Nic = Nic()
    cpu: int = -1
    """That handles its packets; -1: not known."""
    queue: int = 0
    """Number of the receive queue (NAPI ID); 0: not known."""


class Choice(NamedTuple):
    """A reactor, and what decided."""

    reactor: int
    by: str
    """"cpu", "queue", "node" or "load"."""


def cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list as sysfs writes it ("0-3,8"); empty when it is none."""
    found: set[int] = set()
    try:
        for part in filter(None, text.strip().split(",")):
            first, _, last = part.partition("-")
            low, high = int(first), int(last or first)
            if not 0 <= low <= high < MAX_CPU:
                return frozenset()
            found.update(range(low, high + 1))
    except ValueError:
        return frozenset()
    return frozenset(found)


def read_nic(interface: str, root: Path = SYS_NET, depth: int = MAX_DEPTH) -> Nic:
    """Return what sysfs says of an interface, or of the cards below it."""
    if not interface or "/" in interface or interface.startswith("."):
        return Nic()
    place = root / interface
    if (place / "device").exists():
        node = _read(place / "device" / "numa_node")
        cpus = cpu_list(_read(place / "device" / "local_cpulist"))
        return Nic(int(node) if node.isdigit() else -1, cpus, is_device=True)
    if depth == 0:
        return Nic()
    lower: list[Nic] = []
    with contextlib.suppress(OSError):
        names = sorted(path.name for path in place.glob("lower_*"))
        lower = [read_nic(name.removeprefix("lower_"), root, depth - 1) for name in names]
    lower = [nic for nic in lower if nic.is_device]
    nodes = {nic.node for nic in lower}
    # One card below it that does not tell could be anywhere.
    known = all(nic.cpus for nic in lower)
    cpus = frozenset[int]().union(*(nic.cpus for nic in lower)) if known else frozenset[int]()
    return Nic(nodes.pop() if len(nodes) == 1 else -1, cpus, is_device=bool(lower))


def read_nodes(root: Path = SYS_NODES) -> dict[int, int]:
    """Return the NUMA node of each CPU; empty when there are no nodes."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for place in root.glob("node[0-9]*"):
            number = place.name.removeprefix("node")
            if number.isdigit():
                found.update(dict.fromkeys(cpu_list(_read(place / "cpulist")), int(number)))
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def choose(
    pinned: Sequence[int],
    load: Sequence[int],
    arrival: Arrival,
    *,
    start: int = 0,
    of_queue: int | None = None,
) -> Choice:
    """Choose a reactor.

    `pinned` has the CPU of each reactor (-1: not pinned), `load` its number of connections,
    `of_queue` the reactor that serves the same receive queue. Among equals the first from `start`
    on is taken.
    """
    count = len(load)
    assert count > 0, "there is a reactor"
    assert len(pinned) == count, "every reactor has a load, and a CPU or -1"
    order = [(start + step) % count for step in range(count)]
    near = [reactor for reactor in order if pinned[reactor] in arrival.nic.cpus]
    group = near or order
    least = min(group, key=lambda reactor: load[reactor])
    most = load[least] + load[least] // UNEVEN
    if arrival.nic.is_device:
        # Loopback and virtual links handle packets on the sender's CPU, which says nothing.
        for reactor in group:
            if pinned[reactor] >= 0 and pinned[reactor] == arrival.cpu and load[reactor] <= most:
                return Choice(reactor, "cpu")
        if of_queue is not None and of_queue in group and load[of_queue] <= most:
            return Choice(of_queue, "queue")
    return Choice(least, "node" if len(group) < count else "load")


def incoming(sock: socket.socket, option: int, unknown: int) -> int:
    """Return SO_INCOMING_CPU or SO_INCOMING_NAPI_ID of a connection, `unknown` if there is none."""
    try:
        return sock.getsockopt(socket.SOL_SOCKET, option)
    except OSError:
        return unknown


@dataclass
class Placement:
    """Places connections on the reactors of one target, and counts what decided."""

    pinned: tuple[int, ...]
    """The CPU of each reactor, -1 where it is not pinned."""
    root: Path = SYS_NET
    chosen_by: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("cpu", "queue", "node", "load"), 0)
    )
    _nics: dict[str, Nic] = field(default_factory=dict)
    _queues: dict[int, int] = field(default_factory=dict)
    _last: int = -1

    @classmethod
    def of(cls, reactors: int, cpus: Sequence[int]) -> Placement:
        """Make one for reactors that are pinned to `cpus`, as far as those go."""
        return cls(tuple(cpus[:reactors]) + (-1,) * (reactors - len(cpus)))

    @property
    def needs_interfaces(self) -> bool:
        """Whether it matters which card a connection came in by."""
        return len(self.pinned) > 1 and any(cpu >= 0 for cpu in self.pinned)

    def forget(self) -> None:
        """Interfaces have changed: look at their cards again."""
        self._nics.clear()

    def nic(self, interface: str) -> Nic:
        """Return the card of an interface."""
        if interface not in self._nics:
            if len(self._nics) >= MAX_NICS:
                self._nics.clear()
            self._nics[interface] = read_nic(interface, self.root)
        return self._nics[interface]

    def place(self, sock: socket.socket, interface: str, load: Sequence[int]) -> Choice:
        """Choose the reactor of a connection that came in by `interface`."""
        arrival = Arrival()
        if self.needs_interfaces and interface:
            arrival = Arrival(
                self.nic(interface),
                incoming(sock, SO_INCOMING_CPU, -1),
                max(incoming(sock, SO_INCOMING_NAPI_ID, 0), 0),
            )
        queue = arrival.queue if arrival.nic.is_device else 0
        choice = choose(
            self.pinned,
            load,
            arrival,
            start=self._last + 1,
            of_queue=self._queues.get(queue) if queue else None,
        )
        self._last = choice.reactor
        if queue:
            if len(self._queues) >= MAX_QUEUES:
                self._queues.clear()
            self._queues[queue] = choice.reactor
        self.chosen_by[choice.by] += 1
        return choice

    def report(self, load: Sequence[int], cpus: Sequence[int]) -> dict[str, object]:
        """Return what decided and where reactors are, as plain values.

        `cpus` has the CPU that each is pinned to in fact, -1 for none.
        """
        nodes = read_nodes()
        return {
            "chosen_by": dict(self.chosen_by),
            "reactors": [
                {"cpu": cpu, "node": nodes.get(cpu, -1), "connections": load[number]}
                for number, cpu in enumerate(cpus)
            ],
        }
