"""The flags of `prestage serve`, and how they go over the configuration file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from prestage.target.config import (
    InvalidConfig,
    Problem,
    convert,
    load_config,
    require_valid,
    unknown,
)
from prestage.target.config_checks import listed
from prestage.target.media_options import FAULT_OPTIONS, MEDIA_OPTIONS
from prestage.target.settings import (
    DEFAULT_NQN,
    ListenerSettings,
    NamespaceSettings,
    SubsystemSettings,
    TargetSettings,
)
from prestage.target.sizes import quote

DEFAULT_PORT = 4420
DEFAULT_IMAGE = "default.img"
DEFAULT_IMAGE_BYTES = 4 << 30

ADDRESS = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<four>[^:\[\]]*))(?::(?P<port>[0-9]{1,5}))?")
TRUE = frozenset(("", "1", "true", "yes", "on"))
FALSE = frozenset(("0", "false", "no", "off"))
NAMES = {"write": "write_policy", "readonly": "read_only"}
"""Short names of fields, in a namespace flag only."""
OWN_OPTIONS = frozenset(name for options in MEDIA_OPTIONS.values() for name in options)


class UsageError(InvalidConfig):
    """A flag is wrong; `source` is the flag."""


@dataclass(frozen=True)
class ServeFlags:
    """What was given on the command line; None or empty: not given."""

    config: str | None = None
    listen: Sequence[str] = ()
    nqn: str | None = None
    namespace: Sequence[str] = ()
    dram: str | None = None
    reactors: int | None = None
    extension: bool = False
    prestager: bool = True
    """False: `--no-prestager`."""
    control_socket: str | None = None
    state_directory: str | None = None


def settings_from_flags(flags: ServeFlags) -> TargetSettings:
    """Return the settings: the file's, or the embedded default, with the flags over them.

    Raises `InvalidConfig`, and `UsageError` for a flag.
    """
    settings = load_config(flags.config) if flags.config is not None else TargetSettings()
    changes: dict[str, Any] = {}
    if flags.state_directory is not None:
        changes["state_directory"] = flags.state_directory
    if flags.control_socket is not None:
        changes["control_socket"] = flags.control_socket
    if flags.reactors is not None:
        changes["reactors"] = flags.reactors
    if flags.listen:
        changes["listeners"] = [parse_listener(text, "--listen") for text in flags.listen]
    if flags.dram is not None:
        changes["tier"] = _tier(settings, flags.dram)
    if not flags.prestager:
        changes["prestager"] = msgspec.structs.replace(settings.prestager, enabled=False)
    settings = msgspec.structs.replace(settings, **changes)
    settings = msgspec.structs.replace(settings, subsystems=_subsystems(settings, flags))
    try:
        return require_valid(settings, "command line")
    except InvalidConfig as error:
        raise UsageError(error.source, error.problems) from None


def _tier(settings: TargetSettings, dram: str) -> Any:
    try:
        given = convert(TargetSettings, {"tier": {"size": dram}}, "--dram")
    except InvalidConfig as error:
        raise _usage("--dram", error.problems[0].message) from None
    return msgspec.structs.replace(settings.tier, size=given.tier.size)


def _subsystems(settings: TargetSettings, flags: ServeFlags) -> list[SubsystemSettings]:
    namespaces = [parse_namespace(text, "--namespace") for text in flags.namespace]
    subsystems = list(settings.subsystems)
    if flags.config is None:
        found = namespaces or [default_namespace(settings.state_directory)]
        return [_subsystem(flags, found)]
    if not namespaces and flags.nqn is None and not flags.extension:
        return subsystems
    if not subsystems:
        return [_subsystem(flags, namespaces)]
    index = _chosen(subsystems, flags.nqn)
    changes: dict[str, Any] = {"nqn": flags.nqn or subsystems[index].nqn}
    if namespaces:
        changes["namespaces"] = namespaces
    if flags.extension:
        changes["extension"] = True
    subsystems[index] = msgspec.structs.replace(subsystems[index], **changes)
    return subsystems


def _subsystem(flags: ServeFlags, namespaces: list[NamespaceSettings]) -> SubsystemSettings:
    return SubsystemSettings(
        nqn=flags.nqn or DEFAULT_NQN, namespaces=namespaces, extension=flags.extension
    )


def _chosen(subsystems: list[SubsystemSettings], nqn: str | None) -> int:
    """Return which subsystem of the file the flags are about."""
    if len(subsystems) == 1:
        return 0
    names = [one.nqn for one in subsystems]
    if nqn in names:
        return names.index(nqn)
    found = "none" if nqn is None else quote(nqn, 240)
    raise _usage("--nqn", f"found {found}, expected one of {', '.join(names)}")


def default_namespace(state_directory: str) -> NamespaceSettings:
    """Return the namespace of the embedded default: a sparse file, of 4 GiB when it is new.

    One that is there may have been resized, and keeps its size.
    """
    path = Path(state_directory) / DEFAULT_IMAGE
    try:
        is_new = path.stat().st_size == 0
    except (OSError, ValueError):
        is_new = True
    return NamespaceSettings(path=str(path), nsid=1, size=DEFAULT_IMAGE_BYTES if is_new else 0)


def _usage(flag: str, message: str, path: str = "") -> UsageError:
    return UsageError(flag, [Problem(path, message)])


def parse_address(text: str, flag: str) -> tuple[str, int | None]:
    """Split ADDR:PORT, [ADDR]:PORT or a bare address. Raises `UsageError` naming `flag`."""
    match = ADDRESS.fullmatch(text)
    if match is None and text.count(":") > 1 and "]" not in text:
        expected = f"brackets around an IPv6 address: [{text}]:{DEFAULT_PORT}"
        raise _usage(flag, f"found {quote(text)}, expected {expected}")
    if match is None:
        expected = "ADDRESS:PORT such as 127.0.0.1:4420 or [::1]:4420"
        raise _usage(flag, f"found {quote(text)}, expected {expected}")
    address = match["six"] if match["six"] is not None else match["four"]
    return address, int(match["port"]) if match["port"] else None


def parse_listener(text: str, flag: str) -> ListenerSettings:
    """Return the listener that a text such as "[::1]:4420" names. Raises `UsageError`."""
    address, port = parse_address(text, flag)
    listener = ListenerSettings(address=address, port=DEFAULT_PORT if port is None else port)
    for _, message in listed(listener):
        raise _usage(flag, f"{quote(text)}: {message}")
    return listener


def parse_namespace(text: str, flag: str) -> NamespaceSettings:
    """Return the namespace that PATH[,NAME=VALUE]... describes. Raises `UsageError`.

    PATH may begin with the medium: "ram:", "model:PATH". A comma in it is written %2C and a
    percent sign %25. "fault=" gives a fault wrapper, with ";" between its options.
    """
    head, *parts = text.split(",")
    media, colon, path = head.partition(":")
    data: dict[str, Any] = {"faults": [], "media_options": {}}
    if colon and media in MEDIA_OPTIONS:
        data["media"] = media
    else:
        path = head
    data["path"] = path.replace("%2C", ",").replace("%7C", "|").replace("%25", "%")
    for part in parts:
        name, _, value = part.partition("=")
        name = NAMES.get(name, name)
        if name != "fault" and (name in data or name in data["media_options"]):
            raise _usage(flag, "given twice, expected once", name)
        _take_option(data, name, value, flag)
    data = {name: value for name, value in data.items() if value != [] and value != {}}
    try:
        settings = convert(NamespaceSettings, data, flag)
        problems = [Problem(path, message) for path, message in listed(settings)]
    except InvalidConfig as error:
        problems = error.problems
    if problems:
        raise UsageError(f"{flag} {text}", problems)
    return settings


def _take_option(data: dict[str, Any], name: str, value: str, flag: str) -> None:
    if name == "fault":
        data["faults"].append(value.replace(";", ","))
    elif name in OWN_OPTIONS:
        data["media_options"][name] = value
    elif name == "read_only":
        data[name] = _boolean(value, flag)
    elif name == "nsid":
        if not (value.isascii() and value.isdigit() and len(value) <= 10):
            raise _usage(flag, f"found {quote(value)}, expected a whole number", "nsid")
        data[name] = int(value)
    elif name in NamespaceSettings.__struct_fields__ and name not in ("faults", "media_options"):
        data[name] = value
    else:
        own = dict.fromkeys(NamespaceSettings.__struct_fields__)
        known = {n: None for n in own if n not in ("path", "faults", "media_options")}
        every = {**known, "fault": None, **dict.fromkeys(sorted(OWN_OPTIONS))}
        raise _usage(flag, unknown(name, every).replace("field", "option"), name or '""')


def _boolean(value: str, flag: str) -> bool:
    if value.lower() in TRUE | FALSE:
        return value.lower() in TRUE
    raise _usage(flag, f"found {quote(value)}, expected true or false", "read_only")


assert not OWN_OPTIONS & FAULT_OPTIONS.keys()
