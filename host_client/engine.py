"""The PDU engine in host role: one end of one connection, without sockets or time.

Commands go in with the memory that their data is in or goes to; bytes for the socket come out.
Payload is received straight into the caller's memory, and sent straight from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from prestage._engine import ffi, lib
from prestage.host_client.errors import InvalidRequest

HEADER_DIGEST: int = lib.PS_DIGEST_HEADER
DATA_DIGEST: int = lib.PS_DIGEST_DATA
SCRATCH_BYTES = 64 << 10
"""Of headers and small payloads that one receive may bring."""
MOST_VECTORS = 64
"""Pieces that one send takes."""
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


class Transfer(IntEnum):
    """Which way data goes."""

    NONE = lib.PS_TRANSFER_NONE
    FROM_CONTROLLER = lib.PS_TRANSFER_FROM_CONTROLLER
    TO_CONTROLLER = lib.PS_TRANSFER_TO_CONTROLLER
    IN_CAPSULE = lib.PS_TRANSFER_IN_CAPSULE


@dataclass(frozen=True, slots=True)
class Connected:
    """ICReq and ICResp are done: commands may be submitted."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The command in `slot` has ended; the slot is free, and its memory is not used any more."""

    slot: int
    cqe: bytes
    transferred: int
    digest_error: bool


@dataclass(frozen=True, slots=True)
class Terminated:
    """The connection is over: a TermReq was queued, or came from the peer."""

    from_peer: bool
    fes: int
    fei: int

    def __str__(self) -> str:
        who = "the target ended the connection" if self.from_peer else "the target sent a wrong PDU"
        return f"{who}: {FATAL_ERRORS.get(self.fes, f'FES {self.fes:X}h')}, FEI {self.fei:X}h"


Event = Connected | Completed | Terminated


class Memory:
    """The bytes of a command's data: a borrowed buffer, until `release` gives it back."""

    __slots__ = ("_bytes", "_iov", "length")

    def __init__(self, data: Any, *, writable: bool) -> None:
        """Borrow any contiguous buffer, which must not change its size meanwhile.

        Raises `InvalidRequest` when it is none.
        """
        try:
            self._bytes = _borrowed(data, writable=writable)
        except (TypeError, ValueError, BufferError) as error:
            wanted = "a writable contiguous buffer" if writable else "a contiguous buffer"
            raise InvalidRequest(f"found {type(data).__name__}: {error}", "data", wanted) from None
        self.length = len(self._bytes)
        self._iov = _new("struct iovec *", (self._bytes, self.length))

    @property
    def iov(self) -> Any:
        """The one iovec that the engine reads the place from, each time anew."""
        return self._iov

    def redirect(self, *, keep: bool) -> None:
        """Give the caller's buffer back at once, although the command still runs.

        The engine reads the iovec each time that it moves bytes, so the rest of the transfer goes
        to, or comes from, memory of our own; `keep`: which holds the same bytes.
        """
        own = ffi.new(_BYTES, self.length)
        if keep:
            ffi.memmove(own, self._bytes, self.length)
        self._iov.iov_base = own
        borrowed, self._bytes = self._bytes, own
        ffi.release(borrowed)

    def release(self) -> None:
        """Give the buffer back; the engine must not know it any more."""
        ffi.release(self._bytes)


def _new(kind: str, value: Any = None) -> Any:
    return ffi.new(kind, value)


def _borrowed(data: Any, *, writable: bool) -> Any:
    if writable:
        return ffi.from_buffer(_BYTES, data, require_writable=True)
    return ffi.from_buffer(_BYTES, data)


class Engine:
    """One end of a connection. `InvalidRequest` is raised for a configuration out of range."""

    def __init__(self, slots: int, digests: int) -> None:
        config = ffi.new(
            "struct ps_engine_config *",
            {"role": lib.PS_ROLE_HOST, "slot_count": slots, "digests": digests},
        )
        size = lib.ps_engine_size(config)
        if size == 0:
            raise InvalidRequest(f"found {slots} slots", "queue_depth", "1 to 4096")
        # Aligned as C wants it: one element of an array of 64-byte pieces too many.
        self._memory = ffi.new(_BYTES, size + 64)
        start = int(ffi.cast("uintptr_t", self._memory))
        at = ffi.cast("void *", start + -start % 64)
        self._engine = lib.ps_engine_init(at, config)
        self._event = _new("struct ps_engine_event *")
        self._cqe = ffi.buffer(self._event.entry, 16)
        self._into = _new("struct iovec[]", 1)
        self._out = _new("struct iovec[]", MOST_VECTORS)
        self._scratch = _new(_BYTES, SCRATCH_BYTES)
        self._scratch_view = memoryview(ffi.buffer(self._scratch))

    def submit(self, entry: bytes, transfer: int, memory: Memory | None) -> int:
        """Queue a command; return its slot, which is also its CID, or -1 when none is free."""
        if memory is None:
            return lib.ps_engine_submit(self._engine, entry, Transfer.NONE, ffi.NULL, 0, 0)
        return lib.ps_engine_submit(self._engine, entry, transfer, memory.iov, 1, memory.length)

    def places(self) -> list[Any]:
        """Return where the next bytes of the socket go: a buffer of a command first, if it wants.

        Valid until the next call of anything here. `received` says how many came.
        """
        if lib.ps_engine_destination(self._engine, self._into, 1) == 0:
            return [self._scratch_view]
        place = self._into[0]
        return [ffi.buffer(place.iov_base, place.iov_len), self._scratch_view]

    def received(self, places: list[Any], size: int) -> Iterator[Event]:
        """Take `size` bytes that `places` were filled with; yield what has happened, in order."""
        direct = min(len(places[0]), size) if len(places) == 2 else 0
        if direct:
            lib.ps_engine_received(self._engine, direct)
            yield from self._events()
        rest = size - direct
        start = 0
        while start < rest:
            step = lib.ps_engine_receive(self._engine, self._scratch + start, rest - start)
            start += step
            yield from self._events()
            if step == 0:
                # Only a terminated engine takes nothing once its events were taken.
                return

    def _events(self) -> Iterator[Event]:
        event = self._event
        while lib.ps_engine_next_event(self._engine, event):
            if event.kind == lib.PS_EVENT_COMPLETION:
                yield Completed(
                    event.slot, self._cqe[:], event.data_length, event.digest_error != 0
                )
            elif event.kind == lib.PS_EVENT_CONNECTED:
                yield Connected()
            else:
                yield Terminated(event.from_peer != 0, event.fes, event.fei)

    def output(self) -> list[Any]:
        """Return what is to be sent next, as buffers; valid until `sent` says how much went."""
        count = lib.ps_engine_output(self._engine, self._out, MOST_VECTORS)
        out = self._out
        return [ffi.buffer(out[i].iov_base, out[i].iov_len) for i in range(count)]

    def sent(self, size: int) -> Iterator[Event]:
        """Pass `size` bytes of the output; yield what has happened."""
        lib.ps_engine_sent(self._engine, size)
        return self._events()

    @property
    def is_terminated(self) -> bool:
        """Whether the connection is over: what is queued may be sent, then it is closed."""
        return lib.ps_engine_is_terminated(self._engine)
