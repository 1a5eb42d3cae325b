"""The few numbers of NVMe that the kit uses (Base 2.0, NVM 1.0)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Admin(IntEnum):
    """Admin opcodes (Base, figure 138)."""

    GET_LOG_PAGE = 0x02
    IDENTIFY = 0x06
    SET_FEATURES = 0x09
    GET_FEATURES = 0x0A
    ASYNC_EVENT = 0x0C


class Io(IntEnum):
    """I/O opcodes (NVM, figure 16)."""

    FLUSH = 0x00
    WRITE = 0x01
    READ = 0x02
    COMPARE = 0x05
    WRITE_ZEROES = 0x08
    DATASET_MANAGEMENT = 0x09
    VERIFY = 0x0C


DNR: Final = 1 << 14
SUCCESS: Final = 0x000
INVALID_OPCODE: Final = 0x001
INVALID_FIELD: Final = 0x002
INVALID_NAMESPACE: Final = 0x00B
SGL_LENGTH: Final = 0x00F
LBA_RANGE: Final = 0x080
INVALID_LOG_PAGE: Final = 0x109
EFFECTS_LOG: Final = 0x05
RETAIN_EVENT: Final = 1 << 15
NO_MAILBOX: Final = 0xFFFFFFFF
ALL_NAMESPACES: Final = 0xFFFFFFFF


def code(status: int) -> int:
    """Return status code type and status code of a status field, without DNR and More."""
    return status & 0x7FF


def text(status: int) -> str:
    """Return a status as SCT/SC, and whether it is not to be retried."""
    return f"{status >> 8 & 7:X}/{status & 0xFF:02X}h{' DNR' if status & DNR else ''}"
