"""`prestage outcome`: what became of intents."""

from __future__ import annotations

import argparse

from prestage.ext.records import Outcome
from prestage.host_client.arguments import integer
from prestage.host_client.commands import COMMANDS
from prestage.host_client.commands.common import (
    MOST_ID,
    Subparsers,
    add_target,
    command,
    hints_to,
    number,
    write_pages,
)
from prestage.host_client.commands.show import out, out_json, outcome_line


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "outcome", COMMANDS["outcome"].purpose, _outcome)
    add_target(parser)
    parser.add_argument(
        "--id", type=number, action="append", required=True, help="of an intent; several"
    )
    parser.add_argument("--wait", action="store_true", help="until none is pending any more")


async def _outcome(args: argparse.Namespace) -> int:
    for one in args.id:
        integer(one, "--id", 1, MOST_ID)
    if args.output:
        return write_pages(args, [Outcome(one) for one in args.id])
    async with hints_to(args) as hints:
        if args.wait:
            answers = [await hints.ended(one) for one in args.id]
        else:
            answers = await hints.outcomes(args.id)
    if args.json:
        out_json(answers)
    else:
        for answer in answers:
            out(outcome_line(answer))
    return 0
