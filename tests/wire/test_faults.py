"""Media that fail: the right status, other hosts unharmed, nothing lost that need not be."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp.connection import Silence
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from .probing import Site, check_fresh_connection
from .running import MIB, NQN, RunningTarget

READ_EIO, READ_SHORT, WRITE_ENOSPC, WRITE_EIO, SYNC_EIO, STALLED, TRANSIENT, THROUGH = range(2, 10)
CLEAN = 1
STALL_S = float(os.environ.get("PRESTAGE_TEST_STALL_S", "2"))
FAULTS = {
    READ_EIO: "error:op=read,errno=EIO,rate=0",
    READ_SHORT: "error:op=read,errno=SHORT,rate=0",
    WRITE_ENOSPC: "error:op=write,errno=ENOSPC,rate=0",
    WRITE_EIO: "error:op=write,errno=EIO,rate=0",
    SYNC_EIO: "error:op=sync,errno=EIO,rate=0",
    STALLED: "stall:after=0",
    TRANSIENT: "error:op=read,errno=EIO,rate=1,count=3",
    THROUGH: "error:op=write,errno=EIO,rate=0",
}
CONFIG: dict[str, Any] = {
    "tier": {"size": 32 * MIB, "writeback_s": 0.2},
    "subsystems": [
        {
            "nqn": NQN,
            "namespaces": [
                {"nsid": CLEAN, "media": "ram", "size": 16 * MIB, "block": 512},
                *(
                    {
                        "nsid": nsid,
                        "media": "ram",
                        "size": 16 * MIB,
                        "block": 512,
                        "faults": [fault],
                        "write_policy": "through" if nsid == THROUGH else "back",
                    }
                    for nsid, fault in FAULTS.items()
                ),
            ],
        }
    ],
}
_places = iter(range(0, 16 * MIB // 512 - 2048, 1100))


@pytest.fixture
def place() -> int:
    """An LBA that no other test of this module touches, so that reads come from the medium."""
    return next(_places)


@pytest.fixture
def controller(target: RunningTarget, site: Site) -> Iterator[Controller]:
    """A controller with one I/O queue."""
    target.media_control("stall", "release", nsid=STALLED)
    with site.pair(1) as connected:
        yield connected


@pytest.fixture
def queue(controller: Controller) -> Queue:
    """Its I/O queue."""
    return controller.io[0]


@contextlib.contextmanager
def failing(target: RunningTarget, nsid: int) -> Iterator[None]:
    """Every matching operation of the namespace's medium fails meanwhile."""
    target.media_control("error", "set rate=1", nsid=nsid)
    try:
        yield
    finally:
        target.media_control("error", "set rate=0", nsid=nsid)


def read(queue: Queue, nsid: int, slba: int, blocks: int = 8) -> str:
    """The code of a Read, which brings no data unless it is ok."""
    answer = queue.execute(
        nvme.block_command(nvme.READ, slba, blocks, nsid=nsid), expected=blocks * 512
    )
    assert len(answer.data) == (blocks * 512 if answer.is_ok else 0)
    return answer.code


def write(queue: Queue, nsid: int, slba: int, data: bytes, **options: Any) -> str:
    """The code of a Write."""
    entry = nvme.block_command(nvme.WRITE, slba, len(data) // 512, nsid=nsid, **options)
    return queue.execute(entry, data=data).code


def flush(queue: Queue, nsid: int) -> str:
    """The code of a Flush."""
    return queue.execute(nvme.sqe(nvme.FLUSH, nsid)).code


@pytest.mark.parametrize("nsid", [READ_EIO, READ_SHORT])
def test_read_that_fails(target: RunningTarget, queue: Queue, nsid: int, place: int) -> None:
    with failing(target, nsid):
        assert read(queue, nsid, place) == "2/81"
        assert read(queue, CLEAN, place) == "ok"
        check_fresh_connection(target.site())
    assert read(queue, nsid, place) == "ok", "an error must not be remembered"


def test_failed_read_is_in_the_error_log(
    target: RunningTarget, controller: Controller, place: int
) -> None:
    with failing(target, READ_EIO):
        assert read(controller.io[0], READ_EIO, place + 3, 1) == "2/81"
    entry = controller.get_log(1, 64, nsid=0xFFFFFFFF)
    count, sqid = int.from_bytes(entry[:8], "little"), int.from_bytes(entry[8:10], "little")
    status = int.from_bytes(entry[12:14], "little") >> 1
    lba, nsid = int.from_bytes(entry[16:24], "little"), int.from_bytes(entry[24:28], "little")
    assert count > 0 and (sqid, status & 0x7FF, lba, nsid) == (1, 0x281, place + 3, READ_EIO)


def test_verify_and_compare_of_unreadable_blocks(
    target: RunningTarget, queue: Queue, place: int
) -> None:
    with failing(target, READ_EIO):
        verify = nvme.block_command(nvme.VERIFY, place, 8, nsid=READ_EIO)
        assert queue.execute(verify).code == "2/81"
        compare = nvme.block_command(nvme.COMPARE, place + 64, 1, nsid=READ_EIO)
        assert queue.execute(compare, data=bytes(512)).code == "2/81"


def test_small_write_into_an_unreadable_unit(
    target: RunningTarget, queue: Queue, place: int
) -> None:
    # One block of a larger unit needs the rest of it, now or when it is written back.
    with failing(target, READ_EIO):
        first = write(queue, READ_EIO, place + 1, b"s" * 512, fua=True)
        assert first in ("ok", "2/80", "2/81")
    assert write(queue, READ_EIO, place + 1, b"s" * 512, fua=True) == "ok"
    assert queue.read(place, 2, 512, nsid=READ_EIO) == bytes(512) + b"s" * 512


def test_read_that_fails_three_times(target: RunningTarget, queue: Queue, place: int) -> None:
    target.media_control("error", "arm", nsid=TRANSIENT)
    codes = [read(queue, TRANSIENT, place + 128 * turn, 1) for turn in range(8)]
    assert set(codes[:3]) <= {"2/81", "ok"} and codes[4:] == ["ok"] * 4, codes
    assert "2/81" in codes, "the fault was not seen"


def test_write_through_that_fails(target: RunningTarget, queue: Queue, place: int) -> None:
    with failing(target, THROUGH):
        assert write(queue, THROUGH, place, b"w" * 4096) == "2/80"
        assert read(queue, CLEAN, place) == "ok"
    assert write(queue, THROUGH, place, b"v" * 4096) == "ok"
    assert queue.read(place, 8, 512, nsid=THROUGH) == b"v" * 4096


@pytest.mark.parametrize(("nsid", "code"), [(WRITE_EIO, "2/80"), (WRITE_ENOSPC, "0/81")])
def test_deferred_write_that_fails_is_kept(
    target: RunningTarget, queue: Queue, place: int, nsid: int, code: str
) -> None:
    data = bytes([nsid]) * 65536
    with failing(target, nsid):
        assert write(queue, nsid, place, data) == "ok"
        assert flush(queue, nsid) == code
        assert write(queue, nsid, place + 256, data, fua=True) == code
        assert queue.read(place, 128, 512, nsid=nsid) == data
        assert flush(queue, CLEAN) == "ok"
        check_fresh_connection(target.site())
    assert flush(queue, nsid) == "ok"
    assert queue.read(place, 128, 512, nsid=nsid) == data


def deallocate(nsid: int, slba: int, blocks: int) -> tuple[bytes, bytes]:
    """A Dataset Management command of one range, and its data."""
    return nvme.sqe(nvme.DSM, nsid, cdw11=4), nvme.dsm_ranges([(slba, blocks)])


@pytest.mark.parametrize("zeroes", [False, True])
def test_range_that_cannot_be_cleared_keeps_its_bytes(
    target: RunningTarget, queue: Queue, place: int, zeroes: bool
) -> None:
    place = -(-place // 8) * 8
    data = random.Random(place).randbytes(256 * 512)
    with failing(target, WRITE_EIO):
        assert write(queue, WRITE_EIO, place, data) == "ok"
        if zeroes:
            entry = nvme.block_command(nvme.WRITE_ZEROES, place, 256, nsid=WRITE_EIO)
            assert queue.execute(entry).code == "2/80"
        else:
            entry, ranges = deallocate(WRITE_EIO, place, 256)
            assert queue.execute(entry, data=ranges).code == "2/80"
        assert queue.read(place, 256, 512, nsid=WRITE_EIO) == data
    assert flush(queue, WRITE_EIO) == "ok"
    assert queue.read(place, 256, 512, nsid=WRITE_EIO) == data


def test_flush_that_fails(target: RunningTarget, queue: Queue, place: int) -> None:
    assert write(queue, SYNC_EIO, place, b"f" * 4096) == "ok"
    with failing(target, SYNC_EIO):
        assert flush(queue, SYNC_EIO) == "2/80"
        assert flush(queue, CLEAN) == "ok"
    assert write(queue, SYNC_EIO, place, b"g" * 4096) == "ok"
    assert flush(queue, SYNC_EIO) == "ok"


def test_failing_medium_shows_in_the_health_log(
    target: RunningTarget, controller: Controller, place: int
) -> None:
    queue = controller.io[0]
    with failing(target, WRITE_EIO):
        assert write(queue, WRITE_EIO, place, b"h" * 4096) == "ok"
        assert flush(queue, WRITE_EIO) == "2/80"
        warning = controller.get_log(2, 512, nsid=0xFFFFFFFF)[0]
        assert warning, "no critical warning while writes to the medium fail"
    assert flush(queue, WRITE_EIO) == "ok"


def test_dirty_limit_refuses_writes_and_heals(
    target: RunningTarget, site: Site, queue: Queue
) -> None:
    # 32 MiB of tier take 30 % of dirty data; 16 MiB are written to a medium that fails.
    with failing(target, WRITE_ENOSPC):
        codes = set()
        for turn in range(240):
            codes.add(write(queue, WRITE_ENOSPC, turn * 128, b"d" * 65536))
            if codes != {"ok"}:
                break
        assert codes == {"ok", "0/81"}, codes
        with site.pair(1) as other:
            other.io[0].write(0, b"c" * 512, 512, nsid=CLEAN)
    assert flush(queue, WRITE_ENOSPC) == "ok"
    assert write(queue, WRITE_ENOSPC, 0, b"e" * 65536) == "ok"


@pytest.fixture
def stalled(target: RunningTarget, controller: Controller) -> Iterator[Controller]:
    """Every operation of the stalled namespace's medium waits, until released in the end."""
    target.media_control("stall", "arm", nsid=STALLED)
    try:
        yield controller
    finally:
        target.media_control("stall", "release", nsid=STALLED)


def expect_no_answer(queue: Queue, cid: int) -> None:
    """It is not answered yet (a bounded look)."""
    with pytest.raises(Silence):
        queue.wait(cid, 0.3)


def test_stalled_medium_holds_its_commands_alone(
    target: RunningTarget, site: Site, stalled: Controller, place: int
) -> None:
    queue = stalled.io[0]
    waiting = [
        queue.submit(
            nvme.block_command(nvme.READ, place + 128 * turn, 8, nsid=STALLED), expected=4096
        )
        for turn in range(8)
    ]
    started = time.monotonic()
    while time.monotonic() - started < STALL_S:  # The medium's stall is the input.
        assert read(queue, CLEAN, place, 1) == "ok"
        assert stalled.admin.execute(nvme.sqe(nvme.KEEP_ALIVE)).code in ("ok", "0/1a")
        check_fresh_connection(site)
    expect_no_answer(queue, waiting[0])
    target.media_control("stall", "release", nsid=STALLED)
    assert all(queue.wait(cid).data == bytes(4096) for cid in waiting)


def test_flush_waits_for_a_range_that_is_being_cleared(
    target: RunningTarget, stalled: Controller, place: int
) -> None:
    # Before the range is zeros on the medium, what was written there is nowhere but in DRAM.
    queue, place = stalled.io[0], -(-place // 8) * 8
    assert write(queue, STALLED, place, b"f" * 65536) == "ok"
    entry, ranges = deallocate(STALLED, place, 128)
    clearing = queue.submit(entry, data=ranges)
    flushing = queue.submit(nvme.sqe(nvme.FLUSH, STALLED))
    expect_no_answer(queue, flushing)
    target.media_control("stall", "release", nsid=STALLED)
    assert queue.wait(clearing).is_ok
    assert queue.wait(flushing).is_ok
    assert queue.read(place, 128, 512, nsid=STALLED) == bytes(65536)


def test_host_that_leaves_while_a_range_is_cleared_loses_nothing(
    target: RunningTarget, site: Site, stalled: Controller, place: int
) -> None:
    queue, place = stalled.io[0], -(-place // 8) * 8
    assert write(queue, STALLED, place, b"v" * 65536) == "ok"
    with site.pair(1) as leaving:
        entry, ranges = deallocate(STALLED, place, 128)
        expect_no_answer(leaving.io[0], leaving.io[0].submit(entry, data=ranges))
    flushing = queue.submit(nvme.sqe(nvme.FLUSH, STALLED))
    expect_no_answer(queue, flushing)
    target.media_control("stall", "release", nsid=STALLED)
    assert queue.wait(flushing).is_ok
    assert queue.read(place, 128, 512, nsid=STALLED) in (b"v" * 65536, bytes(65536))


def test_abort_of_a_read_at_the_medium(
    target: RunningTarget, stalled: Controller, place: int
) -> None:
    # Already with the medium: DW0 bit 0 is set and the command completes by itself.
    queue = stalled.io[0]
    cid = queue.submit(nvme.block_command(nvme.READ, place, 8, nsid=STALLED), expected=4096)
    expect_no_answer(queue, cid)
    answer = stalled.admin.execute(nvme.abort(queue.qid, cid))
    assert answer.is_ok and answer.dw0 == 1, answer.text()
    target.media_control("stall", "release", nsid=STALLED)
    assert queue.wait(cid).is_ok


@pytest.mark.parametrize("ending", ["close", "reset"])
def test_host_that_leaves_a_stalled_medium(
    target: RunningTarget, site: Site, stalled: Controller, place: int, ending: str
) -> None:
    with site.pair(1) as leaving:
        queue = leaving.io[0]
        for turn in range(8):
            queue.submit(
                nvme.block_command(nvme.READ, place + 128 * turn, 8, nsid=STALLED), expected=4096
            )
        for queue in leaving.queues():
            getattr(queue.connection, ending)()
    assert read(stalled.io[0], CLEAN, place, 1) == "ok"
    check_fresh_connection(site)


def test_shutdown_waits_for_the_medium(
    target: RunningTarget, site: Site, stalled: Controller, place: int
) -> None:
    # Row C47: SHST becomes 10b after the read at the medium has ended, not before.
    with site.pair(1) as leaving:
        queue = leaving.io[0]
        cid = queue.submit(nvme.block_command(nvme.READ, place, 8, nsid=STALLED), expected=4096)
        expect_no_answer(queue, cid)
        shutdown = leaving.admin.submit(nvme.property_set(nvme.CC, nvme.CC_BASE | 1 | 1 << 14))
        with contextlib.suppress(Silence):
            assert leaving.admin.wait(shutdown, 0.5).is_ok
            csts = leaving.admin.property_get(nvme.CSTS)
            assert csts >> 2 & 3 == 1, f"CSTS {csts:#x} while a read is at the medium"
        target.media_control("stall", "release", nsid=STALLED)
        assert queue.wait(cid).code in ("ok", "0/07", "0/08")
        leaving.wait_csts(0xC, 8)
