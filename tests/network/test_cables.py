"""Two hosts in namespaces of their own, and what happens when a cable is pulled."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.connection import Address, ProtocolError
from nvme_tcp.host import Controller, connected_queue_pair
from wire.running import NQN, RunningTarget

from .cables import Cables, Site, index_of
from .conftest import HOST_A, HOST_B, ONLY_A

pytestmark = pytest.mark.network
PORT = 4420
ENTRY = 1024
KATO_MS = 1000
GIVEN_UP_S = 2 * KATO_MS / 1000
"""A silent host is given up between 1.5 and 2 times its timeout."""
QUARTER = 32 << 10
LATE_S = 8.0
"""For a machine that does much else."""
DISCOVERY_EVENT = 0x70F002
NQNS = {"a": HOST_A, "b": HOST_B}


def way(site: Site, address: str) -> Address:
    """Where a host connects to; a link-local address is one of its only interface."""
    if not address.startswith("fe80"):
        return (address, PORT)
    with site.host.route() as route:
        return (address, PORT, 0, index_of(route, "nic"))


@contextlib.contextmanager
def connected(
    site: Site, address: str, *, nqn: str = NQN, queues: int = 1, kato: int = 0
) -> Iterator[Controller]:
    """A host of this site, connected; its sockets are in its namespace."""
    goal = way(site, address)
    host: dict[str, Any] = {"hostnqn": NQNS[site.name], "hostid": bytes([site.number]) * 16}
    with contextlib.ExitStack() as stack:
        with site.host.inside():
            controller = stack.enter_context(
                connected_queue_pair(goal, nqn, queues, kato=kato, **host)
            )
        yield controller


def check_io(controller: Controller, seed: int) -> None:
    """Write a block and read it back."""
    data = random.Random(seed).randbytes(512)
    controller.io[0].write(seed % 64, data, 512)
    assert controller.io[0].read(seed % 64, 1, 512) == data


def entries(controller: Controller) -> set[tuple[str, str]]:
    """The subsystems that discovery names, each with an address."""
    count = int.from_bytes(controller.get_log(0x70, 16)[8:16], "little")
    log = controller.get_log(0x70, ENTRY * (count + 1))
    found = set()
    for entry in (log[ENTRY * n : ENTRY * (n + 1)] for n in range(1, count + 1)):
        nqn, address = (entry[at : at + 256].rstrip(b"\0 ").decode() for at in (256, 512))
        assert entry[32:64].rstrip() == str(PORT).encode()
        assert entry[1] == (2 if ":" in address else 1), "ADRFAM"
        if nqn != nvme.DISCOVERY_NQN:
            found.add((nqn, address))
    return found


def visible(site: Site, addresses: list[str]) -> set[tuple[str, str]]:
    """What discovery should name for a host."""
    nqns = [NQN, ONLY_A] if site.name == "a" else [NQN]
    return {(nqn, address) for nqn in nqns for address in addresses}


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_host_discovers_and_reaches_both_wildcards(
    laid: Cables, target: RunningTarget, name: str
) -> None:
    site: Site = getattr(laid, name)
    link_local = laid.target.link_local(site.target_interface)
    for came_by, seen in (
        (site.ipv4, [site.ipv4, site.ipv6]),
        (site.ipv6, [site.ipv4, site.ipv6]),
        (link_local, [site.ipv4, link_local]),
    ):
        with connected(site, came_by, nqn=nvme.DISCOVERY_NQN, queues=0) as controller:
            found = entries(controller)
        assert found == visible(site, seen)
        for nqn, address in sorted(found):
            with connected(site, address, nqn=nqn) as controller:
                check_io(controller, 7)


def test_the_allow_list_is_by_name_wherever_a_host_comes_from(
    laid: Cables, target: RunningTarget
) -> None:
    with connected(laid.a, laid.a.ipv4, nqn=ONLY_A) as controller:
        check_io(controller, 1)
    with pytest.raises(ProtocolError, match="1/84"), connected(laid.b, laid.b.ipv6, nqn=ONLY_A):
        pass


def test_the_control_socket_and_the_statistics_say_what_hosts_reach(
    laid: Cables, target: RunningTarget
) -> None:
    found = target.rpc("nvmf_subsystem_get_listeners", nqn=NQN)
    assert [set(one["reached_by"]) for one in found] == [
        {laid.a.ipv4, laid.b.ipv4, "127.0.0.1"},
        {laid.a.ipv6, laid.b.ipv6, "::1"},
    ]
    with connected(laid.b, laid.b.ipv6):
        (one,) = [s for s in target.rpc("prestage_get_stats")["subsystems"] if s["nqn"] == NQN]
        queues = one["controllers"][0]["queues"]
        assert [queue["interface"] for queue in queues] == ["to-b", "to-b"]


def test_an_address_that_comes_and_goes_is_told_to_the_hosts_of_its_interface(
    laid: Cables, target: RunningTarget
) -> None:
    def genctr(controller: Controller) -> bytes:
        return controller.get_log(0x70, 16, rae=True)[:8]

    options = {"nqn": nvme.DISCOVERY_NQN, "queues": 0}
    with (
        connected(laid.a, laid.a.ipv4, **options) as near,  # type: ignore[arg-type]
        connected(laid.b, laid.b.ipv4, **options) as far,  # type: ignore[arg-type]
    ):
        both = [near, far]
        for each in both:
            assert each.admin.execute(nvme.set_features(0x0B, 1 << 31)).is_ok
        before = [genctr(each) for each in both]
        requests = [each.admin.submit(nvme.sqe(nvme.AER)) for each in both]
        for change in (laid.target.add_address, laid.target.remove_address):
            change(laid.a.target_interface, "fd77:9::1/64")
            assert near.admin.wait(requests[0], LATE_S).dw0 == DISCOVERY_EVENT
            found = entries(near)
            is_there = change == laid.target.add_address
            assert ((NQN, "fd77:9::1") in found) == is_there
            requests[0] = near.admin.submit(nvme.sqe(nvme.AER))
        after = [genctr(each) for each in both]
        assert after[0] != before[0]
        assert after[1] == before[1] and requests[1] in far.admin.in_flight


class Busy:
    """A host that reads, writes and keeps alive in a thread until it is told to end."""

    def __init__(self, controller: Controller, seed: int) -> None:
        self.controller, self.seed = controller, seed
        self.rounds = 0
        self.error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        rng = random.Random(self.seed)
        try:
            while not self._over.is_set():
                check_io(self.controller, rng.randrange(1 << 20))
                assert self.controller.admin.execute(nvme.sqe(nvme.KEEP_ALIVE)).is_ok
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread
            self.error = error

    def end(self) -> None:
        """It was served all the time."""
        self._over.set()
        self._thread.join(20)
        assert self.error is None and not self._thread.is_alive(), self.error


def controllers(target: RunningTarget) -> list[str]:
    """The host NQNs of the controllers of the subsystem for all."""
    (one,) = [s for s in target.rpc("prestage_get_stats")["subsystems"] if s["nqn"] == NQN]
    return [each["host_nqn"] for each in one["controllers"]]


def begin_writes(host: Controller) -> None:
    """Four writes whose first quarter has arrived and whose rest will not."""
    queue = host.io[0]
    for number in range(4):
        write = nvme.block_command(nvme.WRITE, 64 + 256 * number, 256)
        queue.submit(write, data=bytes(QUARTER * 4), in_capsule=False)
    asked = [queue.wait_r2t(LATE_S) for _ in range(4)]
    for r2t in asked:
        piece = pdu.h2c_data(r2t.u16(8), r2t.u16(10), 0, bytes(QUARTER), last=False)
        queue.connection.send(piece)


def begin_reads(host: Controller) -> None:
    """More than the buffers of both kernels hold, and the host does not read it."""
    for number in range(24):
        read = nvme.block_command(nvme.READ, 2048 * number, 2048)
        host.io[1].submit(read, expected=1 << 20)


def wait_until(condition: Callable[[], bool], within_s: float, otherwise: str) -> None:
    """Look again and again."""
    limit = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < limit, otherwise
        time.sleep(0.02)


def can_connect(site: Site) -> bool:
    """Whether a host reaches the target now."""
    try:
        with connected(site, site.ipv4):
            return True
    except OSError:
        return False


def test_a_cable_that_is_cut_amid_transfers_ends_that_host_alone(
    laid: Cables, target: RunningTarget
) -> None:
    with connected(laid.b, laid.b.ipv6, kato=KATO_MS) as other:
        busy = Busy(other, 11)
        before = target.resources()
        with connected(laid.a, laid.a.ipv4, queues=2, kato=KATO_MS) as lost:
            begin_writes(lost)
            begin_reads(lost)
            wait_until(
                lambda: target.resources().transfers_in_use >= 5, LATE_S, "the reads all left"
            )
            laid.pull(laid.a)
            r2t = lost.io[0].r2ts[0]
            rest = pdu.h2c_data(r2t.u16(8), r2t.u16(10), QUARTER, bytes(QUARTER * 3), last=True)
            assert lost.io[0].connection.socket.send(rest) > 0, "as far as the kernel takes it"
            assert HOST_A in controllers(target), "nobody can know yet"
            wait_until(
                lambda: HOST_A not in controllers(target),
                GIVEN_UP_S + LATE_S,
                "the lost host is never given up",
            )
            # Nothing is left of it, although nobody acknowledges what was sent.
            target.settled(before, LATE_S)
            rounds = busy.rounds
            wait_until(lambda: busy.rounds > rounds + 3, LATE_S, f"the other waits: {busy.error}")
            laid.plug(laid.a)
            # The host's kernel may have no route for a moment; hosts try again.
            wait_until(lambda: can_connect(laid.a), LATE_S, "it cannot come back")
            with connected(laid.a, laid.a.ipv4, kato=KATO_MS) as again:
                check_io(again, 3)
                wait_until(
                    lambda: sorted(controllers(target)) == [HOST_A, HOST_B], LATE_S, "others linger"
                )
            for queue in lost.queues():
                queue.connection.expect_closed(LATE_S)
        busy.end()


def test_a_cable_that_is_out_for_less_than_the_timeout_is_not_noticed(
    laid: Cables, target: RunningTarget
) -> None:
    with (
        connected(laid.a, laid.a.ipv6, kato=10_000) as host,
        connected(laid.a, laid.a.ipv4, nqn=nvme.DISCOVERY_NQN, queues=0) as watcher,
    ):
        assert watcher.admin.execute(nvme.set_features(0x0B, 1 << 31)).is_ok
        event = watcher.admin.submit(nvme.sqe(nvme.AER))
        before = watcher.get_log(0x70, 16, rae=True)
        data = random.Random(5).randbytes(64 << 10)
        laid.pull(laid.a)
        write = host.io[0].submit(
            nvme.block_command(nvme.WRITE, 0, 128), data=data, in_capsule=False
        )
        time.sleep(0.5)  # Out: nothing can happen that one could wait for.
        laid.plug(laid.a)
        assert host.io[0].wait(write, LATE_S).is_ok
        assert host.io[0].read(0, 128, 512) == data
        assert host.admin.execute(nvme.sqe(nvme.KEEP_ALIVE)).is_ok
        assert watcher.get_log(0x70, 16, rae=True) == before
        assert event in watcher.admin.in_flight
    assert "keep-alive timeout of 10000 ms" not in target.said()
