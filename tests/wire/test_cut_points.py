"""Every PDU kind a host sends, cut in two segments at every byte, and ended there."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.connection import RawConnection
from nvme_tcp.queue import Queue

from .probing import SEED, Site

SETTLE_S = 0.0004
"""A pause after the first segment, so that it usually is read alone; nothing depends on it."""
DIGESTS = 3
FLUSH = nvme.sqe(nvme.FLUSH, 1, cid=9)


def cuts_of(length: int, site: Site) -> list[int]:
    """Every cut point; against the emulated reference target the header's and a sample."""
    if not site.is_reference:
        return list(range(1, length))
    sample = random.Random(SEED).sample(range(1, length), min(16, length - 1))
    return sorted({*range(1, min(length, 12)), *sample, length - 1})


def whole_connect(site: Site) -> bytes:
    """A Connect capsule of an admin queue with digests."""
    entry = nvme.with_cid(nvme.connect(qid=0, sqsize=31), 3)
    return pdu.command(entry, nvme.connect_data(site.nqn), digests=DIGESTS)


def test_icreq_in_two_segments(site: Site) -> None:
    raw = pdu.icreq(digests=DIGESTS)
    for cut in cuts_of(len(raw), site):
        with RawConnection(site.address) as connection:
            connection.send_pieces(raw, [cut], SETTLE_S)
            assert connection.initialized().header[11] == DIGESTS, f"cut at {cut}"


def test_icresp_comes_in_one_piece(site: Site) -> None:
    # Row A7: hosts take a short first read for a refusal.
    for _ in range(20):
        with RawConnection(site.address) as connection:
            connection.send(pdu.icreq())
            connection.socket.settimeout(5)
            assert len(connection.socket.recv(4096)) == 128


def test_connect_in_two_segments(site: Site) -> None:
    raw = whole_connect(site)
    for cut in cuts_of(len(raw), site):
        with site.queue(digests=DIGESTS) as queue:
            queue.register(nvme.sqe(nvme.FABRICS, cid=3))
            queue.connection.send_pieces(raw, [cut], SETTLE_S)
            assert queue.wait(3).is_ok, f"cut at {cut}"


def test_command_in_two_segments(site: Site) -> None:
    with site.pair(1, digests=DIGESTS) as controller:
        queue = controller.io[0]
        raw = queue.capsule(FLUSH)
        for cut in cuts_of(len(raw), site):
            queue.register(FLUSH)
            queue.connection.send_pieces(raw, [cut], SETTLE_S)
            assert queue.wait(9).is_ok, f"cut at {cut}"


def test_in_capsule_data_in_two_segments(site: Site) -> None:
    with site.pair(1, digests=DIGESTS) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        data = nvme.sgl(nvme.SGL_IN_CAPSULE, block)
        entry = nvme.with_cid(nvme.block_command(nvme.WRITE, 5, 1, data=data), 9)
        for cut in cuts_of(len(queue.capsule(entry, bytes(block))), site):
            payload = struct.pack("<I", cut) * (block // 4)
            queue.register(entry)
            queue.connection.send_pieces(queue.capsule(entry, payload), [cut], SETTLE_S)
            assert queue.wait(9).is_ok, f"cut at {cut}"
            assert queue.read(5, 1, block) == payload, f"cut at {cut}"


def test_h2c_data_in_two_segments(site: Site) -> None:
    with site.pair(1, digests=DIGESTS) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        # nvmet asks by R2T only for more than its in-capsule size; 36 blocks of 512 bytes suffice.
        blocks = 36 * 512 // block if site.is_reference else 1
        entry = nvme.block_command(nvme.WRITE, 5, blocks)
        queue.answers_r2t = False
        length = pdu.h2c_data(0, 0, 0, bytes(blocks * block), digests=DIGESTS)
        for cut in cuts_of(len(length), site):
            payload = struct.pack("<I", cut) * (blocks * block // 4)
            cid = queue.submit(entry, data=payload, in_capsule=False)
            r2t = queue.wait_r2t()
            queue.r2ts.clear()
            raw = pdu.h2c_data(cid, r2t.u16(10), 0, payload, digests=DIGESTS)
            queue.connection.send_pieces(raw, [cut], SETTLE_S)
            assert queue.wait(cid).is_ok, f"cut at {cut}"
            assert queue.read(5, blocks, block) == payload, f"cut at {cut}"


def test_h2c_term_req_in_two_segments(site: Site) -> None:
    raw = pdu.h2c_term(2, 0, bytes(72))
    for cut in cuts_of(len(raw), site):
        with RawConnection(site.address) as connection:
            connection.initialize()
            connection.send_pieces(raw, [cut], SETTLE_S)
            assert connection.expect_closed() == "fin", f"cut at {cut}"


def test_many_segments_at_random(site: Site) -> None:
    rng = random.Random(SEED)
    with site.pair(1, digests=DIGESTS) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        for turn in range(20 if site.is_reference else 200):
            raw, expected = bytearray(), {}
            for index in range(rng.randrange(1, 9)):
                data = nvme.sgl(nvme.SGL_IN_CAPSULE, block)
                entry = nvme.with_cid(nvme.block_command(nvme.WRITE, index, 1, data=data), index)
                expected[index] = rng.randbytes(block)
                queue.register(entry)
                raw += queue.capsule(entry, expected[index])
            cuts = sorted(rng.sample(range(1, len(raw)), rng.randrange(1, 12)))
            queue.connection.send_pieces(bytes(raw), cuts)
            assert all(queue.wait(cid).is_ok for cid in expected), f"seed {SEED}, turn {turn}"
            for index, payload in expected.items():
                assert queue.read(index, 1, block) == payload, f"seed {SEED}, turn {turn}"


def _flush(queue: Queue) -> bytes:
    return queue.capsule(FLUSH)


def _write(queue: Queue) -> bytes:
    entry = nvme.block_command(nvme.WRITE, 5, 8, data=nvme.sgl(nvme.SGL_IN_CAPSULE, 4096))
    return queue.capsule(nvme.with_cid(entry, 9), bytes(4096))


def _h2c_data(queue: Queue) -> bytes:
    entry = nvme.block_command(nvme.WRITE, 5, 128)
    cid = queue.submit(entry, data=bytes(65536), in_capsule=False)
    r2t = queue.wait_r2t()
    return pdu.h2c_data(cid, r2t.u16(10), 0, bytes(65536), digests=queue.digests)


@pytest.mark.parametrize("make", [_flush, _write, _h2c_data])
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_host_ends_within_a_pdu(site: Site, make: Callable[[Queue], bytes], ending: str) -> None:
    rng = random.Random(SEED)
    with site.pair(0, digests=DIGESTS) as probe:
        assert probe.block_size() == 512
    length = {"_flush": 76, "_write": 76 + 4100, "_h2c_data": 28 + 65540}[make.__name__]
    cuts = {*range(1, 28), length - 1, length - 4, length - 5}
    cuts |= {rng.randrange(1, length) for _ in range(20)}
    for cut in sorted(rng.sample(sorted(cuts), 6)) if site.is_reference else sorted(cuts):
        with site.pair(1, digests=DIGESTS) as controller:
            queue = controller.io[0]
            raw = make(queue)
            assert len(raw) == length
            queue.connection.send(raw[:cut])
            getattr(queue.connection, ending)()
