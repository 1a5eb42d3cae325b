"""Listening sockets: accepting in bursts, and what to do when descriptors run out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from typing import NamedTuple

from prestage.target.errors import AlreadyExists, Invalid, TargetError
from prestage.target.settings import ListenerSettings

log = logging.getLogger("prestage.target")

ACCEPT_BURST = 16
BACKLOG = 1024
PAUSE_S = 0.1
"""How long accepting rests after an error that waiting may cure."""
EXPECTED = {
    errno.EADDRNOTAVAIL: "an address of this machine",
    errno.EACCES: "a port of 1024 or above, or the right to take a lower one",
}
OTHER = "an address and a port that can be listened on"
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
OUT_OF_MEMORY = (errno.ENOBUFS, errno.ENOMEM)


class Address(NamedTuple):
    """A bound address."""

    address: str
    port: int

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


class Listener:
    """One listening socket. `accepted` takes over each socket it is called with.

    An IPv6 wildcard takes IPv6 connections only, so that both wildcards can share a port.
    """

    def __init__(self, sock: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        self._socket = sock
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._reserve: int | None = _open_reserve()
        self._pause: asyncio.TimerHandle | None = None
        self._has_warned = False
        address, port = sock.getsockname()[:2]
        self.address = Address(address, port)
        self._loop.add_reader(sock.fileno(), self._readable)

    @classmethod
    def open(
        cls, settings: ListenerSettings, accepted: Callable[[socket.socket], None]
    ) -> Listener:
        """Bind and listen. Raises Invalid, AlreadyExists or TargetError."""
        family, sockaddr = _resolve(settings)
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(sockaddr)
            sock.listen(BACKLOG)
            return cls(sock, accepted)
        except OSError as error:
            sock.close()
            where = f"listener {Address(settings.address, settings.port)}"
            if error.errno == errno.EADDRINUSE:
                raise AlreadyExists("the address is in use", where, "a free port") from error
            what = error.strerror or str(error)
            raise TargetError(what, where, EXPECTED.get(error.errno or 0, OTHER)) from error

    def close(self) -> None:
        """Stop listening; accepted connections live on."""
        self._loop.remove_reader(self._socket.fileno())
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None

    def _readable(self) -> None:
        for _ in range(ACCEPT_BURST):
            try:
                sock, _ = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    self._shed(error)
                    return
                if error.errno in OUT_OF_MEMORY:
                    self._rest()
                    return
                continue  # That connection died while it waited (accept(2)).
            sock.setblocking(False)
            self._has_warned = False
            self._accepted(sock)

    def _shed(self, error: OSError) -> None:
        """Refuse one connection with the reserve descriptor: it must not stay in the backlog."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("listener %s: %s; connections are refused", self.address, error.strerror)
        if self._reserve is not None:
            os.close(self._reserve)
            self._reserve = None
            # It may have gone by itself, or another thread may have taken the descriptor.
            with contextlib.suppress(OSError):
                self._socket.accept()[0].close()
        self._reserve = _open_reserve()
        if self._reserve is None:
            self._rest()

    def _rest(self) -> None:
        """Look away for a moment: the backlog stays readable, and must not spin the loop."""
        self._loop.remove_reader(self._socket.fileno())
        self._pause = self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        if self._reserve is None:
            self._reserve = _open_reserve()
        self._loop.add_reader(self._socket.fileno(), self._readable)


def _open_reserve() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _resolve(settings: ListenerSettings) -> tuple[int, tuple[str, int] | tuple[str, int, int, int]]:
    """Return family and socket address; only numeric addresses, so that nothing waits for DNS."""
    where = f"listener {settings.address}"
    if not 0 <= settings.port <= 65535:
        raise Invalid(f"port {settings.port}", where, "0 to 65535, 0 for a free one")
    try:
        ipaddress.ip_address(settings.address)
        found = socket.getaddrinfo(
            settings.address,
            settings.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_NUMERICHOST | socket.AI_PASSIVE,
        )
    except (ValueError, socket.gaierror):
        raise Invalid("not an IP address", where, "an IPv4 or IPv6 address") from None
    family, _, _, _, sockaddr = found[0]
    return family, sockaddr  # type: ignore[return-value]
