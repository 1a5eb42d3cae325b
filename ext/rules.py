"""Which values the fields of a record may have (specification, clause 5.5.3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from . import layout
from .errors import Malformed
from .names import CancelWhat, Fault, RecordType, SetOp

TARGET_SET: Final = 1 << 63
"""The highest bit of a set id: the target made the set (Dataset Management), no host may."""
MOST_CONFIDENCE: Final = 100
BOUNDS: Final = re.compile(r"[0-9]+ to [0-9]+")

Values = dict[str, Any]


class Rule(NamedTuple):
    """What one field may have: `expected` says in words what `is_allowed` checks."""

    name: str
    is_allowed: Callable[[Values], bool]
    expected: str


_SET_OPS: Final = frozenset(int(each) for each in SetOp)
_CANCEL_WHATS: Final = frozenset(int(each) for each in CancelWhat)


def _is_set_or_ranges(values: Values) -> bool:
    return bool(values["range_count"]) != bool(values["set_id"])


_INTENT_ID: Final = Rule("intent_id", lambda values: values["intent_id"] != 0, "any but 0")
_SET_OR_RANGES: Final = Rule("range_count", _is_set_or_ranges, "either a set or ranges")
_RULES: Final[dict[int, tuple[Rule, ...]]] = {
    RecordType.SET: (
        Rule(
            "set_id",
            lambda values: 0 < values["set_id"] < TARGET_SET,
            f"1 to {TARGET_SET - 1}",
        ),
        Rule("op", lambda values: values["op"] in _SET_OPS, "define, extend or drop"),
        Rule(
            "range_count",
            lambda v: (v["range_count"] == 0) == (v["op"] == SetOp.DROP),
            "some ranges, and none to drop a set",
        ),
    ),
    RecordType.SIGNATURE: (
        Rule("nlb", lambda values: values["nlb"] != 0, "1 block or more"),
        Rule("bits", lambda values: values["bits"] in {64, 128}, "64 or 128"),
    ),
    RecordType.INTENT: (
        _INTENT_ID,
        _SET_OR_RANGES,
        Rule(
            "priority",
            lambda values: values["priority"] < layout.PRIORITIES,
            f"0 to {layout.PRIORITIES - 1}",
        ),
        Rule(
            "confidence",
            lambda values: values["confidence"] <= MOST_CONFIDENCE,
            f"0 to {MOST_CONFIDENCE}",
        ),
    ),
    RecordType.RETAIN: (_SET_OR_RANGES,),
    RecordType.CANCEL: (
        Rule(
            "what",
            lambda values: values["what"] in _CANCEL_WHATS,
            "intent, session, all or everything",
        ),
    ),
    RecordType.RESIDENCY: (_SET_OR_RANGES,),
    RecordType.OUTCOME: (_INTENT_ID,),
}
_OFFSETS: Final = {
    kind: {field.name: field.offset for field in struct.fields}
    for kind, struct in layout.RECORDS.items()
}


def check_fields(values: Values, at: int) -> None:
    """Raise Malformed for the first field, by offset, of the record at `at` that is not allowed."""
    rule = _broken(values)
    if rule is not None:
        raise Malformed(Fault.FIELD, at + _OFFSETS[values["type"]][rule.name])


def explain_fields(values: Values) -> str:
    """Return a sentence about the first field that is not allowed; "" when all are."""
    rule = _broken(values)
    if rule is None:
        return ""
    return f"{rule.name}: found {values[rule.name]} (expected {rule.expected})"


def bounds_of(kind: int, name: str) -> str:
    """Return in words the bounds of a field narrower than its bytes; "": there are none."""
    found = (rule.expected for rule in _RULES.get(kind, ()) if rule.name == name)
    return next((text for text in found if BOUNDS.fullmatch(text)), "")


def _broken(values: Values) -> Rule | None:
    return next((rule for rule in _RULES[values["type"]] if not rule.is_allowed(values)), None)
