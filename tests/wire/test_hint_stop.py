"""The end of a target with hints alive, and its next start."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp import hints

from . import hinting
from .hinting import BLOCK
from .intents import Ledger, read_events
from .running import NQN, RunningTarget, base_config, merge
from .test_hint_lifecycle import SIZE, fill_with_hints, states


@pytest.fixture(autouse=True)
def _own_target() -> None:
    if os.environ.get("PRESTAGE_TEST_TARGET"):
        pytest.skip("needs a target of its own")


def own_config(directory: Path, *faults: str) -> dict[str, Any]:
    """A target whose first namespace is a file, with an extension."""
    namespace = {"path": str(directory / "ns"), "size": SIZE, "block": BLOCK}
    space = {**namespace, "faults": list(faults)}
    subsystem = {"nqn": NQN, "extension": True, "namespaces": [space]}
    return merge(
        base_config(directory),
        {"limits": {"stop_s": 3.0}, "reactors": 2, "subsystems": [subsystem]},
    )


@contextlib.contextmanager
def started(directory: Path, config: dict[str, Any]) -> Iterator[RunningTarget]:
    """A target that is certainly gone afterwards."""
    target = RunningTarget(directory, config)
    try:
        yield target
    finally:
        target.kill()


@pytest.mark.stress
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("fault", ["stall:op=read,after=9", "delay:read_us=50000,seed=3", ""])
def test_target_ends_with_hints_alive_and_starts_without_them(
    directory: Path, number: signal.Signals, fault: str
) -> None:
    config = own_config(directory, *([fault] if fault else []))
    with started(directory, config) as target, target.site().pair(2) as controller:
        queue, other = controller.io
        numbers = fill_with_hints(queue, Ledger(), 1)
        for slba in range(0, 40960, 4096):
            other.submit(hints.dated_read(slba, 64, deadline_us=5), expected=64 * BLOCK)
        target.signal(number)
        code, said = target.wait(20), target.said()
        # A medium that holds what it was asked for does not close, hints or not.
        is_held = number is signal.SIGTERM and fault.startswith("stall")
        if not (is_held and code and "0 bytes, its medium does not close" in said):
            assert code == (0 if number is signal.SIGTERM else -number), said[-3000:]
        assert "Traceback" not in said
    with started(directory, own_config(directory)) as target, target.site().pair(1) as controller:
        (queue,) = controller.io
        assert set(states(queue, numbers)) == {"unknown"}
        seen = hinting.status(queue)
        assert not any(sum(one.values()) for one in (*seen.intents, *seen.reads))
        assert read_events(controller) == []
        assert target.stop() == 0
