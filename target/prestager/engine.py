"""The prestager: learns from facts, and says what to keep and what to bring in.

Pure: no clock, no I/O, the same facts and calls give the same orders. It is driven live by its
process, and by the simulator on a virtual clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from prestage.target.prestager.announced import Announced, age_of_worth
from prestage.target.prestager.bursts import Bursts
from prestage.target.prestager.classes import held_for, hold_classes
from prestage.target.prestager.continuation import continuing
from prestage.target.prestager.expected import Expected
from prestage.target.prestager.extents import ABSENT, EXTENT_BITS, I64, ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses, Formation, Touches
from prestage.target.prestager.groups import Groups
from prestage.target.prestager.hints import Hints
from prestage.target.prestager.holdout import Benefit, Holdout
from prestage.target.prestager.intake import Evictions, Intake
from prestage.target.prestager.ledger import Reliability, Source, SourceReport
from prestage.target.prestager.persistence import (
    load_arrays,
    load_groups,
    save_arrays,
    save_groups,
)
from prestage.target.prestager.planner import Candidates, by_date, room_for
from prestage.target.prestager.retention import Retention
from prestage.target.prestager.shared import ORDER, Gauges, OrderKind
from prestage.target.prestager.speculation import Fetches, Speculation, SpeculationConfig
from prestage.target.prestager.successors import Followers, Successors
from prestage.target.prestager.tables import FETCH_WORTH, LEARNED
from prestage.target.ring import RingWaits

__all__ = ["Decision", "Prestager", "PrestagerConfig", "PrestagerReport"]

CHUNK: Final = 16384
"""Facts that are looked at together."""
USE_HALF_LIFE_S: Final = 120.0
"""Of what was read from flash of late."""
SUCCESSOR_GROUPS: Final = 1 << 16
MOST_HELD: Final = 2048
"""Extents that are told at a time to be held on: there are orders for fetches too."""


@dataclass(frozen=True, slots=True)
class PrestagerConfig:
    """What can be chosen; the defaults are meant for all loads."""

    half_life_s: float = 1800.0
    """After which what was learned weighs half."""
    flash_floor: float = 0.06
    """The least price of reading an extent ahead, in reads served from DRAM."""
    least_chance: float = 0.25
    """Of a use before it is let go again, below which nothing is read ahead."""
    most_flash_reads: float = 1.35
    """Flash reads per read, demand and ahead, above which reading ahead becomes dearer."""
    tick_s: float = 0.25
    """Between looks at what to fetch."""
    refresh_s: float = 5.0
    """Between looks at all groups, for new value tables."""
    horizon_s: float = 0.5
    """Of flash time that fetches may wait for."""
    holdout_share: float = 0.02
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
    calibration_error: float
    """Of all sources, as in SourceReport."""
    reliability: tuple[Reliability, ...]
    """Of all sources, by tenths of the chance."""
    benefit: Benefit
    memory_bytes: int


class Prestager:
    """One for a target; see the module."""

    def __init__(
        self, config: PrestagerConfig, *, frame_count: int, slot_size: int, seed: int
    ) -> None:
        self._config = config
        self._slot_size = slot_size
        extents, groups = ExtentMap(), Groups()
        self._extents, self._groups, self._flows = extents, groups, Flows()
        self._intake = Intake(extents, self._flows, slot_size)
        self._bursts = Bursts(self._flows)
        self._retention = Retention(
            extents, groups, frame_count=frame_count, half_life_s=config.half_life_s,
            flash_floor=config.flash_floor, least_chance=config.least_chance,
            acted_share=1 - config.holdout_share,
        )  # fmt: skip
        self._formation = Formation(
            extents, groups, self._flows, self._retention.see_returns, self._documents
        )
        self._announced = Announced(extents, groups)
        self._hints = Hints(
            self._formation, extents, groups, slot_size, self._announced, config.half_life_s
        )
        self._successors = Successors(SUCCESSOR_GROUPS, config.half_life_s)
        self._speculation = Speculation(
            SpeculationConfig(half_life_s=config.half_life_s), extents, groups,
            Holdout(config.holdout_share, seed), frame_count,
        )  # fmt: skip
        self._expected = Expected(groups)
        self._unsaid: list[I64] = []
        self._held: list[NDArray[np.void]] = []
        """Orders to hold on to what is there already and is wanted soon."""
        self._doomed: list[I64] = []
        """Rows of extents that are no more."""
        self._policy = self._retention.shadows.chosen
        self._refreshed_s = self._ticked_s = -np.inf
        self._last_id = 0
        self._reads = self._flash_reads = 0.0

    def observe(self, facts: NDArray[np.void]) -> None:
        """Learn from facts (dtype FACT), in order of time; no view of them is kept."""
        for start in range(0, len(facts), CHUNK):
            part = facts[start : start + CHUNK]
            seen = self._intake.take(part)
            self._bursts.add(seen.accesses)
            if self._bursts.is_full:
                self._learn(self._bursts.take_all(), float(part["time_ns"][-1]) * 1e-9)
            if len(seen.gone):
                self._doomed.append(seen.gone)
            if len(seen.evictions.rows):
                self._hear_evictions(seen.evictions)
            if len(seen.fetched.rows):
                count, rated = self._speculation.see_fetched(seen.fetched)
                self._flash_reads += count
                if self._policy == LEARNED:
                    # From now on it is worth what its group is.
                    self._unsaid.append(rated)
            self._hints.take(part)

    def decide(self, now_ns: int, gauges: Gauges) -> Decision:
        """Return what is to be done now."""
        now_s = now_ns * 1e-9
        self._learn(self._bursts.take(now_s), now_s)
        values = None
        if now_s - self._refreshed_s >= self._config.refresh_s:
            values = self._refresh(now_s)
        orders = [self._classify(now_s), *self._held]
        self._held.clear()
        if now_s - self._ticked_s >= self._config.tick_s:
            self._ticked_s = now_s
            self._speculation.expire(now_s)
            orders.extend(self._fetch(now_s, gauges))
        next_s = self._ticked_s + self._config.tick_s
        return Decision(np.concatenate(orders), values, int(next_s * 1e9) + 1, RingWaits.HINTS)

    def report(self) -> PrestagerReport:
        """Return how it is doing."""
        guard, prices = self._speculation.guard, self._retention.prices
        ledger = self._speculation.ledger
        return PrestagerReport(
            self._groups.count,
            self._extents.count,
            self._retention.shadows.chosen,
            prices.memory,
            prices.flash,
            guard.off_until_s > self._ticked_s or self._retention.shadows.is_harmed,
            self._retention.shadows.ratios(),
            ledger.report(),
            ledger.calibration_error(),
            ledger.curve(),
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
        self._retention.score.update_rates()

    def _places(self) -> dict[str, tuple[object, str]]:
        ledger, score = self._speculation.ledger, self._retention.score
        owners: dict[str, tuple[object, tuple[str, ...]]] = {
            "score": (score, score.LEARNED),
            "hazard": (self._retention.hazard, ("returned",)),
            "prices": (self._retention.prices, ("memory", "flash")),
            "ledger": (ledger, ledger.LEARNED),
            "holdout": (self._speculation.holdout, ("sums", "served")),
            "retention": (self._retention, ("life_s",)),
            "formation": (self._formation, ("ends",)),
            "engine": (self, ("_last_id",)),
        }
        return {
            f"{name}.{field}": (owner, field)
            for name, (owner, fields) in owners.items()
            for field in fields
        }

    # ---- learning ----

    def _learn(self, over: Accesses | None, now_s: float) -> None:
        """Learn from bursts that are over."""
        if over is None:
            return
        touches = self._formation.take(over)
        is_read = ~touches.is_write
        # Before marks of what was fetched are taken off.
        is_told = self._announced.are_told(touches.rows)
        self._retention.see_touches(touches, is_told, now_s)
        self._speculation.see_touches(touches)
        plain = self._retention.shadows.take_plain()
        self._speculation.holdout.see_reads(int((is_read & ~is_told).sum()), *plain)
        self._announced.see_touches(touches)
        self._groups.asked_s[touches.groups] = 0
        self._unsaid.append(touches.rows)
        self._reads += float(is_read.sum())
        self._flash_reads += float((is_read & ~touches.is_hit).sum())
        self._look_around(touches, float(over.times_s.max()))

    def _look_around(self, touches: Touches, now_s: float) -> None:
        """Note which groups are likely next."""
        begun = touches.groups[touches.begins]
        self._successors.see(touches.sources, touches.targets, touches.lags_s)
        self._successors.visit(begun, now_s)
        self._expected.add(Source.SUCCESSOR, self._successors.after(begun), now_s)
        neighbours = self._hints.neighbours
        if neighbours is not None:
            near = neighbours.after(touches.rows, self._extents.group, now_s)
            self._expected.add(Source.NEIGHBOUR, near, now_s)
            self._hold(near, neighbours.silence_s, now_s)

    def _hold(self, wanted: Followers, hold_s: float, now_s: float) -> None:
        """Let what is there of groups that are worth it stay for so long, as if fetched now."""
        if self._retention.shadows.is_harmed:
            return
        chosen = by_date(wanted, now_s, self._retention.prices.memory, flash_price=0.0)
        best_first = np.argsort(-chosen.gains, kind="stable")
        _, rows = self._groups.members(chosen.groups[best_first], self._extents)
        rows = rows[self._extents.resident[rows] != 0][:MOST_HELD]
        orders = self._orders(rows, OrderKind.CLASSIFY)
        orders["value_class"], age_s = held_for(hold_s)
        orders["age_ns"] = int(age_s * 1e9)
        self._held.append(orders)

    def _documents(self, rows: I64) -> I64:
        neighbours = self._hints.neighbours
        if neighbours is None:
            return np.full(len(rows), ABSENT, np.int64)
        return neighbours.documents(rows)

    def _hear_evictions(self, gone: Evictions) -> None:
        owner = self._extents.group[gone.rows]
        self._groups.missing[owner[owner >= 0]] = 1
        self._retention.see_victims(gone)
        self._speculation.see_evictions(gone)

    # ---- deciding ----

    def _refresh(self, now_s: float) -> NDArray[np.float32]:
        if np.isfinite(self._refreshed_s):
            self._fade(now_s - self._refreshed_s)
        self._refreshed_s = now_s
        self._forget(now_s)
        limit = self._config.most_flash_reads * self._reads
        self._retention.prices.see_use(self._flash_reads / max(limit, 1.0))
        values = self._retention.refresh(now_s)
        before, self._policy = self._policy, self._retention.shadows.chosen
        if (before == "mq") != (self._policy == "mq"):
            # Classes mean something else from now on.
            rows = self._extents.live_rows()
            self._unsaid.append(rows[self._extents.resident[rows] != 0])
        return values

    def _fade(self, elapsed_s: float) -> None:
        self._retention.fade(elapsed_s)
        self._speculation.ledger.fade(elapsed_s)
        self._speculation.guard.fade(elapsed_s)
        if self._hints.neighbours is not None:
            self._hints.neighbours.fade(elapsed_s)
            self._hints.neighbours.update()
            self._retention.shadows.is_promising = self._hints.neighbours.are_likely
        self._announced.fade(2.0 ** (-elapsed_s / self._config.half_life_s), self._refreshed_s)
        factor = 2.0 ** (-elapsed_s / USE_HALF_LIFE_S)
        self._reads *= factor
        self._flash_reads *= factor

    def _forget(self, now_s: float) -> None:
        """Forget extents that are no more, and what is oldest when too much is known."""
        extents, groups, doomed = self._extents, self._groups, self._doomed
        is_crowded = extents.count > self._config.most_extents
        if doomed or is_crowded:
            self._learn(self._bursts.take_all(), now_s)
        if is_crowded:
            doomed.append(self._oldest())
        if doomed:
            rows = np.unique(np.concatenate(doomed))
            self._formation.forget(rows)
            if self._hints.neighbours is not None:
                self._hints.neighbours.forget(rows)
            doomed.clear()
        if groups.is_sparse():
            groups.compact(extents)

    def _oldest(self) -> I64:
        """Return rows of extents that hosts have only named, and then of the oldest groups."""
        extents, groups = self._extents, self._groups
        rows = extents.live_rows()
        named = rows[extents.group[rows] < 0]
        if len(rows) - len(named) <= self._config.most_extents:
            return named
        number = groups.live()
        number = number[np.argsort(groups.touched_s[number], kind="stable")]
        held = np.cumsum(groups.size[number])
        surplus = len(rows) - len(named) - self._config.most_extents * 7 // 8
        old = number[: 1 + int(np.searchsorted(held, surplus))]
        return np.concatenate((named, groups.members(old, extents)[1]))

    def _classify(self, now_s: float) -> NDArray[np.void]:
        """Return orders that give the extents touched since the last time their classes."""
        if not self._unsaid:
            return np.zeros(0, ORDER)
        rows = np.concatenate(self._unsaid) if len(self._unsaid) > 1 else self._unsaid[0]
        self._unsaid.clear()
        owner = self._extents.group[rows]
        rows, owner = rows[owner >= 0], owner[owner >= 0]
        # Of what is as old the deepest in its chain goes first: what is before it is read by more.
        order = np.lexsort((-self._extents.position[rows], self._groups.touched_s[owner]))
        rows, owner = rows[order], owner[order]
        orders = self._orders(rows, OrderKind.CLASSIFY)
        orders["value_class"] = classes = self._retention.classes_in_force(owner)
        age_s = np.maximum(now_s - self._groups.touched_s[owner], 0)
        if self._policy == LEARNED:
            # What a hint will bring in time is as if it had waited until its chance is so small.
            worth = self._announced.worth(rows, owner)
            keep = self._retention.outlook.keep
            age_s = np.maximum(age_s, age_of_worth(keep, classes, worth))
        orders["age_ns"] = (age_s * 1e9).astype(np.uint64)
        return orders

    def _fetch(self, now_s: float, gauges: Gauges) -> list[NDArray[np.void]]:
        """Return orders of what is worth a fetch: what is most sure to be near first."""
        is_off = self._retention.shadows.is_harmed
        room = 0 if is_off else room_for(gauges, self._config.horizon_s)
        orders = []
        for source, candidates in self._candidates(now_s):
            if room <= 0 or len(candidates.groups) == 0:
                continue
            chosen = self._speculation.propose(
                source, candidates, room, now_s, is_idle=gauges.fetches == 0
            )
            room -= len(chosen.rows)
            orders.append(self._fetch_orders(chosen, now_s))
        return orders

    def _candidates(self, now_s: float) -> list[tuple[Source, Candidates]]:
        prices, groups = self._retention.prices, self._groups
        reading = continuing(self._bursts, self._extents, groups, self._flows, now_s)
        reading = reading.where(groups.missing[reading.groups] != 0)
        dated = [
            (source, by_date(followers, now_s, prices.memory, prices.flash))
            for source, followers in ((Source.CONTINUATION, reading), *self._expected.take(now_s))
        ]
        due = self._speculation.planner.by_return(now_s, self._retention.outlook, prices.memory)
        gains = due.gains * self._announced.worth_of_groups(due.groups)
        due = replace(due, gains=gains).where(gains > 1)
        return [*dated, (Source.RETURN, due)]

    def _fetch_orders(self, chosen: Fetches, now_s: float) -> NDArray[np.void]:
        orders = self._orders(chosen.rows, OrderKind.FETCH)
        orders["value_class"] = hold_classes(chosen.holds_s)
        # Only the learned table knows the gain in the unit of what it would drive out.
        worth = np.minimum(chosen.gains, FETCH_WORTH) if self._policy == LEARNED else FETCH_WORTH
        orders["value"] = worth * self._retention.prices.memory
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
