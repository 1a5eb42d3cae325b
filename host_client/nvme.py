"""Commands and structures as a host needs them (NVMe Base 2.0, NVM Command Set 1.0).

All integers are little-endian. A command is the 64 bytes of a submission queue entry; its CID and
its SGL are filled in by the PDU engine.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from prestage.host_client.errors import ProtocolError

ALL_NAMESPACES = 0xFFFFFFFF
DYNAMIC_CONTROLLER = 0xFFFF
MAX_BLOCKS = 1 << 16
"""Of one Read, Write and their kin: NLB is 16 bits, 0-based (NVM 1.0, 3.2.4)."""
BLOCK_SHIFTS = range(9, 25)
"""LBADS that a namespace may have (NVM 1.0, figure 98: 9 at least)."""
MAX_RANGES = 256
"""Of one Dataset Management (NVM 1.0, 3.2.3)."""
PAGE_BYTES = 4096


class Admin(IntEnum):
    """Admin opcodes (Base 2.0, figure 138)."""

    GET_LOG_PAGE = 0x02
    IDENTIFY = 0x06
    ABORT = 0x08
    SET_FEATURES = 0x09
    GET_FEATURES = 0x0A
    ASYNC_EVENT_REQUEST = 0x0C
    KEEP_ALIVE = 0x18
    FABRICS = 0x7F


class Io(IntEnum):
    """I/O opcodes (NVM 1.0, figure 16)."""

    FLUSH = 0x00
    WRITE = 0x01
    READ = 0x02
    COMPARE = 0x05
    WRITE_ZEROES = 0x08
    DATASET_MANAGEMENT = 0x09
    VERIFY = 0x0C


class Fabrics(IntEnum):
    """Types of fabrics commands (Base 2.0, figure 489)."""

    PROPERTY_SET = 0x00
    CONNECT = 0x01
    PROPERTY_GET = 0x04


class Property(IntEnum):
    """Offsets of controller properties (Base 2.0, figure 35)."""

    CAP = 0x00
    CC = 0x14
    CSTS = 0x1C


class Cns(IntEnum):
    """Identify data structures (Base 2.0, figure 273)."""

    NAMESPACE = 0x00
    CONTROLLER = 0x01
    ACTIVE_NAMESPACES = 0x02


class Lid(IntEnum):
    """Log pages (Base 2.0, figure 202)."""

    CHANGED_NAMESPACES = 0x04
    DISCOVERY = 0x70


class Fid(IntEnum):
    """Features (Base 2.0, figure 317)."""

    QUEUES = 0x07
    ASYNC_EVENTS = 0x0B


class Access(IntEnum):
    """Access frequency of a Read, CDW13 bits 3:0 (NVM 1.0, figure 46)."""

    NONE = 0
    ONE_TIME = 6
    SPECULATIVE = 7


CC_ENABLED = 0x00460001
"""CC: 16-byte completions, 64-byte commands, 4 KiB pages, NVM command set, enabled."""
CC_SHUTDOWN = CC_ENABLED | 1 << 14
"""The same with a normal shutdown notification (SHN)."""
CSTS_READY = 1
CSTS_FATAL = 2
CSTS_SHUTDOWN_MASK = 0b1100
CSTS_SHUTDOWN_DONE = 0b1000
CATTR_NO_FLOW_CONTROL = 1 << 2
NAMESPACE_NOTICES = 1 << 8
"""In OAES and in the feature: namespace attribute notices (Base 2.0, figure 275)."""
AER_NOTICE = 2
AER_NAMESPACE_CHANGED = 0
FORCE_UNIT_ACCESS = 1 << 30
DEALLOCATE = 1 << 25
INTEGRAL_READ, INTEGRAL_WRITE, RANGES_DEALLOCATE = 1 << 0, 1 << 1, 1 << 2
"""CDW11 of Dataset Management (NVM 1.0, figure 38)."""

ALL_NAMESPACES = 0xFFFFFFFF
"""As an NSID (Base 2.0, 3.2.1)."""
RANGE_BYTES = 16
"""Of a range of Dataset Management."""
ENTRY_BYTES = 64
"""Of a submission queue entry."""
_ENTRY = struct.Struct("<BBHIII24x6I")
_COMPLETION = struct.Struct("<IIHHHH")


def entry(
    opcode: int,
    nsid: int = 0,
    *,
    cdw2: int = 0,
    cdw3: int = 0,
    cdw10: int = 0,
    cdw11: int = 0,
    cdw12: int = 0,
    cdw13: int = 0,
    cdw14: int = 0,
    cdw15: int = 0,
) -> bytes:
    """Return a submission queue entry (Base 2.0, figure 87). Raises struct.error on overflow."""
    return _ENTRY.pack(opcode, 0, 0, nsid, cdw2, cdw3, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15)


def block_entry(
    opcode: int, nsid: int, slba: int, nlb: int, *, control: int = 0, cdw13: int = 0
) -> bytes:
    """Return a Read, Write or the like of `nlb` blocks, 1-based; `control` is or-ed into CDW12."""
    return entry(
        opcode,
        nsid,
        cdw10=slba & 0xFFFFFFFF,
        cdw11=slba >> 32,
        cdw12=nlb - 1 | control,
        cdw13=cdw13,
    )


def get_log_entry(
    lid: int, size: int, *, offset: int = 0, nsid: int = 0, rae: bool = False, uuid_index: int = 0
) -> bytes:
    """Return a Get Log Page of `size` bytes, a multiple of 4 (Base 2.0, 5.16)."""
    numd = size // 4 - 1
    return entry(
        Admin.GET_LOG_PAGE,
        nsid,
        cdw10=lid | rae << 15 | (numd & 0xFFFF) << 16,
        cdw11=numd >> 16,
        cdw12=offset & 0xFFFFFFFF,
        cdw13=offset >> 32,
        cdw14=uuid_index,
    )


def property_get_entry(offset: int) -> bytes:
    """Return a Property Get (Base 2.0, 6.6); CAP has 8 bytes, the others 4."""
    return struct.pack(
        "<BBHB35xB3xI16x", Admin.FABRICS, 0, 0, Fabrics.PROPERTY_GET, offset == Property.CAP, offset
    )


def property_set_entry(offset: int, value: int) -> bytes:
    """Return a Property Set of 4 bytes (Base 2.0, 6.5)."""
    return struct.pack(
        "<BBHB35xB3xIQ8x", Admin.FABRICS, 0, 0, Fabrics.PROPERTY_SET, 0, offset, value
    )


def connect_entry(qid: int, sqsize: int, *, kato_ms: int, cattr: int) -> bytes:
    """Return a Connect (Base 2.0, 6.3); `sqsize` is 0-based."""
    return struct.pack(
        "<BBHB35xHHHBxI12x", Admin.FABRICS, 0, 0, Fabrics.CONNECT, 0, qid, sqsize, cattr, kato_ms
    )


def connect_data(host_id: bytes, cntlid: int, subnqn: str, hostnqn: str) -> bytes:
    """Return the 1024 bytes that a Connect carries (Base 2.0, figure 493)."""
    return struct.pack("<16sH238x256s256s256x", host_id, cntlid, subnqn.encode(), hostnqn.encode())


def dataset_ranges(ranges: Iterable[tuple[int, int]], attributes: int = 0) -> bytes:
    """Return Dataset Management ranges from pairs of SLBA and NLB (NVM 1.0, figure 40)."""
    return b"".join(struct.pack("<IIQ", attributes, nlb, slba) for slba, nlb in ranges)


@dataclass(frozen=True, slots=True)
class Completion:
    """How a command ended. `status` is the 15-bit field: DNR << 14 | SCT << 8 | SC."""

    status: int
    dw0: int
    dw1: int
    transferred: int
    """Bytes of data that moved, either way."""
    data: bytes = b""
    """What a raw command that asked for data has got."""

    @property
    def ok(self) -> bool:
        """Whether the status is Successful Completion."""
        return self.status & 0x7FF == 0


def parse_completion(cqe: bytes, transferred: int) -> Completion:
    """Return what the 16 bytes of a completion queue entry say (Base 2.0, figure 89)."""
    dw0, dw1, _sqhd, _sqid, _cid, status = _COMPLETION.unpack(cqe)
    return Completion(status >> 1, dw0, dw1, transferred)


@dataclass(frozen=True, slots=True)
class ControllerIdentity:
    """What a host uses of Identify Controller (Base 2.0, figure 275)."""

    serial: str
    model: str
    subnqn: str
    cntlid: int
    mdts: int
    """As a power of two of the minimum page size; 0: no limit."""
    oaes: int
    abort_limit: int
    kas: int
    """Granularity of the keep-alive timer in 100 ms; 0: there is none."""
    ioccsz: int
    page: bytes
    """All 4096 bytes."""

    @property
    def in_capsule_bytes(self) -> int:
        """Data that a command of an I/O queue may carry."""
        return max(0, self.ioccsz * 16 - 64)


def parse_controller(page: bytes) -> ControllerIdentity:
    """Return Identify Controller from its 4096 bytes."""
    return ControllerIdentity(
        serial=text_of(page[4:24]),
        model=text_of(page[24:64]),
        subnqn=text_of(page[768:1024]),
        cntlid=int.from_bytes(page[78:80], "little"),
        mdts=page[77],
        oaes=int.from_bytes(page[92:96], "little"),
        abort_limit=page[258] + 1,
        kas=int.from_bytes(page[320:322], "little"),
        ioccsz=int.from_bytes(page[1792:1796], "little"),
        page=page,
    )


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace: `blocks` logical blocks of `block_bytes` bytes each."""

    nsid: int
    blocks: int
    block_bytes: int

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""
        return self.blocks * self.block_bytes


def parse_namespace(nsid: int, page: bytes) -> Namespace | None:
    """Return Identify Namespace from its 4096 bytes (NVM 1.0, figure 97); None: not active.

    Raises `ProtocolError` when its blocks cannot be: of less than 512 bytes, of more than 16 MiB,
    which no transfer has, or 2**63 bytes of them.
    """
    blocks = int.from_bytes(page[0:8], "little")
    if blocks == 0:
        return None
    flbas = page[26]
    format_index = flbas & 0xF | (flbas >> 5 & 3) << 4
    shift = page[128 + 4 * format_index + 2]
    if shift not in BLOCK_SHIFTS or blocks << shift >= 1 << 63:
        text = f"{blocks} blocks of 2**{shift} bytes"
        raise ProtocolError(text, f"Identify Namespace {nsid}")
    return Namespace(nsid, blocks, 1 << shift)


def text_of(field: bytes) -> str:
    """Return text of a target as it may be shown: what would steer a terminal in hexadecimal."""
    text = field.split(b"\0")[0].decode("utf-8", "replace").strip()
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
