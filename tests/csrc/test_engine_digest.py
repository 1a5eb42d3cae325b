"""CRC32C against its definition."""

from __future__ import annotations

import random

import pytest
from engine_support import crc32c

from prestage._engine import ffi, lib


def engine_crc(data: bytes, shift: int = 0) -> int:
    buffer = ffi.new("uint8_t[]", bytes(shift) + data)
    return int(lib.ps_crc32c(buffer + shift, len(data)))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # RFC 3720, B.4.
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_published_vectors(data: bytes, expected: int) -> None:
    assert engine_crc(data) == expected
    assert crc32c(data) == expected


def test_any_length_at_any_alignment() -> None:
    seed = random.randrange(1 << 32)
    choice = random.Random(seed)
    for length in (*range(80), 255, 256, 1023, 1024, 1025, 4096, 8191):
        data = choice.randbytes(length)
        assert engine_crc(data, choice.randrange(16)) == crc32c(data), f"seed {seed}, {length}"
