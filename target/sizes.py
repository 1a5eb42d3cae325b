"""Sizes and durations as people write them: "4G", "512M", "30s", "500ms"; and back.

Units of size are binary: K, M, G, T and P are powers of 1024, with or without "iB". The decimal
"4GB" is refused, for half of the world means something else by it.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

SIZE_EXPECTED = "a size such as 4G, 512M, 64K or a whole number of bytes"
DURATION_EXPECTED = "a duration such as 30s, 500ms, 2m or a number of seconds"
MAX_SIZE = (1 << 63) - 1
MAX_DURATION_S = 1_000_000_000

SIZE_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
SECONDS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
}

# The number of digits is bounded, so that a hostile text costs no time.
SIZE = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([KMGTPE]?)(i?B?)\s*", re.IGNORECASE)
DURATION = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*(ns|us|ms|s|min|m|h|)\s*")


def printable(text: str) -> str:
    """Return text as it may be shown: what would steer a terminal is written in hexadecimal.

    Names come from whoever may connect.
    """
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def quote(value: object, limit: int = 60) -> str:
    """Show `value` in an error message: quoted when it is text, and cut when it is long."""
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = printable(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def plain_number(text: str) -> float:
    """Return the number that a text is, nan when it is none: float() takes 1_0 and other digits."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def parse_size(value: str | int) -> int:
    """Return the size in bytes. Raises ValueError that says what was found and expected."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"found {quote(value)}, expected {SIZE_EXPECTED}")
    size = value if isinstance(value, int) else _size_from_text(value)
    if not 0 <= size <= MAX_SIZE:
        raise ValueError(f"found {quote(value)}, expected a size from 0 to 8E - 1")
    return size


def _size_from_text(text: str) -> int:
    match = SIZE.fullmatch(text)
    if match is None or (match[2] == "" and match[3].lower() not in ("", "b")):
        raise ValueError(f"found {quote(text)}, expected {SIZE_EXPECTED}")
    if match[2] and match[3].lower() == "b":
        binary = f"{match[1]}{match[2].upper()}"
        raise ValueError(
            f"found {quote(text)}, expected a binary unit: {binary} or {binary}iB (times 1024)"
        )
    size = Fraction(match[1]) * (1 << SIZE_UNITS[match[2].upper()])
    if size.denominator != 1:
        raise ValueError(f"found {quote(text)}, expected a whole number of bytes")
    return int(size)


def parse_duration_s(value: str | float) -> float:
    """Return the duration in seconds. Raises ValueError that says what was found and expected."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"found {quote(value)}, expected {DURATION_EXPECTED}")
    seconds = _seconds_from_text(value) if isinstance(value, str) else value
    # First the range: a whole number may be larger than any float.
    if not (0 <= seconds <= MAX_DURATION_S and math.isfinite(seconds)):
        raise ValueError(f"found {quote(value)}, expected a duration from 0 to {MAX_DURATION_S}s")
    return float(seconds)


def _seconds_from_text(text: str) -> float:
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"found {quote(text)}, expected {DURATION_EXPECTED}")
    return float(Fraction(match[1]) * SECONDS[match[2] or "s"])


def parse_duration_us(value: str | int) -> int:
    """Return the duration in whole microseconds; a bare number is microseconds already.

    Raises ValueError that says what was found and expected.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 <= value <= MAX_DURATION_S:
            raise ValueError(f"found {value}, expected microseconds from 0 to {MAX_DURATION_S}")
        return value
    if not isinstance(value, str):
        raise ValueError(f"found {quote(value)}, expected a duration such as 50us or 1ms")
    if value.strip().isascii() and value.strip().isdigit():
        return parse_duration_us(int(value.strip()[:20]))
    return round(parse_duration_s(value) * 1_000_000)


def parse_duration_ms(value: str | float) -> float:
    """Return the duration in milliseconds; a bare number is milliseconds already.

    Raises ValueError that says what was found and expected.
    """
    if not isinstance(value, str):
        return parse_duration_s(value)
    if value.strip().isascii() and value.strip().isdigit():
        return parse_duration_s(int(value.strip()[:20]))
    return round(parse_duration_s(value) * 1000, 6)


def format_size(size_bytes: int) -> str:
    """Return a size for people: "4 GiB", "1.5 MiB", "17 B"."""
    for unit in ("E", "P", "T", "G", "M", "K"):
        factor = 1 << SIZE_UNITS[unit]
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f}".rstrip("0").rstrip(".") + f" {unit}iB"
    return f"{size_bytes} B"


def size_text(size_bytes: int) -> str:
    """Return a size as the configuration takes it, exactly: "4G", "512M", "4097"."""
    for unit in ("E", "P", "T", "G", "M", "K"):
        if size_bytes and size_bytes % (1 << SIZE_UNITS[unit]) == 0:
            return f"{size_bytes >> SIZE_UNITS[unit]}{unit}"
    return str(size_bytes)


def counted(count: int, name: str) -> str:
    """Return a number of things: "1 host", "2 hosts"; `name` is the plural, with its s."""
    return f"{count} {name.removesuffix('s') if count == 1 else name}"


def format_duration(seconds: float) -> str:
    """Return a duration for people: "30 s", "1.5 ms", "2 h 5 min"."""
    if seconds >= 3600:
        return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60} min"
    if seconds >= 60:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError("the last unit always fits")
