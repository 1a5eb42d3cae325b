"""What the commands share: where the target is, which blocks are meant, and how they run."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from prestage.ext import layout
from prestage.ext.codec import encode_batches, to_page
from prestage.ext.records import Range, Record
from prestage.host_client.address import SCHEME, Address, parse_target
from prestage.host_client.arguments import integer
from prestage.host_client.commands.show import out, out_json
from prestage.host_client.commands.units import parse_ranges, parse_size, uses_bytes
from prestage.host_client.controller import Controller
from prestage.host_client.discovery import subsystems_at
from prestage.host_client.errors import HostError, InvalidHint, InvalidRequest
from prestage.host_client.hint_batches import hint_errors
from prestage.host_client.hint_open import carrier_of
from prestage.host_client.hints import Hints
from prestage.host_client.initiator_carrier import InitiatorCarrier
from prestage.host_client.options import Options

MOST_NSID = 0xFFFFFFFE
MOST_ID = (1 << 64) - 1
EXIT_FAILED = 1
EXIT_USAGE = 2
Subparsers = Any
"""`argparse` has no public name for it."""
Body = Callable[[argparse.Namespace], Coroutine[Any, Any, int]]
NETWORK_HELP = "nvme+tcp://ADDR:PORT/NQN, or ADDR:PORT"
TARGET_HELP = """nvme+tcp://ADDR:PORT/NQN, ADDR:PORT, or a device node: the block device of the
extension namespace, or (as root) /dev/ngXnY"""


def command(subparsers: Subparsers, name: str, words: str, body: Body) -> argparse.ArgumentParser:
    """Add a subcommand that runs a coroutine and knows --json."""
    parser: argparse.ArgumentParser = subparsers.add_parser(name, help=words, description=words)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=lambda args: run(body, args))
    return parser


def add_target(
    parser: argparse.ArgumentParser, *, may_write: bool = True, words: str = TARGET_HELP
) -> None:
    """Add where the target is; `may_write`: or a file for the page instead."""
    parser.add_argument("target", metavar="TARGET", nargs="?", help=words)
    parser.add_argument("--nqn", help="the subsystem; may be left out when there is only one")
    parser.add_argument("--host-nqn", metavar="NQN", help="whose hints these are (this machine's)")
    if may_write:
        parser.add_argument(
            "--output", metavar="FILE", help="write the page there and send nothing"
        )


def add_ranges(parser: argparse.ArgumentParser, *, has_set: bool) -> None:
    """Add which blocks are meant."""
    parser.add_argument(
        "--range",
        metavar="R",
        action="append",
        default=[],
        help="SLBA+NLB in blocks, or OFFSET:LENGTH in bytes, e.g. 128+8 or 1M:64K; several",
    )
    parser.add_argument("--block", metavar="SIZE", help="block size of the namespace, for bytes")
    parser.add_argument("--nsid", type=int, default=1, help="namespace of the ranges (1)")
    if has_set:
        parser.add_argument("--set", type=number, metavar="ID", help="or a set, not 0")


def number(text: str) -> int:
    """Return a number, decimal or with 0x. For argparse."""
    return int(text, 0)


def run(body: Body, args: argparse.Namespace) -> int:
    """Run a command; faults are one sentence on standard error."""
    try:
        return asyncio.run(body(args))
    except (InvalidRequest, InvalidHint) as error:
        return _fail(str(error), EXIT_USAGE)
    except HostError as error:
        return _fail(str(error), EXIT_FAILED)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"prestage: {message}\n")
    return code


@contextlib.asynccontextmanager
async def hints_to(args: argparse.Namespace) -> AsyncIterator[Hints]:
    """Open hints to the target that was named; without PAX every call says so."""
    if args.target is None:
        raise InvalidRequest("there is none", "TARGET", "a target, or --output FILE")
    if "/" in args.target and "://" not in args.target:
        async with Hints(carrier_of(args.target), when_missing="raise") as hints:
            yield hints
        return
    async with (
        Controller(await address_of(args), _options(args)) as controller,
        Hints(InitiatorCarrier(controller), when_missing="raise") as hints,
    ):
        yield hints


def _options(args: argparse.Namespace) -> Options:
    return Options(**({"host_nqn": args.host_nqn} if args.host_nqn else {}))


async def address_of(args: argparse.Namespace) -> Address:
    """Return the subsystem that is meant; the only one of the target when none is named."""
    text = str(args.target)
    named = args.nqn is not None or "/" in text.removeprefix(f"{SCHEME}://")
    if named:
        return parse_target(text, nqn=args.nqn)
    names = await subsystems_at(text, _options(args).host_nqn)
    if len(names) > 1:
        there = ", ".join(names)
        raise InvalidRequest(f"the target has the subsystems: {there}", "--nqn", "one of them")
    return parse_target(text, nqn=names[0])


async def ranges_of(args: argparse.Namespace, hints: Hints | None) -> list[Range]:
    """Return the ranges of the flags; the block size may be known to the target."""
    integer(args.nsid, "--nsid", 1, MOST_NSID)
    block = None if args.block is None else parse_size(args.block, "--block")
    if block is not None and (block < 512 or block & block - 1):
        raise InvalidRequest(f"found {block}", "--block", "a power of two of 512 or more")
    carrier = None if hints is None else hints.carrier
    is_asked = block is not None or uses_bytes(args.range)
    if is_asked and isinstance(carrier, InitiatorCarrier):
        known = (await carrier.controller.namespace(args.nsid)).block_bytes
        if block not in (None, known):
            expected = f"{known}, the block size of namespace {args.nsid}, or no --block"
            raise InvalidRequest(f"found {block}", "--block", expected)
        block = known
    return parse_ranges(args.range, block)


def set_or_ranges(args: argparse.Namespace, ranges: list[Range]) -> int:
    """Return the set that is meant, 0 for `ranges`. Raises `InvalidRequest` unless it is one."""
    if args.set is not None:
        integer(args.set, "--set", 1, MOST_ID)
    if bool(ranges) == (args.set is not None):
        found = "both" if ranges else "none"
        raise InvalidRequest(f"found {found}", "--range and --set", "one of them")
    return args.set or 0


def write_pages(args: argparse.Namespace, records: list[Record]) -> int:
    """Write the pages that say `records`, for somebody else to send."""
    writer = secrets.randbits(64)
    with hint_errors(args.output):
        made = [to_page(one) for one in encode_batches(records, writer=writer, sequence=0)]
        Path(args.output).write_bytes(b"".join(made))
    if args.json:
        found = {"output": args.output, "pages": len(made), "records": len(records)}
        out_json({**found, "writer": writer, "sequence": 0})
    else:
        seek = f"bs={layout.PAGE_BYTES} seek={layout.PAGE_MAILBOXES} oflag=direct"
        pages = "1 page" if len(made) == 1 else f"{len(made)} pages"
        out(f"wrote {pages}; to send: dd if={args.output} of=NODE {seek}")
    return 0
