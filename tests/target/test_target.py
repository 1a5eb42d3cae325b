from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_data_path import (
    HOST,
    NQN,
    FakeDataPath,
    Rig,
    connect_data,
    connect_sqe,
    ram,
    run,
    settings_in,
    settle,
    subsystem,
    until,
)

from prestage.target.datapath import CommandNotice
from prestage.target.errors import (
    AlreadyExists,
    Exhausted,
    Invalid,
    MediumError,
    NotFound,
    TargetError,
)
from prestage.target.settings import (
    LimitSettings,
    ListenerSettings,
    NamespaceSettings,
    PrestagerSettings,
    SubsystemSettings,
    TargetSettings,
    TierSettings,
)
from prestage.target.target import Target

OTHER = "nqn.2026-11.io.prestage:other"


def has_adopted(rig: Rig, count: int) -> bool:
    return len(rig.fake.adopted) == count


def state(rig: Rig) -> object:
    """What an operation that fails may not change."""
    data_path = rig.fake
    report = rig.target.stats()
    report.pop("uptime_s")
    return report, sorted(data_path.maps), [v.open for v in data_path.volumes.values()]


def test_start_makes_what_the_settings_name(tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_in(
            tmp_path, subsystem(NQN, 2), subsystem(OTHER), listeners=[ListenerSettings(port=0)]
        )
        async with Rig(settings) as rig:
            target = rig.target
            assert [s.nqn for s in target.subsystems] == [NQN, OTHER]
            assert target.listeners[0].address == "127.0.0.1" and target.listeners[0].port > 0
            assert rig.fake.maps == {(0, 1): 0, (0, 2): 1}
            assert target.is_running
        assert rig.fake.stopped and not rig.target.is_running
        assert not any(volume.open for volume in rig.fake.volumes.values())

    run(main())


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        fake = FakeDataPath()
        fake.refuses_open = "/taken"
        taken = NamespaceSettings(path="/taken", size=4096)
        bad = SubsystemSettings(nqn=OTHER, namespaces=[ram(), taken])
        port_taken = socket.create_server(("127.0.0.1", 0))
        good = ListenerSettings(port=port_taken.getsockname()[1])
        for settings in (
            settings_in(tmp_path, subsystem(NQN, 1), bad),
            settings_in(tmp_path, subsystem(NQN, 1), listeners=[good]),
        ):
            target = Target(settings, fake)
            with pytest.raises(TargetError):
                await target.start()
            assert fake.stopped and not target.is_running
            assert not fake.maps and not any(v.open for v in fake.volumes.values())
        port_taken.close()

    run(main())


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"reactors": 0}, "reactors"),
        ({"reactors": 2, "cpus": [1]}, "cpus"),
        ({"cpus": [5000]}, "cpus[0]"),
        ({"prestager": PrestagerSettings(cpus=[5000])}, "prestager.cpus[0]"),
        ({"limits": LimitSettings(queue_depth=16)}, "limits.queue_depth"),
        ({"limits": LimitSettings(io_queues=0)}, "limits.io_queues"),
        ({"limits": LimitSettings(max_transfer=5000)}, "limits.max_transfer"),
        ({"limits": LimitSettings(in_capsule=100)}, "limits.in_capsule"),
        ({"tier": TierSettings(slot=12345)}, "tier.slot"),
        ({"tier": TierSettings(size=1)}, "tier.size"),
    ],
)
def test_limits_out_of_range_are_named(
    tmp_path: Path, settings: dict[str, Any], where: str
) -> None:
    async def main() -> None:
        target = Target(settings_in(tmp_path, **settings), FakeDataPath())
        with pytest.raises(Invalid) as caught:
            await target.start()
        assert caught.value.where == where and "expected" in str(caught.value)

    run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        subsystem("not an nqn"),
        subsystem("nqn." + "x" * 220),
        subsystem(OTHER, serial="x" * 21),
        subsystem(OTHER, serial="é"),
        subsystem(OTHER, model="x" * 41),
        subsystem(OTHER, hosts=["host"]),
        subsystem(OTHER, max_namespaces=0),
        subsystem(OTHER, max_namespaces=2000),
        SubsystemSettings(nqn=OTHER, namespaces=[ram(), ram(block=1024)]),
        SubsystemSettings(nqn=OTHER, namespaces=[ram(nsid=1), ram(nsid=1)]),
        subsystem(NQN),
        subsystem("nqn.2014-08.org.nvmexpress.discovery"),
    ],
)
def test_a_wrong_subsystem_changes_nothing(wrong: SubsystemSettings) -> None:
    async def main() -> None:
        async with Rig() as rig:
            before = state(rig)[0]  # type: ignore[index]
            with pytest.raises(TargetError):
                await rig.target.add_subsystem(wrong)
            assert state(rig)[0] == before  # type: ignore[index]
            assert list(rig.fake.maps) == [(0, 1)]

    run(main())


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (ram(block=1024), "block"),
        (ram(size=0), "size"),
        (ram(size=1000), "size"),
        (ram(nsid=1), "namespace 1"),
        (ram(nsid=1025), "nsid"),
        (ram(uuid="x"), "uuid"),
        (ram(nguid="12"), "nguid"),
        (ram(write_policy="around"), "write_policy"),
        (ram(faults=["a|b"]), "faults"),
        (NamespaceSettings(media="tape", path="/x"), "media"),
        (NamespaceSettings(), "path"),
        (NamespaceSettings(path="/taken"), "/taken"),
    ],
)
def test_a_wrong_namespace_changes_nothing(wrong: NamespaceSettings, where: str) -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.refuses_open = "/taken"
            before = state(rig)
            with pytest.raises(TargetError) as caught:
                await rig.target.add_namespace(NQN, wrong)
            assert where in caught.value.where
            assert state(rig) == before

    run(main())


def test_namespaces_come_grow_and_go_while_hosts_are_connected() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.set_feature(0x0B, 0x100)

            async def change(operation: Awaitable[object]) -> int:
                slot = host.request_event()
                await operation
                answered = host.answer(slot)
                assert answered is not None and answered.dw0 == 0x040002
                return host.log(4, 4096).number(0, 4)

            assert await change(rig.target.add_namespace(NQN, ram(1 << 20))) == 2
            assert host.identify(0, 2).number(0, 8) == 256
            assert await change(rig.target.resize_namespace(NQN, 2, 1 << 21)) == 2
            assert host.identify(0, 2).number(0, 8) == 512
            assert await change(rig.target.remove_namespace(NQN, 2)) == 2
            assert host.identify(0, 2).data == bytes(4096)
            assert not rig.fake.closes, "no reconnect"
            assert not rig.fake.volumes[1].open

    run(main())


def test_resizing_to_nonsense_or_without_space_changes_nothing() -> None:
    async def main() -> None:
        async with Rig() as rig:
            before = state(rig)
            for size in (0, -4096, 4097):
                with pytest.raises(Invalid):
                    await rig.target.resize_namespace(NQN, 1, size)
            rig.fake.resize_fails = True
            with pytest.raises(MediumError, match=f"^{NQN} namespace 1: .* 1073741824 bytes: "):
                await rig.target.resize_namespace(NQN, 1, 1 << 30)
            with pytest.raises(NotFound):
                await rig.target.resize_namespace(NQN, 9, 4096)
            assert state(rig) == before

    run(main())


def test_a_namespace_that_cannot_be_flushed_stays() -> None:
    async def main() -> None:
        async with Rig() as rig:
            before = state(rig)
            rig.fake.results["flush"] = 5
            with pytest.raises(MediumError, match="Input/output error"):
                await rig.target.remove_namespace(NQN, 1)
            with pytest.raises(MediumError):
                await rig.target.remove_subsystem(NQN)
            assert state(rig) == before
            rig.fake.results = {"close": 28}
            with pytest.raises(MediumError, match="it stays"):
                await rig.target.remove_namespace(NQN, 1)
            assert state(rig) == before
            rig.fake.results = {}
            await rig.target.remove_namespace(NQN, 1)
            assert not rig.fake.maps

    run(main())


def test_removing_a_namespace_with_a_stalled_medium_ends_in_time() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.held = {"unmap": []}
            with pytest.raises(MediumError, match="has not finished"):
                await rig.target.remove_namespace(NQN, 1)
            assert asyncio.get_running_loop().time() >= 30
            rig.fake.release("unmap")
            await settle()
            assert not rig.fake.volumes[0].open and not rig.runtime.background

    run(main())


def test_removing_a_subsystem_disconnects_its_hosts() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host()
            host.connect_io(1)
            await rig.target.remove_subsystem(NQN)
            assert {number for number, _ in rig.fake.closes} == {host.admin, host.queues[1]}
            assert not rig.fake.maps and not rig.target.subsystems
            with pytest.raises(NotFound, match="no such subsystem"):
                await rig.target.remove_subsystem(NQN)
            await rig.target.add_subsystem(subsystem(NQN, 1))

    run(main())


def test_denying_a_host_closes_its_connections() -> None:
    async def main() -> None:
        async with Rig() as rig:
            one, two = rig.host(host="nqn.2026-11.a:1"), rig.host(host="nqn.2026-11.a:2")
            await rig.target.allow_host(NQN, "nqn.2026-11.a:1")
            await settle()
            closed = [number for number, _ in rig.fake.closes]
            assert closed == [two.admin], "the list counts from its first entry on"
            with pytest.raises(AlreadyExists):
                await rig.target.allow_host(NQN, "nqn.2026-11.a:1")
            await rig.target.deny_host(NQN, "nqn.2026-11.a:1")
            assert [number for number, _ in rig.fake.closes] == [two.admin, one.admin]
            answered = two.do(connect_sqe(), connect_data(), rig.open())
            assert answered.code == "1/84 DNR", "an emptied list lets nobody in"
            await rig.target.set_allow_any_host(NQN, True)
            assert two.do(connect_sqe(), connect_data(), rig.open()).code == "0/00"

    run(main())


def test_denying_means_nothing_while_any_host_may_connect() -> None:
    async def main() -> None:
        async with Rig() as rig:
            before = state(rig)
            with pytest.raises(Invalid, match="any host"):
                await rig.target.deny_host(NQN, HOST)
            with pytest.raises(Invalid):
                await rig.target.allow_host(NQN, "not an nqn")
            with pytest.raises(NotFound):
                await rig.target.deny_host(OTHER, HOST)
            assert state(rig) == before

    run(main())


def test_listeners_are_added_and_removed() -> None:
    async def main() -> None:
        async with Rig() as rig:
            one = await rig.target.add_listener(ListenerSettings(port=0))
            two = await rig.target.add_listener(ListenerSettings(address="::1", port=0))
            assert rig.target.listeners == [one, two]
            with pytest.raises(AlreadyExists):
                await rig.target.add_listener(ListenerSettings(port=one.port))
            with pytest.raises(NotFound, match="no such listener"):
                await rig.target.remove_listener("127.0.0.2", one.port)
            await rig.target.remove_listener(*one)
            assert rig.target.listeners == [two]
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(one)

    run(main())


def test_sockets_are_spread_over_reactors_and_refused_when_there_are_too_many(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        settings = settings_in(tmp_path, listeners=[ListenerSettings(port=0)], reactors=3)
        async with Rig(settings) as rig:
            rig.fake.capacity = 7
            clients = []
            for count in range(7):
                clients.append(socket.create_connection(rig.target.listeners[0]))
                await until(partial(has_adopted, rig, count + 1))
            assert [reactor for _, reactor in rig.fake.adopted] == [0, 1, 2, 0, 1, 2, 0]
            for number in (1001, 1004):
                rig.fake.close(number, False)
            await settle()
            rig.fake.capacity = 100
            clients.append(socket.create_connection(rig.target.listeners[0]))
            await until(partial(has_adopted, rig, 8))
            assert rig.fake.adopted[-1][1] == 0, "the one with the fewest"
            rig.fake.capacity = 0
            refused = socket.create_connection(rig.target.listeners[0])
            refused.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(refused, 1) == b""
            assert rig.target.stats()["connections_refused"] == 1
            for sock in (*clients, refused):
                sock.close()
            for fd, _ in rig.fake.adopted:
                socket.close(fd)

    asyncio.run(main())


def test_statistics_are_plain_json() -> None:
    async def main() -> None:
        async with Rig() as rig:
            host = rig.host(kato=5000)
            host.connect_io(3)

            report = json.loads(json.dumps(rig.target.stats()))
            (one,) = [s for s in report["subsystems"] if not s["discovery"]]
            assert one["namespaces"][0]["scheduler"]["classes"]["write"]["waiting"] == 2
            assert one["namespaces"][0]["size_bytes"] == 1 << 20
            (controller,) = one["controllers"]
            assert (controller["cntlid"], controller["kato_ms"]) == (1, 5000)
            assert [queue["qid"] for queue in controller["queues"]] == [0, 3]
            assert report["reactors"] and "tier" in report and "core" in report

    run(main())


def test_identifiers_survive_a_restart_and_follow_the_backing_file(tmp_path: Path) -> None:
    async def ids(*namespaces: NamespaceSettings) -> list[object]:
        settings = settings_in(tmp_path, SubsystemSettings(nqn=NQN, namespaces=list(namespaces)))
        async with Rig(settings) as rig:
            one = rig.target.subsystem(NQN)
            return [one.serial, *((n.uuid, n.nguid) for n in one.namespaces.values())]

    async def main() -> None:
        a, b = (NamespaceSettings(path=str(tmp_path / name), size=1 << 20) for name in "ab")
        serial, of_a, of_b = await ids(a, b)
        assert await ids(b, a) == [serial, of_b, of_a]
        assert of_a != of_b

    run(main())


def test_the_same_identifier_twice_is_refused() -> None:
    async def main() -> None:
        async with Rig() as rig:
            number = str(rig.target.subsystem(NQN).namespace(1).uuid)
            before = state(rig)
            with pytest.raises(AlreadyExists, match="uuid"):
                await rig.target.add_namespace(NQN, ram(uuid=number))
            assert state(rig)[0] == before[0]  # type: ignore[index]

    run(main())


def test_a_file_that_is_served_already_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        image = NamespaceSettings(path=str(tmp_path / "image"), size=1 << 20)
        async with Rig() as rig:
            nsid = await rig.target.add_namespace(NQN, image)
            again = NamespaceSettings(path=image.path)
            with pytest.raises(AlreadyExists, match=f"it is {NQN} namespace {nsid} already"):
                await rig.target.add_namespace(NQN, again)

    run(main())


def test_warnings_are_sentences() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.warnings = 0b111
            await rig.target.add_namespace(NQN, NamespaceSettings(path="/x", size=4096))
            assert len(rig.target.warnings) == 3
            assert all("/x" in warning for warning in rig.target.warnings)
            await rig.target.remove_namespace(NQN, rig.target.subsystem(NQN).free_nsid(0) - 1)
            assert rig.target.warnings == []

    run(main())


def test_operations_on_a_target_that_does_not_run(tmp_path: Path) -> None:
    async def main() -> None:
        target = Target(settings_in(tmp_path), FakeDataPath())
        with pytest.raises(Invalid, match="not running"):
            await target.add_namespace(NQN, ram())
        assert (await target.stop()).clean
        await target.start()
        with pytest.raises(AlreadyExists):
            await target.start()
        await target.stop()

    run(main())


def test_there_is_an_end_to_subsystems_and_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.add_subsystem(subsystem(OTHER, max_namespaces=1))
            await rig.target.add_namespace(OTHER, ram())
            with pytest.raises(Exhausted):
                await rig.target.add_namespace(OTHER, ram())
            with pytest.raises(Exhausted):
                await rig.target.add_subsystem(subsystem(OTHER + "2"))

    monkeypatch.setattr("prestage.target.target.MAX_SUBSYSTEMS", 2)
    run(main())


def test_a_real_default_needs_no_argument() -> None:
    assert Target(TargetSettings()).listeners == []


def test_operations_wait_for_one_another() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.held = {"flush": []}
            removal = asyncio.create_task(rig.target.remove_namespace(NQN, 1))
            await settle()
            addition = asyncio.create_task(rig.target.add_namespace(NQN, ram(nsid=1)))
            await settle()
            assert len(rig.fake.volumes) == 1, "the number is still taken"
            rig.fake.release("flush")
            await removal
            assert await addition == 1

    run(main())


def test_a_notice_for_nobody_is_no_harm() -> None:
    async def main() -> None:
        async with Rig() as rig:
            rig.fake.receive(CommandNotice(12345, 0, 0, bytes(64)))
            assert not rig.fake.answers

    run(main())
