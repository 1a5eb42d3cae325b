"""Comparisons as JSON and as a table: medians over the seeds, and the spread."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from prestage.replay.compare import Row, to_json
from prestage.replay.hint_plans import HintPlan
from prestage.replay.result import Regime
from prestage.replay.ttft import FirstToken, Model, first_token, regime
from prestage.replay.workload import Workload

Measure = Callable[["Judged"], float | None]


@dataclass(frozen=True)
class Judged:
    """A row, and what its waits mean for the first token."""

    row: Row
    ttft: FirstToken | None


@dataclass(frozen=True)
class Trial:
    """One workload, under one seed, and what all policies made of it."""

    workload: Workload
    regime: Regime
    plan: HintPlan | None
    """What hosts say ahead; None: nothing."""
    seed: int
    model: Model
    rows: tuple[Judged, ...]

    def plain(self) -> dict[str, Any]:
        """Return what goes into JSON."""
        seen = self.workload
        flash = self.regime.flash_per_s(seen) * self.kv_block_bytes
        stands_on = {
            "tier": self.regime.tier,
            "frames": self.regime.frames(seen),
            "flash": self.regime.flash,
            "flash_blocks_per_s": self.regime.flash_per_s(seen),
            "filter": self.regime.filter,
            "slot_size_bytes": self.regime.slot_size,
            "hint_percent": self.regime.hint_percent,
            "hints": None if self.plan is None else asdict(self.plan),
            "distinct_blocks": seen.block_count,
            "requests": seen.requests,
            "reads": seen.reads,
            "writes": len(seen) - seen.reads,
            "duration_s": seen.duration_s,
            "first_token": regime(seen, self.model, flash),
        }
        return {
            "workload": seen.name,
            "seed": self.seed,
            "regime": to_json(stands_on),
            "policies": [self._policy(each) for each in self.rows],
        }

    @property
    def kv_block_bytes(self) -> float:
        """Bytes of KV cache that a block of the workload stands for."""
        return self.model.block_tokens * self.model.kv_bytes_per_token

    def _policy(self, judged: Judged) -> dict[str, Any]:
        found = judged.row.plain()
        found["ttft_s"] = None if judged.ttft is None else to_json(judged.ttft.ttft_s)
        found["recomputed"] = None if judged.ttft is None else to_json(judged.ttft.recomputed)
        return found


def judge(workload: Workload, row: Row, model: Model) -> Judged:
    """Return a row with its modelled time to the first token."""
    if row.wait_s is None:
        return Judged(row, None)
    return Judged(row, first_token(workload, row.wait_s, model))


def _of(name: str) -> Measure:
    def measure(judged: Judged) -> float | None:
        value: float | None = getattr(judged.row, name)
        return value

    return measure


def _time(name: str) -> Measure:
    def measure(judged: Judged) -> float | None:
        found = judged.row.time_to_data_s
        return None if found is None else found[name]

    return measure


def _behind(judged: Judged) -> float | None:
    found = judged.row.behind_s
    return None if found is None else found["p99"]


def _first(name: str) -> Measure:
    return lambda judged: None if judged.ttft is None else judged.ttft.ttft_s[name]


COLUMNS: Final[tuple[tuple[str, str, Measure], ...]] = (
    ("hit ratio", "{:.3f}", _of("read_hit_ratio")),
    ("gap closed", "{:.2f}", _of("gap_closed")),
    ("flash/read", "{:.2f}", _of("flash_reads_per_read")),
    ("precision", "{:.2f}", _of("precision")),
    ("ready", "{:.3f}", _of("ready_requests")),
    ("data p50 s", "{:.3f}", _time("p50")),
    ("data p99 s", "{:.3f}", _time("p99")),
    ("TTFT mean s", "{:.2f}", _first("mean")),
    ("TTFT p99 s", "{:.2f}", _first("p99")),
)
"""Title, form and value of each measure."""


def _cell(form: str, values: Sequence[float | None]) -> str:
    found = [each for each in values if each is not None]
    if not found:
        return "-"
    middle = form.format(statistics.median(found))
    if len(found) == 1:
        return middle
    return f"{middle} [{form.format(min(found))} {form.format(max(found))}]"


MODEL: Final = "model"
"""The medium of a target for a regime."""
BEHIND: Final[tuple[str, str, Measure]] = ("behind p99 s", "{:.2f}", _behind)
"""Of replays over the wire."""
MOST_BEHIND_S: Final = 1.0
"""Of the trace: a request that is later than this meets a tier in which other things are."""


def table(trials: Sequence[Trial]) -> tuple[list[str], list[list[str]]]:
    """Return heads and lines, a policy each: the median over the trials, least and most."""
    lines = []
    is_live = any(each.row.behind_s is not None for each in trials[0].rows)
    columns = (*COLUMNS, BEHIND) if is_live else COLUMNS
    for place, first in enumerate(trials[0].rows):
        same = [trial.rows[place] for trial in trials]
        cells = [_cell(form, [value(each) for each in same]) for _, form, value in columns]
        lines.append([first.row.policy, *cells])
    return ["policy", *(title for title, _, _ in columns)], lines


def remarks(trials: Sequence[Trial]) -> list[str]:
    """Return what has to be known to read the table: rows that say nothing of this workload."""
    found = []
    for place, first in enumerate(trials[0].rows):
        behind_s = [_behind(trial.rows[place]) or 0.0 for trial in trials]
        if (most_s := max(behind_s)) > MOST_BEHIND_S:
            found.append(
                f"{first.row.policy} is of another workload: its requests were sent up to "
                f"{most_s:.3g} s of the trace late (p99), more than {MOST_BEHIND_S:g} s. "
                "This machine keeps up with a smaller --speed only."
            )
    return found + _unlike(trials[0])


def _unlike(trial: Trial) -> list[str]:
    """Return which rows are of a target that has another tier or flash than was simulated."""
    blocks = trial.regime.frames(trial.workload)
    return [
        f"{row.policy} is of another regime: that target has {row.tier_blocks} frames before "
        f"{row.medium!r} media, where {blocks} blocks before modelled flash were meant. "
        "--write-config FILE writes the configuration of a target for this regime."
        for row in (each.row for each in trial.rows)
        if row.tier_blocks not in (None, blocks) or row.medium not in (None, MODEL)
    ]


def heading(trials: Sequence[Trial]) -> str:
    """Return what the numbers stand on, in a line."""
    first, seeds = trials[0], ", ".join(str(trial.seed) for trial in trials)
    seen, under = first.workload, first.regime
    return (
        f"{seen.name}: {seen.requests} requests, {seen.reads} reads, {seen.block_count} blocks; "
        f"tier {under.tier:.1%} ({under.frames(seen)} blocks), flash {under.flash:g} x mean read "
        f"demand ({under.flash_per_s(seen):.3g} blocks/s), host cache {under.filter:.1%}; "
        f"seed {seeds}"
    )
