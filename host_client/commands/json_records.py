"""Records as lines of JSON: what `hint batch` reads."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec

from prestage.ext.codec import encode_record
from prestage.ext.errors import BadRecord
from prestage.ext.names import CancelWhat, IntentFlag, SetFlag, SetOp
from prestage.ext.records import (
    Cancel,
    Intent,
    Outcome,
    Range,
    Record,
    Residency,
    Retain,
    SetRecord,
    Signature,
)
from prestage.host_client.commands.pages import read_file
from prestage.host_client.commands.show import PRIORITIES
from prestage.host_client.errors import InvalidRequest

KINDS: dict[str, type[Any]] = {
    "set": SetRecord,
    "signature": Signature,
    "intent": Intent,
    "retain": Retain,
    "cancel": Cancel,
    "residency": Residency,
    "outcome": Outcome,
}
ENUMS: dict[tuple[str, str], type[SetOp | CancelWhat]] = {
    ("set", "op"): SetOp,
    ("cancel", "what"): CancelWhat,
}
FLAGS: dict[str, type[SetFlag | IntentFlag]] = {"set": SetFlag, "intent": IntentFlag}
SHOWN = 60
"""Characters of a wrong value that are repeated."""


def read_records(file: str) -> list[Record]:
    """Return the records of a file, one JSON object a line. Raises `InvalidRequest`."""
    lines = read_file(file).splitlines()
    records = [
        _record(line, f"{file} line {index}") for index, line in enumerate(lines, 1) if line.strip()
    ]
    if not records:
        raise InvalidRequest("nothing is there", file, "a JSON object on each line")
    return records


def _record(line: bytes, where: str) -> Record:
    """Return the record of a line: `type`, and the fields of `prestage.ext.records` by name."""
    try:
        values = msgspec.json.decode(line)
        json.loads(line, object_pairs_hook=_once)
    except _Twice as error:
        raise InvalidRequest(f"found {_shown(error.args[0])} twice", where, "each once") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"it is no JSON: {error}", where, "a JSON object") from None
    if not isinstance(values, dict):
        raise InvalidRequest(f"found {_shown(values)}", where, "a JSON object")
    name = values.pop("type", None)
    if not isinstance(name, str) or name not in KINDS:
        raise InvalidRequest(f"found the type {_shown(name)}", where, " ".join(KINDS))
    _check_names(name, values, where)
    read = {each: _value(name, each, values[each], f"{where}, {each}") for each in values}
    record: Record = KINDS[name](**read)
    try:
        encode_record(record)
    except BadRecord as error:
        raise InvalidRequest(str(error), where) from None
    return record


class _Twice(Exception):
    """A name stands in an object more than once."""


def _once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise _Twice(name)


def _check_names(kind: str, values: dict[str, Any], where: str) -> None:
    """Raise `InvalidRequest` for a field that there is not, and for one that has to be."""
    fields = dataclasses.fields(KINDS[kind])
    expected = f"the fields {', '.join(each.name for each in fields)}"
    if unknown := values.keys() - {each.name for each in fields}:
        raise InvalidRequest(f"{kind} has no field {_shown(min(unknown))}", where, expected)
    for each in fields:
        if each.default is dataclasses.MISSING and each.name not in values:
            raise InvalidRequest(f"{kind} needs the field {each.name}", where, expected)


def _value(kind: str, name: str, value: Any, where: str) -> Any:
    if name == "ranges":
        return _ranges(value, where)
    if name == "vector":
        return _vector(value, where)
    if name == "flags":
        return _flags(FLAGS[kind], value, where)
    if (kind, name) in ENUMS and type(value) is not int:
        return _named(ENUMS[kind, name], value, where)
    if name == "priority" and isinstance(value, str):
        if value not in PRIORITIES:
            raise InvalidRequest(f"found {_shown(value)}", where, f"one of {', '.join(PRIORITIES)}")
        return PRIORITIES.index(value)
    if type(value) is not int:
        raise InvalidRequest(f"found {_shown(value)}", where, "a whole number")
    return value


def _ranges(value: Any, where: str) -> tuple[Range, ...]:
    pairs = value if isinstance(value, list) else [value]
    for pair in pairs:
        if not isinstance(pair, list) or [type(each) for each in pair] != [int, int]:
            raise InvalidRequest(f"found {_shown(pair)}", where, "a list of [SLBA, NLB]")
    return tuple(Range(*pair) for pair in pairs)


def _vector(value: Any, where: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        expected = "8 or 16 bytes as hexadecimal digits"
        raise InvalidRequest(f"found {_shown(value)}", where, expected) from None


def _flags(kind: type[SetFlag | IntentFlag], value: Any, where: str) -> SetFlag | IntentFlag:
    found = kind(0)
    for word in value if isinstance(value, list) else [value]:
        found |= _named(kind, word, where)
    return found


def _named(kind: Any, word: Any, where: str) -> Any:
    """Return the member of an enumeration that a word names."""
    names = [each.name.lower() for each in kind if each.value]
    if not isinstance(word, str) or word not in names:
        raise InvalidRequest(f"found {_shown(word)}", where, f"one of {', '.join(names)}")
    return kind[word.upper()]


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
