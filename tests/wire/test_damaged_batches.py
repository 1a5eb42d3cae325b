"""A batch damaged at every byte, by every carrier: the fault is named, and nothing else changes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from nvme_tcp import hints
from nvme_tcp.crc32c import crc32c
from nvme_tcp.queue import Queue

from prestage.ext.codec import decode_batch
from prestage.ext.errors import Malformed

from . import hinting
from .hinting import BLOCK
from .probing import SEED, Site

CONFIG = hinting.CONFIG | {"hints": {"records_per_s": 1_000_000_000}}
MAILBOX = 9
SLBA, NLB = 1000, 16
"""What is read beside each batch."""
INVALID_FIELD, BAD_LENGTH = "0/02 dnr", "0/0f"
BATCH = hints.batch(
    hints.set_(7, [(0, 64), (4096, 32)], flags=hints.ORDERED, tag=1),
    hints.signature(8, 8, b"12345678", tag=2),
    hints.intent(3, set_id=7, session=5, tag=3),
    hints.intent(4, [(8, 8)], tag=4),
    hints.retain([(0, 8)], tag=5),
    hints.residency(set_id=7, tag=6),
    hints.residency([(0, 8), (16, 8)], tag=7),
    hints.outcome(3, tag=8),
    hints.cancel(hints.CANCEL_SESSION, 5, tag=9),
    hints.set_(9, op=hints.DROP, tag=10),
    sequence=77,
)
"""Every type of record."""


def sealed(batch: bytes) -> bytes:
    """The batch with the checksum that is right for its size, where there is one."""
    size = int.from_bytes(batch[8:12], "little")
    covered = batch[:size] if len(hints.batch()) <= size <= len(batch) else batch
    checksum = crc32c(covered[:12] + bytes(4) + covered[16:])
    return batch[:12] + struct.pack("<I", checksum) + batch[16:]


def damaged() -> Iterator[bytes]:
    """Each byte replaced, with and without the right checksum; each length; something after it."""
    for place, byte in enumerate(BATCH):
        for value in {0, 255, byte ^ 255, byte ^ 1} - {byte}:
            one = BATCH[:place] + bytes([value]) + BATCH[place + 1 :]
            yield one
            yield sealed(one)
    for length in range(1, len(BATCH)):
        one = BATCH[:length]
        yield one
        if length >= len(hints.batch()):
            yield sealed(one[:8] + struct.pack("<I", length) + one[12:])
    yield BATCH + bytes(range(100))


def fault_of(data: bytes) -> tuple[str, int] | None:
    """What is wrong, and where; None: nothing."""
    try:
        decode_batch(data)
    except Malformed as error:
        return hints.FAULTS[error.fault], error.offset
    return None


def check_answer(queue: Queue, data: bytes) -> None:
    """The mailbox says what became of it."""
    said = hints.parse_answer(hinting.read_pages(queue, hints.MAILBOX_PAGE + MAILBOX))
    assert (said.writer, said.sequence) == struct.unpack_from("<QI", data, 16), data.hex()
    found = (said.fault, said.fault_offset) if said.state == hints.REFUSED else None
    assert found == fault_of(data), data.hex()


def check_submit(queue: Queue, data: bytes, **options: Any) -> None:
    """The submit opcode ends as it should."""
    answer = queue.execute(hints.submit(MAILBOX), data=data, **options)
    if len(data) < len(hints.batch()):
        assert BAD_LENGTH in answer.text(), data.hex()
        return
    expected = fault_of(data)
    if expected is None:
        assert answer.is_ok, (answer.text(), data.hex())
    else:
        assert INVALID_FIELD in answer.text(), data.hex()
        assert (hints.FAULTS[answer.dw1], answer.dw0) == expected, data.hex()
    check_answer(queue, data)


@pytest.mark.parametrize("in_capsule", [True, False])
def test_every_damage_is_named_where_it_is_and_reads_beside_it_stay_right(
    site: Site, in_capsule: bool
) -> None:
    data = random.Random(SEED).randbytes(NLB * BLOCK)
    cases = [*damaged()]
    with site.pair(2) as controller:
        queue, other = controller.io
        other.write(SLBA, data, BLOCK)
        for number, one in enumerate(cases):
            check_submit(queue, one, in_capsule=in_capsule)
            page = hints.page(one)
            place = hints.MAILBOX_PAGE + MAILBOX
            assert hinting.write_pages(queue, place, page, in_capsule=in_capsule).is_ok
            check_answer(queue, page)
            if number % 64 == 0:
                assert other.read(SLBA, NLB, BLOCK) == data, f"PRESTAGE_TEST_SEED={SEED}"
        hinting.accepted(queue, hints.cancel(hints.CANCEL_EVERYTHING))
