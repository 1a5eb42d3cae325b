"""Flags of `prestage replay` as people write them: 5%, 5x, lead=2s,share=50%,false=1."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from prestage.replay.hint_plans import HintPlan
from prestage.target.errors import InvalidFlag
from prestage.target.sizes import parse_duration_s, parse_size, quote

MOST_SEED: Final = (1 << 63) - 2
"""TOML has no larger number, and a generator may need the next one too."""
PLAN: Final = "lead=2s,share=100%,false=0,by=other,sigma=0"
"""What hosts say ahead, as far as a plan leaves it open."""
LEAST_SLOT: Final = 16 << 10
MOST_SLOT: Final = 2 << 20


def _number(text: str, suffix: str, where: str, expected: str) -> float:
    try:
        value = float(text.strip().removesuffix(suffix))
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InvalidFlag(f"found {quote(text)}", where, expected)
    return value


def parse_share(text: str, where: str) -> float:
    """Return a share, 0 to 1, written as 5% or 0.05. Raises InvalidFlag."""
    expected = "a share such as 5% or 0.05"
    value = _number(text, "%", where, expected)
    value = value / 100 if text.strip().endswith("%") else value
    if value > 1:
        raise InvalidFlag(f"found {quote(text)}", where, expected)
    return value


def parse_multiple(text: str, where: str) -> float:
    """Return a multiple above 0, written as 5x or 5. Raises InvalidFlag."""
    expected = "a multiple such as 5x, above 0"
    value = _number(text, "x", where, expected)
    if value == 0:
        raise InvalidFlag(f"found {quote(text)}", where, expected)
    return value


def parse_seed(text: str, where: str) -> int:
    """Return a seed. Raises InvalidFlag."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MOST_SEED):
        raise InvalidFlag(f"found {quote(text)}", where, f"a whole number, 0 to {MOST_SEED}")
    return int(text)


def parse_slot(text: str, where: str) -> int:
    """Return the bytes of a tier slot, written as 64K. Raises InvalidFlag."""
    try:
        size = parse_size(text)
    except ValueError as error:
        raise InvalidFlag(str(error), where) from None
    if size & (size - 1) or not LEAST_SLOT <= size <= MOST_SLOT:
        raise InvalidFlag(f"found {quote(text)}", where, "a power of two, 16K to 2M")
    return size


def _is_other(value: str, where: str) -> bool:
    if value.strip() not in ("other", "same"):
        expected = "by=other, for false hints by a host of its own, or by=same"
        raise InvalidFlag(f"found {quote(value)}", where, expected)
    return value.strip() == "other"


def parse_hints(text: str, where: str) -> HintPlan:
    """Return a plan such as lead=2s,share=50%,false=1,sigma=1. Raises InvalidFlag."""
    plan = HintPlan(lead_s=2.0)
    for part in text.split(","):
        name, _, value = part.partition("=")
        match name.strip():
            case "lead":
                plan = replace(plan, lead_s=parse_seconds(value, where))
            case "share":
                plan = replace(plan, share=parse_share(value, where))
            case "false":
                expected = "false=COUNT, of false hints for each true one"
                plan = replace(plan, false_per_true=_number(value, "", where, expected))
            case "by":
                plan = replace(plan, false_apart=_is_other(value, where))
            case "sigma":
                expected = "sigma=NUMBER, of log-normal leads"
                plan = replace(plan, lead_sigma=_number(value, "", where, expected))
            case _:
                raise InvalidFlag(f"found {quote(part)}", where, PLAN)
    return plan


def parse_seconds(text: str, where: str) -> float:
    """Return a span of time, written as 2s or 200ms. Raises InvalidFlag."""
    try:
        return float(parse_duration_s(text))
    except ValueError as error:
        raise InvalidFlag(str(error), where) from None
