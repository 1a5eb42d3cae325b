"""A host owes nothing while its data stands behind its own capsule, which waits for memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.connection import WireError
from nvme_tcp.queue import Queue, ready_queues

from .probing import Site
from .running import RunningTarget, find

HELD_S = 1.0
"""Less than the target waits for those who owe."""
CONFIG = {
    "tier": {"size": 256 << 10, "slot": 16 << 10},
    "limits": {"max_transfer": 64 << 10, "handshake_s": HELD_S / 2},
}
BLOCK = 512
MOST = (64 << 10) // BLOCK
"""Blocks of the largest Write."""
SLOT = (16 << 10) // BLOCK
SMALL = 8
"""Blocks that go in a capsule."""


def begin_write(queue: Queue, slba: int, blocks: int) -> int:
    """Submit a Write whose data waits for its R2T."""
    entry = nvme.block_command(nvme.WRITE, slba, blocks)
    return queue.submit(entry, data=b"n" * blocks * BLOCK, in_capsule=False)


def pair_at(index: int) -> int:
    """First block of a host's pair, which nothing else writes."""
    return 65536 + 1024 * index


@contextmanager
def hosts_with_pairs(site: Site, count: int) -> Iterator[list[tuple[Queue, list[int]]]]:
    """Hosts that hold all the memory there is: with a pair each, whose first's data has come, and
    whose second's is asked for and not sent."""
    with ExitStack() as stack:
        hosts = []
        for index in range(count):
            controller = stack.enter_context(site.pair(1, sqsize=31, digests=3, timeout_s=30.0))
            queue = controller.io[0]
            queue.answers_r2t = False
            slba = pair_at(index)
            compare = nvme.block_command(nvme.COMPARE, slba, SMALL, flags=0x41)
            write = nvme.block_command(nvme.WRITE, slba, SMALL, flags=0x42)
            cids = [
                queue.submit(compare, data=bytes(SMALL * BLOCK), in_capsule=True),
                queue.submit(write, data=b"n" * SMALL * BLOCK, in_capsule=False),
            ]
            hosts.append((queue, cids))
        queues = [queue for queue, _ in hosts]
        while ready := ready_queues(queues, 0.2):
            for queue in ready:
                queue.pump()
        assert 0 < sum(bool(queue.r2ts) for queue in queues) < count, "not all memory is held"
        yield hosts


@pytest.fixture
def queue(site: Site) -> Iterator[Queue]:
    # With data digests, so that no data is taken with its capsule, without memory of its own.
    with site.pair(1, sqsize=31, digests=3, timeout_s=20.0) as controller:
        assert controller.block_size() == BLOCK
        yield controller.io[0]


def count_ended(hosts: list[tuple[Queue, list[int]]]) -> int:
    """How many of them the target has ended by now."""
    ended = 0
    for queue, _ in hosts:
        try:
            while ready_queues([queue], 0.0):
                queue.pump(0.1)
        except (WireError, OSError):
            ended += 1
    return ended


def test_a_write_is_not_held_against_a_host_whose_data_has_come(site: Site, queue: Queue) -> None:
    queue.answers_r2t = False
    asked = begin_write(queue, 0, MOST)
    r2t = queue.wait_r2t()
    with hosts_with_pairs(site, 3) as owing:
        started = time.monotonic()
        behind = queue.submit(
            nvme.block_command(nvme.WRITE, MOST, SMALL), data=b"b" * SMALL * BLOCK, in_capsule=True
        )
        queue.answer_r2t(r2t)
        assert queue.wait(behind).is_ok
        assert queue.wait(asked).is_ok
        assert time.monotonic() - started > HELD_S, "nothing was held up"
        assert count_ended(owing) > 0
    assert queue.read(0, MOST, BLOCK) == b"n" * MOST * BLOCK
    assert queue.read(MOST, SMALL, BLOCK) == b"b" * SMALL * BLOCK


def test_a_pair_is_not_broken_while_its_first_waits_for_memory(site: Site, queue: Queue) -> None:
    old, new = b"o" * SMALL * BLOCK, b"p" * SMALL * BLOCK
    queue.write(0, old, BLOCK)
    with hosts_with_pairs(site, 4) as owing:
        started = time.monotonic()
        first, second = (
            queue.submit(
                nvme.block_command(opcode, 0, SMALL, flags=flags), data=data, in_capsule=True
            )
            for opcode, flags, data in ((nvme.COMPARE, 0x41, old), (nvme.WRITE, 0x42, new))
        )
        assert [queue.wait(cid).text() for cid in (first, second)] == ["ok", "ok"]
        assert time.monotonic() - started > HELD_S, "nothing was held up"
        assert count_ended(owing) > 0
    assert queue.read(0, SMALL, BLOCK) == new


@pytest.mark.parametrize("opcode", [nvme.WRITE, nvme.COMPARE])
def test_data_that_is_asked_for_leaves_room_for_capsules_before_it(site: Site, opcode: int) -> None:
    with ExitStack() as stack:
        hosts: list[tuple[Queue, list[int]]] = []
        for index in range(12):
            controller = stack.enter_context(site.pair(1, sqsize=31, digests=3, timeout_s=30.0))
            queue = controller.io[0]
            queue.answers_r2t = False
            hosts.append((queue, [begin_write(queue, 1024 * index, SLOT)]))
        queues = [queue for queue, _ in hosts]
        while ready := ready_queues(queues, 0.2):
            for queue in ready:
                queue.pump()
        # Over the end of a slot, so that it takes two.
        for index, (queue, cids) in enumerate(hosts):
            entry = nvme.block_command(opcode, 1024 * index + 16 * SLOT - SMALL, 2 * SMALL)
            cids.append(queue.submit(entry, data=bytes(2 * SMALL * BLOCK), in_capsule=True))
            queue.answers_r2t = True
            for r2t in queue.r2ts:
                queue.answer_r2t(r2t)
        for queue, cids in hosts:
            assert [queue.wait(cid).text() for cid in cids] == ["ok", "ok"]


def test_pairs_whose_second_sends_nothing_do_not_starve_others(site: Site, queue: Queue) -> None:
    with hosts_with_pairs(site, 8):
        queue.write(0, b"w" * MOST * BLOCK, BLOCK)
    assert queue.read(0, MOST, BLOCK) == b"w" * MOST * BLOCK


def test_hosts_whose_data_stands_behind_their_capsules_all_go_on(
    target: RunningTarget, site: Site, queue: Queue
) -> None:
    stalled = find(target.rpc("prestage_get_stats"), "connections_stalled")
    with hosts_with_pairs(site, 5) as hosts:
        behind = [
            owner.submit(
                nvme.block_command(nvme.WRITE, pair_at(index) + SMALL, SMALL),
                data=b"b" * SMALL * BLOCK,
                in_capsule=True,
            )
            for index, (owner, _) in enumerate(hosts)
        ]
        for owner, _ in hosts:
            owner.answers_r2t = True
            for r2t in owner.r2ts:
                owner.answer_r2t(r2t)
        for (owner, cids), cid in zip(hosts, behind, strict=True):
            assert [owner.wait(one).text() for one in cids] == ["ok", "ok"]
            assert owner.wait(cid).text() in ("ok", "0/22"), "to be sent again"
    for index in range(len(hosts)):
        assert queue.read(pair_at(index), SMALL, BLOCK) == b"n" * SMALL * BLOCK
    assert find(target.rpc("prestage_get_stats"), "connections_stalled") == stalled
