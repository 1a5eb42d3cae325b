"""`scripts/demo`: how long returning sessions of a real trace wait, without prestage and with it.

Three targets, one after the other, each on a free port of 127.0.0.1 with modelled flash: the plain
tier, then with the prestager, then with hints too. The same requests go to each, many times as fast
as they were recorded; every byte is checked.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.replay.agents import Mix
from prestage.replay.commands import plan_hints
from prestage.replay.compare import to_json
from prestage.replay.demo_picture import picture
from prestage.replay.demo_view import Line, table
from prestage.replay.filters import behind_host_cache
from prestage.replay.flags import parse_flash, parse_seconds, parse_seed, parse_share, parse_speed
from prestage.replay.hint_plans import HintPlan
from prestage.replay.live import LiveResult
from prestage.replay.live_run import Wire
from prestage.replay.result import LEAST_SERVED, Regime, spread
from prestage.replay.traces import load_trace
from prestage.replay.usage import check_demand, check_file, check_room
from prestage.replay.workload import Workload
from prestage.target.commands.output import out_json, out_text
from prestage.target.errors import Ended, Invalid, InvalidFlag, TargetError

TRACE: Final = Path(__file__).resolve().parents[3] / "tests" / "data" / "agent_demo.jsonl.gz"
"""Of a checkout of the project."""
SPAN_S: Final = 600.0
"""Sessions start within it, and what comes later is cut off."""
SLOT: Final = 16 << 10
"""Blocks are this small here, so that a host in Python keeps up."""
PICTURE: Final = "prestage-demo.svg"
EXIT_USAGE: Final = 2
INTERRUPTED: Final = 130
COLUMNS: Final = 96


@dataclass(frozen=True)
class Shown:
    """One run, as it is shown."""

    name: str
    result: LiveResult
    returning: NDArray[np.intp]
    """The requests of sessions that come back, which have something to wait for."""

    @property
    def wait_s(self) -> NDArray[np.float64]:
        """How long each waited, in seconds of the trace."""
        return self.result.wait_s[self.returning]

    @property
    def is_ready(self) -> NDArray[np.bool_]:
        """Which of them found all they read in DRAM."""
        return self.result.is_ready[self.returning]

    def plain(self) -> dict[str, Any]:
        """Return what is shown, as numbers."""
        return {
            "name": self.name,
            "returning_requests": len(self.returning),
            "ready": float(self.is_ready.mean()) if len(self.returning) else None,
            "wait_s": spread(self.wait_s),
            "warm_wait_s": spread(self.wait_s[self.is_ready])["p50"],
            "read_hit_ratio": self.result.read_hit_ratio,
            "flash_reads_per_read": self.result.flash_reads_per_read,
            "precision": self.result.precision,
            "behind_s": self.result.behind_s,
        }


def returning(workload: Workload) -> NDArray[np.intp]:
    """Return the requests with reads whose session had asked before."""
    _, first = np.unique(workload.request_session, return_index=True)
    comes_back = np.ones(workload.requests, np.bool_)
    comes_back[first] = False
    reads = np.zeros(workload.requests, np.bool_)
    reads[workload.request[~workload.is_write]] = True
    return np.flatnonzero(comes_back & reads)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the flags."""
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--trace", type=Path, default=TRACE, metavar="FILE", help="sessions (51 of coding agents)")
    add("--speed", default="30x", help="times as fast as it was recorded (30x)")
    add("--tier", default="10%", help="share of the distinct blocks (10%%)")
    add("--flash", default="3x", help="bandwidth, a multiple of the mean read demand (3x)")
    add("--filter", default="5%", help="the hosts' own cache, a share of the blocks (5%%)")
    add("--lead", default="5s", help="how long before its request a hint comes (5s)")
    add("--seed", default="1", metavar="N", help="when sessions start, and latencies (1)")
    add("--picture", type=Path, default=Path(PICTURE), metavar="FILE", help=f"({PICTURE})")
    add("--json", action="store_true", help="print JSON")
    return parser.parse_args(arguments)


def run(args: argparse.Namespace, command: str) -> None:
    """Run the demonstration. Raises TargetError, and HostError when a target breaks."""
    seed = parse_seed(args.seed, "--seed")
    whole = load_trace(args.trace, seed=seed, mix=Mix(span_s=SPAN_S))
    regime = Regime(
        tier=parse_share(args.tier, "--tier"),
        flash=parse_flash(args.flash, "--flash"),
        filter=parse_share(args.filter, "--filter"),
        slot_size=SLOT,
    )
    speed, lead_s = parse_speed(args.speed, "--speed"), parse_seconds(args.lead, "--lead")
    check_file(args.picture, "--picture")
    seen = behind_host_cache(whole, regime.filter)
    check_demand(whole, seen, regime, str(args.trace))
    check_room(seen, regime, LEAST_SERVED)
    which = returning(seen)
    if not len(which):
        raise Invalid("no session comes back", str(args.trace), "sessions of several requests")
    hints = plan_hints(seen, regime, HintPlan(lead_s=lead_s), seed)
    wire = Wire(seen, regime, speed, seed, hints, asks_residency=True)
    kind = "coding-agent sessions" if args.trace == TRACE else f"sessions of {args.trace.name}"
    about = _about(seen, kind, regime, speed, lead_s, seed)
    runs = {
        "lru": "without prestage",
        "prestage": "with prestage",
        "prestage+hints": f"and hints {lead_s:g} s ahead",
    }
    if not args.json:
        out_text(textwrap.fill(about, COLUMNS) + "\n")
    shown = []
    for number, (policy, name) in enumerate(runs.items(), 1):
        with Line(sys.stderr, f"{number} of {len(runs)}: {name}") as line:
            shown.append(Shown(name, wire.run_own(policy, line.show), which))
    plain = [each.plain() for each in shown]
    args.picture.write_text(_draw(seen, shown, about), "utf-8")
    if args.json:
        out_json(to_json({"regime": about, "runs": plain, "command": command}))
        return
    out_text(table(plain))
    out_text(f"\nthe picture: {args.picture}\nagain: {command}")


def _about(
    seen: Workload, kind: str, regime: Regime, speed: float, lead_s: float, seed: int
) -> str:
    sessions = len(np.unique(seen.request_session))
    return (
        f"{seen.requests} requests of {sessions} {kind} in "
        f"{seen.duration_s / 60:.0f} min, {speed:g} times as fast as recorded; "
        f"{seen.reads} reads of {seen.block_count} blocks get through a host cache of "
        f"{regime.filter:.0%}; DRAM tier {regime.tier:.0%} ({regime.frames(seen)} blocks); flash "
        f"{regime.flash:g} x the mean read demand; hints {lead_s:g} s ahead; seed {seed}"
    )


def _draw(seen: Workload, shown: Sequence[Shown], about: str) -> str:
    time_s = seen.request_time_s[shown[0].returning] - seen.request_time_s.min()
    strips = [(each.name, each.wait_s, each.is_ready) for each in shown]
    return picture(time_s, strips, about)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `scripts/demo`; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    args = parse(arguments)
    try:
        run(args, shlex.join(["scripts/demo", *arguments]))
    except KeyboardInterrupt as error:
        sys.stderr.write("interrupted; the target is stopped\n")
        return error.status if isinstance(error, Ended) else INTERRUPTED
    except TargetError as error:
        sys.stderr.write(f"scripts/demo: {error}\n")
        return EXIT_USAGE if isinstance(error, InvalidFlag) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
