from __future__ import annotations

import asyncio
import errno

from fake_data_path import NQN, Rig, ram, run


def test_a_stop_closes_connections_then_flushes_then_closes_media() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            silent = rig.open()
            report = await rig.target.stop(10.0)
            assert report.clean and not report.unflushed
            assert {number for number, _ in rig.fake.closes} == {
                host.admin, host.queues[1], silent,
            }  # fmt: skip
            assert all(after_output for _, after_output in rig.fake.closes)
            assert rig.fake.stopped and not any(v.open for v in rig.fake.volumes.values())

    run(main())


def test_a_host_that_does_not_read_is_cut_off() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            rig.fake.held = {"closed": []}
            report = await rig.target.stop(10.0)
            assert report.clean
            assert rig.fake.closes == [(host.admin, True), (host.admin, False)]
            assert asyncio.get_running_loop().time() < 10

    run(main())


def test_a_stalled_medium_ends_the_stop_in_time_and_is_named() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.add_namespace(NQN, ram())
            rig.fake.volumes[0].stats = {"unflushed_bytes": 8192}
            rig.fake.held = {"flush": []}
            report = await rig.target.stop(10.0)
            assert not report.clean
            assert [(u.nqn, u.nsid, u.bytes) for u in report.unflushed] == [
                (NQN, 1, 8192),
            ]  # fmt: skip
            assert "8192 bytes" in str(report.unflushed[0])
            assert "not flushed within" in report.unflushed[0].reason
            assert asyncio.get_running_loop().time() < 12
            assert rig.fake.stopped and not any(v.open for v in rig.fake.volumes.values())

    run(main())


def test_a_flush_that_fails_once_for_an_old_failure_is_tried_again() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.held = {"flush": []}
            stop = asyncio.create_task(rig.target.stop(10.0))
            while not rig.fake.held.get("flush"):  # noqa: ASYNC110 - the loop's time is not ours
                await asyncio.sleep(0.01)
            rig.fake.release("flush", errno.ENOSPC)
            report = await stop
            assert report.clean

    run(main())


def test_a_medium_that_fails_for_good_is_named_with_its_reason() -> None:
    async def main() -> None:
        for kind in ("flush", "close"):
            async with Rig() as rig:
                rig.fake.volumes[0].stats = {"unflushed_bytes": 4096}
                rig.fake.results[kind] = errno.ENOSPC
                rig.fake.lost_bytes = 4096
                report = await rig.target.stop(10.0)
                (one,) = report.unflushed
                assert one.reason == "No space left on device" and one.path == "ram"
                assert not any(v.open for v in rig.fake.volumes.values())

    run(main())


def test_a_medium_that_does_not_close_is_named() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.held = {"close": []}
            report = await rig.target.stop(5.0)
            (one,) = report.unflushed
            assert one.reason == "its medium does not close"
            assert asyncio.get_running_loop().time() < 7

    run(main())


def test_a_stop_that_was_cancelled_can_be_done_again_in_a_hurry() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.volumes[0].stats = {"unflushed_bytes": 8192}
            rig.host().connect_io(1)
            for kind in ("flush", "unmap"):
                rig.fake.held = {kind: []}
                stop = asyncio.create_task(rig.target.stop(100.0))
                await asyncio.sleep(5)
                stop.cancel()
                await asyncio.wait([stop])
            rig.fake.held = {"flush": []}
            report = await rig.target.stop(0.0)
            assert [entry.bytes for entry in report.unflushed] == [8192]
            assert rig.fake.stopped and not rig.fake.volumes[0].open

    run(main())


def test_a_hurried_stop_with_nothing_to_flush_is_clean() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.held = {"flush": []}
            assert (await rig.target.stop(0.0)).clean

    run(main())


def test_a_second_stop_has_nothing_to_do() -> None:
    async def main() -> None:
        async with Rig() as rig:
            assert (await rig.target.stop(1.0)).clean
            assert (await rig.target.stop(0.0)).clean

    run(main())
