from __future__ import annotations

import asyncio

import pytest
from fake_data_path import CC_ENABLED, DISCOVERY, NQN, Host, Rig, run, settle, sqe

CC, CSTS = 0x14, 0x1C
SHUTDOWN = CC_ENABLED | 1 << 14


def test_capabilities_say_what_the_controller_can_do() -> None:
    async def main() -> None:
        async with Rig() as rig:
            cap = Host(rig).connect().get_property(0, 8)
            assert cap & 0xFFFF == 127, "MQES"
            assert cap >> 16 & 1 == 1, "CQR"
            assert cap >> 17 & 3 == 0, "AMS"
            assert cap >> 24 & 0xFF == 15, "TO"
            assert cap >> 36 & 1 == 0, "NSSRS"
            assert cap >> 37 & 0xFF == 0b1000001, "CSS"
            assert cap >> 48 & 0xFF == 0, "MPSMIN, MPSMAX"
            assert cap >> 59 & 3 == 1, "CRMS: with media alone"

    run(main())


def test_version_and_ready_timeouts() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig).connect()
            assert host.get_property(0x08) == 0x20000
            assert host.get_property(0x68) == 15, "CRTO.CRWMT, and no CRIMT"

    run(main())


def test_enabling_makes_the_controller_ready_and_cc_reads_back() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig).connect()
            host.set_property(CC, CC_ENABLED & ~1)
            assert host.get_property(CSTS) == 0
            host.set_property(CC, CC_ENABLED)
            assert host.get_property(CSTS) == 1
            assert host.get_property(CC) == CC_ENABLED

    run(main())


@pytest.mark.parametrize(
    "cc",
    [
        CC_ENABLED | 1 << 7,
        CC_ENABLED | 7 << 4,
        CC_ENABLED & ~0xF0000,
        CC_ENABLED & ~0xF00000,
        CC_ENABLED | 8 << 7,
        CC_ENABLED | 1 << 11,
        CC_ENABLED | 4 << 11,
        CC_ENABLED & ~0x60 | 1 << 4,
        CC_ENABLED | 1 << 16,
        CC_ENABLED | 1 << 20,
        CC_ENABLED | 1 << 24,
    ],
)
def test_a_bad_configuration_is_a_fatal_status_until_disabled(cc: int) -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig).connect()
            assert host.set_property(CC, cc).code == "0/00"
            assert host.get_property(CSTS) == 2
            assert host.identify(1).code == "0/0C DNR"
            host.set_property(CC, cc & ~1)
            assert host.get_property(CSTS) == 0
            host.set_property(CC, CC_ENABLED)
            assert host.get_property(CSTS) == 1

    run(main())


def test_a_discovery_controller_needs_no_queue_entry_sizes() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = Host(rig, DISCOVERY).connect()
            host.set_property(CC, 0x61)
            assert host.get_property(CSTS) == 1

    run(main())


def test_admin_commands_wait_for_enabling_and_carry_no_data_before() -> None:
    async def main() -> None:
        async with Rig() as rig:
            answered = Host(rig).connect().identify(1)
            assert (answered.code, answered.data) == ("0/0C DNR", b"")

    run(main())


def test_shutdown_ends_after_the_queues_are_drained_and_flushed() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            host.connect_io(2)
            rig.fake.held = {"quiesce": [], "flush": []}
            host.set_property(CC, SHUTDOWN)
            await settle()
            assert host.get_property(CSTS) == 0b0101, "under way"
            assert not any(rig.fake.enabled[host.queues[qid]] for qid in (1, 2))
            assert len(rig.fake.held["quiesce"]) == 2
            rig.fake.release("quiesce")
            await settle()
            assert host.get_property(CSTS) == 0b0101, "drained, not flushed"
            rig.fake.release("flush")
            await settle()
            assert host.get_property(CSTS) == 0b1001, "complete"
            assert not rig.fake.closes, "queues live on until the host closes them"

    run(main())


def test_shutdown_waits_for_a_stalled_command_as_long_as_it_takes() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            rig.fake.held = {"quiesce": []}
            host.set_property(CC, SHUTDOWN)
            await asyncio.sleep(60)
            assert host.get_property(CSTS) >> 2 & 3 == 1
            rig.fake.release("quiesce")
            await settle()
            assert host.get_property(CSTS) >> 2 & 3 == 2

    run(main())


def test_shutdown_of_a_queue_whose_host_died_does_not_hang() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            rig.fake.held = {"quiesce": []}
            host.set_property(CC, SHUTDOWN)
            await settle()
            rig.fake.close(host.queues[1], False)
            await settle()
            assert host.get_property(CSTS) >> 2 & 3 == 2

    run(main())


def test_no_queues_are_made_after_a_shutdown() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.set_property(CC, SHUTDOWN)
            await settle()
            assert host.connect_io(1).code == "0/0C DNR"

    run(main())


def test_enabling_again_after_a_shutdown_works() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            host.set_property(CC, SHUTDOWN)
            await settle()
            host.set_property(CC, CC_ENABLED & ~1)
            await settle()
            assert host.get_property(CSTS) == 0b1000, "disabled, the shutdown still shows"
            host.set_property(CC, CC_ENABLED)
            assert host.get_property(CSTS) == 1
            assert host.connect_io(1).code == "0/00"

    run(main())


def test_enabling_in_the_middle_of_a_shutdown_works() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            rig.fake.held = {"quiesce": []}
            host.set_property(CC, SHUTDOWN)
            await settle()
            host.set_property(CC, CC_ENABLED & ~1)
            host.set_property(CC, CC_ENABLED)
            await settle()
            assert host.get_property(CSTS) == 1
            assert host.connect_io(1).code == "0/00"

    run(main())


def test_a_reset_deletes_io_queues_and_keeps_the_admin_queue() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            event = host.request_event(cid=5)
            rig.fake.held = {"quiesce": []}
            host.set_property(CC, CC_ENABLED & ~1)
            await settle()
            assert host.get_property(CSTS) == 1, "ready until drained"
            rig.fake.release("quiesce")
            await settle()
            assert host.get_property(CSTS) == 0
            assert rig.fake.closes == [(host.queues[1], True)]
            answered = host.answer(event)
            assert answered is not None and answered.code == "0/07"
            host.enable()
            assert host.connect_io(1).code == "0/00"

    run(main())


def test_a_reset_does_not_wait_longer_than_the_host_does() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            rig.fake.held = {"quiesce": []}
            host.set_property(CC, CC_ENABLED & ~1)
            await asyncio.sleep(7.5)
            assert host.get_property(CSTS) == 0
            assert rig.fake.closes == [(host.queues[1], True)]

    run(main())


def test_keep_alive_and_disable_back_to_back_never_hang() -> None:
    async def main() -> None:
        async with Rig() as rig:
            for _ in range(200):
                host = rig.host(kato=5000)
                host.connect_io(1)
                assert host.do(sqe(0x18)).code == "0/00"
                assert host.set_property(CC, CC_ENABLED & ~1).code == "0/00"
                assert host.do(sqe(0x18)).code in ("0/00", "0/0C DNR")
                await settle()
                assert host.get_property(CSTS) == 0
                rig.fake.close(host.admin, False)
                await settle()
            assert not rig.runtime.connections
            assert not rig.runtime.subsystems[NQN].controllers

    run(main())


def test_the_death_of_the_admin_queue_closes_its_io_queues_at_once() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host, other = rig.host(), rig.host()
            host.connect_io(1)
            host.connect_io(2)
            other.connect_io(1)
            rig.fake.closes.clear()
            rig.fake.close(host.admin, False)
            await settle()
            closed = {number for number, after_output in rig.fake.closes if not after_output}
            assert closed == {host.admin, host.queues[1], host.queues[2]}
            assert list(rig.runtime.subsystems[NQN].controllers) == [other.cntlid]

    run(main())


def test_the_death_of_an_io_queue_frees_that_queue_alone() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            host.connect_io(2)
            rig.fake.close(host.queues[1], False)
            await settle()
            assert host.identify(1).code == "0/00"
            assert host.connect_io(1).code == "0/00"

    run(main())


def test_connect_and_disconnect_many_times_leaves_nothing() -> None:
    async def main() -> None:
        async with Rig() as rig:
            for _ in range(1000):
                host = rig.host(kato=5000)
                for _ in range(4):
                    host.request_event()
                assert host.cntlid == 1
                rig.fake.close(host.admin, False)
                await settle(3)
            assert not rig.runtime.connections
            assert not rig.runtime.cookies._waiting

    run(main())
