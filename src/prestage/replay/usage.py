"""Flags of `prestage replay` that must fit each other and the trace, before hours of work."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from prestage.host_client.address import parse_target
from prestage.host_client.errors import InvalidRequest
from prestage.replay.classical import check_tool
from prestage.replay.compare import CLASSICAL, HINTED, MACHINE, check_policies
from prestage.replay.generators import is_generator
from prestage.replay.hint_plans import Hint, HintPlan
from prestage.replay.live_config import NQN
from prestage.replay.result import Regime
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid, InvalidFlag

__all__ = [
    "LEAST_BLOCKS", "OWN", "check_demand", "check_file", "check_folder", "check_room", "check_said",
    "check_usage",
]  # fmt: skip

OWN: Final = "own"
"""For --live: a target of our own, a fresh one for each policy."""
LEAST_BLOCKS: Final = 8
"""Of a tier that is simulated; one that is served has LEAST_SERVED."""
LEAST_SPAN_S: Final = 1e-6
"""From the first access to the last: clocks count nanoseconds, and have to tell them apart."""
MOST_FLASH_S: Final = 4e9
"""That the flash may take for all reads: clocks that count nanoseconds go as far."""


def check_usage(args: argparse.Namespace, policies: Sequence[str], seeds: Sequence[int]) -> None:
    """Raise InvalidFlag where flags say nothing together, and TargetError without their tools."""
    check_policies(policies)
    _check_once(policies, "--policy")
    _check_once(seeds, "--seed")
    _check_wire(args, policies)
    if args.hints is not None:
        _check_hinted(args, policies)
    if args.write_config:
        _check_config(args, seeds)
    if any(each in CLASSICAL for each in policies):
        check_tool()
    if args.plot:
        from prestage.replay.plots import matplotlib

        matplotlib()
        check_folder(args.plot, "--plot")


def _check_once(values: Sequence[object], flag: str) -> None:
    for each in values:
        if values.count(each) > 1:
            raise InvalidFlag(f"found {each} twice", flag, "each once")


def _check_config(args: argparse.Namespace, seeds: Sequence[int]) -> None:
    """Raise InvalidFlag for what one configuration of a target cannot say."""
    of_one = "those of one target with --write-config"
    served = {each.startswith("prestage") for each in args.policy or ()}
    if len(served) > 1:
        raise InvalidFlag("found some with and some without the prestager", "--policy", of_one)
    for each in args.policy or ():
        if each not in MACHINE:
            raise InvalidFlag(f"found {each}, which no target has", "--policy", of_one)
    if len(seeds) > 1:
        raise InvalidFlag(f"found {len(seeds)} of them", "--seed", "one with --write-config")
    if args.write_config.exists() or args.write_config.is_symlink():
        found = f"found {args.write_config}, which is there already"
        raise InvalidFlag(found, "--write-config", "a new file")
    check_file(args.write_config, "--write-config")


def check_file(path: Path, flag: str) -> None:
    """Raise InvalidFlag unless a file can be made, or written over, at a path."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidFlag(f"found {path}", flag, "a file in a folder that can be written to")


def check_folder(path: Path, flag: str) -> None:
    """Raise InvalidFlag unless a path is a folder that can be written to, or be made."""
    there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InvalidFlag(f"found {path}", flag, "a folder that can be written to, or be made")


def _check_wire(args: argparse.Namespace, policies: Sequence[str]) -> None:
    """Raise InvalidFlag for a flag of a target that there will be none for."""
    nothing = "nothing goes over the wire"
    if args.write_config:
        for flag in ("live", "json", "plot"):
            if getattr(args, flag):
                raise InvalidFlag("nothing is replayed", f"--{flag}", "no --write-config beside it")
    if args.live == OWN and not any(each in MACHINE for each in policies):
        expected = f"--policy {' or --policy '.join(MACHINE)} too"
        raise InvalidFlag("no policy that a target can have", f"--live {OWN}", expected)
    if args.live not in (None, OWN):
        _check_address(args.live)
    if args.speed is not None and not (args.live or args.write_config):
        raise InvalidFlag(nothing, "--speed", "--live or --write-config too")
    for flag in ("overwrite", "control_socket"):
        if getattr(args, flag) and args.live in (None, OWN):
            what = f"--live {OWN} has targets of its own" if args.live else nothing
            raise InvalidFlag(what, f"--{flag.replace('_', '-')}", "--live ADDR:PORT too")


def _check_address(text: str) -> None:
    try:
        parse_target(text, nqn=NQN)
    except InvalidRequest as fault:
        raise InvalidFlag(f"found {text}", "--live", f"ADDR:PORT, or {OWN}") from fault


def _check_hinted(args: argparse.Namespace, policies: Sequence[str]) -> None:
    """Raise InvalidFlag where nobody hears what hosts are to say."""
    if args.write_config:
        raise InvalidFlag("nothing is replayed", "--hints", "no --write-config beside it")
    at_address = args.live not in (None, OWN)
    if not at_address and not any(each in HINTED for each in policies):
        expected = f"--policy {' or --policy '.join(HINTED)} too, or --live ADDR:PORT"
        raise InvalidFlag("no policy takes hints", "--hints", expected)


def check_said(hints: Sequence[Hint], policies: Sequence[str], plan: HintPlan | None) -> None:
    """Raise InvalidFlag when a policy is about hints and hosts say nothing."""
    hinted = [each for each in policies if each in HINTED]
    if hinted and not hints:
        expected = "--hints PLAN too" if plan is None else "a PLAN of --hints that says something"
        raise InvalidFlag("hosts say nothing", f"--policy {hinted[0]}", expected)


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
