"""Fused Compare and Write (Base 2.0, 3.4.2): both or neither, in order, never mixed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from .probing import Site
from .running import RunningTarget

FIRST, SECOND = 0x41, 0x42


@pytest.fixture
def controller(target: RunningTarget, site: Site) -> Iterator[Controller]:
    """One controller with one I/O queue of 32 entries."""
    with site.pair(1) as connected:
        yield connected


@pytest.fixture
def queue(controller: Controller) -> Queue:
    """Its I/O queue."""
    return controller.io[0]


def submit_fused(
    queue: Queue,
    compare: bytes,
    write: bytes,
    *,
    slba: int = 0,
    write_slba: int | None = None,
    in_capsule: bool = True,
) -> tuple[str, str]:
    """A fused Compare and Write; the codes of both."""
    first = queue.submit(
        nvme.block_command(nvme.COMPARE, slba, len(compare) // 512, flags=FIRST),
        data=compare,
        in_capsule=in_capsule,
    )
    where = slba if write_slba is None else write_slba
    second = queue.submit(
        nvme.block_command(nvme.WRITE, where, len(write) // 512, flags=SECOND),
        data=write,
        in_capsule=in_capsule,
    )
    return queue.wait(first).code, queue.wait(second).code


@pytest.mark.parametrize("in_capsule", [True, False])
@pytest.mark.parametrize("blocks", [1, 8])
def test_fused_pair_that_compares_equal_is_written(
    queue: Queue, blocks: int, in_capsule: bool
) -> None:
    old, new = b"o" * 512 * blocks, b"n" * 512 * blocks
    queue.write(0, old, 512)
    assert submit_fused(queue, old, new, in_capsule=in_capsule) == ("ok", "ok")
    assert queue.read(0, blocks, 512) == new


@pytest.mark.parametrize("in_capsule", [True, False])
def test_fused_pair_that_differs_writes_nothing(queue: Queue, in_capsule: bool) -> None:
    queue.write(0, b"o" * 512, 512)
    codes = submit_fused(queue, b"x" * 512, b"n" * 512, in_capsule=in_capsule)
    assert codes == ("2/85", "0/09")
    assert queue.read(0, 1, 512) == b"o" * 512


def test_fused_pair_of_different_ranges_writes_nothing(queue: Queue) -> None:
    queue.write(0, b"o" * 1024, 512)
    first, second = submit_fused(queue, b"o" * 512, b"n" * 512, write_slba=1)
    assert first in ("0/02", "0/0a", "ok") and second in ("0/02", "0/09", "0/0a")
    first, second = submit_fused(queue, b"o" * 512, b"n" * 1024)
    assert first in ("0/02", "0/0a", "ok") and second in ("0/02", "0/09", "0/0a")
    assert queue.read(0, 2, 512) == b"o" * 1024


def test_first_without_second_is_aborted_by_what_comes_next(queue: Queue) -> None:
    queue.write(0, b"o" * 512, 512)
    compare = nvme.block_command(nvme.COMPARE, 0, 1, flags=FIRST)
    first = queue.submit(compare, data=b"o" * 512)
    assert queue.read(0, 1, 512) == b"o" * 512
    assert queue.wait(first).code == "0/0a"


def test_two_firsts_and_a_second(queue: Queue) -> None:
    queue.write(0, b"o" * 512, 512)
    compare = nvme.block_command(nvme.COMPARE, 0, 1, flags=FIRST)
    lonely = queue.submit(compare, data=b"o" * 512)
    assert submit_fused(queue, b"o" * 512, b"n" * 512) == ("ok", "ok")
    assert queue.wait(lonely).code == "0/0a"
    assert queue.read(0, 1, 512) == b"n" * 512


def test_second_without_first_is_aborted_and_writes_nothing(queue: Queue) -> None:
    queue.write(0, b"o" * 512, 512)
    write = nvme.block_command(nvme.WRITE, 0, 1, flags=SECOND)
    assert queue.execute(write, data=b"n" * 512).code in ("0/0a", "0/02")
    assert queue.read(0, 1, 512) == b"o" * 512


def test_second_after_an_invalid_first_is_aborted(queue: Queue) -> None:
    queue.write(0, b"o" * 512, 512)
    first = queue.submit(
        nvme.block_command(nvme.COMPARE, 0, 1, nsid=9, flags=FIRST), data=b"o" * 512
    )
    second = queue.submit(nvme.block_command(nvme.WRITE, 0, 1, flags=SECOND), data=b"n" * 512)
    assert queue.wait(first).code in ("0/0b", "0/0a", "0/09")
    assert queue.wait(second).code in ("0/09", "0/0a")
    assert queue.read(0, 1, 512) == b"o" * 512


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_pair_of_which_one_can_be_sent_again_can_be_sent_again(
    target: RunningTarget, site: Site, wrong: int
) -> None:
    old, new = b"o" * 512, b"n" * 512
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        queue.write(0, old, 512)
        cids = []
        for turn, (opcode, fuse, data) in enumerate(
            ((nvme.COMPARE, FIRST, old), (nvme.WRITE, SECOND, new))
        ):
            place = nvme.sgl(nvme.SGL_IN_CAPSULE, 512)
            entry = nvme.block_command(opcode, 0, 1, data=place, flags=fuse)
            entry = nvme.with_cid(entry, 40 + turn)
            header = {"data_digest": 1} if turn == wrong else {}
            cids.append(queue.register(entry))
            queue.connection.send(queue.capsule(entry, data, **header))
        found = [queue.wait(cid).text() for cid in cids]
        assert found == (["0/22", "0/09"] if wrong == 0 else ["0/09", "0/22"])
        assert submit_fused(queue, old, new) == ("ok", "ok")


def test_fused_pairs_of_two_queues_do_not_mix(controller: Controller) -> None:
    one, two = controller.io[0], controller.add_queue()
    one.write(0, b"o" * 512, 512)
    compare = nvme.block_command(nvme.COMPARE, 0, 1, flags=FIRST)
    first = one.submit(compare, data=b"o" * 512)
    write = nvme.block_command(nvme.WRITE, 0, 1, flags=SECOND)
    assert two.execute(write, data=b"x" * 512).code in ("0/0a", "0/02")
    second = one.submit(write, data=b"n" * 512)
    assert (one.wait(first).code, one.wait(second).code) == ("ok", "ok")


def test_fused_pair_is_atomic_among_pairs(controller: Controller) -> None:
    queues = [controller.io[0], *(controller.add_queue() for _ in range(3))]
    queues[0].write(0, bytes(512), 512)
    done = [0] * len(queues)
    for _ in range(100):
        # Each reads the counter and adds one by compare and write; losers try again.
        seen = queues[0].read(0, 1, 512)
        value = int.from_bytes(seen[:8], "little")
        pairs = []
        for queue in queues:
            new = (value + 1).to_bytes(8, "little").ljust(512, b"\0")
            first = queue.submit(nvme.block_command(nvme.COMPARE, 0, 1, flags=FIRST), data=seen)
            write = nvme.block_command(nvme.WRITE, 0, 1, flags=SECOND)
            pairs.append((queue, first, queue.submit(write, data=new)))
        for index, (queue, first, second) in enumerate(pairs):
            codes = queue.wait(first).code, queue.wait(second).code
            assert codes in (("ok", "ok"), ("2/85", "0/09")), codes
            done[index] += codes == ("ok", "ok")
    final = int.from_bytes(queues[0].read(0, 1, 512)[:8], "little")
    assert final == sum(done) == 100
