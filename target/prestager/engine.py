"""The prestager: learns from facts, and says what to keep and what to bring in.

Pure: no clock, no I/O, the same facts and calls give the same orders. It is driven live by its
process, and by the simulator on a virtual clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import AGE_BINS, CLASSES, age_bins
from prestage.target.prestager.classes import FAMILIES, LANDED, value_classes
from prestage.target.prestager.extents import EXTENT_BITS, I64, ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Formation, Touches
from prestage.target.prestager.groups import SHARED, Groups
from prestage.target.prestager.hazard import ReturnHazard
from prestage.target.prestager.intake import Evictions, Fetched, Intake
from prestage.target.prestager.planner import Plan, Planner, room_for
from prestage.target.prestager.prices import Prices, advantage, keep_index
from prestage.target.prestager.shared import ORDER, Gauges, OrderEnd, OrderKind
from prestage.target.prestager.tables import protect
from prestage.target.ring import RingWaits

__all__ = ["Decision", "Prestager", "PrestagerConfig", "PrestagerReport"]

CHUNK: Final = 4096
"""Facts that are seen as of one moment."""


@dataclass(frozen=True, slots=True)
class PrestagerConfig:
    """What can be chosen; the defaults are meant for all loads."""

    half_life_s: float = 1800.0
    """After which what was learned weighs half."""
    flash_floor: float = 0.3
    """The least price of reading an extent ahead, in reads served from DRAM."""
    tick_s: float = 0.25
    refresh_s: float = 2.0
    horizon_s: float = 0.5
    """Of flash time that fetches may wait for."""
    holdout_share: float = 0.05


@dataclass(frozen=True, slots=True)
class Decision:
    """Orders (dtype ORDER), a value table or None, when to be called at latest, what wakes."""

    orders: NDArray[np.void]
    values: NDArray[np.float32] | None
    next_ns: int
    waits: RingWaits


@dataclass(frozen=True, slots=True)
class PrestagerReport:
    """How it is doing."""

    groups: int
    extents: int


class Prestager:
    """One for a target; see the module."""

    def __init__(
        self, config: PrestagerConfig, *, frame_count: int, slot_size: int, seed: int
    ) -> None:
        self._config = config
        self._slot_size = slot_size
        self._extents = ExtentMap()
        self._groups = Groups()
        self._flows = Flows()
        self._intake = Intake(self._extents, self._flows, slot_size)
        self._formation = Formation(self._extents, self._groups, self._flows)
        self._hazard = ReturnHazard(FAMILIES, half_life_s=config.half_life_s)
        self._planner = Planner(self._extents, self._groups)
        self._prices = Prices(flash_floor=config.flash_floor)
        self._index = np.zeros((CLASSES, AGE_BINS))
        self._gain = np.zeros((CLASSES, AGE_BINS))
        self._unsaid: list[I64] = []
        self._refreshed_s = -np.inf
        self._ticked_s = -np.inf
        self._last_id = 0

    def observe(self, facts: NDArray[np.void]) -> None:
        """Learn from facts (dtype FACT), in order of time; no view of them is kept."""
        for start in range(0, len(facts), CHUNK):
            seen = self._intake.take(facts[start : start + CHUNK])
            if len(seen.accesses.rows):
                self._learn(self._formation.take(seen.accesses))
            self._hear_evictions(seen.evictions)
            self._hear_fetched(seen.fetched)

    def decide(self, now_ns: int, gauges: Gauges) -> Decision:
        """Return what is to be done now."""
        now_s = now_ns * 1e-9
        values = None
        if now_s - self._refreshed_s >= self._config.refresh_s:
            values = self._refresh(now_s)
        orders = [self._classify(now_s)]
        if now_s - self._ticked_s >= self._config.tick_s:
            self._ticked_s = now_s
            orders.append(self._fetch(now_s, gauges))
        next_s = self._ticked_s + self._config.tick_s
        return Decision(np.concatenate(orders), values, int(next_s * 1e9) + 1, RingWaits.ALL)

    def report(self) -> PrestagerReport:
        """Return how it is doing."""
        return PrestagerReport(self._groups.count, self._extents.count)

    # ---- learning ----

    def _learn(self, touches: Touches) -> None:
        groups = self._groups
        back = touches.is_return
        self._hazard.add_returns(touches.before_class[back], age_bins(touches.before_age_s[back]))
        number = touches.groups
        groups.value_class[number] = value_classes(
            groups.touches[number], groups.gap_s[number], groups.size[number],
            groups.kind[number] == SHARED,
        )  # fmt: skip
        groups.asked_s[number] = 0
        self._unsaid.append(touches.rows)

    def _hear_evictions(self, gone: Evictions) -> None:
        if len(gone.rows) == 0:
            return
        owner = self._extents.group[gone.rows]
        self._groups.missing[owner[owner >= 0]] = 1
        read = ~gone.is_unread
        self._prices.see_victims(self._index[gone.classes[read], age_bins(gone.ages_s[read])])

    def _hear_fetched(self, done: Fetched) -> None:
        if len(done.rows) == 0:
            return
        landed = done.ends == OrderEnd.LANDED
        self._unsaid.append(done.rows[landed])
        owner = self._extents.group[done.rows[~landed]]
        self._groups.missing[owner[owner >= 0]] = 1

    # ---- deciding ----

    def _refresh(self, now_s: float) -> NDArray[np.float32]:
        groups = self._groups
        if np.isfinite(self._refreshed_s):
            self._hazard.fade(now_s - self._refreshed_s)
        self._refreshed_s = now_s
        number = groups.live()
        bins = age_bins(now_s - groups.touched_s[number])
        where = groups.value_class[number].astype(np.int64) * AGE_BINS + bins
        size = groups.size[number]
        waiting = np.bincount(where, size, minlength=CLASSES * AGE_BINS)
        mean = float(size.mean()) if len(size) else 1.0
        chances = self._hazard.chances(waiting.reshape(CLASSES, AGE_BINS), mean)
        self._index = keep_index(chances)
        self._gain = advantage(chances, self._prices.memory, self._prices.flash)
        return protect(self._index, self._prices.memory).astype(np.float32)

    def _classify(self, now_s: float) -> NDArray[np.void]:
        """Return orders that give the extents touched since the last time their classes."""
        if not self._unsaid:
            return np.zeros(0, ORDER)
        rows = np.concatenate(self._unsaid) if len(self._unsaid) > 1 else self._unsaid[0]
        self._unsaid.clear()
        extents, groups = self._extents, self._groups
        owner = extents.group[rows]
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        orders = self._orders(rows, OrderKind.CLASSIFY)
        orders["value_class"] = groups.value_class[owner]
        age_s = np.maximum(now_s - groups.touched_s[owner], 0)
        orders["age_ns"] = (age_s * 1e9).astype(np.uint64)
        return orders

    def _fetch(self, now_s: float, gauges: Gauges) -> NDArray[np.void]:
        room = room_for(gauges, self._config.horizon_s)
        if room == 0:
            return np.zeros(0, ORDER)
        candidates = self._planner.by_return(now_s, self._gain, self._prices.flash)
        if len(candidates.groups) == 0:
            return np.zeros(0, ORDER)
        plan = self._planner.plan(candidates, room)
        return self._fetch_orders(plan, candidates.groups, now_s)

    def _fetch_orders(self, plan: Plan, numbers: I64, now_s: float) -> NDArray[np.void]:
        groups, extents = self._groups, self._extents
        orders = self._orders(plan.rows, OrderKind.FETCH)
        number = numbers[plan.candidate]
        extents.waiting[plan.rows] = 1
        age_s = now_s - groups.touched_s[number]
        orders["value_class"] = LANDED
        orders["value"] = self._index[groups.value_class[number], age_bins(age_s)]
        orders["id"] = self._last_id + 1 + np.arange(len(orders))
        orders["expires_ns"] = int((now_s + 4 * self._config.horizon_s) * 1e9)
        self._last_id += len(orders)
        groups.asked_s[number] = now_s + 8 * self._config.horizon_s
        return orders

    def _orders(self, rows: I64, kind: OrderKind) -> NDArray[np.void]:
        orders = np.zeros(len(rows), ORDER)
        key = self._extents.key[rows]
        extent = key & np.uint64((1 << EXTENT_BITS) - 1)
        orders["kind"] = kind
        orders["volume"] = key >> np.uint64(EXTENT_BITS)
        orders["offset"] = extent * np.uint64(self._slot_size)
        orders["length"] = self._slot_size
        orders["tenant"] = self._groups.tenant[np.maximum(self._extents.group[rows], 0)]
        return orders
