"""The dated read: a Read, whatever its deadline, priority and session are."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import hints
from nvme_tcp.commands import Completion
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from . import hinting
from .hinting import BLOCK
from .probing import SEED, Site, turns
from .running import MIB, NQN, RunningTarget

SLOW = 3
FAILING = 4
CONFIG: dict[str, Any] = {
    "tier": {"size": 16 * MIB},
    "subsystems": [
        {
            "nqn": NQN,
            "namespaces": [
                {"media": "ram", "size": 64 * MIB, "block": BLOCK},
                {"media": "ram", "size": 16 * MIB, "block": 4096},
                {"media": "ram", "size": 16 * MIB, "block": BLOCK, "faults": ["stall:after=0"]},
                {
                    "media": "ram",
                    "size": 16 * MIB,
                    "block": BLOCK,
                    "faults": ["error:op=read,errno=EIO,rate=1"],
                },
            ],
        }
    ],
}
ENDS = ("met", "late", "cancelled")


@pytest.fixture
def controller(site: Site, target: RunningTarget) -> Iterator[Controller]:
    """One controller with one I/O queue of 32 entries."""
    target.media_control("stall", "release", nsid=SLOW)
    with site.pair(1) as connected:
        yield connected


@pytest.fixture
def queue(controller: Controller) -> Queue:
    """Its I/O queue."""
    return controller.io[0]


def as_dated(rng: random.Random, entry: bytes) -> bytes:
    """The Read `entry` as a dated read with anything in the fields that are its own."""
    head = bytes([hints.DATED_READ]) + entry[1:8] + rng.randbytes(8)
    deadline_us = rng.choice((0, 1, 100, 10_000, 1_000_000, 0xFFFFFFFF))
    return head + entry[16:56] + struct.pack("<II", deadline_us, rng.randrange(4))


def counted(queue: Queue, priority: int) -> dict[str, int]:
    """The dated reads of a priority."""
    return hinting.status(queue).reads[priority]


def test_bytes_are_those_of_a_read(queue: Queue) -> None:
    rng = random.Random(SEED)
    area = 2 * MIB // BLOCK
    data = rng.randbytes(area * BLOCK)
    for at in range(0, area, 1024):
        queue.write(at, data[at * BLOCK : (at + 1024) * BLOCK], BLOCK)
    for turn in range(turns("PRESTAGE_TEST_COMMANDS", 300)):
        blocks = rng.choice((1, 2, 7, 8, 128, 513, 1024))
        slba = rng.randrange(area - blocks + 1)
        entry = nvme.block_command(nvme.READ, slba, blocks, dsm=rng.randrange(256))
        answer = queue.execute(as_dated(rng, entry), expected=blocks * BLOCK)
        assert answer.text() == "ok", f"seed {SEED}, turn {turn}"
        right = data[slba * BLOCK : (slba + blocks) * BLOCK]
        assert answer.data == right, f"seed {SEED}, turn {turn}"


def wrong_reads() -> list[tuple[str, bytes, int]]:
    """Reads that are refused: name, entry, and the length that their SGL gives."""
    most = 64 * MIB // BLOCK
    read = nvme.block_command
    return [
        ("beyond the end", read(nvme.READ, most, 1), BLOCK),
        ("across the end", read(nvme.READ, most - 1, 2), 2 * BLOCK),
        ("far beyond", read(nvme.READ, (1 << 64) - 1, 1), BLOCK),
        ("beyond MDTS", read(nvme.READ, 0, 65536), 65536 * BLOCK),
        ("too short an SGL", read(nvme.READ, 0, 8), 7 * BLOCK),
        ("too long an SGL", read(nvme.READ, 0, 8), 9 * BLOCK),
        ("no namespace", read(nvme.READ, 0, 1, nsid=55), BLOCK),
        ("every namespace", read(nvme.READ, 0, 1, nsid=0xFFFFFFFF), BLOCK),
        ("PRP", read(nvme.READ, 0, 1, flags=0), BLOCK),
        ("fused", read(nvme.READ, 0, 1, flags=0x41), BLOCK),
        ("a failing medium", read(nvme.READ, 0, 1, nsid=FAILING), BLOCK),
    ]


@pytest.mark.parametrize("case", wrong_reads(), ids=lambda case: case[0])
def test_statuses_are_those_of_a_read(queue: Queue, case: tuple[str, bytes, int]) -> None:
    _, entry, length = case
    entry = nvme.with_sgl(entry, nvme.sgl(nvme.SGL_TRANSPORT, length))
    dated = as_dated(random.Random(SEED), entry)

    def run(one: bytes) -> Completion:
        return queue.execute(one, expected=length, keep_sgl=True)

    read = run(entry)
    assert not read.is_ok
    assert run(dated).text() == read.text()


@pytest.mark.parametrize("digests", [0, 1, 2, 3])
def test_digests(site: Site, digests: int) -> None:
    with site.pair(1, digests=digests) as controller:
        queue = controller.io[0]
        data = random.Random(SEED).randbytes(64 * BLOCK)
        queue.write(0, data, BLOCK)
        entry = hints.dated_read(0, 64, deadline_us=1000)
        assert queue.execute(entry, expected=len(data)).data == data


def test_it_counts_as_a_read_and_by_its_priority(target: RunningTarget, queue: Queue) -> None:
    def reads() -> tuple[int, int]:
        (subsystem,) = (
            s for s in target.rpc("prestage_get_stats")["subsystems"] if s["nqn"] == NQN
        )
        (namespace,) = (n for n in subsystem["namespaces"] if n["nsid"] == 1)
        return namespace["counters"]["reads"], namespace["read_latency"]["count"]

    for priority in range(4):
        before, counts = reads(), counted(queue, priority)
        entry = hints.dated_read(8 * priority, 8, deadline_us=10_000_000, priority=priority)
        for _ in range(5):
            assert queue.execute(entry, expected=8 * BLOCK).is_ok
        assert reads() == (before[0] + 5, before[1] + 5)
        after = counted(queue, priority)
        assert after["arrived"] == counts["arrived"] + 5
        assert after["met"] == counts["met"] + 5
        assert after["pending"] == 0


def test_deadline_that_has_passed_makes_it_late_and_no_less_a_read(
    target: RunningTarget, queue: Queue
) -> None:
    slba = 12 * MIB // BLOCK  # read by nobody else, so that it has to wait for the medium
    target.media_control("stall", "arm", nsid=SLOW)
    before = counted(queue, 2)
    entry = hints.dated_read(slba, 8, deadline_us=0, priority=2, nsid=SLOW)
    cid = queue.submit(entry, expected=8 * BLOCK)
    assert counted(queue, 2)["pending"] == 1
    target.media_control("stall", "release", nsid=SLOW)
    answer = queue.wait(cid)
    assert answer.is_ok
    assert answer.data == bytes(8 * BLOCK)
    after = counted(queue, 2)
    assert after["late"] == before["late"] + 1


def test_every_dated_read_ends_in_one_way(site: Site, queue: Queue) -> None:
    rng = random.Random(SEED)
    with site.pair(2) as other:
        for turn in range(200):
            leaving = rng.choice(other.io)
            slba = rng.randrange(64 * MIB // BLOCK - 256)
            entry = hints.dated_read(
                slba, 256, deadline_us=rng.randrange(20_000), priority=rng.randrange(4)
            )
            if len(leaving.in_flight) < 24:
                leaving.submit(entry, expected=256 * BLOCK)
            if turn % 3 == 0 and leaving.in_flight:
                leaving.wait_any()
        for leaving in other.io:
            leaving.connection.reset()

    def settled(reads: tuple[dict[str, int], ...]) -> bool:
        return all(one["pending"] == 0 for one in reads)

    for counts in hinting.until(lambda: hinting.status(queue).reads, settled):
        assert counts["arrived"] == sum(counts[end] for end in ENDS)
        assert counts["dropped"] == 0


def test_one_that_waits_for_the_medium_goes_on_when_that_does(
    target: RunningTarget, queue: Queue
) -> None:
    target.media_control("stall", "arm", nsid=SLOW)
    cid = queue.submit(hints.dated_read(0, 8, deadline_us=1, nsid=SLOW), expected=8 * BLOCK)
    assert queue.execute(hints.dated_read(0, 8, deadline_us=1), expected=8 * BLOCK).is_ok
    assert counted(queue, 1)["pending"] == 1
    target.media_control("stall", "release", nsid=SLOW)
    assert queue.wait(cid).is_ok
    assert counted(queue, 1)["pending"] == 0


def test_host_that_goes_while_one_waits_cancels_it(
    target: RunningTarget, site: Site, queue: Queue
) -> None:
    target.media_control("stall", "arm", nsid=SLOW)
    before = counted(queue, 3)
    with site.pair(1) as other:
        other.io[0].submit(
            hints.dated_read(4096, 8, deadline_us=1, priority=3, nsid=SLOW), expected=8 * BLOCK
        )
        hinting.until(lambda: counted(queue, 3)["pending"], lambda pending: pending == 1)
        other.io[0].connection.reset()
        after = hinting.until(lambda: counted(queue, 3), lambda seen: seen["pending"] == 0)
    assert after["cancelled"] == before["cancelled"] + 1
    target.media_control("stall", "release", nsid=SLOW)
