"""Batches are looked at as a whole: the same faults at the same places as the codec finds."""

from __future__ import annotations

import os
import random

import pytest
from hints_media import PER_SLOT
from hints_support import Result, Rig

from prestage._core import ffi, lib
from prestage.ext import codec, records
from prestage.ext.errors import Malformed
from prestage.ext.layout import MAX_BATCH_BYTES, PAGE_BYTES
from prestage.ext.names import AnswerState, CancelWhat, Fault, IntentFlag, SetFlag, SetOp
from prestage.ext.records import Range, Record

SEED = int(os.environ.get("PRESTAGE_SEED", "0")) or random.SystemRandom().randrange(1 << 31)
ROUNDS = 4000


def check(data: bytes, max_size: int = MAX_BATCH_BYTES) -> tuple[int, int]:
    """Return fault and offset of bytes that stand in memory of exactly their size."""
    memory = ffi.new("uint8_t[]", data) if data else ffi.NULL
    result = ffi.new("struct ps_hints_result *")
    lib.ps_hints_check(memory, len(data), max_size, result)
    return result.fault, result.fault_offset


def codec_says(data: bytes, max_size: int = MAX_BATCH_BYTES) -> tuple[int, int]:
    """Return what the codec says of them."""
    try:
        codec.decode_batch(data, max_size)
    except Malformed as error:
        return error.fault, error.offset
    return Fault.NONE, 0


def some_records() -> list[Record]:
    ranges = (Range(0, 1), Range(PER_SLOT, 5))
    return [
        records.SetRecord(1, 1, ranges, flags=SetFlag.ORDERED),
        records.Signature(1, 8, 8, bytes(range(16))),
        records.Intent(1, 1000, 1, ranges, flags=IntentFlag.PREFIX, priority=1),
        records.Retain(10, 1, ranges),
        records.Cancel(CancelWhat.SESSION, 5),
        records.Residency(1, ranges),
        records.Outcome(4),
        records.Unknown(0x4001, bytes(16)),
        records.SetRecord(1, 1, op=SetOp.DROP),
    ]


def mutant(data: bytes, chosen: random.Random) -> bytes:
    """Return the batch with some bytes changed, as a rule with a good checksum."""
    changed = bytearray(data)
    for _ in range(chosen.randrange(1, 4)):
        at = chosen.randrange(len(changed))
        changed[at] = chosen.choice((0, 1, 8, 0xFF, chosen.randrange(256)))
    if chosen.random() < 0.2:
        del changed[chosen.randrange(len(changed)) :]
    if chosen.random() < 0.1:
        changed += bytes(chosen.randrange(40))
    if chosen.random() < 0.9 and len(changed) >= 32:
        size = int.from_bytes(changed[8:12], "little")
        if 32 <= size <= len(changed):
            changed[:size] = codec.seal(bytes(changed[:size]))
    return bytes(changed)


def test_mutants_of_batches_have_the_fault_that_the_codec_finds() -> None:
    chosen = random.Random(SEED)
    found = set()
    for _ in range(ROUNDS):
        items = chosen.sample(some_records(), chosen.randrange(1, 9))
        data = mutant(codec.encode_batch(items, writer=3, sequence=9), chosen)
        said = codec_says(data)
        assert check(data) == said, f"seed {SEED}: {data.hex()}"
        found.add(said[0])
    assert found == set(Fault), f"seed {SEED}"


def test_every_cut_of_a_batch_is_refused_as_the_codec_does() -> None:
    data = codec.encode_batch(some_records(), writer=3, sequence=9)
    assert check(data) == (0, 0)
    for size in range(len(data)):
        assert check(data[:size]) == codec_says(data[:size])


def test_what_stands_beyond_the_batch_is_not_looked_at() -> None:
    data = codec.encode_batch(some_records(), writer=3, sequence=9)
    assert check(data + b"\xff" * 100) == (0, 0)


def test_a_batch_beyond_what_the_carrier_takes_is_refused_at_its_size() -> None:
    data = codec.encode_batch(some_records(), writer=3, sequence=9)
    assert check(data, len(data)) == (0, 0)
    assert check(data, len(data) - 8) == (Fault.SIZE, 8)


def header_with(data: bytes, offset: int, value: bytes) -> bytes:
    changed = data[:offset] + value + data[offset + len(value) :]
    return codec.seal(changed)


def test_a_later_minor_version_and_a_longer_header_are_taken() -> None:
    data = codec.encode_batch([records.Outcome(4)], writer=3, sequence=9)
    longer = data[:32] + b"\xaa" * 16 + data[32:]
    longer = header_with(longer, 5, b"\x07")
    longer = header_with(longer, 6, (48).to_bytes(2, "little"))
    longer = header_with(longer, 8, len(longer).to_bytes(4, "little"))
    assert check(longer) == (0, 0)
    assert Rig().submit_bytes(longer) == Result(0, 0, 1, 0, 0)


def test_another_major_version_is_refused() -> None:
    data = codec.encode_batch([records.Outcome(4)], writer=3, sequence=9)
    assert check(header_with(data, 4, b"\x02")) == (Fault.VERSION, 4)


def test_reserved_bytes_are_ignored() -> None:
    data = codec.encode_batch([records.SetRecord(1, 1, (Range(0, 1),))], writer=3, sequence=9)
    for offset in (30, 31, 32 + 28, 32 + 31, 64 + 12, 64 + 15):
        assert check(header_with(data, offset, b"\xff")) == (0, 0)


def test_unknown_records_are_skipped_and_counted() -> None:
    rig = Rig()
    unknown = records.Unknown(0x4001, bytes(16))
    result = rig.submit(unknown, records.SetRecord(1, 1, (Range(0, 1),)), unknown)
    assert result == Result(0, 0, accepted=1, dropped=0, unknown=2)
    assert rig.stats().sets == 1
    assert rig.stats().unknown == rig.status().unknown == 2


def test_a_malformed_batch_is_refused_whole() -> None:
    rig = Rig()
    good = records.SetRecord(1, 1, (Range(0, 1),))
    bad = records.SetRecord(2, 1, (Range(0, 1),))
    data = codec.encode_batch([good, bad], writer=3, sequence=9)
    bad_at = 32 + 48 + 32 + 8
    data = header_with(data, bad_at, bytes(4))
    assert rig.submit_bytes(data, mailbox=2) == Result(Fault.FIELD, bad_at, 0, 0, 0)
    assert rig.stats().sets == 0
    page = rig.answer(2)
    assert (page.state, page.fault, page.fault_offset) == (
        AnswerState.REFUSED,
        Fault.FIELD,
        bad_at,
    )
    assert (page.writer, page.sequence) == (3, 9)
    (refusal,) = rig.status().refusals
    assert (refusal.writer, refusal.sequence, refusal.mailbox) == (3, 9, 2)
    assert (refusal.fault, refusal.fault_offset) == (Fault.FIELD, bad_at)


def test_the_latest_refusals_are_remembered_newest_first() -> None:
    rig = Rig()
    for sequence in range(20):
        data = codec.encode_batch([records.Outcome(4)], writer=3, sequence=sequence)
        rig.submit_bytes(data[:-1] + b"\xff")
    status = rig.status()
    assert status.refused == rig.stats().refused == 20
    assert [each.sequence for each in status.refusals] == list(range(19, 3, -1))
    assert {each.mailbox for each in status.refusals} == {0xFFFF}
    assert rig.status(tenant=1).refused == 0


@pytest.mark.parametrize("size", [0, 1, 31])
def test_too_little_for_a_header_is_refused(size: int) -> None:
    assert Rig().submit_bytes(bytes(size)) == Result(Fault.SIZE, 0, 0, 0, 0)


def test_a_full_page_of_records_is_taken() -> None:
    rig = Rig()
    items = [records.Outcome(number) for number in range(1, 1 + (PAGE_BYTES - 32) // 16)]
    assert rig.submit(*items).accepted == len(items) == 254
