"""Flags of `prestage replay` as people write them: 5%, 5x, lead=2s,share=50%,false=1."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

from prestage.replay.hint_plans import HintPlan
from prestage.target.errors import InvalidFlag
from prestage.target.prestager_checks import MAX_TIME_SCALE, MIN_TIME_SCALE
from prestage.target.sizes import parse_duration_s, parse_size, plain_number, quote

MOST_SEED: Final = (1 << 63) - 2
"""TOML has no larger number, and a generator may need the next one too."""
PLAN: Final = "lead=2s,share=100%,false=0,by=other,sigma=0"
"""What hosts say ahead, as far as a plan leaves it open."""
MOST_FLASH: Final = 1e6
MOST_FALSE: Final = 1000.0
"""False hints for each true one."""
MOST_SIGMA: Final = 3.0
"""Of log-normal leads: one in a thousand is ten thousand times the median then."""
LEAST_SLOT: Final = 16 << 10
MOST_SLOT: Final = 2 << 20


def _number(
    text: str, suffix: str, where: str, expected: str, most: float = sys.float_info.max
) -> float:
    value = plain_number(text.strip().removesuffix(suffix))
    if not 0 <= value <= most:
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


def parse_flash(text: str, where: str) -> float:
    """Return a multiple above 0, written as 5x or 5. Raises InvalidFlag."""
    return _multiple(text, where, f"above 0, up to {MOST_FLASH:.0f}x", 0, MOST_FLASH)


def parse_speed(text: str, where: str) -> float:
    """Return how many times as fast a target's clock goes. Raises InvalidFlag."""
    bounds = f"{MIN_TIME_SCALE:g}x to {MAX_TIME_SCALE:g}x"
    return _multiple(text, where, bounds, MIN_TIME_SCALE, MAX_TIME_SCALE)


def _multiple(text: str, where: str, bounds: str, least: float, most: float) -> float:
    expected = f"a multiple such as 5x, {bounds}"
    value = _number(text, "x", where, expected, most)
    if value == 0 or value < least:
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
    seen: set[str] = set()
    for part in text.split(","):
        name, _, value = (each.strip() for each in part.partition("="))
        if name in seen:
            raise InvalidFlag(f"found {name} twice", where, "each once")
        seen.add(name)
        plan = _with(plan, name, value, part, where)
    return plan


def _with(plan: HintPlan, name: str, value: str, part: str, where: str) -> HintPlan:
    """Return a plan in which one thing is otherwise. Raises InvalidFlag."""
    of = f"{where} {name}"
    match name:
        case "lead":
            return replace(plan, lead_s=parse_seconds(value, of))
        case "share":
            return replace(plan, share=parse_share(value, of))
        case "false":
            expected = f"a number of false hints for each true one, 0 to {MOST_FALSE:g}"
            return replace(plan, false_per_true=_number(value, "", of, expected, MOST_FALSE))
        case "by":
            return replace(plan, false_apart=_is_other(value, of))
        case "sigma":
            expected = f"a number, of log-normal leads, 0 to {MOST_SIGMA:g}"
            return replace(plan, lead_sigma=_number(value, "", of, expected, MOST_SIGMA))
    raise InvalidFlag(f"found {quote(part)}", where, PLAN)


def parse_seconds(text: str, where: str) -> float:
    """Return a span of time, written as 2s or 200ms. Raises InvalidFlag."""
    try:
        return float(parse_duration_s(text))
    except ValueError as error:
        raise InvalidFlag(str(error), where) from None
