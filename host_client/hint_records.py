"""Records made of what a caller says: ranges in any form, times in any unit, ids by themselves."""

from __future__ import annotations

import math
import operator
import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from prestage.ext import layout
from prestage.ext.names import CancelWhat, IntentFlag, SetFlag, SetOp
from prestage.ext.records import (
    Cancel,
    Intent,
    Range,
    Record,
    Residency,
    Retain,
    SetRecord,
    Signature,
)
from prestage.host_client.arguments import flag, time_span
from prestage.host_client.errors import InvalidHint, InvalidRequest
from prestage.host_client.read_hint import DEFAULT_PRIORITY, Seconds, microseconds

Ranges = Iterable[Range | Sequence[int]] | np.ndarray[Any, np.dtype[np.integer[Any]]]
"""Pairs of SLBA and NLB (1-based) of one namespace: `Range`s, tuples, or an array [count, 2]."""
MOST_MS = 0xFFFFFFFF
_ROOM = layout.MAX_BATCH_BYTES - layout.BATCH.size
MOST_INTENT_RANGES = (_ROOM - layout.INTENT.size) // layout.RANGE.size
"""Of one intent; more go by a set."""


def new_id() -> int:
    """Return an id for a set or an intent: 63 random bits, not zero."""
    return secrets.randbelow((1 << 63) - 1) + 1


def as_ranges(ranges: Ranges) -> tuple[Range, ...]:
    """Return ranges as records have them. Raises `InvalidHint`."""
    pairs = ranges.tolist() if isinstance(ranges, np.ndarray) else ranges
    try:
        return tuple(
            one if isinstance(one, Range) else Range(*map(operator.index, one)) for one in pairs
        )
    except TypeError as error:
        raise InvalidHint(f"{error}", "ranges", "pairs of SLBA and NLB") from None


def as_integers(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Return numbers, in lists or an array, as an array. Raises `InvalidHint` for what is none."""
    try:
        found = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidHint(f"{error}", name, "integers") from None
    require_integers(found, name)
    return found


def as_vectors(value: Any) -> np.ndarray[Any, Any]:
    """Return vectors, a list of bytes or an array of numbers, as an array. Raises `InvalidHint`."""
    expected = "for many ranges an array [count, 8] or [count, 16] of uint8, or a list of bytes"
    try:
        if isinstance(value, list | tuple):
            value = [
                np.frombuffer(one, np.uint8) if isinstance(one, bytes) else one for one in value
            ]
        found = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidHint(f"{error}", "vector", expected) from None
    if found.dtype.kind not in "iu":
        raise InvalidHint(f"found {type(value).__name__} {found.dtype}", "vector", expected)
    return found


def require_integers(array: np.ndarray[Any, Any], name: str) -> None:
    """Raise `InvalidHint` for an array of anything else: fractions would be cut off."""
    if array.dtype.kind not in "iu":
        raise InvalidHint(f"found an array of {array.dtype}", name, "integers")


def as_records(records: Iterable[Record]) -> list[Record]:
    """Return records as a list. Raises `InvalidHint` for what is none."""
    expected = "records of prestage.ext.records"
    try:
        every = list(records)
    except TypeError as error:
        raise InvalidHint(f"{error}", "records", expected) from None
    for one in every:
        if not isinstance(one, Record):
            raise InvalidHint(f"found {type(one).__name__}", "records", expected)
    return every


def span_us(deadline: Seconds | None, deadline_us: int | None) -> int:
    """Return a deadline that was given one way or the other. Raises `InvalidHint`."""
    if (deadline is None) == (deadline_us is None):
        raise InvalidHint("found both or none", "deadline and deadline_us", "one of them")
    if deadline is None:
        assert deadline_us is not None
        return deadline_us
    return _as_hint(deadline, "deadline")


def span_ms(value: Seconds | None, name: str) -> int:
    """Return a time span in milliseconds, rounded up; None is 0. Raises `InvalidHint`."""
    if value is None:
        return 0
    try:
        seconds = time_span(value, name)
    except InvalidRequest as error:
        raise InvalidHint(error.what, error.where, error.expected) from None
    return min(math.ceil(seconds * 1e3), MOST_MS)


def _as_hint(value: Seconds, name: str) -> int:
    try:
        return microseconds(value, name)
    except InvalidRequest as error:
        raise InvalidHint(error.what, error.where, error.expected) from None


def hint_flag(value: Any, name: str) -> bool:
    """Return a bool. Raises `InvalidHint`."""
    try:
        return flag(value, name)
    except InvalidRequest as error:
        raise InvalidHint(error.what, error.where, error.expected) from None


def set_record(
    op: SetOp, set_id: int, ranges: Ranges, *, nsid: int, ordered: bool, ttl: Seconds | None
) -> SetRecord:
    """Return a SET record (specification, 5.2.3)."""
    flags = SetFlag.ORDERED if hint_flag(ordered, "ordered") else SetFlag.NONE
    return SetRecord(set_id, nsid, as_ranges(ranges), op, flags, span_ms(ttl, "ttl"))


def signature_record(
    nsid: int, slba: int, nlb: int, vector: Any, *, family: int, ttl: Seconds | None
) -> Signature:
    """Return a SIGNATURE record (5.2.4)."""
    try:
        bits = bytes(memoryview(vector))
    except TypeError as error:
        raise InvalidHint(f"{error}", "vector", "8 or 16 bytes") from None
    return Signature(nsid, slba, nlb, bits, family, span_ms(ttl, "ttl"))


def intent_record(
    ranges: Ranges | None,
    *,
    set_id: int,
    nsid: int,
    deadline_us: int,
    priority: int | None = None,
    confidence: int = 0,
    session: int = 0,
    late_ok: bool = False,
    prefix: bool = False,
    intent_id: int | None = None,
) -> Intent:
    """Return an INTENT record (5.2.5); without an id it gets one of its own."""
    flags = IntentFlag.LATE_OK if hint_flag(late_ok, "late_ok") else IntentFlag.NONE
    found = as_ranges(() if ranges is None else ranges)
    if len(found) > MOST_INTENT_RANGES:
        expected = f"at most {MOST_INTENT_RANGES}; define a set of more"
        raise InvalidHint(f"found {len(found)}", "ranges", expected)
    return Intent(
        intent_id=new_id() if intent_id is None else intent_id,
        deadline_us=deadline_us,
        nsid=nsid,
        ranges=found,
        set_id=set_id,
        session=session,
        priority=DEFAULT_PRIORITY if priority is None else priority,
        confidence=confidence,
        flags=flags | (IntentFlag.PREFIX if hint_flag(prefix, "prefix") else IntentFlag.NONE),
    )


def retain_record(ranges: Ranges | None, *, set_id: int, nsid: int, duration: Seconds) -> Retain:
    """Return a RETAIN record (5.2.6)."""
    found = as_ranges(() if ranges is None else ranges)
    return Retain(span_ms(duration, "duration"), nsid, found, set_id)


def residency_record(ranges: Ranges | None, *, set_id: int, nsid: int) -> Residency:
    """Return a RESIDENCY query (5.2.8)."""
    return Residency(nsid, as_ranges(() if ranges is None else ranges), set_id)


def cancel_record(
    intent_id: int | None, session: int | None, *, intents: bool, everything: bool
) -> Cancel:
    """Return a CANCEL record (5.2.7). Raises `InvalidHint` unless one thing is named."""
    named = [
        Cancel(what, number)
        for what, number, is_meant in (
            (CancelWhat.INTENT, intent_id or 0, intent_id is not None),
            (CancelWhat.SESSION, session or 0, session is not None),
            (CancelWhat.ALL, 0, hint_flag(intents, "intents")),
            (CancelWhat.EVERYTHING, 0, hint_flag(everything, "everything")),
        )
        if is_meant
    ]
    if len(named) != 1:
        expected = "one of intent_id, session, intents=True, everything=True"
        raise InvalidHint(f"found {len(named)} of them", "cancel", expected)
    return named[0]
