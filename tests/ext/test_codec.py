"""Batches: what goes in comes out, what is wrong is refused where it is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pax.strategies import RECORDS, U32, U64, batches_of, known_records

from prestage.ext import layout
from prestage.ext.codec import (
    Batch,
    decode_batch,
    encode_batch,
    encode_batches,
    encode_record,
    seal,
    split_set,
    to_page,
)
from prestage.ext.errors import BadRecord, BatchTooLarge, Malformed
from prestage.ext.names import CancelWhat, Fault, SetFlag, SetOp
from prestage.ext.records import (
    Cancel,
    Intent,
    Outcome,
    Range,
    Record,
    Residency,
    Retain,
    SetRecord,
    Signature,
    Unknown,
)

ONE = (Range(0, 1),)
BIG = (Range(0, 1),) * 255


@given(st.lists(RECORDS, max_size=8), U64, U32)
def test_a_batch_comes_back(items: list[Record], writer: int, sequence: int) -> None:
    data = encode_batch(items, writer=writer, sequence=sequence, max_size=1 << 20)
    assert decode_batch(data, 1 << 20) == Batch(writer, sequence, tuple(items))


@given(batches_of(RECORDS))
def test_the_bytes_come_back(data: bytes) -> None:
    batch = decode_batch(data, len(data))
    again = encode_batch(
        batch.records, writer=batch.writer, sequence=batch.sequence, max_size=len(data)
    )
    assert again == data


@given(batches_of(RECORDS), st.binary(max_size=64))
def test_what_stands_beyond_a_batch_is_not_looked_at(data: bytes, beyond: bytes) -> None:
    assert decode_batch(data + beyond, len(data)) == decode_batch(data, len(data))


@given(st.lists(RECORDS, max_size=100), U32)
def test_long_lists_are_split_in_order(items: list[Record], sequence: int) -> None:
    pages = list(encode_batches(items, writer=7, sequence=sequence))
    batches = [decode_batch(to_page(page)) for page in pages]
    numbers = [(sequence + number) % 2**32 for number in range(len(pages))]
    assert [batch.sequence for batch in batches] == numbers
    assert [record for batch in batches for record in batch.records] == items


def test_batches_end_where_the_answers_would_not_fit() -> None:
    outcomes = [Outcome(number + 1) for number in range(200)]
    sizes = [
        len(decode_batch(page).records) for page in encode_batches(outcomes, writer=1, sequence=0)
    ]
    assert sizes == [72, 72, 56]
    assert 72 * layout.OUTCOME_ANSWER.size <= layout.PAGE_BYTES - layout.ANSWER.size


def test_a_set_of_many_ranges_is_defined_and_then_extended() -> None:
    ranges = tuple(Range(number, 1) for number in range(1000))
    whole = SetRecord(5, 1, ranges, flags=SetFlag.ORDERED, ttl_ms=9, tag=3)
    parts = list(split_set(whole))
    assert [part.op for part in parts] == [SetOp.DEFINE] + [SetOp.EXTEND] * (len(parts) - 1)
    assert tuple(each for part in parts for each in part.ranges) == ranges
    assert {(part.set_id, part.flags, part.ttl_ms, part.tag) for part in parts} == {(5, 1, 9, 3)}
    assert len(list(encode_batches([whole], writer=1, sequence=0))) == len(parts)


def test_more_than_a_page_is_refused() -> None:
    with pytest.raises(BatchTooLarge):
        encode_batch([SetRecord(1, 1, BIG)], writer=1, sequence=1)
    with pytest.raises(BatchTooLarge):
        to_page(bytes(4097))


BAD: list[Record] = [
    SetRecord(0, 1, ONE),
    SetRecord(1 << 63, 1, ONE),
    SetRecord(1 << 64, 1, ONE),
    SetRecord(1, 1),
    SetRecord(1, 1, ONE, op=SetOp.DROP),
    SetRecord(1, 1, ONE, op=SetOp(9)),
    SetRecord(1, -1, ONE),
    SetRecord(1, 1, (Range(0, 0),)),
    SetRecord(1, 1, (Range(-1, 1),)),
    Signature(1, 0, 1, b"short"),
    Signature(1, 0, 0, bytes(8)),
    Intent(0, 1, 1, ONE),
    Intent(1, 1, 1),
    Intent(1, 1, 1, ONE, set_id=1),
    Intent(1, 1, 1, ONE, priority=4),
    Intent(1, 1, 1, ONE, confidence=101),
    Intent(1, 1 << 32, 1, ONE),
    Retain(1, 1),
    Cancel(CancelWhat(0)),
    Residency(1),
    Outcome(0),
    Unknown(1, bytes(8)),
    Unknown(0x777, bytes(7)),
]


@pytest.mark.parametrize("record", BAD, ids=str)
def test_our_own_wrong_values_are_refused_before_they_are_sent(record: Record) -> None:
    with pytest.raises(BadRecord):
        encode_record(record)


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    return seal(data[:offset] + value + data[offset + len(value) :])


GOOD = encode_batch(
    [Intent(1, 2, 3, ONE), Signature(1, 0, 1, bytes(16)), Outcome(1)], writer=1, sequence=1
)
AT = 32  # of the INTENT
AT_SIGNATURE = AT + 64
AT_OUTCOME = AT_SIGNATURE + 48
FAULTS: list[tuple[str, int, bytes, Fault, int]] = [
    ("magic", 0, b"NAXB", Fault.MAGIC, 0),
    ("major", 4, b"\2", Fault.VERSION, 4),
    ("header too small", 6, b"\x18\0", Fault.SIZE, 6),
    ("header not aligned", 6, b"\x21\0", Fault.SIZE, 6),
    ("fewer records", 28, b"\2\0", Fault.COUNT, AT_OUTCOME),
    ("more records", 28, b"\4\0", Fault.COUNT, len(GOOD)),
    ("record smaller than a header", AT + 2, b"\0\0", Fault.RECORD_SIZE, AT + 2),
    ("record not aligned", AT + 2, b"\x41\0", Fault.RECORD_SIZE, AT + 2),
    ("record beyond the batch", AT + 2, b"\xf8\0", Fault.RECORD_SIZE, AT + 2),
    ("record smaller than its type", AT_OUTCOME + 2, b"\x08\0", Fault.RECORD_SIZE, AT_OUTCOME + 2),
    ("record larger than its ranges", AT + 40, b"\0\0", Fault.RECORD_SIZE, AT + 2),
    ("intent without id", AT + 8, bytes(8), Fault.FIELD, AT + 8),
    ("set and ranges", AT + 24, b"\1", Fault.FIELD, AT + 40),
    ("priority", AT + 42, b"\4", Fault.FIELD, AT + 42),
    ("confidence", AT + 43, b"\x65", Fault.FIELD, AT + 43),
    ("empty range", AT + 48 + 8, bytes(4), Fault.FIELD, AT + 48 + 8),
    ("empty signature", AT_SIGNATURE + 16, bytes(4), Fault.FIELD, AT_SIGNATURE + 16),
    ("bits", AT_SIGNATURE + 24, b"\x20\0", Fault.FIELD, AT_SIGNATURE + 24),
]


@pytest.mark.parametrize(("name", "at", "value", "fault", "offset"), FAULTS, ids=str)
def test_faults_are_found_where_they_are(
    name: str, at: int, value: bytes, fault: Fault, offset: int
) -> None:
    with pytest.raises(Malformed) as caught:
        decode_batch(patched(GOOD, at, value))
    assert (caught.value.fault, caught.value.offset) == (fault, offset)


def test_a_short_batch_and_one_of_a_wrong_size_are_refused() -> None:
    for data, offset in [(GOOD[:31], 0), (GOOD[:-1], 8), (b"", 0)]:
        with pytest.raises(Malformed) as caught:
            decode_batch(data)
        assert (caught.value.fault, caught.value.offset) == (Fault.SIZE, offset)
    with pytest.raises(Malformed) as caught:
        decode_batch(GOOD, len(GOOD) - 8)
    assert (caught.value.fault, caught.value.offset) == (Fault.SIZE, 8)


@given(st.data())
def test_any_changed_bit_is_noticed(data: Any) -> None:
    bit = data.draw(st.integers(0, len(GOOD) * 8 - 1))
    changed = bytearray(GOOD)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Malformed):
        decode_batch(changed)


def test_reserved_bytes_and_unknown_flags_are_ignored() -> None:
    data = patched(GOOD, AT + 45, b"\1\2\3")
    assert decode_batch(data).records == decode_batch(GOOD).records
    (intent, *_) = decode_batch(patched(GOOD, AT + 44, b"\x80")).records
    assert isinstance(intent, Intent)
    assert intent.flags == 0x80


@given(known_records(), st.integers(6, 0xFF), st.binary(max_size=5))
def test_records_of_a_later_version_are_skipped(record: Record, kind: int, body: bytes) -> None:
    unknown = Unknown(kind, body * 8, tag=9)
    data = encode_batch([unknown, record, unknown], writer=1, sequence=2, max_size=1 << 20)
    assert decode_batch(data, 1 << 20).records == (unknown, record, unknown)


@given(known_records(), st.integers(1, 255), st.binary(min_size=8, max_size=8))
def test_a_later_minor_version_may_have_a_longer_header(
    record: Record, minor: int, more: bytes
) -> None:
    data = encode_batch([record], writer=1, sequence=2, max_size=1 << 20)
    longer = bytearray(data[:32] + more + data[32:])
    longer[5], longer[6] = minor, 40
    longer[8:12] = len(longer).to_bytes(4, "little")
    assert decode_batch(seal(bytes(longer)), 1 << 20) == dataclasses.replace(
        decode_batch(data, 1 << 20), minor=minor
    )
