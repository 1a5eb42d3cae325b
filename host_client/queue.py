"""One queue: a TCP connection, its PDU engine, and the requests under way on it.

All of it runs in the event loop's thread. A wake-up of the socket is one system call either way:
payload is received straight into the memory of its request, and headers beside it; what is ready to
be sent goes out together. (Reading in `add_reader` with two buffers in one call was measured
against a transport with a `BufferedProtocol`, which can fill one only; see docs/hosts.md.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from prestage.host_client.engine import (
    Completed,
    Connected,
    Engine,
    Event,
    Memory,
    Terminated,
)
from prestage.host_client.errors import (
    ConnectFailed,
    ConnectionLost,
    DigestError,
    HostError,
    ProtocolError,
    RequestTimeout,
)
from prestage.host_client.nvme import Completion, parse_completion

MOST_ROUNDS = 8
"""Sends in a row before the event loop gets its turn."""


class Request:
    """A command under way. Its memory is lent until it ends, or until its caller turns away."""

    __slots__ = (
        "abandoned",
        "deadline",
        "future",
        "is_read",
        "memory",
        "overdue",
        "slot",
    )

    def __init__(
        self, future: asyncio.Future[Completion], memory: Memory | None, *, is_read: bool
    ) -> None:
        self.future = future
        self.memory = memory
        self.is_read = is_read
        self.deadline: float | None = None
        self.abandoned = False
        """The caller waits no more; the slot is kept until the controller has answered."""
        self.overdue = False
        """Its time was up once, and somebody was told to abort it."""
        self.slot = -1


class Queue:
    """A connected socket with an engine. `open_queue` makes one; `close` ends it.

    `on_free` is called when a slot has become free, `on_lost` once when the connection has ended by
    itself, `on_stuck` with the CID of a request that is overdue.
    """

    def __init__(self, sock: socket.socket, slots: int, digests: int, timeout_s: float) -> None:
        self.qid = 0
        self.slots = slots
        self.in_capsule_bytes = 8192
        self.reserved = 0
        """Slots that were promised and are not used yet."""
        self.on_free: Callable[[], None] = _nothing
        self.on_lost: Callable[[HostError], None] = _nothing
        self.on_stuck: Callable[[int], None] = _nothing
        self.lost: ConnectionLost | None = None
        """Why the connection is over."""
        self._sock = sock
        self._engine = Engine(slots, digests)
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._requests: dict[int, Request] = {}
        self._turns: deque[asyncio.Future[None]] = deque()
        self._is_flush_due = False
        self._is_writer = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock, self._on_readable)
        self._flush()

    @property
    def name(self) -> str:
        """For messages."""
        return f"I/O queue {self.qid}" if self.qid else "admin queue"

    @property
    def in_flight(self) -> int:
        """Requests that the controller has not answered, those that nobody waits for included."""
        return len(self._requests)

    @property
    def room(self) -> int:
        """Slots that are neither used nor promised."""
        return self.slots - len(self._requests) - self.reserved

    async def negotiated(self) -> None:
        """Wait for the ICResp. Raises `ConnectionLost`."""
        await self._connected

    async def execute(
        self,
        entry: bytes,
        transfer: int = 0,
        memory: Memory | None = None,
        *,
        is_read: bool = False,
        endless: bool = False,
    ) -> Completion:
        """Submit a command, once a slot is free, and wait for its completion, whatever it says.

        `endless`: it may take as long as it likes (Asynchronous Event Request). When the caller is
        cancelled its memory is free at once; the slot is kept until the controller has answered.
        Raises `ConnectionLost`, also when the connection is over before anything was sent;
        `RequestTimeout`; `DigestError`.
        """
        if self.room < 1 or self._turns:
            await self._turn(memory)
        request = self.submit(entry, transfer, memory, is_read=is_read, endless=endless)
        try:
            return await request.future
        except asyncio.CancelledError:
            self._abandon(request)
            raise

    async def _turn(self, memory: Memory | None) -> None:
        """Wait for a free slot, first come first served."""
        turn = self._loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        except BaseException:
            if memory is not None:
                memory.release()
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.reserved -= 1
                self._next_turns()
            raise
        self.reserved -= 1

    def _next_turns(self) -> None:
        while self._turns and self.room > 0:
            turn = self._turns.popleft()
            if not turn.done():
                self.reserved += 1
                turn.set_result(None)

    def submit(
        self,
        entry: bytes,
        transfer: int,
        memory: Memory | None,
        *,
        is_read: bool = False,
        endless: bool = False,
    ) -> Request:
        """Queue a command; there must be room. Raises `ConnectionLost`, and lends nothing then."""
        request = Request(self._loop.create_future(), memory, is_read=is_read)
        if self.lost is None:
            request.slot = self._engine.submit(entry, transfer, memory)
        if request.slot < 0:
            if memory is not None:
                memory.release()
            raise self.lost or ConnectionLost("there is no free slot", self.name)
        self._requests[request.slot] = request
        if not endless:
            request.deadline = self._loop.time() + self._timeout_s
            if self._timer is None:
                self._timer = self._loop.call_at(request.deadline, self._on_time)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        return request

    def close(self, error: ConnectionLost) -> None:
        """End the connection; whatever is under way ends with `error`."""
        if self.lost is None:
            with contextlib.suppress(OSError):
                self._sock.sendmsg(self._engine.output() or [b""])
            self._end(error)

    # ---- the socket ----

    def _on_readable(self) -> None:
        places = self._engine.places()
        try:
            size = self._sock.recvmsg_into(places)[0]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(ConnectionLost(f"the connection failed: {_reason(error)}", self.name))
            return
        if size == 0:
            self._lose(ConnectionLost("the target closed the connection", self.name))
            return
        self._handle(self._engine.received(places, size))
        if self.lost is None and not self._is_flush_due:
            self._flush()

    def _on_writable(self) -> None:
        self._is_writer = False
        self._loop.remove_writer(self._sock)
        self._flush()

    def _flush(self) -> None:
        """Send what is ready; wait for the socket when it is full."""
        self._is_flush_due = False
        for _ in range(MOST_ROUNDS):
            if self._is_writer or self.lost is not None:
                return
            pieces = self._engine.output()
            if not pieces:
                return
            if not self._send(pieces):
                return
        self._is_flush_due = True
        self._loop.call_soon(self._flush)

    def _send(self, pieces: list[Any]) -> bool:
        """Send pieces; False when there is nothing to be done until the socket says so."""
        try:
            size = self._sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            size = 0
        except OSError as error:
            self._lose(ConnectionLost(f"the connection failed: {_reason(error)}", self.name))
            return False
        whole = size == sum(map(len, pieces))
        self._handle(self._engine.sent(size))
        if not whole and self.lost is None:
            self._is_writer = True
            self._loop.add_writer(self._sock, self._on_writable)
        return whole

    # ---- what has happened ----

    def _handle(self, events: Iterable[Event]) -> None:
        freed = False
        for event in events:
            if isinstance(event, Completed):
                self._complete(event)
                freed = True
            elif isinstance(event, Connected):
                if not self._connected.done():
                    self._connected.set_result(None)
            else:
                self._terminated(event)
                return
        if freed:
            self._next_turns()
            self.on_free()

    def _complete(self, event: Completed) -> None:
        request = self._requests.pop(event.slot)
        if request.memory is not None:
            request.memory.release()
        if request.future.done():
            return
        completion = parse_completion(event.cqe, event.transferred)
        if event.digest_error and completion.ok:
            request.future.set_exception(
                DigestError("the data digest of the controller's data does not match", self.name)
            )
        else:
            request.future.set_result(completion)

    def _terminated(self, event: Terminated) -> None:
        if event.from_peer:
            self._lose(ConnectionLost(str(event), self.name))
            return
        # The TermReq says why, as far as the socket takes it at once.
        with contextlib.suppress(OSError):
            self._sock.sendmsg(self._engine.output() or [b""])
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)
        self._lose(ProtocolError(str(event), self.name))

    def _abandon(self, request: Request) -> None:
        """Give a request's memory back before the controller has answered."""
        if not request.future.done():
            request.future.cancel()
        if request.abandoned or self._requests.get(request.slot) is not request:
            return
        request.abandoned = True
        if request.memory is not None:
            request.memory.redirect(keep=not request.is_read)

    def _on_time(self) -> None:
        """Some request may be overdue: it ends for its caller, and is aborted; then we give up."""
        self._timer = None
        now = self._loop.time()
        due = [
            one
            for one in self._requests.values()
            if one.deadline is not None and one.deadline <= now
        ]
        for request in due:
            if request.overdue:
                text = f"a request was not answered in twice {self._timeout_s:g} s, nor aborted"
                self._lose(ConnectionLost(text, self.name))
                return
            self._overdue(request, now)
        deadlines = [one.deadline for one in self._requests.values() if one.deadline is not None]
        if deadlines:
            self._timer = self._loop.call_at(min(deadlines), self._on_time)

    def _overdue(self, request: Request, now: float) -> None:
        request.overdue = True
        request.deadline = now + self._timeout_s
        if not request.future.done():
            text = f"the controller has not answered in {self._timeout_s:g} s"
            request.future.set_exception(RequestTimeout(text, self.name))
        self._abandon(request)
        self.on_stuck(request.slot)

    def _lose(self, error: ConnectionLost) -> None:
        if self.lost is None:
            self._end(error)
            self.on_lost(error)

    def _end(self, error: ConnectionLost) -> None:
        self.lost = error
        self._loop.remove_reader(self._sock)
        if self._is_writer:
            self._loop.remove_writer(self._sock)
        if self._timer is not None:
            self._timer.cancel()
        self._sock.close()
        if not self._connected.done():
            self._connected.set_exception(error)
            # Nobody may be waiting any more: it was seen, then.
            self._connected.exception()
        for turn in self._turns:
            if not turn.done():
                turn.set_exception(error)
        self._turns.clear()
        requests, self._requests = self._requests, {}
        for request in requests.values():
            if request.memory is not None:
                request.memory.release()
            if not request.future.done():
                request.future.set_exception(error)


async def open_queue(host: str, port: int, *, slots: int, digests: int, timeout_s: float) -> Queue:
    """Connect to a target and negotiate. Raises `ConnectFailed`, `ProtocolError`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectFailed(f"no such host: {_reason(error)}", host) from None
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        try:
            sock = await _connected_socket(family, kind, protocol, address)
        except OSError as error:
            failure = error
        else:
            return await _negotiate(sock, slots, digests, timeout_s)
    text = f"no connection: {_reason(failure) if failure else 'it has no address'}"
    raise ConnectFailed(text, f"{host} port {port}")


async def _connected_socket(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
    try:
        await asyncio.get_running_loop().sock_connect(sock, address)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        sock.close()
        raise
    return sock


async def _negotiate(sock: socket.socket, slots: int, digests: int, timeout_s: float) -> Queue:
    try:
        queue = Queue(sock, slots, digests, timeout_s)
    except BaseException:
        sock.close()
        raise
    try:
        await queue.negotiated()
    except asyncio.CancelledError:
        queue.close(ConnectionLost("given up while connecting"))
        raise
    return queue


def _reason(error: OSError) -> str:
    """Return the system's words; the event loop has others of its own for a failed connect."""
    is_lookup = isinstance(error, socket.gaierror)
    return os.strerror(error.errno) if error.errno and not is_lookup else str(error)


def _nothing(*_: object) -> None:
    """Do nothing: nobody has asked to be told."""
