from __future__ import annotations

import numpy as np

from prestage.target.prestager.holdout import Holdout, draw


def test_a_draw_is_uniform_and_says_the_same_again() -> None:
    serials = np.arange(100_000)
    drawn = draw(5, serials)
    assert (drawn == draw(5, serials)).all()
    assert drawn.min() >= 0 and drawn.max() < 1
    assert np.abs(np.bincount((drawn * 10).astype(int)) / 10_000 - 1).max() < 0.05
    assert abs(np.corrcoef(drawn, draw(6, serials))[0, 1]) < 0.02


def test_the_share_that_is_held_is_as_asked() -> None:
    held = Holdout(0.05, 1).is_held(np.arange(100_000))
    assert abs(held.mean() - 0.05) < 0.005
    assert not Holdout(0.0, 1).is_held(np.arange(1000)).any()


def test_little_says_nothing() -> None:
    holdout = Holdout(0.1, 1)
    holdout.settle(np.array([True] * 20 + [False] * 3), np.full(23, 4))
    benefit = holdout.benefit()
    assert (benefit.acted, benefit.held) == (20, 3)
    assert benefit.low == -np.inf and benefit.high == np.inf


def test_the_interval_covers_the_true_benefit_in_most_runs() -> None:
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        holdout = Holdout(0.05, seed)
        held = holdout.is_held(np.arange(2000))
        # A third of all predictions come true, with chains of any length; some are warm anyway.
        length = rng.integers(1, 40, 2000) * (rng.random(2000) < 0.33)
        anyway = length * (rng.random(2000) < 0.1)
        holdout.settle(~held, np.where(held, anyway, length))
        true = float((length - anyway)[~held].sum())
        benefit = holdout.benefit()
        covered += benefit.low <= true <= benefit.high
    assert covered >= 90


def test_what_was_driven_out_is_taken_off_what_was_gained() -> None:
    holdout = Holdout(0.1, 1)
    acted = np.arange(1000) >= 100
    holdout.settle(acted, np.where(acted, 4, 0))
    before = holdout.benefit()
    assert before.displaced == 0 and before.hits == 3600
    # Of a tenth of the reads 150 more would have been hits in the plain tier, and 100 fewer.
    holdout.see_reads(10_000, 1000.0, 150.0, 100.0)
    after = holdout.benefit()
    assert after.displaced == 500 and after.hits == 3100
    assert after.high - after.low > before.high - before.low, "a sample says less than all reads"
    whole = Holdout(0.1, 1)
    whole.settle(acted, np.where(acted, 4, 0))
    whole.see_reads(10_000, 10_000.0, 1500.0, 1000.0)
    assert whole.benefit().hits == 3100
    assert np.isclose(whole.benefit().high - whole.benefit().low, before.high - before.low)
