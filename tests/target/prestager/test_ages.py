from __future__ import annotations

import numpy as np

from prestage.target.prestager.ages import AGE_BINS, EDGES_S, age_bins


def test_bins_are_those_of_the_tier() -> None:
    ages_ms = [-5, 0, 0.9, 1, 1.49, 1.5, 1.99, 2, 2.99, 3, 1024, 1535.9, 1536, 1e12]
    bins = age_bins(np.array(ages_ms) * 1e-3)
    assert bins.tolist() == [0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 20, 20, 21, 63]


def test_edges_are_where_bins_begin() -> None:
    assert EDGES_S[0] == 0 and len(EDGES_S) == AGE_BINS + 1
    assert (np.diff(EDGES_S) > 0).all()
    assert age_bins(EDGES_S[1:-1] * (1 + 1e-9)).tolist() == list(range(1, AGE_BINS))
    assert age_bins(EDGES_S[1:] * (1 - 1e-9)).tolist() == list(range(AGE_BINS))
