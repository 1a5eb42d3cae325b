"""Data in motion: slow and vanished hosts, withheld R2Ts, digests, alignment, SUCCESS."""

from __future__ import annotations

import itertools
import random
import threading
import time
from pathlib import Path

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.connection import ProtocolError, WireError
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue, ready_queues

from .probing import SEED, Site, check_fresh_connection
from .running import MIB, RunningTarget, base_config, merge

TIER = 32 * MIB
CONFIG = {"tier": {"size": TIER}}
WRITE_SIZE = 128 << 10


@pytest.mark.parametrize("digests", [0, 3])
def test_host_that_does_not_read_for_a_while(site: Site, digests: int) -> None:
    # Row B35: 32 reads of 128 KiB, a receive buffer of 4 KiB, then every byte in order.
    content = random.Random(SEED).randbytes(32 * WRITE_SIZE)
    with site.pair(1, sqsize=63) as writer:
        block = writer.block_size()
        per_read = WRITE_SIZE // block
        for index in range(32):
            piece = content[index * WRITE_SIZE : (index + 1) * WRITE_SIZE]
            writer.io[0].write(index * per_read, piece, block)
    options = {"receive_buffer": 4096, "digests": digests, "sqsize": 63}
    with site.pair(0, timeout_s=60.0) as controller:
        queue = controller.add_queue(**options)
        cids, capsules = [], []
        for index in range(32):
            descriptor = nvme.sgl(nvme.SGL_TRANSPORT, WRITE_SIZE)
            entry = nvme.block_command(nvme.READ, index * per_read, per_read, data=descriptor)
            cids.append(queue.register(nvme.with_cid(entry, index), expected=WRITE_SIZE))
            capsules.append(queue.capsule(nvme.with_cid(entry, index)))
        queue.connection.send(b"".join(capsules))
        time.sleep(1.0)  # The host's slowness is the input.
        check_fresh_connection(site)
        for index, cid in enumerate(cids):
            piece = content[index * WRITE_SIZE : (index + 1) * WRITE_SIZE]
            assert queue.wait(cid).data == piece, f"read {index}"


def test_host_that_never_reads_and_vanishes(site: Site) -> None:
    for ending in ("close", "reset"):
        with site.pair(0) as controller:
            block = controller.block_size()
            queue = controller.add_queue(receive_buffer=4096, sqsize=63)
            for index in range(32):
                entry = nvme.block_command(nvme.READ, index, WRITE_SIZE // block)
                queue.submit(entry, expected=WRITE_SIZE)
            check_fresh_connection(site)
            getattr(queue.connection, ending)()


@pytest.mark.parametrize("sent", [None, 0, 8, 24, 4096, 65535])
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_host_that_vanishes_amid_its_data(site: Site, sent: int | None, ending: str) -> None:
    """`sent` bytes of the H2CData PDU, None: before the R2T was read."""
    old = b"o" * 65536
    with site.pair(1) as controller:
        block = controller.block_size()
        controller.io[0].write(0, old, block)
    for _ in range(4):
        with site.pair(1) as controller:
            queue = controller.io[0]
            entry = nvme.block_command(nvme.WRITE, 0, 65536 // block)
            cid = queue.submit(entry, data=b"n" * 65536, in_capsule=False)
            if sent is not None:
                r2t = queue.wait_r2t()
                raw = pdu.h2c_data(cid, r2t.u16(10), 0, b"n" * 65536)
                queue.connection.send(raw[:sent])
            getattr(queue.connection, ending)()
    with site.pair(1) as controller:
        assert controller.io[0].read(0, 65536 // block, block) == old


def pump_all(queues: list[Queue], within_s: float = 60.0) -> None:
    """Work on every queue until none has a command in flight."""
    limit = time.monotonic() + within_s
    while any(queue.in_flight for queue in queues):
        assert time.monotonic() < limit, f"{sum(len(q.in_flight) for q in queues)} not answered"
        waiting = [queue for queue in queues if queue.in_flight]
        for queue in ready_queues(waiting, 1.0):
            queue.pump(within_s)


def stalled_writers(site: Site, count: int, depth: int) -> tuple[Controller, list[Queue]]:
    """`count` queues with `depth` Writes each, whose R2Ts are not answered."""
    controller = Controller(site.address, site.nqn, timeout_s=30.0)
    controller.enable()
    block = controller.block_size()
    for index in range(count):
        queue = controller.add_queue(sqsize=127)
        queue.answers_r2t = False
        for turn in range(depth):
            slba = (index * depth + turn) * (WRITE_SIZE // block) % (48 * MIB // block)
            entry = nvme.block_command(nvme.WRITE, slba, WRITE_SIZE // block)
            queue.submit(entry, data=bytes([index]) * WRITE_SIZE, in_capsule=False)
    return controller, controller.io


def granted(queues: list[Queue]) -> int:
    """Bytes asked for by R2Ts, once no more come for a while."""
    while ready := ready_queues(queues, 0.5):
        for queue in ready:
            queue.pump()
    return sum(r2t.u32(16) for queue in queues for r2t in queue.r2ts)


def test_r2ts_are_withheld_rather_than_memory_grown(target: RunningTarget, site: Site) -> None:
    # Row B44: 64 MiB of writes against 32 MiB of tier, then the hosts vanish.
    before = target.resources()
    controller, queues = stalled_writers(site, 8, 64)
    try:
        asked = granted(queues)
        assert 0 < asked <= TIER, f"{asked} bytes asked for, {TIER} are there"
        grown = target.resources().rss_kib - before.rss_kib
        assert grown < (TIER >> 10) + 16384, f"resident memory grew by {grown} KiB"
        with site.pair(0) as other:
            other.identify(1)
    finally:
        controller.vanish()


def test_withheld_r2ts_come_when_others_finish(target: RunningTarget, site: Site) -> None:
    controller, queues = stalled_writers(site, 8, 64)
    try:
        granted(queues)
        for queue in queues:
            queue.answers_r2t = True
            for r2t in list(queue.r2ts):
                queue.answer_r2t(r2t)
        pump_all(queues)
        bad = [
            done.text() for queue in queues for done in queue.completions.values() if not done.is_ok
        ]
        assert not bad, bad[:5]
    finally:
        controller.close()


@pytest.mark.parametrize("digests", [0, 1, 2, 3])
@pytest.mark.parametrize("hpda", [0, 1, 3, 31])
def test_bytes_survive_digests_and_alignment(site: Site, digests: int, hpda: int) -> None:
    if site.is_reference and hpda:
        pytest.skip("nvmet refuses HPDA")
    rng = random.Random(SEED)
    with site.pair(1, digests=digests, hpda=hpda, maxr2t=3) as controller:
        queue, block = controller.io[0], controller.block_size()
        for size, in_capsule in itertools.product((1, 7, 16, 130, 512), (True, False)):
            data = rng.randbytes(size * block)
            fits = len(data) <= controller.in_capsule
            if site.is_reference and not in_capsule and fits and len(data) <= 16384:
                continue
            queue.write(3, data, block, in_capsule=in_capsule and fits)
            assert queue.read(3, size, block) == data


def test_digest_matches_what_is_sent_while_blocks_are_overwritten(site: Site) -> None:
    # Row B41: a read never shows a torn block under a digest made of other bytes.
    blocks, stop, faults = 128, threading.Event(), []

    def overwrite() -> None:
        try:
            with site.pair(1) as controller:
                block = controller.block_size()
                for turn in itertools.cycle(range(1, 256)):
                    if stop.is_set():
                        return
                    controller.io[0].write(0, bytes([turn]) * block * blocks, block)
        except (WireError, OSError, AssertionError) as error:
            faults.append(error)

    with site.pair(1, digests=3) as controller:
        block = controller.block_size()
        controller.io[0].write(0, bytes([1]) * block * blocks, block)
        writer = threading.Thread(target=overwrite)
        writer.start()
        try:
            for _ in range(20 if site.is_reference else 200):
                data = controller.io[0].read(0, blocks, block)
                for index in range(blocks):
                    piece = data[index * block : (index + 1) * block]
                    assert piece == piece[:1] * block, f"block {index} is torn"
        finally:
            stop.set()
            writer.join(30)
    assert not faults, faults


def test_digests_that_the_target_does_not_offer(
    directory: Path, running: RunningTarget | None
) -> None:
    # Row B40.
    if running is None:
        pytest.skip("needs a target of its own")
    changes = {"transport": {"header_digest": False, "data_digest": False}}
    started = RunningTarget(directory, merge(base_config(directory), changes))
    try:
        with started.site().pair(1, digests=3) as controller:
            assert controller.admin.digests == 0
            controller.io[0].write(0, bytes(65536), 512)
            assert controller.io[0].read(0, 128, 512) == bytes(65536)
        assert started.stop() == 0
    finally:
        started.kill()


def test_success_flag_by_option(directory: Path, running: RunningTarget | None) -> None:
    if running is None:
        pytest.skip("needs a target of its own")
    changes = {"transport": {"success": True}, "limits": {"in_capsule": 0}}
    started = RunningTarget(directory, merge(base_config(directory), changes))
    try:
        with started.site().pair(0, success_allowed=True) as controller:
            # Row B29 as well: no in-capsule data on I/O queues, Connect still carries its own.
            assert controller.in_capsule == 0
            queue = controller.add_queue()
            queue.write(0, bytes(4096), 512)
            entry = nvme.block_command(nvme.READ, 0, 8)
            assert queue.execute(entry, expected=4096).by_success_flag
            refused = controller.add_queue(success_allowed=False)
            with pytest.raises(ProtocolError, match="SUCCESS"):
                refused.read(0, 8, 512)
        assert started.stop() == 0
    finally:
        started.kill()
