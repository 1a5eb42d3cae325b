"""A workload over the wire, against a target in this process."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import numpy as np
import pytest

from prestage.ext.records import Intent, Signature
from prestage.host_client.address import Address
from prestage.host_client.controller import Controller
from prestage.host_client.options import Options
from prestage.replay.generators import Sessions, sessions
from prestage.replay.hint_plans import HintPlan, announce
from prestage.replay.live import Drive, WrongBytes, at_speed, content
from prestage.replay.live_run import Wire
from prestage.replay.result import Regime
from prestage.replay.run import layout_of, replay
from prestage.replay.workload import Layout, Workload, place
from prestage.testing import Target

SLOT = 64 << 10


def few() -> Workload:
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    return sessions(seed, Sessions(requests=60, chain=4, sessions_per_s=4, gap_s=2))


def drive(target: Target, workload: Workload, layout: Layout, speed: float = 20) -> Drive:
    def take() -> dict[str, object]:
        found = asyncio.run_coroutine_threadsafe(_stats(target), loop).result(10)
        return dict(found)

    loop = asyncio.get_running_loop()
    address = Address(target.address, target.port, target.nqn)
    return Drive(workload, layout, speed, address, "nqn.2026-11.io.prestage:replay", take)


async def _stats(target: Target) -> dict[str, object]:
    return target.target.stats()


def test_every_byte_is_checked_and_the_target_counts_the_hits() -> None:
    async def go() -> None:
        workload = few()
        layout = place(workload, slot_size=SLOT, block_size=4096)
        size = f"{layout.volume_bytes // 1024}K"
        async with Target(namespaces=[size], dram="64M") as one:
            told: list[float] = []
            result = await drive(one, workload, layout).run(told.append)
        assert (result.reads, result.writes) == (workload.reads, len(workload) - workload.reads)
        assert result.read_hit_ratio == 1  # what was written fits the tier
        assert result.flash_reads_per_read == 0
        assert result.precision is None
        assert result.time_to_data_s["p50"] > 0

    asyncio.run(go())


def test_other_bytes_than_were_written_end_it() -> None:
    async def go() -> None:
        workload = few()
        layout = place(workload, slot_size=SLOT, block_size=4096)
        async with Target(namespaces=[f"{layout.volume_bytes // 1024}K"], dram="64M") as one:
            await _spoiled(drive(one, workload, layout))

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(go())
    assert caught.group_contains(WrongBytes)


async def _spoiled(replay: Drive) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_spoil(replay, tasks.create_task(replay.run())))


async def _spoil(replay: Drive, until: asyncio.Task[object]) -> None:
    """Write everywhere what does not belong there, until somebody complains."""
    layout = replay.layout
    async with Controller(replay.address, Options()) as other:
        while not until.done():
            for extent in layout.extent.tolist():
                await other.write(1, content(-2 + 2**32, SLOT), extent * SLOT)


def wire() -> Wire:
    """A workload that a tier holds a part of, ten times as fast."""
    seed = random.randrange(1 << 20)
    print(f"seed {seed}")
    workload = sessions(seed, Sessions(requests=150, chain=8, sessions_per_s=1, gap_s=8))
    regime = Regime(tier=0.25, flash=4, slot_size=16 << 10, hint_percent=50)
    hints = announce(workload, layout_of(workload, regime), HintPlan(lead_s=3))
    return Wire(workload, regime, speed=10, seed=seed, hints=hints, asks_residency=True)


@pytest.mark.parametrize(("policy", "bound"), [("lru", 0.1), ("hints", 0.2)])
def test_the_wire_has_the_hits_that_the_simulation_says(policy: str, bound: float) -> None:
    one = wire()
    live = one.run_own(policy)
    hints = one.hints if policy == "hints" else ()
    simulated = replay(one.workload, None, one.regime, one.seed, hints)
    print(f"{policy}: {live.read_hit_ratio} live, {simulated.read_hit_ratio} simulated")
    # A busy machine shifts some reads. Half the tier shifts .3, hints that are not heard too.
    assert abs(live.read_hit_ratio - simulated.read_hit_ratio) < bound
    assert live.tier_blocks == one.regime.frames(one.workload)
    assert live.medium == "model"
    assert live.ready_requests is not None
    assert abs(live.ready_requests - simulated.ready_requests) < bound


def test_tenants_are_hosts_of_their_own() -> None:
    one = wire()
    tenants = (one.workload.queue % 2).astype(np.uint16)
    shared = replace(one, workload=replace(one.workload, tenant=tenants), hints=())
    assert shared.run_own("lru").reads == one.workload.reads


def test_hints_come_as_much_sooner_as_everything() -> None:
    intent = Intent(1, deadline_us=30_000, nsid=1)
    assert at_speed(intent, 10) == replace(intent, deadline_us=3000)
    signature = Signature(1, 0, 8, bytes(8))
    assert at_speed(signature, 10) is signature


def test_blocks_have_bytes_of_their_own() -> None:
    assert content(0, 16) != content(1, 16)
    assert len(content(5, SLOT)) == SLOT
