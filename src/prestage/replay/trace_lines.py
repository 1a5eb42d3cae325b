"""Lines of trace files, plain or compressed, and how their faults are told.

Whatever a file contains, reading it ends with its lines or with `Invalid`, which says the file, the
line, the field, and what was expected.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from prestage.target.errors import Invalid

GZIP_MAGIC: Final = b"\x1f\x8b"
MAX_LINE_BYTES: Final = 16 << 20
MAX_ACCESSES: Final = 1 << 27
"""Of a whole trace: what fits into memory on any machine that replays."""

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, counted from 1; 0: the file as a whole."""

    path: Path
    line: int = 0

    def fault(self, what: str, field: str = "", expected: str = "") -> Invalid:
        """Return what is to be raised for `field` of this line."""
        parts = [str(self.path), *([f"line {self.line}"] if self.line else [])]
        return Invalid(what, ", ".join([*parts, *([field] if field else [])]), expected)


def read_lines(path: Path) -> Iterator[tuple[Place, str]]:
    """Yield the lines of a file that are not blank, without their ends.

    Raises Invalid when it cannot be read, unpacked or decoded, or when a line is longer than
    MAX_LINE_BYTES.
    """
    place = Place(path)
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
            raw.seek(0)
            plain = gzip.GzipFile(fileobj=raw) if is_packed else raw
            number = 0
            while line := plain.readline(MAX_LINE_BYTES + 1):
                number += 1
                place = Place(path, number)
                if len(line) > MAX_LINE_BYTES:
                    raise place.fault("too long a line", "", f"at most {MAX_LINE_BYTES} bytes")
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if text.strip():
                    yield place, text
    except UnicodeDecodeError as fault:
        raise place.fault(f"byte {fault.start} is no text", "", "UTF-8") from fault
    except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
        raise place.fault(f"cannot be unpacked: {fault}", "", "a whole gzip file") from fault
    except OSError as fault:
        raise place.fault(f"cannot be read: {fault.strerror or fault}", "", "a file") from fault


def decode(line: str, kind: type[Record], place: Place) -> Record:
    """Return a JSON line as a `kind` of msgspec structure; raises Invalid."""
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as fault:
        what, _, path = str(fault).partition(" - at ")
        field = path.strip("`").removeprefix("$").removeprefix(".")
        raise place.fault(what, field, "a JSON object of the trace's format") from fault
    except RecursionError as fault:
        raise place.fault("nested too deeply", "", "a flat JSON object") from fault


def count_accesses(total: int, place: Place) -> None:
    """Raise Invalid when a trace has more accesses than can be held."""
    if total > MAX_ACCESSES:
        raise place.fault(f"{total} accesses up to here", "", f"at most {MAX_ACCESSES}")
