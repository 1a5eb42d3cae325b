"""Fixtures for pytest; loaded by itself where prestage is installed (docs/testing.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from prestage.testing import Target


@pytest.fixture
def prestage_target_factory() -> Iterator[Callable[..., Target]]:
    """Start targets with the arguments of `prestage.testing.Target`; all stop after the test."""
    # Imported only by the tests that use it: the plugin is loaded in every run.
    from prestage.testing import Target, in_thread

    with contextlib.ExitStack() as stack:

        def start(**arguments: Any) -> Target:
            return stack.enter_context(in_thread(Target(**arguments)))

        yield start


@pytest.fixture
def prestage_target(prestage_target_factory: Callable[..., Target]) -> Target:
    """A running target with one namespace of 64 MiB in memory."""
    return prestage_target_factory()
