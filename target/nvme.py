"""Numbers and layouts of NVMe Base 2.0, the NVM Command Set 1.0 and NVMe-oF that the target uses.

Multi-byte fields are little-endian. Clause and figure numbers are those of NVM Express Base
Specification 2.0 unless another document is named.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from prestage.target.errors import PeerFault

ALL_NAMESPACES = 0xFFFFFFFF
"""Broadcast NSID (3.2.1)."""
DNR = 1 << 14
"""Do Not Retry, in a status field without its phase bit (figure 90)."""
VERSION = 0x00020000
"""VS and VER: 2.0.0 (3.1.3.2)."""
NQN_MAX_BYTES = 223
"""Longest NQN without its terminator (4.5)."""
DYNAMIC_CONTROLLER = 0xFFFF
"""CNTLID of a Connect on an admin queue in the dynamic model (3.1.2.1)."""
MAX_CONTROLLER = 0xFFEF
PAGE_BYTES = 4096
TRTYPE_TCP = 3


class AdminOpcode(IntEnum):
    """Admin commands (figure 138)."""

    GET_LOG_PAGE = 0x02
    IDENTIFY = 0x06
    ABORT = 0x08
    SET_FEATURES = 0x09
    GET_FEATURES = 0x0A
    ASYNC_EVENT_REQUEST = 0x0C
    KEEP_ALIVE = 0x18
    FABRICS = 0x7F


class IoOpcode(IntEnum):
    """I/O commands of the NVM command set that exist here (NVM 1.0, figure 16)."""

    FLUSH = 0x00
    WRITE = 0x01
    READ = 0x02
    COMPARE = 0x05
    WRITE_ZEROES = 0x08
    DATASET_MANAGEMENT = 0x09
    VERIFY = 0x0C
    COPY = 0x19


class FabricsType(IntEnum):
    """FCTYPE of a fabrics command (figure 489)."""

    PROPERTY_SET = 0x00
    CONNECT = 0x01
    PROPERTY_GET = 0x04
    DISCONNECT = 0x08


class Status(IntEnum):
    """Status codes, SCT << 8 | SC (3.3.3.2.1; Connect's own in figure 494)."""

    SUCCESS = 0x000
    INVALID_OPCODE = 0x001
    INVALID_FIELD = 0x002
    INTERNAL = 0x006
    ABORT_REQUESTED = 0x007
    INVALID_NAMESPACE = 0x00B
    SEQUENCE_ERROR = 0x00C
    SGL_LENGTH = 0x00F
    SGL_TYPE = 0x011
    TRANSIENT_TRANSPORT = 0x022
    ABORT_LIMIT = 0x103
    ASYNC_EVENT_LIMIT = 0x105
    INVALID_LOG_PAGE = 0x109
    NOT_SAVEABLE = 0x10D
    NOT_CHANGEABLE = 0x10E
    NOT_NAMESPACE_SPECIFIC = 0x10F
    COMMAND_SET_COMBINATION = 0x12B
    CONNECT_FORMAT = 0x180
    CONNECT_BUSY = 0x181
    CONNECT_INVALID = 0x182
    CONNECT_HOST = 0x184
    QUEUE_TYPE = 0x185


class Property(IntEnum):
    """Offsets of controller properties (figure 35)."""

    CAP = 0x00
    VS = 0x08
    CC = 0x14
    CSTS = 0x1C
    CRTO = 0x68


class Cns(IntEnum):
    """Identify data structures (figure 273)."""

    NAMESPACE = 0x00
    CONTROLLER = 0x01
    ACTIVE_NAMESPACES = 0x02
    DESCRIPTORS = 0x03
    CSI_NAMESPACE = 0x05
    CSI_CONTROLLER = 0x06
    CSI_ACTIVE_NAMESPACES = 0x07
    INDEPENDENT_NAMESPACE = 0x08
    ALLOCATED_NAMESPACES = 0x10
    ALLOCATED_NAMESPACE = 0x11
    ATTACHED_CONTROLLERS = 0x12
    CONTROLLERS = 0x13
    UUID_LIST = 0x17
    COMMAND_SETS = 0x1C


class Lid(IntEnum):
    """Log pages (figure 202)."""

    SUPPORTED = 0x00
    ERROR = 0x01
    SMART = 0x02
    FIRMWARE = 0x03
    CHANGED_NAMESPACES = 0x04
    EFFECTS = 0x05
    ANA = 0x0C
    FEATURE_EFFECTS = 0x12
    MI_EFFECTS = 0x13
    DISCOVERY = 0x70


class Fid(IntEnum):
    """Features (figure 317)."""

    ARBITRATION = 0x01
    POWER = 0x02
    TEMPERATURE = 0x04
    ERROR_RECOVERY = 0x05
    VOLATILE_WRITE_CACHE = 0x06
    QUEUES = 0x07
    WRITE_ATOMICITY = 0x0A
    ASYNC_EVENTS = 0x0B
    TIMESTAMP = 0x0E
    KEEP_ALIVE = 0x0F
    COMMAND_SET_PROFILE = 0x19
    HOST_IDENTIFIER = 0x81


class Sgl(IntEnum):
    """SGL descriptor type and subtype of NVMe/TCP (TCP 1.0, 3.3)."""

    IN_CAPSULE = 0x01
    TRANSPORT = 0x5A


@dataclass(frozen=True)
class Command:
    """A submission queue entry with the data that the host sent along (figure 87)."""

    entry: bytes
    data: bytes = b""

    @cached_property
    def opcode(self) -> int:
        """Opcode (OPC)."""
        return self.entry[0]

    @property
    def fuse(self) -> int:
        """Fused operation (FUSE)."""
        return self.entry[1] & 3

    @property
    def psdt(self) -> int:
        """PRP or SGL for Data Transfer."""
        return self.entry[1] >> 6

    @property
    def cid(self) -> int:
        """Command identifier (CID)."""
        return self.number(2, 2)

    @property
    def nsid(self) -> int:
        """Namespace identifier (NSID)."""
        return self.number(4, 4)

    @property
    def fctype(self) -> int:
        """Fabrics commands only (figure 488)."""
        return self.entry[4]

    @property
    def transfer_bytes(self) -> int:
        """Length in the SGL descriptor."""
        return self.number(32, 4)

    @property
    def sgl_type(self) -> int:
        """Type and subtype of the SGL descriptor."""
        return self.entry[39]

    def number(self, offset: int, size: int) -> int:
        """Return the `size` bytes at `offset` of the entry as a number."""
        return int.from_bytes(self.entry[offset : offset + size], "little")

    def cdw(self, index: int) -> int:
        """Return command dword `index` (10 to 15)."""
        return self.number(index * 4, 4)

    def expect_common(self) -> None:
        """Check PSDT and FUSE, which have one legal value here (figure 87; TCP 1.0, 3.3)."""
        if self.psdt != 1 or self.fuse != 0:
            raise PeerFault(Status.INVALID_FIELD, why="PSDT or FUSE")

    def expect_transfer(self, size_bytes: int, *, to_host: bool = True) -> None:
        """Check that the SGL describes exactly `size_bytes` (SGLS says: no longer SGLs)."""
        if self.transfer_bytes:
            kinds = (Sgl.TRANSPORT,) if to_host else (Sgl.TRANSPORT, Sgl.IN_CAPSULE)
            if self.sgl_type not in kinds:
                raise PeerFault(Status.SGL_TYPE, why=f"SGL type {self.sgl_type:02X}h")
        if self.transfer_bytes != size_bytes:
            raise PeerFault(Status.SGL_LENGTH, why=f"{self.transfer_bytes} not {size_bytes}")
        if not to_host and len(self.data) != size_bytes:
            raise PeerFault(Status.SGL_LENGTH, why=f"{len(self.data)} not {size_bytes}")


@dataclass(frozen=True)
class Answer:
    """What a command ends with: the completion's dwords 0 and 1, and data for the host."""

    data: bytes = b""
    dw0: int = 0
    dw1: int = 0
    status: int = 0


class Page:
    """A structure under construction: zeros, with fields put at byte offsets."""

    def __init__(self, size_bytes: int = PAGE_BYTES) -> None:
        self.bytes = bytearray(size_bytes)

    def put(self, offset: int, size: int, value: int) -> None:
        """Put a number of `size` bytes at `offset`; raise OverflowError if it does not fit."""
        self.bytes[offset : offset + size] = value.to_bytes(size, "little")

    def text(self, offset: int, size: int, value: str, fill: bytes = b" ") -> None:
        """Put an ASCII string, left-justified and padded (1.4.2), or an NQN with NULs."""
        self.raw(offset, value.encode()[:size].ljust(size, fill))

    def raw(self, offset: int, value: bytes) -> None:
        """Put bytes at `offset`."""
        if offset + len(value) > len(self.bytes):
            raise OverflowError(f"{len(value)} bytes at {offset} of {len(self.bytes)}")
        self.bytes[offset : offset + len(value)] = value


def read_nqn(field: bytes) -> str | None:
    """Return the NQN in a 256-byte field, or None when it is not a legal one (4.5).

    Legal: 1 to 223 bytes of UTF-8, then a NUL.
    """
    end = field.find(0)
    if not 1 <= end <= NQN_MAX_BYTES:
        return None
    try:
        return field[:end].decode("utf-8")
    except UnicodeDecodeError:
        return None
