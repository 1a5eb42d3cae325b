"""Lasting numbers and a clock that goes on: prestage.target.prestager.numbering."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from prestage.target.prestager.numbering import NOBODY, Clock, Numbering

SEED = 20261130


def numbers(*values: int) -> NDArray[np.uint16]:
    return np.array(values, np.uint16)


def test_a_name_keeps_its_number_when_the_target_gives_it_another() -> None:
    first = Numbering(8)
    first.name({3: "a", 4: "b"})
    lasting = first.lasting(numbers(3, 4, 3)).tolist()
    second = Numbering(8, first.names)
    second.name({0: "b", 1: "a"})
    assert second.lasting(numbers(1, 0, 1)).tolist() == lasting
    assert second.current(numbers(*lasting)).tolist() == [1, 0, 1]


def test_what_is_not_there_now_has_no_number() -> None:
    second = Numbering(8, ["a", "b"])
    second.name({5: "b"})
    assert second.current(numbers(0, 1)).tolist() == [NOBODY, 5]
    second.name({5: "c"})
    assert second.current(numbers(0, 1, 2)).tolist() == [NOBODY, NOBODY, 5]
    second.name({6: "b"})
    assert second.lasting(numbers(5, 6)).tolist() == [2, 1]


def test_a_number_that_was_never_named_gets_one_too_and_not_that_of_a_name() -> None:
    numbering = Numbering(8, ["a"])
    found = numbering.lasting(numbers(7, 9, 7)).tolist()
    assert found[0] == found[2] != found[1]
    assert 0 not in found
    numbering.name({9: "a"})
    assert numbering.lasting(numbers(9)).tolist() == [0]


def test_when_all_numbers_are_taken_those_of_absent_names_are_given_away_first() -> None:
    numbering = Numbering(3, ["a", "b", "c"])
    numbering.name({1: "a", 2: "c", 3: "d"})
    assert numbering.lasting(numbers(1, 2, 3)).tolist() == [0, 2, 1]
    assert numbering.names == ["a", "d", "c"]


def test_numbers_and_names_stay_pairs_whatever_is_named() -> None:
    rng = random.Random(SEED)
    numbering = Numbering(6)
    for _ in range(2000):
        numbering.name({rng.randrange(8): rng.choice("abcdefgh")})
        now = numbering.current(np.arange(6, dtype=np.uint16))
        there = [place for place in range(6) if now[place] != NOBODY]
        assert len({int(now[place]) for place in there}) == len(there), SEED
        assert numbering.lasting(now[there]).tolist() == there, SEED


class Reading:
    """A clock that shows what a test says."""

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns

    def __call__(self) -> int:
        return self.time_ns


def times(*values: int) -> NDArray[np.uint64]:
    return np.array(values, np.uint64)


def test_time_goes_on_when_the_clock_is_set_back() -> None:
    reading = Reading(1000)
    clock = Clock(reading)
    assert clock.now() == 1000
    reading.time_ns = 10
    assert clock.now() == 1000
    reading.time_ns = 15
    assert clock.now() == 1005


def test_facts_are_in_order_and_never_later_than_now() -> None:
    clock = Clock(Reading(100))
    assert clock.of_facts(times(5, 3, 500, 7)).tolist() == [5, 5, 100, 100]
    assert clock.of_facts(times(2**64 - 1, 0)).tolist() == [100, 100]


@pytest.mark.parametrize("move", [lambda r: r - 10**15, lambda r: r + 10**15])
def test_facts_are_in_order_across_a_step_of_the_clock(move: Callable[[int], int]) -> None:
    reading = Reading(10**16)
    clock = Clock(reading)
    before = clock.of_facts(times(10**16 - 5))
    reading.time_ns = move(reading.time_ns)
    after = clock.of_facts(times(10**16 + 5, reading.time_ns))
    assert before[-1] <= after[0] <= after[-1] <= clock.now()


def test_a_later_run_goes_on_where_the_first_one_was() -> None:
    clock = Clock(Reading(50))
    clock.go_on_from(10**12, 700)
    assert clock.now() == 10**12 + 700
    assert clock.of_facts(times(50)).tolist() == [10**12 + 700]
    assert clock.of_data_path(times(10**12 + 800, 3, 2**64 - 1)).tolist()[:2] == [150, 0]
    assert clock.of_data_path(times(2**64 - 1))[0] > 10**18, "it never expires"


def test_time_that_would_have_gone_back_between_two_runs_did_not() -> None:
    clock = Clock(Reading(50))
    clock.go_on_from(10**12, -(10**15))
    assert clock.now() == 10**12
