"""Accepted sockets to reactors, and notices of the data path to whom they concern."""

from __future__ import annotations

import logging
import socket

from prestage.target import admin
from prestage.target.datapath import (
    ClosedNotice,
    CommandNotice,
    DoneNotice,
    HealthNotice,
    IoErrorNotice,
    Notice,
    WarmEventNotice,
)
from prestage.target.errors import Exhausted
from prestage.target.events import Event
from prestage.target.runtime import Connection, Runtime

log = logging.getLogger("prestage.target")


class Connections:
    """The traffic between the data path and the controllers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.refused = 0

    def accepted(self, sock: socket.socket) -> None:
        """Give a socket to the reactor that suits it best (`prestage.target.placement`)."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local, peer = sock.getsockname()[:2], sock.getpeername()[:2]
        except OSError:
            sock.close()  # The host has gone already.
            return
        runtime = self._runtime
        interface = runtime.network.addresses.interface_of(local[0])
        reactor, placed_by = runtime.placement.place(sock, interface, runtime.load())
        try:
            number = runtime.data_path.adopt(sock.fileno(), reactor)
        except Exhausted as error:
            self.refused += 1
            log.warning("connection from %s port %d refused: %s", *peer, error)
            sock.close()
            return
        sock.detach()
        runtime.connections[number] = Connection(
            number, reactor, local, peer, interface=interface, placed_by=placed_by
        )
        runtime.all_closed.clear()

    def receive(self, notice: Notice) -> None:
        """Take a notice from the data path."""
        match notice:
            case CommandNotice():
                admin.handle(self._runtime, notice)
            case ClosedNotice():
                self._gone(notice.connection)
            case DoneNotice():
                self._runtime.cookies.resolve(notice)
            case IoErrorNotice():
                connection = self._runtime.connections.get(notice.connection)
                if connection is not None and connection.controller is not None:
                    connection.controller.io_failed(notice)
            case HealthNotice():
                self._health(notice)
            case WarmEventNotice():
                self._warm_event(notice)

    def _gone(self, number: int) -> None:
        connection = self._runtime.connections.pop(number, None)
        if connection is None:
            return
        connection.closing = True
        if not self._runtime.connections:
            self._runtime.all_closed.set()
        self._runtime.cookies.drop(number)
        if connection.controller is not None:
            connection.controller.connection_closed(connection)

    def _warm_event(self, notice: WarmEventNotice) -> None:
        """Intents of a tenant have ended: tell its controllers."""
        for subsystem in self._runtime.subsystems.values():
            for controller in list(subsystem.controllers.values()):
                if controller.offers_hints and controller.tenant == notice.tenant:
                    controller.warm_event()

    def _health(self, notice: HealthNotice) -> None:
        """Deferred writes of a volume fail or work again: SMART, and event 1/00 when they fail."""
        for subsystem in self._runtime.subsystems.values():
            for namespace in subsystem.namespaces.values():
                if namespace.volume != notice.volume:
                    continue
                has_begun = notice.error != 0 and namespace.failing == 0
                namespace.failing = notice.error
                log.warning(
                    "%s namespace %d: deferred writes %s", subsystem.nqn, namespace.nsid,
                    f"fail with errno {notice.error}" if notice.error else "succeed again",
                )  # fmt: skip
                for controller in list(subsystem.controllers.values()) if has_begun else []:
                    controller.post(Event.RELIABILITY)
