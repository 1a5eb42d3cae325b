from __future__ import annotations

import random

import numpy as np
from formation_support import World

from prestage.target.prestager.groups import FREE, LIVE, SHARED, TAIL


def test_a_burst_of_writes_is_a_group_in_the_order_of_its_chain() -> None:
    world = World()
    touches = world.burst(1.0, [40, 7, 23])
    assert touches.groups.tolist() == [0] and touches.begins.all()
    assert world.members(0) == [40, 7, 23]
    assert world.groups.touches[0] == 1 and world.groups.fresh[0] == 3


def test_a_group_that_is_read_again_goes_on_and_takes_the_writes_after_it() -> None:
    world = World()
    world.burst(1.0, range(10))
    touches = world.burst(51.0, range(12), flow=2)
    assert touches.groups.tolist() == [0] and world.returned == [0]
    assert world.members(0) == list(range(12))
    assert world.groups.touches[0] == 2 and world.groups.gap_s[0] == 50.0
    assert touches.is_return.tolist() == [True] * 10 + [False] * 2
    assert touches.before_age_s[0] == 50.0


def test_what_follows_at_once_on_the_flow_is_the_same_burst() -> None:
    world = World()
    world.burst(1.0, range(5))
    touches = world.burst(1.001, range(5, 9))
    assert not touches.begins.any() and world.groups.touches[0] == 1
    assert world.members(0) == list(range(9)) and world.groups.fresh[0] == 9


def test_a_short_read_of_a_long_group_and_writes_fork_from_it() -> None:
    world = World()
    world.burst(1.0, range(20))
    world.burst(60.0, [*range(4), *range(100, 110)])
    assert world.members(1) == [*range(4), *range(100, 110)]
    assert world.members(0) == list(range(4, 20))
    assert world.groups.touches[1] == 1, "the history of so small a part is not taken over"
    world.check()


def test_one_extent_left_out_does_not_end_a_small_group() -> None:
    world = World()
    world.burst(1.0, [1, 2])
    world.burst(60.0, [1, 30])
    assert world.group_of(1) == world.group_of(30) == 0
    assert world.groups.touches[0] == 2


def test_pieces_that_come_together_twice_become_one_group_with_the_history_of_the_largest() -> None:
    world = World()
    world.burst(1.0, range(10))
    world.burst(10.0, range(10))
    world.burst(20.0, [50, 51], flow=2)
    world.burst(70.0, [*range(10), 50, 51], flow=3)
    assert world.members(0) == [*range(10)], "sessions may run into each other once"
    touches = world.burst(110.0, [*range(10), 50, 51], flow=4)
    assert world.members(0) == [*range(10), 50, 51]
    assert touches.freed.tolist() == [1] and world.groups.kind[1] == FREE
    assert world.groups.touches[0] == 4 and world.groups.gap_s[0] == 40.0
    world.check()


def test_what_several_groups_take_from_each_other_is_rated_by_itself() -> None:
    world = World()
    for number in range(3):
        start = 100 * (number + 1)
        world.burst(10.0 * (number + 1), [0, 1, *range(start, start + 20)], flow=number)
    for extent in (0, 1):
        group = world.group_of(extent)
        assert world.groups.kind[group] == SHARED and world.members(group) == [extent]
    before = world.groups.touches[world.group_of(0)]
    world.burst(80.0, [0, *range(100, 120)], flow=7)
    assert world.groups.touches[world.group_of(0)] == before + 1
    world.check()


def test_edges_say_what_came_after_what_on_a_flow() -> None:
    world = World()
    world.burst(1.0, range(5), flow=1)
    world.burst(2.0, range(10, 15), flow=2)
    touches = world.burst(9.0, range(20, 25), flow=1)
    assert (touches.sources.tolist(), touches.targets.tolist()) == ([0], [2])
    assert touches.lags_s.tolist() == [8.0]


def test_a_set_makes_a_group_unless_there_is_one() -> None:
    world = World()
    rows = world.extents.find_or_add(np.array([9, 8, 7], np.uint64))
    world.formation.adopt(rows, tenant=4, now_s=3.0)
    world.formation.adopt(rows, tenant=4, now_s=4.0)
    assert world.members(0) == [9, 8, 7] and world.groups.count == 1
    assert world.groups.tenant[0] == 4 and world.groups.touches[0] == 0
    world.burst(5.0, [9, 8, 7])
    assert world.group_of(9) == 0 and world.groups.touches[0] == 1


def sessions(world: World, *, reads_last: bool) -> None:
    """Chains of ten that come back once, with their last extent or with another in its place."""
    for number in range(20):
        start = 100 * number
        world.burst(10.0 * number, range(start, start + 10), flow=number)
    for number in range(20):
        start = 100 * number
        kept = range(start, start + 10 if reads_last else start + 9)
        world.burst(300.0 + 10.0 * number, [*kept, *range(start + 20, start + 23)], flow=number)


def test_ends_of_chains_that_are_seldom_read_again_are_set_apart() -> None:
    world = World()
    sessions(world, reads_last=False)
    apart = world.group_of(1922)
    assert world.groups.kind[world.group_of(1920)] == LIVE
    assert world.groups.kind[apart] == TAIL and world.members(apart) == [1922]
    assert world.groups.touches[apart] == world.groups.touches[world.group_of(1900)] == 2
    world.check()


def test_an_end_that_was_set_apart_joins_its_chain_when_it_is_read_with_it() -> None:
    world = World()
    sessions(world, reads_last=False)
    apart = world.group_of(1922)
    chain = [*range(1900, 1909), *range(1920, 1923), 1950, 1951]
    touches = world.burst(900.0, chain, flow=19)
    assert world.group_of(1922) == world.group_of(1900) != apart
    assert apart in touches.freed and apart in touches.returned
    world.check()


def test_ends_that_are_read_again_stay_with_their_chains() -> None:
    world = World()
    sessions(world, reads_last=True)
    assert TAIL not in world.groups.kind
    assert world.group_of(1922) == world.group_of(1900)


def test_forgotten_extents_leave_their_groups_and_empty_groups_go() -> None:
    world = World()
    world.burst(1.0, range(4))
    world.burst(2.0, range(10, 12), flow=2)
    world.formation.forget(world.extents.find(np.array([0, 10, 11], np.uint64)))
    assert world.members(0) == [1, 2, 3] and world.groups.kind[1] == FREE
    world.check()


def test_sizes_members_and_owners_agree_whatever_comes() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    world, time_s = World(), 0.0
    for step in range(400):
        base = 60 * rng.randrange(25)
        extents = list(range(base, base + rng.randrange(1, 50)))
        if rng.random() < 0.3:
            extents = [*range(5), *extents]
        if rng.random() < 0.1:
            rng.shuffle(extents)
        time_s += rng.choice([0.001, 0.5, 30.0])
        world.burst(time_s, extents, rng.randrange(4))
        if step % 50 == 0:
            world.check()
            world.groups.compact(world.extents)
    world.check()


def test_documents_that_are_read_beside_each_other_stay_apart() -> None:
    world = World()
    world.document_of = {extent: extent // 10 for extent in range(100)}
    world.burst(1.0, [*range(10), *range(10, 20)])
    touches = world.burst(51.0, [*range(10), *range(30, 40), 200, 201])
    assert sorted(len(world.members(number)) for number in world.groups.live()) == [2, 10, 10, 10]
    assert world.returned == [world.group_of(0)]
    edges = dict(zip(touches.sources.tolist(), touches.targets.tolist(), strict=True))
    assert edges[world.group_of(0)] == world.group_of(30)
    assert edges[world.group_of(30)] == world.group_of(200)
    world.burst(51.001, [*range(40, 50)])
    assert len(world.members(world.group_of(200))) == 2, "one that comes later is not added"
    world.check()
