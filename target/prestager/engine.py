"""The prestager: learns from facts, and says what to keep and what to bring in.

Pure: no clock, no I/O, the same facts and calls give the same orders. It is driven live by its
process, and by the simulator on a virtual clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.ages import AGE_BINS, CLASSES, age_bins
from prestage.target.prestager.bursts import Bursts
from prestage.target.prestager.classes import STRATA, hold_classes, queue_classes, value_classes
from prestage.target.prestager.extents import EXTENT_BITS, I64, ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses, Bools, Formation, Touches
from prestage.target.prestager.groups import SHARED, Groups
from prestage.target.prestager.hazard import F64, ReturnHazard
from prestage.target.prestager.holdout import Benefit, Holdout
from prestage.target.prestager.intake import Evictions, Intake
from prestage.target.prestager.ledger import Source, SourceReport
from prestage.target.prestager.persistence import (
    load_arrays,
    load_groups,
    save_arrays,
    save_groups,
)
from prestage.target.prestager.planner import room_for
from prestage.target.prestager.prices import Prices, outlook
from prestage.target.prestager.score import ReturnScore
from prestage.target.prestager.shadow import Shadows
from prestage.target.prestager.shared import ORDER, Gauges, OrderKind
from prestage.target.prestager.speculation import Fetches, Speculation, SpeculationConfig
from prestage.target.prestager.tables import HELD_WORTH, POLICIES, in_force, lru_table, mq_table
from prestage.target.ring import RingWaits

__all__ = ["Decision", "Prestager", "PrestagerConfig", "PrestagerReport"]

CHUNK: Final = 4096
"""Facts that are seen as of one moment."""
RECENT_S: Final = 1200.0
"""Groups touched so lately say how scores are spread."""


@dataclass(frozen=True, slots=True)
class PrestagerConfig:
    """What can be chosen; the defaults are meant for all loads."""

    half_life_s: float = 1800.0
    """After which what was learned weighs half."""
    flash_floor: float = 0.3
    """The least price of reading an extent ahead, in reads served from DRAM."""
    most_flash_reads: float = 1.4
    """Flash reads per read, demand and ahead, above which reading ahead becomes dearer."""
    tick_s: float = 0.25
    """Between looks at what to fetch."""
    refresh_s: float = 5.0
    """Between looks at all groups, for new value tables."""
    horizon_s: float = 0.5
    """Of flash time that fetches may wait for."""
    holdout_share: float = 0.05
    """Of predictions, which are not acted on, so that the benefit is measured."""
    most_extents: int = 1 << 23
    """Extents that are known at most: those of the groups not touched for longest are forgotten."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Orders (dtype ORDER), a value table or None, when to be called at latest, what wakes."""

    orders: NDArray[np.void]
    values: NDArray[np.float32] | None
    next_ns: int
    waits: RingWaits


@dataclass(frozen=True, slots=True)
class PrestagerReport:
    """How it is doing: what is known, what is in force, prices, sources and the benefit."""

    groups: int
    extents: int
    policy: str
    memory_price: float
    flash_price: float
    is_off: bool
    """Nothing is fetched for now: it drove out more than it gained."""
    hit_ratios: dict[str, float]
    """Of the policies that the tier can follow, on a sample and without fetches."""
    sources: tuple[SourceReport, ...]
    benefit: Benefit
    memory_bytes: int


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
        self._bursts = Bursts(self._flows)
        self._score = ReturnScore(config.half_life_s)
        self._formation = Formation(self._extents, self._groups, self._flows, self._hear_returns)
        self._hazard = ReturnHazard(half_life_s=config.half_life_s)
        self._prices = Prices(flash_floor=config.flash_floor)
        self._speculation = Speculation(
            SpeculationConfig(half_life_s=config.half_life_s), self._extents, self._groups,
            Holdout(config.holdout_share, seed), frame_count,
        )  # fmt: skip
        self._shadows = Shadows(POLICIES, frame_count, config.half_life_s)
        self._class_scores = np.zeros(CLASSES)
        chances = self._score.chances(self._class_scores, STRATA)
        self._outlook = outlook(chances, 0.0, config.flash_floor)
        self._unsaid: list[I64] = []
        self._doomed: list[I64] = []
        """Rows of extents that are no more."""
        self._refreshed_s = self._ticked_s = -np.inf
        self._last_id = 0
        self._reads = self._flash_reads = 0.0
        self._life_s = 60.0
        """How old victims are, as of late."""
        self._tables: dict[str, F64] = {}
        self._margins = dict.fromkeys(POLICIES, 0.0)
        """What victims are worth by each table, as of late."""
        self._set_tables()

    def observe(self, facts: NDArray[np.void]) -> None:
        """Learn from facts (dtype FACT), in order of time; no view of them is kept."""
        for start in range(0, len(facts), CHUNK):
            seen = self._intake.take(facts[start : start + CHUNK])
            self._bursts.add(seen.accesses)
            if self._bursts.is_full:
                self._take_bursts(float(seen.accesses.times_s[-1]))
            if len(seen.gone):
                self._doomed.append(seen.gone)
            if len(seen.evictions.rows):
                self._hear_evictions(seen.evictions)
            if len(seen.fetched.rows):
                self._flash_reads += self._speculation.see_fetched(seen.fetched)

    def decide(self, now_ns: int, gauges: Gauges) -> Decision:
        """Return what is to be done now."""
        now_s = now_ns * 1e-9
        self._take_bursts(now_s)
        values = None
        if now_s - self._refreshed_s >= self._config.refresh_s:
            values = self._refresh(now_s)
        orders = [self._classify(now_s)]
        if now_s - self._ticked_s >= self._config.tick_s:
            self._ticked_s = now_s
            self._speculation.expire(now_s)
            orders.append(self._fetch(now_s, gauges))
        next_s = self._ticked_s + self._config.tick_s
        return Decision(np.concatenate(orders), values, int(next_s * 1e9) + 1, RingWaits.HINTS)

    def report(self) -> PrestagerReport:
        """Return how it is doing."""
        return PrestagerReport(
            self._groups.count,
            self._extents.count,
            self._shadows.chosen,
            self._prices.memory,
            self._prices.flash,
            self._speculation.guard.off_until_s > self._ticked_s,
            self._shadows.ratios(),
            self._speculation.ledger.report(),
            self._speculation.holdout.benefit(),
            self._extents.nbytes + self._groups.nbytes + self._groups.arena_bytes,
        )

    def save(self) -> dict[str, NDArray[Any]]:
        """Return what was learned, as `load` takes it."""
        return save_groups(self._extents, self._groups) | save_arrays(self._places())

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over what was learned, before any fact. Raises Invalid when that cannot be."""
        assert self._extents.count == 0, "something was learned already"
        load_groups(state, self._extents, self._groups)
        load_arrays(self._places(), state)
        self._score.update_rates()

    def _places(self) -> dict[str, tuple[object, str]]:
        ledger, score = self._speculation.ledger, self._score
        owners: dict[str, tuple[object, tuple[str, ...]]] = {
            "score": (score, score.LEARNED),
            "hazard": (self._hazard, ("returned",)),
            "prices": (self._prices, ("memory", "flash")),
            "ledger": (ledger, ledger.LEARNED),
            "holdout": (self._speculation.holdout, ("sums",)),
            "engine": (self, ("_last_id", "_life_s")),
        }
        return {
            f"{name}.{field}": (owner, field)
            for name, (owner, fields) in owners.items()
            for field in fields
        }

    # ---- learning ----

    def _hear_returns(self, numbers: I64, times_s: F64) -> None:
        self._score.see_returns(self._groups, numbers, times_s)

    def _take_bursts(self, now_s: float) -> None:
        self._learn_from(self._bursts.take(now_s))

    def _learn_from(self, over: Accesses | None) -> None:
        if over is not None:
            self._learn(self._formation.take(over))

    def _learn(self, touches: Touches) -> None:
        back = touches.is_return
        self._hazard.add_returns(touches.before_class[back], age_bins(touches.before_age_s[back]))
        self._speculation.see_touches(touches)
        self._classify_groups(touches.groups)
        self._unsaid.append(touches.rows)
        is_read = ~touches.is_write
        self._reads += float(is_read.sum())
        self._flash_reads += float((is_read & ~touches.is_hit).sum())
        self._try_policies(touches, is_read)

    def _classify_groups(self, numbers: I64) -> None:
        groups = self._groups
        scores = self._score.scores(groups, numbers)
        groups.score[numbers] = scores
        score, gap = self._score.buckets(scores, groups.gap_s[numbers])
        shared = groups.kind[numbers] == SHARED
        groups.value_class[numbers] = value_classes(score, gap, groups.touches[numbers], shared)
        groups.asked_s[numbers] = 0

    def _try_policies(self, touches: Touches, is_read: Bools) -> None:
        groups = self._groups
        owner = np.maximum(self._extents.group[touches.rows], 0)
        keys = self._extents.key[touches.rows]
        learned, queue = groups.value_class[owner], queue_classes(groups.touches[owner])
        classes = {"lru": learned, "mq": queue, "hazard": learned}
        self._shadows.see(keys, classes, touches.times_s, is_read, self._tables)

    def _hear_evictions(self, gone: Evictions) -> None:
        owner = self._extents.group[gone.rows]
        self._groups.missing[owner[owner >= 0]] = 1
        read = ~gone.is_unread
        if read.any():
            ages_s = gone.ages_s[read]
            where = (gone.classes[read], age_bins(ages_s))
            self._prices.see_victims(self._outlook.keep[where])
            share = 1 - 0.998 ** len(ages_s)
            self._life_s += share * (float(ages_s.mean()) - self._life_s)
            for policy, table in self._tables.items():
                worth = float(table[where].mean())
                self._margins[policy] += share * (worth - self._margins[policy])
        self._speculation.see_evictions(gone)

    # ---- deciding ----

    def _refresh(self, now_s: float) -> NDArray[np.float32]:
        if np.isfinite(self._refreshed_s):
            self._fade(now_s - self._refreshed_s)
        self._refreshed_s = now_s
        self._forget()
        chances = self._chances(now_s)
        limit = self._config.most_flash_reads * self._reads
        self._prices.see_use(is_dear=self._flash_reads > limit)
        self._outlook = outlook(chances, self._prices.memory, self._prices.flash)
        self._set_tables()
        before, policy = self._shadows.chosen, self._shadows.choose()
        if (before == "mq") != (policy == "mq"):
            rows = self._extents.live_rows()
            self._unsaid.append(rows[self._extents.resident[rows] != 0])
        table = in_force(self._tables[policy], self._margins[policy], self._prices.memory)
        return table.astype(np.float32)

    def _chances(self, now_s: float) -> F64:
        """Return the chances of a return by class and age, after a look at all that wait."""
        groups = self._groups
        number = groups.live()
        self._score.see_waiting(groups, number, np.full(len(number), now_s))
        self._score.update_rates()
        own = number[groups.kind[number] != SHARED]
        recent = own[now_s - groups.touched_s[own] < RECENT_S]
        self._score.update_cuts(groups.score[recent], groups.gap_s[recent])
        classes, size = groups.value_class[number].astype(np.int64), groups.size[number]
        where = classes * AGE_BINS + age_bins(now_s - groups.touched_s[number])
        waiting = np.bincount(where, size, minlength=CLASSES * AGE_BINS)
        count = np.bincount(classes, minlength=CLASSES)
        total = np.bincount(classes, groups.score[number], minlength=CLASSES)
        seen = count > 0
        self._class_scores[seen] = total[seen] / count[seen]
        expected = self._score.chances(self._class_scores, STRATA)
        mean = float(size.mean()) if len(size) else 1.0
        return self._hazard.chances(waiting.reshape(CLASSES, AGE_BINS), expected, mean)

    def _forget(self) -> None:
        """Forget extents that are no more, and the oldest groups when too much is known."""
        extents, groups = self._extents, self._groups
        doomed = self._doomed
        if extents.count > self._config.most_extents:
            number = groups.live()
            number = number[np.argsort(groups.touched_s[number], kind="stable")]
            held = np.cumsum(groups.size[number])
            old = number[: 1 + int(np.searchsorted(held, held[-1] // 8))]
            doomed.append(groups.members(old, extents)[1])
        if doomed:
            self._learn_from(self._bursts.take_all())
            self._formation.forget(np.unique(np.concatenate(doomed)))
            doomed.clear()
        if groups.is_sparse():
            groups.compact(extents)

    def _fade(self, elapsed_s: float) -> None:
        self._hazard.fade(elapsed_s)
        self._score.fade(elapsed_s)
        self._speculation.ledger.fade(elapsed_s)
        self._speculation.guard.fade(elapsed_s)
        self._shadows.fade(elapsed_s)
        factor = 2.0 ** (-elapsed_s / 120.0)
        self._reads *= factor
        self._flash_reads *= factor

    def _set_tables(self) -> None:
        mq = mq_table(2 * self._life_s)
        self._tables = {"lru": lru_table(), "mq": mq, "hazard": self._outlook.keep}

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
        is_queued = self._shadows.chosen == "mq"
        queue = queue_classes(groups.touches[owner])
        orders["value_class"] = queue if is_queued else groups.value_class[owner]
        age_s = np.maximum(now_s - groups.touched_s[owner], 0)
        orders["age_ns"] = (age_s * 1e9).astype(np.uint64)
        return orders

    def _fetch(self, now_s: float, gauges: Gauges) -> NDArray[np.void]:
        candidates = self._speculation.planner.by_return(
            now_s, self._outlook, self._prices.memory
        )
        if len(candidates.groups) == 0:
            return np.zeros(0, ORDER)
        room = room_for(gauges, self._config.horizon_s)
        is_idle = gauges.fetches == 0
        chosen = self._speculation.propose(
            Source.RETURN, candidates, room, now_s, is_idle=is_idle
        )
        return self._fetch_orders(chosen, now_s)

    def _fetch_orders(self, chosen: Fetches, now_s: float) -> NDArray[np.void]:
        orders = self._orders(chosen.rows, OrderKind.FETCH)
        orders["value_class"] = hold_classes(chosen.holds_s)
        orders["value"] = np.minimum(chosen.gains, HELD_WORTH) * self._prices.memory
        orders["id"] = self._last_id + 1 + np.arange(len(orders))
        orders["expires_ns"] = int((now_s + 4 * self._config.horizon_s) * 1e9)
        self._last_id += len(orders)
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
