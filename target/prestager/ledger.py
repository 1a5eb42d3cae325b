"""What was predicted, by which source, and what became of it.

A prediction says: these extents of this group are read before its deadline, with this chance. It
may have been acted on, held out, or only made (in shadow). It ends when the group is touched, or
at its deadline. From how predictions ended each source has a precision (by extents, fading, with a
beta prior), a table of chances as predicted and as it came, and a gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import I64
from prestage.target.prestager.formation import Bools
from prestage.target.prestager.hazard import F64

__all__ = ["Ended", "Gate", "Ledger", "Reliability", "Source", "SourceReport"]

RELIABILITY_BINS: Final = 10
PRIOR_USED: Final = 1.0
PRIOR_UNUSED: Final = 3.0
"""Before anything is known, as predictions: a source begins in doubt, and has to show itself."""


CALIBRATION_PRIOR: Final = 10.0
"""Predictions of a reliability bin before what came of them counts as much as what was said."""


class Source(IntEnum):
    """Where a prediction comes from."""

    RETURN = 0
    SUCCESSOR = 1
    NEIGHBOUR = 2
    CONTINUATION = 3


class Gate(IntEnum):
    """How far a source is trusted."""

    OPEN = 0
    LIMITED = 1
    """Only with flash that is idle."""
    PROBE = 2
    """A small share of its predictions is acted on, to see whether it has become better."""


class _Field(IntEnum):
    PREDICTED = 0
    ISSUED = 1
    IN_TIME = 2
    LATE = 3
    EVICTED = 4
    EXPIRED = 5


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Extents by source: of all predictions, acted on, and how those ended.

    `late` were still missing when they were read, `evicted` left the tier unread, `expired` were
    not read by their deadline. `precision` is the share of extents acted on that were read in time,
    `low` what it is at least, likely. `calibration_error` is the expected difference between the
    chance, as it was corrected when it was predicted, and the share that came true, over extents.
    """

    source: str
    gate: str
    predictions: int
    predicted: int
    issued: int
    in_time: int
    late: int
    evicted: int
    expired: int
    precision: float
    low: float
    calibration_error: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """Predictions with chances alike: their extents (fading), mean chance, and share that came."""

    count: float
    predicted: float
    realised: float


@dataclass(frozen=True, slots=True)
class Ended:
    """Predictions that have ended: were they acted on, did the group come, hits at the touch."""

    is_acted: Bools
    is_free: Bools
    """It was acted on or held out by the draw alone."""
    is_used: Bools
    hits: I64


def _step(chances: NDArray[Any]) -> I64:
    """Return the bins of reliability that chances are in."""
    step = np.minimum((chances * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
    return np.asarray(step, np.int64)


class Ledger:
    """Predictions by slot; the oldest gives way when all are taken."""

    LEARNED = ("serial", "totals", "predictions", "beta", "reliability", "corrected")

    def __init__(self, capacity: int, half_life_s: float, limits: tuple[float, float]) -> None:
        """`limits`: the precision from which a source is open, and from which it is limited."""
        self.serial = 0
        """Of the next prediction."""
        self.group = np.full(capacity, -1, np.int64)
        self.source = np.zeros(capacity, np.uint8)
        self.chance = np.zeros(capacity, np.float32)
        self.likely = np.zeros(capacity, np.float32)
        """The chance as it was corrected."""
        self.deadline_s = np.zeros(capacity)
        self.charged_s = np.zeros(capacity)
        """Up to when what it promises has been charged; that ends at the deadline."""
        self.promise = np.zeros(capacity)
        """Extents a second that are promised until the deadline."""
        self.is_acted = np.zeros(capacity, bool)
        self.is_free = np.zeros(capacity, bool)
        self.size = np.zeros(capacity, np.int32)
        self.hits = np.zeros(capacity, np.int32)
        self.reads = np.zeros(capacity, np.int32)
        self._half_life_s = half_life_s
        self._limits = limits
        sources = len(Source)
        self.totals = np.zeros((sources, len(_Field)), np.int64)
        self.predictions = np.zeros(sources, np.int64)
        self.beta = np.zeros((sources, 2))
        """Of predictions, fading: weight of what was used, and of what was not."""
        self.reliability = np.zeros((sources, RELIABILITY_BINS, 2))
        """By chance predicted: extents that were promised until now, and that came; fading."""
        self.corrected = np.zeros((sources, RELIABILITY_BINS, 3))
        """By chance as it was corrected, of what has ended: extents, chances, what came."""

    def add(
        self,
        source: Source,
        groups: I64,
        sizes: NDArray[Any],
        chances: NDArray[Any],
        deadlines_s: F64,
        is_acted: Bools,
        is_free: Bools,
        now_s: float,
    ) -> tuple[I64, Ended, I64]:
        """Write down predictions; return their slots, and the predictions that had to give way.

        The groups of those that gave way are returned last. `sizes` are extents.
        """
        slots = (self.serial + np.arange(len(groups))) % len(self.group)
        self._charge(slots, self.deadline_s[slots])
        open_ = slots[self.group[slots] >= 0]
        left = self.group[open_]
        ended = self.end(open_, is_used=False)
        self.serial += len(groups)
        self.group[slots] = groups
        self.source[slots] = source
        self.chance[slots] = chances
        self.likely[slots] = self.calibrated(source, chances)
        self.charged_s[slots], self.deadline_s[slots] = now_s, deadlines_s
        self.promise[slots] = sizes * chances / np.maximum(deadlines_s - now_s, 1e-9)
        self.is_acted[slots], self.is_free[slots] = is_acted, is_free
        self.size[slots] = sizes
        self.hits[slots] = self.reads[slots] = 0
        self.predictions[source] += len(groups)
        self.totals[source, _Field.PREDICTED] += int(np.sum(sizes))
        self.totals[source, _Field.ISSUED] += int(np.sum(sizes[is_acted]))
        return slots, ended, left

    def see_hits(self, slots: I64, is_hit: Bools) -> None:
        """Extents of predictions were read: one slot for each, and whether it was warm."""
        acted = self.is_acted[slots]
        for field, which in ((_Field.IN_TIME, acted & is_hit), (_Field.LATE, acted & ~is_hit)):
            self._count(self.source[slots[which]], field)
        np.add.at(self.hits, slots[is_hit], 1)
        np.add.at(self.reads, slots, 1)

    def see_evicted(self, slots: I64) -> None:
        """Extents that were fetched for predictions left the tier unread."""
        self._count(self.source[slots], _Field.EVICTED)

    def _count(self, sources: NDArray[Any], field: _Field, sizes: Any = None) -> None:
        counted = np.bincount(sources, sizes, minlength=len(Source))
        self.totals[:, field] += counted.astype(np.int64)

    def charge(self, now_s: float) -> None:
        """Charge sources with what was promised until now.

        What comes true ends early and what does not ends late. So a promise is charged evenly up to
        its deadline, whether it has come true or not: counted when they end, those that came would
        be ahead of those that did not, and chances too high as long as more is predicted than was.
        """
        slots = np.flatnonzero(self.charged_s < self.deadline_s)
        self._charge(slots, np.minimum(self.deadline_s[slots], now_s))

    def _charge(self, slots: I64, until_s: F64) -> None:
        promised = self.promise[slots] * np.maximum(until_s - self.charged_s[slots], 0)
        where = (self.source[slots].astype(np.int64), _step(self.chance[slots]))
        np.add.at(self.reliability[:, :, 0], where, promised)
        self.charged_s[slots] = until_s

    def due(self, now_s: float) -> I64:
        """Return the slots of predictions whose deadline has passed."""
        return np.flatnonzero((self.group >= 0) & (self.deadline_s <= now_s))

    def end(self, slots: I64, *, is_used: bool) -> Ended:
        """End predictions, each once: their groups came, or did not in time."""
        source = self.source[slots].astype(np.int64)
        size = self.size[slots].astype(np.float64)
        came = np.minimum(self.reads[slots], size)
        acted = self.is_acted[slots]
        # What was acted on was of use when it was there in time, and not when it was only right.
        used = np.where(acted, np.minimum(self.hits[slots], size), came)
        np.add.at(self.beta, source, np.stack((used, size - used), axis=1))
        np.add.at(self.reliability[:, :, 1], (source, _step(self.chance[slots])), came)
        likely = self.likely[slots]
        row = np.stack((size, size * likely, came), axis=1)
        np.add.at(self.corrected, (source, _step(likely)), row)
        if not is_used:
            self._count(source[acted], _Field.EXPIRED, self.size[slots[acted]])
        has_come = np.full(len(slots), is_used)
        ended = Ended(acted, self.is_free[slots], has_come, self.hits[slots].astype(np.int64))
        self.group[slots] = -1
        return ended

    def fade(self, elapsed_s: float) -> None:
        """Let what was counted lose weight."""
        factor = 2.0 ** (-elapsed_s / self._half_life_s)
        self.beta *= factor
        self.reliability *= factor
        self.corrected *= factor

    def precision(self, source: Source) -> tuple[float, float]:
        """Return the mean of the share that is used, and that less one deviation."""
        used, unused = self.beta[source].tolist()
        unit = self._mean_size()
        alpha, beta = used / unit + PRIOR_USED, unused / unit + PRIOR_UNUSED
        mean = alpha / (alpha + beta)
        deviation = (mean * (1 - mean) / (alpha + beta + 1)) ** 0.5
        return mean, mean - deviation

    def _mean_size(self) -> float:
        """Return extents per prediction: they come and go together."""
        total = int(self.totals[:, _Field.PREDICTED].sum())
        return max(1.0, total / max(1, int(self.predictions.sum())))

    def gate(self, source: Source) -> Gate:
        """Return how far the source is trusted now."""
        _, low = self.precision(source)
        if low >= self._limits[0]:
            return Gate.OPEN
        return Gate.LIMITED if low >= self._limits[1] else Gate.PROBE

    def calibrated(self, source: Source, chances: F64) -> F64:
        """Return chances corrected by what came of predictions like them."""
        promised, came = self.reliability[source].T
        prior = CALIBRATION_PRIOR * self._mean_size() / 2
        factor = (came + prior) / (promised + prior)
        return np.asarray(np.clip(chances * factor[_step(chances)], 0, 1), np.float64)

    def calibration_error(self, source: Source | None = None) -> float:
        """Return the expected calibration error of a source's predictions, or of all sources'.

        Of all sources those of one do not make up for those of another.
        """
        table = self.corrected if source is None else self.corrected[source]
        count, predicted, came = np.moveaxis(table, -1, 0)
        return float(np.abs(predicted - came).sum() / max(count.sum(), 1e-9))

    def curve(self) -> tuple[Reliability, ...]:
        """Return how corrected chances of all sources came true, by tenths of the chance."""
        return tuple(
            Reliability(count, predicted / count, came / count)
            for count, predicted, came in self.corrected.sum(axis=0).tolist()
            if count > 0
        )

    def report(self) -> tuple[SourceReport, ...]:
        """Return the numbers of all sources."""
        return tuple(self._report(source) for source in Source)

    def _report(self, source: Source) -> SourceReport:
        counts = {field.name.lower(): int(self.totals[source, field]) for field in _Field}
        return SourceReport(
            source=source.name.lower(),
            gate=self.gate(source).name.lower(),
            predictions=int(self.predictions[source]),
            **counts,
            precision=counts["in_time"] / max(counts["issued"], 1),
            low=self.precision(source)[1],
            calibration_error=self.calibration_error(source),
        )
