from __future__ import annotations

import numpy as np

from prestage.target.prestager.ages import (
    AGE_BINS,
    CLASSES,
    MIDDLES_S,
    OF_TIER,
    OWN_CLASSES,
    TIER_MIDDLES_S,
    age_bins,
)
from prestage.target.prestager.classes import (
    GAP_EDGES_S,
    HELD,
    HOLDS_S,
    SCORES,
    STRATUM,
    STRATUM_AGAIN,
    STRATUM_ONCE,
    STRATUM_SHARED,
    held_for,
    hold_classes,
    queue_classes,
    value_classes,
)
from prestage.target.prestager.tables import (
    HELD_WORTH,
    UNSAID_S,
    in_force,
    lru_table,
    mq_table,
)


def test_classes_of_groups_are_the_models_and_differ() -> None:
    gaps_s = np.concatenate(([1.0], GAP_EDGES_S))
    once, zero = np.arange(SCORES[STRATUM_ONCE]), np.zeros(SCORES[STRATUM_ONCE])
    gap, score = np.divmod(np.arange(len(gaps_s) * SCORES[STRATUM_AGAIN]), SCORES[STRATUM_AGAIN])
    again, one = np.full(len(score), STRATUM_AGAIN), np.ones(len(score))
    two = np.zeros(2, np.int64)
    every = np.concatenate((
        value_classes(np.full(len(once), STRATUM_ONCE), once, zero, np.ones(len(once))),
        value_classes(again, score, gaps_s[gap], one),
        value_classes(np.full(2, STRATUM_SHARED), two, two, np.array([2, 90])),
    ))  # fmt: skip
    assert len(np.unique(every)) == len(every)
    assert every.min() >= OWN_CLASSES and every.max() < HELD
    counts = np.bincount(STRATUM[every]).tolist()
    assert counts == [SCORES[STRATUM_ONCE], len(gap), 2]


def test_queues_grow_with_touches_and_holds_with_time() -> None:
    queues = queue_classes(np.array([0, 1, 2, 3, 4, 60000]))
    assert (np.diff(queues.astype(int)) >= 0).all() and queues[0] == OWN_CLASSES
    assert queues.max() < HELD
    holds = hold_classes(np.array([0.5, 2.0, 3.0, 1e9]))
    assert holds.tolist() == [HELD, HELD, HELD + 1, CLASSES - 1]
    assert held_for(2.0) == (HELD, 0.0) and held_for(3.0) == (HELD + 1, 5.0)
    assert held_for(1e9) == (CLASSES - 1, 0.0)


def test_the_table_of_lru_falls_with_age_alike_for_all() -> None:
    table = lru_table()
    assert table.shape == (CLASSES, AGE_BINS)
    assert (np.diff(table, axis=1) < 0).all() and (table == table[0]).all()


def test_the_table_of_mq_prefers_more_touches_until_their_life_time_is_over() -> None:
    table = mq_table(100.0)
    once, often = queue_classes(np.array([1, 8])).tolist()
    young, old = age_bins(np.array([10.0, 1000.0])).tolist()
    assert table[often, young] > table[once, young] > table[often, old]
    assert (np.diff(table, axis=1) < 0).all()


def test_what_was_brought_in_is_held_for_its_time_and_once_goes_first() -> None:
    values = in_force(lru_table(), 1 / 200.0, 0.003)
    middle = int(np.searchsorted(MIDDLES_S, 200.0))
    assert abs(values[9].max() - 0.003 * 200 / MIDDLES_S[0]) < 1e-6 and middle
    assert (values[1] == 0).all()
    for index, hold_s in enumerate(HOLDS_S.tolist()):
        row = values[HELD + index]
        assert row[0] == HELD_WORTH * 0.003 and row[-1] == 0
        # 1 ms is the tier's first bin, and there are two an octave.
        last = int(2 * np.log2(hold_s * 1e3))
        assert row[last - 2] > 0 and row[last + 2] == 0


def test_what_is_not_classified_yet_stays_until_its_class_is_said() -> None:
    table = np.full((CLASSES, AGE_BINS), 0.002)
    table[2:OWN_CLASSES] = 0.001
    values = in_force(table, 0.002, 0.003)
    is_young = TIER_MIDDLES_S < UNSAID_S
    for value_class in range(2, OWN_CLASSES):
        assert (values[value_class, is_young] == HELD_WORTH * 0.003).all()
        assert np.allclose(values[value_class, ~is_young], 0.0015), "as the table says"
    dear = in_force(table * 100, 0.002, 0.003)
    assert np.allclose(dear[2], table[2, OF_TIER] * 150), "what is worth more anyway stays so"
