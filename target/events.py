"""Asynchronous events of one controller (Base 2.0, 5.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from prestage.ext import layout
from prestage.target.errors import PeerFault
from prestage.target.extension import VendorLid
from prestage.target.nvme import Answer, Lid, Status

ASYNC_EVENT_LIMIT = 3
"""AERL, 0-based (figure 275)."""


class Event(Enum):
    """Event type, information, log page that tells more, and its enable bit (figures 146 to 152).

    The enable bit is that of feature 0Bh (figure 326).
    """

    RELIABILITY = (1, 0x00, Lid.SMART, 1 << 2)
    NAMESPACE = (2, 0x00, Lid.CHANGED_NAMESPACES, 1 << 8)
    ANA = (2, 0x03, Lid.ANA, 1 << 11)
    DISCOVERY = (2, 0xF0, Lid.DISCOVERY, 1 << 31)
    WARM = (layout.AER_TYPE, layout.AER_INFORMATION, VendorLid.EVENTS, 0)
    """Vendor specific; it is asked for by a feature of its own."""

    @property
    def lid(self) -> int:
        """The log page that tells more."""
        return int(self.value[2])

    @property
    def enable_bit(self) -> int:
        """Its bit in feature 0Bh."""
        return int(self.value[3])

    @property
    def dword0(self) -> int:
        """Dword 0 of the completion that reports it."""
        kind, information, lid, _ = map(int, self.value)
        return kind | information << 8 | lid << 16


class AsyncEvents:
    """Outstanding requests, events that wait for one, and events masked until their log is read.

    `answer` is called with the slot of a request and what it ends with.
    """

    def __init__(self, answer: Callable[[int, Answer], None]) -> None:
        self._answer = answer
        self._requests: deque[tuple[int, int]] = deque()
        self._pending: list[Event] = []
        self._masked: set[Event] = set()

    @property
    def outstanding(self) -> int:
        """Requests that the controller holds."""
        return len(self._requests)

    def request(self, slot: int, cid: int) -> None:
        """Hold a request; raise PeerFault 1/05 beyond the limit."""
        if len(self._requests) > ASYNC_EVENT_LIMIT:
            raise PeerFault(Status.ASYNC_EVENT_LIMIT)
        self._requests.append((slot, cid))
        self._deliver()

    def post(self, event: Event) -> None:
        """Report an event, once until the host has read its log page."""
        if event not in self._masked and event not in self._pending:
            self._pending.append(event)
            self._deliver()

    def log_was_read(self, lid: int) -> None:
        """The host read a log page with RAE 0: its events may be reported again (5.16.1)."""
        self._masked = {event for event in self._masked if event.lid != lid}
        self._pending = [event for event in self._pending if event.lid != lid]

    def abort(self, cid: int) -> bool:
        """End the request with this CID by 0/07; return whether there was one."""
        for request in self._requests:
            if request[1] == cid:
                self._requests.remove(request)
                self._answer(request[0], Answer(status=Status.ABORT_REQUESTED))
                return True
        return False

    def reset(self) -> None:
        """A controller reset ends all requests and forgets all events (3.7.2)."""
        self._pending.clear()
        self._masked.clear()
        while self._requests:
            slot, _ = self._requests.popleft()
            self._answer(slot, Answer(status=Status.ABORT_REQUESTED))

    def _deliver(self) -> None:
        while self._requests and self._pending:
            slot, _ = self._requests.popleft()
            event = self._pending.pop(0)
            self._masked.add(event)
            self._answer(slot, Answer(dw0=event.dword0))
