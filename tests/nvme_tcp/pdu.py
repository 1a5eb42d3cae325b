"""NVMe/TCP PDUs: build any, right or wrong on purpose, and parse what a target sends.

NVM Express TCP Transport Specification 1.0, clause 3.6. Every builder lets the common header's
fields be overridden, because most tests want exactly one of them wrong.
"""

from __future__ import annotations

import dataclasses
import struct
from enum import IntEnum, IntFlag
from typing import Any

from .crc32c import crc32c


class PduType(IntEnum):
    """PDU-Type (TCP 1.0, figure 10)."""

    ICREQ = 0x00
    ICRESP = 0x01
    H2C_TERM = 0x02
    C2H_TERM = 0x03
    COMMAND = 0x04
    RESPONSE = 0x05
    H2C_DATA = 0x06
    C2H_DATA = 0x07
    R2T = 0x09


class Flag(IntFlag):
    """FLAGS of the common header."""

    HDGST = 1
    DDGST = 2
    LAST = 4
    SUCCESS = 8


class Digest(IntFlag):
    """DGST of ICReq and ICResp."""

    NONE = 0
    HEADER = 1
    DATA = 2
    BOTH = 3


HEADER_LENGTHS = {
    PduType.ICREQ: 128,
    PduType.ICRESP: 128,
    PduType.H2C_TERM: 24,
    PduType.C2H_TERM: 24,
    PduType.COMMAND: 72,
    PduType.RESPONSE: 24,
    PduType.H2C_DATA: 24,
    PduType.C2H_DATA: 24,
    PduType.R2T: 24,
}
CONTROLLER_TO_HOST = {
    PduType.ICRESP,
    PduType.C2H_TERM,
    PduType.RESPONSE,
    PduType.C2H_DATA,
    PduType.R2T,
}
LONGEST_TERM_REQ = 152


@dataclasses.dataclass(frozen=True)
class Pdu:
    """A PDU as received: `header` is HLEN bytes, `data` starts at PDO, digests are judged."""

    kind: int
    flags: int
    hlen: int
    pdo: int
    plen: int
    header: bytes
    data: bytes
    header_digest_is_good: bool = True
    data_digest_is_good: bool = True

    def u16(self, offset: int) -> int:
        """The 16-bit little-endian field at `offset` of the header."""
        return int.from_bytes(self.header[offset : offset + 2], "little")

    def u32(self, offset: int) -> int:
        """The 32-bit little-endian field at `offset` of the header."""
        return int.from_bytes(self.header[offset : offset + 4], "little")


def common_header(kind: int, flags: int, hlen: int, pdo: int, plen: int) -> bytes:
    """The 8 bytes that open every PDU (TCP 1.0, 3.6.1)."""
    return struct.pack("<BBBBI", kind, int(flags), hlen, pdo, plen)


def build(
    kind: int,
    specific: bytes,
    data: bytes = b"",
    *,
    digests: int = 0,
    alignment: int = 4,
    flags: int = 0,
    hlen: int | None = None,
    pdo: int | None = None,
    plen: int | None = None,
    header_digest: int | None = None,
    data_digest: int | None = None,
) -> bytes:
    """A PDU of `kind` with the header's `specific` part and `data`.

    `digests` adds what was negotiated; `hlen`, `pdo`, `plen`, `header_digest` and `data_digest`
    replace the right value. The bytes keep their right places whatever the fields say.
    """
    length = 8 + len(specific)
    end = length + (4 if digests & Digest.HEADER else 0)
    start = -(-end // alignment) * alignment if data else end
    with_data_digest = bool(data) and bool(digests & Digest.DATA)
    flags |= (Flag.HDGST if digests & Digest.HEADER else 0) | (
        Flag.DDGST if with_data_digest else 0
    )
    header = (
        common_header(
            kind,
            flags,
            length if hlen is None else hlen,
            (start if data else 0) if pdo is None else pdo,
            start + len(data) + (4 if with_data_digest else 0) if plen is None else plen,
        )
        + specific
    )
    pieces = [header]
    if digests & Digest.HEADER:
        value = crc32c(header) if header_digest is None else header_digest
        pieces.append(struct.pack("<I", value))
    if data:
        pieces += [bytes(start - end), data]
    if with_data_digest:
        value = crc32c(data) if data_digest is None else data_digest
        pieces.append(struct.pack("<I", value))
    return b"".join(pieces)


def icreq(
    *,
    pfv: int = 0,
    hpda: int = 0,
    digests: int = 0,
    maxr2t: int = 0,
    hlen: int = 128,
    pdo: int = 0,
    plen: int = 128,
) -> bytes:
    """ICReq (TCP 1.0, 3.6.2.2). MAXR2T is 0-based, HPDA in dwords and 0-based."""
    specific = struct.pack("<HBBI", pfv, hpda, int(digests), maxr2t) + bytes(112)
    return build(PduType.ICREQ, specific, hlen=hlen, pdo=pdo, plen=plen)


def command(sqe: bytes, data: bytes = b"", **header: Any) -> bytes:
    """Command Capsule (TCP 1.0, 3.6.2.6): a 64-byte SQE, with in-capsule data or none."""
    return build(PduType.COMMAND, sqe, data, **header)


def h2c_data(
    cccid: int,
    ttag: int,
    datao: int,
    data: bytes,
    *,
    datal: int | None = None,
    last: bool = True,
    **header: int,
) -> bytes:
    """Host To Controller Data Transfer (TCP 1.0, 3.6.2.8)."""
    length = len(data) if datal is None else datal
    specific = struct.pack("<HHII4x", cccid, ttag, datao, length)
    flags = Flag.LAST if last else 0
    return build(PduType.H2C_DATA, specific, data, flags=flags, **header)


def h2c_term(fes: int, fei: int = 0, header: bytes = b"", *, plen: int | None = None) -> bytes:
    """Host To Controller Terminate Connection Request (TCP 1.0, 3.6.2.4)."""
    total = 24 + len(header) if plen is None else plen
    start = common_header(PduType.H2C_TERM, 0, 24, 0, total)
    return start + struct.pack("<HI10x", fes, fei) + header


def parse(raw: bytes, digests: int) -> Pdu:
    """The PDU in `raw` (PLEN bytes), sent under the negotiated `digests`."""
    kind, flags, hlen, pdo, plen = struct.unpack_from("<BBBBI", raw)
    header_good = data_good = True
    if flags & Flag.HDGST and digests & Digest.HEADER:
        header_good = raw[hlen : hlen + 4] == struct.pack("<I", crc32c(raw[:hlen]))
    data = b""
    if kind == PduType.C2H_DATA:
        data = raw[pdo:plen]
        if flags & Flag.DDGST:
            data, sent = data[:-4], data[-4:]
            data_good = sent == struct.pack("<I", crc32c(data))
    elif kind == PduType.C2H_TERM:
        data = raw[hlen:plen]
    return Pdu(kind, flags, hlen, pdo, plen, raw[:hlen], data, header_good, data_good)
