from __future__ import annotations

import numpy as np

from prestage.target.prestager.classes import STRATUM_AGAIN, STRATUM_ONCE, STRATUM_SHARED
from prestage.target.prestager.groups import SHARED, Groups
from prestage.target.prestager.score import FEATURES, ReturnScore, features, strata

SEED = 11


def made(count: int) -> tuple[Groups, np.ndarray]:
    groups = Groups()
    numbers = groups.make(count)
    groups.size[numbers], groups.touches[numbers] = 10, 1
    return groups, numbers


def test_features_have_places_of_their_own() -> None:
    groups, numbers = made(2)
    groups.touches[numbers] = [1, 60000]
    groups.size[numbers] = [1, 1 << 30]
    groups.fresh[numbers] = [0, 1 << 30]
    groups.gap_s[numbers] = groups.past_gap_s[numbers] = [0, 1e9]
    found = features(groups, numbers)
    assert found.shape == (FEATURES, 2)
    assert (found // 256 == np.arange(FEATURES)[:, None]).all()
    assert (found[:, 0] != found[:, 1]).all()


def test_groups_that_come_back_more_often_score_higher() -> None:
    rng = np.random.default_rng(SEED)
    score = ReturnScore(1e9)
    groups, numbers = made(400)
    eager = numbers[:200]
    groups.size[eager] = 100
    now_s = 0.0
    for _ in range(60):
        now_s += 20
        came = numbers[rng.random(400) < np.where(numbers < 200, 0.3, 0.03)]
        score.see_returns(groups, came, np.full(len(came), now_s))
        groups.touched_s[came], groups.looked_s[came] = now_s, 0
        score.see_waiting(groups, numbers, np.full(400, now_s))
        score.update_rates()
        groups.score[numbers] = score.scores(groups, numbers)
    assert groups.score[eager].min() > groups.score[numbers[200:]].max() + 0.5, f"seed {SEED}"


def test_the_baseline_is_returns_by_time_waited() -> None:
    score = ReturnScore(1e9)
    groups, numbers = made(1000)
    score.see_waiting(groups, numbers, np.full(1000, 100.0))
    assert abs(score.exposed_s[0].sum() - 100_000) < 1
    score.see_waiting(groups, numbers, np.full(1000, 100.0))
    assert abs(score.exposed_s[0].sum() - 100_000) < 1, "what was counted is not counted again"
    assert score.exposed_s[1].sum() == 0


def test_groups_that_came_back_and_shared_extents_have_baselines_of_their_own() -> None:
    score = ReturnScore(1e9)
    groups, numbers = made(3)
    groups.gap_s[numbers[1:]] = 20.0
    groups.kind[numbers[2]] = SHARED
    assert strata(groups, numbers).tolist() == [STRATUM_ONCE, STRATUM_AGAIN, STRATUM_SHARED]
    score.see_returns(groups, numbers[1:], np.full(2, 20.0))
    assert score.returned.sum(1).tolist() == [0, 1, 1]
    before = score.rates[STRATUM_ONCE].copy()
    score.update_rates()
    assert (score.rates[STRATUM_ONCE] == before).all() and (
        score.rates[STRATUM_AGAIN] > before
    ).any()


def test_cuts_move_to_where_the_scores_of_a_stratum_are() -> None:
    score = ReturnScore(1e9)
    scores = np.concatenate((np.linspace(3, 4, 1000), np.linspace(-5, -4, 1000)))
    stratum = np.repeat([STRATUM_ONCE, STRATUM_AGAIN], 1000)
    for _ in range(60):
        score.update_cuts(stratum, scores)
    bucket = score.buckets(stratum, scores)
    for mine in (STRATUM_ONCE, STRATUM_AGAIN):
        counts = np.bincount(bucket[stratum == mine])
        assert len(counts) > 1 and counts.std() / counts.mean() < 0.1
    assert score.buckets(np.full(3, STRATUM_SHARED), np.array([-9.0, 0, 9])).tolist() == [0, 0, 0]
