"""The target that a replay over the wire starts for itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from live_support import WITHIN_S, started, target_of, wait_gone

from prestage.replay import live_target
from prestage.replay.generators import Sessions, sessions
from prestage.replay.live_target import blocks_folder, own_target
from prestage.replay.result import Regime
from prestage.target.errors import TargetError
from prestage.target.rpc.client import Client

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_where_sigint_is_ignored_the_other_signals_still_end_it_and_its_target(
    tmp_path: Path, number: signal.Signals
) -> None:
    with replay(tmp_path, "INT") as process:
        target, folder = target_of(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, errors) == (128 + number, "")
        assert not Path(f"/proc/{target}").exists()
        assert not folder.exists()


def test_an_ignored_sighup_does_not_end_it(tmp_path: Path) -> None:
    with replay(tmp_path, "HUP") as process:
        target, folder = target_of(process)
        process.send_signal(signal.SIGHUP)
        os.kill(target, signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WITHIN_S)
        assert (process.returncode, errors) == (128 + signal.SIGTERM, "")
        assert not folder.exists()


def test_the_target_of_one_that_was_killed_ends_and_leaves_nothing(tmp_path: Path) -> None:
    with replay(tmp_path) as process:
        target, folder = target_of(process)
        process.kill()
        process.communicate(timeout=WITHIN_S)
        wait_gone(target, folder)


def test_a_replay_ends_with_its_target(tmp_path: Path) -> None:
    with replay(tmp_path) as process:
        target, folder = target_of(process)
        limit_s = time.monotonic() + WITHIN_S
        with Client(str(folder / "prestage.sock")) as client:
            while client.call("prestage_get_stats")["connections"] == 0:
                assert time.monotonic() < limit_s, "no host has come"
        os.kill(target, signal.SIGKILL)
        _, errors = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 1
        assert errors == "prestage: the target ended with status -9 amid the replay\n"
        assert not folder.exists()


def replay(folder: Path, *ignored: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Start a replay over the wire that takes ten minutes, with a prestager."""
    lines = [f"{10 * turn},r{turn},b{turn % 20},read" for turn in range(60)]
    trace = folder / "trace.csv"
    trace.write_text("\n".join(["time_s,request,block,op", *lines, ""]), "utf-8")
    words = ["replay", str(trace), "--live", "own", "--policy", "prestage", "--slot", "16K"]
    return started("prestage", *words, "--tier", "100%", folder=folder, ignored=ignored)


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
