"""The addresses of this machine's interfaces: which there are, and when they change.

A listener on a wildcard takes connections on all of them, so this is what discovery and the banner
say in its place. Where netlink is forbidden (some containers) nothing is known: a host then sees
the address that it came in by, and no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

log = logging.getLogger("prestage.target")

GROUPS = 0x1 | 0x10 | 0x100
"""RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR (rtnetlink(7))."""
IFF_UP = 0x1
IFA_F_TEMPORARY, IFA_F_DADFAILED, IFA_F_DEPRECATED, IFA_F_TENTATIVE = 0x01, 0x08, 0x20, 0x40
UNUSABLE = IFA_F_DADFAILED | IFA_F_DEPRECATED | IFA_F_TENTATIVE
"""Nobody can connect to such an address, or nobody should begin to."""
START_S = 2.0
"""The kernel answers at once; a start does not wait for it longer than this."""
SETTLE_S = 0.05
"""Changes come in bursts; they are looked at together."""
RETRY_S = 1.0
LOOPBACK = ipaddress.ip_address("127.0.0.1")
MOST_BESIDE = 16
"""Addresses that discovery names for one listener at most."""


def bare(address: str) -> str:
    """Return an address without its zone: "fe80::1%eth0" names an interface of this machine."""
    return address.partition("%")[0]


def version_of(address: str) -> int:
    """Return 4 or 6."""
    return ipaddress.ip_address(bare(address)).version


def is_loopback(address: str) -> bool:
    """Return whether an address is of use on this machine alone."""
    return ipaddress.ip_address(bare(address)).is_loopback


def is_wildcard(address: str) -> bool:
    """Return whether a listener on this address takes connections on all addresses."""
    try:
        return ipaddress.ip_address(bare(address)).is_unspecified
    except ValueError:
        return False


class InterfaceAddress(NamedTuple):
    """An address, without its zone, and the interface that has it."""

    interface: str
    address: str


@dataclass(frozen=True)
class Addresses:
    """The usable addresses of the interfaces that are up, in the kernel's order."""

    all: tuple[InterfaceAddress, ...] = ()
    is_known: bool = False
    """False: nobody could be asked, `all` is empty."""

    @functools.cached_property
    def _interfaces(self) -> dict[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
        """By address; of those that several interfaces have, the first."""
        return {ipaddress.ip_address(one.address): one.interface for one in reversed(self.all)}

    def interface_of(self, address: str) -> str:
        """Return the interface that has an address, empty when it is not known."""
        if not self.all:
            return ""
        text, _, zone = address.partition("%")
        if zone:
            return zone
        wanted = ipaddress.ip_address(text)
        if wanted.is_loopback and wanted.version == 4:
            # The whole of 127.0.0.0/8 is there, though only one address of it is listed.
            wanted = LOOPBACK
        return self._interfaces.get(wanted, "")

    def beside(self, local: str, version: int) -> list[str]:
        """Return the addresses of an IP version that a host can reach which reached `local`.

        They are those of the same interface. Link-local ones are left out: which of its own
        interfaces leads there is something that a host cannot know.
        """
        interface = self.interface_of(local) if local else ""
        found = [
            one.address
            for one in self.all
            if one.interface == interface
            and version_of(one.address) == version
            and is_loopback(one.address) == is_loopback(local)
            and not ipaddress.ip_address(one.address).is_link_local
        ]
        return found[:MOST_BESIDE]

    def behind(self, wildcard: str) -> list[str]:
        """Return the addresses that a wildcard stands for, loopback last, link-local ones not."""
        found = [
            one.address
            for one in self.all
            if version_of(one.address) == version_of(wildcard)
            and not ipaddress.ip_address(one.address).is_link_local
        ]
        return sorted(found, key=is_loopback)


def addresses_from(
    links: Iterable[Mapping[str, Any]], addresses: Iterable[Mapping[str, Any]]
) -> Addresses:
    """Return what netlink's link and address messages say."""
    # Their attributes are found by get() alone.
    names = {link["index"]: str(link.get("ifname")) for link in links if link["flags"] & IFF_UP}
    found = []
    for message in addresses:
        # On a point-to-point link "address" is the other end; IFA_LOCAL is ours.
        text = message.get("local") or message.get("address")
        flags = message.get("flags") or 0
        is_temporary = message["family"] == socket.AF_INET6 and flags & IFA_F_TEMPORARY
        if text and message["index"] in names and not flags & UNUSABLE and not is_temporary:
            found.append(InterfaceAddress(names[message["index"]], str(text)))
    return Addresses(tuple(found), is_known=True)


class Network:
    """The addresses as they are now; once started, they are watched.

    `changed` is called after every change of `addresses`.
    """

    def __init__(self) -> None:
        self.addresses = Addresses()
        self.changed: Callable[[], None] = lambda: None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str | None:
        """Learn the addresses and watch them from now on; once.

        Returns a warning when that is not possible.
        """
        if self._task is not None:
            return None
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._watch(first))
        await asyncio.wait({first, self._task}, timeout=START_S, return_when="FIRST_COMPLETED")
        try:
            if first.done():
                first.result()
                return None
            if self._task.done():
                self._task.result()
            why = "no answer"
        except OSError as error:
            why = str(error)
        return (
            f"interface addresses are not known ({why}): discovery names no address but the"
            " one that a host came in by"
        )

    async def stop(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled() and self._task.exception() is not None:
                log.error("the watch of interfaces had ended: %r", self._task.exception())
            self._task = None

    async def _watch(self, first: asyncio.Future[None]) -> None:
        """Look at the addresses now and after each change; begin again after a fault."""
        while True:
            try:
                async with subscribed() as change:
                    while True:
                        self._take(await read_addresses())
                        if not first.done():
                            first.set_result(None)
                        await change()
            except OSError as error:
                if not first.done():
                    # What is forbidden now stays so, and was said once: no second try.
                    first.set_exception(error)
                    return
                log.warning("interfaces are looked at anew: %s", error)
            await asyncio.sleep(RETRY_S)

    def _take(self, found: Addresses) -> None:
        if found != self.addresses:
            self.addresses = found
            self.changed()


@contextlib.asynccontextmanager
async def subscribed() -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Give a function that waits for the next change; one that came before is not lost.

    Raises OSError when netlink is forbidden, or when messages were lost.
    """
    happened = asyncio.Event()
    async with netlink(GROUPS) as route:
        reader = asyncio.get_running_loop().create_task(_read(route, happened))

        async def change() -> None:
            waiting = asyncio.ensure_future(happened.wait())
            try:
                await asyncio.wait({waiting, reader}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
            if reader.done():
                reader.result()
            # What happens while these settle is seen by the same look.
            await asyncio.sleep(SETTLE_S)
            happened.clear()

        try:
            yield change
        finally:
            reader.cancel()
            await asyncio.wait([reader])


async def _read(route: Any, happened: asyncio.Event) -> None:
    """Note every message, until the socket fails."""
    with _as_os_error():
        while True:
            count = 0
            async for _ in route.get():
                count += 1
            if count == 0:
                raise OSError("netlink ended")
            happened.set()


async def read_addresses() -> Addresses:
    """Ask for all links and addresses. Raises OSError."""
    # On a socket of its own: one that hears of changes could take those for the answer.
    async with netlink(0) as route:
        with _as_os_error():
            links = [message async for message in await route.link("dump")]
            addresses = [message async for message in await route.addr("dump")]
    return addresses_from(links, addresses)


@contextlib.asynccontextmanager
async def netlink(groups: int) -> AsyncIterator[Any]:
    """Open a routing socket that hears what `groups` says. Raises OSError."""
    # pyroute2 takes a while to import, and few targets need it.
    module = await asyncio.to_thread(importlib.import_module, "pyroute2")
    with _as_os_error():
        route = module.AsyncIPRoute()
    try:
        with _as_os_error():
            await route.bind(groups=groups)
        yield route
    finally:
        route.close()


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Turn what pyroute2 raises into OSError."""
    try:
        yield
    except KeyError as error:
        # It tries other ports whatever is wrong, and says at last that none is free.
        raise OSError(f"netlink: {error.args[0]}") from error
    except Exception as error:
        if isinstance(error, OSError) or type(error).__module__.startswith("pyroute2"):
            raise OSError(f"netlink: {error}") from error
        raise
