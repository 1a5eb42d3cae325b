"""C and Python refuse the same batches, with the same fault at the same byte (clause 5.5)."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from pax.strategies import RECORDS, batches_of, known_records

from prestage._core import ffi, lib
from prestage.ext import layout
from prestage.ext.codec import decode_batch, encode_batch, seal
from prestage.ext.errors import Malformed
from prestage.ext.names import CancelWhat, Fault
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

Verdict = tuple[int, int]
GOOD: Verdict = (Fault.NONE, 0)
ROUNDS = 1500
RANGES = (Range(1, 2), Range(3, 4))
SEEDS: list[list[Record]] = [
    [],
    [SetRecord(1, 1, RANGES), Intent(2, 3, set_id=1), Outcome(2)],
    [Intent(1, 2, 3, RANGES), Residency(1, RANGES), Cancel(CancelWhat.ALL), Unknown(77)],
    [Signature(1, 2, 3, bytes(16)), Retain(4, 5, RANGES), Signature(1, 2, 3, bytes(8))],
    [Outcome(number + 1) for number in range(40)],
]
INTERESTING = [0, 1, 2, 3, 4, 7, 8, 16, 24, 31, 32, 40, 48, 63, 64, 100, 101, 128, 0xFF]


def in_python(data: bytes, max_size: int) -> Verdict:
    try:
        decode_batch(data, max_size)
    except Malformed as error:
        return error.fault, error.offset
    return GOOD


def in_c(data: bytes, max_size: int) -> Verdict:
    result = ffi.new("struct ps_hints_result *")
    lib.ps_hints_check(data, len(data), max_size, result)
    return result.fault, result.fault_offset


def agreed(data: bytes, max_size: int = layout.MAX_BATCH_BYTES) -> Verdict:
    """Return what both say."""
    found = in_python(data, max_size)
    assert in_c(data, max_size) == found, (data.hex(), max_size)
    return found


@given(batches_of(RECORDS), st.integers(0, 8192))
def test_on_good_batches_of_any_size(data: bytes, max_size: int) -> None:
    agreed(data, min(max_size, layout.MAX_BATCH_BYTES))


@given(st.binary(max_size=200))
def test_on_noise(noise: bytes) -> None:
    agreed(noise)
    agreed(encode_batch([], writer=0, sequence=0)[:12] + noise)


@given(st.lists(known_records(), min_size=1, max_size=4), st.data())
def test_on_cut_and_changed_batches(items: list[Record], data: st.DataObject) -> None:
    whole = encode_batch(items, writer=1, sequence=1)
    cut = data.draw(st.integers(0, len(whole)))
    agreed(whole[:cut])
    at = data.draw(st.integers(0, len(whole) - 1))
    value = data.draw(st.binary(min_size=1, max_size=4))
    changed = (whole[:at] + value + whole[at + len(value) :])[: len(whole)]
    agreed(changed)
    agreed(seal(changed))


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return a batch with a few bytes changed, cut or longer, and mostly a good checksum."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(changed))
        changed[at] = rng.choice([*INTERESTING, rng.randrange(256)])
    if rng.random() < 0.2:
        del changed[rng.randrange(len(changed)) :]
    if rng.random() < 0.2:
        changed += rng.randbytes(rng.choice([1, 8, 16]))
    if rng.random() < 0.5 and len(changed) >= 12:
        changed[8:12] = len(changed).to_bytes(4, "little")
    if rng.random() < 0.9 and len(changed) >= 32:
        size = int.from_bytes(changed[8:12], "little")
        size = size if 32 <= size <= len(changed) else len(changed)
        changed[:size] = seal(bytes(changed[:size]))
    return bytes(changed)


def test_on_many_mutants_with_every_fault_among_them() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng, seen = random.Random(seed), Counter[int]()
    for items in SEEDS:
        data = encode_batch(items, writer=rng.getrandbits(64), sequence=rng.getrandbits(32))
        for _ in range(ROUNDS):
            seen[agreed(mutated(rng, data))[0]] += 1
    assert set(seen) == set(Fault), seen


@given(batches_of(RECORDS), st.integers(1, 255))
def test_a_later_minor_version_is_taken_by_both(data: bytes, minor: int) -> None:
    later = seal(data[:5] + bytes([minor]) + data[6:])
    if len(later) <= layout.MAX_BATCH_BYTES:
        assert agreed(later) == GOOD
