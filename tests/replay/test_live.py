"""A workload over the wire, against a target in this process."""

from __future__ import annotations

import asyncio
import random

import pytest

from prestage.host_client.address import Address
from prestage.host_client.controller import Controller
from prestage.host_client.options import Options
from prestage.replay.generators import Sessions, sessions
from prestage.replay.live import Drive, WrongBytes, content
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


def test_blocks_have_bytes_of_their_own() -> None:
    assert content(0, 16) != content(1, 16)
    assert len(content(5, SLOT)) == SLOT
