"""Which values the fields of a record may have (specification, clause 5.5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from . import layout
from .errors import Malformed
from .names import CancelWhat, Fault, RecordType, SetOp

TARGET_SET: Final = 1 << 63
"""The highest bit of a set id: the target made the set (Dataset Management), no host may."""
MOST_CONFIDENCE: Final = 100

Values = dict[str, Any]
Rule = tuple[str, Callable[[Values], bool]]

_SET_OPS: Final = frozenset(int(each) for each in SetOp)
_CANCEL_WHATS: Final = frozenset(int(each) for each in CancelWhat)


def _is_set_or_ranges(values: Values) -> bool:
    return bool(values["range_count"]) != bool(values["set_id"])


_RULES: Final[dict[int, tuple[Rule, ...]]] = {
    RecordType.SET: (
        ("set_id", lambda values: 0 < values["set_id"] < TARGET_SET),
        ("op", lambda values: values["op"] in _SET_OPS),
        ("range_count", lambda v: (v["range_count"] == 0) == (v["op"] == SetOp.DROP)),
    ),
    RecordType.SIGNATURE: (
        ("nlb", lambda values: values["nlb"] != 0),
        ("bits", lambda values: values["bits"] in {64, 128}),
    ),
    RecordType.INTENT: (
        ("intent_id", lambda values: values["intent_id"] != 0),
        ("range_count", _is_set_or_ranges),
        ("priority", lambda values: values["priority"] < layout.PRIORITIES),
        ("confidence", lambda values: values["confidence"] <= MOST_CONFIDENCE),
    ),
    RecordType.RETAIN: (("range_count", _is_set_or_ranges),),
    RecordType.CANCEL: (("what", lambda values: values["what"] in _CANCEL_WHATS),),
    RecordType.RESIDENCY: (("range_count", _is_set_or_ranges),),
    RecordType.OUTCOME: (("intent_id", lambda values: values["intent_id"] != 0),),
}
_OFFSETS: Final = {
    kind: {field.name: field.offset for field in struct.fields}
    for kind, struct in layout.RECORDS.items()
}


def check_fields(values: Values, at: int) -> None:
    """Raise Malformed for the first field, by offset, of the record at `at` that is not allowed."""
    kind = values["type"]
    for name, is_allowed in _RULES[kind]:
        if not is_allowed(values):
            raise Malformed(Fault.FIELD, at + _OFFSETS[kind][name])
