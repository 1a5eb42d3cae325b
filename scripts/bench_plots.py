"""Pictures of what `scripts/bench` measured, as SVG (matplotlib, the extra `plot`)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_figures import Figure, ratio
from bench_growth import Results, aim, steps
from bench_run import Run

STYLES = {"read": "o-", "write": "s-", "read, bare": "o:", "write, bare": "s:"}


def matplotlib() -> Any:
    """Return pyplot. Ends the program, saying why, where it is not installed."""
    try:
        import matplotlib as mpl
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise SystemExit(
            f"bench: --plot: {error}; expected matplotlib, by the extra `plot`: "
            ".venv/bin/pip install -e '.[plot]', and .venv/bin/python scripts/bench"
        ) from None
    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "prestage", "font.size": 9})
    return plt


def save(plot: Any, path: Path) -> None:
    """Write a picture that is the same for the same figures."""
    plot.savefig(path, metadata={"Date": None})
    matplotlib().close(plot)


def errors(values: Sequence[Sequence[float]]) -> tuple[list[float], list[list[float]]]:
    """Return medians, and how far the smallest and largest are from them."""
    middle = [statistics.median(each) for each in values]
    pairs = list(zip(middle, values, strict=True))
    return middle, [[m - min(each) for m, each in pairs], [max(each) - m for m, each in pairs]]


def draw_growth(results: Results, folder: Path) -> None:
    """One picture for each thing that grows: cost over size, and the aim."""
    pyplot = matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    for what, by_load in results.items():
        plot, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
        every = [step for step in steps()[what] if step.label in by_load["read"]]
        sizes = [step.size for step in every]
        first = every[0]
        for name, runs in by_load.items():
            values = [costs(runs[step.label], runs[first.label]) for step in every]
            middle, spans = errors(values)
            axes.errorbar(
                sizes, middle, spans, fmt=STYLES[name], label=name, capsize=2, markersize=4
            )
        aims = [aim(size / first.size) for size in sizes]
        axes.plot(sizes, aims, color="grey", linewidth=0.8, linestyle=":", label="aim")
        axes.set(xscale="log", ylim=(0, None), xlabel=what, ylabel=f"CPU a command / {first.label}")
        axes.set_xticks(sizes, [step.label for step in every], minor=False)
        axes.minorticks_off()
        axes.legend(fontsize="small")
        save(plot, folder / f"growth-{what}.svg")


def costs(runs: Sequence[Run], base: Sequence[Run]) -> list[float]:
    """Return the ratio of each round; not a number where there is none."""
    divide = ratio("cpu_us_per_command")
    found = [divide(*pair) for pair in zip(runs, base, strict=True)]
    return [each for each in found if each is not None] or [math.nan]


def draw_figures(figures: Sequence[Figure], path: Path) -> None:
    """One picture of all ratios: medians, smallest and largest, and the aims."""
    pyplot = matplotlib()
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [figure for figure in figures if "ratio" in figure.what and figure.values]
    plot, axes = pyplot.subplots(figsize=(7, 1 + 0.22 * len(shown)), layout="constrained")
    places = range(len(shown))
    middle, spans = errors([figure.values for figure in shown])
    axes.errorbar(middle, places, xerr=spans, fmt="o", capsize=2, markersize=4, label="median")
    aims = [(figure.aim, place) for figure, place in zip(shown, places, strict=True) if figure.aim]
    if aims:
        axes.plot(*zip(*aims, strict=True), "|", color="grey", markersize=10, label="aim")
    axes.axvline(1, color="grey", linewidth=0.5)
    axes.set_yticks(places, [figure.name for figure in shown])
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.legend(fontsize="small")
    save(plot, path)


def draw(mode: str, results: Mapping[str, Any], figures: Sequence[Figure], folder: Path) -> None:
    """Draw what a mode has measured into `folder`."""
    if mode == "growth":
        draw_growth(dict(results), folder)
    else:
        draw_figures(figures, folder / f"{mode}.svg")
