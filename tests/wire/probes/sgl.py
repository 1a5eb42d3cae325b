"""SGL descriptors and transfer lengths (Base 2.0, 4.1.2; TCP 1.0, 3.3.2.2)."""

from __future__ import annotations

from nvme_tcp import commands as nvme

from ..probing import Site, variants


@variants(
    "B28",
    [
        ("last segment 30h", 0x30, "0/11 dnr", "ok | 0/11"),
        ("segment 20h", 0x20, "0/11 dnr", "ok | 0/11"),
        ("bit bucket 10h", 0x10, "0/11 dnr", "ok | 0/11"),
        ("keyed 40h", 0x40, "0/11 dnr", "ok | 0/11"),
        ("subtype 5Fh", 0x5F, "0/11 dnr", "ok | 0/11"),
        ("reserved 0Fh", 0x0F, "0/11 dnr", "ok | 0/11"),
        ("vendor F0h", 0xF0, "0/11 dnr", "ok | 0/11"),
        ("type 03h", 0x03, "0/11 dnr", "ok | 0/11"),
    ],
)
def read_with_sgl_of_type(site: Site, kind: int) -> str:
    """A descriptor that NVMe/TCP does not have: the command fails, the connection lives."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        entry = nvme.block_command(nvme.READ, 0, 1, data=nvme.sgl(kind, block))
        answer = queue.execute(entry, site.silence_s, expected=block, keep_sgl=True)
        queue.read(0, 1, block)
        return answer.text()


@variants("B28", [("512", 512, "term 06 | 0/16 dnr", "ok"), ("1", 1, "term 06 | 0/16 dnr", "ok")])
def in_capsule_offset(site: Site, offset: int) -> str:
    """An in-capsule data block at another offset than 0 (Identify announces no ICDOFF)."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        data = nvme.sgl(nvme.SGL_IN_CAPSULE, block, offset)
        entry = nvme.block_command(nvme.WRITE, 0, 1, data=data)
        answer = queue.execute(
            entry, site.silence_s, data=bytes(block), in_capsule=True, keep_sgl=True
        )
        return answer.text()


@variants(
    "ref",
    [
        ("Read half", (nvme.READ, 0.5), "0/0f dnr", ""),
        ("Read double", (nvme.READ, 2), "0/0f dnr", ""),
        ("Read none", (nvme.READ, 0), "0/0f dnr", ""),
        ("Write half", (nvme.WRITE, 0.5), "0/0f dnr", ""),
        ("Write none", (nvme.WRITE, 0), "0/0f dnr", ""),
    ],
)
def sgl_of_other_length(site: Site, how: tuple[int, float]) -> str:
    """NLB and the SGL disagree: no data moves."""
    opcode, factor = how
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        blocks = 8192 // block
        length = int(8192 * factor)
        inline = opcode == nvme.WRITE and length > 0
        kind = nvme.SGL_IN_CAPSULE if inline else nvme.SGL_TRANSPORT
        entry = nvme.block_command(opcode, 0, blocks, data=nvme.sgl(kind, length))
        answer = queue.execute(
            entry,
            site.silence_s,
            data=bytes(length) if inline else b"",
            keep_sgl=True,
            expected=16384 if opcode == nvme.READ else 0,
        )
        assert not answer.data
        queue.read(0, 1, block)
        return answer.text()


@variants(
    "ref",
    [
        ("PSDT 0", 0x00, "0/02 dnr", ""),
        ("PSDT 2", 0x80, "0/02 dnr | ok", "0/02 | ok"),
        ("PSDT 3", 0xC0, "0/02 dnr", ""),
    ],
)
def psdt(site: Site, flags: int) -> str:
    """NVMe over Fabrics uses SGLs only."""
    with site.pair(1) as controller:
        queue = controller.io[0]
        block = controller.block_size()
        entry = nvme.block_command(nvme.READ, 0, 1, flags=flags)
        return queue.execute(entry, site.silence_s, expected=block).text()


@variants(
    "D64",
    [
        ("CNS 01, 8192 bytes", (1, 0, 8192), "ok 4096 | 0/0f", "0/0f"),
        ("CNS 05, 8192 bytes", (5, 1, 8192), "ok 4096 | 0/0f | 0/02", "0/0f | 0/02"),
        ("CNS 01, 512 bytes", (1, 0, 512), "ok 512 | 0/0f", "0/0f"),
        ("CNS 00, 512 bytes", (0, 1, 512), "ok 512 | 0/0f", "0/0f"),
        ("CNS 01, 0 bytes", (1, 0, 0), "ok 0 | 0/0f", "0/0f"),
        ("CNS 01, 4095 bytes", (1, 0, 4095), "ok 4095 | 0/0f", "0/0f"),
    ],
)
def identify_with_length(site: Site, how: tuple[int, int, int]) -> str:
    """Never more bytes than the host has room for, nor more than there are."""
    cns, nsid, length = how
    with site.pair(0) as controller:
        entry = nvme.with_sgl(nvme.identify(cns, nsid), nvme.sgl(nvme.SGL_TRANSPORT, length))
        answer = controller.admin.execute(entry, site.silence_s, expected=length, keep_sgl=True)
        again = controller.identify(1)
        assert len(again) == 4096
        return f"{answer.text()} {len(answer.data)}" if answer.is_ok else answer.text()
