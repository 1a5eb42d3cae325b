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


def holdout_of(seed: int, share: float) -> Holdout:
    """One of which a thousand reads have been seen, and a shadow that had as many hits."""
    holdout = Holdout(share, seed)
    holdout.see_reads(1000, 1000.0, 0.0, 0.0)
    return holdout


def test_before_anything_was_read_nothing_is_said() -> None:
    benefit = Holdout(0.1, 1).benefit()
    assert (benefit.acted, benefit.held, benefit.hits) == (0, 0, 0.0)
    assert benefit.low == -np.inf and benefit.high == np.inf


def test_while_few_were_held_out_acting_may_have_gained_all_or_nothing() -> None:
    holdout = holdout_of(1, 0.1)
    holdout.settle(np.array([True] * 20 + [False] * 3), np.full(23, 4))
    benefit = holdout.benefit()
    assert (benefit.acted, benefit.held, benefit.hits) == (20, 3, 0.0)
    assert -5 < benefit.low < 0 and 80 < benefit.high < 85
    holdout.settle(np.zeros(30, bool), np.zeros(30))
    more = holdout.benefit()
    assert more.low > benefit.low and more.high <= benefit.high


def test_the_interval_covers_the_true_benefit_in_most_runs() -> None:
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        holdout = holdout_of(seed, 0.05)
        held = holdout.is_held(np.arange(2000))
        # A third of all predictions come true, with chains of any length; some are warm anyway.
        length = rng.integers(1, 40, 2000) * (rng.random(2000) < 0.33)
        anyway = length * (rng.random(2000) < 0.1)
        holdout.settle(~held, np.where(held, anyway, length))
        true = float((length - anyway)[~held].sum())
        benefit = holdout.benefit()
        covered += benefit.low <= true <= benefit.high
    assert covered >= 90


def test_the_interval_covers_what_a_shadow_that_goes_astray_says_of_what_was_driven_out() -> None:
    covered = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        holdout = Holdout(0.05, seed)
        # A quarter of the extents are sampled; each burst has 8, and the shadow is right about it,
        # or has all or none of them.
        for _ in range(400):
            astray = rng.choice([0, 0, 0, 8, -8])
            driven_out = rng.choice([0, 1])
            mine = rng.random(8) < 0.25
            net = float(np.sum(mine) * astray / 8 + np.sum(mine[:driven_out]))
            holdout.see_reads(8, float(np.sum(mine)), net, net**2)
        benefit = holdout.benefit()
        covered += benefit.low <= -200 <= benefit.high
        assert benefit.high - benefit.low < 600, f"seed {seed}"
    assert covered >= 90


def test_what_was_driven_out_is_taken_off_what_was_gained() -> None:
    holdout = holdout_of(1, 0.1)
    acted = np.arange(1000) >= 100
    holdout.settle(acted, np.where(acted, 4, 0))
    before = holdout.benefit()
    assert before.displaced == 0 and before.hits == 3600
    # Of a tenth of the reads 50 more would have been hits in the plain tier.
    holdout.see_reads(9000, 0.0, 50.0, 250.0)
    after = holdout.benefit()
    assert after.displaced == 500 and after.hits == 3100 and after.per_prediction == 4
    assert after.high - after.low > before.high - before.low, "a sample says less than all reads"
