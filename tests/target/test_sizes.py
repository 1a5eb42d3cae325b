"""Sizes and durations: what is read, what is refused, and what is printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prestage.target.sizes import (
    MAX_SIZE,
    format_duration,
    format_size,
    parse_duration_ms,
    parse_duration_s,
    parse_duration_us,
    parse_size,
    quote,
    size_text,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        (4096, 4096),
        ("4G", 4 << 30),
        ("4g", 4 << 30),
        ("4GiB", 4 << 30),
        ("4 Gi", 4 << 30),
        ("512M", 512 << 20),
        ("64K", 64 << 10),
        ("1.5M", 3 << 19),
        ("17B", 17),
        (" 2T ", 2 << 40),
        (MAX_SIZE, MAX_SIZE),
    ],
)
def test_a_size_is_binary(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'found "", expected a size such as 4G'),
        ("G", 'found "G", expected a size such as'),
        ("4X", 'found "4X", expected a size such as'),
        ("-1", 'found "-1", expected a size such as'),
        ("4iB", 'found "4iB", expected a size such as'),
        ("4GB", 'found "4GB", expected a binary unit: 4G or 4GiB'),
        ("0.3K", 'found "0.3K", expected a whole number of bytes'),
        ("1e3", 'found "1e3", expected a size such as'),
        ("8E", 'found "8E", expected a size from 0 to 8E - 1'),
        (-1, "found -1, expected a size from 0 to"),
        ("\u0664G", "expected a size such as"),
        ("9" * 100_000, "expected a size such as"),
        (True, "found True, expected a size such as"),
        (1.5, "found 1.5, expected a size such as"),
        (None, "found None, expected a size such as"),
    ],
)
def test_what_is_no_size_is_named_with_what_was_expected(text: object, message: str) -> None:
    with pytest.raises(ValueError, match="found") as caught:
        parse_size(text)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.integers(0, MAX_SIZE))
def test_the_text_of_a_size_gives_that_size_again(size: int) -> None:
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (17, "17 B"), (4 << 30, "4 GiB"), (3 << 19, "1.5 MiB"), (1 << 60, "1 EiB")],
)
def test_a_size_is_printed_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("500ms", 0.5), ("50us", 5e-5), ("2m", 120), ("2min", 120), ("1h", 3600),
     (30, 30), (0.25, 0.25), ("30", 30), ("1.5s", 1.5), ("10ns", 1e-8)],
)  # fmt: skip
def test_a_duration_is_in_seconds(text: str | float, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "s", "-1s", "1 parsec", "1S", "nan", "inf", True, float("nan"), float("inf"), -1, 10**400],
)
def test_what_is_no_duration_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match=r"found .*, expected a duration"):
        parse_duration_s(text)


@pytest.mark.parametrize(("text", "us"), [(50, 50), ("50", 50), ("50us", 50), ("1ms", 1000)])
def test_a_short_duration_is_in_microseconds(text: str | int, us: int) -> None:
    assert parse_duration_us(text) == us


@pytest.mark.parametrize(
    ("text", "ms"), [(100, 100), (0.5, 0.5), ("100", 100), ("100ms", 100), ("2s", 2000), (0, 0)]
)
def test_a_duration_may_be_in_milliseconds(text: str | float, ms: float) -> None:
    assert parse_duration_ms(text) == pytest.approx(ms)


@pytest.mark.parametrize("text", [-1, "x", True, float("nan"), "9" * 30])
def test_what_is_no_duration_in_milliseconds_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match=r"found .*, expected"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", [-1, "x", True, 1.5, "9" * 30])
def test_what_is_no_short_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"found .*, expected"):
        parse_duration_us(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 us"), (5e-5, "50 us"), (0.5, "500 ms"), (30.0, "30 s"), (90.0, "1 min 30 s"),
     (7500.0, "2 h 5 min")],
)  # fmt: skip
def test_a_duration_is_printed_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_quoted_value_has_no_control_characters_and_is_short() -> None:
    assert quote("a\x1b[2Jb\n") == '"a\\x1b[2Jb\\x0a"'
    assert len(quote("x" * 1000)) == 60
