"""Say that the target is ready: to people, to programs, to whoever waits on a pipe."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from prestage.target.errors import Invalid
from prestage.target.rpc import view
from prestage.target.sizes import counted, format_size

MOST_COMMANDS = 24
"""Lines of the banner that say how to connect."""


def report(target: view.TargetLike, control_socket: str) -> dict[str, Any]:
    """Return everything that a user of the target needs to know, as plain data."""
    bound = view.listeners(target)
    found = view.subsystems(target)
    reached = [one for each in bound for one in view.reached_by(target, each)]
    return {
        "ready": True,
        "pid": os.getpid(),
        "listeners": [{"address": one.address, "port": one.port} for one in bound],
        "reached_by": [{"address": one.address, "port": one.port} for one in reached],
        "discover": [discover_line(one) for one in reached],
        "connect": [connect_line(one, each.nqn) for each in found for one in reached],
        "subsystems": [_subsystem(each) for each in found],
        "control_socket": os.path.abspath(control_socket),  # noqa: PTH100 - links stay as given
        "state_directory": str(Path(target.settings.state_directory).absolute()),
        "dram_bytes": target.settings.tier.size,
        "warnings": list(target.warnings),
    }


def _subsystem(found: view.SubsystemView) -> dict[str, Any]:
    return {
        "nqn": found.nqn,
        "serial": found.serial,
        "model": found.model,
        "allow_any_host": found.allow_any_host,
        "hosts": found.hosts,
        "extension_nsid": found.extension_nsid,
        "namespaces": [
            {
                "nsid": one.nsid,
                "media": one.settings.media,
                "path": one.settings.path and str(Path(one.settings.path).absolute()),
                "size_bytes": one.size_bytes,
                "block": one.block,
                "uuid": one.uuid,
            }
            for one in found.namespaces
        ],
    }


def discover_line(bound: view.ListenerView) -> str:
    """Return the nvme-cli command that discovers the target."""
    return f"nvme discover -t tcp -a {bound.address} -s {bound.port}"


def connect_line(bound: view.ListenerView, nqn: str) -> str:
    """Return the nvme-cli command that connects to a subsystem."""
    return f"nvme connect -t tcp -a {bound.address} -s {bound.port} -n {nqn}"


def banner(ready: dict[str, Any]) -> list[str]:
    """Return a report as the lines that people read. The first is "ready"."""
    lines = ["ready"]
    bound = [view.ListenerView(one["address"], one["port"]) for one in ready["listeners"]]
    lines += [f"  listening on    {one.text}" for one in bound]
    for each in ready["subsystems"]:
        hosts = "any host" if each["allow_any_host"] else counted(len(each["hosts"]), "hosts")
        lines.append(f"  subsystem       {each['nqn']} (serial {each['serial']}, {hosts})")
        lines += [f"    namespace {_namespace(one)}" for one in each["namespaces"]]
        if each["extension_nsid"]:
            lines.append(f"    namespace {each['extension_nsid']}, the extension: for hints")
    lines.append(f"  DRAM tier       {format_size(ready['dram_bytes'])}")
    lines.append(f"  control socket  {ready['control_socket']}")
    lines.append(f"  state           {ready['state_directory']}")
    lines += [f"  warning: {warning}" for warning in ready["warnings"]]
    lines.append("connect with")
    commands = [*ready["discover"], *ready["connect"]]
    lines += [f"  {line}" for line in commands[:MOST_COMMANDS]]
    if len(commands) > MOST_COMMANDS:
        lines.append(f"  and {len(commands) - MOST_COMMANDS} more, as serve --json says")
    return lines


def _namespace(one: dict[str, Any]) -> str:
    where = one["path"] or "memory"
    kind = "" if one["media"] == "file" else f", {one['media']}"
    size = format_size(one["size_bytes"])
    return f"{one['nsid']:<4}  {where} ({size}, {one['block']} B blocks{kind})"


def check_fd(fd: int) -> None:
    """Raise `Invalid` unless `fd` is an open descriptor that can be written."""
    try:
        os.write(fd, b"")
    except OSError as error:
        raise Invalid(f"found {fd}: {error.strerror}", "--ready-fd", "an open pipe") from None


def write_fd(fd: int, ready: dict[str, Any]) -> bool:
    """Write the report, as a line of JSON, and close `fd`; return whether it was taken."""
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.encode(ready) + b"\n")
    except OSError:
        # Whoever asked to be told has gone.
        return False
    return True
