"""I/O commands: namespaces, ranges, opcodes, FUSE, sizes (NVM Command Set 1.0)."""

from __future__ import annotations

import struct
from typing import Any

from nvme_tcp import commands as nvme
from nvme_tcp.host import Controller
from nvme_tcp.queue import Queue

from ..probing import Site, probe, variants


@variants(
    "ref",
    [
        ("Read of 9", (nvme.READ, 9), "0/0b dnr", ""),
        ("Read of 0", (nvme.READ, 0), "0/0b dnr", ""),
        ("Read of FFFFFFFF", (nvme.READ, 0xFFFFFFFF), "0/0b dnr", ""),
        ("Read of FFFFFFFE", (nvme.READ, 0xFFFFFFFE), "0/0b dnr", ""),
        ("Write of 9", (nvme.WRITE, 9), "0/0b dnr", ""),
        ("Flush of 9", (nvme.FLUSH, 9), "0/0b dnr", ""),
        ("Flush of 0", (nvme.FLUSH, 0), "0/0b dnr", ""),
        ("Flush of FFFFFFFF", (nvme.FLUSH, 0xFFFFFFFF), "0/0b dnr | ok", "0/0b"),
        ("Write Zeroes of FFFFFFFF", (nvme.WRITE_ZEROES, 0xFFFFFFFF), "0/0b dnr", ""),
    ],
)
def nsid(site: Site, how: tuple[int, int]) -> str:
    """Namespaces that are not there; the broadcast value where it does not belong."""
    opcode, number = how
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        entry = nvme.block_command(opcode, 0, 1, nsid=number)
        data = bytes(block) if opcode == nvme.WRITE else b""
        expected = block if opcode == nvme.READ else 0
        return queue.execute(entry, site.silence_s, data=data, expected=expected).text()


@variants(
    "ref",
    [
        (f"{name} {where}", (opcode, where), "0/80 dnr", nvmet)
        for name, opcode, nvmet in (
            ("Read", nvme.READ, "0/80 | 0/06"),
            ("Write", nvme.WRITE, "0/80 | 0/06"),
            ("Write Zeroes", nvme.WRITE_ZEROES, "0/80 | 0/06 | ok"),
            ("Compare", nvme.COMPARE, "0/01"),
            ("Verify", nvme.VERIFY, "0/01"),
        )
        for where in ("at the end", "across the end", "far", "wrapping")
    ],
)
def lba_out_of_range(site: Site, how: tuple[int, str]) -> str:
    """SLBA + NLB beyond NSZE, sums that wrap included."""
    opcode, where = how
    with site.pair(1) as controller:
        queue = controller.io[0]
        block, count = controller.block_size(), controller.block_count()
        slba, blocks = {
            "at the end": (count, 1),
            "across the end": (count - 1, 2),
            "far": (1 << 40, 1),
            "wrapping": ((1 << 64) - 1, 2),
        }[where]
        entry = nvme.block_command(opcode, slba, blocks)
        sends = opcode in (nvme.WRITE, nvme.COMPARE)
        return queue.execute(
            entry,
            site.silence_s,
            data=bytes(block * blocks) if sends else b"",
            expected=block * blocks if opcode == nvme.READ else 0,
        ).text()


@variants(
    "D77",
    [
        # A vendor opcode that means something here: no data is not enough of it.
        ("92h", (0x92, 0), "0/0f dnr", "0/01 dnr"),
        ("96h", (0x96, 0), "0/01 dnr", ""),
        ("93h with 512 bytes", (0x93, 512), "0/01 dnr", "silence"),
        ("0Ah", (0x0A, 0), "0/01 dnr", ""),
        ("FEh", (0xFE, 0), "0/01 dnr", ""),
        ("91h with 512 bytes to come", (0x91, 512), "0/01 dnr", "silence | 0/01"),
        ("fabrics Connect on I/O", (0x7F, 0), "0/01 dnr | 0/02 dnr | 0/0c", "0/01"),
    ],
)
def opcode(site: Site, how: tuple[int, int]) -> str:
    """Opcodes that are not there; no data is asked for, and the connection goes on."""
    number, length = how
    with site.pair(1) as controller:
        queue = controller.io[0]
        data = nvme.sgl(nvme.SGL_TRANSPORT, length)
        answer = queue.execute(nvme.sqe(number, 1, data=data), site.silence_s)
        queue.read(0, 1, controller.block_size())
        return answer.text()


@variants(
    "D68",
    [
        ("Read 11b", (nvme.READ, 3), "0/02 dnr", ""),
        ("Flush 01b", (nvme.FLUSH, 1), "0/02 dnr", ""),
        ("Flush 11b", (nvme.FLUSH, 3), "0/02 dnr", ""),
        ("Read 01b", (nvme.READ, 1), "0/02 dnr", ""),
        ("Read 10b", (nvme.READ, 2), "0/02 dnr | 0/0a", "0/02"),
        ("Write 01b", (nvme.WRITE, 1), "0/02 dnr", ""),
        ("Compare 10b", (nvme.COMPARE, 2), "0/02 dnr | 0/0a", "0/02"),
    ],
)
def fuse(site: Site, how: tuple[int, int]) -> str:
    """Only Compare (first) and Write (second) may be fused."""
    number, bits = how
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        entry = nvme.block_command(number, 0, 1, flags=0x40 | bits)
        sends = number in (nvme.WRITE, nvme.COMPARE)
        return queue.execute(
            entry,
            site.silence_s,
            data=bytes(block) if sends else b"",
            expected=block if number == nvme.READ else 0,
        ).text()


@variants(
    "B32",
    [
        ("1 range in 4096 bytes", (1, 4096, 0, 4), "ok", ""),
        ("1 range in 16 bytes", (1, 16, 0, 4), "ok", ""),
        ("2 ranges in 16 bytes", (2, 16, 0, 4), "0/0f dnr", ""),
        ("2 ranges in 4096 bytes", (2, 4096, 0, 4), "ok", ""),
        ("256 ranges in 4096 bytes", (256, 4096, 0, 4), "ok | 1/83", "ok"),
        ("256 ranges in 4080 bytes", (256, 4080, 0, 4), "0/0f dnr", ""),
        ("IDR only", (1, 16, 0, 1), "ok", ""),
        ("IDW only", (1, 16, 0, 2), "ok", ""),
        ("no attribute", (1, 16, 0, 0), "ok", ""),
        ("range beyond the end", (1, 16, 1 << 40, 4), "0/80 dnr", "0/80 | ok | 0/06 | 0/02"),
    ],
)
def dataset_management(site: Site, how: tuple[int, int, int, int]) -> str:
    """The SGL may be longer than the ranges (Linux always sends 4096 bytes), never shorter."""
    count, length, slba, attributes = how
    with site.pair(1) as controller:
        queue = controller.io[0]
        ranges = nvme.dsm_ranges([(slba + 8 * index, 1) for index in range(count)])
        data = ranges.ljust(length, b"\0")[:length]
        entry = nvme.sqe(nvme.DSM, 1, cdw10=count - 1, cdw11=attributes)
        return queue.execute(entry, site.silence_s, data=data).text()


def transfer_limit(controller: Controller) -> int:
    """MDTS in bytes; 0: none."""
    mdts = controller.identify(1)[77]
    return 4096 << mdts if mdts else 0


@variants(
    "B31",
    [("Read", nvme.READ, "0/02 dnr", "no limit"), ("Write", nvme.WRITE, "0/02 dnr", "no limit")],
)
def beyond_mdts(site: Site, number: int) -> str:
    """One block more than MDTS: refused before any data is asked for."""
    with site.pair(1) as controller:
        limit = transfer_limit(controller)
        if not limit:
            return "no limit"
        queue = controller.io[0]
        block = controller.block_size()
        length = limit + block
        entry = nvme.block_command(number, 0, length // block)
        data = bytes(length) if number == nvme.WRITE else b""
        queue.answers_r2t = False
        cid = queue.submit(
            entry, data=data, expected=length if number == nvme.READ else 0, in_capsule=False
        )
        answer = queue.wait(cid, site.silence_s)
        assert not queue.r2ts and not answer.data
        return answer.text()


@probe("B31", right="ok")
def exactly_mdts(site: Site) -> str:
    """The largest transfer, both ways (1 MiB where there is no limit)."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        length = transfer_limit(controller) or 1 << 20
        data = b"".join(struct.pack("<I", index) for index in range(length // 4))
        queue.write(0, data, block)
        return "ok" if queue.read(0, length // block, block) == data else "other bytes"


def sqhd_sequence(queue: Queue, count: int) -> list[int]:
    """SQHD of `count` Flushes, one at a time."""
    return [queue.execute(nvme.sqe(nvme.FLUSH, 1)).sqhd for _ in range(count)]


@probe("C59", right="ok")
def sq_head_counts_round(site: Site) -> str:
    """SQSIZE 3 (four entries): 1 for the Connect, then 2, 3, 0, 1 and so on."""
    with site.pair(0) as controller:
        queue = controller.add_queue(sqsize=3)
        assert sqhd_sequence(queue, 9) == [2, 3, 0, 1, 2, 3, 0, 1, 2]
        return "ok"


@probe("C59", right="ffff", nvmet="0 | ffff")
def sq_head_without_flow_control(site: Site) -> str:
    """CATTR bit 2 on an I/O queue: FFFFh in every completion."""
    with site.pair(0) as controller:
        queue = controller.add_queue(sqsize=3, cattr=4)
        heads = set(sqhd_sequence(queue, 5))
        return "|".join(f"{head:x}" for head in sorted(heads)) if len(heads) == 1 else "mixed"


@variants("B35", [("enabled", 0, "ok response", ""), ("disabled", 4, "ok success", "")])
def success_flag(site: Site, cattr: int) -> str:
    """SUCCESS replaces a response only while SQ flow control is disabled (TCP 1.0, 3.3.2.1)."""
    with site.pair(0) as controller:
        queue = controller.add_queue(cattr=cattr)
        block = controller.block_size()
        entry = nvme.block_command(nvme.READ, 0, 8)
        answer = queue.execute(entry, expected=8 * block)
        return f"{answer.code} {'success' if answer.by_success_flag else 'response'}"


@probe("C61", right="ok | 0/03", nvmet="ok")
def same_cid_twice(site: Site) -> str:
    """Two Reads under one CID: each is answered once, and never with the other's data."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        queue.write(0, b"0" * block, block)
        queue.write(1, b"1" * block, block)
        entries = [
            nvme.with_cid(
                nvme.block_command(nvme.READ, slba, 1, data=nvme.sgl(nvme.SGL_TRANSPORT, block)), 5
            )
            for slba in (0, 1)
        ]
        queue.connection.send(b"".join(queue.capsule(entry) for entry in entries))
        codes, data = set(), []
        for entry in entries:
            queue.register(entry, expected=block)
            answer = queue.wait(5, site.silence_s)
            codes.add(answer.code)
            data += [answer.data] if answer.is_ok else []
        assert all(piece in (b"0" * block, b"1" * block) for piece in data)
        return "ok" if codes == {"ok"} else "0/03" if codes <= {"ok", "0/03"} else str(codes)


@variants(
    "ref",
    [
        (name, option, "ok", "")
        for name, option in (
            ("FUA", {"fua": True}),
            ("read-once", {"dsm": 6}),
            ("readahead", {"dsm": 7}),
            ("every DSM bit", {"dsm": 0xFF}),
        )
    ],
)
def read_with_attributes(site: Site, options: dict[str, Any]) -> str:
    """Hints and FUA never change bytes or status."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        queue.write(40, b"h" * block, block, fua=bool(options.get("fua")))
        return "ok" if queue.read(40, 1, block, **options) == b"h" * block else "other bytes"
