"""What callers pass: values of the right kind, and numbers within their bounds."""

from __future__ import annotations

import math
from datetime import timedelta
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from prestage.host_client.errors import InvalidRequest


def require(value: Any, kind: type | tuple[type, ...], name: str, expected: str) -> None:
    """Raise `InvalidRequest` unless a value is of a kind."""
    if not isinstance(value, kind):
        raise InvalidRequest(f"found {value!r}", name, expected)


def flag(value: Any, name: str) -> bool:
    """Return a bool, numpy's too. Raises `InvalidRequest`: what else is true often is not meant."""
    require(value, (bool, np.bool_), name, "True or False")
    return bool(value)


def integer(value: Any, name: str, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number of any type that is one (numpy's too), as Python's own.

    Raises `InvalidRequest`.
    """
    try:
        number = index(value)
    except TypeError:
        raise InvalidRequest(f"found {value!r}", name, "a whole number") from None
    if least is None and most is None:
        return number
    if (least is not None and number < least) or (most is not None and number > most):
        raise InvalidRequest(f"found {number}", name, f"{least} to {most}")
    return number


def real(value: Any, name: str, least: float, most: float) -> float:
    """Return a number that need not be whole. Raises `InvalidRequest`."""
    expected = f"{least:g} to {most:g}"
    require(value, Real, name, expected)
    number = float(value)
    # What is not a number is not within any bounds.
    if not least <= number <= most:
        raise InvalidRequest(f"found {value!r}", name, expected)
    return number


def time_span(value: Any, name: str) -> float:
    """Return the seconds that a number or a timedelta means. Raises `InvalidRequest`."""
    expected = "a time span of 0 s or more"
    require(value, (Real, timedelta), name, expected)
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise InvalidRequest(f"found {value}", name, expected)
    return seconds
