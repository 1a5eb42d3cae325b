"""Flags of `prestage replay`."""

from __future__ import annotations

import pytest

from prestage.replay.flags import parse_flash, parse_hints, parse_share, parse_speed
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
    assert parse_flash(text, "--flash") == parse_speed(text, "--speed") == value


@pytest.mark.parametrize(
    "text", ["", "x", "0", "0x", "-2x", "inf", "5%", "1_0", "\u0665", "1e300x"]
)
def test_what_is_no_multiple_is_named(text: str) -> None:
    with pytest.raises(InvalidFlag, match="--flash: found .*expected a multiple such as 5x"):
        parse_flash(text, "--flash")


@pytest.mark.parametrize("text", ["2000x", "1e9x", "1e-9x", "0.0009"])
def test_a_speed_is_one_that_the_clock_of_a_target_can_have(text: str) -> None:
    with pytest.raises(InvalidFlag, match=r"--speed: found .* 0\.001x to 1000x"):
        parse_speed(text, "--speed")


def test_a_plan_of_hints_has_defaults_for_what_it_does_not_say() -> None:
    plan = parse_hints("lead=10s,share=50%", "--hints")
    assert (plan.lead_s, plan.share, plan.false_per_true, plan.lead_sigma) == (10, 0.5, 0, 0)
    plan = parse_hints("false=1, sigma=0.5", "--hints")
    assert (plan.lead_s, plan.share, plan.false_per_true, plan.lead_sigma) == (2, 1, 1, 0.5)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("lead=5s,lead=6s", r"--hints: found lead twice"),
        ("lead=nan", r"--hints lead: found .*nan"),
        ("false=1e9", r"--hints false: found .* 0 to 1000"),
        ("sigma=1000", r"--hints sigma: found .* 0 to 3"),
    ],
)
def test_what_is_wrong_in_a_plan_is_said_by_its_name(text: str, match: str) -> None:
    with pytest.raises(InvalidFlag, match=match):
        parse_hints(text, "--hints")


@pytest.mark.parametrize("text", ["", "lead", "lead=soon", "share=2", "false=-1", "more=1"])
def test_what_is_no_plan_is_named(text: str) -> None:
    with pytest.raises(InvalidFlag, match="--hints"):
        parse_hints(text, "--hints")
