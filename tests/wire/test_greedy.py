"""Hosts that hold what others need: they do not read, do not send, do not go on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.host import Controller
from nvme_tcp.queue import ready_queues

from .probing import SEED, Site, check_fresh_connection
from .running import MIB, NQN, RunningTarget

# What is judged here is ours: the bounds are a choice, and nvmet has no fused commands.
pytestmark = pytest.mark.usefixtures("target")

CONFIG = {"limits": {"stop_s": 12.0}}
MEMORY_KIB = 32 << 10


@pytest.fixture
def hosts(site: Site) -> Iterator[list[Controller]]:
    """Controllers that vanish at the end."""
    controllers: list[Controller] = []
    yield controllers
    for controller in controllers:
        controller.vanish()


def greedy(site: Site, hosts: list[Controller], io_queues: int = 1) -> Controller:
    """An enabled controller that takes in little."""
    controller = Controller(site.address, site.nqn, sqsize=127, receive_buffer=4096)
    del controller.queue_options["sqsize"]
    hosts.append(controller)
    controller.enable()
    for _ in range(io_queues):
        controller.add_queue(sqsize=127)
    return controller


def test_hosts_that_read_nothing_do_not_starve_others(site: Site, hosts: list[Controller]) -> None:
    data = nvme.sgl(nvme.SGL_TRANSPORT, MIB)
    for _ in range(20):
        queue = greedy(site, hosts).io[0]
        for cid in range(64):
            entry = nvme.block_command(nvme.READ, cid * 2048 % 131072, 2048, data=data)
            queue.connection.send(queue.capsule(nvme.with_cid(entry, cid)))
    check_fresh_connection(site)


def test_hosts_that_send_nothing_do_not_starve_others(site: Site, hosts: list[Controller]) -> None:
    data = nvme.sgl(nvme.SGL_TRANSPORT, MIB)
    for _ in range(13):
        queue = greedy(site, hosts).io[0]
        for cid in range(64):
            entry = nvme.block_command(nvme.WRITE, cid * 2048 % 131072, 2048, data=data)
            queue.connection.send(queue.capsule(nvme.with_cid(entry, cid)))
    with site.pair(1, timeout_s=12.0) as controller:
        controller.io[0].write(0, bytes(128 * 512), 512, in_capsule=False)


def test_admin_commands_without_their_data_do_not_starve_others(
    site: Site, hosts: list[Controller]
) -> None:
    entry = nvme.with_sgl(nvme.set_features(0x0E, 0), nvme.sgl(nvme.SGL_TRANSPORT, 8192))
    for _ in range(20):
        queue = greedy(site, hosts, 0).admin
        for cid in range(127):
            queue.connection.send(queue.capsule(nvme.with_cid(entry, cid)))
    check_fresh_connection(site)


def test_admin_commands_whose_data_waits_its_turn_are_all_done(site: Site) -> None:
    with site.pair(0) as controller:
        entry = nvme.with_sgl(nvme.set_features(0x0E, 0), nvme.sgl(nvme.SGL_TRANSPORT, 8))
        cids = [controller.admin.submit(entry, data=bytes(8), in_capsule=False) for _ in range(30)]
        assert all(controller.admin.wait(cid).is_ok for cid in cids)


def test_answers_that_nobody_reads_are_few_bytes(
    target: RunningTarget, site: Site, hosts: list[Controller]
) -> None:
    before = target.resources().rss_kib
    entry = nvme.with_sgl(nvme.get_log(1, MIB), nvme.sgl(nvme.SGL_TRANSPORT, MIB))
    for _ in range(4):
        queue = greedy(site, hosts, 0).admin
        for cid in range(127):
            queue.connection.send(queue.capsule(nvme.with_cid(entry, cid)))
    check_fresh_connection(site)
    grown = target.resources().rss_kib - before
    assert grown < MEMORY_KIB, f"{grown} KiB for answers that nobody reads"


def test_long_logs_in_a_row_come_whole(site: Site) -> None:
    with site.pair(0) as controller:
        effects = controller.get_log(5, 4096)
        entry = nvme.get_log(5, MIB)
        cids = [controller.admin.submit(entry, expected=MIB) for _ in range(8)]
        for cid in cids:
            assert controller.admin.wait(cid).data == effects.ljust(MIB, b"\0")


def test_first_of_a_pair_that_ended_is_no_ones_mate(site: Site) -> None:
    data = nvme.sgl(nvme.SGL_IN_CAPSULE, 512)
    first = nvme.with_cid(nvme.block_command(nvme.COMPARE, 0, 1, data=data, flags=0x41), 1)
    second = nvme.with_cid(nvme.block_command(nvme.WRITE, 0, 1, data=data, flags=0x42), 2)
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        queue.register(first)
        queue.connection.send(queue.capsule(first, bytes(512), data_digest=1))
        assert queue.wait(1).code == "0/22"
        # Its slot goes to a command that waits for data; what broke the pair must not end it.
        victim = queue.submit(
            nvme.block_command(nvme.WRITE, 8, 1), data=bytes(512), in_capsule=False
        )
        queue.wait_r2t()
        queue.register(second)
        queue.connection.send(queue.capsule(second, bytes(512)))
        assert queue.wait(2).code == "0/0a"
        queue.answer_r2t(queue.r2ts[0])
        assert queue.wait(victim).is_ok


def test_many_large_pairs_at_once_are_all_done(site: Site) -> None:
    # Firsts that held the memory which their seconds waited for would never end.
    payload = bytes(MIB)
    with ExitStack() as stack:
        queues = [stack.enter_context(site.pair(1)).io[0] for _ in range(24)]
        pairs = []
        for index, queue in enumerate(queues):
            for opcode, flags in ((nvme.COMPARE, 0x41), (nvme.WRITE, 0x42)):
                entry = nvme.block_command(opcode, index * 2048, 2048, flags=flags)
                pairs.append((queue, queue.submit(entry, data=payload, in_capsule=False)))
        while any(queue.in_flight for queue in queues):
            ready = ready_queues([queue for queue in queues if queue.in_flight], 10.0)
            assert ready, "pairs wait for one another"
            for queue in ready:
                queue.pump()
        for queue, cid in pairs:
            assert queue.wait(cid).code in ("ok", "2/85", "0/09")


def test_data_in_capsules_between_larger_writes_waits_for_nothing(site: Site) -> None:
    # Nothing behind a capsule can be read until its data has a place: what it waited for might be.
    with site.pair(1) as controller:
        queue = controller.io[0]
        cids = []
        for index in range(24):
            size = (MIB, 512, 64 << 10)[index % 3]
            flags = 0x42 if index % 3 == 1 else 0x40
            opcode = nvme.WRITE
            if index % 3 == 0 and index % 2:
                opcode, flags = nvme.COMPARE, 0x41  # Its second is of another size: no pair.
            entry = nvme.block_command(opcode, index * 2048, size // 512, flags=flags)
            cids.append(queue.submit(entry, data=bytes(size), in_capsule=size == 512))
        assert {queue.wait(cid).code for cid in cids} <= {"ok", "0/0a", "0/02"}


def test_namespace_shrinks_and_grows_under_commands_at_its_end(
    target: RunningTarget, site: Site
) -> None:
    target.rpc("prestage_bdev_create", name="elastic", media="ram", size=8 * MIB, block=512)
    nsid = target.rpc("nvmf_subsystem_add_ns", nqn=NQN, namespace={"bdev_name": "elastic"})
    rng = random.Random(SEED)
    sizes = [4 * MIB, 8 * MIB, 4 * MIB + 512, 5 * MIB - 512, 8 * MIB]
    zeroed = nvme.dsm_ranges([(8 * MIB // 512 - n, n) for n in (1, 100, 4000)])
    try:
        with site.pair(1) as controller:
            queue = controller.io[0]
            for size in sizes * 4:
                cids = []
                for _ in range(16):
                    slba = rng.choice((8, 5, 4)) * MIB // 512 - rng.choice((1, 8, 129, 2048))
                    blocks = rng.choice((1, 8, 128))
                    entry = nvme.block_command(nvme.WRITE, slba, blocks, nsid=nsid)
                    cids.append(queue.submit(entry, data=bytes(blocks * 512)))
                    entry = nvme.block_command(nvme.WRITE_ZEROES, slba, 2048, nsid=nsid)
                    cids.append(queue.submit(entry))
                    entry = nvme.sqe(nvme.DSM, nsid, cdw10=2, cdw11=4)
                    cids.append(queue.submit(entry, data=zeroed))
                    queue.pump()
                target.rpc("prestage_namespace_resize", nqn=NQN, nsid=nsid, size=size)
                assert {queue.wait(cid).code for cid in cids} <= {"ok", "0/80"}
                assert controller.block_count(nsid) == size // 512
    finally:
        target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=nsid)
        target.rpc("prestage_bdev_delete", name="elastic")


@pytest.mark.parametrize("opcode", [nvme.READ, nvme.WRITE])
def test_namespace_is_removed_although_a_host_does_not_go_on(
    target: RunningTarget, site: Site, hosts: list[Controller], opcode: int
) -> None:
    settings = {"name": f"m{opcode}", "media": "ram", "size": 64 * MIB}
    target.rpc("prestage_bdev_create", **settings)
    namespace = {"bdev_name": settings["name"]}
    nsid = target.rpc("nvmf_subsystem_add_ns", nqn=NQN, namespace=namespace)
    queue = greedy(site, hosts).io[0]
    data = nvme.sgl(nvme.SGL_TRANSPORT, MIB)
    for cid in range(16):
        entry = nvme.block_command(opcode, cid * 256, 256, nsid=nsid, data=data)
        queue.connection.send(queue.capsule(nvme.with_cid(entry, cid)))
    target.rpc("nvmf_subsystem_remove_ns", nqn=NQN, nsid=nsid)
    target.rpc("prestage_bdev_delete", name=settings["name"])
    queue.connection.expect_closed(2.0)
    check_fresh_connection(site)
