from __future__ import annotations

import numpy as np

from prestage.target.prestager.ages import AGE_BINS, CLASSES, WIDTHS_S, age_bins
from prestage.target.prestager.hazard import ReturnHazard, prior_chances

SEED = 7
NOBODY = np.zeros((CLASSES, AGE_BINS))


def tiled() -> np.ndarray:
    return np.tile(prior_chances(), (CLASSES, 1))


def at(age_s: float) -> int:
    return int(age_bins(np.array([age_s]))[0])


def test_the_prior_hazard_falls_with_age() -> None:
    rate = -np.log1p(-prior_chances()) / WIDTHS_S
    assert (np.diff(rate) <= 0).all()
    assert abs(rate[at(30)] - 0.1 / 60) < 3e-4


def test_without_evidence_the_expected_chances_stand() -> None:
    found = ReturnHazard(half_life_s=1800).chances(NOBODY, tiled())
    assert np.allclose(found, tiled())


def test_memoryless_returns_are_found_as_such() -> None:
    hazard = ReturnHazard(half_life_s=1e9)
    ages_s = np.random.default_rng(SEED).exponential(50.0, 200_000)
    hazard.add_returns(np.full(len(ages_s), 9), age_bins(ages_s))
    found = hazard.chances(NOBODY, tiled())[9]
    true = -np.expm1(-WIDTHS_S / 50.0)
    middle = slice(at(2), at(100))
    assert np.allclose(found[middle], true[middle], rtol=0.1), f"seed {SEED}"


def test_who_still_waits_was_at_risk_in_every_bin_that_it_passed() -> None:
    early, late = at(10), at(1000)
    waiting = NOBODY.copy()
    waiting[9, late] = 300
    found = []
    for waits in (NOBODY, waiting):
        hazard = ReturnHazard(half_life_s=1e9, strength=1e-9)
        hazard.add_returns(np.full(100, 9), np.full(100, early))
        found.append(hazard.chances(waits, tiled())[9])
    # A hundred came and three hundred did not; neighbouring bins count in part.
    assert 3 < found[0][early] / found[1][early] < 6


def test_what_was_counted_fades() -> None:
    hazard = ReturnHazard(half_life_s=100)
    hazard.add_returns(np.array([9, 9]), np.array([3, 3]))
    hazard.fade(200)
    assert hazard.returned[9, 3] == 0.5
