"""The options of media and fault wrappers (`csrc/media.h`, ps_media_open), by name and type.

The core checks them again when it opens the medium; here they are checked before anything is
opened, and with the path to the field.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping

from prestage.target.sizes import quote, size_text

Value = str | int | float
Check = Callable[[Value], str | None]
"""Returns what was expected when the value is wrong, else None."""

MAX_U64 = (1 << 64) - 1

# As the core reads them: no sign, no exponent, and for sizes only these units.
WHOLE = re.compile(r"[0-9]{1,20}")
DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
SIZE = re.compile(r"([0-9]{1,20})([KMGT]?)")
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def _whole(least: int, most: int) -> Check:
    def check(value: Value) -> str | None:
        text = str(value)
        if WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
            return f"expected a whole number from {least} to {most}"
        return None

    return check


def _decimal(least: float, most: float) -> Check:
    def check(value: Value) -> str | None:
        text = str(value)
        if DECIMAL.fullmatch(text) is None or not least <= float(text) <= most:
            return f"expected a number from {least:g} to {most:.12g}"
        return None

    return check


def _size(least: int, most: int) -> Check:
    def check(value: Value) -> str | None:
        match = SIZE.fullmatch(str(value))
        if match is None:
            return "expected a size such as 2G or 500M, or a whole number of bytes"
        if not least <= int(match[1]) << SHIFTS[match[2]] <= most:
            return f"expected a size from {size_text(least)} to {size_text(most)}"
        return None

    return check


def _choice(*choices: str) -> Check:
    def check(value: Value) -> str | None:
        if str(value) in choices:
            return None
        return f"expected {', '.join(choices[:-1])} or {choices[-1]}"

    return check


_seed = _whole(0, MAX_U64)
_depth = _whole(1, 4096)
_latency = _decimal(0.001, 1e9)
_delay = _whole(0, 3_600_000_000)
_op = _choice("any", "read", "write", "sync")

MEDIA_OPTIONS: dict[str, dict[str, Check]] = {
    "file": {
        "engine": _choice("auto", "uring", "threads"),
        "direct": _choice("auto", "0", "1"),
        "depth": _depth,
    },
    "ram": {},
    "model": {
        "seed": _seed,
        "read_us": _latency,
        "read_p99_us": _latency,
        "write_us": _latency,
        "write_p99_us": _latency,
        "bandwidth": _size(1, (1 << 63) - 1),
        "channels": _whole(1, 256),
        "scale": _decimal(0.000001, 1_000_000),
        "depth": _depth,
    },
}
REQUIRED: dict[str, tuple[str, ...]] = {
    "model": ("seed", "read_us", "read_p99_us", "write_us", "bandwidth", "channels"),
}
"""Options without a default: a model is nothing without its numbers."""

FAULT_OPTIONS: dict[str, dict[str, Check]] = {
    "delay": {"read_us": _delay, "write_us": _delay, "sync_us": _delay, "seed": _seed},
    "error": {
        "op": _op,
        "errno": _choice("EIO", "ENOSPC", "SHORT"),
        "rate": _decimal(0, 1),
        "count": _seed,
        "first": _size(0, MAX_U64),
        "last": _size(0, MAX_U64),
        "seed": _seed,
    },
    "stall": {"after": _seed, "op": _op},
    "powercut": {
        "seed": _seed,
        "limit": _size(4096, 1 << 36),
        "sector": _choice("512", "4096"),
    },
}

MAX_FAULTS = 15
"""Wrappers around one medium."""
FAULT = re.compile(r"([a-z]+)(?::(.*))?", re.DOTALL)


def check_media(media: str, options: Mapping[str, Value], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (path, fault) for the medium's name and its options."""
    known = MEDIA_OPTIONS.get(media)
    if known is None:
        yield f"{prefix}media", f"found {quote(media)}, expected {_one_of(media, MEDIA_OPTIONS)}"
        return
    for name, value in options.items():
        fault = _option_fault(name, value, known, f'media = "{media}"')
        if fault:
            yield f"{prefix}media_options.{name}", fault
    if media == "model":
        yield from _check_medians(options, prefix)
    missing = [name for name in REQUIRED.get(media, ()) if name not in options]
    if missing:
        needs = f'media = "{media}" needs {", ".join(REQUIRED[media])}'
        yield f"{prefix}media_options", f"found no {', '.join(missing)}, {needs}"


def _check_medians(options: Mapping[str, Value], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the percentiles that are below their median, of those that are numbers."""
    known = MEDIA_OPTIONS["model"]
    for name in ("read", "write"):
        median, p99 = f"{name}_us", f"{name}_p99_us"
        given = [one for one in (median, p99) if one in options and not known[one](options[one])]
        if len(given) == 2 and float(options[p99]) < float(options[median]):
            expected = f"expected at least {median}, {options[median]}"
            yield f"{prefix}media_options.{p99}", f"found {quote(options[p99])}, {expected}"


def check_faults(faults: list[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (path, fault) for each fault wrapper that could not be opened, or would do nothing."""
    if len(faults) > MAX_FAULTS:
        yield f"{prefix}faults", f"found {len(faults)}, expected at most {MAX_FAULTS}"
    for index, spec in enumerate(faults):
        for fault in _fault_faults(spec):
            yield f"{prefix}faults[{index}]", fault


def _fault_faults(spec: str) -> Iterator[str]:
    match = FAULT.fullmatch(spec)
    known = FAULT_OPTIONS.get(match[1]) if match else None
    if match is None or known is None:
        found = match[1] if match else spec
        yield f"found {quote(spec)}, expected {_one_of(found, FAULT_OPTIONS)}, then its options"
        return
    if "|" in spec:
        yield f'found "|" in {quote(spec)}, expected one wrapper an entry'
        return
    given: dict[str, str] = {}
    for part in (match[2] or "").split(",") if match[2] else []:
        name, equals, value = part.partition("=")
        if not equals:
            yield f"found {quote(part)}, expected NAME=VALUE"
            continue
        fault = _option_fault(name, value, known, match[1])
        if fault:
            yield f"{name}: {fault}"
        elif name in given:
            yield f"{name}: found it again, expected it once"
        else:
            given[name] = value
    first, last = (_bytes_of(given.get(name)) for name in ("first", "last"))
    if first is not None and last is not None and last < first:
        yield f"last: found {given['last']}, expected at least first, {given['first']}"


def _bytes_of(text: str | None) -> int | None:
    match = SIZE.fullmatch(text) if text is not None else None
    return None if match is None else int(match[1]) << SHIFTS[match[2]]


def _option_fault(name: str, value: Value, known: Mapping[str, Check], where: str) -> str | None:
    if name not in known:
        if not known:
            return f"unknown option, {where} has none"
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"expected one of {', '.join(known)}"
        return f"unknown option of {where}, {hint}"
    expected = known[name](value)
    return f"found {quote(value)}, {expected}" if expected else None


def _one_of(found: str, names: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(found, names, n=1)
    every = list(names)
    listed = f"{', '.join(every[:-1])} or {every[-1]}"
    return f'{listed} (did you mean "{near[0]}"?)' if near else listed
