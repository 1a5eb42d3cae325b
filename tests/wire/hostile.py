"""Hostile input by seed: PDUs and commands of which anything may be wrong."""

from __future__ import annotations

import random
import struct
import time

from nvme_tcp import commands as nvme
from nvme_tcp import pdu
from nvme_tcp.connection import ConnectionClosed, RawConnection, Silence, Terminated
from nvme_tcp.queue import Queue

OPCODES = (0, 1, 2, 5, 6, 8, 9, 0x0A, 0x0C, 0x19, 0x7F)
NSIDS = (0, 1, 1, 1, 2, 1024, 1025, 0xFFFFFFFE, 0xFFFFFFFF)
SGL_KINDS = (0x01, 0x01, 0x5A, 0x5A, 0x5A, 0x00, 0x10, 0x30, 0x40)
LENGTHS = (0, 4, 8, 16, 32, 512, 4096, 8192, 12345, 1 << 20, 1 << 21, 0xFFFFFFFF)
LBAS = (0, 1, 131071, 131072, 1 << 55, 1 << 63, (1 << 64) - 1)
COUNTS = (0, 7, 0xFF, 0xFFFF)
LONGEST_INLINE = 64 << 10
CIDS = 64


def hostile_ranges(rng: random.Random, opcode: int, length: int) -> bytes:
    """Ranges of Copy or Dataset Management that overlap, wrap, end beyond the end, are empty."""
    ranges = []
    for _ in range(length // 16 + 1):
        slba = rng.choice([*LBAS, rng.randrange(131072)])
        if opcode == nvme.COPY:
            ranges.append(struct.pack("<8xQH14x", slba, rng.choice(COUNTS)))
        else:
            ranges.append(struct.pack("<IIQ", 0, rng.choice((0, 1, 8, 0xFFFFFFFF)), slba))
    return b"".join(ranges)[:length]


def hostile_command(rng: random.Random, opcode: int, cid: int) -> tuple[bytes, bytes]:
    """A submission queue entry, and the data of its capsule."""
    kind, length = rng.choice(SGL_KINDS), rng.choice(LENGTHS)
    dwords = [rng.choice((0, 0, 1, 7, 0xFFFF, 0xFFFFFFFF, rng.getrandbits(32))) for _ in range(6)]
    if rng.random() < 0.6:
        slba = rng.choice([*LBAS, rng.randrange(131072)])
        dwords[0], dwords[1] = slba & 0xFFFFFFFF, slba >> 32
        dwords[2] = rng.choice([*COUNTS, max(length // 512 - 1, 0) & 0xFFFF])
    entry = nvme.sqe(
        opcode,
        rng.choice(NSIDS),
        cid=cid,
        flags=0x40 | rng.choice((0, 0, 0, 0, 0, 1, 2, 3)),
        cdw2=rng.choice((0, 0, 1, 4, 8, rng.getrandbits(32))),
        data=nvme.sgl(kind, length, rng.choice((0, 0, 0, 0, 1))),
        cdw10=dwords[0],
        cdw11=dwords[1],
        cdw12=dwords[2],
        cdw13=dwords[3],
        cdw14=dwords[4],
        cdw15=dwords[5],
    )
    if kind != nvme.SGL_IN_CAPSULE or length > LONGEST_INLINE:
        return entry, b""
    if opcode in (nvme.COPY, nvme.DSM):
        return entry, hostile_ranges(rng, opcode, length)
    return entry, bytes(length)


def hostile_pdu(rng: random.Random, digests: int) -> bytes:
    """A PDU that is right, of random fields, changed in a few bytes, cut short, or no PDU."""
    draw = rng.random()
    if draw < 0.6:
        opcode = rng.choice([*OPCODES, rng.randrange(256)])
        raw = pdu.command(*hostile_command(rng, opcode, rng.randrange(CIDS)), digests=digests)
    elif draw < 0.75:
        offset = rng.choice((0, 4096, rng.getrandbits(32)))
        data = bytes(rng.choice((1, 512, 4096)))
        raw = pdu.h2c_data(rng.randrange(CIDS), rng.randrange(200), offset, data, digests=digests)
    elif draw < 0.8:
        raw = pdu.icreq(digests=rng.randrange(4))
    elif draw < 0.85:
        raw = pdu.h2c_term(rng.randrange(8), rng.getrandbits(32), bytes(rng.choice((0, 72, 128))))
    else:
        raw = rng.randbytes(rng.randrange(1, 200))
    if rng.random() < 0.3:
        changed = bytearray(raw)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(min(len(raw), rng.choice((8, 24, 72, len(raw)))))
            changed[at] = rng.choice((0, 255, rng.randrange(256), changed[at] ^ 1))
        raw = bytes(changed)
    return raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.05 else raw


def await_answers(queue: Queue, cids: set[int], within_s: float = 5.0) -> str:
    """Until each command is answered, R2Ts being honoured: "ok", or how the connection ended.

    Raises Silence when neither comes, and AssertionError for an answer that nobody waits for.
    """
    connection, left = queue.connection, set(cids)
    limit = time.monotonic() + within_s
    while left:
        try:
            received = connection.receive(max(limit - time.monotonic(), 0))
        except (Terminated, ConnectionClosed):
            return "ended"
        except Silence as silence:
            raise Silence(f"no answer for CIDs {sorted(left)}") from silence
        cid = received.u16(16 + 4) if received.kind == pdu.PduType.RESPONSE else received.u16(8)
        if received.kind == pdu.PduType.R2T:
            data = bytes(received.u32(16))
            connection.send(
                pdu.h2c_data(cid, received.u16(10), received.u32(12), data, digests=queue.digests)
            )
        elif received.kind == pdu.PduType.RESPONSE:
            assert cid in left, f"a second answer for CID {cid}"
            left.remove(cid)
    return "ok"


def drop_input(connection: RawConnection) -> bool:
    """Take in and forget what has come; whether the target has closed."""
    closed = connection.is_closed
    while connection.has_pdu:
        connection._next()
    return closed
