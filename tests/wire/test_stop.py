"""The end of a target: SIGTERM under load, with a stalled medium, and kill -9."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.connection import ConnectionClosed, Silence, Terminated
from nvme_tcp.host import Controller

from .model import BlockModel
from .probing import SEED, turns
from .running import MIB, NQN, Config, RunningTarget, base_config, merge
from .traffic import Plan, Traffic

SIZE = 64 * MIB
BLOCK = 512
KILLS = turns("PRESTAGE_TEST_KILLS", 20)
PLAN = Plan(clusters=24, stride=5003)
ENDINGS = (ConnectionClosed, Terminated, OSError)


def config_of(directory: Path, **namespace: Any) -> Config:
    """One namespace on a file; a tier that is smaller than what is written."""
    one = {"path": str(directory / "ns"), "size": SIZE, "block": BLOCK, **namespace}
    changes = {
        "tier": {"size": 9 * MIB},
        "limits": {"stop_s": 10.0},
        "subsystems": [{"nqn": NQN, "namespaces": [one]}],
    }
    return merge(base_config(directory), changes)


@contextlib.contextmanager
def started(directory: Path, config: Config) -> Iterator[RunningTarget]:
    """A target that is certainly gone afterwards."""
    target = RunningTarget(directory, config)
    try:
        yield target
    finally:
        target.kill()


@pytest.fixture(autouse=True)
def _own_target(request: pytest.FixtureRequest) -> None:
    if os.environ.get("PRESTAGE_TEST_TARGET"):
        pytest.skip("needs a target of its own")


def run_until_the_end(traffic: Traffic, target: RunningTarget, number: int, after_s: float) -> None:
    """Traffic, a signal after a while, and on until the connections close."""
    timer = threading.Timer(after_s, target.signal, [number])
    timer.start()
    try:
        traffic.accept_errors = True
        with contextlib.suppress(*ENDINGS):
            traffic.run(10**9, within_s=60.0)
    finally:
        timer.join()
        traffic.accept_errors = False


def file_reader(path: Path) -> Any:
    """Reads blocks from the backing file."""

    def read(slba: int, blocks: int) -> bytes:
        with path.open("rb") as file:
            file.seek(slba * BLOCK)
            return file.read(blocks * BLOCK)

    return read


def wire_reader(controller: Controller, block: int = BLOCK) -> Any:
    """Reads blocks through the wire."""
    return lambda slba, blocks: controller.io[0].read(slba, blocks, block)


@pytest.mark.parametrize("policy", ["back", "through"])
def test_sigterm_under_load_loses_no_acknowledged_write(directory: Path, policy: str) -> None:
    config = config_of(directory, write_policy=policy)
    with started(directory, config) as target:
        site = target.site()
        with site.pair(2) as one, site.pair(2, digests=3) as two:
            traffic = Traffic(random.Random(SEED), one.io + two.io, BlockModel(BLOCK), PLAN)
            traffic.prepare()
            run_until_the_end(traffic, target, signal.SIGTERM, 0.5)
        assert target.wait(15) == 0, target.said()[-3000:]
    traffic.use([])
    traffic.check_all(file_reader(directory / "ns"))
    with started(directory, config) as target:
        with target.site().pair(1) as reader:
            traffic.check_all(wire_reader(reader))
        assert target.stop() == 0


def test_sigterm_while_idle_hosts_are_connected(directory: Path) -> None:
    with (
        started(directory, config_of(directory)) as target,
        target.site().pair(1) as controller,
    ):
        controller.admin.submit(nvme.sqe(nvme.AER))
        controller.io[0].write(0, b"a" * 65536, BLOCK)
        assert target.stop(15) == 0, target.said()[-3000:]
        for queue in controller.queues():
            queue.connection.expect_closed()
    assert file_reader(directory / "ns")(0, 128) == b"a" * 65536


def test_sigterm_while_hosts_are_half_connected(directory: Path) -> None:
    with started(directory, config_of(directory)) as target:
        site = target.site()
        with site.raw(), site.raw() as half, site.queue(), site.pair(1) as controller:
            half.send(bytes(5))
            queue = controller.io[0]
            queue.answers_r2t = False
            entry = nvme.block_command(nvme.WRITE, 0, 128)
            queue.submit(entry, data=bytes(65536), in_capsule=False)
            queue.wait_r2t()
            assert target.stop(15) == 0, target.said()[-3000:]


def test_second_start_on_the_same_file_is_refused(directory: Path) -> None:
    config = config_of(directory)
    with started(directory, config):
        other = merge(config, {"state_directory": str(directory / "other")})
        with pytest.raises(AssertionError, match="in use") as refusal:
            RunningTarget(directory / "second", other)
        assert "Traceback" not in str(refusal.value)


def test_sigterm_with_a_stalled_medium_says_what_was_not_flushed(directory: Path) -> None:
    config = config_of(directory, faults=["stall:op=write,after=0"])
    config = merge(config, {"limits": {"stop_s": 2.0}})
    with started(directory, config) as target:
        with target.site().pair(1) as controller:
            controller.io[0].write(0, b"s" * 65536, BLOCK)
            status = target.stop(20)
        assert status not in (0, None), target.said()[-3000:]
        said = target.said()
        assert "Traceback" not in said, said[-3000:]
        assert str(directory / "ns") in said or f"{NQN} namespace 1" in said, said[-3000:]
        assert "65536" in said or "flushed" in said, said[-3000:]


def test_stall_that_ends_in_time_is_a_clean_stop(directory: Path) -> None:
    config = config_of(directory, faults=["stall:op=write,after=0"])
    with started(directory, config) as target:
        with target.site().pair(1) as controller:
            controller.io[0].write(0, b"s" * 65536, BLOCK)
            target.signal(signal.SIGTERM)
            with contextlib.suppress(Silence):
                controller.admin.connection.expect_closed(1.0)
            with contextlib.suppress(OSError, AssertionError):
                target.media_control("stall", "release")
        assert target.wait(15) == 0, target.said()[-3000:]
    assert file_reader(directory / "ns")(0, 128) == b"s" * 65536


def varied(directory: Path, rng: random.Random) -> Config:
    """The same namespace behind another tier: what is on the file knows no slots."""
    config = config_of(directory, write_policy=rng.choice(("back", "back", "through")))
    changes: Config = {
        "tier": {
            "size": rng.choice((4, 9)) * MIB,
            "slot": rng.choice((16, 64)) << 10,
            "writeback_s": rng.choice((0.01, 1.0)),
        },
        "limits": {"max_transfer": 512 << 10, "connections": 16},
        "reactors": rng.choice((1, 2)),
    }
    return merge(config, changes)


@pytest.mark.stress
@pytest.mark.timeout(60 + 10 * KILLS)
def test_kill_under_load_loses_no_flushed_write(directory: Path) -> None:
    rng = random.Random(SEED)
    traffic = Traffic(rng, [], BlockModel(BLOCK), PLAN)
    for turn in range(KILLS + 1):
        config = varied(directory, rng)
        with started(directory, config) as target, target.site().pair(3) as controller:
            traffic.use(controller.io)
            if turn == 0:
                traffic.prepare(is_new=True)
            else:
                traffic.check_crashed(wire_reader(controller))
            # Some kills come before any Flush.
            run_until_the_end(traffic, target, signal.SIGKILL, 0.35 * rng.random() ** 2)
            target.wait()
