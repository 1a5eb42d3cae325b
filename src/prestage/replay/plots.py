"""Pictures of a comparison, as SVG (matplotlib, the extra `plot`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prestage.replay.report import Trial
from prestage.target.errors import TargetError
from prestage.target.prestager.engine import PrestagerReport


def matplotlib() -> Any:
    """Return pyplot. TargetError where it is not installed."""
    try:
        import matplotlib as mpl
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise TargetError(
            str(error), "--plot", "matplotlib, by the extra `plot`: pip install -e '.[plot]'"
        ) from None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "prestage"
    return plt


def draw(trials: Sequence[Trial], folder: Path) -> list[Path]:
    """Draw what the trials have into `folder`; return the files. TargetError when it cannot be."""
    pyplot = matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, plot in (
        ("time-to-data", _waits),
        ("gap-closed", _gaps),
        ("precision", _precision),
        ("look-ahead", _look_ahead),
        ("calibration", _calibration),
    ):
        figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
        if plot(axes, trials):
            axes.set_title(trials[0].workload.name, fontsize="medium")
            path = folder / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None})
            made.append(path)
        pyplot.close(figure)
    return made


def _waits(axes: Any, trials: Sequence[Trial]) -> bool:
    """Time to data: how many requests had everything by then."""
    rows = [each.row for each in trials[0].rows if each.row.wait_s is not None]
    for row in rows:
        assert row.wait_s is not None
        wait_s = np.sort(row.wait_s[~np.isnan(row.wait_s)])
        if len(wait_s):
            share = np.arange(1, len(wait_s) + 1) / len(wait_s)
            axes.step(np.maximum(wait_s, 1e-4), share, where="post", label=row.policy)
    axes.set(xscale="log", xlabel="time to data (s)", ylabel="share of requests")
    axes.legend(fontsize="small")
    return bool(rows)


def _means(trials: Sequence[Trial], name: str) -> dict[str, float]:
    """Return by policy the mean of a measure over the trials."""
    found: dict[str, list[float]] = {}
    for trial in trials:
        for each in trial.rows:
            value = getattr(each.row, name)
            if value is not None:
                found.setdefault(each.row.policy, []).append(value)
    return {policy: float(np.mean(values)) for policy, values in found.items()}


def _gaps(axes: Any, trials: Sequence[Trial]) -> bool:
    """The share of the gap between LRU and the clairvoyant bound that each policy closes."""
    gaps = _means(trials, "gap_closed")
    axes.barh(list(gaps), list(gaps.values()))
    axes.invert_yaxis()
    axes.set(xlabel="gap closed: (hit ratio - LRU) / (clairvoyant - LRU)")
    return bool(gaps)


def _precision(axes: Any, trials: Sequence[Trial]) -> bool:
    """Precision against what it costs."""
    precision = _means(trials, "precision")
    flash = _means(trials, "flash_reads_per_read")
    for policy, value in precision.items():
        axes.scatter(flash[policy], value, label=policy)
    axes.set(xlabel="flash reads per read", ylabel="precision", ylim=(0, 1.05))
    axes.legend(fontsize="small")
    return bool(precision)


def _look_ahead(axes: Any, trials: Sequence[Trial]) -> bool:
    """The value of lead time: hit ratio of oracles with different look-aheads."""
    hits = _means(trials, "read_hit_ratio")
    points = sorted(
        (float(policy.partition(":")[2]), hit)
        for policy, hit in hits.items()
        if policy.startswith("oracle:")
    )
    if len(points) < 2:
        return False
    axes.plot(*zip(*points, strict=True), marker="o")
    axes.set(xscale="symlog", xlabel="look-ahead (s)", ylabel="read hit ratio", ylim=(0, 1.05))
    return True


def _calibration(axes: Any, trials: Sequence[Trial]) -> bool:
    """What was predicted against what happened."""
    is_drawn = False
    for each in trials[0].rows:
        report = each.row.report
        if isinstance(report, PrestagerReport) and report.reliability:
            points = [(one.predicted, one.realised) for one in report.reliability]
            axes.plot(*zip(*points, strict=True), marker="o", label=each.row.policy)
            is_drawn = True
    axes.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    axes.set(xlabel="predicted probability of use", ylabel="share that was used")
    if is_drawn:
        axes.legend(fontsize="small")
    return is_drawn
