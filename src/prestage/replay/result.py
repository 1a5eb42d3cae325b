"""What became of a workload in the simulated target, as numbers that are published.

A hit is a read whose block was in the tier when its request came; what was on its way is late.
Ratios of nothing are nan.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.replay.machine import RESULT, MachineStats, OrderStats, State, TierStats
from prestage.replay.workload import Workload
from prestage.target.errors import Invalid

PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
LEAST_SERVED: Final = 16
"""Slots that the tier of a target has at least (`tier.size` of docs/configuration.md)."""
ARRAYS: Final = ("is_hit", "wait_s", "report")
"""Fields of a result that do not stand in its JSON as they are."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Under what a workload runs: a number means nothing without these."""

    tier: float = 0.05
    """Frames, as a share of the distinct blocks."""
    flash: float = 5.0
    """Its bandwidth, as a multiple of the mean read demand of the stream that the target sees."""
    filter: float = 0.0
    """The share of the distinct blocks in the hosts' own cache: the workload is what it lets
    through already (prestage.replay.filters)."""
    slot_size: int = 64 << 10
    """Bytes of a block."""
    block_size: int = 4096
    """Bytes of a logical block of the volume."""
    channels: int = 32
    """Requests that the flash serves at once."""
    read_median_us: float = 80.0
    read_p99_us: float = 250.0
    hint_percent: int = 50
    """The share of the tier that hints of one host may bring in or keep."""

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("tier", self.tier, 0, 1),
            ("filter", self.filter, 0, 1),
            ("hint_percent", self.hint_percent, 0, 100),
        ):
            if not least <= value <= most:
                raise Invalid(f"found {value:g}", name, f"{least} to {most}")
        if not self.flash > 0:
            raise Invalid(f"found {self.flash:g}", "flash", "more than 0")

    def frames(self, workload: Workload) -> int:
        """How many blocks the tier holds: all, if the share is 1, with room for LEAST_SERVED."""
        blocks = int(self.tier * workload.block_count)
        return max(blocks, LEAST_SERVED) if self.tier == 1 else blocks

    def flash_per_s(self, workload: Workload) -> float:
        """How many blocks a second the flash moves."""
        return self.flash * workload.reads_per_s


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of what there was."""

    requests: int
    """That have reads."""
    reads: int
    writes: int
    batches: int
    """Of hints."""
    hits: int
    late: int
    misses: int
    demand_reads: int
    """Blocks read from flash because somebody waited."""
    fetched: int
    """Blocks read from flash ahead."""
    fetched_used: int
    """Of these, read before they were evicted; late ones too."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a policy."""

    policy: str
    workload: str
    seed: int
    regime: Regime
    frames: int
    flash_bytes_per_s: float
    counts: Counts
    read_hit_ratio: float
    """Reads that were in the tier when their request came, over reads."""
    late: float
    """Reads that found their block on its way by a fetch, over reads."""
    flash_reads_per_read: float
    """Blocks read from flash, on demand or ahead, over reads."""
    precision: float
    """Of blocks fetched ahead, those that were read before they were evicted."""
    coverage: float
    """Of reads that retention alone would not have served, those that a fetch came ahead of."""
    wasted_bytes: int
    """Fetched ahead, and evicted or overwritten before anybody read them."""
    ready_requests: float
    """Of requests with reads, those whose reads were all hits."""
    time_to_data_s: dict[str, float]
    """From a request's arrival to its last byte: mean and percentiles over requests with reads."""
    flash_busy: float
    """The share of the time in which the flash moved bytes."""
    orders: OrderStats
    is_hit: NDArray[np.bool_]
    """[n]: beside the workload's accesses; false for writes."""
    wait_s: NDArray[np.float64]
    """[requests]: time to data; nan without reads."""
    report: Any = None
    """What the prestager says of itself in the end (a dataclass of plain numbers); None: none."""

    def plain(self) -> dict[str, Any]:
        """Return what goes into JSON: everything but the arrays, the report as a dictionary.

        Ratios of nothing are None there, and so is what is without bound.
        """
        shown = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ARRAYS
        }
        for name in ("regime", "counts", "orders"):
            shown[name] = dataclasses.asdict(shown[name])
        if self.report is not None:
            shown["report"] = dataclasses.asdict(self.report)
        plain: dict[str, Any] = _finite(shown)
        return plain


def _finite(value: Any) -> Any:
    """Return a value with None where it has numbers that JSON does not."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _waits(workload: Workload, wait_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by request how long its last read took; nan without reads."""
    is_read = ~workload.is_write
    longest = np.full(workload.requests, -np.inf)
    np.maximum.at(longest, workload.request[is_read], wait_s[is_read])
    return np.where(np.isinf(longest), np.nan, longest)


def spread(wait_s: NDArray[np.float64]) -> dict[str, float]:
    """Return mean and PERCENTILES of times [requests]; nan is left out."""
    asked = wait_s[~np.isnan(wait_s)]
    if len(asked) == 0:
        return dict.fromkeys(["mean", *PERCENTILES], float("nan"))
    points = np.percentile(asked, list(PERCENTILES.values()))
    return {
        "mean": float(asked.mean()),
        **{name: float(point) for name, point in zip(PERCENTILES, points, strict=True)},
    }


@dataclass(frozen=True, slots=True)
class Run:
    """What a machine has to say when it is done."""

    results: NDArray[np.void]
    """[n], dtype RESULT: beside the workload's accesses, without those of hints."""
    arrived_ns: NDArray[np.uint64]
    """[n]"""
    batches: int
    machine: MachineStats
    tier: TierStats
    orders: OrderStats
    flash_bytes_per_s: float
    frames: int
    report: Any


def judge(workload: Workload, regime: Regime, run: Run, *, policy: str, seed: int) -> Result:
    """Return the measures of a run. Every access must have ended, and none been refused."""
    assert run.results.dtype == RESULT
    assert len(run.results) == len(workload)
    state = run.results["state"]
    bad = int(np.count_nonzero((state == State.PENDING) | (state == State.REFUSED)))
    assert bad == 0, f"{bad} accesses have not ended, or were refused"
    hits, late, misses = (
        int(np.count_nonzero(state == each)) for each in (State.HIT, State.LATE, State.MISS)
    )
    reads, slot = workload.reads, regime.slot_size
    used = run.tier.timely_hits + run.tier.late_hits
    delay_s = (run.results["ready_ns"] - run.arrived_ns) / 1e9
    wait_s = _waits(workload, delay_s)
    asked = ~np.isnan(wait_s)
    missed = np.zeros(workload.requests, np.bool_)
    missed[workload.request[(state == State.LATE) | (state == State.MISS)]] = True
    fetched = run.machine.fetch_bytes / slot
    return Result(
        policy=policy,
        workload=workload.name,
        seed=seed,
        regime=regime,
        frames=run.frames,
        flash_bytes_per_s=run.flash_bytes_per_s,
        counts=Counts(
            requests=int(np.count_nonzero(asked)),
            reads=reads,
            writes=len(workload) - reads,
            batches=run.batches,
            hits=hits,
            late=late,
            misses=misses,
            demand_reads=run.machine.demand_reads,
            fetched=run.machine.fetch_reads,
            fetched_used=used,
        ),
        read_hit_ratio=_ratio(hits, reads),
        late=_ratio(late, reads),
        flash_reads_per_read=_ratio(run.machine.demand_reads + run.machine.fetch_reads, reads),
        precision=_ratio(used, fetched),
        coverage=_ratio(used, used + misses),
        wasted_bytes=run.tier.wasted_bytes,
        ready_requests=_ratio(int(np.count_nonzero(asked & ~missed)), int(np.count_nonzero(asked))),
        time_to_data_s=spread(wait_s),
        flash_busy=_ratio(run.machine.busy_ns, run.machine.now_ns),
        orders=run.orders,
        is_hit=state == State.HIT,
        wait_s=wait_s,
        report=run.report,
    )
