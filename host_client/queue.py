"""One queue: a TCP connection and the requests under way on it.

All of it runs in the event loop's thread. A wake-up of the socket is one call of the data path in C
(csrc/host.h), which receives, starts what waits of batches, and sends; what it has brought that
concerns single requests, or ends a batch, is handed out here.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from prestage.host_client import engine
from prestage.host_client.engine import Batch, Engine, Memory, Work
from prestage.host_client.errors import (
    ConnectFailed,
    ConnectionLost,
    DigestError,
    HostError,
    ProtocolError,
    RequestTimeout,
)
from prestage.host_client.giving_back import GivingBack, finish
from prestage.host_client.nvme import Completion


def _nothing(*_: object) -> None:
    """Do nothing: nobody has asked to be told."""


class Request:
    """A command under way. Its memory is lent until it ends, or until its caller turns away."""

    __slots__ = ("future", "memory", "on_answer", "slot")

    def __init__(
        self,
        slot: int,
        future: asyncio.Future[Completion],
        memory: Memory | None,
        on_answer: Callable[[], None],
    ) -> None:
        self.slot = slot
        self.future = future
        self.memory = memory
        self.on_answer = on_answer

    def end(self) -> None:
        """Give the memory back: the command is over, or can do without it."""
        if self.memory is not None:
            self.memory.release()
            self.memory = None


class Queue:
    """A connected socket with an engine. `open_queue` makes one; `close` ends it.

    `on_free` is called when a slot has become free, `on_lost` once when the connection has ended by
    itself, `on_stuck` with the CID of a request that is overdue.
    """

    def __init__(self, sock: socket.socket, slots: int, digests: int, timeout_s: float) -> None:
        self.qid = 0
        self.slots = slots
        self.in_capsule_bytes = 8192
        self.on_free: Callable[[], None] = _nothing
        self.on_lost: Callable[[HostError], None] = _nothing
        self.on_stuck: Callable[[int], None] = _nothing
        self.lost: ConnectionLost | None = None
        """Why the connection is over."""
        self._sock = sock
        self._engine = Engine(sock.fileno(), slots, digests, timeout_s)
        self._giving_back = GivingBack(asyncio.get_running_loop())
        self._work: Work | None = None
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
        """Slots in use: of requests that the controller has not answered, or whose CID is kept."""
        return self._engine.in_flight

    @property
    def reserved(self) -> int:
        """Slots that were promised and are not used yet."""
        return self._engine.reserved

    @reserved.setter
    def reserved(self, slots: int) -> None:
        self._engine.reserved = slots

    @property
    def room(self) -> int:
        """Slots that are neither used nor promised."""
        return self.slots - self._engine.in_flight - self._engine.reserved

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

        `endless`: it may take as long as it likes (Asynchronous Event Request). The memory is
        released, whatever happens: when the caller is cancelled, or the request was not answered in
        time, as soon as the command can do without it. The slot is in use until the controller has
        answered. Raises `ConnectionLost`, also when the connection is over before anything was
        sent; `RequestTimeout`; `DigestError`.
        """
        try:
            if self.room < 1 or self._turns:
                await self._turn()
            request = self.submit(entry, transfer, memory, endless=endless)
        except BaseException:
            if memory is not None:
                memory.release()
            raise
        try:
            return await request.future
        except (asyncio.CancelledError, RequestTimeout):
            await self._abandon(request, is_read=is_read)
            raise

    async def _turn(self) -> None:
        """Wait for a free slot, first come first served."""
        turn = self._loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        except BaseException:
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
        endless: bool = False,
        on_answer: Callable[[], None] = _nothing,
    ) -> Request:
        """Queue a command; there must be room. Raises `ConnectionLost`, and lends nothing then.

        `on_answer` is called when the controller has answered, however late that is.
        """
        deadline = None if endless else self._loop.time() + self._timeout_s
        slot = -1
        if self.lost is None:
            slot = self._engine.submit(entry, transfer, memory, deadline)
        if slot < 0:
            raise self.lost or ConnectionLost("there is no free slot", self.name)
        request = Request(slot, self._loop.create_future(), memory, on_answer)
        self._requests[slot] = request
        if deadline is not None and self._timer is None:
            self._timer = self._loop.call_at(deadline, self._on_time)
        self._flush_soon()
        return request

    def keep(self, cid: int) -> None:
        """Give the CID of a command in flight to no other until `let_go`, though it may end."""
        self._engine.keep(cid)

    def let_go(self, cid: int) -> None:
        """End what `keep` began: nothing under way means the CID any more."""
        if self.lost is None and self._engine.let_go(cid):
            self._tell_free()

    # ---- batches ----

    def attach(self, work: Work) -> None:
        """Take part in the batches of `work` from now on."""
        self._work = work
        self._engine.attach(work, self.in_capsule_bytes)

    def start_batches(self, most: int) -> None:
        """Start at most `most` commands of batches, as far as slots are free."""
        now = self._loop.time()
        if self.lost is not None or self._engine.fill(most, now) == 0:
            return
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._timeout_s, self._on_time)
        self._flush_soon()

    def detach(self, batch: Batch) -> list[asyncio.Future[None]]:
        """Have the buffers of a batch given back that has ended or was stopped.

        Its commands run on; they can do without the buffers once the futures are done.
        """
        return self._giving_back.begin(self._engine.detach(batch)) if self.lost is None else []

    def close(self, error: ConnectionLost) -> None:
        """End the connection; whatever is under way ends with `error`."""
        if self.lost is None:
            self._engine.send_last()
            self._end(error)

    # ---- the socket ----

    def _on_readable(self) -> None:
        self._handle(self._engine.receive(self._loop.time()))

    def _on_writable(self) -> None:
        self._is_writer = False
        self._loop.remove_writer(self._sock)
        self._flush()

    def _flush_soon(self) -> None:
        """Send in the next turn of the loop, together with what else is queued until then."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what is ready; wait for the socket when it is full."""
        self._is_flush_due = False
        if not self._is_writer and self.lost is None:
            self._handle(self._engine.send(self._loop.time()))

    # ---- what has happened ----

    def _handle(self, news: int) -> None:
        """Hand out what a pass has brought."""
        if not news:
            return
        if news & engine.COMPLETIONS:
            for slot, completion, is_damaged in self._engine.completions():
                self._complete(slot, completion, is_damaged)
        if news & engine.CONNECTED and not self._connected.done():
            self._connected.set_result(None)
        if news & engine.ENDED:
            self._end_batches(None)
        if news & engine.OVER:
            self._over()
            return
        if news & engine.BLOCKED and not self._is_writer:
            self._is_writer = True
            self._loop.add_writer(self._sock, self._on_writable)
        if news & engine.MORE:
            self._flush_soon()
        if news & engine.FREED:
            self._tell_free()

    def _tell_free(self) -> None:
        self._next_turns()
        self.on_free()

    def _complete(self, slot: int, completion: Completion, is_damaged: bool) -> None:
        request = self._requests.pop(slot)
        request.end()
        request.on_answer()
        if not request.future.done():
            self._tell(request.future, completion, is_damaged)

    def _tell(self, future: asyncio.Future[Any], completion: Completion, is_damaged: bool) -> None:
        if is_damaged and completion.ok:
            text = "the data digest of the controller's data does not match"
            future.set_exception(DigestError(text, self.name))
        else:
            future.set_result(completion)

    def _end_batches(self, error: HostError | None) -> None:
        """Tell whoever waits for batches that have ended; by `error` if not by themselves."""
        for batch in self._work.ended() if self._work is not None else ():
            if batch.future.done():
                continue
            if batch.end == engine.BATCH_DONE:
                batch.future.set_result(None)
            elif batch.end == engine.BATCH_FAILED:
                self._tell(batch.future, *batch.failure)
            else:
                assert error is not None
                batch.future.set_exception(error)

    def _over(self) -> None:
        over = self._engine.over
        if over.end == engine.End.CLOSED:
            self._lose(ConnectionLost("the target closed the connection", self.name))
        elif over.end == engine.End.FAILED:
            text = f"the connection failed: {os.strerror(over.errno)}"
            self._lose(ConnectionLost(text, self.name))
        elif over.from_peer:
            self._lose(ConnectionLost(str(over), self.name))
        else:
            # The TermReq says why, as far as the socket takes it at once.
            self._engine.send_last()
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)
            self._lose(ProtocolError(str(over), self.name))

    async def _abandon(self, request: Request, *, is_read: bool) -> None:
        """Give a request's memory back, if its command has not ended, as soon as it may be."""
        if request.memory is not None:
            del self._requests[request.slot]
            orphan = self._engine.abandon(request.slot, request.memory, is_read=is_read)
            try:
                await finish(self._giving_back.begin([orphan]))
            finally:
                request.end()

    def _on_time(self) -> None:
        """Some request may be overdue: it ends for its caller, and is aborted; then we give up."""
        self._timer = None
        now = self._loop.time()
        while (slot := self._engine.overdue(now)) >= 0:
            self._overdue(slot)
            if self.lost is not None:
                return
        if slot == engine.STUCK:
            text = f"a request was not answered in twice {self._timeout_s:g} s, nor aborted"
            self._lose(ConnectionLost(text, self.name))
            return
        deadline = self._engine.deadline
        if deadline is not None:
            self._timer = self._loop.call_at(deadline, self._on_time)

    def _overdue(self, slot: int) -> None:
        """The command in `slot` is: of a single request, or of a batch, or of nobody any more."""
        error = RequestTimeout(
            f"the controller has not answered in {self._timeout_s:g} s", self.name
        )
        self._end_batches(error)
        request = self._requests.get(slot)
        if request is not None and not request.future.done():
            request.future.set_exception(error)
        self.on_stuck(slot)

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
        self._engine.lose(may_repeat=not isinstance(error, ProtocolError))
        self._end_batches(error)
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.end()
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
