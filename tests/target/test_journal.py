"""The log: a flood of one kind of record is held back, and counted."""

from __future__ import annotations

import logging

from prestage.target.journal import FLOOD_RECORDS, FLOOD_S, Flood


class Clock:
    """Time as a test sets it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def record(text: str, *arguments: object, level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("prestage.target", level, __file__, 1, text, arguments, None)


def test_a_flood_of_one_kind_is_held_back_and_others_pass() -> None:
    flood = Flood(Clock())
    passed = [flood.filter(record("connection %d: %s", n, "why")) for n in range(1000)]
    assert sum(passed) == FLOOD_RECORDS and all(passed[:FLOOD_RECORDS])
    assert flood.filter(record("something else"))


def test_errors_always_pass() -> None:
    flood = Flood(Clock())
    assert all(flood.filter(record("broke", level=logging.ERROR)) for _ in range(1000))


def test_what_was_held_back_is_counted_later() -> None:
    clock = Clock()
    flood = Flood(clock)
    for number in range(FLOOD_RECORDS + 7):
        flood.filter(record("connection %d", number))
    clock.now_s = FLOOD_S
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("prestage").addHandler(handler)
    try:
        assert flood.filter(record("connection %d", 1))
    finally:
        logging.getLogger("prestage").removeHandler(handler)
    assert said == ["7 records like others were left out"]


def test_kinds_without_end_are_one_kind() -> None:
    flood = Flood(Clock())
    passed = sum(flood.filter(record(f"text {number}")) for number in range(20_000))
    assert passed < 2000
