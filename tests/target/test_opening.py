from __future__ import annotations

import asyncio

import pytest
from fake_data_path import NQN, Rig, ram, run, settle, sqe, subsystem


def test_a_medium_that_opens_slowly_delays_what_changes_the_target_and_nothing_else() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=1000)
            rig.fake.hold_open = asyncio.Event()
            adding = asyncio.create_task(rig.target.add_namespace(NQN, ram()))
            removing = asyncio.create_task(rig.target.remove_namespace(NQN, 1))
            for _ in range(10):
                await asyncio.sleep(1)
                assert host.do(sqe(0x18)).code == "0/00", "Keep Alive"
            assert not adding.done() and not removing.done()
            rig.fake.hold_open.set()
            assert await adding == 2
            await removing

    run(main())


def test_a_subsystem_that_is_called_off_while_it_is_made_leaves_nothing_open() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.hold_open, rig.fake.hold_from = asyncio.Event(), 2
            making = asyncio.create_task(rig.target.add_subsystem(subsystem(f"{NQN}:new", 2)))
            await settle()
            assert len(rig.fake.volumes) == 2, "the second is being opened"
            making.cancel()
            with pytest.raises(asyncio.CancelledError):
                await making
            assert [volume.open for volume in rig.fake.volumes.values()] == [True, False]
            assert list(rig.fake.maps) == [(0, 1)] and len(rig.target.subsystems) == 1
            rig.fake.hold_open.set()
            await rig.target.add_subsystem(subsystem(f"{NQN}:new", 2))

    run(main())
