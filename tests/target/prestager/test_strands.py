"""Sessions that share a connection, and whose bursts run into each other."""

from __future__ import annotations

import random

import pytest
from formation_support import World

SEED = random.randrange(1 << 32)


def two_sessions(length: int = 10) -> World:
    """Return a world with two chains, of 0 and of 100 on, each read again once."""
    world = World()
    for at, start in enumerate((0, 100)):
        for again in range(2):
            chain = range(start, start + length)
            world.burst(10.0 * at + 100 * again + 1, chain, flow=at)
    return world


def alternating(first: range, second: range) -> list[int]:
    return [extent for pair in zip(first, second, strict=True) for extent in pair]


def mixed(first: range, second: range) -> list[int]:
    """Return both, each in its order, the one between the other as it happens."""
    chooser = random.Random(SEED)
    left = [list(reversed(first)), list(reversed(second))]
    found = []
    while any(left):
        found.append(chooser.choice([each for each in left if each]).pop())
    return found


A, B = range(10), range(100, 110)


@pytest.mark.parametrize("burst", [[*A, *B], alternating(A, B), mixed(A, B)])
def test_two_sessions_at_once_on_one_flow_come_back_each_by_itself(burst: list[int]) -> None:
    print(f"seed {SEED}")
    world = two_sessions()
    touches = world.burst(300.0, burst, flow=7)
    assert sorted(touches.groups.tolist()) == [0, 1] and touches.begins.all()
    assert world.members(0) == [*A] and world.members(1) == [*B]
    assert world.groups.touches[:2].tolist() == [3, 3]
    assert world.groups.gap_s[:2].tolist() == [199.0, 189.0]
    world.check()


def test_what_nobody_knows_goes_on_with_the_session_before_it() -> None:
    world = two_sessions()
    world.burst(300.0, [*A, 50, 51, *B, 150], flow=7)
    assert world.members(0) == [*A, 50, 51] and world.members(1) == [*B, 150]
    world.check()


def test_what_comes_first_goes_on_with_the_session_behind_it() -> None:
    world = two_sessions()
    world.burst(300.0, [50, *A, *B], flow=7)
    assert set(world.members(0)) == {50, *A} and world.members(1) == [*B]


def test_a_session_goes_on_when_another_comes_in_between() -> None:
    world = two_sessions()
    world.burst(300.0, A[:6], flow=7)
    touches = world.burst(300.001, [*B, *A[6:]], flow=7)
    assert world.members(0) == [*A] and world.members(1) == [*B]
    begun = dict(zip(touches.groups.tolist(), touches.begins.tolist(), strict=True))
    assert begun == {0: False, 1: True}
    world.burst(300.002, [160, 161], flow=7)
    assert world.group_of(160) == world.group_of(161) >= 0
    world.check()


def test_a_small_part_of_another_session_is_a_fork_and_no_strand() -> None:
    world = two_sessions()
    world.burst(300.0, [*A, 100, 101], flow=7)
    assert world.members(0) == [*A, 100, 101] and len(world.members(1)) == 8


def test_many_sessions_in_random_order_keep_their_extents() -> None:
    print(f"seed {SEED}")
    chooser = random.Random(SEED)
    world = World()
    for at in range(30):
        world.burst(float(at + 1), range(100 * at, 100 * at + 8), flow=at % 4)
    time_s = 100.0
    for _ in range(200):
        chosen = chooser.sample(range(30), chooser.randrange(1, 4))
        burst = [100 * at + place for at in chosen for place in range(8)]
        if chooser.random() < 0.5:
            chooser.shuffle(burst)
        time_s += 1 + chooser.random()
        world.burst(time_s, burst, flow=chooser.randrange(4))
        world.check()
    owners = [{world.group_of(100 * at + place) for place in range(8)} for at in range(30)]
    assert sum(len(each) == 1 for each in owners) > 25, "few have come together twice in a row"
