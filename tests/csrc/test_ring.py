"""The ring of facts: what the data path puts in comes out in order, and it never waits."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ring_support import CAPACITY, Ring

from prestage._core import ffi, lib
from prestage.target import ring as ring_module
from prestage.target.ring import (
    FACT,
    HEADER,
    FactFlag,
    FactKind,
    RingError,
    RingReader,
)


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring()
    yield made
    made.close()


def ids(parts: tuple[Any, ...]) -> list[int]:
    return [int(number) for part in parts for number in part["id"]]


def members(name: str) -> dict[str, tuple[int, int]]:
    """Offset and size of each field of a C struct."""
    fields = ffi.typeof(f"struct {name}").fields
    return {key: (field.offset, ffi.sizeof(field.type)) for key, field in fields}


def columns(dtype: np.dtype[np.void]) -> dict[str, tuple[int, int]]:
    assert dtype.fields is not None
    return {name: (entry[1], entry[0].itemsize) for name, entry in dtype.fields.items()}


# ---- layout ----


def test_facts_in_python_are_those_of_the_header() -> None:
    assert columns(FACT) == members("ps_fact")
    assert FACT.itemsize == ffi.sizeof("struct ps_fact") == 64


def test_header_in_python_is_that_of_the_header() -> None:
    reserved = {"reserved", "pad", "pad2"}
    expected = {name: at for name, at in members("ps_ring_header").items() if name not in reserved}
    assert columns(HEADER) == expected
    assert HEADER.itemsize == ffi.sizeof("struct ps_ring_header")
    assert (ring_module.MAGIC, ring_module.VERSION) == (lib.PS_RING_MAGIC, lib.PS_RING_VERSION)


@pytest.mark.parametrize(
    ("enum", "python"), [("ps_fact_kind", FactKind), ("ps_fact_flag", FactFlag)]
)
def test_names_in_python_are_those_of_the_header(enum: str, python: Any) -> None:
    expected = ffi.typeof(f"enum {enum}").relements
    assert {f"PS_FACT_{member.name}": int(member) for member in python} == expected


def test_every_field_of_a_fact_comes_through(ring: Ring) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    sizes = {name: size for name, (_, size) in members("ps_fact").items()}
    values = {name: rng.getrandbits(8 * size) for name, size in sizes.items()}
    fact = ffi.new("struct ps_fact *", values)
    assert lib.ps_ring_put(ring.ring, fact)
    with RingReader(ring.fd) as reader:
        (part,) = reader.take()
        assert {name: int(part[0][name]) for name in values} == values


# ---- order, room and loss ----


def test_facts_come_out_in_order_in_two_views_at_the_end_of_the_memory(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        assert reader.take() == ()
        assert ring.put(10) == 10
        assert ids(reader.take()) == list(range(10))
        reader.release()
        assert ring.put(12) == 12
        parts = reader.take()
        assert [len(part) for part in parts] == [6, 6]
        assert ids(parts) == list(range(10, 22))
        assert [int(value) ^ 0xFFFF for value in parts[1]["value"]] == list(range(16, 22))


def test_arrays_are_views_that_cannot_be_written(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        ring.put(2)
        (part,) = reader.take()
        assert part.base is not None
        assert not part.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            part["id"] = 7


def test_full_ring_loses_the_new_and_counts_it(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        assert ring.put(CAPACITY + 5) == CAPACITY
        assert reader.lost == 5
        assert ids(reader.take()) == list(range(CAPACITY))
        # What was taken is not free before it was released.
        assert ring.put() == 0
        assert reader.lost == 6
        reader.release()
        assert ring.put(CAPACITY + 1) == CAPACITY
        assert ids(reader.take()) == list(range(CAPACITY, 2 * CAPACITY))
        assert reader.lost == 7


def test_room_is_for_all_or_nothing_and_what_is_given_up_is_counted(ring: Ring) -> None:
    ring.put(CAPACITY - 3)
    assert lib.ps_ring_has_room(ring.ring, 3)
    assert not lib.ps_ring_has_room(ring.ring, 4)
    assert not lib.ps_ring_has_room(ring.ring, 2**32 - 1)
    lib.ps_ring_lose(ring.ring, 4)
    with RingReader(ring.fd) as reader:
        assert reader.lost == 4
        assert reader.backlog == CAPACITY - 3


def test_most_bounds_a_take_and_the_rest_follows(ring: Ring) -> None:
    with RingReader(ring.fd) as reader:
        ring.put(9)
        assert ids(reader.take(4)) == [0, 1, 2, 3]
        assert ids(reader.take(0)) == []
        assert ids(reader.take(4)) == [4, 5, 6, 7]
        assert reader.backlog == 5
        assert ids(reader.take()) == [8]


def test_next_reader_goes_on_after_what_was_released(ring: Ring) -> None:
    ring.put(8)
    with RingReader(ring.fd) as reader:
        reader.take(3)
        reader.release()
        reader.take(2)
    with RingReader(ring.fd) as reader:
        assert ids(reader.take()) == [3, 4, 5, 6, 7]


def test_random_turns_keep_order_and_counts() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed={seed}")
    rng = random.Random(seed)
    ring = Ring(1 << rng.randrange(7))
    found: list[int] = []
    tried = 0
    with RingReader(ring.fd) as reader:
        for _ in range(2000):
            count = rng.randrange(2 * reader.capacity)
            tried += count
            ring.put(count)
            found += ids(reader.take(rng.choice([None, rng.randrange(8)])))
        found += ids(reader.take())
        assert found == list(range(ring.put_count))
        assert reader.lost == tried - ring.put_count
    ring.close()


# ---- between processes ----

READ_ALL = """
import sys
from prestage.target.ring import RingReader

expected = 0
with RingReader(int(sys.argv[1])) as reader:
    print("ready", flush=True)
    for line in sys.stdin:
        for part in reader.take():
            ids = part["id"].tolist()
            assert ids == list(range(expected, expected + len(ids))), (expected, ids[:3])
            assert (part["value"] ^ part["id"] == 0xFFFF).all()
            expected += len(ids)
        reader.release()
        print(expected, flush=True)
"""


def test_reader_in_another_process_sees_every_fact_once(ring: Ring) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", READ_ALL, str(ring.fd)],
        pass_fds=[ring.fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    for turn in range(200):
        assert ring.put(1 + turn % (CAPACITY + 4)) == min(1 + turn % (CAPACITY + 4), CAPACITY)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == f"{ring.put_count}\n"
    child.communicate(timeout=60)
    assert child.returncode == 0


def test_reader_that_never_comes_keeps_nobody_waiting(ring: Ring) -> None:
    assert ring.put(1000) == CAPACITY


# ---- what is no ring, and a reader that writes nonsense ----


def test_memory_cannot_be_resized_by_anybody(ring: Ring) -> None:
    size = os.fstat(ring.fd).st_size
    for other in (0, size // 2, size * 2):
        with pytest.raises(PermissionError):
            os.ftruncate(ring.fd, other)
    with pytest.raises(PermissionError):
        fcntl.fcntl(ring.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("magic", 1, "magic 0x1, version 1, fact_size 64"),
        ("version", 2, "version 2, fact_size 64"),
        ("fact_size", 72, "fact_size 72"),
        ("capacity", 0, "0 facts at byte 4096"),
        ("capacity", 24, "24 facts at byte 4096"),
        ("capacity", 32, "32 facts at byte 4096"),
        ("facts_offset", 1 << 20, "16 facts at byte 1048576"),
    ],
)
def test_what_is_no_ring_of_this_version_is_refused(
    ring: Ring, name: str, value: int, text: str
) -> None:
    with mmap.mmap(ring.fd, os.fstat(ring.fd).st_size) as memory:
        header = np.frombuffer(memory, HEADER, count=1)
        header[name] = value
        with pytest.raises(RingError, match=text):
            RingReader(ring.fd)
        del header


def test_memory_too_small_for_a_header_is_refused() -> None:
    descriptor = os.memfd_create("small")
    os.ftruncate(descriptor, 100)
    with pytest.raises(RingError, match="100 bytes"):
        RingReader(descriptor)
    os.close(descriptor)


@pytest.mark.parametrize("tail", [CAPACITY + 1, 2**63, 2**64 - CAPACITY])
def test_tail_that_cannot_be_costs_only_facts(ring: Ring, tail: int) -> None:
    """The producer neither believes it nor writes outside of the ring."""
    ring.put(4)
    with mmap.mmap(ring.fd, os.fstat(ring.fd).st_size) as memory:
        header = np.frombuffer(memory, HEADER, count=1)
        header["tail"] = tail
        header["capacity"] = 1 << 40
        assert ring.put(100) == 0
        assert int(header["lost"][0]) == 100
        header["tail"] = 4
        assert ring.put(100) == CAPACITY
        header["capacity"] = CAPACITY
        del header
    with RingReader(ring.fd) as reader:
        assert ids(reader.take()) == list(range(4, 4 + CAPACITY))


@pytest.mark.parametrize("byte", [0, 255, 0x5A])
def test_after_a_reader_that_wrote_everywhere_the_next_one_can_read(ring: Ring, byte: int) -> None:
    ring.put(4)
    with mmap.mmap(ring.fd, os.fstat(ring.fd).st_size) as memory:
        memory[: HEADER.itemsize] = bytes([byte]) * HEADER.itemsize
    lib.ps_ring_renew(ring.ring)
    kept = ring.put_count if byte == 0 else 0
    assert ring.put(3) == 3
    with RingReader(ring.fd) as reader:
        assert len(ids(reader.take())) == kept + 3
        assert reader.lost == 0


def test_a_ring_that_is_told_again_keeps_what_was_not_taken(ring: Ring) -> None:
    ring.put(5)
    with RingReader(ring.fd) as reader:
        reader.take()
        reader.take()
    ring.put(CAPACITY + 2)
    lib.ps_ring_renew(ring.ring)
    with RingReader(ring.fd) as reader:
        assert ids(reader.take()) == list(range(5, 5 + CAPACITY))
        assert reader.lost == 2


def test_reader_notices_counts_that_cannot_be(ring: Ring) -> None:
    with RingReader(ring.fd) as reader, mmap.mmap(ring.fd, os.fstat(ring.fd).st_size) as memory:
        header = np.frombuffer(memory, HEADER, count=1)
        header["head"] = CAPACITY + 1
        with pytest.raises(RingError, match="17 facts wait"):
            reader.take()
        del header


def test_absurd_capacity_is_refused() -> None:
    assert lib.ps_ring_new(1 << 62) == ffi.NULL
