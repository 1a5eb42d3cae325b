from __future__ import annotations

import random

import numpy as np
import pytest

from prestage.target.errors import Invalid
from prestage.target.prestager.ages import tier_bins
from prestage.target.prestager.classes import HELD
from prestage.target.prestager.engine import Decision, Prestager, PrestagerConfig
from prestage.target.prestager.shared import Gauges, OrderEnd, OrderKind
from prestage.target.ring import FACT, FactFlag, FactKind

SLOT = 65536
CHAIN = 20
FRAMES = 600
READ_AGAIN, WRITTEN = 3, 4
"""Classes of the tier's own."""


class Tier:
    """A tier of few frames that does as it is told: what is worth least goes first.

    It says of what went the class and the age, for that is what makes the memory price.
    """

    def __init__(self, prestager: Prestager) -> None:
        self.prestager = prestager
        self.frames: dict[int, int] = {}
        """By extent that is there."""
        self.ahead: set[int] = set()
        self.facts: list[tuple[float, int, int, int, int, float]] = []
        self.fetched = self.used_ahead = self.reads = self.hits = 0
        self.table: np.ndarray | None = None
        self.classified = 0
        self._extents = np.full(FRAMES, -1)
        self._classes = np.zeros(FRAMES, np.int64)
        self._used_s = np.zeros(FRAMES)

    def burst(self, now_s: float, extents: range, *, is_write: bool) -> None:
        for extent in extents:
            is_hit = extent in self.frames
            if not is_write:
                self.reads += 1
                self.hits += is_hit
                self.used_ahead += extent in self.ahead
            # The first read of what was fetched leaves it the class that it was fetched with.
            own = None if extent in self.ahead else WRITTEN if is_write else READ_AGAIN
            self.ahead.discard(extent)
            self._put(extent, now_s, own)
            kind = FactKind.WRITE if is_write else FactKind.READ
            flag = FactFlag.HIT if is_hit and not is_write else 0
            self.facts.append((now_s, kind, extent, flag, 0, 0.0))

    def tell(self) -> None:
        made = np.zeros(len(self.facts), FACT)
        for index, (now_s, kind, extent, flag, aux, age_s) in enumerate(self.facts):
            made[index]["time_ns"] = round(now_s * 1e9)
            made[index]["kind"], made[index]["offset"] = kind, extent * SLOT
            made[index]["length"], made[index]["flags"] = SLOT, flag
            made[index]["aux"], made[index]["queue"] = aux, extent // 1000
            made[index]["value"] = round(age_s * 1e9)
        self.facts.clear()
        self.prestager.observe(made)

    def decide(self, now_s: float) -> Decision:
        self.tell()
        gauges = Gauges(4000.0 * SLOT, 0, 0, FRAMES, 0, SLOT)
        decision = self.prestager.decide(round(now_s * 1e9), gauges)
        self.table = decision.values if decision.values is not None else self.table
        orders = decision.orders
        for order in orders[orders["kind"] == OrderKind.CLASSIFY]:
            self.classified += 1
            frame = self.frames.get(int(order["offset"]) // SLOT)
            if frame is not None:
                self._classes[frame] = order["value_class"]
                self._used_s[frame] = now_s - int(order["age_ns"]) * 1e-9
        for order in orders[orders["kind"] == OrderKind.FETCH]:
            self._fetch(int(order["offset"]) // SLOT, order, now_s)
        return decision

    def _fetch(self, extent: int, order: np.void, now_s: float) -> None:
        if extent in self.frames:
            end = OrderEnd.WARM
        elif self._is_full and self._worth(now_s).min() >= order["value"]:
            end = OrderEnd.NO_ROOM
        else:
            end = OrderEnd.LANDED
            self.fetched += 1
            self._put(extent, now_s, int(order["value_class"]))
            self.ahead.add(extent)
        self.facts.append((now_s, FactKind.FETCHED, extent, 0, end, 0.0))

    def _put(self, extent: int, now_s: float, value_class: int | None) -> None:
        """Bring an extent in unless it is there, used now; None: its class is as it was."""
        if extent not in self.frames:
            self.frames[extent] = self._evict(now_s) if self._is_full else len(self.frames)
            self._extents[self.frames[extent]] = extent
        frame = self.frames[extent]
        self._used_s[frame] = now_s
        if value_class is not None:
            self._classes[frame] = value_class

    @property
    def _is_full(self) -> bool:
        return len(self.frames) == FRAMES

    def _evict(self, now_s: float) -> int:
        """Free the frame that is worth least, of equals the one used longest ago; return it."""
        worth = self._worth(now_s)
        least = np.flatnonzero(worth == worth.min())
        frame = int(least[np.argmin(self._used_s[least])])
        extent = int(self._extents[frame])
        flag = FactFlag.UNREAD if extent in self.ahead else 0
        aux, age_s = int(self._classes[frame]), float(self._ages_s(now_s)[frame])
        self.facts.append((now_s, FactKind.EVICTED, extent, flag, aux, age_s))
        self.ahead.discard(extent)
        del self.frames[extent]
        return frame

    def _worth(self, now_s: float) -> np.ndarray:
        if self.table is None:
            return np.zeros(FRAMES)
        return self.table[self._classes, tier_bins(self._ages_s(now_s))]

    def _ages_s(self, now_s: float) -> np.ndarray:
        return np.maximum(now_s - self._used_s, 0)  # bursts are microseconds apart


def run(prestager: Prestager, seed: int, *, until_s: float = 600.0) -> Tier:
    """Sessions that return every 40 seconds, more of them than the tier holds."""
    tier, rng = Tier(prestager), random.Random(seed)
    due = [(rng.uniform(1, 41), number) for number in range(60)]
    new = set(range(60))
    now_s = 1.0
    while now_s < until_s:
        for index, (when, number) in enumerate(due):
            if when <= now_s:
                chain = range(1000 * number, 1000 * number + CHAIN)
                tier.burst(now_s + number * 1e-6, chain, is_write=number in new)
                new.discard(number)
                due[index] = (now_s + rng.gauss(40.0, 1.0), number)
        tier.decide(now_s)
        now_s += 0.25
    return tier


def made(seed: int = 1) -> Prestager:
    return Prestager(PrestagerConfig(), frame_count=FRAMES, slot_size=SLOT, seed=seed)


def test_sessions_that_return_in_time_are_brought_in_before_they_do() -> None:
    seed = random.randrange(1 << 16)
    print("seed", seed)
    tier = run(made(), seed)
    assert tier.fetched > 300
    assert tier.used_ahead > 0.93 * tier.fetched
    assert tier.hits > 0.84 * tier.reads, "without fetches it would be none"
    report = tier.prestager.report()
    assert report.groups == 60 and report.extents == 60 * CHAIN
    assert report.sources[0].in_time > 0 and report.sources[0].calibration_error < 0.3
    assert sum(each.count for each in report.reliability) > 100
    assert report.benefit.acted > 0 and report.memory_bytes > 0


def test_the_same_facts_and_calls_give_the_same_orders() -> None:
    tiers = [run(made(3), 9, until_s=120.0) for _ in range(2)]
    assert tiers[0].fetched == tiers[1].fetched and tiers[0].frames == tiers[1].frames
    assert tiers[0].table is not None and tiers[1].table is not None
    assert (tiers[0].table == tiers[1].table).all()


def test_touched_extents_are_classified_and_tables_have_no_nan() -> None:
    tier = run(made(), 2, until_s=100.0)
    assert tier.classified >= 60 * CHAIN
    assert tier.table is not None and tier.table.shape == (64, 64)
    assert np.isfinite(tier.table).all()


def test_of_a_burst_the_deepest_in_the_chain_is_classified_first() -> None:
    tier = Tier(made())
    for number in (1, 2):
        chain = range(1000 * number, 1000 * number + CHAIN)
        tier.burst(1.0 + number * 1e-3, chain, is_write=True)
    orders = tier.decide(9.0).orders
    extents = (orders["offset"] // SLOT).tolist()
    assert extents == [*range(1019, 999, -1), *range(2019, 1999, -1)]


def sign(prestager: Prestager, documents: int) -> None:
    """Sign the first 4 extents of as many chains, alike but for some bits."""
    facts = np.zeros(4 * documents, FACT)
    for index, fact in enumerate(facts):
        fact["kind"], fact["offset"] = FactKind.SIGNATURE, (index // 4 * 1000 + index % 4) * SLOT
        fact["length"], fact["aux"], fact["id"] = SLOT, 64 << 16, 1 << index // 4
    prestager.observe(facts)


def test_what_is_there_and_near_to_what_is_read_is_held() -> None:
    tier = Tier(made())
    sign(tier.prestager, 6)
    held: set[int] = set()
    for turn in range(20):
        for document in range(6):
            now_s = 1000.0 * turn + 5 * document + 1
            tier.burst(now_s, range(1000 * document, 1000 * document + 4), is_write=turn == 0)
            for wait_s in (0.25, 2.5, 4.75):
                orders = tier.decide(now_s + wait_s).orders
                is_held = orders["value_class"] >= HELD
                is_held &= orders["kind"] == OrderKind.CLASSIFY
                held |= {int(each) // SLOT for each in orders["offset"][is_held]}
    assert held == {1000 * document + each for document in range(6) for each in range(4)}


def test_what_was_learned_goes_on_in_another_prestager() -> None:
    tier = run(made(), 4, until_s=150.0)
    state = tier.prestager.save()
    other = made()
    other.load(state)
    assert other.report().groups == tier.prestager.report().groups
    again = other.save()
    assert all((again[name] == state[name]).all() for name in state if "extents" not in name)
    run(other, 5, until_s=50.0)


def test_a_state_that_cannot_be_is_refused() -> None:
    state = run(made(), 4, until_s=100.0).prestager.save()
    for name, wrong in (
        ("groups.size", state["groups.size"] + 1),
        ("extents.group", state["extents.group"] + 1000),
        ("score.weights", state["score.weights"][:-1]),
        ("hazard.returned", state["hazard.returned"] * np.nan),
    ):
        with pytest.raises(Invalid, match=name):
            made().load({**state, name: wrong})
    with pytest.raises(Invalid, match=r"ledger\.beta"):
        made().load({name: value for name, value in state.items() if name != "ledger.beta"})


def test_too_much_is_not_remembered() -> None:
    config = PrestagerConfig(most_extents=500)
    prestager = Prestager(config, frame_count=FRAMES, slot_size=SLOT, seed=1)
    tier = run(prestager, 6, until_s=100.0)
    tier.decide(200.0)
    assert prestager.report().extents <= 600


def test_facts_of_any_kind_and_content_do_no_harm() -> None:
    seed = random.randrange(1 << 16)
    print("seed", seed)
    rng = np.random.default_rng(seed)
    prestager = made()
    for step in range(60):
        facts = np.frombuffer(rng.bytes(64 * 200), FACT).copy()
        facts["kind"] = rng.integers(0, 20, 200)
        facts["volume"] = rng.integers(0, 4, 200)
        facts["offset"] %= 1 << 34
        facts["length"] %= 1 << 24
        facts["time_ns"] = step * 10**9
        prestager.observe(facts)
        decision = prestager.decide(step * 10**9, Gauges(1e9, 0, 0, FRAMES, 0, SLOT))
        assert (decision.orders["length"] > 0).all()
    prestager.save()
