"""Processors that can be named are those that there are."""

from __future__ import annotations

import os

import pytest

from prestage.target.processors import available, check_processors, listed


@pytest.mark.parametrize(
    ("cpus", "text"),
    [({0}, "0"), ({1, 0}, "0-1"), ({3, 0, 1, 8, 9, 10}, "0-1,3,8-10"), (set[int](), "")],
)
def test_they_are_listed_as_the_kernel_does(cpus: set[int], text: str) -> None:
    assert listed(cpus) == text


def test_only_those_that_the_process_may_run_on_are_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(check_processors("cpus", sorted(available()))) == []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2})
    assert list(check_processors("prestager.cpus", [0, 1, 2])) == [
        (
            "prestager.cpus[1]",
            "found 1, expected a processor that this process may run on: 0,2",
        )
    ]
