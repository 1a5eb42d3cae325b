"""`prestage check-config`: say what is wrong with a configuration, changing nothing."""

from __future__ import annotations

import argparse
import sys

from prestage.target.commands.common import Subparsers, command
from prestage.target.commands.output import out, out_json
from prestage.target.config import InvalidConfig, load_config
from prestage.target.sizes import counted


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "check-config", "check a configuration file", run)
    parser.add_argument("file", metavar="FILE", help="TOML configuration")


def run(args: argparse.Namespace) -> int:
    """Check; returns 0 when the file can be served from."""
    try:
        settings = load_config(args.file)
    except InvalidConfig as error:
        if args.json:
            problems = [{"path": one.path, "message": one.message} for one in error.problems]
            out_json({"file": args.file, "ok": False, "errors": problems})
        else:
            sys.stderr.write(f"{error}\n")
        return 1
    namespaces = sum(len(one.namespaces) for one in settings.subsystems)
    counts = {
        "listeners": len(settings.listeners),
        "subsystems": len(settings.subsystems),
        "namespaces": namespaces,
    }
    if args.json:
        out_json({"file": args.file, "ok": True, "errors": [], **counts})
    else:
        listed = ", ".join(counted(count, name) for name, count in counts.items())
        out(f"{args.file}: good ({listed})")
    return 0
