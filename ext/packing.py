"""Structures of the layout tables as dictionaries of integers, there and back."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from . import layout, rules
from .errors import BadRecord

_CODES: Final = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
_STRUCTS: Final = {each.name: each for each in layout.STRUCTS}


class Packer:
    """One structure of the wire.

    Its values are a dictionary by the names of fields: an integer, `bytes` for several u8, a list
    for several of anything else, a dictionary for a structure within.
    """

    def __init__(self, described: layout.Struct) -> None:
        self.size = described.size
        self._fields = described.fields
        self._struct = struct.Struct(_format(described))
        assert self._struct.size == described.size, described.name

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """Return the bytes; what is not given is zero. BadRecord: a value that does not fit."""
        flat = [_packed(field, values.get(field.name)) for field in self._fields]
        try:
            return self._struct.pack(*flat)
        except struct.error as error:
            raise BadRecord(self._unfit(values)) from error

    def _unfit(self, values: Mapping[str, Any]) -> str:
        """Return a sentence about the first number that its field cannot have."""
        for field in self._fields:
            if field.kind not in _CODES or field.count != 1:
                continue
            value, (least, most) = values.get(field.name, 0), _limits(field)
            if not isinstance(value, int) or not least <= value <= most:
                expected = rules.bounds_of(values.get("type", 0), field.name)
                expected = expected or f"a number from {least} to {most}"
                return f"{field.name}: found {value!r} (expected {expected})"
        return "a field has a value that does not fit it"

    def unpack(self, data: bytes | bytearray | memoryview, offset: int = 0) -> dict[str, Any]:
        """Return the values of the structure that begins at `offset`, all of which is there."""
        flat = self._struct.unpack_from(data, offset)
        return {
            field.name: _unpacked(field, value)
            for field, value in zip(self._fields, flat, strict=True)
        }


@cache
def packer(name: str) -> Packer:
    """Return the packer of a structure of `layout.STRUCTS` by its name."""
    return Packer(_STRUCTS[name])


def _code(field: layout.Field) -> str:
    """Return one item of a struct format: one number, or all the bytes of anything larger."""
    if field.kind in _STRUCTS:
        return f"{_STRUCTS[field.kind].size * field.count}s"
    if field.count == 1:
        return _CODES[field.kind]
    return f"{struct.calcsize(_CODES[field.kind]) * field.count}s"


def _limits(field: layout.Field) -> tuple[int, int]:
    """Return the least and the most that a number of one item may be."""
    bits = 8 * struct.calcsize(_code(field))
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if field.kind == "i64" else (0, (1 << bits) - 1)


def _format(described: layout.Struct) -> str:
    parts, at = ["<"], 0
    for field in described.fields:
        code = _code(field)
        parts.append(f"{field.offset - at}x{code}")
        at = field.offset + struct.calcsize(f"<{code}")
    return "".join([*parts, f"{described.size - at}x"])


def _packed(field: layout.Field, value: Any) -> Any:
    if field.kind in _STRUCTS:
        many = value if field.count > 1 else [value]
        inner = packer(field.kind)
        return b"".join(inner.pack(each or {}) for each in many or ())
    if field.count == 1:
        return 0 if value is None else value
    if field.kind == "u8":
        return bytes(value or b"")
    return struct.pack(f"<{field.count}{_CODES[field.kind]}", *(value or [0] * field.count))


def _unpacked(field: layout.Field, value: Any) -> Any:
    if field.kind in _STRUCTS:
        inner = packer(field.kind)
        many = [inner.unpack(value, start) for start in range(0, len(value), inner.size)]
        return many if field.count > 1 else many[0]
    if field.count == 1 or field.kind == "u8":
        return value
    return list(struct.unpack(f"<{field.count}{_CODES[field.kind]}", value))
