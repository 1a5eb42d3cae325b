"""`prestage residency`: how much of some blocks, or of a set, is warm."""

from __future__ import annotations

import argparse

from prestage.host_client import hint_records as make
from prestage.host_client.commands import COMMANDS
from prestage.host_client.commands.common import (
    Subparsers,
    add_ranges,
    add_target,
    command,
    hints_to,
    ranges_of,
    set_or_ranges,
    write_pages,
)
from prestage.host_client.commands.show import out, out_json, residency_line


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "residency", COMMANDS["residency"].purpose, _residency)
    add_target(parser)
    add_ranges(parser, has_set=True)


async def _residency(args: argparse.Namespace) -> int:
    if args.output:
        ranges = await ranges_of(args, None)
        set_id = set_or_ranges(args, ranges)
        return write_pages(args, [make.residency_record(ranges, set_id=set_id, nsid=args.nsid)])
    async with hints_to(args) as hints:
        ranges = await ranges_of(args, hints)
        set_id = set_or_ranges(args, ranges)
        answer = await hints.residency(ranges, set_id=set_id, nsid=args.nsid)
    if args.json:
        out_json(answer)
    else:
        out(residency_line(answer))
    return 0
