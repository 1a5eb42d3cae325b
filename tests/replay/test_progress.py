"""The bar that says how long a run will yet take."""

from __future__ import annotations

import io

import pytest

from prestage.replay.progress import Meter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_a_run_has_taken_says_nothing_of_the_next() -> None:
    pytest.importorskip("rich")
    with Meter(2, Terminal()) as meter:
        (task,) = meter._bar.tasks
        clock_s = [0.0]
        meter._bar.get_time = task._get_time = lambda: clock_s[0]
        tell = meter.begin("lru")
        assert tell is not None
        for clock_s[0] in (0.5, 1.0):
            tell(clock_s[0])
        tell = meter.begin("live lru")
        assert tell is not None
        assert (task.description, task.completed) == ("2 of 2: live lru", 0)
        assert task.time_remaining is None
        for clock_s[0] in (11.0, 21.0, 31.0):
            tell((clock_s[0] - 1) / 100)
        assert task.time_remaining == pytest.approx(70)


def test_nothing_is_shown_and_nobody_told_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Meter(1, stream) as meter:
        assert meter.begin("lru") is None
    assert stream.getvalue() == ""
