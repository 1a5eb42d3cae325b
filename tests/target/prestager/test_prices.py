from __future__ import annotations

import numpy as np

from prestage.target.prestager.ages import AGE_BINS, EDGES_S, WIDTHS_S, age_bins
from prestage.target.prestager.prices import Prices, advantage, hold_index, outlook


def of_hazard(rate: np.ndarray) -> np.ndarray:
    return -np.expm1(-rate * WIDTHS_S)[None, :]


def at(age_s: float) -> int:
    return int(age_bins(np.array([age_s]))[0])


def test_a_constant_hazard_is_worth_its_rate_at_any_age() -> None:
    view = outlook(of_hazard(np.full(AGE_BINS, 0.01)), 0.0, 0.9, 0.25)
    young = view.keep[0, at(0.1) : at(10)]
    assert np.allclose(young, 0.01, rtol=0.25)
    assert (view.fetch <= view.keep).all()


def test_what_is_quiet_first_is_let_go_and_fetched_before_its_time() -> None:
    rate = np.where((EDGES_S[:-1] > 50) & (EDGES_S[:-1] < 100), 0.05, 1e-6)
    view = outlook(of_hazard(rate), 0.01, 0.1, 0.25)
    assert view.keep[0, at(1)] < view.keep[0, at(70)]
    assert view.fetch[0, at(1)] < 0.01 < view.fetch[0, at(70)]
    assert view.fetch[0, at(400)] < 0.01


def test_a_dear_flash_makes_it_hold_on_and_not_fetch() -> None:
    rate = np.where((EDGES_S[:-1] > 50) & (EDGES_S[:-1] < 100), 0.05, 1e-6)
    cheap, dear = (outlook(of_hazard(rate), 0.01, price, 0.25) for price in (0.05, 0.9))
    assert cheap.keep[0, at(20)] < dear.keep[0, at(20)]
    assert cheap.fetch[0, at(70)] > dear.fetch[0, at(70)]


def test_the_outlook_says_until_when_and_how_likely() -> None:
    rate = np.where(EDGES_S[:-1] < 100, 0.02, 1e-6)
    view = outlook(of_hazard(rate), 0.005, 0.1, 0.25)
    assert 60 < view.until_s[0, at(1)] < 150
    spent = view.until_s[0, at(1)] - EDGES_S[at(1)]
    assert abs(view.chance[0, at(1)] - (1 - np.exp(-0.02 * min(spent, 100)))) < 0.15
    assert view.chance[0, at(1000)] < 0.01


def test_what_is_too_unlikely_to_be_read_is_not_fetched() -> None:
    rate = np.where((EDGES_S[:-1] > 50) & (EDGES_S[:-1] < 100), 0.005, 1e-6)
    bold, careful = (outlook(of_hazard(rate), 0.001, 0.01, least) for least in (0.05, 0.5))
    assert bold.fetch[0, at(70)] > 0 and careful.fetch.max() == 0


def test_where_nothing_can_be_fetched_it_is_not_let_go_before_its_time() -> None:
    rate = np.where((EDGES_S[:-1] > 50) & (EDGES_S[:-1] < 100), 0.05, 1e-6)
    view = outlook(of_hazard(rate), 0.01, 0.01, 0.25)
    assert hold_index(of_hazard(rate))[0, at(20)] > view.keep[0, at(20)]


def test_the_less_of_it_is_acted_on_the_less_is_let_go_to_be_fetched_later() -> None:
    rate = np.where((EDGES_S[:-1] > 50) & (EDGES_S[:-1] < 100), 0.05, 1e-6)
    none, half, all_ = (
        outlook(of_hazard(rate), 0.01, 0.01, 0.25, share).keep[0, at(20)] for share in (0, 0.5, 1)
    )
    assert none == hold_index(of_hazard(rate))[0, at(20)]
    assert none > half > all_


def test_advantage_is_what_the_equations_say_in_the_last_bin() -> None:
    chances = np.full((1, AGE_BINS), 0.5)
    gain = advantage(chances, np.array([0.0, 1e-9]), 0.3, 0.25).gain
    assert gain[0, 0, -1] == 0.5
    assert gain[1, 0, -1] == 0.5 - 1e-9 * 0.75 * WIDTHS_S[-1]


def test_prices_follow_what_they_see() -> None:
    prices = Prices(flash_floor=0.1)
    for _ in range(2000):
        prices.see_victims(np.array([0.01, 0.03]))
    assert abs(prices.memory - 0.02) < 1e-3
    first = prices.flash
    prices.see_use(1.2)
    assert prices.flash > first
    once = prices.flash
    prices.see_use(1.0)
    assert prices.flash == once, "what is allowed is read"
    for _ in range(1000):
        prices.see_use(0.5)
    assert prices.flash == 0.1
    for _ in range(1000):
        prices.see_use(9.0)
    assert prices.flash < 1
