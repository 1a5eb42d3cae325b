"""The target that a replay over the wire starts for itself."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from prestage.replay import live_target
from prestage.replay.generators import Sessions, sessions
from prestage.replay.live_target import blocks_folder, own_target
from prestage.replay.result import Regime
from prestage.target.errors import TargetError

REGIME = Regime(tier=0.5, slot_size=16 << 10)


def test_blocks_are_in_memory_when_there_is_twice_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_target, "MEMORY", tmp_path)
    free = shutil.disk_usage(tmp_path).free
    assert blocks_folder(free // 4) == str(tmp_path)
    assert blocks_folder(free) is None
    monkeypatch.setattr(live_target, "MEMORY", tmp_path / "nothing")
    assert blocks_folder(1) is None


def test_it_runs_while_the_block_does_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_target, "blocks_folder", lambda _: str(tmp_path))
    workload = sessions(7, Sessions(requests=40, chain=4))
    before = signal.getsignal(signal.SIGTERM)
    with own_target(workload, REGIME, seed=7, speed=20, prestager=True) as target:
        (folder,) = tmp_path.iterdir()
        assert (folder / "blocks").exists()
        with target.client() as client:
            assert client.call("prestage_get_prestager")["state"] == "running"
        assert signal.getsignal(signal.SIGTERM) is not before
    assert target.process.returncode == 0
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_ends_the_block_and_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_target, "blocks_folder", lambda _: str(tmp_path))
    workload = sessions(7, Sessions(requests=40, chain=4))
    with (
        pytest.raises(KeyboardInterrupt),
        own_target(workload, REGIME, seed=7, speed=20, prestager=False) as target,
    ):
        os.kill(os.getpid(), signal.SIGTERM)
    assert target.process.returncode is not None
    assert list(tmp_path.iterdir()) == []


def test_a_signal_lets_the_tasks_of_an_event_loop_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_target, "blocks_folder", lambda _: str(tmp_path))
    workload = sessions(7, Sessions(requests=40, chain=4))
    ended = []

    async def wait() -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with (
        pytest.raises(KeyboardInterrupt),
        own_target(workload, REGIME, seed=7, speed=20, prestager=False),
    ):
        asyncio.run(wait())
    assert ended == [True]


def test_one_that_cannot_be_is_named_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_target, "blocks_folder", lambda _: str(tmp_path))
    workload = sessions(7, Sessions(requests=4, chain=4))
    with (
        pytest.raises(TargetError, match=r"tier\.size"),
        own_target(workload, REGIME, seed=7, speed=20, prestager=False),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
