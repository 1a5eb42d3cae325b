from __future__ import annotations

import numpy as np

from prestage.target.prestager.extents import AHEAD, PREDICTED, READ_AHEAD, WAITING, ExtentMap
from prestage.target.prestager.formation import Touches
from prestage.target.prestager.groups import Groups
from prestage.target.prestager.holdout import Holdout
from prestage.target.prestager.intake import Evictions, Fetched
from prestage.target.prestager.ledger import Source
from prestage.target.prestager.planner import Candidates, Planner, room_for
from prestage.target.prestager.shared import Gauges, OrderEnd
from prestage.target.prestager.speculation import Speculation, SpeculationConfig

CHAIN = 4


def world(count: int) -> tuple[ExtentMap, Groups, np.ndarray]:
    """Groups of CHAIN extents, of which none is in the tier."""
    extents, groups = ExtentMap(), Groups()
    numbers = groups.make(count)
    rows = extents.find_or_add(np.arange(count * CHAIN, dtype=np.uint64))
    owner = np.repeat(numbers, CHAIN)
    extents.group[rows] = owner
    extents.position[rows] = np.tile(np.arange(CHAIN), count)
    groups.size[numbers], groups.missing[numbers] = CHAIN, 1
    groups.append(owner, rows)
    return extents, groups, numbers


def candidates(numbers: np.ndarray, gains: list[float]) -> Candidates:
    count = len(numbers)
    return Candidates(numbers, np.array(gains), np.full(count, 0.5), np.full(count, 100.0))


def made(count: int, *, share: float = 0.0) -> tuple[Speculation, ExtentMap, np.ndarray]:
    extents, groups, numbers = world(count)
    config = SpeculationConfig(limits=(0.0, 0.0))
    return Speculation(config, extents, groups, Holdout(share, 1), 1000), extents, numbers


def test_room_is_what_the_media_read_within_the_horizon() -> None:
    gauges = Gauges(100 * 65536.0, 10 * 65536, 1, 9, 9, 65536)
    assert room_for(gauges, 0.5) == 40
    assert room_for(gauges, 0.05) == 0


def test_the_best_group_is_fetched_first_and_whole_in_the_order_of_its_chain() -> None:
    extents, groups, numbers = world(3)
    plan = Planner(extents, groups).plan(candidates(numbers, [2.0, 9.0, 3.0]), 6)
    assert plan.rows.tolist() == [4, 5, 6, 7, 8, 9]
    assert plan.candidate.tolist() == [1, 1, 1, 1, 2, 2]


def test_what_is_there_or_asked_for_is_not_fetched() -> None:
    extents, groups, numbers = world(2)
    extents.resident[:CHAIN] = 1
    extents.marks[5] = WAITING
    plan = Planner(extents, groups).plan(candidates(numbers, [9.0, 2.0]), 99)
    assert plan.rows.tolist() == [4, 6, 7]
    assert groups.missing[numbers].tolist() == [0, 1]


def test_a_prediction_is_fetched_lands_and_is_counted_when_it_is_evicted_unread() -> None:
    speculation, extents, numbers = made(1)
    fetches = speculation.propose(
        Source.RETURN, candidates(numbers, [2.0]), 99, 1.0, is_idle=True
    )  # fmt: skip
    assert fetches.rows.tolist() == [0, 1, 2, 3] and (fetches.holds_s == 99.0).all()
    assert (extents.marks[:CHAIN] == PREDICTED | WAITING).all()
    extents.marks[:CHAIN] &= 255 - WAITING
    extents.resident[:CHAIN] = 1
    ends = np.full(CHAIN, OrderEnd.LANDED, np.uint8)
    count, rated = speculation.see_fetched(Fetched(fetches.rows, ends, np.full(CHAIN, 2.0)))
    assert count == CHAIN and rated.tolist() == [0, 1, 2, 3] and speculation.ahead == CHAIN
    assert (extents.marks[:CHAIN] == PREDICTED | AHEAD).all()
    one = np.array([0])
    unread = np.array([True])
    speculation.see_evictions(Evictions(one, one.astype(np.uint8), one * 1.0, unread, one * 1.0))
    speculation.expire(101.0)
    report = speculation.ledger.report()[Source.RETURN]
    assert (report.issued, report.evicted, report.expired) == (CHAIN, 1, CHAIN)
    assert speculation.ahead == CHAIN - 1


def test_what_was_evicted_unread_is_not_fetched_again_for_the_same_prediction() -> None:
    extents, groups, numbers = world(1)
    config = SpeculationConfig(limits=(0.0, 0.0))
    speculation = Speculation(config, extents, groups, Holdout(0.0, 1), 1000)
    speculation.propose(Source.RETURN, candidates(numbers, [2.0]), 99, 1.0, is_idle=True)
    extents.marks[:CHAIN], extents.resident[:CHAIN] = PREDICTED, 1
    rows = np.arange(CHAIN)
    speculation.see_fetched(
        Fetched(rows, np.full(CHAIN, OrderEnd.LANDED, np.uint8), np.full(CHAIN, 2.0))
    )
    assert groups.asked_s[numbers[0]] < 100.0
    one, unread = rows[:1], np.ones(1, bool)
    when_s = np.zeros(1)
    speculation.see_evictions(Evictions(one, one.astype(np.uint8), when_s, unread, when_s))
    assert groups.asked_s[numbers[0]] == 100.0


def touched(rows: np.ndarray, group: int, *, is_write: bool = False) -> Touches:
    """Accesses to extents of one group with which it came back; reads were all warm."""
    count = len(rows)
    none, one = np.zeros(0, np.int64), np.array([group])
    return Touches(
        rows, np.full(count, group), np.zeros(count, np.uint8), np.zeros(count),
        np.ones(count, bool), np.full(count, is_write), np.full(count, not is_write),
        np.full(count, 3.0),
        one, np.ones(1, bool), one, none, none, none, np.zeros(0),
    )  # fmt: skip


def test_what_was_fetched_and_read_counts_although_it_is_evicted_before_its_burst_is_over() -> None:
    speculation, extents, numbers = made(1)
    fetches = speculation.propose(
        Source.RETURN, candidates(numbers, [2.0]), 99, 1.0, is_idle=True
    )  # fmt: skip
    extents.marks[:CHAIN] &= 255 - WAITING
    extents.resident[:CHAIN] = 1
    ends = np.full(CHAIN, OrderEnd.LANDED, np.uint8)
    speculation.see_fetched(Fetched(fetches.rows, ends, np.full(CHAIN, 2.0)))
    gone = np.array([0, 1])
    read = np.zeros(2, bool)
    speculation.see_evictions(Evictions(gone, gone.astype(np.uint8), gone * 1.0, read, gone * 1.0))
    assert (extents.marks[gone] == PREDICTED | READ_AHEAD).all()
    assert speculation.ahead == CHAIN - 2
    speculation.see_touches(touched(np.arange(CHAIN), int(numbers[0])))
    report = speculation.ledger.report()[Source.RETURN]
    assert (report.in_time, report.evicted) == (CHAIN, 0)
    assert speculation.guard.gained == CHAIN
    assert speculation.ahead == 0 and (extents.marks[:CHAIN] == 0).all()


def test_what_is_written_anew_makes_no_prediction_true() -> None:
    speculation, _, numbers = made(1)
    speculation.propose(Source.RETURN, candidates(numbers, [2.0]), 99, 1.0, is_idle=True)
    speculation.see_touches(touched(np.arange(CHAIN), int(numbers[0]), is_write=True))
    report = speculation.ledger.report()[Source.RETURN]
    assert (report.issued, report.in_time, report.late) == (CHAIN, 0, 0)
    assert speculation.ledger.beta[Source.RETURN].tolist() == [0, CHAIN]


def test_what_is_held_out_is_not_fetched_and_not_asked_again() -> None:
    speculation, _, numbers = made(400, share=0.25)
    every = candidates(numbers, [2.0] * 400)
    fetched = speculation.propose(Source.RETURN, every, 9999, 1.0, is_idle=True)
    again = speculation.propose(Source.RETURN, every, 9999, 1.0, is_idle=True)
    acted = set(fetched.groups.tolist()) | set(again.groups.tolist())
    assert 0.65 * 400 < len(acted) < 0.85 * 400
    speculation.expire(101.0)
    benefit = speculation.holdout.benefit()
    assert benefit.acted == len(acted) and benefit.acted + benefit.held == 400
