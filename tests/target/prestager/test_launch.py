"""What the target takes from what the prestager says of itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from prestage.ext.pages import LEAST, MOST, Benefit, encode_benefit
from prestage.target.prestager.holdout import Benefit as Measured
from prestage.target.prestager.holdout import Holdout
from prestage.target.prestager.launch import Alive


def heard(report: dict[str, Any]) -> Benefit:
    """Return what comes of a report that went over the socket."""
    alive = Alive(counters={}, troubles={}, report=report)
    return msgspec.json.decode(msgspec.json.encode(alive), type=Alive).benefit


def test_the_benefit_is_told_in_whole_reads() -> None:
    said = Measured(70, 10, 0.5, 3.0, 31.6, -2.4, 65.5)
    assert heard({"benefit": msgspec.to_builtins(said)}) == Benefit(70, 10, 32, -2, 66)


def test_an_interval_without_ends_is_not_known_yet() -> None:
    benefit = heard({"benefit": msgspec.to_builtins(Holdout(0.1, 1).benefit())})
    assert (benefit.low, benefit.high) == (LEAST, MOST)
    assert not benefit.is_known


@pytest.mark.parametrize(
    "said",
    [None, 7, "x", [], {}, {"acted": 1}, {"acted": "1", "held": 1, "hits": 0}, {"acted": None}],
)
def test_one_that_says_nothing_of_it_or_nonsense_has_none(said: Any) -> None:
    assert heard({} if said is None else {"benefit": said}) == Benefit()


@pytest.mark.parametrize(
    ("hits", "low", "high"), [(5, 9, 1), (100, -5, 5), (0, MOST, LEAST), (-7, -5, 5), (0, 1, None)]
)
def test_an_interval_that_has_not_its_own_middle_is_none(
    hits: int, low: int, high: int | None
) -> None:
    said = {"acted": 9, "held": 3, "hits": hits, "low": low, "high": high}
    assert heard({"benefit": said}) == Benefit()


@pytest.mark.parametrize("number", [10**30, -(10**30)])
def test_numbers_that_no_page_can_have_are_cut(number: int) -> None:
    said = {"acted": number, "held": number, "hits": number, "low": number, "high": number}
    benefit = heard({"benefit": said})
    assert len(encode_benefit(benefit)) == 40
    assert benefit.hits == (MOST if number > 0 else LEAST)
