"""H2CData that no R2T asked for, or not like this (TCP 1.0, 3.3.2.1 and 3.6.2.8)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.pdu import Pdu
from nvme_tcp.queue import Queue

from ..probing import Site, probe, variants

SIZE = 65536


@contextlib.contextmanager
def asked_for_data(site: Site, **options: Any) -> Iterator[tuple[Queue, int, Pdu]]:
    """A Write of 64 KiB at LBA 0, its R2T received and not answered: queue, CID, R2T."""
    with site.pair(1, **options) as controller:
        queue = controller.io[0]
        blocks = SIZE // controller.block_size()
        entry = nvme.block_command(nvme.WRITE, 0, blocks)
        queue.answers_r2t = False
        cid = queue.submit(entry, data=bytes(SIZE), in_capsule=False)
        yield queue, cid, queue.wait_r2t(site.silence_s)


def completion(site: Site, queue: Queue, cid: int) -> str:
    """The command's status, further R2Ts answered; or how the connection ended."""
    queue.answers_r2t = True
    queue.r2ts.clear()
    return queue.wait(cid, site.silence_s).text()


@variants(
    "B23",
    [
        ("TTAG 60000", {"ttag": 60000}, "term 02", "fin"),
        ("TTAG FFFF", {"ttag": 0xFFFF}, "term 02", "fin"),
        ("TTAG + 1", {"ttag_plus": 1}, "term 02 | term 01/a", "fin"),
        ("CCCID wrong", {"cid_xor": 1}, "term 02 | term 01/8", "ok"),
        ("DATAO 4096", {"datao": 4096}, "term 04", "fin"),
        ("DATAO FFFFF000", {"datao": 0xFFFFF000}, "term 04", "fin"),
        ("DATAL 0", {"datal": 0, "size": 0}, "term 01 | term 04", "fin"),
        ("DATAL beyond R2TL", {"size": SIZE + 4096}, "term 04", "fin"),
        ("DATAL less than PLEN says", {"datal": 4096}, "term 01/4 | term 01/10 | term 04", "fin"),
        (
            "DATAL more than PLEN says",
            {"datal": SIZE, "size": 4096},
            "term 01/4 | term 01/10 | term 04",
            "fin",
        ),
        ("HLEN 16", {"hlen": 16}, "term 01/2", "fin"),
        ("PDO 28", {"pdo": 28}, "term 01/3", "ok | silence"),
        ("LAST missing", {"last": False}, "ok | term", "ok"),
        ("LAST early", {"size": 4096}, "term 02 | term 04 | term 01/1", "silence"),
        ("PLEN 24", {"plen": 24}, "term 01 | term 04", "fin"),
    ],
)
def h2c_data(site: Site, fault: dict[str, Any]) -> str:
    """An R2T for 64 KiB is answered by one H2CData with this fault."""
    with asked_for_data(site) as (queue, cid, r2t):
        data = b"x" * fault.get("size", SIZE)
        header = {
            key: fault[key] for key in ("hlen", "pdo", "plen", "datal", "last") if key in fault
        }
        ttag = fault.get("ttag", r2t.u16(10) + fault.get("ttag_plus", 0))
        cccid = cid ^ fault.get("cid_xor", 0)
        with contextlib.suppress(Exception):
            # The target may close before the last byte; what it said is read below.
            queue.connection.send(pdu.h2c_data(cccid, ttag, fault.get("datao", 0), data, **header))
        return completion(site, queue, cid)


@probe("B25", right="term 02 | term 04 | term 01/a", nvmet="fin")
def h2c_data_sent_twice(site: Site) -> str:
    """The whole transfer, and then the same again: the tag is no longer good."""
    with asked_for_data(site) as (queue, cid, r2t):
        piece = pdu.h2c_data(cid, r2t.u16(10), 0, bytes(SIZE))
        queue.connection.send(piece)
        queue.wait(cid, site.silence_s)
        queue.connection.send(piece)
        return queue.connection.expect_closed(site.silence_s)


@probe("B23", right="term 02 | term 04", nvmet="silence | fin")
def h2c_data_out_of_order(site: Site) -> str:
    """The second half before the first: offsets are in order (TCP 1.0, 3.3.2.1)."""
    with asked_for_data(site) as (queue, cid, r2t):
        half = bytes(SIZE // 2)
        with contextlib.suppress(Exception):
            queue.connection.send(pdu.h2c_data(cid, r2t.u16(10), SIZE // 2, half, last=True))
        return completion(site, queue, cid)


@variants(
    "B23",
    [
        ("TTAG 0", 0, "term 02 | term 01/a", "fin"),
        ("TTAG 1", 1, "term 02 | term 01/a", "fin"),
        ("TTAG 60000", 60000, "term 02", "fin"),
    ],
)
def unsolicited_h2c_data(site: Site, ttag: int) -> str:
    """H2CData before any R2T, on a queue that never had a Write."""
    with site.pair(1) as controller:
        connection = controller.io[0].connection
        connection.send(pdu.h2c_data(1, ttag, 0, bytes(4096)))
        return connection.expect_closed(site.silence_s)


@probe("B23", right="term 02 | term 01/a", nvmet="fin")
def h2c_data_before_connect(site: Site) -> str:
    """H2CData right after the ICResp."""
    with site.raw() as connection:
        connection.initialize()
        connection.send(pdu.h2c_data(0, 0, 0, bytes(4096)))
        return connection.expect_closed(site.silence_s)


@variants("B22", [(f"TTAG {ttag}", ttag, "term 02 | term 01/a", "fin") for ttag in (0, 1, 5)])
def h2c_data_for_a_read(site: Site, ttag: int) -> str:
    """A command that expects no data from the host."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        cid = queue.submit(nvme.block_command(nvme.READ, 0, 1), expected=block)
        queue.connection.send(pdu.h2c_data(cid, ttag, 0, bytes(block)))
        return queue.connection.expect_closed(site.silence_s)


@variants(
    "B26",
    [
        (f"{size} bytes", size, "ok r2t", "silence" if size <= 16384 else "ok r2t")
        for size in (4096, 8192, 20480, 65536)
    ],
)
def write_without_in_capsule_data(site: Site, size: int) -> str:
    """Every size may come by R2T, also one that would fit the capsule."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        data = bytes(range(256)) * (size // 256)
        entry = nvme.block_command(nvme.WRITE, 8, size // block)
        queue.answers_r2t = True
        cid = queue.submit(entry, data=data, in_capsule=False)
        received = queue.pump(site.silence_s)
        text = queue.wait(cid, site.silence_s).text()
        assert queue.read(8, size // block, block) == data
        return f"{text} r2t" if received.kind == pdu.PduType.R2T else text


@probe("B38", right="0/22", nvmet="fin")
def data_digest_wrong_in_h2c_data(site: Site) -> str:
    """The command fails with 0/22, nothing is written and the connection lives."""
    with asked_for_data(site, digests=3) as (queue, cid, r2t):
        with site.pair(1) as other:
            block = other.block_size()
            other.io[0].write(0, bytes(SIZE), block)
        raw = pdu.h2c_data(cid, r2t.u16(10), 0, b"n" * SIZE, digests=3, data_digest=0xBAD)
        queue.connection.send(raw)
        text = completion(site, queue, cid)
        answer = queue.execute(nvme.sqe(nvme.FLUSH, 1))
        assert answer.is_ok, answer.text()
        data = queue.read(0, SIZE // block, block)
        assert data == bytes(SIZE), "data with a bad digest was written"
        return text


@probe("B25", right="ok", nvmet="ok")
def h2c_data_in_many_pieces(site: Site) -> str:
    """An R2T answered by small H2CData PDUs, LAST on the last one only."""
    with asked_for_data(site) as (queue, cid, r2t):
        ttag, unit = r2t.u16(10), 1028
        length = r2t.u32(16)
        for start in range(0, length, unit):
            size = min(unit, length - start)
            queue.connection.send(
                pdu.h2c_data(cid, ttag, start, b"p" * size, last=start + size == length)
            )
        return completion(site, queue, cid)
