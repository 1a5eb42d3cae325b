"""`prestage replay`: what policies would make of a trace, in the simulated target."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prestage.replay.classical import read_hit_ratios
from prestage.replay.compare import (
    BOUND,
    LRU,
    MACHINE,
    POLICIES,
    Comparison,
    Row,
    with_gaps,
)
from prestage.replay.filters import behind_host_cache
from prestage.replay.flags import (
    PLAN,
    parse_flash,
    parse_hints,
    parse_seed,
    parse_share,
    parse_slot,
    parse_speed,
)
from prestage.replay.generators import READING, generate, is_generator
from prestage.replay.hint_plans import Hint, HintPlan, announce, sign
from prestage.replay.live_run import LIVE, Wire, of_live, write_config
from prestage.replay.progress import Meter
from prestage.replay.report import Trial, heading, judge, remarks, table
from prestage.replay.result import LEAST_SERVED, Regime
from prestage.replay.run import layout_of
from prestage.replay.traces import load_trace
from prestage.replay.ttft import Model
from prestage.replay.usage import (
    LEAST_BLOCKS,
    OWN,
    check_demand,
    check_room,
    check_said,
    check_usage,
)
from prestage.replay.workload import Workload
from prestage.target.commands import output
from prestage.target.commands.output import out_json, out_text
from prestage.target.errors import NotFound
from prestage.target.prestager.engine import Prestager, PrestagerConfig

DEFAULT: Final = (LRU, "mq", "prestage", "belady", BOUND)


def add(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "replay",
        help="show what a target would have had in DRAM when a trace asked for it",
        description="Replays a trace in the simulated target, on a virtual clock.",
    )
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help=f"a file (docs/replay-formats.md), or a generator: {', '.join(READING)}",
    )
    parser.add_argument("--tier", default="5%", help="share of the distinct blocks (5%%)")
    parser.add_argument(
        "--flash", default="5x", help="bandwidth, as a multiple of the mean read demand (5x)"
    )
    parser.add_argument(
        "--filter", default="0%", help="the hosts' own cache, a share of the blocks (0%%)"
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"several: {', '.join(POLICIES)} ({', '.join(DEFAULT)})",
    )
    parser.add_argument("--seed", action="append", metavar="N", help="several (1)")
    parser.add_argument(
        "--hints",
        metavar="PLAN",
        help="what hosts say ahead, e.g. lead=5s,share=50%%; for policies with hints; what is left "
        f"out is {PLAN.replace('%', '%%')}",
    )
    parser.add_argument(
        "--live",
        metavar="ADDR:PORT",
        help="replay against this target too, with bytes checked; own: against targets started "
        "for it, each policy that a target can have",
    )
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="let --live ADDR:PORT write over what namespace 1 of that target holds",
    )
    parser.add_argument(
        "--speed", help="of a replay over the wire, times as fast as the trace (1x)"
    )
    parser.add_argument("--control-socket", metavar="PATH", help="of the target of --live")
    parser.add_argument(
        "--write-config",
        type=Path,
        metavar="FILE",
        help="write the configuration of a target with this tier and flash, and end",
    )
    parser.add_argument(
        "--slot", default="64K", metavar="SIZE", help="bytes of a block, 16K to 2M (64K)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw pictures (SVG) there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit status. Raises TargetError."""
    policies = list(args.policy or DEFAULT)
    seeds = [parse_seed(each, "--seed") for each in args.seed or ["1"]]
    speed = parse_speed(args.speed or "1x", "--speed")
    check_usage(args, policies, seeds)
    regime = Regime(
        tier=parse_share(args.tier, "--tier"),
        flash=parse_flash(args.flash, "--flash"),
        filter=parse_share(args.filter, "--filter"),
        slot_size=parse_slot(args.slot, "--slot"),
    )
    plan = None if args.hints is None else parse_hints(args.hints, "--hints")
    if args.write_config:
        seen = see(args.trace, seeds[0], regime, LEAST_SERVED)
        has_prestager = "prestage" in policies or "prestage+hints" in policies
        out_text(
            write_config(args.write_config, seen, regime, seeds[0], speed, prestager=has_prestager)
        )
        return 0
    runs = len(policies) + len(_live_policies(args.live, policies))
    with Meter(len(seeds) * runs, sys.stderr) as meter:
        # From the second seed on, what the target holds is what the one before has written.
        trials = [
            trial(
                args,
                seed,
                regime,
                plan,
                policies,
                speed,
                meter,
                overwrite=args.overwrite or number > 0,
            )
            for number, seed in enumerate(seeds)
        ]
    if args.plot:
        from prestage.replay.plots import draw

        made = draw(trials, args.plot)
        sys.stderr.writelines(f"{path}\n" for path in made)
    if args.json:
        out_json([each.plain() for each in trials])
    else:
        out_text(f"{heading(trials)}\n")
        output.table(*table(trials), empty="")
        for line in remarks(trials):
            out_text(f"\n{line}")
    return 0


def open_workload(trace: str, seed: int) -> Workload:
    """Return the workload of a generator's name or of a file.

    Raises Invalid, InvalidFlag when a generator has no such argument, NotFound without a file.
    """
    if is_generator(trace):
        return generate(trace, seed=seed)
    path = Path(trace)
    if _is_missing(path):
        expected = f"a file, or a generator: {', '.join(READING)}"
        raise NotFound("there is no such file", trace, expected)
    return load_trace(path, seed=seed)


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def see(trace: str, seed: int, regime: Regime, least_blocks: int) -> Workload:
    """Return what a target sees of a trace under a regime.

    Raises what `open_workload` does, Invalid when the trace has no read demand, and InvalidFlag
    when the regime says nothing of it, or its tier has fewer than `least_blocks`.
    """
    whole = open_workload(trace, seed)
    seen = behind_host_cache(whole, regime.filter)
    check_demand(whole, seen, regime, trace)
    check_room(seen, regime, least_blocks)
    return seen


def trial(
    args: argparse.Namespace,
    seed: int,
    regime: Regime,
    plan: HintPlan | None,
    policies: Sequence[str],
    speed: float,
    meter: Meter,
    *,
    overwrite: bool,
) -> Trial:
    """Return what the policies make of a trace under one seed.

    `overwrite`: what the target of --live ADDR:PORT holds need not be nothing. Raises Invalid.
    """
    seen = see(args.trace, seed, regime, LEAST_SERVED if args.live == OWN else LEAST_BLOCKS)
    hints = plan_hints(seen, regime, plan, seed)
    check_said(hints, policies, plan)
    wire = Wire(seen, regime, speed, seed, hints, asks_residency=args.live == OWN)
    if args.live not in (None, OWN):
        wire.check_at(args.live, args.control_socket, overwrite)
    rows = run_policies(seen, seed, regime, hints, policies, meter)
    for policy in _live_policies(args.live, policies):
        progress = meter.begin(f"{policy}, seed {seed}")
        if args.live == OWN:
            found = wire.run_own(policy.removeprefix(f"{LIVE} "), progress)
        else:
            found = wire.run_at(args.live, args.control_socket, overwrite, progress)
        rows.append(of_live(policy, found))
    model = Model()
    judged = tuple(judge(seen, row, model) for row in with_gaps(rows))
    said = None if plan is None else replace(plan, seed=seed)
    return Trial(seen, regime, said, seed, model, judged)


def _live_policies(live: str | None, policies: Sequence[str]) -> list[str]:
    """Return the names of what goes over the wire."""
    if live is None:
        return []
    return [f"{LIVE} {each}" for each in policies if each in MACHINE] if live == OWN else [LIVE]


def plan_hints(seen: Workload, regime: Regime, plan: HintPlan | None, seed: int) -> list[Hint]:
    """Return what hosts say where they say something, in order of time."""
    layout = layout_of(seen, regime)
    hints = sign(seen, layout)
    if plan is not None:
        hints += announce(seen, layout, replace(plan, seed=seed))
        hints.sort(key=lambda each: each.time_s)
    return hints


def run_policies(
    seen: Workload,
    seed: int,
    regime: Regime,
    hints: Sequence[Hint],
    policies: Sequence[str],
    meter: Meter | None = None,
) -> list[Row]:
    """Return what policies make of what a target sees, with their shares of the gap."""
    comparison = Comparison(seen, regime, seed, hints, _prestager, _classical)
    rows = []
    for policy in policies:
        progress = None if meter is None else meter.begin(f"{policy}, seed {seed}")
        rows.append(comparison.run(policy, progress))
    return with_gaps(rows)


def _classical(policy: str, workload: Workload, capacity: int) -> float:
    return read_hit_ratios(workload, [capacity], policies=[policy])[policy][0]


def _prestager(frames: int, slot_size: int, seed: int) -> Prestager:
    return Prestager(PrestagerConfig(), frame_count=frames, slot_size=slot_size, seed=seed)
