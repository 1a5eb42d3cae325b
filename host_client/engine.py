"""The data path of a queue, in C: the PDU engine in host role, with the socket's loops around it.

Commands go in with the memory that their data is in or goes to. One call a readiness of the socket
receives, starts what waits, and sends (csrc/host.h). Payload is received straight into the caller's
memory, and sent straight from it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from prestage._engine import ffi, lib
from prestage.host_client.errors import InvalidRequest
from prestage.host_client.nvme import Completion, parse_completion

if TYPE_CHECKING:
    import asyncio

HEADER_DIGEST: int = lib.PS_DIGEST_HEADER
DATA_DIGEST: int = lib.PS_DIGEST_DATA
CONNECTED: int = lib.PS_HOST_CONNECTED
COMPLETIONS: int = lib.PS_HOST_COMPLETIONS
FREED: int = lib.PS_HOST_FREED
ENDED: int = lib.PS_HOST_ENDED
BLOCKED: int = lib.PS_HOST_BLOCKED
MORE: int = lib.PS_HOST_MORE
OVER: int = lib.PS_HOST_OVER
"""What a pass has brought, as bits."""
BATCH_DONE: int = lib.PS_BATCH_DONE
BATCH_FAILED: int = lib.PS_BATCH_FAILED
"""How a batch has ended; all other ways are not its own."""
PIECE_DONE: int = lib.PS_PIECE_DONE
STUCK = -2
"""Instead of the slot of an overdue command: one was overdue before."""
FATAL_ERRORS = {
    1: "Invalid PDU Header Field",
    2: "PDU Sequence Error",
    3: "Header Digest Error",
    4: "Data Transfer Out of Range",
    5: "Data Transfer Limit Exceeded",
    6: "Unsupported Parameter",
}
"""FES of a TermReq (TCP 1.0, 3.6.2.5)."""

_BYTES = "uint8_t[]"
_unfilled = ffi.new_allocator(should_clear_after_alloc=False)


class Transfer(IntEnum):
    """Which way data goes."""

    NONE = lib.PS_TRANSFER_NONE
    FROM_CONTROLLER = lib.PS_TRANSFER_FROM_CONTROLLER
    TO_CONTROLLER = lib.PS_TRANSFER_TO_CONTROLLER
    IN_CAPSULE = lib.PS_TRANSFER_IN_CAPSULE


class End(IntEnum):
    """How a connection has ended."""

    CLOSED = lib.PS_HOST_CLOSED
    FAILED = lib.PS_HOST_FAILED
    TERMINATED = lib.PS_HOST_TERMINATED


@dataclass(frozen=True, slots=True)
class Over:
    """The connection is over: how, with the error of the socket, or what a TermReq said."""

    end: End
    errno: int
    from_peer: bool
    fes: int
    fei: int

    def __str__(self) -> str:
        who = "the target ended the connection" if self.from_peer else "the target sent a wrong PDU"
        return f"{who}: {FATAL_ERRORS.get(self.fes, f'FES {self.fes:X}h')}, FEI {self.fei:X}h"


class Memory:
    """The bytes of a command's data: a borrowed buffer, until `release` gives it back."""

    __slots__ = ("length", "place")

    def __init__(self, data: Any, *, writable: bool, name: str = "data") -> None:
        """Borrow any contiguous buffer, which must not change its size meanwhile.

        Raises `InvalidRequest`, of the argument `name`, when it is none.
        """
        try:
            self.place = _borrowed(data, writable=writable)
        except (TypeError, ValueError, BufferError) as error:
            wanted = "a writable contiguous buffer" if writable else "a contiguous buffer"
            raise InvalidRequest(f"found {type(data).__name__}: {error}", name, wanted) from None
        self.length = len(self.place)

    @property
    def address(self) -> int:
        """Where the bytes are."""
        return int(ffi.cast("uintptr_t", self.place))

    def release(self) -> None:
        """Give the buffer back; the engine must not know it any more."""
        ffi.release(self.place)


class Orphan:
    """A command that still runs while its caller turns away, with memory of our own for it.

    What it reads goes there from the beginning. What it writes comes from there once it was copied:
    as long as `copy` has not said so, the caller's buffer is in use.
    """

    def __init__(
        self, engine: Engine, slot: int, place: Any, length: int, *, is_read: bool
    ) -> None:
        self.own = _unfilled(_BYTES, length)
        self._engine = engine
        self._slot = slot
        self._place = ffi.cast("uint8_t *", place)
        self._copied_bytes = length if is_read else 0

    @property
    def needs_copy(self) -> bool:
        """Whether the caller's buffer is still in use."""
        return self._copied_bytes < len(self.own)

    def copy(self, most_bytes: int) -> bool:
        """Copy at most so many bytes; return whether the caller's buffer is not used any more."""
        if not self._engine.is_orphan(self._slot, self):
            return True  # It has ended by itself.
        size = min(most_bytes, len(self.own) - self._copied_bytes)
        ffi.memmove(self.own + self._copied_bytes, self._place + self._copied_bytes, size)
        self._copied_bytes += size
        if self.needs_copy:
            return False
        self._engine.redirect(self._slot, self.own)
        return True


class Batch:
    """One request of many commands, and the buffers that it has borrowed for them.

    `entry` is the first block's command, `pieces` an array of `prestage.host_client.batch.PIECE`.
    `future` is set by whoever carries it out: to None when all went well, or to the completion of
    the first command that failed, which was to move `failed_bytes`.
    """

    def __init__(
        self,
        entry: bytes,
        pieces: Any,
        memories: Sequence[Memory],
        block_bytes: int,
        *,
        is_read: bool,
        is_repeatable: bool,
    ) -> None:
        self.future: asyncio.Future[Completion | None]
        self.is_read = is_read
        self.block_bytes = block_bytes
        self._memories = memories
        self.pieces: Any
        self._pieces: Any
        self.borrow_pieces(pieces)
        self.inner: Any = ffi.new(
            "struct ps_host_batch *",
            {
                "pieces": self._pieces,
                "count": self.count,
                "block_size": block_bytes,
                "is_read": is_read,
                "is_repeatable": is_repeatable,
                "sqe": entry,
            },
        )

    def borrow_pieces(self, pieces: Any) -> Any:
        """Let it consist of these pieces; return them as C has them."""
        self.pieces = pieces
        self._pieces = ffi.from_buffer("struct ps_host_piece[]", pieces)
        return self._pieces

    @property
    def count(self) -> int:
        """Commands of it."""
        return len(self._pieces)

    @property
    def end(self) -> int:
        """How it has ended; 0 while it has not."""
        return int(self.inner.end)

    @property
    def failed_bytes(self) -> int:
        """What the command that failed was to move."""
        return int(self.inner.failed_length)

    @property
    def failure(self) -> tuple[Completion, bool]:
        """The completion of the first command that failed; and whether its digest was wrong."""
        return _completion(self.inner.failure), bool(self.inner.failure.digest_error)

    def release(self) -> None:
        """Give the buffers back; no queue must know them any more."""
        for memory in self._memories:
            memory.release()


class Work:
    """Batches that the queues of one controller carry out together."""

    def __init__(self) -> None:
        self.inner: Any = ffi.new("struct ps_host_work *")
        self._tags = itertools.count(1)
        self._batches: dict[int, Batch] = {}

    @property
    def waiting(self) -> int:
        """Commands of all batches that wait for a slot."""
        return int(self.inner.waiting)

    @property
    def batches(self) -> list[Batch]:
        """Those that have not ended."""
        return list(self._batches.values())

    def say_waiting(self, requests: int) -> None:
        """Say how many single commands wait for a slot: batches leave them some."""
        self.inner.requests = requests

    def add(self, batch: Batch) -> None:
        """Let the queues carry out a batch, until it has ended or is stopped."""
        batch.inner.tag = next(self._tags)
        self._batches[batch.inner.tag] = batch
        lib.ps_host_add(self.inner, batch.inner)

    def recut(self, batch: Batch, pieces: Any) -> None:
        """Let a batch go on by other pieces, those that are not done cut anew.

        No command of it may be in flight.
        """
        lib.ps_host_recut(self.inner, batch.inner, batch.borrow_pieces(pieces), batch.count)

    def stop(self, batch: Batch) -> None:
        """Start no more commands of a batch, if it has not ended."""
        if self._batches.pop(batch.inner.tag, None) is not None:
            lib.ps_host_stop(self.inner, batch.inner)

    def ended(self) -> Iterator[Batch]:
        """Yield the batches that have ended by themselves, each once."""
        found: Any
        while (found := lib.ps_host_next_ended(self.inner)) != ffi.NULL:
            yield self._batches.pop(found.tag)


class Engine:
    """One end of a connection. `InvalidRequest` is raised for a configuration out of range.

    Times are those of the event loop. The socket stays its owner's to close.
    """

    def __init__(self, descriptor: int, slots: int, digests: int, timeout_s: float) -> None:
        config = ffi.new(
            "struct ps_host_config *",
            {"slot_count": slots, "digests": digests, "timeout_us": _microseconds(timeout_s)},
        )
        size = lib.ps_host_size(config)
        if size == 0:
            raise InvalidRequest(f"found {slots} slots", "queue_depth", "1 to 4096")
        # Aligned as C wants it: one element of an array of 64-byte pieces too many.
        self._memory = _unfilled(_BYTES, size + 64)
        start = int(ffi.cast("uintptr_t", self._memory))
        at = ffi.cast("void *", start + -start % 64)
        self._host = lib.ps_host_init(at, config, descriptor)
        self._state: Any = lib.ps_host_state(self._host)
        self._place: Any = ffi.new("struct iovec *")
        self._orphans: dict[int, Orphan] = {}
        """By slot: commands that nobody waits for."""

    @property
    def in_flight(self) -> int:
        """Slots in use."""
        return int(self._state.in_flight)

    @property
    def reserved(self) -> int:
        """Slots that were promised, which batches leave free."""
        return int(self._state.reserved)

    @reserved.setter
    def reserved(self, slots: int) -> None:
        self._state.reserved = slots

    # ---- single commands ----

    def submit(
        self, entry: bytes, transfer: int, memory: Memory | None, deadline: float | None
    ) -> int:
        """Queue a command; return its slot, which is also its CID, or -1 when none is free."""
        until = 0 if deadline is None else _microseconds(deadline)
        if memory is None:
            return lib.ps_host_submit(self._host, entry, Transfer.NONE, ffi.NULL, 0, until)
        return lib.ps_host_submit(self._host, entry, transfer, memory.place, memory.length, until)

    def redirect(self, slot: int, place: Any) -> None:
        """From now on the data of the single command in `slot` is elsewhere."""
        lib.ps_host_redirect(self._host, slot, place)

    def abandon(self, slot: int, memory: Memory, *, is_read: bool) -> Orphan:
        """Make an orphan of the single command in `slot`; its completion is nobody's."""
        return self._orphan(slot, memory.place, memory.length, is_read=is_read)

    def is_orphan(self, slot: int, orphan: Orphan) -> bool:
        """Whether `orphan` is the command in `slot`, and has not ended."""
        return self._orphans.get(slot) is orphan

    def _orphan(self, slot: int, place: Any, length: int, *, is_read: bool) -> Orphan:
        orphan = Orphan(self, slot, place, length, is_read=is_read)
        self._orphans[slot] = orphan
        if not orphan.needs_copy:
            self.redirect(slot, orphan.own)
        return orphan

    def keep(self, slot: int) -> None:
        """Give the CID of the command in `slot` to no other until `let_go`, though it may end."""
        lib.ps_host_keep(self._host, slot)

    def let_go(self, slot: int) -> bool:
        """End what `keep` began; return whether the slot has become free by that."""
        return bool(lib.ps_host_let_go(self._host, slot))

    def completions(self) -> list[tuple[int, Completion, bool]]:
        """Return the single commands that the last pass has ended: slot, how, wrong digest.

        Their slots are free, unless they are kept, and their memory is not used any more. Orphans
        have ended too and are not told of.
        """
        state = self._state
        found = state.completions[0 : state.completion_count]
        return [
            (one.slot, _completion(one), one.digest_error != 0)
            for one in found
            if self._orphans.pop(one.slot, None) is None
        ]

    # ---- passes ----

    def receive(self, now: float) -> int:
        """Receive what there is, start commands of batches, send; return what it has brought."""
        return lib.ps_host_receive(self._host, _microseconds(now))

    def send(self, now: float) -> int:
        """Send what is ready; return what that has brought."""
        return lib.ps_host_send(self._host, _microseconds(now))

    def send_last(self) -> None:
        """Send what the socket takes at once, before it is closed."""
        lib.ps_host_send_last(self._host)

    @property
    def over(self) -> Over:
        """How the connection has ended, once it has."""
        state = self._state
        end = End(state.end)
        return Over(end, state.error, state.from_peer != 0, state.fes, state.fei)

    def lose(self, *, may_repeat: bool) -> None:
        """Forget all commands: the connection is over. `may_repeat`: batches may send some again.

        Nothing may be called after that.
        """
        lib.ps_host_lose(self._host, may_repeat)
        self._orphans.clear()

    # ---- batches ----

    def attach(self, work: Work, in_capsule_bytes: int) -> None:
        """Take part in `work` from now on."""
        lib.ps_host_attach(self._host, work.inner, in_capsule_bytes)

    def fill(self, most: int, now: float) -> int:
        """Start at most `most` commands of batches, as far as slots are free; return how many."""
        return lib.ps_host_fill(self._host, most, _microseconds(now))

    def detach(self, batch: Batch) -> Iterator[Orphan]:
        """Make orphans of the commands of a batch that has ended or was stopped; yield them."""
        while (slot := lib.ps_host_detach(self._host, batch.inner, self._place)) >= 0:
            place, length = self._place.iov_base, int(self._place.iov_len)
            yield self._orphan(slot, place, length, is_read=batch.is_read)

    # ---- time ----

    @property
    def deadline(self) -> float | None:
        """The earliest of the commands in flight."""
        found = lib.ps_host_deadline(self._host)
        return found / 1e6 if found else None

    def overdue(self, now: float) -> int:
        """Return the slot of a command whose time is up, each once; -1: there is none; `STUCK`.

        It gets as much time again, and its batch ends.
        """
        return lib.ps_host_overdue(self._host, _microseconds(now))


def _borrowed(data: Any, *, writable: bool) -> Any:
    if writable:
        return ffi.from_buffer(_BYTES, data, require_writable=True)
    return ffi.from_buffer(_BYTES, data)


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6)


def _completion(found: Any) -> Completion:
    return parse_completion(ffi.buffer(found.cqe)[:], found.transferred)
