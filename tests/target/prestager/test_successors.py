from __future__ import annotations

import numpy as np

from prestage.target.prestager.successors import WAYS, Successors


def one(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def follow(graph: Successors, source: int, target: int, now_s: float, lag_s: float = 5.0) -> None:
    graph.visit(one(source), now_s)
    graph.see(one(source), one(target), np.array([lag_s]))


def test_what_always_follows_is_likely_and_its_lag_is_known() -> None:
    graph = Successors(64, 1e9)
    for step in range(20):
        follow(graph, 3, 7, float(step), lag_s=8.0)
    found = graph.after(one(3))
    assert found.groups.tolist() == [7]
    assert found.chances[0] > 0.7 and abs(found.lags_s[0] - 8.0) < 0.1
    assert graph.after(one(7)).groups.tolist() == []


def test_once_is_not_enough_to_be_likely() -> None:
    graph = Successors(64, 1e9)
    follow(graph, 3, 7, 1.0)
    assert graph.after(one(3)).chances[0] < 0.21


def test_the_lightest_successor_gives_way() -> None:
    graph = Successors(64, 1e9)
    for target in range(10, 10 + WAYS):
        for _ in range(3):
            follow(graph, 3, target, 1.0)
    follow(graph, 3, 99, 2.0)
    targets = graph.after(one(3)).groups.tolist()
    assert 99 in targets and len(targets) == WAYS


def test_weights_fade_with_time() -> None:
    graph = Successors(64, 10.0)
    for _ in range(8):
        follow(graph, 3, 7, 1.0)
    before = graph.after(one(3)).chances[0]
    graph.visit(one(3), 41.0)
    assert graph.after(one(3)).chances[0] < before / 3


def test_a_place_is_given_to_the_later_of_two_groups() -> None:
    graph = Successors(64, 1e9)
    follow(graph, 3, 7, 1.0)
    follow(graph, 67, 8, 2.0)
    assert graph.after(one(3)).groups.tolist() == []
    assert graph.after(one(67)).groups.tolist() == [8]


def test_several_edges_at_once_are_all_seen_and_none_to_itself() -> None:
    graph = Successors(64, 1e9)
    graph.visit(one(3, 4), 1.0)
    graph.see(one(3, 3, 4, 4), one(7, 8, 9, 4), np.full(4, 1.0))
    assert sorted(graph.after(one(3, 4)).groups.tolist()) == [7, 8, 9]
