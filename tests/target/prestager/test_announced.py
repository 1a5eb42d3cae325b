from __future__ import annotations

import numpy as np
import pytest

from prestage.target.prestager.ages import AGE_BINS, EDGES_S, MIDDLES_S
from prestage.target.prestager.announced import Announced, age_of_worth
from prestage.target.prestager.extents import I64, ExtentMap
from prestage.target.prestager.flows import Flows
from prestage.target.prestager.formation import Accesses, Formation
from prestage.target.prestager.groups import LIVE, SHARED, Groups

LENGTH = 200
ROUNDS = 40


class World:
    """One chain of LENGTH extents, which a host of `tenant` reads over and over."""

    def __init__(self, tenant: int = 0) -> None:
        self.extents, self.groups, self.flows = ExtentMap(), Groups(), Flows()
        self.formation = Formation(self.extents, self.groups, self.flows, lambda *_: None)
        self.announced = Announced(self.extents, self.groups)
        self.tenant, self.now_s = tenant, 0.0
        self.rows = self.extents.find_or_add(np.arange(LENGTH, dtype=np.uint64))
        self.read(np.ones(LENGTH, bool))

    def read(self, is_hit: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        self.now_s += 1000
        flow = self.flows.find(np.full(LENGTH, self.tenant << 32, np.uint64))
        times_s = self.now_s + np.arange(LENGTH, dtype=np.float64) / 1e6
        touches = self.formation.take(
            Accesses(
                self.rows, flow, times_s, np.zeros(LENGTH, bool),
                is_hit, np.full(LENGTH, self.tenant, np.uint16),
            )
        )  # fmt: skip
        self.announced.see_touches(touches)

    def say_and_read(self, in_time: int, rounds: int = ROUNDS) -> None:
        """Announce the chain, all cold; the first `in_time` extents are there when it is read."""
        for _ in range(rounds):
            self.extents.resident[self.rows] = 0
            self.announced.announce(self.rows, self.now_s + 2000)
            self.read(np.arange(LENGTH) < in_time)

    def worth(self, rows: I64 | None = None) -> list[float]:
        rows = self.rows if rows is None else rows
        return [float(each) for each in self.announced.worth(rows, self.extents.group[rows])]


def test_without_announcements_everything_is_worth_as_much() -> None:
    assert World().worth() == [1.0] * LENGTH


@pytest.mark.parametrize("tenant", [0, 3])
def test_what_hints_bring_in_time_is_worth_little_and_what_they_do_not_is_worth_all(
    tenant: int,
) -> None:
    world = World(tenant)
    world.say_and_read(in_time=96)
    worth = np.array(world.worth())
    groups = world.extents.group[world.rows[:1]].astype(np.int64)
    assert worth[:96].max() < 0.2 and worth[96:].min() > 0.99
    assert world.announced.worth_of_groups(groups)[0] == pytest.approx(worth.mean(), abs=0.01)


def test_where_hints_bring_all_in_time_one_extent_is_worth_as_much_as_the_next() -> None:
    world = World()
    world.say_and_read(in_time=LENGTH)
    assert min(world.worth()) > 0.5


def test_what_is_announced_and_never_read_says_nothing() -> None:
    world = World()
    for _ in range(ROUNDS):
        world.announced.announce(world.rows, world.now_s + 10)
    world.announced.fade(1.0, world.now_s + 11)
    world.read(np.ones(LENGTH, bool))
    assert world.worth() == [1.0] * LENGTH


def test_a_share_that_is_not_announced_makes_all_of_it_worth_more() -> None:
    told, partly = World(), World()
    for _ in range(ROUNDS):
        told.say_and_read(96, rounds=2)
        partly.say_and_read(96, rounds=1)
        partly.read(np.arange(LENGTH) < 0)
    assert min(told.worth()) < 0.1 < 0.4 < min(partly.worth()) < 0.6


def test_what_was_learned_fades() -> None:
    world = World()
    world.say_and_read(in_time=96)
    world.announced.fade(1e-6, 0.0)
    assert world.worth() == pytest.approx([1.0] * LENGTH, abs=0.01)


def test_what_several_chains_share_is_worth_all_of_it() -> None:
    world = World()
    world.say_and_read(in_time=96)
    world.groups.kind[world.extents.group[world.rows[:1]]] = SHARED
    assert world.worth(world.rows[:1]) == [1.0]


def test_reads_of_what_several_chains_share_say_nothing_of_other_reads() -> None:
    world = World()
    world.say_and_read(in_time=96)
    before = world.worth()
    world.groups.kind[world.extents.group[world.rows[:1]]] = SHARED
    for _ in range(ROUNDS):
        world.read(np.zeros(LENGTH, bool))  # not announced
    world.groups.kind[world.extents.group[world.rows[:1]]] = LIVE
    assert world.worth() == before


def test_an_age_stands_for_what_is_worth_less() -> None:
    keep = np.tile(1 / (1 + MIDDLES_S), (64, 1))
    classes = np.full(4, 9, np.uint8)
    ages_s = age_of_worth(keep, classes, np.array([1.0, 0.8, 0.4, 0.01]))
    assert ages_s[:2].tolist() == [0, 0]
    for age_s, worth in zip(ages_s[2:], (0.4, 0.01), strict=True):
        at = int(np.searchsorted(EDGES_S, age_s))
        assert 0 < at < AGE_BINS
        assert keep[9, at] <= worth * keep[9].max() < keep[9, at - 1]


def test_what_rises_with_age_is_worth_less_only_after_its_peak() -> None:
    keep = np.ones((64, AGE_BINS)) * 0.01
    keep[:, 20:30] = 1.0
    (age_s,) = age_of_worth(keep, np.array([5]), np.array([0.1]))
    assert age_s == EDGES_S[30]


def test_reads_that_hints_bring_in_are_told_apart() -> None:
    world = World()
    assert not world.announced.are_told(world.rows).any()
    world.say_and_read(in_time=96)
    assert world.announced.are_told(world.rows).tolist() == [True] * 96 + [False] * 104
