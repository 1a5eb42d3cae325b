"""Policies side by side on one workload: what each would have had in DRAM when it was asked for.

Those that run in the simulated target (`lru`, `hints`, `prestage`, `prestage+hints`) use the tier,
the scheduler and the prestager as they run live; the offline bounds and `none` and `mq` are told in
the fluid model (prestage.replay.fluid), the other classical policies by a tool of their own
(prestage.replay.classical).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.replay.bounds import belady, oracle
from prestage.replay.fluid import FluidResult, run_policy
from prestage.replay.hint_plans import Hint
from prestage.replay.policies import MultiQueue, NoTier
from prestage.replay.result import Regime, Result, spread
from prestage.replay.run import Progress, replay
from prestage.replay.workload import Workload
from prestage.target.errors import InvalidFlag
from prestage.target.prestager.process import PrestagerLike
from prestage.target.sizes import plain_number

LRU: Final = "lru"
BOUND: Final = "clairvoyant"
MACHINE: Final = (LRU, "hints", "prestage", "prestage+hints")
HINTED: Final = ("hints", "prestage+hints")
"""Those of them that take hints."""
FLUID: Final = ("none", "mq", "belady", "oracle", BOUND)
CLASSICAL: Final = {
    "s3fifo": "S3-FIFO",
    "sieve": "SIEVE",
    "arc": "ARC",
    "lirs": "LIRS",
    "wtinylfu": "W-TinyLFU",
}
"""By name: what the tool for them calls them."""
POLICIES: Final = (*FLUID[:2], *CLASSICAL, *MACHINE, *FLUID[2:])
"""By name. `oracle` has a look-ahead of 60 s, `oracle:SECONDS` another."""
LOOK_AHEAD_S: Final = 60.0

MakePrestager = Callable[[int, int, int], PrestagerLike]
"""From frames, slot size and seed."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a policy made of a workload. What it cannot have is None."""

    policy: str
    read_hit_ratio: float
    gap_closed: float | None = None
    """(h - LRU) / (clairvoyant - LRU) of read hits at request time, when both were run."""
    late: float | None = None
    precision: float | None = None
    coverage: float | None = None
    flash_reads_per_read: float | None = None
    wasted_bytes: int | None = None
    ready_requests: float | None = None
    time_to_data_s: dict[str, float] | None = None
    wait_s: NDArray[np.float64] | None = None
    """[requests]: time to data; nan without reads."""
    behind_s: dict[str, float] | None = None
    """Over the wire: how much later than at their times requests were sent."""
    tier_blocks: int | None = None
    medium: str | None = None
    """Over the wire: how large the tier of that target is, and what is behind it."""
    report: Any = None
    """What the prestager said of itself."""

    def plain(self) -> dict[str, Any]:
        """Return what goes into JSON."""
        names = [each for each in self.__slots__ if each not in ("wait_s", "report")]
        return {name: to_json(getattr(self, name)) for name in names}


def to_json(value: Any) -> Any:
    """Return a value as JSON has it, which knows neither nan nor the numbers of numpy."""
    if isinstance(value, dict):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def of_fluid(policy: str, result: FluidResult) -> Row:
    """Return the row of a policy of the fluid model."""
    used, fetched = result.prefetched_used, result.prefetched
    return Row(
        policy,
        result.read_hit_ratio,
        precision=used / fetched if fetched else None,
        flash_reads_per_read=result.flash_reads_per_read,
        ready_requests=result.ready_requests,
        time_to_data_s=spread(result.time_to_data_s),
        wait_s=result.time_to_data_s,
    )


def of_machine(policy: str, result: Result) -> Row:
    """Return the row of a run of the simulated target."""
    has_fetched = result.counts.fetched > 0
    return Row(
        policy,
        result.read_hit_ratio,
        late=result.late,
        precision=result.precision if has_fetched else None,
        coverage=result.coverage if has_fetched else None,
        flash_reads_per_read=result.flash_reads_per_read,
        wasted_bytes=result.wasted_bytes,
        ready_requests=result.ready_requests,
        time_to_data_s=result.time_to_data_s,
        wait_s=result.wait_s,
        report=result.report,
    )


def with_gaps(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the share of the gap that each closes."""
    hits = {row.policy: row.read_hit_ratio for row in rows}
    if LRU not in hits or BOUND not in hits:
        return list(rows)
    low, high = hits[LRU], hits[BOUND]
    if not high > low:
        return list(rows)
    return [replace(row, gap_closed=(row.read_hit_ratio - low) / (high - low)) for row in rows]


def look_ahead_s(policy: str) -> float:
    """Return the look-ahead of `oracle` or `oracle:SECONDS`. Raises InvalidFlag."""
    _, _, text = policy.partition(":")
    seconds = plain_number(text) if text else LOOK_AHEAD_S
    if not seconds >= 0:
        raise InvalidFlag(f"found {policy}", "--policy", "oracle:SECONDS")
    return seconds


def check_policies(policies: Sequence[str]) -> None:
    """Raise InvalidFlag for a name that no policy has."""
    for each in policies:
        if each.partition(":")[0] not in POLICIES or (":" in each and each[:7] != "oracle:"):
            raise InvalidFlag(f"found {each}", "--policy", f"{', '.join(POLICIES)}, oracle:SECONDS")
        if each.startswith("oracle"):
            look_ahead_s(each)


@dataclass(frozen=True)
class Comparison:
    """A workload, under a regime, that policies are run on."""

    workload: Workload
    regime: Regime
    seed: int
    hints: Sequence[Hint]
    make_prestager: MakePrestager
    classical: Callable[[str, Workload, int], float]
    """The read hit ratio of a policy, by the tool's name for it, with so many blocks of tier."""

    def run(self, policy: str, progress: Progress | None = None) -> Row:
        """Return what a policy makes of it. Raises Invalid when the regime cannot be run."""
        name = policy.partition(":")[0]
        if name in CLASSICAL:
            capacity = self.regime.frames(self.workload)
            return Row(policy, self.classical(CLASSICAL[name], self.workload, capacity))
        if name in MACHINE:
            return of_machine(policy, self._run_machine(name, progress))
        return of_fluid(policy, self._run_fluid(policy))

    def _run_machine(self, name: str, progress: Progress | None) -> Result:
        prestager = None
        if name.startswith("prestage"):
            frames = self.regime.frames(self.workload)
            prestager = self.make_prestager(frames, self.regime.slot_size, self.seed)
        hints = self.hints if name in HINTED else ()
        return replay(self.workload, prestager, self.regime, self.seed, hints, progress, name=name)

    def _run_fluid(self, policy: str) -> FluidResult:
        capacity = self.regime.frames(self.workload)
        flash = self.regime.flash_per_s(self.workload)
        match policy.partition(":")[0]:
            case "none":
                return run_policy(self.workload, NoTier(), flash)
            case "mq":
                return run_policy(self.workload, MultiQueue(capacity), flash)
            case "belady":
                return belady(self.workload, capacity=capacity, flash_per_s=flash)
            case "oracle":
                ahead_s = look_ahead_s(policy)
                return oracle(
                    self.workload, capacity=capacity, flash_per_s=flash, look_ahead_s=ahead_s
                )
            case _:
                assert policy == BOUND
                return oracle(self.workload, capacity=capacity, flash_per_s=flash)
