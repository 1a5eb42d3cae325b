"""`prestage host`: which hosts may connect to a running target."""

from __future__ import annotations

import argparse

from prestage.target.commands.common import (
    Subparsers,
    add_nqn,
    chosen_nqn,
    connect,
    nvm_subsystems,
    remote,
)
from prestage.target.commands.output import out, out_json, table


def add(subparsers: Subparsers) -> None:
    """Add the subcommands."""
    group = subparsers.add_parser("host", help="allow, deny or list hosts")
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, words, run in (
        ("allow", "let a host connect", run_allow),
        ("deny", "let a host connect no more, and disconnect it", run_deny),
    ):
        parser = remote(actions, name, words, run)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("host", metavar="HOSTNQN", nargs="?")
        which.add_argument("--any", action="store_true", help="all hosts, listed or not")
        add_nqn(parser)
    parser = remote(actions, "list", "list the hosts that may connect", run_list)
    parser.add_argument("--nqn", help="only those of this subsystem")


def run_allow(args: argparse.Namespace) -> int:
    """Put a host on the list, or let any host connect."""
    return _change(args, allow=True)


def run_deny(args: argparse.Namespace) -> int:
    """Take a host off the list, or let only the listed ones connect."""
    return _change(args, allow=False)


def _change(args: argparse.Namespace, *, allow: bool) -> int:
    with connect(args) as client:
        nqn = chosen_nqn(client, args.nqn)
        if args.any:
            client.call("nvmf_subsystem_allow_any_host", nqn=nqn, allow_any_host=allow)
        else:
            verb = "add" if allow else "remove"
            client.call(f"nvmf_subsystem_{verb}_host", nqn=nqn, host=args.host)
    who = "any host" if args.any else args.host
    if args.json:
        out_json({"nqn": nqn, "host": None if args.any else args.host, "allowed": allow})
    elif allow:
        out(f"{who} may connect to {nqn}")
    else:
        out(f"{'only listed hosts' if args.any else who} may {_no(args)}connect to {nqn}")
    return 0


def _no(args: argparse.Namespace) -> str:
    return "" if args.any else "not "


def run_list(args: argparse.Namespace) -> int:
    """List hosts for each subsystem."""
    with connect(args) as client:
        if args.nqn is not None:
            chosen_nqn(client, args.nqn)
        found = [one for one in nvm_subsystems(client) if args.nqn in (None, one["nqn"])]
    if args.json:
        out_json(
            [
                {
                    "nqn": one["nqn"],
                    "allow_any_host": one["allow_any_host"],
                    "hosts": [host["nqn"] for host in one["hosts"]],
                }
                for one in found
            ]
        )
        return 0
    rows = [
        (host, one["nqn"])
        for one in found
        for host in [
            *(["(any host)"] if one["allow_any_host"] else []),
            *(host["nqn"] for host in one["hosts"]),
        ]
    ]
    table(("HOST", "SUBSYSTEM"), rows, "no host may connect")
    return 0
