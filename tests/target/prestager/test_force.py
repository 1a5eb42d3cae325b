from __future__ import annotations

from prestage.target.prestager.force import Force

POLICIES = ("learned", "lru", "mq")
EVEN = {"learned": 0.5, "lru": 0.5, "mq": 0.5}


def choose(force: Force, now_s: float, ratios: dict[str, float], *, is_bound: bool = False) -> str:
    return force.choose(now_s, 1000.0, ratios, is_bound=is_bound)


def test_another_policy_must_be_better_by_a_margin_over_enough_reads() -> None:
    force = Force(POLICIES, 100)
    better = {**EVEN, "mq": 0.52}
    assert force.choose(0.0, 10.0, better, is_bound=False) == "lru"
    assert choose(force, 1.0, {**EVEN, "mq": 0.505}) == "lru"
    assert choose(force, 2.0, better) == "mq"
    assert choose(force, 3.0, EVEN) == "mq", "no other is better by a margin"
    assert choose(force, 4.0, better, is_bound=True) == "learned"


def test_a_load_of_few_reads_is_left_to_the_plain_tier() -> None:
    force = Force(POLICIES, 100)
    assert force.chosen == "lru"
    for reads in (0.0, 20.0, 99.0):
        ratios = {"learned": 1.0, "lru": 0.0, "mq": 0.0}
        assert force.choose(reads, reads, ratios, is_bound=False) == "lru"


def is_harmed(force: Force) -> bool:
    return force.is_harmed


def test_a_tier_that_is_harmed_is_left_alone_each_time_for_longer() -> None:
    force = Force(POLICIES, 100)
    learned = {**EVEN, "learned": 0.6}
    spans_s = []
    now_s = 0.0
    for _ in range(3):
        force.see(1000.0, -100.0)
        assert choose(force, now_s, learned) == "lru" and is_harmed(force)
        start_s = now_s
        while choose(force, now_s, learned) == "lru":
            now_s += 1
        assert not is_harmed(force)
        spans_s.append(now_s - start_s)
    assert spans_s == [120, 240, 480]


def test_it_is_harmed_until_the_first_policy_hits_more_again() -> None:
    force = Force(POLICIES, 100)
    force.see(1000.0, -100.0)
    assert choose(force, 0.0, EVEN) == "lru"
    assert choose(force, 1000.0, EVEN) == "lru"
    assert choose(force, 1001.0, {**EVEN, "learned": 0.6}) == "learned"


def test_what_is_promising_is_tried_again_when_the_time_is_over() -> None:
    force = Force(POLICIES, 100)
    force.see(1000.0, -100.0)
    chosen = [force.choose(now_s, 1000.0, EVEN, is_bound=False, is_promising=True)
              for now_s in (0.0, 119.0, 121.0)]  # fmt: skip
    assert chosen == ["lru", "lru", "learned"]
    force.see(1000.0, -100.0)
    assert choose(force, 122.0, EVEN) == "lru", "it does harm again"


def test_a_few_hits_less_say_nothing_and_many_are_forgotten() -> None:
    force = Force(POLICIES, 1000)
    assert choose(force, 0.0, {**EVEN, "learned": 0.6}) == "learned"
    force.see(100.0, -30.0)
    assert choose(force, 1.0, EVEN) == "learned"
    force.see(100.0, -100.0)
    force.fade(1000.0)
    assert choose(force, 2.0, EVEN) == "learned"
