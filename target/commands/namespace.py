"""`prestage namespace`: the namespaces of a running target."""

from __future__ import annotations

import argparse
import contextlib
import uuid
from pathlib import Path
from typing import Any

import msgspec

from prestage.target.commands.common import (
    Subparsers,
    add_nqn,
    chosen_nqn,
    connect,
    nvm_subsystems,
    remote,
)
from prestage.target.commands.output import out, out_json, table
from prestage.target.errors import Invalid, NotFound, TargetError
from prestage.target.flags import parse_namespace
from prestage.target.rpc.bdev import medium_params
from prestage.target.rpc.client import Client
from prestage.target.sizes import format_size, parse_size


def add(subparsers: Subparsers) -> None:
    """Add the subcommands."""
    group = subparsers.add_parser("namespace", help="add, remove, resize or list namespaces")
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = remote(actions, "add", "add a namespace; connected hosts see it at once", run_add)
    parser.add_argument("namespace", metavar="PATH[,OPT=V]", help="as serve --namespace")
    add_nqn(parser)
    parser = remote(actions, "remove", "remove a namespace", run_remove)
    parser.add_argument("nsid", type=int)
    add_nqn(parser)
    parser = remote(actions, "resize", "change the size of a namespace", run_resize)
    parser.add_argument("nsid", type=int)
    parser.add_argument("size", help="e.g. 8G")
    add_nqn(parser)
    parser = remote(actions, "list", "list the namespaces", run_list)
    parser.add_argument("--nqn", help="only those of this subsystem")


def run_add(args: argparse.Namespace) -> int:
    """Add a namespace: make a bdev for it, and put that into the subsystem."""
    settings = parse_namespace(args.namespace, "namespace")
    if settings.path:
        # The target may have been started in another directory.
        settings = msgspec.structs.replace(settings, path=str(Path(settings.path).absolute()))
    with connect(args) as client:
        nqn = chosen_nqn(client, args.nqn)
        name = f"ns-{uuid.uuid4()}"
        client.call("prestage_bdev_create", name=name, **medium_params(settings))
        wanted: dict[str, Any] = {"bdev_name": name}
        for key in ("nsid", "uuid", "nguid"):
            if getattr(settings, key):
                wanted[key] = getattr(settings, key)
        try:
            nsid = client.call("nvmf_subsystem_add_ns", nqn=nqn, namespace=wanted)
        except TargetError:
            with contextlib.suppress(TargetError):
                client.call("prestage_bdev_delete", name=name)
            raise
    if args.json:
        out_json({"nqn": nqn, "nsid": nsid, "bdev_name": name})
    else:
        out(f"added namespace {nsid} to {nqn}")
    return 0


def run_remove(args: argparse.Namespace) -> int:
    """Remove a namespace, and the bdev that was made for it."""
    with connect(args) as client:
        nqn = chosen_nqn(client, args.nqn)
        name = _find(client, nqn, args.nsid)["bdev_name"]
        client.call("nvmf_subsystem_remove_ns", nqn=nqn, nsid=args.nsid)
        if any(one["name"] == name for one in client.call("bdev_get_bdevs")):
            client.call("prestage_bdev_delete", name=name)
    if args.json:
        out_json({"nqn": nqn, "nsid": args.nsid})
    else:
        out(f"removed namespace {args.nsid} from {nqn}")
    return 0


def run_resize(args: argparse.Namespace) -> int:
    """Change the size of a namespace."""
    try:
        size = parse_size(args.size)
    except ValueError as error:
        raise Invalid(str(error), "size") from None
    with connect(args) as client:
        nqn = chosen_nqn(client, args.nqn)
        _find(client, nqn, args.nsid)
        client.call("prestage_namespace_resize", nqn=nqn, nsid=args.nsid, size=size)
    if args.json:
        out_json({"nqn": nqn, "nsid": args.nsid, "size_bytes": size})
    else:
        out(f"namespace {args.nsid} of {nqn} has {format_size(size)} now")
    return 0


def _find(client: Client, nqn: str, nsid: int) -> dict[str, Any]:
    (subsystem,) = client.call("nvmf_get_subsystems", nqn=nqn)
    numbers = [one["nsid"] for one in subsystem["namespaces"]]
    if nsid not in numbers:
        there = ", ".join(map(str, numbers)) or "none, for it has no namespace"
        raise NotFound(f"there is no namespace {nsid}", nqn, there)
    found: dict[str, Any] = subsystem["namespaces"][numbers.index(nsid)]
    return found


def run_list(args: argparse.Namespace) -> int:
    """List namespaces with their sizes and media."""
    with connect(args) as client:
        if args.nqn is not None:
            chosen_nqn(client, args.nqn)
        bdevs = {one["name"]: one for one in client.call("bdev_get_bdevs")}
        subsystems = nvm_subsystems(client)
    rows = [
        _row(one["nqn"], namespace, bdevs[namespace["bdev_name"]])
        for one in subsystems
        if args.nqn in (None, one["nqn"])
        for namespace in one["namespaces"]
    ]
    if args.json:
        out_json(rows)
        return 0
    cells = [
        (row["nsid"], format_size(row["size_bytes"]), row["block"], _where(row), row["nqn"])
        for row in rows
    ]
    table(("NSID", "SIZE", "BLOCK", "MEDIUM", "SUBSYSTEM"), cells, "no namespaces")
    return 0


def _row(nqn: str, namespace: dict[str, Any], bdev: dict[str, Any]) -> dict[str, Any]:
    (specific,) = bdev["driver_specific"].values()
    return {
        "nqn": nqn,
        "nsid": namespace["nsid"],
        "size_bytes": bdev["num_blocks"] * bdev["block_size"],
        "block": bdev["block_size"],
        "media": specific["media"],
        "path": specific.get("filename", ""),
        "uuid": namespace["uuid"],
        "nguid": namespace["nguid"],
        "bdev_name": bdev["name"],
    }


def _where(row: dict[str, Any]) -> str:
    if not row["path"]:
        return str(row["media"])
    return str(row["path"]) if row["media"] == "file" else f"{row['media']}:{row['path']}"
