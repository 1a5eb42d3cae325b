"""One TCP connection to a target: any bytes out, PDUs in, a deadline on every wait."""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Self

from . import pdu
from .pdu import HEADER_LENGTHS, Digest, Pdu, PduType

Address = tuple[str, int] | tuple[str, int, int, int]
"""As sockets take it; with flow and scope for a link-local one."""
LONGEST_PDU = 64 << 20


class WireError(Exception):
    """What a connection can come to, other than an answer."""


class Silence(WireError):
    """Nothing came within the time given."""


class ConnectionClosed(WireError):
    """The target closed without a C2HTermReq."""


class ProtocolError(WireError):
    """The target broke the specification; the text says how."""


class Terminated(WireError):
    """The target sent a C2HTermReq."""

    def __init__(self, pdu_: Pdu) -> None:
        self.fes = pdu_.u16(8)
        self.fei = pdu_.u32(10)
        self.copied_header = pdu_.data
        super().__init__(f"C2HTermReq FES {self.fes:#04x} FEI {self.fei:#x}")

    def text(self) -> str:
        """ "term 01/3" where the FEI means an offset (FES 01h, 06h), else "term 02"."""
        with_offset = self.fes in (1, 6)
        return f"term {self.fes:02x}" + (f"/{self.fei:x}" if with_offset else "")


class RawConnection:
    """A socket that speaks PDUs when asked to, and anything else when asked to."""

    def __init__(
        self, address: Address, *, timeout_s: float = 10.0, receive_buffer: int | None = None
    ) -> None:
        self.timeout_s = timeout_s
        self.digests = 0
        self.icresp: Pdu | None = None
        self._input = bytearray()
        self._end: str | None = None
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect(address)
        except BaseException:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- sending ----

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of `data`, taking in what arrives meanwhile so that neither side blocks.

        Raises ConnectionClosed when the target is gone before the last byte.
        """
        view = memoryview(data)
        limit = time.monotonic() + self.timeout_s
        while view:
            left = limit - time.monotonic()
            readable, writable = self._poll(max(left, 0), to_send=True)
            if not readable and not writable:
                raise Silence(f"{len(view)} bytes not taken within {self.timeout_s} s")
            if readable:
                self._take_in()
            if writable:
                try:
                    view = view[self.socket.send(view) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._end = "closed"
                    self._raise_end(error)

    def send_pieces(self, data: bytes, cuts: list[int], settle_s: float = 0.0) -> None:
        """Send `data` in pieces that end at `cuts`, each in a segment of its own."""
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self.send(data[start:end])
            if settle_s:
                time.sleep(settle_s)

    # ---- receiving ----

    def _poll(self, wait_s: float, *, to_send: bool = False) -> tuple[bool, bool]:
        """Whether there is something to take in, and room to send; waits for either."""
        poll = select.poll()
        wanted = (0 if self._end else select.POLLIN) | (select.POLLOUT if to_send else 0)
        poll.register(self.socket, wanted)
        for _, events in poll.poll(wait_s * 1000):
            at_end = events & (select.POLLHUP | select.POLLERR)
            return (
                bool(events & select.POLLIN or (at_end and not self._end)),
                bool(to_send and (events & select.POLLOUT or at_end)),
            )
        return False, False

    def _take_in(self, most: int = 1 << 20) -> None:
        try:
            piece = self.socket.recv(most)
        except BlockingIOError:
            return
        except OSError:
            self._end = "closed"
            return
        if piece:
            self._input += piece
        else:
            self._end = "closed"

    def _raise_end(self, cause: BaseException | None = None) -> None:
        """The connection ended: a C2HTermReq that had arrived says more than the end itself."""
        while len(self._input) >= 24 and self._complete():
            received = self._next()
            if received.kind == PduType.C2H_TERM:
                raise Terminated(received) from cause
        raise ConnectionClosed(f"closed with {len(self._input)} bytes of a PDU") from cause

    def _complete(self) -> bool:
        if len(self._input) < 8:
            return False
        return len(self._input) >= int.from_bytes(self._input[4:8], "little") >= 8

    @property
    def has_pdu(self) -> bool:
        """A whole PDU has been taken in already: receive() will not wait."""
        return self._complete()

    def _next(self) -> Pdu:
        plen = int.from_bytes(self._input[4:8], "little")
        raw = bytes(self._input[:plen])
        del self._input[:plen]
        return pdu.parse(raw, self.digests)

    def receive(self, timeout_s: float | None = None) -> Pdu:
        """The next PDU, checked against the rules for a controller's PDUs (TCP 1.0, 3.6.2).

        Raises Terminated, ConnectionClosed, Silence or ProtocolError.
        """
        limit = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        while not self._complete():
            if self._end:
                self._raise_end()
            left = limit - time.monotonic()
            if left <= 0 or not self._poll(left)[0]:
                raise Silence(f"{len(self._input)} bytes of a PDU, then nothing")
            self._take_in()
            if len(self._input) >= 8:
                _check_header(bytes(self._input[:8]))
        received = self._next()
        if received.kind == PduType.C2H_TERM:
            raise Terminated(received)
        if not received.header_digest_is_good:
            raise ProtocolError("header digest of the target's PDU is wrong")
        has_digest = bool(received.flags & 1)
        if received.kind != PduType.ICRESP and has_digest != bool(self.digests & Digest.HEADER):
            raise ProtocolError(f"HDGSTF is {has_digest}, negotiated {self.digests:#x}")
        return received

    def expect(self, kind: PduType, timeout_s: float | None = None) -> Pdu:
        """The next PDU, which must be of `kind`."""
        received = self.receive(timeout_s)
        if received.kind != kind:
            raise ProtocolError(f"PDU type {received.kind:#x} where {kind!r} was expected")
        return received

    # ---- handshake and endings ----

    def initialize(
        self, *, digests: int = 0, hpda: int = 0, maxr2t: int = 0, timeout_s: float | None = None
    ) -> Pdu:
        """ICReq and ICResp; the digests that the ICResp grants are in force afterwards."""
        self.send(pdu.icreq(digests=digests, hpda=hpda, maxr2t=maxr2t))
        return self.initialized(timeout_s)

    def initialized(self, timeout_s: float | None = None) -> Pdu:
        """The ICResp to an ICReq that was sent already."""
        self.icresp = self.expect(PduType.ICRESP, timeout_s)
        self.digests = self.icresp.header[11]
        return self.icresp

    def expect_termreq(self, fes: int, fei: int | None = None, within_s: float = 5.0) -> Terminated:
        """The target sends C2HTermReq with this FES (and FEI), then closes, or this asserts."""
        try:
            while True:
                self.receive(within_s)
        except Terminated as end:
            assert end.fes == fes, f"{end}, FES {fes:#x} expected"
            assert fei is None or end.fei == fei, f"{end}, FEI {fei:#x} expected"
            self.expect_closed(within_s)
            return end

    def expect_closed(self, within_s: float = 5.0) -> str:
        """Read until the target closes; what came before does not matter.

        Returns "fin" or the text of the C2HTermReq. Raises Silence when it stays open.
        """
        limit = time.monotonic() + within_s
        said = "fin"
        while True:
            try:
                self.receive(max(limit - time.monotonic(), 0))
            except Terminated as end:
                said = end.text()
            except ConnectionClosed:
                return said

    @property
    def is_closed(self) -> bool:
        """The target has closed, as far as can be seen without waiting."""
        while not self._end and self._poll(0)[0]:
            self._take_in()
        return self._end is not None

    def close(self) -> None:
        """Close in the orderly way."""
        self.socket.close()

    def reset(self) -> None:
        """Close with RST, as a host that vanishes and whose peer learns it at once."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def _check_header(header: bytes) -> None:
    kind, _flags, hlen, _pdo, plen = struct.unpack("<BBBBI", header)
    if kind not in pdu.CONTROLLER_TO_HOST:
        raise ProtocolError(f"PDU type {kind:#x} from a controller")
    if hlen != HEADER_LENGTHS[PduType(kind)]:
        raise ProtocolError(f"HLEN {hlen} in PDU type {kind:#x}")
    if kind == PduType.C2H_TERM and not 24 <= plen <= pdu.LONGEST_TERM_REQ:
        raise ProtocolError(f"C2HTermReq of {plen} bytes")
    if not hlen <= plen <= LONGEST_PDU:
        raise ProtocolError(f"PLEN {plen} in PDU type {kind:#x}")
