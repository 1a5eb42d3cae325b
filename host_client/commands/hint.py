"""`prestage hint`: say what belongs together, and what is needed by when."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from prestage.ext.names import SetOp
from prestage.ext.records import OutcomeAnswer, Range, Record
from prestage.ext.rules import MOST_CONFIDENCE, TARGET_SET
from prestage.host_client import hint_records as make
from prestage.host_client.arguments import integer
from prestage.host_client.commands import COMMANDS
from prestage.host_client.commands.common import (
    MOST_ID,
    Body,
    Subparsers,
    add_ranges,
    add_target,
    command,
    hints_to,
    number,
    ranges_of,
    set_or_ranges,
    write_pages,
)
from prestage.host_client.commands.json_records import read_records
from prestage.host_client.commands.pages import add_decode
from prestage.host_client.commands.show import (
    PRIORITIES,
    answer_line,
    out,
    out_json,
    report_line,
    status_lines,
)
from prestage.host_client.commands.units import parse_span
from prestage.host_client.errors import InvalidRequest

Make = Callable[[argparse.Namespace, list[Range]], list[Record]]
"""Makes the records of a command."""


def add(subparsers: Subparsers) -> None:
    """Add the subcommands."""
    group = subparsers.add_parser("hint", help=COMMANDS["hint"].purpose)
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_set(actions)
    _add_sign(actions)
    _add_intend(actions)
    _add_retain(actions)
    _add_cancel(actions)
    _add_batch(actions)
    _add_status(actions)
    add_decode(actions)


def _says(make_records: Make) -> Body:
    """Return a command that sends what `make_records` makes, or writes it to --output."""

    async def body(args: argparse.Namespace) -> int:
        if args.output:
            return write_pages(args, make_records(args, await ranges_of(args, None)))
        async with hints_to(args) as hints:
            records = make_records(args, await ranges_of(args, hints))
            report = await hints.submit(records)
            answers = list(report.answers)
            outcomes = [one for one in answers if isinstance(one, OutcomeAnswer)]
            if getattr(args, "wait", False):
                outcomes = [await hints.ended(one.intent_id) for one in outcomes]
                answers = list(outcomes)
        if args.json:
            out_json({"report": report, "outcomes": outcomes})
        else:
            out(report_line(report))
            for answer in answers:
                out(answer_line(answer))
        return 0

    return body


def _span(text: str | None, where: str) -> float | None:
    return None if text is None else parse_span(text, where)


# ---- sets ----


def _add_set(actions: Subparsers) -> None:
    parser = command(actions, "set", "define, extend or drop a set of blocks", _says(_set))
    add_target(parser)
    add_ranges(parser, has_set=False)
    parser.add_argument("--id", type=number, required=True, help="of the set, not 0")
    parser.add_argument("--extend", action="store_true", help="append the ranges to it")
    parser.add_argument("--drop", action="store_true", help="forget it")
    parser.add_argument("--ordered", action="store_true", help="it is read in this order")
    parser.add_argument("--ttl", metavar="T", help="forget it after this, e.g. 10min")


def _set(args: argparse.Namespace, ranges: list[Range]) -> list[Record]:
    if args.extend and args.drop:
        raise InvalidRequest("found both", "--extend and --drop", "one of them")
    if bool(ranges) == args.drop:
        raise InvalidRequest(f"found {len(ranges)}", "--range", "some, and none with --drop")
    integer(args.id, "--id", 1, TARGET_SET - 1)
    op = SetOp.EXTEND if args.extend else SetOp.DROP if args.drop else SetOp.DEFINE
    return [
        make.set_record(
            op,
            args.id,
            ranges,
            nsid=args.nsid,
            ordered=args.ordered,
            ttl=_span(args.ttl, "--ttl"),
        )
    ]


def _add_sign(actions: Subparsers) -> None:
    parser = command(actions, "sign", "attach a locality signature to blocks", _says(_sign))
    add_target(parser)
    add_ranges(parser, has_set=False)
    parser.add_argument(
        "--vector", required=True, metavar="HEX", help="8 or 16 bytes, lowest bits first"
    )
    parser.add_argument("--family", type=number, default=0, help="of the hash (0)")
    parser.add_argument("--ttl", metavar="T", help="forget it after this")


def _sign(args: argparse.Namespace, ranges: list[Range]) -> list[Record]:
    try:
        vector = bytes.fromhex(args.vector)
    except ValueError:
        raise InvalidRequest(f"found {args.vector!r}", "--vector", "hex digits") from None
    if len(vector) not in (8, 16) or not ranges:
        text = f"found {len(vector)} bytes and {len(ranges)} ranges"
        raise InvalidRequest(text, "--vector and --range", "8 or 16 bytes, at least one range")
    integer(args.family, "--family", 0, 0xFFFF)
    ttl = _span(args.ttl, "--ttl")
    return [
        make.signature_record(args.nsid, one.slba, one.nlb, vector, family=args.family, ttl=ttl)
        for one in ranges
    ]


# ---- intents ----


def _add_intend(actions: Subparsers) -> None:
    parser = command(
        actions, "intend", "say that blocks, or a set, are needed by a deadline", _says(_intend)
    )
    add_target(parser)
    add_ranges(parser, has_set=True)
    parser.add_argument("--deadline", required=True, metavar="T", help="from now, e.g. 50ms")
    parser.add_argument("--priority", choices=PRIORITIES, default="medium", help="(medium)")
    parser.add_argument("--confidence", type=int, default=0, help="percent that it is read")
    parser.add_argument("--session", type=number, default=0, help="opaque number")
    parser.add_argument("--late-ok", action="store_true", help="wanted after the deadline too")
    parser.add_argument("--prefix", action="store_true", help="the first part that can is wanted")
    parser.add_argument("--id", type=number, help="of the intent, not 0 (a random one)")
    parser.add_argument("--wait", action="store_true", help="until it is not pending any more")


def _intend(args: argparse.Namespace, ranges: list[Range]) -> list[Record]:
    if args.id is not None:
        integer(args.id, "--id", 1, MOST_ID)
    integer(args.confidence, "--confidence", 0, MOST_CONFIDENCE)
    integer(args.session, "--session", 0, MOST_ID)
    return [
        make.intent_record(
            ranges,
            set_id=set_or_ranges(args, ranges),
            nsid=args.nsid,
            deadline_us=make.span_us(parse_span(args.deadline, "--deadline"), None),
            priority=PRIORITIES.index(args.priority),
            confidence=args.confidence,
            session=args.session,
            late_ok=args.late_ok,
            prefix=args.prefix,
            intent_id=args.id,
        )
    ]


def _add_retain(actions: Subparsers) -> None:
    parser = command(actions, "retain", "keep near what is warm now", _says(_retain))
    add_target(parser)
    add_ranges(parser, has_set=True)
    parser.add_argument("--duration", required=True, metavar="T", help="how long, e.g. 10s")


def _retain(args: argparse.Namespace, ranges: list[Range]) -> list[Record]:
    set_id = set_or_ranges(args, ranges)
    duration = parse_span(args.duration, "--duration")
    return [make.retain_record(ranges, set_id=set_id, nsid=args.nsid, duration=duration)]


def _add_cancel(actions: Subparsers) -> None:
    parser = command(actions, "cancel", "withdraw intents, or everything", _says(_cancel))
    add_target(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--id", type=number, help="this intent")
    which.add_argument("--session", type=number, help="the intents of this session")
    which.add_argument("--intents", action="store_true", help="all intents")
    which.add_argument("--everything", action="store_true", help="sets and signatures too")
    parser.set_defaults(range=[], block=None, nsid=1)


def _cancel(args: argparse.Namespace, ranges: list[Range]) -> list[Record]:
    for value, name in ((args.id, "--id"), (args.session, "--session")):
        if value is not None:
            integer(value, name, 1, MOST_ID)
    return [
        make.cancel_record(args.id, args.session, intents=args.intents, everything=args.everything)
    ]


# ---- many records; what the target says of itself ----


def _add_batch(actions: Subparsers) -> None:
    parser = command(
        actions, "batch", "send many records, from a file of JSON lines", _says(_batch)
    )
    add_target(parser)
    parser.add_argument("--input", metavar="FILE", default="-", help="(standard input)")
    parser.set_defaults(range=[], block=None, nsid=1)


def _batch(args: argparse.Namespace, ranges: list[Range]) -> list[Record]:
    return read_records(args.input)


def _add_status(actions: Subparsers) -> None:
    parser = command(actions, "status", "show budgets and counters of this host", _status)
    add_target(parser, may_write=False)


async def _status(args: argparse.Namespace) -> int:
    async with hints_to(args) as hints:
        status = await hints.status()
    if args.json:
        out_json(status)
    else:
        for line in status_lines(status):
            out(line)
    return 0
