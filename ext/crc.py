"""CRC32C (Castagnoli) of batches and pages: reflected polynomial 82F63B78h, as in RFC 3720, B.4.

The CRC is linear: every byte of a block contributes by its value and its distance from the end,
and the contributions are added by exclusive or. One table of contributions makes it two numpy
operations a page.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

POLYNOMIAL: Final = 0x82F63B78
BLOCK_BYTES: Final = 4096
_MASK: Final = 0xFFFFFFFF
_SHORT: Final = 4
"""The running value is mixed into this many bytes, so a shorter rest goes byte by byte."""


@cache
def _contributions() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return what byte value v at distance d from the end adds, as [d, v]."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ np.uint32(POLYNOMIAL), values >> 1)
    first = values.copy()
    table = np.empty((BLOCK_BYTES, 256), dtype=np.uint32)
    for distance in range(BLOCK_BYTES):
        table[distance] = values
        values = first[values & 0xFF] ^ (values >> 8)
    return table


def _short(crc: int, data: bytes) -> int:
    first = _contributions()[0]
    for byte in data:
        crc = int(first[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
    return crc


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the CRC32C of bytes of any length (of b"123456789" it is E3069283h)."""
    crc = _MASK
    view = memoryview(data)
    for start in range(0, len(view), BLOCK_BYTES):
        block = bytearray(view[start : start + BLOCK_BYTES])
        if len(block) < _SHORT:
            crc = _short(crc, bytes(block))
            continue
        head = int.from_bytes(block[:_SHORT], "little") ^ crc
        block[:_SHORT] = head.to_bytes(_SHORT, "little")
        crc = int(crc32c_rows(np.frombuffer(block, dtype=np.uint8)[np.newaxis, :])[0])
    return crc ^ _MASK


def crc32c_rows(
    rows: np.ndarray[Any, np.dtype[np.uint8]],
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the raw remainder (no initial value, no final complement) of each row.

    `rows` is [pages, bytes] with at most 4096 bytes a row; the result is [pages].
    """
    width = rows.shape[1]
    assert width <= BLOCK_BYTES
    table = _contributions()
    distances = np.arange(width - 1, -1, -1)
    remainders: np.ndarray[Any, np.dtype[np.uint32]]
    remainders = np.bitwise_xor.reduce(table[distances, rows], axis=1)
    return remainders


def crc32c_pages(
    pages: np.ndarray[Any, np.dtype[np.uint8]],
) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the CRC32C of each of many blocks of 4 to 4096 bytes: [blocks, bytes] -> [blocks]."""
    assert pages.shape[1] >= _SHORT
    rows = pages.copy()
    rows[:, :_SHORT] ^= 0xFF
    return crc32c_rows(rows) ^ np.uint32(_MASK)
