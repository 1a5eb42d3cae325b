"""Network namespaces joined by cables through a switch. All of it vanishes with this process.

host a: 10.77.1.2, fd77:1::2    nic ── port-a-host [br-a] port-a-target ── to-a 10.77.1.1, ...
host b: 10.77.2.2, fd77:2::2    nic ── port-b-host [br-b] port-b-target ── to-b 10.77.2.1, ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, NetlinkError, netns

WAIT_S = 10.0
IFA_F_NODAD = 0x02
HOLD = """
set -e
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
echo 0 > /proc/sys/net/ipv6/conf/default/disable_ipv6
exec cat
"""
"""Addresses are of use at once; `cat` ends when the pipe to it does, however this process ends."""


class Unavailable(Exception):
    """This machine cannot do it; the text says why."""


class Namespace:
    """A network namespace. It lives as long as the process that was started in it."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self.pid = self._holder.pid
        self.path = f"/proc/{self.pid}/ns/net"
        with contextlib.suppress(BrokenPipeError):
            self._holder.stdin.write(b"there\n")
            self._holder.stdin.flush()
        if self._holder.stdout.readline() != b"there\n":
            _, said = self._holder.communicate()
            raise Unavailable(f"no network namespace can be made: {said.decode().strip()}")

    def close(self) -> None:
        """Let it go, with the interfaces in it."""
        self._holder.kill()
        self._holder.communicate()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What is started in here, sockets and processes, belongs to the namespace for good."""
        netns.pushns(self.path)
        try:
            yield
        finally:
            netns.popns()

    @contextlib.contextmanager
    def route(self) -> Iterator[Any]:
        """The namespace's links and addresses, to be changed."""
        with self.inside(), IPRoute() as route:
            yield route

    def link(self, name: str, state: str) -> None:
        """Set an interface "up" or "down"."""
        with self.route() as route:
            route.link("set", index=index_of(route, name), state=state)

    def add_address(self, interface: str, address: str) -> None:
        """Give an interface an address, written with its prefix length; usable at once."""
        text, _, length = address.partition("/")
        flags = {"flags": IFA_F_NODAD} if ":" in text else {}
        with self.route() as route:
            index = index_of(route, interface)
            route.addr("add", index=index, address=text, prefixlen=int(length), **flags)

    def remove_address(self, interface: str, address: str) -> None:
        """Take an address away."""
        text, _, length = address.partition("/")
        with self.route() as route:
            index = index_of(route, interface)
            route.addr("del", index=index, address=text, prefixlen=int(length))

    def link_local(self, interface: str) -> str:
        """The link-local address of an interface, without zone."""
        limit = time.monotonic() + WAIT_S
        while time.monotonic() < limit:
            with self.route() as route:
                found = list(route.get_addr(index=index_of(route, interface), scope=253))
            if found:
                return str(found[0].get("address"))
            time.sleep(0.02)
        raise AssertionError(f"{interface} gets no link-local address")


def index_of(route: Any, name: str) -> int:
    """The index of an interface."""
    return int(route.link_lookup(ifname=name)[0])


@dataclasses.dataclass(frozen=True)
class Site:
    """One host, its cable, and the target's addresses at the other end of it."""

    name: str
    number: int
    host: Namespace

    @property
    def target_interface(self) -> str:
        """The target's interface on this host's side."""
        return f"to-{self.name}"

    @property
    def ipv4(self) -> str:
        """The target's IPv4 address."""
        return f"10.77.{self.number}.1"

    @property
    def ipv6(self) -> str:
        """The target's global IPv6 address."""
        return f"fd77:{self.number}::1"


class Cables:
    """Two hosts and a target. `close` removes everything."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        try:
            self.switch, self.target, *hosts = [self._namespace() for _ in range(4)]
            self.a, self.b = (Site(*each) for each in zip("ab", (1, 2), hosts, strict=True))
            for namespace in (self.switch, self.target, *hosts):
                namespace.link("lo", "up")
            for site in (self.a, self.b):
                self._lay(site)
        except NetlinkError as error:
            self.close()
            raise Unavailable(f"no cables can be laid: {error}") from error
        except BaseException:
            self.close()
            raise

    def _namespace(self) -> Namespace:
        namespace = Namespace()
        self._stack.callback(namespace.close)
        return namespace

    def _lay(self, site: Site) -> None:
        """A bridge in the switch, a cable to the host, and one to the target."""
        ends = {"host": (site.host, "nic", 2), "target": (self.target, site.target_interface, 1)}
        with self.switch.route() as route:
            route.link("add", ifname=f"br-{site.name}", kind="bridge")
            bridge = index_of(route, f"br-{site.name}")
            for end, (namespace, interface, _) in ends.items():
                peer = {"ifname": interface, "net_ns_pid": namespace.pid}
                port = f"port-{site.name}-{end}"
                route.link("add", ifname=port, kind="veth", peer=peer)
                route.link("set", index=index_of(route, port), master=bridge, state="up")
            route.link("set", index=bridge, state="up")
        for namespace, interface, last in ends.values():
            namespace.link(interface, "up")
            namespace.add_address(interface, f"10.77.{site.number}.{last}/24")
            namespace.add_address(interface, f"fd77:{site.number}::{last}/64")

    def pull(self, site: Site) -> None:
        """Pull a host's cable out of the switch: nothing goes either way, nobody is told."""
        self.switch.link(f"port-{site.name}-host", "down")

    def plug(self, site: Site) -> None:
        """Put it back."""
        self.switch.link(f"port-{site.name}-host", "up")

    def close(self) -> None:
        """Remove everything."""
        self._stack.close()


def cables() -> Cables:
    """Lay the cables. Raises Unavailable with the reason when this machine cannot."""
    if not Path("/proc/self/ns/net").exists():
        raise Unavailable("this kernel has no network namespaces")
    return Cables()
