"""`prestage conform`: whether a target keeps the contract."""

from __future__ import annotations

import argparse
from pathlib import Path

from prestage.ext.conform import CHECKS, Check, Report, Result, Tenant, conform
from prestage.host_client.commands import COMMANDS
from prestage.host_client.commands.common import (
    NETWORK_HELP,
    Subparsers,
    add_target,
    address_of,
    command,
    number,
)
from prestage.host_client.commands.show import out
from prestage.host_client.commands.units import parse_span
from prestage.host_client.conform_host import ConformHost
from prestage.host_client.errors import HostError, InvalidRequest
from prestage.host_client.options import Options, default_host_nqn

DESCRIPTION = """Run the conformance kit of PAX against a target: every check names the clause of
ext/SPECIFICATION.md that it stands for. Two hosts connect, which must both be allowed; hints are
given, events are asked for, and no data is written; sets and intents that these hosts had are
forgotten. Exit status: 1 when a MUST failed."""


def add(subparsers: Subparsers) -> None:
    """Add the subcommand."""
    parser = command(subparsers, "conform", COMMANDS["conform"].purpose, _conform)
    parser.description = DESCRIPTION
    add_target(parser, may_write=False, words=NETWORK_HELP)
    parser.add_argument("--other-host-nqn", metavar="NQN", help="of the second host")
    parser.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML, too")
    parser.add_argument(
        "--clause", action="append", default=[], metavar="C", help="only these, e.g. 4.3; several"
    )
    parser.add_argument("--patience", metavar="T", default="10s", help="for anything (10s)")
    parser.add_argument("--seed", type=number, help="repeats a run")


async def _conform(args: argparse.Namespace) -> int:
    if args.target is None:
        raise InvalidRequest("there is none", "TARGET", NETWORK_HELP)
    patience_s = parse_span(args.patience, "--patience")
    for clause in args.clause:
        if not any(_is_chosen(check, [clause]) for check in CHECKS):
            raise InvalidRequest(f"found {clause!r}", "--clause", "one with checks, such as 4.3")
    _check_folder(args.junit)
    address = await address_of(args)
    first = args.host_nqn or default_host_nqn()
    if first == args.other_host_nqn:
        where = "--host-nqn and --other-host-nqn"
        raise InvalidRequest(f"found {first} twice", where, "two different hosts")
    names = {Tenant.FIRST: first, Tenant.SECOND: args.other_host_nqn or f"{first}-other"}

    async def make_host(tenant: Tenant) -> ConformHost:
        options = Options(host_nqn=names[tenant], keep_alive_s=0, timeout_s=max(patience_s, 1.0))
        return await ConformHost(address, options).open()

    report = await conform(
        make_host,
        chosen=lambda check: _is_chosen(check, args.clause),
        progress=(lambda result: None) if args.json else _show,
        patience_s=patience_s,
        seed=args.seed,
    )
    return _tell(report, args)


def _check_folder(junit: str | None) -> None:
    """Refuse a file that has no folder, before the checks run. Raises `HostError`."""
    if junit and not Path(junit).parent.is_dir():
        raise HostError("its folder does not exist", junit)


def _is_chosen(check: Check, clauses: list[str]) -> bool:
    return not clauses or any(
        check.clause == one or check.clause.startswith(f"{one}.") for one in clauses
    )


def _show(result: Result) -> None:
    check = result.check
    out(f"{result.outcome.value:8}{check.clause:8}{check.level.value:7}{check.title}")
    if result.why:
        out(f"{'':23}{result.why}")


def _tell(report: Report, args: argparse.Namespace) -> int:
    out(report.json() if args.json else f"{report.summary} (seed {report.seed})")
    if args.junit:
        try:
            Path(args.junit).write_text(report.junit(), "utf-8")
        except OSError as error:
            raise HostError(error.strerror or str(error), args.junit) from None
    return report.exit_status
