from __future__ import annotations

import asyncio
import importlib.util
import os
import threading
from pathlib import Path

import pytest
from fake_data_path import NQN, Rig, ram, run, settings_in, settle, sqe, subsystem
from nvme_tcp.host import connected_queue_pair

from prestage.target.settings import ListenerSettings, NamespaceSettings, TierSettings
from prestage.target.target import Target


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


@pytest.mark.stress
@pytest.mark.skipif(
    importlib.util.find_spec("prestage._core") is None, reason="the C module is not built"
)
def test_media_come_and_go_in_a_thread_while_hosts_are_served(tmp_path: Path) -> None:
    rounds = 6 if os.environ.get("PRESTAGE_TEST_VARIANT") == "tsan" else 25

    async def main() -> None:
        tier = TierSettings(size=16 << 20, huge_pages=False)
        listeners = [ListenerSettings(port=0)]
        settings = settings_in(
            tmp_path, subsystem(NQN, 1), listeners=listeners, tier=tier, reactors=2
        )
        over = threading.Event()
        async with Target(settings) as target:
            address = target.listeners[0]

            def serve() -> int:
                served = 0
                with connected_queue_pair((address.address, address.port), NQN, 2) as controller:
                    while not over.is_set():
                        for queue in controller.io:
                            queue.write(served % 64, bytes(4096), 4096)
                        served += 1
                return served

            serving = asyncio.create_task(asyncio.to_thread(serve))
            for number in range(rounds):
                wanted = (
                    ram()
                    if number % 2
                    else NamespaceSettings(path=str(tmp_path / f"m{number}"), size=1 << 20)
                )
                nsid = await target.add_namespace(NQN, wanted)
                await target.resize_namespace(NQN, nsid, 2 << 20)
                assert target.stats()["core"]["commands"] >= 0
                await target.remove_namespace(NQN, nsid)
            over.set()
            assert await serving > 0

    asyncio.run(main())
