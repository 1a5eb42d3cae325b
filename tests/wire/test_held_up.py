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


@contextmanager
def hosts_that_owe(site: Site) -> Iterator[list[Queue]]:
    """Hosts that have asked to write all that the target has memory for, and send nothing."""
    with ExitStack() as stack:
        queues = []
        for index in range(6):
            controller = stack.enter_context(site.pair(1, sqsize=31))
            queue = controller.io[0]
            queue.answers_r2t = False
            for turn in range(16):
                begin_write(queue, 8192 * (index + 1) + turn * SLOT, SLOT)
            queues.append(queue)
        while ready := ready_queues(queues, 0.2):
            for queue in ready:
                queue.pump()
        assert any(queue.r2ts for queue in queues)
        yield queues


@pytest.fixture
def queue(site: Site) -> Iterator[Queue]:
    # With data digests, so that no data is taken with its capsule, without memory of its own.
    with site.pair(1, sqsize=31, digests=3, timeout_s=20.0) as controller:
        assert controller.block_size() == BLOCK
        yield controller.io[0]


def count_ended(queues: list[Queue]) -> int:
    """How many of them the target has ended by now."""
    ended = 0
    for queue in queues:
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
    with hosts_that_owe(site) as owing:
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
    with hosts_that_owe(site) as owing:
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
