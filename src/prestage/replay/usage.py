"""Flags of `prestage replay` that must fit each other, before hours of work are begun."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from prestage.replay.compare import MACHINE, check_policies
from prestage.replay.hint_plans import Hint
from prestage.target.errors import InvalidFlag

__all__ = ["check_said", "check_usage"]


def check_usage(args: argparse.Namespace, policies: Sequence[str]) -> None:
    """Raise InvalidFlag where flags say nothing together, and TargetError without matplotlib."""
    check_policies(policies)
    if args.speed is not None and not (args.live or args.write_config):
        raise InvalidFlag("nothing goes over the wire", "--speed", "--live or --write-config too")
    if args.overwrite and not args.live:
        raise InvalidFlag("nothing goes over the wire", "--overwrite", "--live ADDR:PORT too")
    served = {each.startswith("prestage") for each in args.policy or () if each in MACHINE}
    if args.write_config and len(served) > 1:
        found = "found some with and some without the prestager"
        raise InvalidFlag(found, "--policy", "those of one target with --write-config")
    if args.plot:
        from prestage.replay.plots import matplotlib

        matplotlib()


def check_said(hints: Sequence[Hint], policies: Sequence[str]) -> None:
    """Raise InvalidFlag when a policy is about hints and hosts say nothing."""
    hinted = [each for each in policies if each.endswith("hints")]
    if hinted and not hints:
        raise InvalidFlag("hosts say nothing", f"--policy {hinted[0]}", "--hints PLAN too")
