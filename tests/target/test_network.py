from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from prestage.target import network
from prestage.target.network import Addresses, InterfaceAddress, Network, addresses_from

UP, DOWN = 0x1, 0x0
V4, V6 = socket.AF_INET, socket.AF_INET6
LINKS = [
    {"index": 1, "ifname": "lo", "flags": UP},
    {"index": 2, "ifname": "eth0", "flags": UP},
    {"index": 3, "ifname": "eth1", "flags": DOWN},
    {"index": 4, "ifname": "ppp0", "flags": UP},
]


def one(index: int, family: int, address: str | None, **more: Any) -> dict[str, Any]:
    return {"index": index, "family": family, "address": address, **more}


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (one(1, V4, "127.0.0.1", local="127.0.0.1"), ("lo", "127.0.0.1")),
        (one(2, V4, "10.0.2.15", local="10.0.2.15", flags=0x80), ("eth0", "10.0.2.15")),
        (one(2, V4, "10.0.2.16", local="10.0.2.16", flags=0x01), ("eth0", "10.0.2.16")),
        (one(4, V4, "10.8.0.2", local="10.8.0.1"), ("ppp0", "10.8.0.1")),
        (one(2, V6, "fd00::7", flags=0x80), ("eth0", "fd00::7")),
        (one(2, V6, "fe80::7"), ("eth0", "fe80::7")),
        (one(2, V6, "fd00::8", flags=0x01), None),
        (one(2, V6, "fd00::9", flags=0x40), None),
        (one(2, V6, "fd00::a", flags=0x48), None),
        (one(2, V6, "fd00::b", flags=0x20), None),
        (one(3, V4, "10.0.3.15", local="10.0.3.15"), None),
        (one(9, V4, "10.0.9.15", local="10.0.9.15"), None),
        (one(2, V4, None), None),
    ],
    ids=[
        "loopback", "permanent", "second of its subnet", "point to point", "v6", "link-local",
        "temporary", "tentative", "duplicate", "deprecated", "interface is down", "unknown link",
        "no address",
    ],
)  # fmt: skip
def test_what_of_netlinks_answer_hosts_can_use(
    message: dict[str, Any], found: tuple[str, str] | None
) -> None:
    expected = () if found is None else (InterfaceAddress(*found),)
    assert addresses_from(LINKS, [message]) == Addresses(expected, is_known=True)


MACHINE = Addresses(
    tuple(
        InterfaceAddress(*each)
        for each in (
            ("lo", "127.0.0.1"), ("lo", "::1"), ("eth0", "10.0.2.15"), ("eth0", "fd00::7"),
            ("eth0", "fe80::7"), ("eth1", "fe80::7"), ("eth1", "10.0.3.15"),
        )
    ),
    is_known=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("127.0.0.1", "lo"),
        ("127.9.9.9", "lo"),
        ("10.0.3.15", "eth1"),
        ("fe80::7%eth1", "eth1"),
        ("fd00:0:0::7", "eth0"),
        ("10.0.2.16", ""),
    ],
)
def test_the_interface_of_an_address(address: str, interface: str) -> None:
    assert MACHINE.interface_of(address) == interface


def test_a_wildcard_stands_for_what_people_can_type() -> None:
    assert MACHINE.behind("0.0.0.0") == ["10.0.2.15", "10.0.3.15", "127.0.0.1"]
    assert MACHINE.behind("::") == ["fd00::7", "::1"]
    assert Addresses().behind("::") == []


def test_an_interface_of_very_many_addresses_does_not_fill_a_log() -> None:
    many = [("eth0", "10.0.2.15"), *(("eth0", f"fd00::{n:x}") for n in range(1, 1000))]
    crowded = Addresses(tuple(InterfaceAddress(*each) for each in many), is_known=True)
    assert crowded.beside("10.0.2.15", 6) == [f"fd00::{n:x}" for n in range(1, 17)]


def test_this_machine_has_loopback_and_stopping_leaves_nothing_behind() -> None:
    async def main() -> None:
        here = Network()
        for _ in range(2):
            assert await here.start() is None
        assert InterfaceAddress("lo", "127.0.0.1") in here.addresses.all
        await here.stop()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


class Machine:
    """Stands for netlink: says when something changed, and fails when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = MACHINE
        self.events: asyncio.Queue[OSError | None] = asyncio.Queue()
        self.reads = 0
        self.forbidden: OSError | None = None
        monkeypatch.setattr(network, "read_addresses", self.read)
        monkeypatch.setattr(network, "subscribed", self.subscribed)
        monkeypatch.setattr(network, "RETRY_S", 0.0)

    async def read(self) -> Addresses:
        self.reads += 1
        return self.now

    async def change(self) -> None:
        event = await self.events.get()
        if event is not None:
            raise event

    @contextlib.asynccontextmanager
    async def subscribed(self) -> AsyncIterator[Callable[[], Any]]:
        if self.forbidden is not None:
            raise self.forbidden
        yield self.change


def test_only_a_real_change_is_told_and_lost_messages_are_made_up_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        machine, here, told = Machine(monkeypatch), Network(), []
        here.changed = lambda: told.append(here.addresses)
        assert await here.start() is None
        assert told == [MACHINE]

        async def after(event: OSError | None) -> None:
            reads = machine.reads
            machine.events.put_nowait(event)
            async with asyncio.timeout(20):
                while machine.reads == reads:  # noqa: ASYNC110 - it is what is waited for
                    await asyncio.sleep(0)
            await asyncio.sleep(0)

        await after(None)
        assert told == [MACHINE], "a message that changed nothing"
        machine.now = Addresses(MACHINE.all[:3], is_known=True)
        await after(None)
        assert told == [MACHINE, machine.now]
        machine.now = MACHINE
        await after(OSError("No buffer space available"))
        assert told[2:] == [MACHINE]
        assert "No buffer space" in caplog.text
        await here.stop()

    asyncio.run(main())


def test_forbidden_netlink_is_a_warning_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        machine, here = Machine(monkeypatch), Network()
        machine.forbidden = PermissionError(1, "Operation not permitted")
        said = await here.start()
        assert said is not None and "Operation not permitted" in said
        assert here.addresses == Addresses()
        await here.stop()

    asyncio.run(main())


def test_what_the_library_raises_without_permission_is_an_os_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pyroute2 = pytest.importorskip("pyroute2")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    async def main() -> None:
        monkeypatch.setattr(pyroute2.netlink.nlsocket.netns, "create_socket", refuse)
        said = await Network().start()
        assert said is not None and said.startswith("interface addresses are not known (")

    asyncio.run(main())
