from __future__ import annotations

import asyncio

import pytest
from fake_data_path import DISCOVERY, NQN, Rig, run, sqe

from prestage.target.keepalive import round_up


@pytest.mark.parametrize(
    ("asked", "used"),
    [(0, 0), (1, 500), (500, 500), (501, 1000), (5000, 5000), (2**32 - 1, 4294967000)],
)
def test_timeouts_are_rounded_up_to_the_granularity(asked: int, used: int) -> None:
    assert round_up(asked) == used


def test_a_silent_host_loses_its_whole_association() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=2000)
            host.connect_io(1)
            await asyncio.sleep(2.9)
            assert not rig.fake.closes, "grace"
            await asyncio.sleep(1.2)
            # A host that is silent takes no answers either: they are not waited for.
            assert set(rig.fake.closes) == {(host.admin, False), (host.queues[1], False)}
            assert not rig.runtime.subsystems[NQN].controllers

    run(main())


def test_keep_alive_commands_keep_it() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=2000)
            for _ in range(60):
                await asyncio.sleep(1.9)
                assert host.do(sqe(0x18)).code == "0/00"
            assert not rig.fake.closes

    run(main())


def test_traffic_on_an_io_queue_keeps_it() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=2000)
            host.connect_io(1)
            for now in range(1, 60):
                rig.fake.last_command[host.queues[1]] = now
                await asyncio.sleep(1.9)
            assert not rig.fake.closes
            await asyncio.sleep(4.1)
            assert rig.fake.closes

    run(main())


def test_without_a_timeout_an_idle_host_stays() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=0)
            await asyncio.sleep(86400)
            assert not rig.fake.closes
            assert host.do(sqe(0x18)).code == "0/00"

    run(main())


def test_a_discovery_controller_has_120_seconds_when_none_is_asked() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(DISCOVERY)
            assert host.get_feature(0x0F).dw0 == 120_000
            await asyncio.sleep(120)
            assert not rig.fake.closes
            await asyncio.sleep(120)
            assert rig.fake.closes == [(host.admin, False)]

    run(main())


def test_the_timeout_can_be_changed_while_it_runs() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=2000)
            assert host.set_feature(0x0F, 60_001).code == "0/00"
            assert host.get_feature(0x0F).dw0 == 60_500
            await asyncio.sleep(60)
            assert not rig.fake.closes
            assert host.set_feature(0x0F, 0).code == "0/00"
            await asyncio.sleep(600)
            assert not rig.fake.closes
            host.set_feature(0x0F, 500)
            await asyncio.sleep(1.1)
            assert rig.fake.closes

    run(main())


def test_the_longest_timeout_is_one_that_can_be_read_back() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=0xFFFFFFFF)
            assert host.get_feature(0x0F).dw0 == 4294967000
            assert host.set_feature(0x0F, 0xFFFFFFFF).code == "0/00"

    run(main())


def test_many_hosts_that_vanish_are_closed_each_by_one_timer() -> None:
    async def main() -> None:
        async with Rig() as rig:
            for _ in range(200):
                rig.host(kato=5000)
            await asyncio.sleep(10.1)
            assert len({number for number, _ in rig.fake.closes}) == 200
            assert not rig.runtime.connections

    run(main())
