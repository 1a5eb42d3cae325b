"""NVMe and NVMe-oF commands as 64 bytes, and the completion that answers them.

NVM Express Base 2.0 (3.3.3.1 submission queue entry, 3.3.3.2 completion queue entry), NVM Command
Set 1.0, and Base 2.0 chapter 6 for fabrics commands.
"""

from __future__ import annotations

import dataclasses
import struct

SGL_IN_CAPSULE = 0x01
SGL_TRANSPORT = 0x5A

FLUSH, WRITE, READ, COMPARE, WRITE_ZEROES, DSM, VERIFY, COPY = 0, 1, 2, 5, 8, 9, 0x0C, 0x19
GET_LOG, IDENTIFY, ABORT, SET_FEATURES, GET_FEATURES, AER, KEEP_ALIVE = 2, 6, 8, 9, 0xA, 0xC, 0x18
FABRICS = 0x7F

CAP, VS, INTMS, CC, CSTS, NSSR, CRTO = 0x00, 0x08, 0x0C, 0x14, 0x1C, 0x20, 0x68
CC_BASE = 0x460060
"""CC as Linux writes it: IOCQES 4, IOSQES 6, MPS 0, CSS 6 where CAP allows it, EN clear."""

HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:7d9f3c52-20b1-4a3c-8f5e-5b0e7c1c7a01"
HOST_ID = bytes.fromhex("7d9f3c5220b14a3c8f5e5b0e7c1c7a01")
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"


def sgl(kind: int, length: int, address: int = 0) -> bytes:
    """A data block descriptor of type and subtype `kind` (Base 2.0, 4.1.2)."""
    return struct.pack("<QI3xB", address, length, kind)


NO_DATA = sgl(SGL_TRANSPORT, 0)


def sqe(
    opcode: int,
    nsid: int = 0,
    *,
    cid: int = 0,
    flags: int = 0x40,
    cdw2: int = 0,
    cdw3: int = 0,
    data: bytes = NO_DATA,
    cdw10: int = 0,
    cdw11: int = 0,
    cdw12: int = 0,
    cdw13: int = 0,
    cdw14: int = 0,
    cdw15: int = 0,
) -> bytes:
    """A submission queue entry. `flags` is byte 1: PSDT in bits 7:6, FUSE in bits 1:0."""
    start = struct.pack("<BBHIIIQ", opcode, flags, cid, nsid, cdw2, cdw3, 0)
    return start + data + struct.pack("<6I", cdw10, cdw11, cdw12, cdw13, cdw14, cdw15)


def with_cid(entry: bytes, cid: int) -> bytes:
    """`entry` with its Command Identifier replaced."""
    return entry[:2] + struct.pack("<H", cid) + entry[4:]


def with_sgl(entry: bytes, descriptor: bytes) -> bytes:
    """`entry` with its SGL descriptor 1 replaced."""
    return entry[:24] + descriptor + entry[40:]


def block_command(
    opcode: int,
    slba: int,
    blocks: int,
    *,
    nsid: int = 1,
    fua: bool = False,
    dsm: int = 0,
    flags: int = 0x40,
    data: bytes = NO_DATA,
) -> bytes:
    """Read, Write, Compare, Write Zeroes or Verify of `blocks` (1-based) logical blocks."""
    low, high = slba & 0xFFFFFFFF, slba >> 32
    cdw12 = blocks - 1 | (1 << 30 if fua else 0)
    return sqe(opcode, nsid, cdw10=low, cdw11=high, cdw12=cdw12, cdw13=dsm, flags=flags, data=data)


def dsm_ranges(ranges: list[tuple[int, int]], attributes: int = 0) -> bytes:
    """Dataset Management ranges from (slba, nlb) pairs (NVM 1.0, 3.2.3)."""
    return b"".join(struct.pack("<IIQ", attributes, nlb, slba) for slba, nlb in ranges)


def copy_ranges(ranges: list[tuple[int, int]]) -> bytes:
    """Copy source ranges, descriptor format 0, from (slba, nlb) pairs (NVM 1.0, 3.2.2)."""
    return b"".join(struct.pack("<8xQH14x", slba, nlb - 1) for slba, nlb in ranges)


def connect(
    *,
    qid: int,
    sqsize: int,
    kato: int = 0,
    cattr: int = 0,
    recfmt: int = 0,
    data: bytes | None = None,
) -> bytes:
    """Connect (Base 2.0, 6.3). SQSIZE is 0-based, KATO in milliseconds."""
    start = struct.pack("<BBHB19x", FABRICS, 0x40, 0, 0x01)
    descriptor = sgl(SGL_IN_CAPSULE, 1024) if data is None else data
    return start + descriptor + struct.pack("<HHHBxI12x", recfmt, qid, sqsize, cattr, kato)


def connect_data(
    subnqn: str | bytes,
    hostnqn: str | bytes = HOST_NQN,
    cntlid: int = 0xFFFF,
    hostid: bytes = HOST_ID,
) -> bytes:
    """The 1024 bytes of Connect data; names given as bytes are used as they are, without NUL."""
    names = [name.encode() if isinstance(name, str) else name for name in (subnqn, hostnqn)]
    padded = [name.ljust(256, b"\0")[:256] for name in names]
    return hostid + struct.pack("<H", cntlid) + bytes(238) + padded[0] + padded[1] + bytes(256)


def property_get(offset: int, size: int = 4) -> bytes:
    """Property Get (Base 2.0, 6.6) of 4 or 8 bytes."""
    start = struct.pack("<BBHB19x", FABRICS, 0x40, 0, 0x04)
    return start + NO_DATA + struct.pack("<B3xI16x", int(size == 8), offset)


def property_set(offset: int, value: int, size: int = 4) -> bytes:
    """Property Set (Base 2.0, 6.5) of 4 or 8 bytes."""
    start = struct.pack("<BBHB19x", FABRICS, 0x40, 0, 0x00)
    return start + NO_DATA + struct.pack("<B3xIQ8x", int(size == 8), offset, value)


def disconnect() -> bytes:
    """Disconnect (Base 2.0, 6.4) of the I/O queue that it is sent on."""
    return struct.pack("<BBHB19x", FABRICS, 0x40, 0, 0x08) + NO_DATA + bytes(24)


def identify(cns: int, nsid: int = 0, csi: int = 0) -> bytes:
    """Identify (Base 2.0, 5.17)."""
    return sqe(IDENTIFY, nsid, cdw10=cns, cdw11=csi << 24)


def get_log(lid: int, size: int, *, offset: int = 0, nsid: int = 0, rae: bool = False) -> bytes:
    """Get Log Page (Base 2.0, 5.16) of `size` bytes, a multiple of 4."""
    numd = size // 4 - 1
    cdw10 = lid | (1 << 15 if rae else 0) | (numd & 0xFFFF) << 16
    low, high = offset & 0xFFFFFFFF, offset >> 32
    return sqe(GET_LOG, nsid, cdw10=cdw10, cdw11=numd >> 16, cdw12=low, cdw13=high)


def get_features(fid: int, select: int = 0, nsid: int = 0) -> bytes:
    """Get Features (Base 2.0, 5.15)."""
    return sqe(GET_FEATURES, nsid, cdw10=fid | select << 8)


def set_features(fid: int, value: int, nsid: int = 0) -> bytes:
    """Set Features (Base 2.0, 5.27) with `value` in CDW11."""
    return sqe(SET_FEATURES, nsid, cdw10=fid, cdw11=value)


def abort(sqid: int, cid: int) -> bytes:
    """Abort (Base 2.0, 5.1)."""
    return sqe(ABORT, cdw10=sqid | cid << 16)


@dataclasses.dataclass(frozen=True)
class Completion:
    """A completion queue entry and the data that came before it."""

    dw0: int
    dw1: int
    sqhd: int
    sqid: int
    cid: int
    status: int
    """Status field without the phase bit: DNR << 14 | SCT << 8 | SC."""
    data: bytes = b""
    by_success_flag: bool = False
    """No response capsule came: the last C2HData carried SUCCESS."""

    @property
    def is_ok(self) -> bool:
        """Status is Successful Completion."""
        return self.status & 0x7FF == 0

    @property
    def code(self) -> str:
        """SCT/SC in hex, "ok" for success."""
        return "ok" if self.is_ok else f"{self.status >> 8 & 7:x}/{self.status & 0xFF:02x}"

    def text(self) -> str:
        """What the tables of the suite compare: "0/0b dnr", "ok dw0=1" and the like."""
        words = [self.code]
        if self.status & 1 << 14:
            words.append("dnr")
        if self.dw0:
            words.append(f"dw0={self.dw0:x}")
        return " ".join(words)


def parse_completion(entry: bytes, data: bytes = b"") -> Completion:
    """The 16-byte completion queue entry `entry`."""
    dw0, dw1, sqhd, sqid, cid, status = struct.unpack("<IIHHHH", entry)
    return Completion(dw0, dw1, sqhd, sqid, cid, status >> 1, data)
