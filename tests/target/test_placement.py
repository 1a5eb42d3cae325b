from __future__ import annotations

import asyncio
import os
import random
import socket
from pathlib import Path

import pytest
from fake_data_path import NQN, FakeDataPath, settings_in, subsystem, until
from fake_network import FakeNetwork

from prestage.target.placement import (
    Arrival,
    Nic,
    Placement,
    choose,
    cpu_list,
    read_nic,
    read_nodes,
)
from prestage.target.settings import ListenerSettings
from prestage.target.target import Target


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,8,10-11\n", {0, 1, 8, 10, 11}),
        ("", set()),
        ("\n", set()),
        ("x", set()),
        ("3-1", set()),
        ("0-999999999", set()),
        ("-1", set()),
        ("1-2-3", set()),
    ],
)
def test_a_list_of_cpus(text: str, cpus: set[int]) -> None:
    assert cpu_list(text) == cpus


NEAR_0 = Nic(0, frozenset({0, 1, 2, 3}), is_device=True)
NEAR_1 = Nic(1, frozenset({4, 5, 6, 7}), is_device=True)
ALL = Nic(-1, frozenset(range(8)), is_device=True)
DUMB = Nic(-1, frozenset(), is_device=True)
LOOPBACK = Nic()
FOUR = (0, 1, 4, 5)
"""Two reactors on each of two nodes."""


@pytest.mark.parametrize(
    ("name", "pinned", "load", "arrival", "start", "of_queue", "expected"),
    [
        ("one reactor", (-1,), (7,), Arrival(), 0, None, (0, "load")),
        ("the least loaded", (-1, -1, -1), (2, 1, 3), Arrival(), 0, None, (1, "load")),
        ("in turn among equals", (-1, -1, -1), (1, 1, 1), Arrival(), 2, None, (2, "load")),
        ("from the start again", (-1, -1, -1), (1, 0, 1), Arrival(), 2, None, (1, "load")),
        ("node 0", FOUR, (5, 4, 0, 0), Arrival(NEAR_0), 0, None, (1, "node")),
        ("node 1", FOUR, (0, 0, 4, 5), Arrival(NEAR_1), 0, None, (2, "node")),
        ("one node is all", FOUR, (1, 1, 0, 1), Arrival(ALL), 0, None, (2, "load")),
        ("a card that does not tell", FOUR, (1, 1, 1, 0), Arrival(DUMB), 0, None, (3, "load")),
        ("no reactor is near", (4, 5), (1, 0), Arrival(NEAR_0), 0, None, (1, "load")),
        ("not pinned", (-1, -1), (1, 0), Arrival(NEAR_0, 0), 0, None, (1, "load")),
        ("the CPU of its packets", FOUR, (3, 3, 0, 0), Arrival(NEAR_0, 1), 0, None, (1, "cpu")),
        ("a quarter more", FOUR, (4, 5, 0, 0), Arrival(NEAR_0, 1), 0, None, (1, "cpu")),
        ("but no more", FOUR, (4, 6, 0, 0), Arrival(NEAR_0, 1), 0, None, (0, "node")),
        ("few are spread evenly", FOUR, (0, 1, 0, 0), Arrival(NEAR_0, 1), 0, None, (0, "node")),
        ("a far CPU", FOUR, (1, 1, 1, 1), Arrival(NEAR_0, 4), 1, None, (1, "node")),
        ("a CPU of no reactor", FOUR, (1, 1, 1, 1), Arrival(NEAR_0, 3), 0, None, (0, "node")),
        ("its queue", FOUR, (1, 1, 0, 0), Arrival(NEAR_0, -1, 9), 0, 1, (1, "queue")),
        ("its queue, too loaded", FOUR, (1, 2, 0, 0), Arrival(NEAR_0, -1, 9), 0, 1, (0, "node")),
        ("its queue, far", FOUR, (1, 1, 0, 0), Arrival(NEAR_0, -1, 9), 0, 2, (0, "node")),
        ("CPU before queue", FOUR, (1, 1, 0, 0), Arrival(NEAR_0, 0, 9), 0, 1, (0, "cpu")),
        ("loopback says nothing", FOUR, (1, 1, 1, 0), Arrival(LOOPBACK, 1), 0, 1, (3, "load")),
    ],
)
def test_the_choice(
    name: str,
    pinned: tuple[int, ...],
    load: tuple[int, ...],
    arrival: Arrival,
    start: int,
    of_queue: int | None,
    expected: tuple[int, str],
) -> None:
    assert choose(pinned, load, arrival, start=start, of_queue=of_queue) == expected, name


def test_no_reactor_of_a_node_gets_much_more_than_its_share() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    load, start = [0] * 4, 0
    for _ in range(400):
        arrival = Arrival(rng.choice([NEAR_0, NEAR_1]), rng.choice([0, 0, 0, 1, 4, 5]))
        reactor, _ = choose(FOUR, load, arrival, start=start)
        assert (reactor < 2) == (arrival.nic is NEAR_0)
        load[reactor] += 1
        start = reactor + 1
    for one, other in ((0, 1), (2, 3)):
        assert max(load[one], load[other]) <= min(load[one], load[other]) * 1.25 + 2, load


def make_device(root: Path, name: str, node: str | None, cpus: str | None) -> None:
    device = root / name / "device"
    device.mkdir(parents=True)
    if node is not None:
        (device / "numa_node").write_text(f"{node}\n")
    if cpus is not None:
        (device / "local_cpulist").write_text(f"{cpus}\n")


def test_cards_and_what_stands_over_them(tmp_path: Path) -> None:
    make_device(tmp_path, "eth0", "0", "0-3")
    make_device(tmp_path, "eth1", "1", "4-7")
    make_device(tmp_path, "eth2", "-1", "0-7")
    make_device(tmp_path, "eth3", None, None)
    for name, lower in {
        "lo": [], "veth0": [], "bond0": ["eth0", "eth1"], "vlan9": ["bond1"], "bond1": ["eth0"],
        "br0": ["veth0", "eth1"], "odd0": ["eth0", "eth3"], "loop0": ["loop0"],
    }.items():  # fmt: skip
        (tmp_path / name).mkdir()
        for each in lower:
            (tmp_path / name / f"lower_{each}").symlink_to(tmp_path / each)
    near = frozenset(range(4))
    assert read_nic("eth0", tmp_path) == Nic(0, near, is_device=True)
    assert read_nic("eth2", tmp_path) == Nic(-1, frozenset(range(8)), is_device=True)
    assert read_nic("eth3", tmp_path) == DUMB
    assert read_nic("bond0", tmp_path) == Nic(-1, frozenset(range(8)), is_device=True)
    assert read_nic("vlan9", tmp_path) == Nic(0, near, is_device=True)
    assert read_nic("br0", tmp_path) == NEAR_1
    assert read_nic("odd0", tmp_path) == DUMB
    for nothing in ("lo", "veth0", "loop0", "gone", "", "..", "a/b"):
        assert read_nic(nothing, tmp_path) == Nic()


def test_nodes_of_a_machine(tmp_path: Path) -> None:
    for node, cpus in {"node0": "0-1", "node1": "2,3"}.items():
        (tmp_path / node).mkdir()
        (tmp_path / node / "cpulist").write_text(cpus)
    (tmp_path / "possible").write_text("0-1")
    assert read_nodes(tmp_path) == {0: 0, 1: 0, 2: 1, 3: 1}
    assert read_nodes(tmp_path / "nothing") == {}


def test_a_receive_queue_stays_with_its_reactor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_device(tmp_path, "eth0", None, None)
    placement = Placement((0, 1), tmp_path)
    monkeypatch.setattr(
        "prestage.target.placement.incoming", lambda _, option, unknown: {49: -1, 56: 7}[option]
    )
    with socket.socket() as sock:
        assert placement.place(sock, "eth0", [8, 9]) == (0, "load")
        assert placement.place(sock, "eth0", [9, 8]) == (0, "queue")
        assert placement.place(sock, "eth0", [10, 8]) == (0, "queue")
        assert placement.place(sock, "eth0", [11, 8]) == (1, "load")
        assert placement.place(sock, "eth0", [8, 8]) == (1, "queue"), "it has moved"
    assert placement.chosen_by == {"cpu": 0, "queue": 3, "node": 0, "load": 2}


def test_only_pinned_reactors_need_to_know_the_card() -> None:
    assert not Placement.of(4, []).needs_interfaces
    assert not Placement.of(1, [0]).needs_interfaces
    assert Placement.of(2, [0, 1]).needs_interfaces
    assert Placement.of(3, [1]).pinned == (1, -1, -1)


class Pinned(FakeDataPath):
    """One whose reactors run on these processors, whatever was asked for; -1: on any."""

    cpus = (0, 1)

    def reactor_cpu(self, reactor: int) -> int:
        return self.cpus[reactor]


def test_the_statistics_show_where_connections_went_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})

    async def main() -> None:
        settings = settings_in(
            tmp_path, subsystem(NQN), listeners=[ListenerSettings(port=0)], reactors=2, cpus=[0, 1]
        )
        network = FakeNetwork(("lo", "127.0.0.1"))
        fake = Pinned()
        async with Target(settings, fake, network) as target:
            assert network.starts == 1
            clients = [socket.create_connection(target.listeners[0]) for _ in range(3)]
            await until(lambda: target.stats()["connections"] == 3)
            placement = target.stats()["placement"]
            assert placement["chosen_by"] == {"cpu": 0, "queue": 0, "node": 0, "load": 3}
            assert [one["cpu"] for one in placement["reactors"]] == [0, 1]
            fake.cpus = (0, -1)
            after = target.stats()["placement"]["reactors"]
            assert [one["cpu"] for one in after] == [0, -1], "as it is, not as it was asked for"
            assert sorted(one["connections"] for one in placement["reactors"]) == [1, 2]
            for client in clients:
                client.close()

    asyncio.run(main())
