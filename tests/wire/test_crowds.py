"""Many connections: made, broken off, left alone, forgotten. Nothing leaks, others are served."""

from __future__ import annotations

import os
import random
import resource
import time

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.connection import ConnectionClosed, RawConnection, Terminated, WireError
from nvme_tcp.host import Controller, open_queue
from nvme_tcp.queue import ready_queues

from .probing import SEED, Site, check_fresh_connection
from .running import RunningTarget, find

CONFIG = {"limits": {"handshake_s": 4.0, "connections": 1300, "discovery_keep_alive_s": 2.0}}
LEAK_KIB = 8 << 10
IDLE_S = float(os.environ.get("PRESTAGE_TEST_IDLE_S", "0"))
"""Resident memory may grow by this much over a test of repetitions, for caches that fill once."""


def scaled(site: Site, count: int) -> int:
    """Fewer repetitions against the emulated reference target."""
    return max(count // 20, 5) if site.is_reference else count


@pytest.fixture
def no_growth(running: RunningTarget | None, site: Site) -> object:
    """Resident memory after the test is what it was, but for LEAK_KIB."""
    if running is None:
        yield None
        return
    for _ in range(30):
        check_fresh_connection(site)
    before = running.at_rest()
    yield None
    after = running.settled(before)
    grown = after.rss_kib - before.rss_kib
    assert grown < LEAK_KIB, f"resident memory grew by {grown} KiB"


@pytest.mark.parametrize("fields", [{}, {"hpda": 1}, {"plen": 136}, {"digests": 3}])
def test_icreq_reset_at_a_random_byte(site: Site, no_growth: None, fields: dict[str, int]) -> None:
    # CVE-2023-5178: row A1. 250 times each of four ICReqs.
    rng = random.Random(SEED)
    raw = pdu.icreq(**fields)
    for _ in range(scaled(site, 250)):
        connection = RawConnection(site.address)
        connection.send(raw[: rng.randrange(len(raw) + 1)])
        connection.reset()
    check_fresh_connection(site)


def test_300_connect_and_disconnect_cycles(site: Site, no_growth: None) -> None:
    # Row C58.
    for turn in range(scaled(site, 300)):
        with site.pair(1, kato=10_000) as controller:
            controller.admin.submit(nvme.sqe(nvme.AER))
            block = controller.block_size()
            controller.io[0].read(turn % 16, 1, block)
            if turn % 3 == 0:
                controller.set_cc(nvme.CC_BASE | 1 | 1 << 14)
                controller.wait_csts(0xC, 8)
            if turn % 3 == 1:
                controller.vanish()


def test_1000_idle_connections(target: RunningTarget, site: Site) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    controllers: list[Controller] = []
    try:
        for _ in range(500):
            controller = Controller(site.address, site.nqn)
            controllers.append(controller)
            controller.enable()
            controller.add_queue()
        assert target.resources().connections >= 1000
        check_fresh_connection(site)
        # Idle longer than the handshake bound, which is not for connected queues: row C49.
        with site.raw() as silent:
            silent.expect_closed(20)
        time.sleep(IDLE_S)
        for controller in controllers[::50]:
            controller.io[0].read(0, 1, 512)
        # And all of them at once: none was forgotten.
        for controller in controllers:
            controller.io[0].submit(nvme.block_command(nvme.READ, 0, 1), expected=512)
        waiting = [controller.io[0] for controller in controllers]
        while waiting:
            ready = ready_queues(waiting, 10.0)
            assert ready, f"{len(waiting)} of {len(controllers)} queues are silent"
            for queue in ready:
                queue.pump(10.0)
            waiting = [queue for queue in waiting if queue.in_flight]
        assert all(one.io[0].completions.popitem()[1].is_ok for one in controllers)
    finally:
        for controller in controllers:
            controller.vanish()


def test_commands_under_way_are_counted(target: RunningTarget, site: Site) -> None:
    # What the checks after every test rely on.
    with site.pair(1) as controller:
        queue = controller.io[0]
        cids = [
            queue.submit(nvme.block_command(nvme.WRITE, 64 * n, 64), data=bytes(64 * 512))
            for n in range(3)
        ]
        while len(queue.r2ts) < len(cids):
            queue.wait_r2t(5)
        held = target.resources()
        assert held.transfers_in_use == 3
        assert held.frames_pinned >= 1
        for r2t in list(queue.r2ts):
            queue.answer_r2t(r2t)
        queue.answers_r2t = True
        assert all(queue.wait(cid).is_ok for cid in cids)


def test_connections_beyond_the_limit_are_refused_and_others_live(
    target: RunningTarget, site: Site
) -> None:
    with site.pair(1) as controller:
        extra: list[RawConnection] = []
        try:
            for _ in range(1400):
                try:
                    extra.append(RawConnection(site.address, timeout_s=2))
                except OSError:
                    break
            controller.io[0].read(0, 1, 512)
            # 1,300 are allowed, two are the controller's. Refusals come one after the other.
            least = len(extra) + 2 - 1300
            limit = time.monotonic() + 10
            while find(target.rpc("prestage_get_stats"), "connections_refused") < least:
                assert time.monotonic() < limit, f"{least} of {len(extra)} are too many"
                time.sleep(0.05)
        finally:
            for connection in extra:
                connection.reset()


def test_host_that_comes_back_at_once(site: Site) -> None:
    # Row A13: a host is killed and connects again, same names, same queue numbers.
    for _ in range(scaled(site, 100)):
        controller = Controller(site.address, site.nqn)
        controller.enable()
        controller.add_queue(1)
        controller.vanish()
    with site.pair(1) as controller:
        controller.io[0].read(0, 1, controller.block_size())


def test_queue_that_comes_back_is_taken_eventually(target: RunningTarget, site: Site) -> None:
    # An I/O connection is reset and its queue number connects again, or the association has ended.
    with site.pair(1) as controller:
        controller.io[0].connection.reset()
        for _ in range(100):
            try:
                queue = controller.open_io_queue(1)
                answer = controller.connect_io_queue(queue)
                queue.connection.close()
            except (ConnectionClosed, Terminated, OSError):
                continue
            if answer.is_ok or answer.code == "1/82":
                return
            assert answer.code == "0/0c", answer.text()
        raise AssertionError("the queue number stays taken")


def test_admin_connection_dies_and_its_io_connections_close(
    target: RunningTarget, site: Site
) -> None:
    # Row C62; nvmet leaves them open.
    for ending in ("close", "reset"):
        with site.pair(4) as controller, site.pair(1) as other:
            block = other.block_size()
            getattr(controller.admin.connection, ending)()
            for queue in controller.io:
                queue.connection.expect_closed(2.0)
            other.io[0].read(0, 1, block)


def test_controllers_whose_keep_alive_expires(target: RunningTarget, site: Site) -> None:
    # Row C50: 200 silent controllers with KATO 1 s, one that keeps alive, one without KATO.
    silent: list[Controller] = []
    with site.pair(1, kato=1000) as alive, site.pair(1) as free:
        try:
            for _ in range(200):
                controller = Controller(site.address, site.nqn, kato=1000)
                silent.append(controller)
                controller.enable()
                controller.add_queue()
                assert alive.admin.execute(nvme.sqe(nvme.KEEP_ALIVE)).is_ok
            waiting = [queue for one in silent for queue in one.queues()]
            for _ in range(400):
                assert alive.admin.execute(nvme.sqe(nvme.KEEP_ALIVE)).is_ok
                waiting = [queue for queue in waiting if not queue.connection.is_closed]
                if not waiting:
                    break
                _pause(alive, 0.05)
            assert not waiting, f"{len(waiting)} connections outlived their keep alive"
        finally:
            for controller in silent:
                controller.vanish()
        free.io[0].read(0, 1, 512)
        alive.io[0].read(0, 1, 512)


def _pause(controller: Controller, seconds: float) -> None:
    """Let time pass, watching that this controller's connections stay open meanwhile."""
    for queue in controller.queues():
        try:
            queue.connection.receive(seconds / 2)
        except WireError as end:
            assert not isinstance(end, (ConnectionClosed, Terminated)), end


def test_commands_do_not_extend_a_keep_alive_without_tbkas(site: Site) -> None:
    # KATO 2 s, then silence: closed after 2 s and before twice that and a grace.
    with site.pair(1, kato=2000) as controller:
        controller.admin.connection.expect_closed(8.0)


def test_discovery_controller_without_keep_alive_is_closed(
    target: RunningTarget, site: Site
) -> None:
    # Row C52: the specification's default (120 s) applies, here configured to 2 s.
    with site.pair(0, nqn=nvme.DISCOVERY_NQN) as controller:
        controller.admin.connection.expect_closed(8.0)


def test_subsystem_is_deleted_under_waiting_events(target: RunningTarget, site: Site) -> None:
    # Row D71: waiting AERs do not hold the deletion up, and the host is cut off.
    nqn = f"{site.nqn}-deleted"
    target.rpc("nvmf_create_subsystem", nqn=nqn, allow_any_host=True)
    with site.pair(1, nqn=nqn) as controller:
        for _ in range(4):
            controller.admin.submit(nvme.sqe(nvme.AER))
        target.rpc("nvmf_delete_subsystem", nqn=nqn)
        for queue in controller.queues():
            queue.connection.expect_closed(5.0)


def test_eight_fabrics_commands_at_once(site: Site) -> None:
    # Row B37.
    with site.admin() as controller:
        entries = [nvme.with_cid(nvme.property_get(nvme.CSTS), 300 + index) for index in range(8)]
        cids = [controller.admin.register(entry) for entry in entries]
        controller.admin.connection.send(b"".join(map(controller.admin.capsule, entries)))
        assert all(controller.admin.wait(cid).is_ok for cid in cids)


def test_queues_of_one_controller_up_to_its_limit(site: Site) -> None:
    with site.pair(0) as controller:
        granted = controller.admin.execute(nvme.set_features(7, 127 << 16 | 127)).dw0
        count = min(granted & 0xFFFF, granted >> 16) + 1
        for qid in range(1, min(count, 8 if site.is_reference else 128) + 1):
            controller.add_queue(qid, sqsize=15)
        for queue in controller.io:
            assert queue.execute(nvme.sqe(nvme.FLUSH, 1)).is_ok


def test_handshakes_at_once(site: Site) -> None:
    connections = [RawConnection(site.address) for _ in range(64)]
    try:
        for connection in connections:
            connection.send(pdu.icreq())
        for connection in connections:
            connection.initialized()
    finally:
        for connection in connections:
            connection.close()


def test_half_a_connect_does_not_hold_others_up(site: Site) -> None:
    queue = open_queue(site.address)
    try:
        raw = pdu.command(nvme.connect(qid=0, sqsize=31), nvme.connect_data(site.nqn))
        queue.connection.send(raw[:500])
        check_fresh_connection(site)
    finally:
        queue.connection.reset()
