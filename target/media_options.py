"""The options of media and fault wrappers (`csrc/media.h`, ps_media_open), by name and type.

The core checks them again when it opens the medium; here they are checked before anything is
opened, and with the path to the field.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping

from prestage.target.sizes import parse_size, quote

Value = str | int | float
Check = Callable[[Value], str | None]
"""Returns what was expected when the value is wrong, else None."""

MAX_U64 = (1 << 64) - 1


def _number(least: float, most: float, whole: bool = True) -> Check:
    kind = "a whole number" if whole else "a number"

    def check(value: Value) -> str | None:
        try:
            number = (int(str(value)) if whole else float(value)) if value != "" else None
        except ValueError:
            number = None
        if number is None or isinstance(value, bool) or not least <= number <= most:
            return f"expected {kind} from {least:g} to {most:g}"
        return None

    return check


def _choice(*choices: str) -> Check:
    def check(value: Value) -> str | None:
        shown = str(int(value)) if isinstance(value, bool) else str(value)
        return None if shown in choices else f"expected {', '.join(choices[:-1])} or {choices[-1]}"

    return check


def _size(value: Value) -> str | None:
    try:
        parse_size(value if isinstance(value, str) else int(value))
    except ValueError:
        return "expected a size such as 2G"
    return None


_seed = _number(0, MAX_U64)
_microseconds = _number(0, 60_000_000)

MEDIA_OPTIONS: dict[str, dict[str, Check]] = {
    "file": {
        "engine": _choice("auto", "uring", "threads"),
        "direct": _choice("auto", "0", "1"),
        "depth": _number(1, 4096),
    },
    "ram": {},
    "model": {
        "seed": _seed,
        "read_us": _microseconds,
        "read_p99_us": _microseconds,
        "write_us": _microseconds,
        "bandwidth": _size,
        "channels": _number(1, 1024),
        "scale": _number(0.000001, 1_000_000, whole=False),
    },
}

FAULT_OPTIONS: dict[str, dict[str, Check]] = {
    "delay": {
        "read_us": _microseconds,
        "write_us": _microseconds,
        "sync_us": _microseconds,
        "seed": _seed,
    },
    "error": {
        "op": _choice("read", "write", "sync", "any"),
        "errno": _choice("EIO", "ENOSPC", "SHORT"),
        "rate": _number(0, 1, whole=False),
        "count": _number(0, MAX_U64),
        "first": _number(0, MAX_U64),
        "last": _number(0, MAX_U64),
        "seed": _seed,
    },
    "stall": {"after": _number(0, MAX_U64)},
    "powercut": {"seed": _seed},
}

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


def check_faults(faults: list[str], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield (path, fault) for each fault wrapper that could not be opened."""
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
    for part in (match[2] or "").split(",") if match[2] else []:
        name, equals, value = part.partition("=")
        if not equals:
            yield f"found {quote(part)}, expected NAME=VALUE"
            continue
        fault = _option_fault(name, value, known, match[1])
        if fault:
            yield f"{name}: {fault}"


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
