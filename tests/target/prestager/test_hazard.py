from __future__ import annotations

import numpy as np

from prestage.target.prestager.ages import AGE_BINS, CLASSES, EDGES_S, WIDTHS_S, age_bins
from prestage.target.prestager.hazard import ReturnHazard, prior_chances

SEED = 7


def tiled() -> np.ndarray:
    return np.tile(prior_chances(), (CLASSES, 1))


def test_the_prior_hazard_falls_with_age() -> None:
    rate = -np.log1p(-prior_chances()) / WIDTHS_S
    assert (np.diff(rate) <= 0).all()
    assert abs(rate[age_bins(np.array([30.0]))[0]] - 0.1 / 60) < 3e-4


def test_without_evidence_the_expected_chances_stand() -> None:
    hazard = ReturnHazard(half_life_s=1800)
    found = hazard.chances(np.zeros((CLASSES, AGE_BINS)), tiled(), 10.0)
    assert np.allclose(found, tiled())


def test_memoryless_returns_are_found_as_such() -> None:
    hazard = ReturnHazard(half_life_s=1e9, strength=1.0)
    rng = np.random.default_rng(SEED)
    ages_s = rng.exponential(50.0, 200_000)
    hazard.add_returns(np.full(len(ages_s), 9), age_bins(ages_s))
    found = hazard.chances(np.zeros((CLASSES, AGE_BINS)), tiled(), 1.0)[9]
    true = -np.expm1(-WIDTHS_S / 50.0)
    middle = slice(*age_bins(np.array([2.0, 100.0])).tolist())
    assert np.allclose(found[middle], true[middle], rtol=0.1), f"seed {SEED}"


def test_who_still_waits_was_at_risk_in_every_bin_that_it_passed() -> None:
    hazard = ReturnHazard(half_life_s=1e9, strength=1e-6)
    early, late = age_bins(np.array([10.0, 1000.0])).tolist()
    hazard.add_returns(np.full(100, 9), np.full(100, early))
    waiting = np.zeros((CLASSES, AGE_BINS))
    waiting[9, late] = 300
    found = hazard.chances(waiting, tiled(), 1.0)[9]
    assert abs(found[early] - 0.25) < 1e-3
    assert abs(found[early + 1]) < 1e-3 and abs(found[early - 1]) < 1e-3


def test_what_was_counted_fades() -> None:
    hazard = ReturnHazard(half_life_s=100)
    hazard.add_returns(np.array([9, 9]), np.array([3, 3]))
    hazard.fade(200)
    assert hazard.returned[9, 3] == 0.5
    assert EDGES_S[3] > 0
