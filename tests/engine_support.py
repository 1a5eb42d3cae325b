"""A Python face for the PDU engine, PDU builders independent of it, and CRC32C from a table."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from prestage._engine import ffi, lib

HEADER, DATA = 1, 2  # digest bits
HDGSTF, DDGSTF, LAST, SUCCESS = 1, 2, 4, 8
ICREQ, ICRESP, H2C_TERM, C2H_TERM, COMMAND, RESPONSE, H2C_DATA, C2H_DATA = range(8)
R2T = 9


def _table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC32C by its definition: reflected polynomial 82F63B78h, seed and final xor all ones."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def common(kind: int, flags: int, hlen: int, pdo: int, plen: int) -> bytes:
    """The 8 bytes in front of every PDU."""
    return struct.pack("<BBBBI", kind, flags, hlen, pdo, plen)


def icreq(
    *,
    pfv: int = 0,
    hpda: int = 0,
    digests: int = 0,
    maxr2t: int = 0,
    hlen: int = 128,
    plen: int = 128,
) -> bytes:
    body = struct.pack("<HBBI", pfv, hpda, digests, maxr2t)
    return (common(ICREQ, 0, hlen, 0, plen) + body).ljust(128, b"\0")


def icresp(
    *, pfv: int = 0, cpda: int = 0, digests: int = 0, limit: int = 65536, hlen: int = 128,
    plen: int = 128,
) -> bytes:  # fmt: skip
    body = struct.pack("<HBBI", pfv, cpda, digests, limit)
    return (common(ICRESP, 0, hlen, 0, plen) + body).ljust(128, b"\0")


def sqe(cid: int, *, opcode: int = 1, sgl: int = 0x5A, length: int = 0, offset: int = 0,
        psdt: int = 1) -> bytes:  # fmt: skip
    head = struct.pack("<BBHI", opcode, psdt << 6, cid, 1)
    return (head.ljust(24, b"\0") + struct.pack("<QI3xB", offset, length, sgl)).ljust(64, b"\7")


@dataclass
class Pdu:
    """A PDU to be built, each field free to be wrong."""

    kind: int
    body: bytes
    data: bytes = b""
    digests: int = 0
    flags: int = 0
    hlen: int | None = None
    pdo: int | None = None
    plen: int | None = None
    drop_flags: int = 0
    header_digest_xor: int = 0
    data_digest_xor: int = 0
    pad: int = 0

    def bytes(self) -> bytes:
        hlen = 8 + len(self.body)
        flags = self.flags
        digest_size = 4 if self.digests & HEADER else 0
        flags |= HDGSTF if digest_size else 0
        tail = b""
        if self.data and self.digests & DATA:
            flags |= DDGSTF
            tail = struct.pack("<I", crc32c(self.data) ^ self.data_digest_xor)
        pdo = hlen + digest_size + self.pad if self.data else 0
        plen = hlen + digest_size + self.pad + len(self.data) + len(tail)
        header = common(
            self.kind,
            flags & ~self.drop_flags,
            hlen if self.hlen is None else self.hlen,
            pdo if self.pdo is None else self.pdo,
            plen if self.plen is None else self.plen,
        )
        header += self.body
        digest = struct.pack("<I", crc32c(header) ^ self.header_digest_xor) if digest_size else b""
        return header + digest + b"\0" * self.pad + self.data + tail


def command(entry: bytes, data: bytes = b"", **fields: Any) -> bytes:
    return Pdu(COMMAND, entry, data, **fields).bytes()


def data_pdu(
    kind: int, cccid: int, ttag: int, offset: int, data: bytes, *, length: int | None = None,
    **fields: Any,
) -> bytes:  # fmt: skip
    body = struct.pack("<HHII4x", cccid, ttag, offset, len(data) if length is None else length)
    return Pdu(kind, body, data, **fields).bytes()


def h2c_data(cccid: int, ttag: int, offset: int, data: bytes, **fields: Any) -> bytes:
    fields.setdefault("flags", LAST)
    return data_pdu(H2C_DATA, cccid, ttag, offset, data, **fields)


def c2h_data(cccid: int, offset: int, data: bytes, **fields: Any) -> bytes:
    fields.setdefault("flags", LAST)
    return data_pdu(C2H_DATA, cccid, 0, offset, data, **fields)


def r2t(cccid: int, ttag: int, offset: int, length: int, **fields: Any) -> bytes:
    return data_pdu(R2T, cccid, ttag, offset, b"", length=length, **fields)


def response(cid: int, status: int = 0, dw0: int = 0, sqhd: int = 0, **fields: Any) -> bytes:
    body = struct.pack("<IIHHHH", dw0, 0, sqhd, 0, cid, status << 1)
    return Pdu(RESPONSE, body, **fields).bytes()


def term_req(kind: int, fes: int = 1, fei: int = 0, size: int = 128, **fields: Any) -> bytes:
    body = struct.pack("<HI10x", fes, fei)
    header = common(kind, 0, fields.get("hlen", 24), 0, fields.get("plen", 24 + size))
    return header + body + b"\x55" * size


@dataclass(frozen=True)
class Event:
    """One engine event; `entry` only where the kind has one."""

    kind: int
    slot: int = 0
    data_length: int = 0
    digest_error: int = 0
    fes: int = 0
    from_peer: int = 0
    fei: int = 0
    entry: bytes = b""


CONNECTED, EV_COMMAND, EV_DATA, SENT, COMPLETION, TERMINATED = range(1, 7)


@dataclass(frozen=True)
class Received:
    """A PDU taken apart again by `parse`."""

    kind: int
    flags: int
    header: bytes
    data: bytes = b""
    pdo: int = 0

    @property
    def cid(self) -> int:
        return int(struct.unpack_from("<H", self.header, 20 if self.kind == RESPONSE else 8)[0])

    @property
    def ttag(self) -> int:
        return int(struct.unpack_from("<H", self.header, 10)[0])

    @property
    def offset(self) -> int:
        return int(struct.unpack_from("<I", self.header, 12)[0])

    @property
    def length(self) -> int:
        return int(struct.unpack_from("<I", self.header, 16)[0])

    @property
    def status(self) -> int:
        return int(struct.unpack_from("<H", self.header, 22)[0]) >> 1

    @property
    def sqhd(self) -> int:
        return int(struct.unpack_from("<H", self.header, 16)[0])

    @property
    def dw0(self) -> int:
        return int(struct.unpack_from("<I", self.header, 8)[0])

    @property
    def fes(self) -> int:
        return int(struct.unpack_from("<H", self.header, 8)[0])

    @property
    def fei(self) -> int:
        return int(struct.unpack_from("<I", self.header, 10)[0])


def parse(stream: bytes, digests: int = 0) -> list[Received]:
    """Take a stream of PDUs apart, checking lengths, padding and digests on the way."""
    found = []
    while stream:
        kind, flags, hlen, pdo, plen = struct.unpack_from("<BBBBI", stream)
        assert len(stream) >= plen >= hlen, "cut or senseless PDU"
        pdu, stream = stream[:plen], stream[plen:]
        header, rest, data = pdu[:hlen], pdu[hlen:], b""
        if kind in (H2C_TERM, C2H_TERM):
            found.append(Received(kind, flags, header, rest))
            continue
        carries = kind not in (ICREQ, ICRESP)
        assert bool(flags & HDGSTF) == (carries and bool(digests & HEADER))
        if flags & HDGSTF:
            assert rest[:4] == struct.pack("<I", crc32c(header)), "header digest"
            rest = rest[4:]
        if rest:
            skip = pdo - (plen - len(rest))
            assert rest[:skip] == b"\0" * skip, "padding"
            data = rest[skip:]
            assert bool(flags & DDGSTF) == bool(digests & DATA)
            if flags & DDGSTF:
                data, digest = data[:-4], data[-4:]
                assert digest == struct.pack("<I", crc32c(data)), "data digest"
        found.append(Received(kind, flags, header, data, pdo))
    return found


Iovecs = Sequence[tuple[Any, int]]


@dataclass
class Engine:
    """An engine of either role. Buffers handed in are kept alive here for as long as it lives."""

    role: int = 0
    slot_count: int = 8
    max_h2c_data: int = 65536
    in_capsule_size: int = 8192
    digests: int = 0
    max_r2t: int = 0
    data_alignment: int = 0
    engine: Any = None
    kept: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = ffi.new(
            "struct ps_engine_config *",
            [
                self.role,
                self.slot_count,
                self.max_h2c_data,
                self.in_capsule_size,
                self.digests,
                self.max_r2t,
                self.data_alignment,
            ],
        )
        size = lib.ps_engine_size(config)
        self.memory = ffi.new("char[]", size + 64)
        address = int(ffi.cast("uintptr_t", self.memory))
        self.engine = lib.ps_engine_init(self.memory + (-address) % 64, config)
        assert self.engine != ffi.NULL
        self._event = ffi.new("struct ps_engine_event *")
        self._iov = ffi.new("struct iovec[64]")

    # input

    def receive(self, data: bytes) -> int:
        buffer = ffi.new("uint8_t[]", data) if data else ffi.new("uint8_t[1]")
        return int(lib.ps_engine_receive(self.engine, buffer, len(data)))

    def peek(self, data: bytes, most: int = 8) -> list[bytes]:
        """The entries of the whole capsules that `data` begins with."""
        buffer, entries = ffi.from_buffer(data), ffi.new("uint8_t *[]", most)
        count = lib.ps_engine_peek(self.engine, buffer, len(data), entries, most)
        return [bytes(ffi.buffer(entry, 64)) for entry in entries[0:count]]

    def events(self) -> list[Event]:
        found = []
        event: Any = self._event
        while lib.ps_engine_next_event(self.engine, event):
            entry = b""
            if event.kind == EV_COMMAND:
                entry = bytes(ffi.buffer(event.entry, 64))
            elif event.kind == COMPLETION:
                entry = bytes(ffi.buffer(event.entry, 16))
            found.append(
                Event(event.kind, event.slot, event.data_length, event.digest_error, event.fes,
                      event.from_peer, event.fei, entry)
            )  # fmt: skip
        return found

    def feed(
        self, pieces: Iterable[bytes], on_event: Callable[[Event], None] | None = None
    ) -> list[Event]:
        """Feed `pieces` one after the other, taking events as they come; all of them returned."""
        found: list[Event] = []
        for piece in pieces:
            rest = piece
            while rest:
                used = self.receive(rest)
                rest = rest[used:]
                events = self.events()
                found += events
                for event in events:
                    if on_event is not None:
                        on_event(event)
                if used == 0 and not events:
                    return found  # held or terminated
        return found

    def destination(self, most: int = 64) -> list[Any]:
        count = lib.ps_engine_destination(self.engine, self._iov, most)
        return [ffi.buffer(self._iov[i].iov_base, self._iov[i].iov_len) for i in range(count)]

    # output

    def iovecs(self, most: int = 64) -> list[bytes]:
        count = lib.ps_engine_output(self.engine, self._iov, most)
        return [
            bytes(ffi.buffer(self._iov[i].iov_base, self._iov[i].iov_len)) for i in range(count)
        ]

    def sent(self, size: int) -> None:
        lib.ps_engine_sent(self.engine, size)

    def output(self, step: int | None = None, most: int = 64) -> bytes:
        """Send all that is queued, `step` bytes at a time."""
        stream = b""
        while True:
            piece = b"".join(self.iovecs(most))[:step]
            if not piece:
                return stream
            stream += piece
            self.sent(len(piece))

    # target

    def buffers(self, sizes: Sequence[int], fill: bytes = b"") -> tuple[Any, list[Any]]:
        """An iovec array over fresh buffers of `sizes` bytes, filled from `fill`."""
        parts = [ffi.new("uint8_t[]", max(size, 1)) for size in sizes]
        iov = ffi.new("struct iovec[]", max(len(parts), 1))
        for index, (part, size) in enumerate(zip(parts, sizes, strict=True)):
            ffi.memmove(part, fill[:size], min(size, len(fill)))
            fill = fill[size:]
            iov[index].iov_base = part
            iov[index].iov_len = size
        self.kept += [iov, *parts]
        return iov, parts

    def take(self, slot: int, sizes: Sequence[int]) -> Callable[[], bytes]:
        """Take the slot's data into fresh buffers; the result reads them."""
        iov, parts = self.buffers(sizes)
        lib.ps_engine_take(self.engine, slot, iov, len(sizes), sum(sizes))
        return lambda: b"".join(
            bytes(ffi.buffer(part, size)) for part, size in zip(parts, sizes, strict=True)
        )

    def skip(self, slot: int) -> None:
        lib.ps_engine_skip(self.engine, slot)

    def respond(
        self, slot: int, status: int = 0, dw0: int = 0, data: bytes = b"",
        sizes: Sequence[int] | None = None, dw1: int = 0,
    ) -> None:  # fmt: skip
        sizes = [len(data)] if sizes is None and data else (sizes or [])
        iov, _ = self.buffers(sizes, data)
        lib.ps_engine_respond(self.engine, slot, status, dw0, dw1, iov, len(sizes), len(data))

    def bind(self, sq_size: int = 128, flow_control_disabled: bool = False,
             in_capsule_size: int = 8192, success_allowed: bool = False) -> None:  # fmt: skip
        lib.ps_engine_bind(
            self.engine, sq_size, flow_control_disabled, in_capsule_size, success_allowed
        )

    # host

    def submit(self, entry: bytes, transfer: int = 0, data: bytes = b"", length: int = 0,
               sizes: Sequence[int] | None = None) -> tuple[int, Callable[[], bytes]]:  # fmt: skip
        length = len(data) or length
        sizes = [length] if sizes is None and length else (sizes or [])
        iov, parts = self.buffers(sizes, data)
        buffer = ffi.new("uint8_t[]", entry)
        slot = lib.ps_engine_submit(self.engine, buffer, transfer, iov, len(sizes), length)
        return int(slot), lambda: b"".join(
            bytes(ffi.buffer(part, size)) for part, size in zip(parts, sizes, strict=True)
        )

    def keep(self, slot: int) -> None:
        lib.ps_engine_keep(self.engine, slot)

    def let_go(self, slot: int) -> None:
        lib.ps_engine_let_go(self.engine, slot)


def target(digests: int = 0, *, hpda: int = 0, **config: Any) -> Engine:
    """A target engine after the negotiation, its ICResp sent."""
    engine = Engine(role=0, digests=3, **config)
    events = engine.feed([icreq(digests=digests, hpda=hpda)])
    assert [event.kind for event in events] == [CONNECTED]
    (answer,) = parse(engine.output(), 0)
    assert answer.kind == ICRESP and answer.header[11] == digests
    return engine


def host(digests: int = 0, *, limit: int = 65536, **config: Any) -> Engine:
    """A host engine after the negotiation, its ICReq sent."""
    engine = Engine(role=1, digests=digests, **config)
    (request,) = parse(engine.output(), 0)
    assert request.kind == ICREQ
    events = engine.feed([icresp(digests=digests, limit=limit)])
    assert [event.kind for event in events] == [CONNECTED]
    return engine
