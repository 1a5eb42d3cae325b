"""A controller that comes back: an association, made again whenever it is lost.

Requests wait here, first come first served, until a queue has a slot for them; what waited has not
been sent and so outlives a reconnect. What was under way is sent again only where that is safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from prestage.host_client import nvme
from prestage.host_client.address import Address
from prestage.host_client.association import Association, open_association
from prestage.host_client.batch import cut_anew
from prestage.host_client.engine import Batch, Memory, Transfer, Work
from prestage.host_client.errors import (
    ConnectionLost,
    HostError,
    InvalidRequest,
    NvmeError,
    ProtocolError,
)
from prestage.host_client.giving_back import finish
from prestage.host_client.options import Options
from prestage.host_client.queue import Queue

EventHandler = Callable[[int], None]
"""Is given dword 0 of the completion of an Asynchronous Event Request."""


class Uncut(Exception):
    """The controller that came back takes less at a time than this command: it was not sent."""


class Link:
    """Keeps one association alive, hands out its slots, and watches over it."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self.options = options
        self.connected = asyncio.Event()
        """Set while there is an association."""
        self.connects = 0
        """Associations made so far."""
        self.max_transfer_bytes = nvme.PAGE_BYTES
        """Of one command: what the latest association allows."""
        self.on_connect: list[Callable[[], None]] = []
        self.on_event: list[EventHandler] = []
        self._association: Association | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """That has opened the controller."""
        self._ended: ConnectionLost | None = None
        self._waiters: deque[asyncio.Future[Queue]] = deque()
        self._work = Work()
        self._watches: list[asyncio.Task[None]] = []
        self._logs: set[bytes] = set()
        """Commands that read a log page for its own sake, under way."""
        self._reconnect: asyncio.Task[None] | None = None
        self._random = random.Random()

    @property
    def association(self) -> Association:
        """The association of now. Raises `ConnectionLost` while there is none."""
        if self._association is None:
            raise self._ended or ConnectionLost("the controller is not connected", self._where)
        return self._association

    @property
    def current(self) -> Association | None:
        """The association of now, or None while there is none."""
        return self._association

    @property
    def _where(self) -> str:
        return str(self.address)

    # ---- coming and going ----

    async def open(self) -> None:
        """Make the first association; it is not tried twice. Raises as `open_association`.

        Once that has worked, or while it is under way, `InvalidRequest`.
        """
        if self._loop is not None:
            raise InvalidRequest("it was opened before", self._where, "to be opened once")
        self._loop = asyncio.get_running_loop()
        try:
            association = await open_association(self.address, self.options)
            if self._ended is not None:  # It was closed meanwhile.
                association.close(self._ended)
            self._adopt(association)
        except BaseException:
            self._loop = None
            raise

    def require_open(self) -> None:
        """Raise `InvalidRequest` unless the controller was opened, and in this event loop."""
        if self.connects == 0:
            raise InvalidRequest("it was not opened", self._where, "`async with`, or `open`, first")
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidRequest("found another event loop", self._where, "the one that opened it")

    def _require_queues(self) -> None:
        if asyncio.get_running_loop() is not self._loop or not self.connects:
            self.require_open()
        if self.options.queues == 0:
            raise InvalidRequest("found 0", "queues", "at least 1, to carry out I/O commands")

    async def close(self) -> None:
        """Shut the controller down and close; what is under way ends with `ConnectionLost`."""
        if self.connects > 0:
            self.require_open()
        error = ConnectionLost("the controller was closed", self._where)
        self._ended = self._ended or error
        tasks = [*self._watches, *([self._reconnect] if self._reconnect else [])]
        for task in tasks:
            task.cancel()
        # The watches end first, so that none of them speaks while the controller shuts down.
        await asyncio.gather(*tasks, return_exceptions=True)
        association = self._association
        if association is not None:
            # It may be lost, and be no longer ours, while it shuts down.
            await association.shut_down()
            association.close(error)
        self._forget()
        self._fail(error)

    def _adopt(self, association: Association) -> None:
        if association.lost is not None:
            raise association.lost
        self._association = association
        association.on_lost = self._on_lost
        for queue in association.queues:
            queue.on_free = self._serve
        for queue in association.io:
            queue.attach(self._work)
        self.connects += 1
        self.max_transfer_bytes = association.max_transfer_bytes
        self._recut_batches()
        self.connected.set()
        loop = asyncio.get_running_loop()
        self._watches = [loop.create_task(self._listen(association))]
        if self.options.keep_alive_s and association.identity.kas:
            self._watches.append(loop.create_task(self._keep_alive(association)))
        for tell in self.on_connect:
            tell()
        self._serve()

    def _recut_batches(self) -> None:
        """Cut what waits since before the association as this controller takes it."""
        for batch in self._work.batches:
            pieces = cut_anew(batch.pieces, batch.block_bytes, self.max_transfer_bytes)
            if pieces is not None:
                self._work.recut(batch, pieces)

    def _forget(self) -> None:
        self._association = None
        self.connected.clear()
        self._watches = []

    def _on_lost(self, error: ConnectionLost) -> None:
        for task in self._watches:
            task.cancel()
        self._forget()
        if self._ended is None:
            self._reconnect = asyncio.get_running_loop().create_task(self._come_back(error))

    async def _come_back(self, why: ConnectionLost) -> None:
        """Reconnect with exponential back-off and jitter until it works or is given up."""
        delay_s, longest_s = self.options.backoff_s
        loop = asyncio.get_running_loop()
        limit = loop.time() + self.options.loss_timeout_s
        while self._ended is None:
            await asyncio.sleep(min(delay_s * self._random.uniform(0.5, 1.0), longest_s))
            delay_s = min(delay_s * 2, longest_s)
            try:
                self._adopt(await open_association(self.address, self.options))
            except (HostError, OSError) as error:
                refused = isinstance(error, NvmeError) and error.dnr
                if refused or loop.time() >= limit:
                    text = f"the controller is lost: {why.what}; {error}"
                    self._ended = ConnectionLost(text, self._where)
                    self._fail(self._ended)
            else:
                return

    # ---- watching over it ----

    async def _keep_alive(self, association: Association) -> None:
        """Say that we live (Base 2.0, 3.9), twice in the time that the controller waits for it."""
        entry = nvme.entry(nvme.Admin.KEEP_ALIVE)
        while True:
            await asyncio.sleep(self.options.keep_alive_s / 2)
            try:
                async with asyncio.timeout(self.options.keep_alive_s):
                    await association.admin_command(entry)
            except ConnectionLost:
                return
            except (TimeoutError, NvmeError) as error:
                why = error.what if isinstance(error, HostError) else "no answer"
                lost = ConnectionLost(f"keep-alive failed: {why}", self._where)
                association.close(lost)
                self._on_lost(lost)
                return

    async def _listen(self, association: Association) -> None:
        """Keep an Asynchronous Event Request outstanding and tell what it says (Base 2.0, 5.2)."""
        notices = association.identity.oaes & nvme.NAMESPACE_NOTICES
        with contextlib.suppress(HostError):
            if notices:
                await association.admin_command(
                    nvme.entry(nvme.Admin.SET_FEATURES, cdw10=nvme.Fid.ASYNC_EVENTS, cdw11=notices)
                )
            entry = nvme.entry(nvme.Admin.ASYNC_EVENT_REQUEST)
            while (answer := await association.admin.execute(entry, endless=True)).ok:
                for tell in self.on_event:
                    tell(answer.dw0)

    def read_log_later(self, entry: bytes, size_bytes: int) -> None:
        """Read a log page for the sake of reading it: that lets its event be told again."""
        association = self._association
        # A controller that tells events without end is not asked without end.
        if association is not None and entry not in self._logs:
            self._logs.add(entry)
            task = asyncio.get_running_loop().create_task(_read_log(association, entry, size_bytes))
            task.add_done_callback(lambda _: self._logs.discard(entry))
            self._watches = [one for one in self._watches if not one.done()]
            self._watches.append(task)

    # ---- slots ----

    def _take(self) -> Queue | None:
        """Return the I/O queue with the most room, with a slot reserved; None: none has any.

        Nobody is overtaken by that: while somebody waits, no queue has room.
        """
        if self._association is None:
            return None
        best = max(self._association.io, key=_room, default=None)
        if best is None or best.room < 1:
            return None
        best.reserved += 1
        return best

    async def _wait(self) -> Queue:
        """Wait for a slot, in turn. Raises `ConnectionLost` when the controller does not return."""
        if self._ended is not None:
            raise self._ended
        waiter: asyncio.Future[Queue] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._work.say_waiting(len(self._waiters))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
                self._serve()
            elif waiter.exception() is None:
                # The slot came in the same moment: it goes to whoever is next.
                waiter.result().reserved -= 1
                self._serve()
            raise

    def _serve(self) -> None:
        """Hand free slots to whoever waits, oldest first; then to batches."""
        while self._waiters and self._association is not None:
            best = max(self._association.io, key=_room, default=None)
            if best is None or best.room < 1:
                break
            waiter = self._waiters.popleft()
            if not waiter.done():
                best.reserved += 1
                waiter.set_result(best)
        self._work.say_waiting(len(self._waiters))
        self._start_batches()

    def _start_batches(self) -> None:
        """Have free slots used by batches, on all queues alike."""
        if self._association is None or not self._work.waiting:
            return
        queues = sorted(self._association.io, key=_room, reverse=True)
        for index, queue in enumerate(queues):
            share = -(-self._work.waiting // (len(queues) - index))
            queue.start_batches(share)

    def _fail(self, error: ConnectionLost) -> None:
        """Whatever waits for a controller ends with `error`."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)
        for batch in self._work.batches:
            if not batch.future.done():
                batch.future.set_exception(error)

    # ---- requests ----

    async def execute(
        self,
        entry: bytes,
        data: Any = None,
        *,
        is_read: bool = False,
        repeat: bool = False,
        may_cut: bool = False,
    ) -> nvme.Completion:
        """Carry out an I/O command, with `data` read into or sent, in one go.

        `repeat`: it may be carried out twice, so it is sent again when the connection is lost under
        it. `may_cut`: raise `Uncut` rather than send more than the controller takes at a time, for
        that may have changed while this waited. Raises `ConnectionLost`, `ProtocolError`,
        `RequestTimeout`, `DigestError`, `InvalidRequest`. Any status is returned.
        """
        self._require_queues()
        while True:
            queue = self._take() or await self._wait()
            queue.reserved -= 1
            if queue.lost is not None:
                continue  # It was lost before anything was sent.
            try:
                memory = None if data is None else Memory(data, writable=is_read)
            except BaseException:
                self._serve()  # The slot is still free.
                raise
            if may_cut and memory is not None and memory.length > self.max_transfer_bytes:
                memory.release()
                self._serve()
                raise Uncut
            transfer = transfer_of(queue, memory, is_read=is_read)
            try:
                return await queue.execute(entry, transfer, memory, is_read=is_read)
            except ProtocolError:
                raise
            except ConnectionLost:
                if not repeat:
                    raise

    async def carry_out(self, batch: Batch) -> nvme.Completion | None:
        """Carry out a batch over all queues, and give its buffers back, whatever happens.

        Returns None, or the completion of the first command that failed or did not move all of its
        bytes: then no more of the batch is sent. What may be sent again when the connection is lost
        is the batch's; raises as `execute`.
        """
        try:
            self._require_queues()
            if self._ended is not None:
                raise self._ended
            if batch.count == 0:
                return None
            batch.future = asyncio.get_running_loop().create_future()
            self._work.add(batch)
            self._start_batches()
            try:
                return await batch.future
            finally:
                self._work.stop(batch)
                queues = self._association.io if self._association is not None else []
                await finish([future for queue in queues for future in queue.detach(batch)])
        finally:
            batch.release()

    async def execute_admin(
        self, entry: bytes, data: Any = None, *, is_read: bool = False
    ) -> nvme.Completion:
        """Carry out an admin command once, on the association of now; raises as `execute`.

        An Asynchronous Event Request may take as long as it likes.
        """
        self.require_open()
        queue = self.association.admin
        memory = None if data is None else Memory(data, writable=is_read)
        transfer = transfer_of(queue, memory, is_read=is_read)
        endless = entry[0] == nvme.Admin.ASYNC_EVENT_REQUEST
        return await queue.execute(entry, transfer, memory, is_read=is_read, endless=endless)

    async def admin_read(self, entry: bytes, size_bytes: int) -> bytes:
        """Carry out an admin command that only returns data, again when the connection is lost."""
        while True:
            await self.wait_connected()
            try:
                return await self.association.admin_read(entry, size_bytes)
            except ProtocolError:
                raise
            except ConnectionLost:
                if self._ended is not None:
                    raise self._ended from None

    async def wait_connected(self) -> None:
        """Wait until there is an association. Raises `ConnectionLost` when it stays away."""
        self.require_open()
        while self._association is None:
            if self._ended is not None:
                raise self._ended
            assert self._reconnect is not None
            await asyncio.wait({self._reconnect})


async def _read_log(association: Association, entry: bytes, size_bytes: int) -> None:
    with contextlib.suppress(HostError):
        await association.admin_read(entry, size_bytes)


def _room(queue: Queue) -> int:
    return queue.room if queue.lost is None else 0


def transfer_of(queue: Queue, memory: Memory | None, *, is_read: bool) -> Transfer:
    """Return how the data of a command travels on a queue."""
    if memory is None:
        return Transfer.NONE
    if is_read:
        return Transfer.FROM_CONTROLLER
    fits = memory.length <= queue.in_capsule_bytes
    return Transfer.IN_CAPSULE if fits else Transfer.TO_CONTROLLER
