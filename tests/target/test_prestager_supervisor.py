"""How the prestager's process is started, watched and started anew, without a target."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prestager_support import FOLLOWER, SLOT, TROUBLE, Memories

from prestage.target import supervisor as module
from prestage.target.datapath import DataPath
from prestage.target.prestager import snapshot
from prestage.target.processes import Usage
from prestage.target.settings import PrestagerSettings, TargetSettings, TierSettings
from prestage.target.supervisor import State, Supervisor

WITHIN_S = 30.0
CHAIN = [7, 3, 11, 5, 2]


class OrdersOnly:
    """The part of a data path that a supervisor uses."""

    def __init__(self, memories: Memories) -> None:
        self.memories = memories
        self.resets = 0
        self.benefit = b""
        self.has_ring = True

    def ring_fd(self) -> int:
        return self.memories.ring.fd if self.has_ring else -1

    def ring_wake_fd(self) -> int:
        return self.memories.ring_wake

    def orders_fd(self) -> int:
        return self.memories.orders.fd

    def orders_wake_fd(self) -> int:
        return self.memories.orders_wake

    def orders_reset(self) -> None:
        self.resets += 1

    def set_benefit(self, benefit: bytes) -> None:
        self.benefit = benefit

    def orders_stats(self) -> dict[str, int]:
        return {"resets": self.resets}

    def model_stats(self) -> dict[str, int]:
        return {"timely_hits": 0}


@pytest.fixture
def path() -> Iterator[OrdersOnly]:
    with Memories() as memories:
        yield OrdersOnly(memories)


def supervisor(path: OrdersOnly, folder: Path, **more: Any) -> Supervisor:
    command = more.pop("command", FOLLOWER)
    settings = TargetSettings(
        state_directory=str(folder),
        tier=TierSettings(size=16 << 20, slot=SLOT),
        prestager=PrestagerSettings(**more),
    )
    return Supervisor(cast(DataPath, path), settings, command)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110 - what another process does sets no event of ours
            await asyncio.sleep(0.005)


def running(one: Supervisor, restarts: int = 0) -> Callable[[], bool]:
    return lambda: one.state is State.RUNNING and one.restarts == restarts


def pid(one: Supervisor) -> int:
    found = one.report()["pid"]
    assert isinstance(found, int)
    return found


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test, after which no descriptor is left open."""
    before = descriptors()
    asyncio.run(main)
    assert descriptors() == before


def test_it_runs_reports_and_keeps_what_it_learned_at_the_end(
    path: OrdersOnly, tmp_path: Path
) -> None:
    async def main() -> None:
        one = supervisor(path, tmp_path, holdout_percent=12.5)
        one.name_volume(4, "uuid of 4")
        await one.start()
        await until(running(one))
        one.name_tenant(2, "nqn of 2")
        for slot in CHAIN:
            path.memories.put(offset=slot * SLOT, volume=4, tenant=2)
        path.memories.wake()
        await until(lambda: one.report()["learned"]["seen"] == len(CHAIN))
        report = one.report()
        assert report["learned"]["holdout_share"] == 0.125
        assert report["process"]["facts"] == len(CHAIN)
        assert (report["state"], report["restarts"], report["last_error"]) == ("running", 0, "")
        assert one.warnings == []
        await one.stop()
        assert one.report()["state"] == "stopped"
        assert one.report()["pid"] is None

    run(main())
    found = snapshot.load(tmp_path / "prestager.snapshot")
    assert found is not None
    assert found[0]["volumes"] == ["uuid of 4"]
    assert found[0]["tenants"] == ["*", "nqn of 2"]
    assert path.resets == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_one_that_was_killed_is_started_anew_and_its_orders_forgotten(
    path: OrdersOnly, tmp_path: Path, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    how = "ended with status 0" if number == signal.SIGTERM else f"was killed by {number.name}"

    async def main() -> None:
        one = supervisor(path, tmp_path)
        await one.start()
        await until(running(one))
        first = pid(one)
        os.kill(first, number)
        await until(lambda: one.state is State.DEAD)
        assert path.resets == 1
        assert one.last_error == how
        assert one.warnings == [f"the prestager {how}"]
        await until(running(one, restarts=1))
        assert pid(one) != first
        assert one.warnings == []
        assert one.report()["last_error"] == how
        await one.stop()

    run(main())
    assert f"the prestager {how}; started again in 0.5 s" in caplog.text


def test_one_that_is_stopped_is_killed_and_started_anew(path: OrdersOnly, tmp_path: Path) -> None:
    async def main() -> None:
        one = supervisor(path, tmp_path, silence_s=3)
        await one.start()
        await until(running(one))
        os.kill(pid(one), signal.SIGSTOP)
        await until(running(one, restarts=1))
        assert one.last_error.startswith("gave no sign of life for ")
        assert one.last_error.endswith(" s and was killed")
        await one.stop()

    run(main())


def test_one_that_is_stopped_while_it_starts_again_is_warned_of_and_killed_after_the_longer_time(
    path: OrdersOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_S", 4.0)

    async def main() -> None:
        one = supervisor(path, tmp_path, silence_s=1)
        await one.start()
        assert (one.state, one.warnings) == (State.STARTING, []), "none has died"
        await until(running(one))
        first = pid(one)
        os.kill(first, signal.SIGKILL)
        await until(lambda: one.restarts == 1 and one.report()["pid"] not in (None, first))
        began_s = asyncio.get_running_loop().time()
        os.kill(pid(one), signal.SIGSTOP)
        assert one.warnings == ["the prestager was killed by SIGKILL, and is starting again"]
        await until(running(one, restarts=2))
        assert asyncio.get_running_loop().time() - began_s > 3
        assert one.last_error.startswith("gave no sign of life for 4")
        assert one.warnings == []
        await one.stop()

    run(main())


def test_one_that_may_be_silent_for_longer_may_be_so_while_it_starts(
    path: OrdersOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_S", 1.0)

    async def main() -> None:
        one = supervisor(path, tmp_path, silence_s=60)
        await one.start()
        first = pid(one)
        os.kill(first, signal.SIGSTOP)
        await asyncio.sleep(2.5)
        os.kill(first, signal.SIGCONT)
        await until(running(one))
        assert pid(one) == first
        await one.stop()

    run(main())


def test_one_that_hangs_is_killed_and_started_anew(
    path: OrdersOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TROUBLE, "hang")

    async def main() -> None:
        one = supervisor(path, tmp_path, silence_s=3)
        await one.start()
        await until(running(one))
        path.memories.put(offset=0)
        path.memories.wake()
        await until(running(one, restarts=1))
        assert "no sign of life" in one.last_error
        await one.stop()

    run(main())


def test_one_that_gets_no_processor_is_waited_for(
    path: OrdersOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starved, busy = Usage(is_runnable=True, cpu_s=0.5), Usage(is_runnable=True, cpu_s=4)
    answers: list[Usage] = []
    monkeypatch.setattr(module, "usage_of", lambda _: answers.pop(0) if answers else starved)

    async def main() -> None:
        one = supervisor(path, tmp_path, silence_s=3)
        await one.start()
        await until(running(one))
        os.kill(pid(one), signal.SIGSTOP)
        answers.extend([starved, starved, starved, busy])
        await until(running(one, restarts=1))
        assert answers == []
        await one.stop()

    run(main())


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("fail", "ValueError: told to fail"), ("greedy", "Unable to allocate 400. MiB")],
)
def test_one_that_fails_is_started_anew_with_its_last_words_as_the_reason(
    path: OrdersOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str, words: str
) -> None:
    monkeypatch.setenv(TROUBLE, trouble)

    async def main() -> None:
        one = supervisor(path, tmp_path, memory=128 << 20)
        await one.start()
        await until(running(one))
        path.memories.put(offset=0)
        path.memories.wake()
        await until(running(one, restarts=1))
        assert one.last_error.startswith("ended with status 1: ")
        assert words in one.last_error
        await one.stop()

    run(main())


def test_one_that_dies_again_and_again_is_waited_for_longer_and_its_knowledge_set_aside(
    path: OrdersOnly,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(TROUBLE, "die")
    monkeypatch.setattr(module, "FIRST_BACK_OFF_S", 0.001)
    (tmp_path / "prestager.snapshot").write_bytes(snapshot.encode({"slot_size": SLOT}, {}))

    async def main() -> None:
        one = supervisor(path, tmp_path)
        await one.start()
        await until(lambda: one.restarts >= module.DISTRUST_AFTER + 1)
        await one.stop()

    with caplog.at_level(logging.WARNING):
        run(main())
    waits = [one.args[1] for one in caplog.records if isinstance(one.args, tuple) and one.args]
    assert waits[:4] == [0.002, 0.004, 0.008, 0.016]
    assert "TargetError: told to die" in caplog.text
    assert (tmp_path / "prestager.snapshot.bad").exists()


def test_a_program_that_is_not_there_is_tried_again_and_said(
    path: OrdersOnly, tmp_path: Path
) -> None:
    async def main() -> None:
        one = supervisor(path, tmp_path, command=(str(tmp_path / "nothing"),))
        await one.start()
        await until(lambda: one.state is State.DEAD)
        assert one.last_error == f"could not be started: {os.strerror(2)}"
        await one.stop()

    run(main())


@pytest.mark.parametrize(("has_ring", "enabled"), [(False, True), (True, False)])
def test_without_facts_or_when_it_is_not_wanted_there_is_none(
    path: OrdersOnly, tmp_path: Path, has_ring: bool, enabled: bool
) -> None:
    async def main() -> None:
        path.has_ring = has_ring
        one = supervisor(path, tmp_path, enabled=enabled)
        await one.start()
        assert one.report()["state"] == "off"
        assert one.report()["pid"] is None
        await one.stop()

    run(main())
    assert path.resets == 0


def test_a_stop_at_once_leaves_nothing(path: OrdersOnly, tmp_path: Path) -> None:
    async def main() -> None:
        one = supervisor(path, tmp_path)
        await one.start()
        first = pid(one)
        await one.stop()
        await one.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)

    run(main())


def test_a_hurried_stop_kills_one_that_hangs_and_else_nothing(
    path: OrdersOnly, tmp_path: Path
) -> None:
    async def main() -> None:
        one = supervisor(path, tmp_path)
        await one.start()
        await until(running(one))
        one.hurry()
        assert one.report()["state"] == "running", "nobody stops it"
        first = pid(one)
        os.kill(first, signal.SIGSTOP)
        one.begin_stop()
        one.hurry()
        async with asyncio.timeout(module.STOP_S / 2):
            await one.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)

    run(main())


def test_troubles_are_said_once_in_the_log_and_as_long_as_they_last_in_the_warnings(
    path: OrdersOnly, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "prestager.snapshot").write_bytes(b"damaged")

    async def main() -> None:
        one = supervisor(path, tmp_path)
        await one.start()
        await until(lambda: bool(one.warnings))
        (warning,) = one.warnings
        assert "set aside as" in warning
        seen = one.report()["process"]["wake_ups"]
        await until(lambda: one.report()["process"]["wake_ups"] > seen)
        await one.stop()

    run(main())
    assert caplog.text.count("set aside as") == 1


def test_the_processes_of_a_terminal_are_not_its_group(path: OrdersOnly, tmp_path: Path) -> None:
    async def main() -> None:
        one = supervisor(path, tmp_path)
        await one.start()
        assert os.getpgid(pid(one)) == pid(one)
        await one.stop()

    run(main())


def test_nonsense_from_the_process_is_as_good_as_silence(
    path: OrdersOnly, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "START_S", 1.5)
    program = (
        "import json, os, sys, time; channel = json.loads(sys.argv[1])['channel'];"
        "os.write(channel, b'nonsense\\n'); time.sleep(60)"
    )

    async def main() -> None:
        one = supervisor(path, tmp_path, command=(sys.executable, "-c", program))
        await one.start()
        await until(lambda: one.state is State.DEAD)
        assert "no sign of life" in one.last_error
        await one.stop()

    run(main())
