from __future__ import annotations

import numpy as np

from prestage.target.prestager.flows import (
    DEFAULT_GAP_S,
    GAP_BINS,
    MOST_GAP_S,
    Flows,
    burst_gap,
    gap_bins,
)


def histogram(gaps_s: list[float]) -> np.ndarray:
    return np.bincount(gap_bins(np.array(gaps_s)), minlength=GAP_BINS).astype(float)


def test_the_gap_of_bursts_lies_in_the_valley() -> None:
    found = burst_gap(histogram([0.0005] * 400 + [0.002] * 100 + [5.0] * 60 + [20.0] * 40))
    assert 0.003 < found <= MOST_GAP_S
    assert 0.02 < burst_gap(histogram([0.01] * 400 + [2.0] * 60)) <= MOST_GAP_S


def test_a_key_has_one_number_and_begins_with_the_default_gap() -> None:
    flows = Flows()
    keys = np.array([9, 4, 9, 7], np.uint64)
    numbers = flows.find(keys)
    assert numbers[0] == numbers[2] and len(set(numbers.tolist())) == len(flows) == 3
    assert (flows.find(keys) == numbers).all()
    assert (flows.gap_s[numbers] == DEFAULT_GAP_S).all()
    assert (flows.group[numbers] == -1).all() and np.isneginf(flows.last_s[numbers]).all()


def test_a_flow_learns_its_own_gap() -> None:
    flows = Flows()
    slow, fast = flows.find(np.array([1, 2], np.uint64)).tolist()
    for _ in range(3):
        gaps_s = np.tile([0.1] * 9 + [40.0], 120)
        flows.learn_gaps(np.full(len(gaps_s), slow), gaps_s)
    assert flows.gap_s[slow] > 0.15
    assert flows.gap_s[fast] == DEFAULT_GAP_S


def test_groups_that_are_gone_are_let_go() -> None:
    flows = Flows()
    numbers = flows.find(np.array([1, 2], np.uint64))
    flows.group[numbers] = [3, 4]
    flows.forget_groups(np.array([False, False, False, True, False]))
    assert flows.group[numbers].tolist() == [-1, 4]
