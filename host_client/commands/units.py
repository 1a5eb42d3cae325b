"""Sizes, time spans and block ranges as people write them: "64K", "50ms", "128+8", "1M:512K"."""

from __future__ import annotations

import re
from fractions import Fraction

from prestage.ext.records import Range
from prestage.host_client.errors import InvalidRequest

SIZE = re.compile(r"([0-9]{1,20})\s*([KMGTP]?)(?:iB|B)?", re.IGNORECASE)
SPAN = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(us|ms|s|min|h|)")
BLOCKS = re.compile(r"([0-9]{1,20})\+([0-9]{1,20})")
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
SECONDS = {
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
RANGE_EXPECTED = "SLBA+NLB in blocks, or OFFSET:LENGTH in bytes, such as 128+8 or 1M:64K"


def parse_size(text: str, where: str) -> int:
    """Return a size in bytes; units are powers of 1024. Raises `InvalidRequest`."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(f"found {text!r}", where, "a size such as 64K, 1M or 4096")
    return int(match[1]) << SHIFTS[match[2].upper()]


def parse_span(text: str, where: str) -> float:
    """Return a time span in seconds. Raises `InvalidRequest`."""
    match = SPAN.fullmatch(text.strip())
    if match is None:
        raise InvalidRequest(f"found {text!r}", where, "a time span such as 50ms, 2s or 500us")
    return float(Fraction(match[1]) * SECONDS[match[2]])


def parse_ranges(texts: list[str], block_bytes: int | None) -> list[Range]:
    """Return the ranges of `--range` flags, each of which may name several behind commas.

    `block_bytes` None: it is not known, so that bytes mean nothing. Raises `InvalidRequest`.
    """
    return [_range(one, block_bytes) for text in texts for one in text.split(",") if one.strip()]


def uses_bytes(texts: list[str]) -> bool:
    """Return whether some range is in bytes."""
    return any(":" in text for text in texts)


def _range(text: str, block_bytes: int | None) -> Range:
    match = BLOCKS.fullmatch(text.strip())
    if match is not None:
        found = Range(int(match[1]), int(match[2]))
    else:
        offset, colon, length = text.partition(":")
        if not colon:
            raise InvalidRequest(f"found {text!r}", "--range", RANGE_EXPECTED)
        found = _bytes_range(
            parse_size(offset, "--range"), parse_size(length, "--range"), block_bytes
        )
    if not 0 < found.nlb < 1 << 32:
        text = f"found {text!r}, which is {found.nlb} blocks"
        raise InvalidRequest(
            text, "--range", f"1 to {(1 << 32) - 1} blocks; more as several ranges"
        )
    if found.slba >= 1 << 64:
        expected = f"blocks from 0 to {(1 << 64) - 1}"
        raise InvalidRequest(
            f"found {text!r}, which begins at block {found.slba}", "--range", expected
        )
    return found


def _bytes_range(offset: int, length: int, block_bytes: int | None) -> Range:
    if block_bytes is None:
        expected = "--block SIZE, the block size of the namespace"
        raise InvalidRequest("the range is in bytes", "--range", expected)
    if offset % block_bytes or length % block_bytes:
        text = f"found {offset}:{length}"
        raise InvalidRequest(text, "--range", f"multiples of {block_bytes} bytes")
    return Range(offset // block_bytes, length // block_bytes)


def format_size(size_bytes: int) -> str:
    """Return a size for people: 64K, 1M, 4097."""
    for unit in ("P", "T", "G", "M", "K"):
        if size_bytes and size_bytes % (1 << SHIFTS[unit]) == 0:
            return f"{size_bytes >> SHIFTS[unit]}{unit}"
    return str(size_bytes)


def format_us(time_us: int) -> str:
    """Return a time span of microseconds for people."""
    if time_us >= 1_000_000:
        return f"{time_us / 1e6:.3g} s"
    if time_us >= 1000:
        return f"{time_us / 1e3:.3g} ms"
    return f"{time_us} us"
