"""Command capsules that break the rules of framing (TCP 1.0, 3.6.1, 3.6.2.6 and 3.4.1)."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.connection import Terminated
from nvme_tcp.queue import Queue

from ..probing import Site, probe, variants


def flush_entry(cid: int = 77) -> bytes:
    """A Flush of namespace 1."""
    return nvme.sqe(nvme.FLUSH, 1, cid=cid)


def write_entry(length: int, blocks: int, cid: int = 77) -> bytes:
    """A Write at LBA 0 whose data is in the capsule."""
    data = nvme.sgl(nvme.SGL_IN_CAPSULE, length)
    return nvme.with_cid(nvme.block_command(nvme.WRITE, 0, blocks, data=data), cid)


def answer_to(queue: Queue, entry: bytes, raw: bytes, wait_s: float) -> str:
    """Send `raw`, which carries `entry`, and say how it was answered and what came then."""
    cid = queue.register(entry)
    queue.connection.send(raw)
    return queue.wait(cid, wait_s).text()


@variants(
    "ref",
    [
        ("HLEN 64", {"hlen": 64}, "term 01/2", "fin"),
        ("HLEN 0", {"hlen": 0}, "term 01/2", "fin"),
        ("HLEN 255", {"hlen": 255}, "term 01/2", "fin"),
        ("PLEN 70", {"plen": 70}, "term 01/4", "ok"),
        ("PLEN 8", {"plen": 8}, "term 01/4", "ok"),
        ("PLEN 0", {"plen": 0}, "term 01/4", "ok | fin"),
        ("HDGSTF not negotiated", {"flags": 1}, "term 01", "ok | fin | silence"),
        ("DDGSTF not negotiated", {"flags": 2}, "term 01", "ok | fin | silence"),
    ],
)
def capsule_without_data(site: Site, header: dict[str, Any]) -> str:
    """A Flush whose common header is wrong."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        raw = pdu.command(flush_entry(), **header)
        return answer_to(queue, flush_entry(), raw, site.silence_s)


@variants(
    "ref",
    [
        ("PDO 128", {"pdo": 128}, "term 01/3", "ok"),
        ("PDO 0", {"pdo": 0}, "term 01/3", "ok"),
        ("PDO 71", {"pdo": 71}, "term 01/3", "ok"),
    ],
)
def capsule_with_data(site: Site, header: dict[str, Any]) -> str:
    """A Write with in-capsule data whose PDO is wrong."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        entry = write_entry(block, 1)
        raw = pdu.command(entry, bytes(block), **header)
        return answer_to(queue, entry, raw, site.silence_s)


@probe("ref", right="term 01/4", nvmet="silence")
def in_capsule_data_missing(site: Site) -> str:
    """The SGL says 4096 bytes in the capsule, PLEN says none."""
    with site.pair(1) as controller:
        entry = write_entry(4096, 4096 // controller.block_size())
        return answer_to(controller.io[0], entry, pdu.command(entry), site.silence_s)


@probe("ref", right="term 01/4", nvmet="fin | ok")
def in_capsule_data_longer_than_sgl(site: Site) -> str:
    """8192 bytes in the capsule, 4096 in the SGL: the rest must never be parsed as a PDU."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        entry = write_entry(4096, 4096 // controller.block_size())
        queue.register(entry)
        queue.connection.send(pdu.command(entry, bytes(8192)))
        return queue.connection.expect_closed(site.silence_s)


@probe("ref", right="term 01/4 | term 05 | 0/16 | 0/0f | 0/02", nvmet="0/16 | fin")
def in_capsule_data_beyond_the_limit(site: Site) -> str:
    """More in-capsule data than IOCCSZ allows."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        length = controller.in_capsule + 16384
        entry = write_entry(length, length // controller.block_size())
        return answer_to(queue, entry, pdu.command(entry, bytes(length)), site.silence_s)


@probe("B29", right="ok", nvmet="ok")
def admin_takes_8_kib_in_capsule(site: Site) -> str:
    """An admin queue takes 8 KiB of in-capsule data whatever IOCCSZ says (TCP 1.0, 3.3.2.2)."""
    with site.pair(0) as controller:
        queue = controller.admin
        # An admin command that takes no such data: the frame must be accepted, whatever the status.
        entry = nvme.sqe(0x0D, data=nvme.sgl(nvme.SGL_IN_CAPSULE, 8192), cid=9)
        answer_to(queue, entry, pdu.command(entry, bytes(8192)), site.silence_s)
        return queue.execute(nvme.identify(1), expected=4096).code


@variants(
    "ref",
    [
        ("type 55h", 0x55, "term 01/0", "fin"),
        ("type 08h", 0x08, "term 01/0", "fin"),
        ("ICResp", 0x01, "term 01/0 | term 02", "fin"),
        ("C2HTermReq", 0x03, "term 01/0 | term 02", "fin"),
        ("response", 0x05, "term 01/0 | term 02", "fin"),
        ("C2HData", 0x07, "term 01/0 | term 02", "fin"),
        ("R2T", 0x09, "term 01/0 | term 02", "fin"),
    ],
)
def pdu_that_no_host_sends(site: Site, kind: int) -> str:
    """On a connected I/O queue."""
    with site.pair(1) as controller:
        connection = controller.io[0].connection
        length = pdu.HEADER_LENGTHS.get(kind, 24)  # type: ignore[call-overload]
        connection.send(pdu.build(kind, bytes(length - 8)))
        return connection.expect_closed(site.silence_s)


@probe("ref", right="term 02", nvmet="fin")
def icreq_on_a_connected_queue(site: Site) -> str:
    """ICReq where only commands and data belong."""
    with site.pair(1) as controller:
        connection = controller.io[0].connection
        connection.send(pdu.icreq())
        return connection.expect_closed(site.silence_s)


@variants(
    "B38",
    [("in a Flush", 0, "term 03 received", "fin"), ("in a Write", 1, "term 03 received", "fin")],
)
def header_digest_wrong(site: Site, blocks: int) -> str:
    """FES 03h, FEI is the digest received (TCP 1.0, 3.6.2.5)."""
    wrong = 0x12345678
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        entry = write_entry(block * blocks, blocks) if blocks else flush_entry()
        data = bytes(block * blocks)
        queue.connection.send(pdu.command(entry, data, digests=3, header_digest=wrong))
        try:
            queue.connection.receive(site.silence_s)
        except Terminated as end:
            queue.connection.expect_closed(site.silence_s)
            return end.text() + (" received" if end.fei == wrong else f" fei={end.fei:x}")
        return "answered"


@variants("B38", [("CID 0", 0, "0/22", "fin"), ("CID 7", 7, "0/22", "fin")])
def data_digest_wrong_in_capsule(site: Site, cid: int) -> str:
    """The command fails with 0/22 under its own CID, nothing is written, the connection lives."""
    with site.pair(1, digests=3) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        queue.write(0, b"o" * block, block)
        entry = write_entry(block, 1, cid)
        raw = pdu.command(entry, b"n" * block, digests=3, data_digest=0xBAD)
        text = answer_to(queue, entry, raw, site.silence_s)
        assert queue.read(0, 1, block) == b"o" * block, "data with a bad digest was written"
        return text


@probe("B38", right="term 01 | term 03", nvmet="fin | silence")
def header_digest_absent(site: Site) -> str:
    """HDGST was negotiated and HDGSTF is clear."""
    with site.pair(1, digests=1) as controller:
        connection = controller.io[0].connection
        connection.send(pdu.command(flush_entry()))
        return connection.expect_closed(site.silence_s)


def _byte_by_byte(raw: bytes) -> list[bytes]:
    return [raw[index : index + 1] for index in range(len(raw))]


@variants(
    "B34",
    [
        ("byte by byte", (_byte_by_byte, 0.0), "ok", ""),
        ("header and a stall", (lambda raw: [raw[:4], raw[4:]], 1.0), "ok", ""),
        ("data and a stall", (lambda raw: [raw[:-3], raw[-3:]], 1.0), "ok", ""),
    ],
)
def capsule_in_pieces(site: Site, how: tuple[Callable[[bytes], list[bytes]], float]) -> str:
    """The same result as in one piece, whatever the pauses."""
    split, pause_s = how
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        data = struct.pack("<I", 0xC0FFEE) * (block // 4)
        entry = write_entry(block, 1)
        cid = queue.register(entry)
        for piece in split(pdu.command(entry, data)):
            queue.connection.send(piece)
            time.sleep(pause_s)  # The pause is the input here, nothing is waited for.
        text = queue.wait(cid).text()
        assert queue.read(0, 1, block) == data
        return text


@variants("B34", [("8 Flushes", 8, "ok", ""), ("31 Flushes", 31, "ok", "")])
def commands_in_one_segment(site: Site, count: int) -> str:
    """As many as the queue holds, at once."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        entries = [flush_entry(100 + index) for index in range(count)]
        cids = [queue.register(entry) for entry in entries]
        queue.connection.send(b"".join(map(pdu.command, entries)))
        return "ok" if all(queue.wait(cid).is_ok for cid in cids) else "failed"
