from __future__ import annotations

import numpy as np

from prestage.target.prestager.expected import MOST, Expected
from prestage.target.prestager.groups import FREE, Groups
from prestage.target.prestager.ledger import Source
from prestage.target.prestager.successors import Followers, at_time


def followers(numbers: list[int], *, chance: float = 0.5, lag_s: float = 10.0) -> Followers:
    count = len(numbers)
    return at_time(np.array(numbers), np.full(count, chance), np.full(count, lag_s))


def made(count: int) -> tuple[Groups, Expected]:
    groups = Groups()
    numbers = groups.make(count)
    groups.missing[numbers] = 1
    return groups, Expected(groups)


def test_what_is_missing_is_offered_again_until_its_time() -> None:
    _, expected = made(5)
    expected.add(Source.SUCCESSOR, followers([1, 3]), 100.0)
    expected.add(Source.NEIGHBOUR, followers([4], lag_s=2.0), 100.0)
    for now_s in (100.0, 101.9):
        found = {source: each.groups.tolist() for source, each in expected.take(now_s)}
        assert found == {Source.SUCCESSOR: [1, 3], Source.NEIGHBOUR: [4]}
    found = {source: each.groups.tolist() for source, each in expected.take(109.0)}
    assert found == {Source.SUCCESSOR: [1, 3], Source.NEIGHBOUR: []}
    assert all(len(each.groups) == 0 for _, each in expected.take(110.0))


def test_what_has_come_or_is_no_more_is_forgotten() -> None:
    groups, expected = made(5)
    expected.add(Source.SUCCESSOR, followers([0, 1, 2]), 0.0)
    groups.missing[1] = 0
    groups.kind[2] = FREE
    assert expected.take(1.0)[0][1].groups.tolist() == [0]
    groups.missing[1] = 1
    assert expected.take(1.0)[0][1].groups.tolist() == [0]


def test_of_a_group_what_was_heard_last_stands() -> None:
    _, expected = made(5)
    expected.add(Source.SUCCESSOR, followers([1, 2], chance=0.3), 0.0)
    expected.add(Source.SUCCESSOR, followers([1], chance=0.7), 5.0)
    ((_, found),) = expected.take(6.0)
    assert dict(zip(found.groups.tolist(), found.chances.tolist(), strict=True)) == {1: 0.7, 2: 0.3}
    ((_, found),) = expected.take(12.0)
    assert found.groups.tolist() == [1]


def test_of_too_many_the_last_ones_are_kept() -> None:
    _, expected = made(MOST + 10)
    expected.add(Source.SUCCESSOR, followers(list(range(MOST))), 0.0)
    expected.add(Source.SUCCESSOR, followers(list(range(MOST, MOST + 10))), 0.0)
    ((_, found),) = expected.take(1.0)
    assert len(found.groups) == MOST and found.groups.min() == 10
