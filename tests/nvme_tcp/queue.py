"""One queue over one connection: Connect, commands in flight, data in both directions.

It checks the controller while it works: transfer tags, offsets and lengths in order, LAST and
SUCCESS where they may stand, PDO as HPDA asked, digests, MAXR2T. A breach raises ProtocolError.
"""

from __future__ import annotations

import dataclasses
import select
import time
from typing import Any

from . import commands as nvme
from . import pdu
from .commands import Completion
from .connection import ProtocolError, RawConnection, Silence
from .pdu import Flag, Pdu, PduType


@dataclasses.dataclass
class InFlight:
    """A command without its completion."""

    entry: bytes
    data: bytes
    """What the host sends, in the capsule or when asked by R2T."""
    expected: int
    """Bytes of C2HData at most."""
    asked: int = 0
    """Bytes of `data` covered by R2Ts so far."""
    received: bytearray = dataclasses.field(default_factory=bytearray)
    saw_last: bool = False


class Queue:
    """A connected (or not yet connected) submission and completion queue pair."""

    def __init__(
        self,
        connection: RawConnection,
        *,
        qid: int = 0,
        sqsize: int = 31,
        maxr2t: int = 0,
        hpda: int = 0,
        cattr: int = 0,
        in_capsule: int = 8192,
        success_allowed: bool = False,
    ) -> None:
        self.connection = connection
        self.qid, self.sqsize, self.cattr = qid, sqsize, cattr
        self.maxr2t, self.hpda = maxr2t, hpda
        self.in_capsule = in_capsule
        self.success_allowed = success_allowed or bool(cattr & 4)
        self.cntlid = 0xFFFF
        self.in_flight: dict[int, InFlight] = {}
        self.completions: dict[int, Completion] = {}
        self.answers_r2t = True
        """False: an R2T is kept in `r2ts` and the data withheld."""
        self.r2ts: list[Pdu] = []
        self._next_cid = 4096
        assert connection.icresp is not None
        self.maxh2cdata = connection.icresp.u32(12)

    @property
    def digests(self) -> int:
        """The digests in force."""
        return self.connection.digests

    # ---- submission ----

    def capsule(self, entry: bytes, data: bytes = b"", **header: int) -> bytes:
        """The command capsule PDU for `entry`, with the digests in force."""
        return pdu.command(entry, data, **{"digests": self.digests, **header})

    def register(self, entry: bytes, *, data: bytes = b"", expected: int = 0) -> int:
        """Await a completion for `entry`, which the caller sends itself. Returns the CID."""
        cid = int.from_bytes(entry[2:4], "little")
        self.in_flight[cid] = InFlight(entry, data, expected)
        return cid

    def new_cid(self) -> int:
        """A CID that is not in flight; like Linux's, not below the queue's size."""
        while True:
            self._next_cid = 4096 + (self._next_cid - 4095) % 32768
            if self._next_cid not in self.in_flight:
                return self._next_cid

    def submit(
        self,
        entry: bytes,
        *,
        data: bytes = b"",
        expected: int = 0,
        in_capsule: bool | None = None,
        cid: int | None = None,
        keep_sgl: bool = False,
    ) -> int:
        """Send a command with its CID and SGL filled in. Returns the CID.

        `data` goes in the capsule if it fits (or as `in_capsule` says), else by R2T. `keep_sgl`
        leaves the descriptor of `entry` as it is.
        """
        cid = self.new_cid() if cid is None else cid
        inline = bool(data) and (len(data) <= self.in_capsule if in_capsule is None else in_capsule)
        entry = nvme.with_cid(entry, cid)
        if (data or expected) and not keep_sgl:
            kind = nvme.SGL_IN_CAPSULE if inline else nvme.SGL_TRANSPORT
            entry = nvme.with_sgl(entry, nvme.sgl(kind, len(data) or expected))
        self.register(entry, data=b"" if inline else data, expected=expected)
        self.connection.send(self.capsule(entry, data if inline else b""))
        return cid

    # ---- what comes back ----

    def pump(self, timeout_s: float | None = None) -> Pdu:
        """Receive and act on one PDU. Raises what RawConnection.receive raises."""
        received = self.connection.receive(timeout_s)
        if received.kind == PduType.R2T:
            self._on_r2t(received)
        elif received.kind == PduType.C2H_DATA:
            self._on_data(received)
        elif received.kind == PduType.RESPONSE:
            self._on_response(received)
        else:
            raise ProtocolError(f"PDU type {received.kind:#x} on a connected queue")
        return received

    def _command_of(self, received: Pdu) -> InFlight:
        cid = received.u16(8)
        if cid not in self.in_flight:
            raise ProtocolError(f"PDU type {received.kind:#x} for CID {cid}, not in flight")
        return self.in_flight[cid]

    def _on_r2t(self, received: Pdu) -> None:
        command = self._command_of(received)
        offset, length = received.u32(12), received.u32(16)
        if offset != command.asked or not 0 < length <= len(command.data) - offset:
            raise ProtocolError(f"R2T for {length} bytes at {offset} of {len(command.data)}")
        command.asked += length
        self.r2ts.append(received)
        if len(self.r2ts_of(received.u16(8))) > self.maxr2t + 1:
            raise ProtocolError(f"more than {self.maxr2t + 1} R2Ts outstanding")
        if self.answers_r2t:
            self.answer_r2t(received)

    def r2ts_of(self, cid: int) -> list[Pdu]:
        """The R2Ts of a command whose data was not sent yet."""
        return [r2t for r2t in self.r2ts if r2t.u16(8) == cid]

    def answer_r2t(self, r2t: Pdu) -> None:
        """Send the H2CData that `r2t` asks for, in pieces of at most MAXH2CDATA."""
        self.r2ts.remove(r2t)
        cid, ttag, offset, length = r2t.u16(8), r2t.u16(10), r2t.u32(12), r2t.u32(16)
        command = self.in_flight[cid]
        done = 0
        while done < length:
            size = min(length - done, self.maxh2cdata)
            piece = command.data[offset + done : offset + done + size]
            last = done + size == length
            self.connection.send(
                pdu.h2c_data(cid, ttag, offset + done, piece, last=last, digests=self.digests)
            )
            done += size

    def _on_data(self, received: Pdu) -> None:
        command = self._command_of(received)
        offset, length = received.u32(12), received.u32(16)
        alignment = (self.hpda + 1) * 4
        if received.pdo % alignment or received.pdo < received.hlen:
            raise ProtocolError(f"PDO {received.pdo} is not a multiple of {alignment}")
        if length != len(received.data) or offset != len(command.received):
            raise ProtocolError(f"C2HData {length} at {offset}, {len(command.received)} received")
        if offset + length > command.expected or command.saw_last:
            raise ProtocolError(f"C2HData beyond {command.expected} bytes")
        if bool(received.flags & Flag.DDGST) != bool(self.digests & pdu.Digest.DATA):
            raise ProtocolError(f"DDGSTF in {received.flags:#x}, negotiated {self.digests:#x}")
        if not received.data_digest_is_good:
            raise ProtocolError(f"data digest of C2HData for CID {received.u16(8)} is wrong")
        command.received += received.data
        command.saw_last = bool(received.flags & Flag.LAST)
        if received.flags & Flag.SUCCESS:
            if not command.saw_last or not self.success_allowed:
                raise ProtocolError("SUCCESS without LAST, or while SQ flow control is enabled")
            cid = received.u16(8)
            answer = Completion(0, 0, 0xFFFF, self.qid, cid, 0, bytes(command.received), True)
            self._complete(answer)

    def _on_response(self, received: Pdu) -> None:
        answer = nvme.parse_completion(received.header[8:24])
        if answer.cid not in self.in_flight:
            raise ProtocolError(f"response for CID {answer.cid}, not in flight")
        command = self.in_flight[answer.cid]
        if command.received and not command.saw_last:
            raise ProtocolError("response after C2HData without LAST")
        self._complete(dataclasses.replace(answer, data=bytes(command.received)))

    def _complete(self, answer: Completion) -> None:
        del self.in_flight[answer.cid]
        self.r2ts = [r2t for r2t in self.r2ts if r2t.u16(8) != answer.cid]
        self.completions[answer.cid] = answer

    def wait(self, cid: int, timeout_s: float | None = None) -> Completion:
        """The completion of `cid`. Raises Silence after `timeout_s`."""
        limit = time.monotonic() + (timeout_s or self.connection.timeout_s)
        while cid not in self.completions:
            left = limit - time.monotonic()
            if left <= 0:
                raise Silence(f"CID {cid} was not answered")
            self.pump(left)
        return self.completions.pop(cid)

    def wait_r2t(self, timeout_s: float | None = None) -> Pdu:
        """The next R2T, its data withheld (it stays in `r2ts`)."""
        self.answers_r2t = False
        while True:
            received = self.pump(timeout_s)
            if received.kind == PduType.R2T:
                return received

    def wait_any(self, timeout_s: float | None = None) -> Completion:
        """The completion that comes first."""
        limit = time.monotonic() + (timeout_s or self.connection.timeout_s)
        while not self.completions:
            self.pump(max(limit - time.monotonic(), 0))
        return self.completions.pop(next(iter(self.completions)))

    def execute(self, entry: bytes, timeout_s: float | None = None, **arguments: Any) -> Completion:
        """Submit (see there) and wait."""
        return self.wait(self.submit(entry, **arguments), timeout_s)

    # ---- fabrics ----

    def connect(
        self,
        subnqn: str,
        *,
        hostnqn: str | bytes = nvme.HOST_NQN,
        cntlid: int = 0xFFFF,
        hostid: bytes = nvme.HOST_ID,
        kato: int = 0,
    ) -> Completion:
        """The Connect command; on success the queue knows its CNTLID."""
        data = nvme.connect_data(subnqn, hostnqn, cntlid, hostid)
        entry = nvme.connect(qid=self.qid, sqsize=self.sqsize, kato=kato, cattr=self.cattr)
        answer = self.execute(entry, data=data, in_capsule=True)
        if answer.is_ok:
            self.cntlid = answer.dw0 & 0xFFFF
        return answer

    def property_get(self, offset: int, size: int = 4) -> int:
        """A property's value. Raises ProtocolError when the controller refuses."""
        answer = self.execute(nvme.property_get(offset, size))
        if not answer.is_ok:
            raise ProtocolError(f"Property Get {offset:#x}: {answer.text()}")
        return answer.dw0 | answer.dw1 << 32

    # ---- blocks ----

    def read(self, slba: int, blocks: int, block_size: int, **options: Any) -> bytes:
        """Read `blocks` logical blocks. Raises ProtocolError on a status that is not success."""
        entry = nvme.block_command(nvme.READ, slba, blocks, **options)
        answer = self.execute(entry, expected=blocks * block_size)
        if not answer.is_ok or len(answer.data) != blocks * block_size:
            raise ProtocolError(f"Read {slba}+{blocks}: {answer.text()}, {len(answer.data)} bytes")
        return answer.data

    def write(
        self,
        slba: int,
        data: bytes,
        block_size: int,
        *,
        in_capsule: bool | None = None,
        **options: Any,
    ) -> None:
        """Write `data`. Raises ProtocolError on a status that is not success."""
        entry = nvme.block_command(nvme.WRITE, slba, len(data) // block_size, **options)
        answer = self.execute(entry, data=data, in_capsule=in_capsule)
        if not answer.is_ok:
            raise ProtocolError(f"Write {slba}+{len(data) // block_size}: {answer.text()}")


def ready_queues(queues: list[Queue], wait_s: float) -> list[Queue]:
    """Those on which pump() has something to do; waits up to `wait_s` for the first."""
    buffered = [queue for queue in queues if queue.connection.has_pdu]
    if buffered or not queues:
        return buffered
    by_fd = {queue.connection.socket.fileno(): queue for queue in queues}
    poll = select.poll()  # select() knows no descriptor above 1023.
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(wait_s * 1000)]
