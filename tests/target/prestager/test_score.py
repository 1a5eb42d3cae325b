from __future__ import annotations

import numpy as np

from prestage.target.prestager.groups import Groups
from prestage.target.prestager.score import FEATURES, ReturnScore, features

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


def test_cuts_move_to_where_scores_are() -> None:
    score = ReturnScore(1e9)
    scores = np.linspace(3, 4, 1000)
    for _ in range(60):
        score.update_cuts(scores, np.linspace(5, 50, 1000))
    bucket, gap = score.buckets(scores, np.full(1000, 25.0))
    assert abs(np.bincount(bucket).std() / np.bincount(bucket).mean()) < 0.1
    assert set(gap.tolist()) == {2}
    assert score.buckets(scores[:1], np.zeros(1))[1].tolist() == [0]
