"""`prestage listener`: where a running target listens."""

from __future__ import annotations

import argparse

from prestage.target.commands.common import Subparsers, connect, remote
from prestage.target.commands.output import out, out_json, table
from prestage.target.errors import Invalid, InvalidFlag
from prestage.target.flags import parse_address, parse_listener
from prestage.target.rpc.client import Client
from prestage.target.rpc.view import ListenerView
from prestage.target.settings import DISCOVERY_NQN, ListenerSettings


def add(subparsers: Subparsers) -> None:
    """Add the subcommands."""
    group = subparsers.add_parser("listener", help="add, remove or list listeners")
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = remote(actions, "add", "listen on an address too, for all subsystems", run_add)
    parser.add_argument("address", metavar="ADDR:PORT")
    parser = remote(actions, "remove", "stop listening on an address", run_remove)
    parser.add_argument("address", metavar="ADDR:PORT")
    remote(actions, "list", "list the addresses listened on", run_list)


def listeners(client: Client) -> list[ListenerView]:
    """Return where a target listens."""
    found = client.call("nvmf_subsystem_get_listeners", nqn=DISCOVERY_NQN)
    addresses = [one["address"] for one in found]
    return [ListenerView(one["traddr"], int(one["trsvcid"])) for one in addresses]


def _given(text: str) -> ListenerSettings:
    """Return the listener that was written. Raises `UsageError` and `InvalidFlag`."""
    settings = parse_listener(text, "address")
    if settings.port == 0:
        raise InvalidFlag(f"found port 0 in {text}", "address", "a port, 1 to 65535")
    return settings


def run_add(args: argparse.Namespace) -> int:
    """Listen on an address."""
    settings = _given(args.address)
    with connect(args) as client:
        before = listeners(client)
        client.call(
            "nvmf_subsystem_add_listener",
            nqn=DISCOVERY_NQN,
            listen_address=_address(settings.address, settings.port),
        )
        # One that was there already is no error of the method, so what is new is found by looking.
        new = [one for one in listeners(client) if one not in before]
    if args.json:
        out_json([{"address": one.address, "port": one.port} for one in new])
        return 0
    for one in new:
        out(f"listening on {one.text}")
    if not new:
        out(f"listening on {args.address} already")
    return 0


def run_remove(args: argparse.Namespace) -> int:
    """Stop listening on an address."""
    settings = _given(args.address)
    if parse_address(args.address, "address")[1] is None:
        raise Invalid(f"found no port in {args.address}", "address", "ADDRESS:PORT")
    with connect(args) as client:
        client.call(
            "nvmf_subsystem_remove_listener",
            nqn=DISCOVERY_NQN,
            listen_address=_address(settings.address, settings.port),
        )
    if args.json:
        out_json({"address": settings.address, "port": settings.port})
    else:
        out(f"not listening on {ListenerView(settings.address, settings.port).text} any more")
    return 0


def _address(address: str, port: int) -> dict[str, str]:
    family = ListenerView(address, port).family
    return {"trtype": "TCP", "adrfam": family, "traddr": address, "trsvcid": str(port)}


def run_list(args: argparse.Namespace) -> int:
    """List listeners."""
    with connect(args) as client:
        found = listeners(client)
    if args.json:
        out_json([{"address": one.address, "port": one.port} for one in found])
    else:
        rows = [(one.address, one.port, one.family) for one in found]
        table(("ADDRESS", "PORT", "FAMILY"), rows, "no listeners")
    return 0
