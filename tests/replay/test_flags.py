"""Flags of `prestage replay`."""

from __future__ import annotations

import pytest

from prestage.replay.flags import parse_hints, parse_multiple, parse_share
from prestage.target.errors import InvalidFlag


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("0", 0), ("100%", 1)])
def test_a_share_is_in_percent_or_not(text: str, value: float) -> None:
    assert parse_share(text, "--tier") == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "%", "five", "-1%", "101%", "1.5", "nan", "inf%", "5x"])
def test_what_is_no_share_is_named(text: str) -> None:
    with pytest.raises(InvalidFlag, match=r"--tier: found .*expected a share such as 5%"):
        parse_share(text, "--tier")


@pytest.mark.parametrize(("text", "value"), [("5x", 5), ("1.2", 1.2), (" 2x ", 2)])
def test_a_multiple_may_have_its_sign(text: str, value: float) -> None:
    assert parse_multiple(text, "--flash") == value


@pytest.mark.parametrize("text", ["", "x", "0", "0x", "-2x", "inf", "5%"])
def test_what_is_no_multiple_is_named(text: str) -> None:
    with pytest.raises(InvalidFlag, match="--flash: found .*expected a multiple such as 5x"):
        parse_multiple(text, "--flash")


def test_a_plan_of_hints_has_defaults_for_what_it_does_not_say() -> None:
    plan = parse_hints("lead=10s,share=50%", "--hints")
    assert (plan.lead_s, plan.share, plan.false_per_true, plan.lead_sigma) == (10, 0.5, 0, 0)
    plan = parse_hints("false=1, sigma=0.5", "--hints")
    assert (plan.lead_s, plan.share, plan.false_per_true, plan.lead_sigma) == (2, 1, 1, 0.5)


@pytest.mark.parametrize("text", ["", "lead", "lead=soon", "share=2", "false=-1", "more=1"])
def test_what_is_no_plan_is_named(text: str) -> None:
    with pytest.raises(InvalidFlag, match="--hints"):
        parse_hints(text, "--hints")
