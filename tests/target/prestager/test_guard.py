from __future__ import annotations

import numpy as np

from prestage.target.prestager.extents import ExtentMap
from prestage.target.prestager.guard import COOL_S, Guard


def made() -> tuple[Guard, np.ndarray]:
    extents = ExtentMap()
    return Guard(extents), extents.find_or_add(np.arange(1000, dtype=np.uint64))


def test_what_fetches_drove_out_and_is_missed_turns_them_off_for_a_time() -> None:
    guard, rows = made()
    guard.see_landed(500)
    guard.see_evicted(rows[:500])
    guard.see_accesses(rows[:500], 0)
    assert abs(guard.polluted - 500) < 5
    assert guard.is_off(10.0) and guard.is_off(9.0 + COOL_S)
    assert not guard.is_off(11.0 + COOL_S)


def test_hits_that_outweigh_what_was_driven_out_keep_them_on() -> None:
    guard, rows = made()
    guard.see_landed(500)
    guard.see_evicted(rows[:300])
    guard.see_accesses(rows[:300], 0)
    guard.see_gain(400)
    assert not guard.is_off(10.0)


def test_victims_of_reads_and_writes_are_not_charged() -> None:
    guard, rows = made()
    guard.see_accesses(rows[:0], 900)
    guard.see_landed(100)
    guard.see_evicted(rows[:500])
    guard.see_accesses(rows[:500], 0)
    assert abs(guard.polluted - 50) < 2


def test_what_is_missed_long_after_is_not_charged() -> None:
    guard, rows = made()
    guard.see_landed(500)
    guard.see_evicted(rows[:500])
    for _ in range(8):
        guard.fade(5.0)
    guard.see_accesses(rows[:500], 0)
    assert guard.polluted == 0
