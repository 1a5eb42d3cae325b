"""Flags of `prestage replay` that must fit each other and the trace, before hours of work."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Final

from prestage.replay.compare import HINTED, MACHINE, check_policies
from prestage.replay.generators import is_generator
from prestage.replay.hint_plans import Hint
from prestage.replay.result import Regime
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid, InvalidFlag

__all__ = ["LEAST_BLOCKS", "OWN", "check_demand", "check_room", "check_said", "check_usage"]

OWN: Final = "own"
"""For --live: a target of our own, a fresh one for each policy."""
LEAST_BLOCKS: Final = 8
"""Of a tier that is simulated; one that is served has LEAST_SERVED."""
LEAST_SPAN_S: Final = 1e-6
"""From the first access to the last: clocks count nanoseconds, and have to tell them apart."""
MOST_FLASH_S: Final = 4e9
"""That the flash may take for all reads: clocks that count nanoseconds go as far."""


def check_usage(args: argparse.Namespace, policies: Sequence[str]) -> None:
    """Raise InvalidFlag where flags say nothing together, and TargetError without matplotlib."""
    check_policies(policies)
    _check_wire(args)
    if args.hints is not None:
        _check_hinted(args, policies)
    served = {each.startswith("prestage") for each in args.policy or () if each in MACHINE}
    if args.write_config and len(served) > 1:
        found = "found some with and some without the prestager"
        raise InvalidFlag(found, "--policy", "those of one target with --write-config")
    if args.plot:
        from prestage.replay.plots import matplotlib

        matplotlib()


def _check_wire(args: argparse.Namespace) -> None:
    """Raise InvalidFlag for a flag of a target that there will be none for."""
    nothing = "nothing goes over the wire"
    if args.write_config:
        for flag in ("live", "json", "plot"):
            if getattr(args, flag):
                raise InvalidFlag("nothing is replayed", f"--{flag}", "no --write-config beside it")
    if args.speed is not None and not (args.live or args.write_config):
        raise InvalidFlag(nothing, "--speed", "--live or --write-config too")
    for flag in ("overwrite", "control_socket"):
        if getattr(args, flag) and args.live in (None, OWN):
            what = f"--live {OWN} has targets of its own" if args.live else nothing
            raise InvalidFlag(what, f"--{flag.replace('_', '-')}", "--live ADDR:PORT too")


def _check_hinted(args: argparse.Namespace, policies: Sequence[str]) -> None:
    """Raise InvalidFlag where nobody hears what hosts are to say."""
    if args.write_config:
        raise InvalidFlag("nothing is replayed", "--hints", "no --write-config beside it")
    at_address = args.live not in (None, OWN)
    if not at_address and not any(each in HINTED for each in policies):
        expected = f"--policy {' or --policy '.join(HINTED)} too, or --live ADDR:PORT"
        raise InvalidFlag("no policy takes hints", "--hints", expected)


def check_said(hints: Sequence[Hint], policies: Sequence[str]) -> None:
    """Raise InvalidFlag when a policy is about hints and hosts say nothing."""
    hinted = [each for each in policies if each in HINTED]
    if hinted and not hints:
        raise InvalidFlag("hosts say nothing", f"--policy {hinted[0]}", "--hints PLAN too")


def check_demand(whole: Workload, seen: Workload, regime: Regime, trace: str) -> None:
    """Raise Invalid when a trace has no mean read demand to speak of, or none that a target sees.

    InvalidFlag, where it is not a file's content that is at fault.
    """
    expected = f"reads, in a trace of {LEAST_SPAN_S:g} s or more"
    if not _has_demand(whole):
        kind = InvalidFlag if is_generator(trace) else Invalid
        what = f"found {_accesses(whole)}, which have no mean read demand"
        raise kind(what, trace, expected)
    if not _has_demand(seen):
        what = f"found {100 * regime.filter:.6g}%, which leaves {_accesses(seen)} to the target"
        raise InvalidFlag(what, "--filter", f"a smaller share, which leaves {expected}")
    least = seen.duration_s / MOST_FLASH_S
    if regime.flash < least:
        expected = f"{least:.2g}x or more, for all reads to end within {MOST_FLASH_S:g} s"
        raise InvalidFlag(f"found {regime.flash:g}x", "--flash", expected)


def _has_demand(workload: Workload) -> bool:
    return workload.reads > 0 and workload.duration_s >= LEAST_SPAN_S


def _accesses(workload: Workload) -> str:
    return f"{workload.reads} reads among {len(workload)} accesses within {workload.duration_s:g} s"


def check_room(seen: Workload, regime: Regime, least: int) -> None:
    """Raise InvalidFlag when a tier has fewer than `least` blocks, whatever the trace has."""
    blocks = regime.frames(seen)
    if blocks < least:
        found = f"{100 * regime.tier:.3g}% of {seen.block_count} blocks, a tier of {blocks}"
        share = least_share(seen.block_count, least)
        expected = "100%" if share == 100 else f"{share:.6g}% or more, a tier of {least}"
        raise InvalidFlag(f"found {found}", "--tier", expected)


def least_share(count: int, least: int) -> float:
    """Return a share of `count` blocks, in per cent to two digits, that is `least` or more."""
    exact = 100 * least / count
    if exact >= 100:
        return 100.0
    unit: float = 10.0 ** (math.floor(math.log10(exact)) - 1)
    share = round(math.ceil(exact / unit) * unit, 12)
    return share if int(share / 100 * count) >= least else min(share + unit, 100.0)
