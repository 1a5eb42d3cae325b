"""What I/O commands do to bytes: Compare, Write Zeroes, DSM, Verify, Copy, FUA."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from .probing import SEED, Site
from .running import MIB, NQN, RunningTarget

CONFIG: dict[str, Any] = {
    "subsystems": [
        {
            "nqn": NQN,
            "namespaces": [
                {"media": "ram", "size": 64 * MIB, "block": 512},
                {"media": "ram", "size": 8 * MIB, "block": 512, "read_only": True},
                {"media": "ram", "size": 8 * MIB, "block": 4096},
            ],
        }
    ]
}


@pytest.fixture
def controller(target: RunningTarget, site: Site) -> Iterator[Controller]:
    """One controller with one I/O queue of 32 entries."""
    with site.pair(1) as connected:
        yield connected


@pytest.fixture
def queue(controller: Controller) -> Queue:
    """Its I/O queue."""
    return controller.io[0]


def test_latencies_of_reads_and_writes_are_counted(target: RunningTarget, queue: Queue) -> None:
    queue.write(0, bytes(512 * 16), 512)
    for _ in range(20):
        queue.read(0, 16, 512)
    (subsystem,) = (s for s in target.rpc("prestage_get_stats")["subsystems"] if s["nqn"] == NQN)
    (namespace,) = (n for n in subsystem["namespaces"] if n["nsid"] == 1)
    for kind, commands in (("read", "reads"), ("write", "writes")):
        latency = namespace[f"{kind}_latency"]
        assert latency["count"] == namespace["counters"][commands] > 0
        assert 0 < latency["p50_ns"] <= latency["p99_ns"] <= latency["p999_ns"] < 60e9


def test_what_is_announced(controller: Controller) -> None:
    identity = controller.identify(1)
    oncs, fuses = (int.from_bytes(identity[at : at + 2], "little") for at in (520, 522))
    wanted = {"Compare": 0, "DSM": 2, "Write Zeroes": 3, "Verify": 7, "Copy": 8}
    assert not [name for name, bit in wanted.items() if not oncs >> bit & 1], hex(oncs)
    assert fuses & 1, "Fused Compare and Write is not announced"


@pytest.mark.parametrize("in_capsule", [True, False])
@pytest.mark.parametrize("blocks", [1, 3, 16])
def test_compare(queue: Queue, blocks: int, in_capsule: bool) -> None:
    data = random.Random(SEED).randbytes(512 * blocks)
    queue.write(9, data, 512)
    entry = nvme.block_command(nvme.COMPARE, 9, blocks)
    assert queue.execute(entry, data=data, in_capsule=in_capsule).is_ok
    for at in (0, len(data) // 2, len(data) - 1):
        other = bytearray(data)
        other[at] ^= 1
        answer = queue.execute(entry, data=bytes(other), in_capsule=in_capsule)
        assert answer.code == "2/85", f"byte {at} differs: {answer.text()}"
    assert queue.read(9, blocks, 512) == data


@pytest.mark.parametrize("deallocate", [0, 1 << 25])
@pytest.mark.parametrize(("slba", "blocks"), [(16, 8), (17, 3), (100, 1), (0, 1024), (7, 2000)])
def test_write_zeroes(queue: Queue, slba: int, blocks: int, deallocate: int) -> None:
    around = b"w" * 512 * 16
    queue.write(slba, around, 512)
    queue.write(slba + blocks, around, 512)
    entry = nvme.sqe(nvme.WRITE_ZEROES, 1, cdw10=slba, cdw12=blocks - 1 | deallocate)
    assert queue.execute(entry).is_ok
    data = queue.read(slba, blocks, 512)
    assert data == bytes(len(data))
    assert queue.read(slba + blocks, 16, 512) == around


def test_deallocated_blocks_read_as_announced(controller: Controller, queue: Queue) -> None:
    behaviour = controller.identify(0, 1)[33] & 7
    queue.write(64, b"d" * 512 * 32, 512)
    ranges = nvme.dsm_ranges([(65, 3), (72, 8), (90, 1)])
    assert queue.execute(nvme.sqe(nvme.DSM, 1, cdw10=2, cdw11=4), data=ranges).is_ok
    data = queue.read(64, 32, 512)
    gone = {*range(1, 4), *range(8, 16), 26}
    for index in range(32):
        block = data[index * 512 : index * 512 + 512]
        allowed = [b"d" * 512]
        if index in gone:
            allowed = {1: [bytes(512)], 2: [b"\xff" * 512]}.get(behaviour, [*allowed, bytes(512)])
        assert block in allowed, f"LBA {64 + index}: {block[:4].hex()}"


def test_deallocation_is_refused_by_a_read_only_namespace(queue: Queue) -> None:
    ranges = nvme.dsm_ranges([(0, 8)])
    answer = queue.execute(nvme.sqe(nvme.DSM, 2, cdw11=4), data=ranges)
    assert answer.text() == "0/20 dnr"
    assert queue.execute(nvme.sqe(nvme.DSM, 2, cdw11=1), data=ranges).is_ok, "IDR is a hint"


def test_range_without_blocks_deallocates_nothing(queue: Queue) -> None:
    queue.write(64, b"d" * 512 * 8, 512)
    ranges = nvme.dsm_ranges([(64, 0), (66, 1)])
    assert queue.execute(nvme.sqe(nvme.DSM, 1, cdw10=1, cdw11=4), data=ranges).is_ok
    expected = b"d" * 1024 + bytes(512) + b"d" * 512 * 5
    assert queue.read(64, 8, 512) == expected


def test_smart_counts_the_blocks_of_compare_verify_and_copy(
    controller: Controller, queue: Queue
) -> None:
    def units() -> tuple[int, int]:
        page = controller.get_log(2, 512, nsid=1)
        return int.from_bytes(page[32:48], "little"), int.from_bytes(page[48:64], "little")

    queue.write(0, bytes(1 << 20), 512)
    read, written = units()
    assert queue.execute(nvme.block_command(nvme.VERIFY, 0, 16384)).is_ok  # 8 MiB: 16.4 units
    assert units()[0] - read in (16, 17)
    read = units()[0]
    for _ in range(2):
        entry = nvme.block_command(nvme.COMPARE, 0, 2048)
        assert queue.execute(entry, data=bytes(1 << 20)).is_ok
    assert units() in ((read + 4, written), (read + 5, written))
    assert copy(queue, 4096, [(0, 2048)] * 4) == "ok"  # 4 MiB
    assert units()[1] - written in (8, 9)


@pytest.mark.parametrize("asks_after", [0, 100])
def test_write_is_aborted_while_its_capsule_arrives(
    controller: Controller, queue: Queue, asks_after: int
) -> None:
    queue.write(0, b"o" * 4096, 512)
    cid = queue.new_cid()
    entry = nvme.block_command(nvme.WRITE, 0, 8, data=nvme.sgl(nvme.SGL_IN_CAPSULE, 4096))
    entry = nvme.with_cid(entry, cid)
    capsule = queue.capsule(entry, b"n" * 4096)
    queue.register(entry)
    queue.connection.send(capsule[: 72 + asks_after])
    for _ in range(1000):  # The capsule's header may not have come there yet.
        if not controller.admin.execute(nvme.abort(queue.qid, cid)).dw0 & 1:
            break
    else:
        raise AssertionError("it was never aborted")
    assert queue.wait(cid).code == "0/07"
    queue.connection.send(capsule[72 + asks_after :])
    assert queue.read(0, 8, 512) == b"o" * 4096


def test_verify(queue: Queue) -> None:
    queue.write(0, bytes(4096), 512)
    assert queue.execute(nvme.block_command(nvme.VERIFY, 0, 8)).is_ok


def copy_limits(controller: Controller) -> tuple[int, int, int]:
    """MSSRL, MCL, MSRC of namespace 1, the last 1-based."""
    data = controller.identify(0, 1)
    return (
        int.from_bytes(data[74:76], "little"),
        int.from_bytes(data[76:80], "little"),
        data[80] + 1,
    )


def copy(queue: Queue, to: int, ranges: list[tuple[int, int]], form: int = 0) -> str:
    """A Copy command; its code."""
    entry = nvme.sqe(nvme.COPY, 1, cdw10=to, cdw12=len(ranges) - 1 | form << 8)
    return queue.execute(entry, data=nvme.copy_ranges(ranges)).code


def test_copy_gathers_its_sources(controller: Controller, queue: Queue) -> None:
    mssrl, mcl, msrc = copy_limits(controller)
    assert mssrl and mcl >= mssrl
    rng = random.Random(SEED)
    source = rng.randbytes(512 * 128)
    queue.write(1000, source, 512)
    count = min(msrc, 8)
    ranges = [(1000 + rng.randrange(120), rng.randrange(1, 8)) for _ in range(count)]
    assert copy(queue, 3000, ranges) == "ok"
    expected = b"".join(
        source[(at - 1000) * 512 : (at - 1000 + length) * 512] for at, length in ranges
    )
    assert queue.read(3000, len(expected) // 512, 512) == expected


def test_copy_beyond_its_limits(controller: Controller, queue: Queue) -> None:
    mssrl, mcl, msrc = copy_limits(controller)
    if mssrl < 65536:
        assert copy(queue, 3000, [(0, mssrl + 1)]) == "1/83"
    if msrc < 256:
        assert copy(queue, 3000, [(0, 1)] * (msrc + 1)) == "1/83"
    if mssrl * msrc > mcl:
        most = -(-(mcl + 1) // mssrl)
        assert copy(queue, 3000, [(0, mssrl)] * most) == "1/83"
    count = controller.block_count()
    assert copy(queue, count - 1, [(0, 2)]) == "0/80"
    assert copy(queue, 0, [(count - 1, 2)]) == "0/80"
    assert copy(queue, 0, [(0, 1)], form=15) == "0/02"


@pytest.mark.parametrize("nsid", [1, 3])
def test_small_writes_leave_their_neighbours_alone(
    controller: Controller, queue: Queue, nsid: int
) -> None:
    rng = random.Random(SEED)
    block = controller.block_size(nsid)
    blocks = 256 * 1024 // block
    model = bytearray(rng.randbytes(block * blocks))
    for start in range(0, blocks, 16):
        queue.write(start, bytes(model[start * block : (start + 16) * block]), block, nsid=nsid)
    for turn in range(200):
        size = rng.randrange(1, 5)
        at = rng.randrange(blocks - size)
        data = rng.randbytes(size * block)
        model[at * block : (at + size) * block] = data
        queue.write(
            at,
            data,
            block,
            nsid=nsid,
            fua=bool(turn % 2),
            in_capsule=bool(turn % 3 == 0) and len(data) <= queue.in_capsule,
        )
    data = b"".join(queue.read(at, 16, block, nsid=nsid) for at in range(0, blocks, 16))
    assert data == bytes(model)


@pytest.mark.parametrize("opcode", [nvme.WRITE, nvme.WRITE_ZEROES])
def test_read_only_namespace_refuses_writes(queue: Queue, opcode: int) -> None:
    entry = nvme.block_command(opcode, 0, 1, nsid=2)
    answer = queue.execute(entry, data=b"w" * 512 if opcode == nvme.WRITE else b"")
    assert answer.code in ("1/82", "0/20"), answer.text()
    assert queue.read(0, 1, 512, nsid=2) == bytes(512)


def test_largest_dataset_management(queue: Queue) -> None:
    ranges = nvme.dsm_ranges([(index * 2, 1) for index in range(256)])
    answer = queue.execute(nvme.sqe(nvme.DSM, 1, cdw10=255, cdw11=4), data=ranges)
    assert answer.code in ("ok", "1/83"), answer.text()
