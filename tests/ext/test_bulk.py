"""Checksums by numpy, and the bulk paths: what they make is what the codec makes one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from nvme_tcp.crc32c import crc32c as plain_crc32c

from prestage.ext.bulk import decode_signatures, encode_set, encode_signatures
from prestage.ext.codec import decode_batch, encode_batch
from prestage.ext.crc import crc32c, crc32c_pages
from prestage.ext.errors import BadRecord, Malformed
from prestage.ext.names import SetFlag, SetOp
from prestage.ext.records import Intent, Outcome, Range, Record, SetRecord, Signature

ONES = np.ones(3, dtype=np.uint32)


# RFC 3720, B.4
@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_checksum_has_its_published_values(data: bytes, value: int) -> None:
    assert crc32c(data) == value


@given(st.binary(min_size=1, max_size=64), st.integers(1, 300), st.integers(0, 9))
def test_the_checksum_of_any_length_is_that_of_the_plain_algorithm(
    data: bytes, times: int, cut: int
) -> None:
    whole = (data * times)[cut:]
    assert crc32c(whole) == plain_crc32c(whole)


def test_the_checksum_goes_on_across_blocks() -> None:
    data = np.random.default_rng(5).bytes(3 * 4096 + 5)
    for size in (4095, 4096, 4097, 4099, 4100, 8192, len(data)):
        assert crc32c(data[:size]) == plain_crc32c(data[:size])


@given(arrays.arrays(np.uint8, st.tuples(st.integers(0, 4), st.integers(4, 200))))
def test_many_checksums_at_once(pages: np.ndarray[Any, Any]) -> None:
    assert crc32c_pages(pages).tolist() == [crc32c(page.tobytes()) for page in pages]


@pytest.mark.parametrize("count", [0, 1, 84, 85, 168, 1000])
@pytest.mark.parametrize("width", [8, 16])
def test_signatures_are_those_of_the_codec(count: int, width: int) -> None:
    rng = np.random.default_rng(count)
    slba = rng.integers(0, 1 << 63, count, dtype=np.uint64)
    nlb = rng.integers(1, 1 << 32, count, dtype=np.uint32)
    vectors = rng.integers(0, 256, (count, width), dtype=np.uint8)
    first = 0xFFFFFFFF
    pages = encode_signatures(
        slba, nlb, vectors, nsid=3, writer=9, sequence=first, family=2, ttl_ms=70
    )
    records = [
        Signature(3, int(slba[n]), int(nlb[n]), vectors[n].tobytes(), 2, 70) for n in range(count)
    ]
    wanted = [
        encode_batch(records[start : start + 84], writer=9, sequence=(first + number) % 2**32)
        for number, start in enumerate(range(0, count, 84))
    ]
    assert pages == wanted
    if pages:
        rows = np.concatenate([decode_signatures(page) for page in pages])
        assert (rows["slba"] == slba).all()
        assert (rows["vector"][:, :width] == vectors).all()


@pytest.mark.parametrize("count", [1, 252, 253, 1000])
def test_a_set_of_many_ranges_is_that_of_the_codec(count: int) -> None:
    slba, nlb = np.arange(count, dtype=np.uint64) * 8, np.full(count, 8, dtype=np.uint32)
    pages = encode_set(7, slba, nlb, nsid=1, writer=2, sequence=5, flags=SetFlag.ORDERED, ttl_ms=3)
    batches = [decode_batch(page) for page in pages]
    assert [batch.sequence for batch in batches] == list(range(5, 5 + len(pages)))
    found: list[SetRecord] = []
    for batch in batches:
        (record,) = batch.records
        assert isinstance(record, SetRecord)
        found.append(record)
    assert [each.op for each in found] == [SetOp.DEFINE, *[SetOp.EXTEND] * (len(pages) - 1)]
    ranges = [Range(int(slba[n]), int(nlb[n])) for n in range(count)]
    assert [each for record in found for each in record.ranges] == ranges
    assert all((each.set_id, each.flags, each.ttl_ms) == (7, 1, 3) for each in found)


def test_wrong_arrays_are_refused() -> None:
    def signed(slba: Any = ONES, nlb: Any = ONES, vectors: Any = None) -> None:
        vectors = np.zeros((3, 8), dtype=np.uint8) if vectors is None else vectors
        encode_signatures(slba, nlb, vectors, nsid=1, writer=1, sequence=1)

    wrong: list[dict[str, Any]] = [
        {"slba": ONES[:2]},
        {"nlb": ONES * 0},
        {"nlb": ONES.astype(np.uint64) << 32},
        {"slba": -ONES.astype(np.int64)},
        {"vectors": np.zeros((3, 9), dtype=np.uint8)},
        {"vectors": np.zeros((3, 8), dtype=np.uint16)},
    ]
    for arguments in wrong:
        with pytest.raises(BadRecord):
            signed(**arguments)
    for set_id in (0, 1 << 63):
        with pytest.raises(BadRecord):
            encode_set(set_id, ONES, ONES, nsid=1, writer=1, sequence=1)
    with pytest.raises(BadRecord):
        encode_set(1, ONES[:0], ONES[:0], nsid=1, writer=1, sequence=1)


def test_signatures_are_taken_out_of_batches_of_nothing_else() -> None:
    signature = Signature(1, 2, 3, bytes(8))
    others: list[list[Record]] = [[signature, Outcome(1)], [Intent(1, 2, set_id=3)] * 3]
    for records in others:
        with pytest.raises(BadRecord):
            decode_signatures(encode_batch(records, writer=1, sequence=1))
    with pytest.raises(Malformed):
        decode_signatures(bytes(64))
    with pytest.raises(BadRecord):
        encode_signatures(
            ONES, ONES, np.zeros((3, 8), dtype=np.uint8), nsid=-1, writer=1, sequence=1
        )
