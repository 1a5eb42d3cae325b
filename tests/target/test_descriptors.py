from __future__ import annotations

import resource

import pytest

from prestage.target import descriptors

UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "connections", "raised_to", "is_short"),
    [
        ((1024, 524288), 1024, 1088, False),
        ((1024, 1024), 1024, None, True),
        ((256, 512), 1024, 512, True),
        ((4096, 4096), 1024, None, False),
        ((UNLIMITED, UNLIMITED), 60000, None, False),
        ((1024, UNLIMITED), 5000, 5064, False),
    ],
)
def test_the_limit_is_raised_as_far_as_is_needed_and_allowed(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    connections: int,
    raised_to: int | None,
    is_short: bool,
) -> None:
    now = [limits]
    monkeypatch.setattr(resource, "getrlimit", lambda _: now[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: now.append(pair))
    descriptors.raise_limit(connections)
    assert now[1:] == ([] if raised_to is None else [(raised_to, limits[1])])
    assert (descriptors.shortage(connections) is not None) == is_short
