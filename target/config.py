"""The configuration: a TOML file, and the flags over it, become `TargetSettings`.

Every fault is reported, each on a line of its own: `FILE: field.path: found X, expected Y`. Nothing
is changed and nothing is opened while a configuration is read and checked.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeVar

import msgspec

from prestage.target.config_checks import check
from prestage.target.errors import Invalid
from prestage.target.settings import (
    HintSettings,
    LimitSettings,
    NamespaceSettings,
    PrestagerSettings,
    SchedulerSettings,
    Settings,
    TargetSettings,
    TenantSettings,
    TierSettings,
    TransportSettings,
)
from prestage.target.sizes import (
    parse_duration_ms,
    parse_duration_s,
    parse_duration_us,
    parse_size,
    quote,
)

MAX_FILE_BYTES = 4 << 20
MAX_PROBLEMS = 100
SAME_AS = re.compile(r"than in (\S+)$")
"""In the message about a duplicate: the path to the other one."""

QUANTITIES: dict[tuple[type[Settings], str], Callable[[Any], int | float]] = {
    (NamespaceSettings, "size"): parse_size,
    (NamespaceSettings, "block"): parse_size,
    (TierSettings, "size"): parse_size,
    (TierSettings, "slot"): parse_size,
    (TierSettings, "writeback_s"): parse_duration_s,
    (LimitSettings, "max_transfer"): parse_size,
    (LimitSettings, "in_capsule"): parse_size,
    (LimitSettings, "handshake_s"): parse_duration_s,
    (LimitSettings, "stop_s"): parse_duration_s,
    (LimitSettings, "discovery_keep_alive_s"): parse_duration_s,
    (TransportSettings, "poll_us"): parse_duration_us,
    (SchedulerSettings, "starvation_ms"): parse_duration_ms,
    (SchedulerSettings, "merge_bytes"): parse_size,
    (HintSettings, "intent_bytes"): parse_size,
    (HintSettings, "max_ttl_s"): parse_duration_s,
    (HintSettings, "grace_s"): parse_duration_s,
    (HintSettings, "follow_bytes"): parse_size,
    (TenantSettings, "intent_bytes"): parse_size,
    (PrestagerSettings, "snapshot_s"): parse_duration_s,
    (PrestagerSettings, "silence_s"): parse_duration_s,
    (PrestagerSettings, "memory"): parse_size,
}
"""Fields that are written with a unit, and what reads them."""

KINDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
AnySettings = TypeVar("AnySettings", bound=Settings)


class Problem(NamedTuple):
    """One fault: where (the field's path), and what was found and expected."""

    path: str
    message: str


class InvalidConfig(Invalid):
    """A configuration with one or more faults; `problems` has them apart."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = problems[:MAX_PROBLEMS]
        lines = [
            f"{source}: {problem.path}: {problem.message}"
            if problem.path
            else f"{source}: {problem.message}"
            for problem in self.problems
        ]
        if len(problems) > MAX_PROBLEMS:
            lines.append(f"{source}: and {len(problems) - MAX_PROBLEMS} more")
        super().__init__("\n".join(lines))


class _Reader:
    """Turns plain data into settings and collects what is wrong on the way."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def read(self, kind: type[AnySettings], value: object, path: str) -> AnySettings | None:
        """Return the settings, with defaults in place of what was wrong."""
        if not isinstance(value, Mapping):
            self.add(path, f"found {describe(value)}, expected a table")
            return None
        hints = typing.get_type_hints(kind)
        fields: dict[str, Any] = {}
        for name, item in value.items():
            where = f"{path}.{name}" if path else str(name)
            if name not in hints:
                self.add(where, unknown(str(name), hints))
                continue
            known = self.read_field(kind, name, hints[name], item, where)
            if known is not None:
                fields[name] = known
        return kind(**fields)

    def read_field(
        self, kind: type[Settings], name: str, hint: Any, value: object, path: str
    ) -> Any:
        """Return the value of one field, or None when it was wrong."""
        parse = QUANTITIES.get((kind, name))
        if parse is not None:
            try:
                return parse(value)
            except ValueError as error:
                self.add(path, str(error))
                return None
        if isinstance(hint, type) and issubclass(hint, Settings):
            return self.read(hint, value, path)
        if typing.get_origin(hint) is list:
            return self.read_list(typing.get_args(hint)[0], value, path)
        if typing.get_origin(hint) is dict:
            return self.read_table(typing.get_args(hint)[1], value, path)
        return self.read_scalar(hint, value, path)

    def read_list(self, hint: Any, value: object, path: str) -> list[Any] | None:
        if not isinstance(value, list):
            self.add(path, f"found {describe(value)}, expected a list")
            return None
        found: list[Any] = []
        for index, item in enumerate(value):
            where = f"{path}[{index}]"
            if isinstance(hint, type) and issubclass(hint, Settings):
                known: Any = self.read(hint, item, where)
            else:
                known = self.read_scalar(hint, item, where)
            if known is not None:
                found.append(known)
            elif isinstance(hint, type) and issubclass(hint, Settings):
                # Keeps the numbering of those that follow; its own faults are known already.
                found.append(hint())
        return found

    def read_table(self, hint: Any, value: object, path: str) -> dict[str, Any] | None:
        if not isinstance(value, Mapping):
            self.add(path, f"found {describe(value)}, expected a table")
            return None
        found: dict[str, Any] = {}
        for name, item in value.items():
            known = self.read_scalar(hint, item, f"{path}.{name}")
            if known is not None:
                found[str(name)] = known
        return found

    def read_scalar(self, hint: Any, value: object, path: str) -> Any:
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            self.add(path, f"found {describe(value)}, expected {expectation(hint)}")
            return None


def describe(value: object) -> str:
    """Say what `value` is, for an error message."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return quote(value)
    if isinstance(value, list):
        return "a list"
    if isinstance(value, Mapping):
        return "a table"
    return f"a {type(value).__name__}"


def expectation(hint: Any) -> str:
    """Say in words what a type accepts."""
    kinds = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
    words = [KINDS[kind.__name__] for kind in kinds if kind is not type(None)]
    return " or ".join(words)


def unknown(name: str, known: Mapping[str, object]) -> str:
    """Say that a field is unknown, and which one was perhaps meant."""
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f'unknown field, did you mean "{near[0]}"?'
    return f"unknown field, expected one of {', '.join(known)}"


def convert(kind: type[AnySettings], data: object, source: str) -> AnySettings:
    """Return settings made from plain data, without the checks between fields.

    Raises `InvalidConfig`.
    """
    reader = _Reader()
    settings = reader.read(kind, data, "")
    if reader.problems or settings is None:
        raise InvalidConfig(source, reader.problems)
    return settings


def settings_from(data: object, source: str) -> TargetSettings:
    """Return checked settings made from plain data. Raises `InvalidConfig` naming `source`."""
    reader = _Reader()
    settings = reader.read(TargetSettings, data, "")
    problems = reader.problems
    if settings is not None:
        # What could not be read was replaced by a default; that default is not to be judged.
        problems = problems + [
            Problem(path, message)
            for path, message in check(settings)
            if not any(
                _within(judged, problem.path)
                for problem in reader.problems
                for judged in (path, *SAME_AS.findall(message))
            )
        ]
    if problems or settings is None:
        raise InvalidConfig(source, problems)
    return settings


def _within(path: str, other: str) -> bool:
    """Whether one of two field paths is the other, or lies inside it."""
    short, long = sorted((path, other), key=len)
    return long.startswith(short) and long[len(short) : len(short) + 1] in ("", ".", "[")


def require_valid(settings: TargetSettings, source: str) -> TargetSettings:
    """Return `settings` when they pass all checks. Raises `InvalidConfig` naming `source`."""
    problems = [Problem(path, message) for path, message in check(settings)]
    if problems:
        raise InvalidConfig(source, problems)
    return settings


def load_config(path: str | Path) -> TargetSettings:
    """Return the checked settings of a TOML file. Raises `InvalidConfig` naming the file."""
    return settings_from(load_toml(path), str(path))


def load_toml(path: str | Path) -> dict[str, Any]:
    """Return the plain data of a TOML file. Raises `InvalidConfig` naming the file."""
    source = str(path)
    text = _read_text(source)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(source, [Problem("", _toml_message(str(error)))]) from None
    except RecursionError:
        message = "found lists nested too deeply, expected a TOML file"
        raise InvalidConfig(source, [Problem("", message)]) from None


def _read_text(source: str) -> str:
    """Read a regular file of bounded size: a device or pipe could block, or never end."""
    try:
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            problem = Problem("", "found something else, expected a regular TOML file")
            raise InvalidConfig(source, [problem])
        with os.fdopen(fd, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        problem = Problem("", f"cannot be read: {reason}, expected a TOML file")
        raise InvalidConfig(source, [problem]) from None
    if len(data) > MAX_FILE_BYTES:
        problem = Problem("", "found more than 4 MiB, expected a TOML file of at most 4 MiB")
        raise InvalidConfig(source, [problem])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = Problem("", f"found a byte that is not UTF-8 at {error.start}, expected UTF-8")
        raise InvalidConfig(source, [problem]) from None


def _toml_message(message: str) -> str:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|(end of document))\)", message)
    if match is None:
        return f"found a fault in the TOML: {message}"
    where = "end of the file" if match[4] else f"line {match[2]}, column {match[3]}"
    return f"{where}: {match[1]}, expected TOML"
