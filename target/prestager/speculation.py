"""From candidates to fetches: predictions, which of them are acted on, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.extents import (
    ABSENT,
    AHEAD,
    I64,
    PREDICTED,
    READ_AHEAD,
    WAITING,
    WAS_FETCHED,
    ExtentMap,
)
from prestage.target.prestager.formation import Bools, Touches
from prestage.target.prestager.groups import Groups
from prestage.target.prestager.guard import Guard
from prestage.target.prestager.hazard import F64
from prestage.target.prestager.holdout import Holdout, draw
from prestage.target.prestager.intake import Evictions, Fetched
from prestage.target.prestager.ledger import Ended, Gate, Ledger, Source
from prestage.target.prestager.planner import Candidates, Planner
from prestage.target.prestager.shared import OrderEnd

__all__ = ["Fetches", "Speculation", "SpeculationConfig"]

RETRY_S = 2.0
"""Until a fetch that was acted on is looked at again."""


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """`limits` as in Ledger; `probe_share` of a source that is not trusted is acted on.

    `ahead_share` of the tier may be filled with what was fetched ahead and not read.
    """

    predictions: int = 1 << 14
    half_life_s: float = 1800.0
    limits: tuple[float, float] = (0.25, 0.15)
    probe_share: float = 0.05
    ahead_share: float = 0.9


@dataclass(frozen=True, slots=True)
class Fetches:
    """Extents to fetch, the group that each is fetched for, how long to hold it, and the gain."""

    rows: I64
    groups: I64
    holds_s: F64
    gains: F64


_NONE = np.zeros(0, np.int64)
NOTHING = Fetches(_NONE, _NONE, np.zeros(0), np.zeros(0))


class Speculation:
    """Owns what is predicted. `frame_count` is the tier's."""

    def __init__(
        self,
        config: SpeculationConfig,
        extents: ExtentMap,
        groups: Groups,
        holdout: Holdout,
        frame_count: int,
    ) -> None:
        self._config = config
        self._extents = extents
        self._groups = groups
        self._frame_count = frame_count
        self.holdout = holdout
        self.ledger = Ledger(config.predictions, config.half_life_s, config.limits)
        self.guard = Guard(extents)
        self.planner = Planner(extents, groups)
        self.ahead = 0
        """Extents in the tier that were fetched ahead and not read."""

    # ---- what became of it ----

    def see_touches(self, touches: Touches) -> None:
        """Extents were read or written: predictions about their groups end."""
        extents, groups = self._extents, self._groups
        rows = touches.rows
        marks = extents.marks[rows]
        is_read = ~touches.is_write
        self.guard.see_accesses(rows[is_read & ~touches.is_hit], int((~touches.is_hit).sum()))
        extents.ghost[rows] = 0
        marked = np.flatnonzero(marks)
        if len(marked):
            self.ahead -= int(np.sum((marks & AHEAD) != 0))
            extents.marks[rows] = 0
            self._see_hits(touches, marks, marked[(marks[marked] & PREDICTED) != 0])
        numbers = np.union1d(touches.returned, touches.freed)
        slots = groups.prediction[numbers].astype(np.int64)
        numbers, slots = numbers[slots >= 0], slots[slots >= 0]
        if len(slots):
            self._settle(self.ledger.end(slots, is_used=True), numbers)

    def _see_hits(self, touches: Touches, marks: NDArray[np.uint8], which: I64) -> None:
        # What is written anew was not wanted from flash: that does not make a prediction true.
        which = which[~touches.is_write[which]]
        slots = self._groups.prediction[touches.before[which]].astype(np.int64)
        which, slots = which[slots >= 0], slots[slots >= 0]
        is_hit = touches.is_hit[which]
        self.ledger.see_hits(slots, is_hit)
        ahead = (marks[which] & WAS_FETCHED) != 0
        self.guard.see_gain(int(np.sum(is_hit & ahead)))

    def see_evictions(self, gone: Evictions) -> None:
        """Extents left the tier."""
        extents = self._extents
        self.guard.see_evicted(gone.rows[~gone.is_unread])
        was_ahead = (extents.marks[gone.rows] & AHEAD) != 0
        rows = gone.rows[was_ahead]
        if len(rows) == 0:
            return
        self.ahead -= len(np.unique(rows))
        extents.marks[rows] &= np.uint8(255 - AHEAD)
        # Reads are looked at when their burst is over: some have been evicted again by then.
        read = gone.rows[was_ahead & ~gone.is_unread]
        extents.marks[read] |= np.uint8(READ_AHEAD)
        unread = gone.rows[was_ahead & gone.is_unread]
        owner = extents.group[unread]
        slots = self._groups.prediction[owner].astype(np.int64)
        owner, slots = owner[slots >= 0], slots[slots >= 0]
        self.ledger.see_evicted(slots)
        # What could not be held until then is not fetched once more for the same prediction.
        self._groups.asked_s[owner] = self.ledger.deadline_s[slots]

    def see_fetched(self, done: Fetched) -> tuple[int, I64]:
        """Fetches have ended; return how many extents have landed, and which by return times."""
        extents = self._extents
        landed = done.rows[(done.ends == OrderEnd.LANDED) & (extents.resident[done.rows] != 0)]
        self.guard.see_landed(len(landed))
        fresh = landed[(extents.marks[landed] & (PREDICTED | AHEAD)) == PREDICTED]
        self.ahead += len(fresh)
        extents.marks[fresh] |= np.uint8(AHEAD)
        slots = self._groups.prediction[np.maximum(extents.group[fresh], 0)].astype(np.int64)
        rated = (slots >= 0) & (self.ledger.source[slots] == Source.RETURN)
        return len(landed), fresh[rated]

    def expire(self, now_s: float) -> None:
        """Predictions whose deadline has passed have failed."""
        self.ledger.charge(now_s)
        slots = self.ledger.due(now_s)
        if len(slots):
            numbers = self.ledger.group[slots]
            self._settle(self.ledger.end(slots, is_used=False), numbers)

    def _settle(self, ended: Ended, numbers: I64) -> None:
        self._groups.prediction[numbers] = ABSENT
        free = ended.is_free
        self.holdout.settle(ended.is_acted[free], np.where(ended.is_used, ended.hits, 0)[free])

    # ---- what to do ----

    def propose(
        self,
        source: Source,
        candidates: Candidates,
        room: int,
        now_s: float,
        *,
        is_idle: bool,
    ) -> Fetches:
        """Predict, decide what is acted on, and return what is to be fetched now."""
        groups = self._groups
        if self.guard.is_off(now_s):
            return NOTHING
        candidates = self._calibrate(source, candidates)
        self._predict(source, candidates.where(groups.prediction[candidates.groups] < 0), now_s)
        candidates = candidates.where(groups.prediction[candidates.groups] >= 0)
        slots = groups.prediction[candidates.groups].astype(np.int64)
        gate = self.ledger.gate(source)
        may = self.ledger.is_acted[slots]
        if gate == Gate.LIMITED and not is_idle:
            may &= False
        # Not to look again each time at what is decided already.
        waits = np.where(self.ledger.is_acted[slots], now_s + RETRY_S, candidates.deadlines_s)
        groups.asked_s[candidates.groups] = waits
        room = min(room, int(self._config.ahead_share * self._frame_count) - self.ahead)
        if room <= 0 or not may.any():
            return NOTHING
        chosen = candidates.where(may)
        plan = self.planner.plan(chosen, room)
        self._extents.marks[plan.rows] |= np.uint8(WAITING)
        holds_s = chosen.deadlines_s[plan.candidate] - now_s
        gains = chosen.gains[plan.candidate]
        return Fetches(plan.rows, chosen.groups[plan.candidate], holds_s, gains)

    def _calibrate(self, source: Source, candidates: Candidates) -> Candidates:
        """Return the candidates that are worth it still by what came of others like them."""
        likely = self.ledger.calibrated(source, candidates.chances)
        gains = candidates.gains * likely / np.maximum(candidates.chances, 1e-9)
        return replace(candidates, gains=gains).where(gains > 1)

    def _predict(self, source: Source, new: Candidates, now_s: float) -> None:
        """Write down predictions about groups of which something is missing, and mark it."""
        if len(new.groups) == 0:
            return
        owner, rows = self._groups.latest(new.groups, self._extents)
        gone = self._extents.resident[rows] == 0
        owner, rows = owner[gone], rows[gone]
        sizes = np.bincount(owner, minlength=len(new.groups))
        self._groups.missing[new.groups] = sizes > 0
        self._extents.marks[rows] |= np.uint8(PREDICTED)
        new, sizes = new.where(sizes > 0), sizes[sizes > 0]
        serials = self.ledger.serial + np.arange(len(new.groups))
        acts, is_free = self._draw(source, serials)
        slots, ended, left = self.ledger.add(
            source, new.groups, sizes, new.chances, new.deadlines_s, acts, is_free, now_s
        )
        self._settle(ended, left)
        self._groups.prediction[new.groups] = slots

    def _draw(self, source: Source, serials: I64) -> tuple[Bools, Bools]:
        """Return which predictions are acted on, and whose acting the holdout's draw decides."""
        is_held = self.holdout.is_held(serials)
        if self.ledger.gate(source) == Gate.PROBE:
            is_free = draw(int(source) + 1, serials) < self._config.probe_share
        else:
            is_free = np.ones(len(serials), bool)
        return is_free & ~is_held, is_free
