"""Several hosts, queues and digests at once, against a model of every block."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from .model import BlockModel
from .probing import SEED, Site, turns
from .running import MIB, NQN, RunningTarget, base_config, merge
from .traffic import Plan, Traffic

PLANS = {
    "crowded": Plan(clusters=2, stride=1000),
    "wide": Plan(clusters=100, stride=1201),
    "deep": Plan(clusters=8, stride=5000, depth=30),
}
# The wide plan touches more slots than this tier has, so that it evicts and fills all the time.
SMALL_TIER = {"tier": {"size": 9 * MIB}, "limits": {"connections": 64}}
CONFIG = SMALL_TIER
COMMANDS = turns("PRESTAGE_TEST_COMMANDS", 3000)


def open_queues(
    stack: contextlib.ExitStack, site: Site, rng: random.Random, hosts: int = 3
) -> list[Queue]:
    """Two or three queues of each of several hosts, with different digests and alignments."""
    queues: list[Queue] = []
    for index in range(hosts):
        options: dict[str, Any] = {"digests": (0, 3, 2, 1)[index % 4]}
        if not site.is_reference:
            options["hpda"] = rng.choice((0, 0, 1, 3))
        controller = stack.enter_context(
            site.pair(rng.randrange(2, 4), maxr2t=rng.choice((0, 3)), **options)
        )
        queues += controller.io
    return queues


def drive(site: Site, seed: int, plan: Plan, commands: int) -> Traffic:
    """Run traffic to its end and read everything back by a new host."""
    rng = random.Random(seed)
    with contextlib.ExitStack() as stack:
        queues = open_queues(stack, site, rng)
        block = stack.enter_context(site.pair(0)).block_size(plan.nsid)
        traffic = Traffic(rng, queues, BlockModel(block), plan)
        traffic.prepare()
        traffic.run(commands)
    with site.pair(1) as reader:
        read_back(traffic, reader)
    return traffic


def read_back(traffic: Traffic, reader: Controller) -> None:
    """Every block through the wire."""
    size, nsid = traffic.model.block_size, traffic.plan.nsid
    traffic.check_all(lambda slba, blocks: reader.io[0].read(slba, blocks, size, nsid=nsid))


@pytest.mark.stress
@pytest.mark.parametrize("name", sorted(PLANS))
@pytest.mark.parametrize("turn", range(2))
def test_concurrent_commands_show_only_possible_bytes(site: Site, name: str, turn: int) -> None:
    plan = PLANS[name]
    if site.is_reference:
        plan = Plan(plan.clusters, plan.stride, plan.span, plan.depth, with_compare=False)
    drive(site, SEED + turn, plan, 300 if site.is_reference else COMMANDS)


@pytest.mark.stress
@pytest.mark.parametrize("block", [512, 4096])
@pytest.mark.parametrize("policy", ["back", "through"])
def test_backing_file_holds_the_bytes_after_a_stop(
    directory: Path, running: RunningTarget | None, block: int, policy: str
) -> None:
    if running is None:
        pytest.skip("needs a target of its own")
    path = directory / "ns"
    namespace = {"path": str(path), "size": 64 * MIB, "block": block, "write_policy": policy}
    changes = {**SMALL_TIER, "subsystems": [{"nqn": NQN, "namespaces": [namespace]}]}
    config = merge(base_config(directory), changes)
    started = RunningTarget(directory, config)
    try:
        plan = Plan(clusters=24, stride=64 * MIB // block // 24, span=80)
        traffic = drive(started.site(), SEED, plan, COMMANDS // 2)
        assert started.stop() == 0, started.said()[-2000:]
        with path.open("rb") as file:

            def read(slba: int, blocks: int) -> bytes:
                file.seek(slba * block)
                return file.read(blocks * block)

            traffic.check_all(read)
        again = RunningTarget(directory, config)
        try:
            with again.site().pair(1) as reader:
                read_back(traffic, reader)
            assert again.stop() == 0
        finally:
            again.kill()
    finally:
        started.kill()


def test_model_refuses_a_lost_write() -> None:
    model = BlockModel(512)
    for stamp in (1, 2):
        model.write_completed(model.write_submitted(stamp, 0, 2))
    reading = model.read_submitted(0, 2)
    assert model.fault(reading, model.payload(2, 0, 2)) is None
    assert "write 1" in str(model.fault(reading, model.payload(1, 0, 2)))
    torn = model.content(2, 0)[:256] + bytes(256) + model.content(2, 1)
    assert "torn" in str(model.fault(reading, torn))
    assert "torn" in str(model.fault(reading, model.content(2, 1) * 2))


def test_model_allows_either_of_two_writes_at_once() -> None:
    model = BlockModel(512)
    model.write_completed(model.write_submitted(1, 0, 1))
    two, three = model.write_submitted(2, 0, 1), model.write_submitted(3, 0, 1)
    model.write_completed(three)
    model.write_completed(two)
    assert model.read_submitted(0, 1).allowed == [{2, 3}]
    reading = model.read_submitted(0, 1)
    four = model.write_submitted(4, 0, 1)
    assert reading.allowed == [{2, 3, 4}]
    model.write_completed(four)
    assert model.settled_stamp(0) == 4
    model.write_completed(model.write_submitted(0, 0, 1, replaces=False))
    assert model.read_submitted(0, 1).allowed == [{0, 4}]


def test_model_keeps_what_was_there_until_a_flush_covers_the_write() -> None:
    model = BlockModel(512)
    model.starts_as_zeros(0, 4)
    model.write_completed(model.write_submitted(1, 0, 4))
    flush = model.flush_submitted()
    model.write_completed(model.write_submitted(2, 0, 1))
    model.write_completed(model.write_submitted(3, 1, 1), durable=True)
    model.write_completed(model.write_submitted(0, 2, 1, replaces=False))
    survivors = [{version.stamp for version in model.survivors[lba]} for lba in range(4)]
    assert survivors == [{0, 1, 2}, {3}, {0, 1}, {0, 1}]
    model.flush_completed(flush)
    survivors = [{version.stamp for version in model.survivors[lba]} for lba in range(4)]
    assert survivors == [{1, 2}, {3}, {0, 1}, {1}]


def test_model_refuses_a_crash_that_loses_a_flushed_write() -> None:
    model = BlockModel(512)
    model.starts_as_zeros(0, 2)
    model.write_completed(model.write_submitted(1, 0, 2))
    model.flush_completed(model.flush_submitted())
    model.write_completed(model.write_submitted(2, 0, 2))
    lost = model.content(2, 0) + bytes(512)
    assert "LBA 1 shows write 0, [1, 2] are possible" in str(model.crashed(0, lost))
    assert model.crashed(0, model.content(2, 0) + bytes(512)) is None
