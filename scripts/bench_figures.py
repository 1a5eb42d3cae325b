"""Figures of `scripts/bench`: ratios of runs of one round, the aim, and what an earlier run had."""

from __future__ import annotations

import dataclasses
import json
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_run import RESAMPLES, Run, lay_out, spread

GROSS = 3.0
"""How many times as bad as its aim a figure has to be to be grossly off."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """What is made of two runs of a round, and what it should be."""

    what: str
    of: Callable[[Run, Run], float | None]
    less_is_better: bool
    aim: float | None = None


@dataclasses.dataclass
class Figure:
    """A measure of something, round by round."""

    of: str
    what: str
    values: list[float]
    less_is_better: bool
    aim: float | None = None

    @property
    def name(self) -> str:
        """By which it is found again."""
        return f"{self.of}: {self.what}"

    def times_off(self) -> list[float]:
        """How many times as bad as its aim each round is; 1 and less: reached."""
        assert self.aim is not None, self.name
        if self.less_is_better:
            return [value / self.aim for value in self.values]
        return [self.aim / value for value in self.values]

    def verdict(self) -> str:
        """Whether the median has reached the aim."""
        if self.aim is None:
            return ""
        if not self.values:
            return "NOT MEASURED"
        return "reached" if statistics.median(self.times_off()) <= 1 else "NOT REACHED"

    def row(self) -> list[str]:
        """A line of the table."""
        sign = "<=" if self.less_is_better else ">="
        aim = "" if self.aim is None else f"{sign} {self.aim:.2f}"
        return [self.of, self.what, aim, spread(self.values), self.verdict()]


def ratio(key: str) -> Callable[[Run, Run], float | None]:
    """Return what divides a figure of a run by that of the run it is compared with.

    There is none of a round in which a server got nothing done: it did not have its core.
    """

    def divide(mine: Run, base: Run) -> float | None:
        return mine[key] / base[key] if mine[key] and base[key] else None

    return divide


def inverse(measure: Callable[[Run, Run], float | None]) -> Callable[[Run, Run], float | None]:
    """Return what says how many times as much is had for one, not what one costs."""

    def invert(mine: Run, base: Run) -> float | None:
        found = measure(mine, base)
        return None if found is None else 1 / found

    return invert


def measured(
    of: str, measures: Sequence[Measure], runs: Sequence[Run], base: Sequence[Run]
) -> list[Figure]:
    """Return the figures of some rounds."""
    figures = []
    for each in measures:
        found = [each.of(*pair) for pair in zip(runs, base, strict=True)]
        values = [value for value in found if value is not None]
        figures.append(Figure(of, each.what, values, each.less_is_better, each.aim))
    return figures


def table(figures: Sequence[Figure]) -> str:
    """What is printed of figures with aims."""
    heads = ["line", "figure", "aim", "median [least most]", ""]
    return lay_out([heads, *(figure.row() for figure in figures)])


# ---- the regression view ----


ALIKE = ("machine", "cores", "seconds_per_run", "span_bytes", "serve")
"""Of the regime: where it differs, so may figures of the same name."""


def earlier_run(path: Path, regime: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of an earlier run's --json. Says where its regime was another.

    Ends the program where it is none, or of another mode, which has other loads of the same names.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        earlier, figures = found["regime"], [Figure(**each) for each in found["figures"]]
        mode = earlier["mode"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = error.strerror if isinstance(error, OSError) else f"it has no figures ({error})"
        raise SystemExit(
            f"bench: --compare {path}: {what}; expected what --json of a mode with figures wrote"
        ) from None
    if mode != regime["mode"]:
        raise SystemExit(f"bench: --compare {path}: mode {mode}, expected {regime['mode']}")
    for name in ALIKE:
        if earlier.get(name) != regime[name]:
            said = f"{name} was {earlier.get(name)}, now {regime[name]}"
            print(f"bench: --compare {path}: {said}", file=sys.stderr)
    return figures


def change(new: Sequence[float], old: Sequence[float]) -> tuple[float, float, float]:
    """Return new / old of the medians, and its 95 % interval (bootstrap over both's rounds)."""
    dice = random.Random(1)
    found = sorted(
        statistics.median(dice.choices(new, k=len(new)))
        / statistics.median(dice.choices(old, k=len(old)))
        for _ in range(RESAMPLES)
    )
    low, high = found[RESAMPLES * 25 // 1000], found[RESAMPLES * 975 // 1000]
    return statistics.median(new) / statistics.median(old), low, high


def compared_row(new: Figure, old: Figure) -> list[str]:
    """A line of the regression view."""
    row = [new.of, new.what, spread(old.values), spread(new.values)]
    values = [*new.values, *old.values]
    if not (new.values and old.values) or min(values) <= 0:
        return [*row, "-", ""]
    if min(len(new.values), len(old.values)) == 1:
        ratio_now = statistics.median(new.values) / statistics.median(old.values)
        return [*row, f"{ratio_now:.3f} (-)", ""]
    middle, low, high = change(new.values, old.values)
    is_more, is_less = low > 1, high < 1
    is_worse = is_more if new.less_is_better else is_less
    said = "worse" if is_worse else "better" if is_more or is_less else ""
    return [*row, f"{middle:.3f} ({low:.3f} to {high:.3f})", said]


def comparison(figures: Sequence[Figure], earlier: Sequence[Figure]) -> str:
    """What is printed with --compare: each figure that both runs have, then and now.

    Compared are ratios, each of one run, and never times: the two runs may have been on machines
    of different speed.
    """
    by_name = {figure.name: figure for figure in earlier}
    both = [(figure, by_name[figure.name]) for figure in figures if figure.name in by_name]
    if not both:
        raise SystemExit("bench: --compare: the two runs have no figure in common")
    heads = ["line", "figure", "then", "now", "now / then (95 %)", ""]
    return lay_out([heads, *(compared_row(*pair) for pair in both)])
