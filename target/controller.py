"""One controller: its properties, its queues, enabling, reset and shutdown (Base 2.0, 3.1, 3.6).

A controller lives as long as its admin connection. It never waits in the path of a command:
draining is a task beside it, and the host sees its progress in CSTS.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from prestage.target.datapath import IoErrorNotice
from prestage.target.errors import PeerFault
from prestage.target.events import AsyncEvents, Event
from prestage.target.features import Features
from prestage.target.keepalive import KeepAlive
from prestage.target.nvme import DNR, VERSION, Answer, Property, Status
from prestage.target.runtime import Connection, Runtime
from prestage.target.subsystem import Subsystem

log = logging.getLogger("prestage.target")

READY_TIMEOUT = 15
"""CAP.TO and CRTO.CRWMT, in units of 500 ms."""
RESET_DRAIN_S = READY_TIMEOUT * 0.25
"""A reset waits this long for I/O commands, then cuts their connections: half of CAP.TO."""
ERROR_LOG_ENTRIES = 64
CHANGED_LIST_ENTRIES = 1024
ABORT_LIMIT = 3
"""ACL, 0-based."""

# CC fields as (shift, mask) (figure 46).
CSS, MPS, AMS, SHN, IOSQES, IOCQES = (4, 7), (7, 15), (11, 7), (14, 3), (16, 15), (20, 15)
CRIME = (24, 1)


def field(value: int, where: tuple[int, int]) -> int:
    """Return a field of CC."""
    return value >> where[0] & where[1]


class Controller:
    """An I/O or discovery controller and the association with its host."""

    def __init__(
        self,
        runtime: Runtime,
        subsystem: Subsystem,
        cntlid: int,
        host: tuple[str, bytes],
        admin: Connection,
    ) -> None:
        self.runtime = runtime
        self.subsystem = subsystem
        self.cntlid = cntlid
        self.host_nqn, self.host_id = host
        self.admin = admin
        self.queues: dict[int, Connection] = {}
        self.cc = 0
        self.ready = False
        self.failed = False
        self.shutdown = 0
        """CSTS.SHST: 0 normal operation, 1 under way, 2 complete."""
        self.closed = False
        self.aborts = 0
        """Abort commands under way."""
        self.commands = 0
        """Admin and fabrics commands so far."""
        self.errors: deque[tuple[int, IoErrorNotice]] = deque(maxlen=ERROR_LOG_ENTRIES)
        """Error count and what happened, newest first."""
        self.error_count = 0
        self.discovery_generation = 0
        """GENCTR when the host of a discovery controller was last told of a change."""
        self.discovery_log = (0, b"")
        """A discovery controller's log and the GENCTR that it was made for."""
        self.changed_namespaces: set[int] = set()
        self.events = AsyncEvents(self.answer)
        self.features = Features(self)
        self.keep_alive = KeepAlive(self._activity, self._expire)
        self._settling: asyncio.Task[None] | None = None

    # ---- answers ----

    def answer(self, slot: int, answer: Answer) -> None:
        """Answer a command of the admin queue."""
        if not self.admin.closing:
            self.runtime.data_path.answer(
                self.admin.id, slot, answer.status, answer.dw0, answer.dw1, answer.data
            )

    # ---- properties (3.1.3) ----

    @property
    def cap(self) -> int:
        """CAP: MQES, CQR, TO, CSS bits 0 and 6, CRMS.CRWMS; 4 KiB pages only (figure 36)."""
        mqes = self.runtime.settings.limits.queue_depth - 1
        return mqes | 1 << 16 | READY_TIMEOUT << 24 | 1 << 37 | 1 << 43 | 1 << 59

    @property
    def csts(self) -> int:
        """CSTS: RDY, CFS, SHST (figure 47)."""
        return self.ready | self.failed << 1 | self.shutdown << 2

    def property_get(self, offset: int, size_bytes: int) -> int:
        """Return a property; raise PeerFault for one that is not there or of another size."""
        properties = {
            Property.CAP: (8, self.cap),
            Property.VS: (4, VERSION),
            Property.CC: (4, self.cc),
            Property.CSTS: (4, self.csts),
            Property.CRTO: (4, READY_TIMEOUT),
        }
        size, value = properties.get(Property(offset), (0, 0)) if offset in properties else (0, 0)
        if size != size_bytes:
            raise PeerFault(Status.INVALID_FIELD, why=f"property {offset:X}h, {size_bytes} bytes")
        return value

    def property_set(self, offset: int, size_bytes: int, value: int) -> None:
        """Set a property. CC is the only one that can be: no NSSR, no memory buffers."""
        if offset != Property.CC or size_bytes != 4:
            raise PeerFault(Status.INVALID_FIELD, why=f"property {offset:X}h, {size_bytes} bytes")
        before, self.cc = self.cc, value
        if value & 1 and not before & 1:
            self._enable()
        elif before & 1 and not value & 1:
            self.events.reset()
            self._settle()
        if field(value, SHN) and not field(before, SHN) and self.shutdown == 0:
            self.shutdown = 1
            self._settle()

    @property
    def tenant(self) -> int:
        """The number by which the data path knows the host."""
        return self.runtime.tenants.number(self.host_nqn)

    @property
    def offers_hints(self) -> bool:
        """Whether this controller has the extension."""
        return self.runtime.settings.hints.enabled and not self.subsystem.is_discovery

    @property
    def accepts_io(self) -> bool:
        """True while I/O queues may be created and their commands may run."""
        return self.ready and bool(self.cc & 1) and self.shutdown == 0 and not self.closed

    def _enable(self) -> None:
        """CC.EN 0 to 1: ready at once, or a fatal status when CC asks for what is not there."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
            self._close_queues()
        self.shutdown = 0
        sizes_ok = field(self.cc, IOSQES) == 6 and field(self.cc, IOCQES) == 4
        self.failed = bool(
            field(self.cc, MPS)
            or field(self.cc, AMS)
            or field(self.cc, CRIME)
            or field(self.cc, CSS) not in (0, 6)
            or not (sizes_ok or self.subsystem.is_discovery)
        )
        self.ready = not self.failed
        self.features.reset()

    # ---- reset and shutdown ----

    def _settle(self) -> None:
        """After CC.EN became 0 or CC.SHN was set: drain, then show it in CSTS (3.6, 3.7.2)."""
        for queue in self.queues.values():
            self.runtime.data_path.enable(queue.id, False)
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        if self.queues or (self.shutdown == 1 and self.subsystem.namespaces):
            self._settling = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._settled()

    def _settled(self) -> None:
        if not self.cc & 1:
            self._close_queues()
            self.ready = self.failed = False
        if self.shutdown == 1:
            self.shutdown = 2

    async def _drain(self) -> None:
        resetting = not self.cc & 1
        quiet = []
        for queue in self.queues.values():
            cookie, future = self.runtime.cookies.expect(queue.id)
            self.runtime.data_path.quiesce(queue.id, cookie)
            quiet.append(future)
        if quiet:
            await asyncio.wait(quiet, timeout=RESET_DRAIN_S if resetting else None)
        if resetting:
            self._close_queues()
            self.ready = self.failed = False
        if self.shutdown == 1:
            await self._flush()
        self._settled()
        self._settling = None

    async def _flush(self) -> None:
        """A finished shutdown promises durable data (3.6.1): flush what the host could write.

        A flush that fails does not hold the shutdown up: the data stays, and SMART tells.
        """
        waits = []
        for namespace in self.subsystem.namespaces.values():
            cookie, future = self.runtime.cookies.expect()
            self.runtime.data_path.volume_flush(namespace.volume, cookie)
            waits.append(future)
        if waits:
            await asyncio.wait(waits)

    def _close_queues(self, *, after_output: bool = True) -> None:
        for queue in self.queues.values():
            queue.controller = None
            self.runtime.close(queue, after_output=after_output)
        self.queues.clear()

    # ---- association ----

    def connection_closed(self, connection: Connection) -> None:
        """A connection of this controller is gone; without the admin queue all of it goes."""
        if connection is self.admin:
            self.close(after_output=False)
        elif self.queues.get(connection.qid) is connection:
            del self.queues[connection.qid]

    def close(self, *, after_output: bool = True) -> None:
        """End the association: close all its connections and free the controller.

        A host that has gone takes no more answers; they are not waited for (`after_output`).
        """
        if self.closed:
            return
        self.closed = True
        self.keep_alive.stop()
        if self._settling is not None:
            self._settling.cancel()
        self._close_queues(after_output=after_output)
        self.runtime.close(self.admin, after_output=after_output)
        if self.subsystem.controllers.get(self.cntlid) is self:
            del self.subsystem.controllers[self.cntlid]

    def _activity(self) -> object:
        """What changes with every command on any queue (traffic-based keep alive, 3.9.3)."""
        data_path = self.runtime.data_path
        queues = [self.admin, *self.queues.values()]
        return self.commands, [data_path.last_command_ns(queue.id) for queue in queues]

    def _expire(self) -> None:
        log.warning(
            "controller %d of %s: host %s sent nothing for its keep-alive timeout of %d ms",
            self.cntlid, self.subsystem.nqn, self.host_nqn, self.keep_alive.kato_ms,
        )  # fmt: skip
        self.close(after_output=False)

    # ---- what happens elsewhere ----

    def post(self, event: Event) -> None:
        """Report an event if the host asked for it (feature 0Bh)."""
        if self.ready and self.features.event_mask & event.enable_bit:
            self.events.post(event)

    def warm_event(self) -> None:
        """The warm-event log of the host is not empty: report it if the host asked for that."""
        if self.ready and self.features.warm_events:
            self.events.post(Event.WARM)

    def namespace_changed(self, nsid: int) -> None:
        """A namespace came, went or changed its size (log page 04h, 5.16.1.5)."""
        if len(self.changed_namespaces) <= CHANGED_LIST_ENTRIES:
            self.changed_namespaces.add(nsid)
        self.post(Event.NAMESPACE)

    def io_failed(self, notice: IoErrorNotice) -> None:
        """Remember an error for log page 01h."""
        self.error_count += 1
        self.errors.appendleft((self.error_count, notice))


def final_status(status: int, *, retry: bool) -> int:
    """Return the status field of a fault: DNR unless trying again may help."""
    return status if retry else status | DNR
