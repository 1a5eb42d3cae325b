from __future__ import annotations

import numpy as np

from prestage.target.prestager.ages import (
    AGE_BINS,
    EDGES_S,
    FIRST_S,
    LAST_S,
    MIDDLES_S,
    OF_TIER,
    TIER_BINS,
    TIER_MIDDLES_S,
    age_bins,
    tier_bins,
)


def test_edges_are_where_bins_begin() -> None:
    assert EDGES_S[0] == 0 and len(EDGES_S) == AGE_BINS + 1
    assert (np.diff(EDGES_S) > 0).all()
    assert EDGES_S[1] == FIRST_S and abs(EDGES_S[-2] - LAST_S) < 1e-6
    assert age_bins(EDGES_S[1:-1] * (1 + 1e-6)).tolist() == list(range(1, AGE_BINS))
    assert age_bins(EDGES_S[1:] * (1 - 1e-6)).tolist() == list(range(AGE_BINS))


def test_what_is_out_of_range_is_in_the_first_or_the_last_bin() -> None:
    assert age_bins(np.array([-5.0, 0.0, 1e9])).tolist() == [0, 0, AGE_BINS - 1]
    assert age_bins(MIDDLES_S).tolist() == list(range(AGE_BINS))


def test_the_tier_counts_in_half_octaves_of_a_millisecond() -> None:
    ages_s = np.array([0, 0.0009, 0.001, 0.00149, 0.0015, 0.002, 0.003, 1.024, 1e9])
    assert tier_bins(ages_s).tolist() == [0, 0, 0, 0, 1, 2, 3, 20, 63]
    assert tier_bins(TIER_MIDDLES_S).tolist() == list(range(TIER_BINS))
    assert np.allclose(TIER_MIDDLES_S[:4] * 1e3, [1.25, 1.75, 2.5, 3.5])
    assert (age_bins(TIER_MIDDLES_S) == OF_TIER).all()
    assert (np.diff(OF_TIER) >= 0).all()
