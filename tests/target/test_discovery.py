from __future__ import annotations

from pathlib import Path

import pytest
from fake_data_path import (
    DISCOVERY,
    HOST,
    NQN,
    Answered,
    Host,
    Rig,
    run,
    settings_in,
    subsystem,
)
from fake_network import FakeNetwork

from prestage.target.discovery import Port
from prestage.target.network import Addresses
from prestage.target.settings import ListenerSettings, TargetSettings

DISCOVERY_EVENT = 0x70F002
OTHER = "nqn.2026-11.io.prestage:other"
LOOPBACK = ListenerSettings(address="127.0.0.1", port=0)


def discoverer(rig: Rig, host: str = HOST) -> Host:
    found = rig.host(DISCOVERY, host)
    found.set_feature(0x0B, 1 << 31)
    return found


def genctr(host: Host) -> int:
    return host.log(0x70, 20, rae=1).number(0, 8)


def nqns(page: Answered) -> list[str]:
    count = page.number(8, 8)
    names = [page.data[1024 * n + 256 : 1024 * n + 512] for n in range(1, count + 1)]
    found = [name.rstrip(b"\0").decode() for name in names]
    assert found[0] == DISCOVERY, "the log begins with the subsystem that it is of"
    return [name for name in found if name != DISCOVERY]


def test_the_log_field_by_field(tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_in(tmp_path, subsystem(NQN), listeners=[LOOPBACK])
        async with Rig(settings) as rig:
            page = discoverer(rig).log(0x70, 3072)
            assert page.number(8, 8) == 2, "NUMREC"
            assert page.number(16, 2) == 0, "RECFMT"
            itself, entry = page.data[1024:2048], page.data[2048:]
            assert itself[2] == 3, "SUBTYPE: the current discovery subsystem"
            assert itself[256:512] == DISCOVERY.encode().ljust(256, b"\0")
            assert itself[512:768] == entry[512:768] and itself[32:64] == entry[32:64]
            assert entry[0] == 3, "TRTYPE: TCP"
            assert entry[1] == 1, "ADRFAM: IPv4"
            assert entry[2] == 2, "SUBTYPE: NVM subsystem"
            assert entry[3] == 4, "TREQ: SQ flow control may be disabled"
            assert entry[4:6] == b"\1\0", "PORTID"
            assert entry[6:8] == b"\xff\xff", "CNTLID"
            assert int.from_bytes(entry[8:10], "little") == 128, "ASQSZ"
            port = rig.target.listeners[0].port
            assert entry[32:64] == str(port).encode().ljust(32), "TRSVCID"
            assert entry[256:512] == NQN.encode().ljust(256, b"\0"), "SUBNQN"
            assert entry[512:768] == b"127.0.0.1".ljust(256), "TRADDR"
            assert entry[768] == 0, "SECTYPE: no TLS"

    run(main())


def test_pieces_of_a_long_log_make_the_whole(tmp_path: Path) -> None:
    async def main() -> None:
        many = [subsystem(f"{NQN}:{n:03}") for n in range(200)]
        async with Rig(settings_in(tmp_path, *many, listeners=[LOOPBACK])) as rig:
            host = discoverer(rig)
            count = host.log(0x70, 1024, rae=1).number(8, 8)
            assert count == 201
            size = 1024 * (count + 1)
            whole = host.log(0x70, size, rae=1).data
            for step in (260, 1024, 4096):
                pieces = [
                    host.log(0x70, step, offset=at, rae=1).data for at in range(0, size, step)
                ]
                joined = b"".join(pieces)
                assert joined[:size] == whole and not any(joined[size:])
            assert host.log(0x70, 4096, offset=size, rae=1).data == bytes(4096)
            assert host.log(0x70, 1024, offset=size + 4, rae=1).code == "0/02 DNR"
            assert host.log(0x70, 1024, offset=1 << 30, rae=1).code == "0/02 DNR"
            assert host.log(0x70, 1024, offset=2, rae=1).code == "0/02 DNR"

    run(main())


def test_a_host_sees_only_what_it_may_connect_to(tmp_path: Path) -> None:
    async def main() -> None:
        closed = subsystem(OTHER, hosts=["nqn.2026-11.io.prestage:somebody"])
        settings = settings_in(tmp_path, subsystem(NQN), closed, listeners=[LOOPBACK])
        async with Rig(settings) as rig:
            assert nqns(discoverer(rig).log(0x70, 4096)) == [NQN]
            somebody = discoverer(rig, "nqn.2026-11.io.prestage:somebody")
            assert nqns(somebody.log(0x70, 4096)) == [OTHER, NQN]

    run(main())


def test_the_generation_moves_only_when_the_view_of_that_host_changes() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.add_listener(LOOPBACK)
            host = discoverer(rig)
            slot = host.request_event()
            before = genctr(host)
            await rig.target.add_subsystem(subsystem(OTHER, hosts=["nqn.2026-11.a:b"]))
            await rig.target.allow_host(OTHER, "nqn.2026-11.a:c")
            await rig.target.deny_host(OTHER, "nqn.2026-11.a:c")
            await rig.target.add_namespace(NQN, subsystem(NQN, 1).namespaces[0])
            assert genctr(host) == before, "nothing of that is in its view"
            assert host.answer(slot) is None
            await rig.target.allow_host(OTHER, HOST)
            assert genctr(host) != before
            answered = host.answer(slot)
            assert answered is not None and answered.dw0 == DISCOVERY_EVENT
            assert nqns(host.log(0x70, 4096)) == [OTHER, NQN]

    run(main())


@pytest.mark.parametrize("change", ["subsystem", "listener", "removal", "any"])
def test_every_visible_change_is_an_event(change: str) -> None:
    async def main() -> None:
        async with Rig() as rig:
            target = rig.target
            await target.add_listener(LOOPBACK)
            await target.add_subsystem(subsystem(OTHER))
            host = discoverer(rig)
            slot, before = host.request_event(), genctr(host)
            if change == "subsystem":
                await target.add_subsystem(subsystem(f"{NQN}:more"))
            elif change == "listener":
                await target.add_listener(LOOPBACK)
            elif change == "removal":
                await target.remove_subsystem(OTHER)
            else:
                await target.set_allow_any_host(OTHER, False)
            answered = host.answer(slot)
            assert answered is not None and answered.dw0 == DISCOVERY_EVENT
            assert genctr(host) != before

    run(main())


def test_entries_and_header_agree_while_the_configuration_changes() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.add_listener(LOOPBACK)
            host = discoverer(rig)
            seen: dict[int, list[str]] = {}
            for number in range(20):
                page = host.log(0x70, 1024 * 30, rae=1)
                names = nqns(page)
                assert seen.setdefault(page.number(0, 8), names) == names
                assert len(names) == number + 1
                assert not any(page.data[1024 * (len(names) + 2) :])
                await rig.target.add_subsystem(subsystem(f"{NQN}:{number}"))
            assert len(seen) == 20

    run(main())


MACHINE = FakeNetwork()
MACHINE.say(
    ("lo", "127.0.0.1"),
    ("lo", "::1"),
    ("lo", "192.0.2.99"),
    ("eth0", "10.0.2.15"),
    ("eth0", "fd00::7"),
    ("eth0", "fe80::7"),
    ("eth1", "10.0.3.15"),
    ("eth1", "fe80::8"),
)


@pytest.mark.parametrize(
    ("listener", "local", "reported"),
    [
        ("127.0.0.1", "127.0.0.1", ["127.0.0.1"]),
        ("0.0.0.0", "127.0.0.1", ["127.0.0.1"]),
        ("0.0.0.0", "10.0.2.15", ["10.0.2.15"]),
        ("0.0.0.0", "203.0.113.1", ["203.0.113.1"]),
        ("::", "::1", ["::1"]),
        ("::", "fd00::7", ["fd00::7"]),
        ("::", "fe80::7%eth0", ["fe80::7"]),
        ("::", "10.0.2.15", ["fd00::7"]),
        ("::", "10.0.3.15", []),
        ("::", "127.0.0.1", ["::1"]),
        ("::", "127.0.0.7", ["::1"]),
        ("::", "192.0.2.99", []),
        ("::", "203.0.113.1", []),
        ("0.0.0.0", "::1", ["127.0.0.1"]),
        ("0.0.0.0", "fd00::7", ["10.0.2.15"]),
        ("0.0.0.0", "fe80::7%eth0", ["10.0.2.15"]),
        ("0.0.0.0", "fe80::8%eth1", ["10.0.3.15"]),
        ("127.0.0.1", "10.0.2.15", []),
        ("::1", "fd00::7", []),
        ("10.0.2.15", "127.0.0.1", ["10.0.2.15"]),
        ("10.0.2.15", "fd00::7", ["10.0.2.15"]),
        ("fe80::7%eth0", "fe80::7%eth0", ["fe80::7"]),
    ],
)
def test_the_reported_address_is_one_the_host_can_use(
    listener: str, local: str, reported: list[str]
) -> None:
    port = Port(1, listener, 4420)
    assert port.reached_from(local, MACHINE.addresses) == reported
    # Where nobody knows the interfaces, nothing else than what the host has used is said.
    is_guess = listener in ("0.0.0.0", "::") and (":" in listener) != (":" in local)
    assert port.reached_from(local, Addresses()) == ([] if is_guess else reported)


def wildcards(tmp_path: Path) -> TargetSettings:
    listeners = [ListenerSettings(address=a, port=0) for a in ("0.0.0.0", "::")]
    return settings_in(tmp_path, subsystem(NQN), listeners=listeners)


def addresses(page: Answered) -> list[str]:
    count = page.number(8, 8)
    found = [page.data[1024 * n + 512 : 1024 * n + 768] for n in range(1, count + 1)]
    return [address.rstrip(b" ").decode() for address in found]


def came_by(rig: Rig, local: str, host: str = HOST) -> Host:
    """A host of the discovery controller that connected to an address of its own choice."""
    found = Host(rig, DISCOVERY, host)
    rig.runtime.connections[found.admin].local = (local, 4420)
    found.connect().enable().set_feature(0x0B, 1 << 31)
    return found


def test_a_wildcard_is_never_reported_literally(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(wildcards(tmp_path)) as rig:
            page = came_by(rig, "::1").log(0x70, 5120)
            assert addresses(page) == ["127.0.0.1", "::1"] * 2
            assert [page.data[1024 * n + 1] for n in (1, 2)] == [1, 2], "ADRFAM"
            assert [page.data[1024 * n + 4] for n in (1, 2)] == [1, 2], "PORTID"

    run(main())


def test_addresses_that_come_and_go_are_told_to_those_who_see_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(wildcards(tmp_path)) as rig:
            assert rig.network.starts
            before: list[tuple[str, str]] = [("lo", "127.0.0.1"), ("eth0", "10.0.2.15")]
            rig.network.say(*before)
            near, far = came_by(rig, "10.0.2.15"), came_by(rig, "127.0.0.1", f"{HOST}:far")
            events = near.request_event(), far.request_event()
            numbers = genctr(near), genctr(far)
            rig.network.say(*before, ("eth0", "fd00::7"), ("eth1", "10.9.9.9"))
            answered = near.answer(events[0])
            assert answered is not None and answered.dw0 == DISCOVERY_EVENT
            assert far.answer(events[1]) is None and genctr(far) == numbers[1]
            assert genctr(near) != numbers[0]
            assert addresses(near.log(0x70, 5120)) == ["10.0.2.15", "fd00::7"] * 2
            again, number = near.request_event(), genctr(near)
            rig.network.say(*before, ("eth1", "10.9.9.10"), ("eth0", "fd00::7"))
            assert near.answer(again) is None and genctr(near) == number
            rig.network.say(*before)
            assert near.answer(again) is not None and genctr(near) != number

    run(main())


def test_one_host_sees_by_each_way_what_that_way_leads_to(tmp_path: Path) -> None:
    async def main() -> None:
        async with Rig(wildcards(tmp_path)) as rig:
            one, other = came_by(rig, "10.0.2.15"), came_by(rig, "10.0.3.15")
            events, numbers = [one.request_event(), other.request_event()], genctr(one)
            rig.network.say(("eth0", "10.0.2.15"), ("eth1", "10.0.3.15"), ("eth1", "fd00::8"))
            assert one.answer(events[0]) is None and genctr(one) == numbers
            assert other.answer(events[1]) is not None
            assert addresses(one.log(0x70, 4096)) == ["10.0.2.15"] * 2
            assert addresses(other.log(0x70, 5120)) == ["10.0.3.15", "fd00::8"] * 2

    run(main())


def test_interfaces_are_looked_at_only_for_a_wildcard_and_why_not_is_a_warning() -> None:
    async def main() -> None:
        async with Rig() as rig:
            await rig.target.add_listener(LOOPBACK)
            assert rig.network.starts == 0
            rig.network.warning = "interface addresses are not known"
            for address in ("0.0.0.0", "::"):
                await rig.target.add_listener(ListenerSettings(address=address, port=0))
            assert rig.target.warnings == ["interface addresses are not known"]
            assert rig.target.reached_by("127.0.0.1") == ["127.0.0.1"]
            assert rig.target.reached_by("0.0.0.0") == []

    run(main())


def test_forgotten_hosts_get_a_fresh_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Rig() as rig:
            discovery = rig.runtime.discovery
            assert discovery is not None
            first = discovery.generation("nqn.a", "")
            assert discovery.generation("nqn.a", "") == first
            for number in range(20):
                discovery.generation(f"nqn.b{number}", "")
            assert len(discovery._generations) == 10
            assert discovery.generation("nqn.a", "") > first

    monkeypatch.setattr("prestage.target.discovery.HOSTS_REMEMBERED", 10)
    run(main())
