from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from prestage.target.prestager.ages import AGE_BINS, CLASSES
from prestage.target.prestager.shadow import Sampled, ShadowCache, Shadows
from prestage.target.prestager.tables import lru_table

SEED = 3


def access(cache: ShadowCache, keys: list[int], time_s: float, value_class: int = 8) -> float:
    count = len(keys)
    before = cache.hits
    cache.access(
        np.array(keys, np.uint64),
        np.full(count, value_class, np.uint8),
        np.full(count, time_s),
        np.full(count, time_s),
        np.ones(count, bool),
        lru_table(),
    )
    return cache.hits - before


def test_a_shadow_by_the_table_of_lru_is_lru() -> None:
    cache = ShadowCache(3)
    assert access(cache, [1, 2, 3], 1.0) == 0
    assert access(cache, [1], 20.0) == 1
    assert access(cache, [4], 400.0) == 0
    assert access(cache, [1, 4], 401.0) == 2
    assert access(cache, [2, 3], 402.0) <= 1


@pytest.mark.parametrize("together", [1, 16, 128])
def test_however_many_come_together_it_hits_as_often_as_lru(together: int) -> None:
    rng = np.random.default_rng(SEED)
    keys = 100 * rng.zipf(1.2, 20_000) % 65_521
    exact, hits = OrderedDict[int, None](), 0
    for key in keys.tolist():
        hits += key in exact
        exact[key] = None
        exact.move_to_end(key)
        if len(exact) > 256:
            exact.popitem(last=False)
    cache = ShadowCache(256)
    for start in range(0, len(keys), together):
        some = keys[start : start + together].astype(np.uint64)
        times_s = 1.0 + 0.01 * np.arange(start, start + len(some), dtype=np.float64)
        always = np.ones(len(some), bool)
        classes = np.full(len(some), 8, np.uint8)
        cache.access(some, classes, times_s, times_s, always, lru_table())
    print(cache.hits / len(keys), hits / len(keys))
    assert abs(cache.hits - hits) < 0.01 * len(keys), f"seed {SEED}"


def sampled(keys: np.ndarray, time_s: float, *, is_hit: bool = True) -> Sampled:
    count = len(keys)
    always = np.ones(count, bool)
    times_s, hits = np.full(count, time_s), always & is_hit
    return Sampled(keys.astype(np.uint64), times_s, times_s, always, hits, hits, ~always)


def test_the_policy_that_hits_more_comes_into_force() -> None:
    rng = np.random.default_rng(SEED)
    by_class = np.tile(np.arange(CLASSES, dtype=float)[:, None], (1, AGE_BINS))
    tables = {"old": -lru_table(), "lru": lru_table(), "classes": by_class}
    shadows = Shadows(tuple(tables), 200, 1e9)
    assert shadows.chosen == "lru" and shadows.share == 1
    for step in range(400):
        # A hundred extents are read now and then, among many that are read once.
        keys = np.append(rng.integers(0, 100, 5), 1000 + 20 * step + np.arange(20))
        classes = np.where(keys < 100, 30, 9).astype(np.uint8)
        shadows.see(sampled(keys, step + 1.0), dict.fromkeys(tables, classes), tables)
    ratios = shadows.ratios()
    assert ratios["classes"] > ratios["lru"] + 0.05, f"seed {SEED}"
    assert shadows.choose(500.0) == "classes"
    shadows.is_bound = True
    assert shadows.choose(501.0) == "old"


def test_a_tier_that_falls_behind_what_it_would_be_is_left_alone_for_a_time() -> None:
    tables = {"learned": lru_table(), "lru": lru_table()}
    shadows = Shadows(("learned", "lru"), 100, 1e9)
    keys = np.arange(50)
    named = {policy: np.full(50, 9, np.uint8) for policy in tables}
    for step in range(40):
        shadows.see(sampled(keys, 10.0 * step, is_hit=False), named, tables)
    assert shadows.choose(400.0) == "lru" and shadows.is_harmed
    assert shadows.choose(500.0) == "lru"
    assert shadows.choose(600.0) == "lru", "for its shadow is no better"


def test_a_large_tier_is_sampled_and_its_shadow_is_as_much_smaller() -> None:
    shadows = Shadows(("learned", "lru"), 1 << 20, 1e9)
    assert shadows.share == 4096 / (1 << 20)
    keys = np.arange(1 << 20)
    tables = {"learned": lru_table(), "lru": lru_table()}
    named = {policy: np.full(len(keys), 8, np.uint8) for policy in tables}
    shadows.see(sampled(keys, 9.0), named, tables)
    assert 0.5 < shadows.reads / 4096 < 2


def test_what_was_counted_fades() -> None:
    shadows = Shadows(("learned", "lru"), 100, 10)
    shadows.reads = 8.0
    shadows.fade(20)
    assert shadows.reads == 2.0


def read(shadows: Shadows, seen: Sampled) -> None:
    classes = np.full(len(seen.keys), 9, np.uint8)
    shadows.see(
        seen,
        dict.fromkeys(shadows.policies, classes),
        dict.fromkeys(shadows.policies, lru_table()),
    )


def test_what_the_tier_or_its_shadow_had_more_of_is_told_once() -> None:
    shadows = Shadows(("learned", "lru"), 100, 1e9)
    keys = np.arange(50)
    for step in range(4):
        read(shadows, sampled(keys, 10.0 * step + 2, is_hit=False))
    reads, net, squares = shadows.take_plain()
    assert (reads, net) == (200, 150), "the first of each was no hit, and the tier had none"
    assert squares == 50**2 + 100**2, "two at a time were looked at together"
    assert shadows.take_plain() == (0, 0, 0)
    read(shadows, sampled(keys + 500, 90.0))
    read(shadows, sampled(keys + 600, 99.0))
    assert shadows.take_plain() == (100, -100, 100**2), "only the tier had these"


def test_what_hints_bring_in_says_nothing_of_what_fetches_do() -> None:
    shadows = Shadows(("learned", "lru"), 100, 1e9)
    keys = np.arange(50)
    read(shadows, sampled(keys, 1.0, is_hit=False))
    read(shadows, replace(sampled(keys, 9.0, is_hit=False), is_told=keys < 20))
    assert shadows.take_plain() == (80, 30, 30**2)


def test_what_was_just_used_stays_until_its_class_is_said() -> None:
    by_class = np.tile(np.arange(CLASSES, dtype=float)[:, None], (1, AGE_BINS))
    always = np.ones(1, bool)

    def hits(cache: ShadowCache, key: int, value_class: int, time_s: float, said_s: float) -> bool:
        found = cache.access(
            np.array([key], np.uint64), np.array([value_class], np.uint8), np.array([time_s]),
            np.array([said_s]), always, by_class,
        )  # fmt: skip
        return bool(found[0])

    for delay_s, stays in ((0.0, True), (5.0, False)):
        cache = ShadowCache(2)
        hits(cache, 1, 30, 1.0, 1.0)
        for key in (2, 3):
            hits(cache, key, 9, 1.0 + key, 1.0 + key + delay_s)
        assert hits(cache, 1, 30, 9.0, 9.0) == stays, "it is worth more than both"


def test_what_comes_into_force_because_fetches_do_harm_is_not_what_would_be_without_them() -> None:
    by_class = np.tile(np.arange(CLASSES, dtype=float)[:, None], (1, AGE_BINS))
    tables = {"learned": by_class, "lru": lru_table()}
    shadows = Shadows(("learned", "lru"), 100, 1e9)
    for step in range(200):
        # The learned table alone keeps what comes back later, and both what does so at once.
        again = np.arange(20) if step % 10 == 0 else 100 + np.arange(20)
        keys = np.append(again, 1000 + 20 * step + np.arange(20))
        classes = np.where(keys < 100, 30, 9).astype(np.uint8)
        named = dict.fromkeys(tables, classes)
        shadows.see(sampled(keys, 2.0 * step, is_hit=False), named, tables)
        shadows.choose(2.0 * step)
        if step == 50:
            assert shadows.is_harmed and shadows.chosen == "lru", "the tier has nothing"
            shadows.take_plain()
    reads, net, _ = shadows.take_plain()
    ratios = shadows.ratios()
    assert ratios["learned"] > ratios["lru"] + 0.02
    assert abs(net / reads - ratios["learned"]) < 0.01
