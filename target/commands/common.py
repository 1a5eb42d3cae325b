"""What several subcommands share: their common flags, and the target that they speak to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from prestage.target.errors import Invalid, NotFound
from prestage.target.rpc.client import DEFAULT_SOCKET, ENVIRONMENT, Client, socket_path
from prestage.target.settings import DISCOVERY_NQN

Run = Callable[[argparse.Namespace], int]
Subparsers = Any
"""`argparse` has no public name for it."""


def command(subparsers: Subparsers, name: str, words: str, run: Run) -> argparse.ArgumentParser:
    """Add a subcommand that prints, and so knows --json."""
    parser: argparse.ArgumentParser = subparsers.add_parser(name, help=words, description=words)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)
    return parser


def remote(subparsers: Subparsers, name: str, words: str, run: Run) -> argparse.ArgumentParser:
    """Add a subcommand that speaks to a running target."""
    parser = command(subparsers, name, words, run)
    parser.add_argument(
        "--control-socket",
        metavar="PATH",
        help=f"of the target; else ${ENVIRONMENT}, else {DEFAULT_SOCKET}",
    )
    return parser


def connect(args: argparse.Namespace) -> Client:
    """Return a connection to the target that the flags name. Raises `ClientError`."""
    return Client(socket_path(args.control_socket))


def nvm_subsystems(client: Client) -> list[dict[str, Any]]:
    """Return the subsystems of a target, without the discovery subsystem."""
    found: list[dict[str, Any]] = client.call("nvmf_get_subsystems")
    return [one for one in found if one["nqn"] != DISCOVERY_NQN]


def chosen_nqn(client: Client, nqn: str | None) -> str:
    """Return the subsystem to work on: as given, else the only one. Raises `TargetError`."""
    names: list[str] = [one["nqn"] for one in nvm_subsystems(client)]
    if nqn is not None:
        if nqn not in names:
            there = ", ".join(names) or "none, for the target has no subsystem"
            raise NotFound(f"there is no subsystem {nqn}", "--nqn", there)
        return nqn
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFound("the target has no subsystem")
    raise Invalid("the target has several subsystems", "--nqn", f"one of {', '.join(names)}")


def add_nqn(parser: argparse.ArgumentParser) -> None:
    """Add --nqn, which says which subsystem is meant."""
    parser.add_argument("--nqn", help="the subsystem; may be left out when there is only one")
